"""The recovery of one connection, sans-IO: the steps between a loss and the restored state.

    lost → next_ms → (the shell waits) → begin → (socket, handshake) → restore → … → recovered
                ↑ ──────────────────────── an attempt fails ────────────────────┘

A shell waits and opens sockets; everything else is done here and in the modules imported here.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from leveret.client.errors import ClientError
from leveret.client.events import ConnectionEnded
from leveret.client.recovery.backoff import Backoff
from leveret.client.recovery.restoration import Restoration
from leveret.client.recovery.revival import Revivals
from leveret.client.recovery.settings import Disconnected, GaveUp, Reconnecting, Recovered
from leveret.client.session.connection import ClientConnection
from leveret.client.session.memory import ChannelMemory, ConnectionMemory
from leveret.errors import AmqpError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leveret.client.events import Cancelled, ChannelEnded, Event
    from leveret.client.recovery.settings import Recovery, RecoveryEvent
    from leveret.client.uri import Parameters

log = logging.getLogger("leveret.client")


class Recoverer:
    """The recovery of one connection to any of `targets`, which are tried in order.

    `publisher` is the unique publisher name for publisher deduplication.  `publish_session` is a
    secret name that all successive connections use for their publishes.
    """

    def __init__(
        self,
        settings: Recovery,
        targets: Sequence[Parameters],
        properties: Mapping[str, object],
        publisher: str,
        publish_session: str = "",
    ) -> None:
        self.settings = settings
        self.targets = list(targets)
        self.memory = ConnectionMemory(publisher, publish_session)
        self._properties = properties
        self._target = 0
        self._backoff: Backoff | None = None
        #: The back-off of the last recovery, and the time of its success.
        self._last_backoff: Backoff | None = None
        self._recovered_ms = 0
        self._restoration: Restoration | None = None
        self._is_stopped = False
        self._now_ms = 0
        self._lost_ms = 0
        #: The consumers that the broker cancelled and that wait for their queues.
        self.revivals = Revivals(settings)

    @property
    def is_recovering(self) -> bool:
        """Whether the connection is lost and recovery is still in progress."""
        return self.memory.is_recovering

    # -- attempts ----------------------------------------------------------------------------------

    def session(self, now_ms: int, target: Parameters) -> ClientConnection:
        """Return the session of the first connection."""
        return ClientConnection(target, now_ms, self._properties, self.memory)

    def lost(self, error: Exception, now_ms: int) -> None:
        """Handle the loss of an open connection."""
        log.warning("the connection is lost: %s", error)
        self._lost_ms = now_ms
        for memory in self.memory.channels:
            memory.owner.suspended()
        settings = self.settings
        attempts_max, seconds_max = settings.reconnect_attempts_max, settings.reconnect_seconds_max
        doublings = self._doublings(now_ms)
        self._backoff = Backoff(settings, now_ms, attempts_max, seconds_max, doublings)
        self._tell(Disconnected(error))

    def _doublings(self, now_ms: int) -> int:
        """Return the doublings with which the back-off after a loss starts.

        A connection that lasted no longer than the last delay counts as another failed attempt.
        Otherwise a broker that accepts connections and drops them at once would get ten attempts
        per second.
        """
        last = self._last_backoff
        if last is None or now_ms - self._recovered_ms > last.delay_ms:
            return 0
        return last.doublings

    def next_ms(self, error: Exception, now_ms: int) -> int | None:
        """Return the milliseconds until the next attempt, or None to give up.

        `error` is the reason for the attempt.  An error from neither the network nor the broker is
        final because every attempt would repeat it, for example a publish that is too large for the
        frames of another broker.
        """
        if self._backoff is None or self._is_stopped:
            return None
        if not isinstance(error, (OSError, AmqpError, ClientError)):
            return None
        delay_ms = self._backoff.next_ms(now_ms)
        if delay_ms is None:
            return None
        log.info("reconnecting, attempt %d: %s", self._backoff.attempts, error)
        self._tell(Reconnecting(self._backoff.attempts, delay_ms / 1000, error))
        return delay_ms

    def begin(self, now_ms: int) -> ClientConnection:
        """Return the session of the next attempt, with the next target."""
        target = self.targets[self._target % len(self.targets)]
        self._target += 1
        self._now_ms = now_ms
        self.memory.generation += 1
        return self.session(now_ms, target)

    def opened(self, session: ClientConnection) -> None:
        """Record whether the broker of a session supports publisher deduplication."""
        self.memory.is_numbering = self.settings.numbered and session.is_leveret

    def restore(
        self,
        session: ClientConnection,
        done: Callable[[Exception | None], None],
        progressed: Callable[[], None],
    ) -> None:
        """Restore channels, topology and consumers on an open session.

        `progressed` is called on each answer of the broker, and `done` with the outcome.
        """
        limit = self.settings.exclusive_seconds_max
        is_patient = limit is None or self._now_ms - self._lost_ms < limit * 1000
        self._restoration = Restoration(
            self.memory, session, done, self._consumer_refused, progressed, is_patient
        )
        self._restoration.start()

    def _consumer_refused(self, memory: ChannelMemory, consumer_tag: str, error: Exception) -> None:
        """Make a consumer wait for its queue, or end it with the error."""
        waits = isinstance(error, NotFound)
        if not waits or not self.revivals.add(memory, consumer_tag, self._now_ms):
            memory.owner.consumer_refused(consumer_tag, error)

    def takes_cancel(self, event: Cancelled, now_ms: int) -> bool:
        """Make a cancelled consumer wait for its queue; return False if the consumer must end."""
        memories = [one for one in self.memory.channels if one.owner is event.channel.owner]
        return any(self.revivals.add(one, event.consumer_tag, now_ms) for one in memories)

    def takes_end(self, event: ChannelEnded) -> bool:
        """Return whether a channel's end concerned only the restoration, which has handled it."""
        return self._restoration is not None and self._restoration.takes_end(event)

    def abandon(self) -> None:
        """Stop the restoration on the connection of a failed attempt."""
        self.memory.is_recovering = True
        if self._restoration is not None:
            self._restoration.stop()
            self._restoration = None

    def recovered(self, now_ms: int) -> None:
        """Handle the success of an attempt."""
        restoration, backoff = self._restoration, self._backoff
        self._last_backoff, self._recovered_ms = backoff, now_ms
        self._restoration = self._backoff = None
        self._target -= 1  # after another loss, try the current address first
        attempts = backoff.attempts if backoff is not None else 0
        log.info("the connection is recovered after %d attempts", attempts)
        failures = tuple(restoration.failures) if restoration is not None else ()
        self._tell(Recovered(attempts, failures))

    def use_password(self, password: str) -> None:
        """Use another password from the next attempt on."""
        self.targets = [replace(target, password=password) for target in self.targets]

    # -- the end -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop recovering, because the application closes the connection."""
        self._is_stopped = True

    def give_up(self, error: Exception | None) -> list[Event]:
        """Return the events that end the connection and its channels for good."""
        if self._restoration is not None:
            self._restoration.stop()
        self.memory.is_recovering = False
        events: list[Event] = []
        for memory in list(self.memory.channels):
            if memory.session is not None:
                memory.session.end(error, events)
        events.append(ConnectionEnded(error))
        if error is not None:
            self._tell(GaveUp(error))
        return events

    def _tell(self, event: RecoveryEvent) -> None:
        """Notify the application; an error in its callback is logged and ignored."""
        if self.settings.on_event is None:
            return
        try:
            self.settings.on_event(event)
        except Exception:
            log.exception("the recovery callback failed on %r", event)
