"""The common part of a connection in either shell: a session and the dispatch of its events.

Sockets, timers and waiting differ between the shells and are not here.
"""

from __future__ import annotations

import secrets
import ssl as ssl_module
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from leveret.client.addresses import addresses
from leveret.client.errors import Closed, InputFull, Unreachable
from leveret.client.events import (
    Blocked,
    CameBack,
    Cancelled,
    ChannelEnded,
    ConnectionEnded,
    Delivered,
    FlowChanged,
    Lost,
    Opened,
    Replied,
    Settled,
    Unblocked,
)
from leveret.client.numbering import PUBLISHER_PREFIX
from leveret.client.options import split
from leveret.client.recovery.recoverer import Recoverer
from leveret.client.recovery.settings import settings_of
from leveret.client.session.connection import ClientConnection
from leveret.client.session.states import ConnectionState
from leveret.client.shell.shown import INTERNAL_OF_CONNECTION, shown
from leveret.errors import ConnectionForced
from leveret.limits import CLIENT_INPUT_BYTES_MAX, CLIENT_OUTPUT_BYTES_MAX

if TYPE_CHECKING:
    from leveret.client.addresses import Address
    from leveret.client.events import Event
    from leveret.client.options import ConnectOptions
    from leveret.client.uri import Parameters

#: The size of buffered messages above which the socket is not read, unless a reply is awaited.
_INPUT_BYTES_HIGH: Final = 16 * 1024 * 1024


#: Failures after which the next address is tried: no answer, or a broker that is stopping.
UNANSWERED: Final = (OSError, ConnectionForced)


class ShellConnection(ABC):
    """A connection of a shell; `session` is its sans-IO state."""

    def __init__(self, parameters: Parameters, prepared: Prepared) -> None:
        #: The address and the login.
        self.parameters = parameters
        self._prepared = prepared
        self.traces = prepared.traces
        self.recoverer: Recoverer | None = None
        if prepared.recovery is None:
            self.session = ClientConnection(parameters, monotonic_ms(), prepared.properties)
        else:
            names = f"{PUBLISHER_PREFIX}{secrets.token_hex(12)}", secrets.token_hex(16)
            first = prepared.addresses.index(parameters)
            targets = [*prepared.addresses[first:], *prepared.addresses[:first]]
            self.recoverer = Recoverer(prepared.recovery, targets, prepared.properties, *names)
            self.session = self.recoverer.session(monotonic_ms(), parameters)
        #: True from a loss until recovery succeeds or is given up.
        self._is_attempting = False
        #: The broker's reason while it blocks publishers, else None.
        self.blocked_reason: str | None = None
        self._input_bytes = 0
        #: The size of the last batch of messages.
        self._newest_bytes = 0
        #: The `input_bytes` above which asyncio reads only for awaited replies; adjustable.
        self.input_bytes_high = _INPUT_BYTES_HIGH
        #: The `input_bytes` above which the connection ends with InputFull; adjustable.
        self.input_bytes_max = CLIENT_INPUT_BYTES_MAX
        #: The unsent bytes above which `publish_nowait` of asyncio raises OutputFull; adjustable.
        self.output_bytes_max = CLIENT_OUTPUT_BYTES_MAX

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used, as of the last input read."""
        return self.session.state is ConnectionState.OPEN

    @property
    def is_recovering(self) -> bool:
        """Whether the connection is lost and being recovered."""
        return self.recoverer is not None and self.recoverer.is_recovering

    def current_queue_name(self, queue: str) -> str:
        """Return the current name of a queue, which changes if the broker generates a new one.

        The channels of this connection accept either name; other connections need the current one
        to publish to the queue.
        """
        if self.recoverer is None:
            return queue
        return self.recoverer.memory.topology.current(queue)

    @property
    def input_bytes(self) -> int:
        """The approximate size of the messages buffered for the application, in bytes."""
        return self._input_bytes

    def hold(self, size: int) -> None:
        """Count `size` bytes of messages as buffered, or as taken if negative."""
        self._input_bytes += size
        if size > 0:
            self._newest_bytes = size

    @property
    def _is_overfull(self) -> bool:
        """Whether the buffered messages exceed the limit; the newest batch alone never does."""
        waits = self._input_bytes
        return waits > self.input_bytes_max and waits > self._newest_bytes

    @property
    def error(self) -> Exception | None:
        """The error that ended the connection; None while it is open or if this side closed it."""
        return self.session.error

    @property
    def server_properties(self) -> dict[str, object]:
        """What the broker tells about itself: `product`, `version`, `capabilities` and so on."""
        return self.session.server_properties

    def __dir__(self) -> list[str]:
        return shown(super().__dir__(), INTERNAL_OF_CONNECTION)

    def __repr__(self) -> str:
        state = "is recovering" if self.is_recovering else self.session.state.value
        if self.blocked_reason is not None:
            state += f", blocked: {self.blocked_reason}"
        return f"<Connection {self.parameters} {state}>"

    @abstractmethod
    def _on_opened(self) -> None:
        """Handle the end of the handshake."""

    @abstractmethod
    def _on_unblocked(self) -> None:
        """Handle connection.unblocked."""

    @abstractmethod
    def _on_ended(self, error: Exception) -> None:
        """Handle the end of the connection, with `Closed` if this side closed it."""

    @abstractmethod
    def _on_lost(self, error: Exception) -> None:
        """Start recovery after the loss of the connection."""

    @abstractmethod
    def _attempt_failed(self, error: Exception) -> None:
        """Fail the current recovery attempt."""

    @abstractmethod
    def _on_restored(self, error: Exception | None) -> None:
        """Handle the success or failure of the restoration on a new connection."""

    @abstractmethod
    def _on_progress(self) -> None:
        """Restart the timeout of the recovery attempt, because the broker has answered."""

    def _handle(self, events: list[Event]) -> None:
        """Dispatch each event to its owner, in order."""
        for event in events:
            if isinstance(event, Delivered):
                event.owner.delivered(event)
            elif isinstance(event, Replied):
                event.token.replied(event)
            elif isinstance(event, Settled):
                event.channel.owner.settled(event)
            else:
                self._handle_rare(event)

    def _handle_rare(self, event: Event) -> None:
        """Dispatch an event of the less frequent types."""
        recoverer = self.recoverer
        if isinstance(event, ChannelEnded):
            if recoverer is None or not recoverer.takes_end(event):
                event.channel.owner.ended(event)
        elif isinstance(event, CameBack):
            event.channel.owner.came_back(event.message)
        elif isinstance(event, Cancelled):
            self._handle_cancelled(event)
        elif isinstance(event, FlowChanged):
            event.channel.owner.flow_changed(event.active)
        elif isinstance(event, Blocked):
            self.blocked_reason = event.reason
        elif isinstance(event, Unblocked):
            self.blocked_reason = None
            self._on_unblocked()
        elif isinstance(event, Opened):
            self._handle_opened()
        elif isinstance(event, Lost):
            self._handle_lost(event)
        elif isinstance(event, ConnectionEnded):
            if self.is_recovering and event.error is not None:
                self._attempt_failed(event.error)
            else:
                self._handle_ended(event)

    def _handle_cancelled(self, event: Cancelled) -> None:
        """Make a cancelled consumer wait for its queue, or end it."""
        owner, recoverer = event.channel.owner, self.recoverer
        if recoverer is None or not recoverer.takes_cancel(event, monotonic_ms()):
            owner.consumer_cancelled(event.consumer_tag)
        else:
            self._on_due()

    def _on_due(self) -> None:  # noqa: B027 -- for a shell that sets timers
        """Reset the timer of `_handle_tick`."""

    def _due_ms(self) -> int | None:
        """Return the time at which `_handle_tick` is due, or None."""
        due_ms = self.session.next_tick_ms()
        if self.recoverer is None or not self.recoverer.revivals.are_waiting or self.is_recovering:
            return due_ms
        revival_ms = self.recoverer.revivals.next_ms()
        if due_ms is None or revival_ms is None:
            return revival_ms if due_ms is None else due_ms
        return min(due_ms, revival_ms)

    def _handle_tick(self, now_ms: int, reading: bool) -> None:
        """Pass the time to the session, and to cancelled consumers that wait for their queues."""
        self._handle(self.session.tick(now_ms, reading=reading))
        if self.recoverer is not None and self.is_open and not self.is_recovering:
            self.recoverer.revivals.tick(self.session, now_ms)

    def _handle_opened(self) -> None:
        """Continue after the handshake; during recovery, restore the connection's state."""
        if self.recoverer is not None:
            self.recoverer.opened(self.session)
            if self.recoverer.is_recovering:
                self.recoverer.restore(self.session, self._on_restored, self._on_progress)
        self._on_opened()

    def _handle_lost(self, event: Lost) -> None:
        """Begin to recover, or record that a recovery attempt failed."""
        assert self.recoverer is not None
        for token in event.tokens:
            token.end(event.error)
        self.blocked_reason = None
        if self._is_attempting:
            self._attempt_failed(event.error)
        else:
            self._is_attempting = True
            self.recoverer.lost(event.error, monotonic_ms())
            self._on_lost(event.error)

    def _handle_ended(self, event: ConnectionEnded) -> None:
        """Fail the connection's pending requests and end the connection."""
        error = event.error or Closed("the connection was closed")
        for token in event.tokens:
            token.end(error)
        self._on_ended(error)

    def _abort_overfull(self) -> None:
        """End the connection, because too many messages are buffered."""
        text = f"{self._input_bytes} bytes of messages are unread; limit them by channel.qos()"
        self._handle(self.session.abort(InputFull(text)))

    def stop_recovering(self) -> None:
        """Disable recovery; a recovery in progress ends the connection."""
        if self.recoverer is None:
            return
        self.recoverer.stop()
        if self._is_attempting:
            self._abandon_attempt()
            self._give_up(None)

    def _secret_updated(self, secret: str) -> None:
        """Use the new token for later logins."""
        if self.recoverer is not None:
            self.recoverer.use_password(secret)

    def _recovered(self) -> None:
        """Record that the connection is recovered."""
        assert self.recoverer is not None
        self._is_attempting = False
        self.recoverer.recovered(monotonic_ms())

    def _abandon_attempt(self) -> None:
        """End the attempt's session and restoration; channels wait for the next attempt."""
        assert self.recoverer is not None
        self.recoverer.abandon()
        self._handle(self.session.lost("the recovery attempt was abandoned"))

    def _give_up(self, error: Exception | None) -> None:
        """End the connection without recovering it."""
        assert self.recoverer is not None
        self._is_attempting = False
        self.session.error = error
        self._handle(self.recoverer.give_up(error))


class Prepared:
    """The parsed arguments of both shells' `connect`."""

    def __init__(self, uri: Address, options: ConnectOptions) -> None:
        """Parse and check the arguments.

        Raises: ValueError or TypeError for invalid or contradictory arguments.
        """
        where, how = split(options)
        self.addresses = addresses(uri, where)
        self.properties = dict(how.get("client_properties") or {})
        if name := how.get("connection_name"):
            self.properties["connection_name"] = name
        self.traces = how.get("tracing")
        recover = how.get("recover")
        self.recovery = settings_of(True if recover is None else recover)
        self._failures: list[tuple[Parameters, Exception]] = []
        self._ssl = how.get("ssl")
        if self._ssl is not None and not all(one.tls for one in self.addresses):
            raise ValueError("an ssl context needs amqps:// or tls=True")

    def ssl(self, parameters: Parameters) -> ssl_module.SSLContext | None:
        """Return the TLS context for an address."""
        if self._ssl is None and parameters.tls:
            self._ssl = ssl_module.create_default_context()
        return self._ssl if parameters.tls else None

    def failed(self, parameters: Parameters, error: Exception) -> None:
        """Record that an address failed.  Raises: the error if it was the last address."""
        self._failures.append((parameters, error))
        if len(self.addresses) == 1:
            raise error
        if len(self._failures) == len(self.addresses):
            raise Unreachable(self._failures) from error


def monotonic_ms() -> int:
    """Return the monotonic time in milliseconds."""
    return time.monotonic_ns() // 1_000_000
