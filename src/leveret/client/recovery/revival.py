"""Restart of consumers that the broker has cancelled, when their queue exists again.

A broker cancels the consumers of a queue that is deleted or moves to another node.  Each consumer
checks for its queue after growing delays, on a separate channel because a refusal closes the
channel.  When the queue exists, the consumer is restarted with the same tag.  After
`consumer_attempts_max` attempts it ends.

The module is sans-IO: a shell calls `tick` at the time that `next_ms` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.client.events import ChannelOwner, Replied, Token
from leveret.client.recovery.backoff import Backoff
from leveret.wire.methods.queue import QueueDeclare

if TYPE_CHECKING:
    from leveret.client.events import ChannelEnded, Delivered, Settled
    from leveret.client.message import ReturnedMessage
    from leveret.client.recovery.settings import Recovery
    from leveret.client.session.channel import ChannelSession
    from leveret.client.session.connection import ClientConnection
    from leveret.client.session.memory import ChannelMemory


class NoDeliveries(ChannelOwner):
    """The owner of a channel that is used for requests only."""

    def ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """Do nothing."""

    def nack(self, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> None:
        """Do nothing."""

    def reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """Do nothing."""

    def delivered(self, event: Delivered) -> None:
        """Do nothing."""

    def came_back(self, message: ReturnedMessage) -> None:
        """Do nothing."""

    def settled(self, event: Settled) -> None:
        """Do nothing."""

    def consumer_cancelled(self, consumer_tag: str) -> None:
        """Do nothing."""

    def flow_changed(self, active: bool) -> None:
        """Do nothing."""

    def ended(self, event: ChannelEnded) -> None:
        """Fail the pending requests."""
        for token in event.tokens:
            token.end(event.error)


class _WaitingConsumer:
    """One consumer that waits for its queue."""

    def __init__(self, memory: ChannelMemory, consumer_tag: str, backoff: Backoff) -> None:
        self.memory = memory
        self.consumer_tag = consumer_tag
        self.backoff = backoff
        #: The time of the next check; None during a check.
        self.due_ms: int | None = None


class _Opening(Token):
    """The token of the channel on which a consumer checks for its queue."""

    is_internal = True

    def __init__(self, look: _Look) -> None:
        self._look = look

    def replied(self, reply: Replied) -> None:
        """Handle channel.open-ok."""
        self._look.opened()

    def end(self, error: Exception | None) -> None:
        """Handle a failure to open the channel."""
        self._look.end(error)


class _Look(Token):
    """One check for a queue; a reply means that the queue exists."""

    is_internal = True

    def __init__(
        self, revivals: Revivals, waiting: _WaitingConsumer, session: ClientConnection
    ) -> None:
        self._revivals = revivals
        self._waiting = waiting
        self._channel: ChannelSession = session.open_channel(NoDeliveries(), _Opening(self))

    def opened(self) -> None:
        """Declare the queue passively."""
        consumer = self._waiting.memory.consumers.get(self._waiting.consumer_tag)
        queue = "" if consumer is None else consumer.method.queue
        topology = self._waiting.memory.connection.topology
        self._channel.request(QueueDeclare(queue=topology.current(queue), passive=True), self)

    def replied(self, reply: Replied) -> None:
        """Restart the consumer, because the queue exists."""
        self._channel.close()
        self._revivals.found(self._waiting)

    def end(self, error: Exception | None) -> None:
        """Schedule the next check, because the queue does not exist."""
        self._revivals.missed(self._waiting)


class _Started(Token):
    """The token of a restarted consumer."""

    is_internal = True

    def replied(self, reply: Replied) -> None:
        """Do nothing, because the messages follow."""

    def end(self, error: Exception | None) -> None:
        """Do nothing, because the consumer has ended with its channel."""


class Revivals:
    """The consumers of one connection that wait for their queues."""

    def __init__(self, settings: Recovery) -> None:
        self._settings = settings
        self._waiting: dict[tuple[ChannelMemory, str], _WaitingConsumer] = {}
        self._now_ms = 0

    def add(self, memory: ChannelMemory, consumer_tag: str, now_ms: int) -> bool:
        """Make a cancelled consumer wait for its queue; return False if the consumer must end."""
        consumer = memory.consumers.get(consumer_tag)
        if consumer is None or self._settings.consumer_attempts_max == 0:
            return False
        if consumer.method.arguments.get("x-browse", False) is not False:
            return False  # for a browser, the cancel means that everything was read
        consumer.is_waiting = True
        backoff = Backoff(self._settings, now_ms, self._settings.consumer_attempts_max, None)
        waiting = _WaitingConsumer(memory, consumer_tag, backoff)
        self._waiting[memory, consumer_tag] = waiting
        self._now_ms = now_ms
        self.missed(waiting)
        return True

    @property
    def are_waiting(self) -> bool:
        """Whether any consumer is waiting for its queue."""
        return bool(self._waiting)

    def next_ms(self) -> int | None:
        """Return the time at which `tick` is due, or None if no check is scheduled."""
        dues = [one.due_ms for one in self._waiting.values() if one.due_ms is not None]
        return min(dues, default=None)

    def tick(self, session: ClientConnection, now_ms: int) -> None:
        """Check for the queues that are due, on an open session."""
        self._now_ms = now_ms
        for waiting in list(self._waiting.values()):
            if waiting.due_ms is None or waiting.due_ms > now_ms:
                continue
            if waiting.consumer_tag not in waiting.memory.consumers:
                self._give_up(waiting)  # this client deleted the queue or cancelled the consumer
                continue
            waiting.due_ms = None
            try:
                _Look(self, waiting, session)
            except Exception:  # noqa: BLE001 -- no channel is free, or the connection has ended
                self.missed(waiting)

    def missed(self, waiting: _WaitingConsumer) -> None:
        """Schedule the next check, or end the consumer."""
        delay_ms = waiting.backoff.next_ms(self._now_ms)
        if delay_ms is None:
            self._give_up(waiting)
        else:
            waiting.due_ms = self._now_ms + delay_ms

    def found(self, waiting: _WaitingConsumer) -> None:
        """Restart a consumer whose queue exists again."""
        memory = waiting.memory
        consumer = memory.consumers.get(waiting.consumer_tag)
        if consumer is None or memory.session is None:
            self._give_up(waiting)
            return
        del self._waiting[memory, waiting.consumer_tag]
        consumer.is_waiting = False
        memory.session.request(consumer.method, _Started())

    def _give_up(self, waiting: _WaitingConsumer) -> None:
        """End a consumer as cancelled."""
        del self._waiting[waiting.memory, waiting.consumer_tag]
        waiting.memory.owner.consumer_cancelled(waiting.consumer_tag)
