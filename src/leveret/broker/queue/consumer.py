"""A consumer: one subscription of a channel to a source of messages, such as a queue.

The session's channel extends `DeliveryChannel`, and what can be subscribed to extends `Source`.
Both are native base classes: a call through one costs 2 to 3 ns, through a Protocol or a Callable
about 30 (measured with mypyc).
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.effects import Cancellable
from leveret.broker.core.turn import Dispatcher, Link, Turn
from leveret.broker.values.arguments import type_name
from leveret.broker.values.queue_settings import QueueSettings
from leveret.errors import PreconditionFailed
from leveret.limits import UNACKED_PER_CHANNEL_MAX
from leveret.message import Message
from leveret.names import Name


@mypyc_attr(allow_interpreted_subclasses=True)
class DeliveryChannel:
    """A channel, as queues see it: it sends their deliveries."""

    def __init__(self, link: Link) -> None:
        self.link = link
        #: How many deliveries the whole channel may hold unacked (basic.qos global); 0 is no limit.
        self.prefetch_count: i64 = 0
        #: Deliveries to its consumers that are unacked.
        self.unacked_count: i64 = 0

    def deliver(self, consumer: Consumer, message: Message, sequence: i64, count: i64) -> None:
        """Send `message`; `count` is how often it was delivered before, as far as is known."""
        raise RuntimeError("a channel says how it delivers")

    def cancelled(self, consumer: Consumer) -> None:
        """Tell the client that the broker cancelled `consumer`, because its queue was deleted."""
        raise RuntimeError("a channel says what a cancelled consumer means")


@mypyc_attr(allow_interpreted_subclasses=True)
class Source(Dispatcher):
    """What a consumer is subscribed to: a queue, or what represents some consumers of one.

    It delivers messages and handles their acks.  The name is one that was cleaned or kept.
    """

    def __init__(self, turn: Turn, name: str, settings: QueueSettings) -> None:
        super().__init__(turn)
        self.name = Name(name)
        self.settings = settings
        #: True where deliveries carry headers of the source's own, and where their sequences are
        #: offsets of a stream, which these headers tell.
        self.adds_headers = False
        self.has_offsets = False
        self.consumers: list[Consumer] = []
        self.deleted = False

    def subscribe(self, consumer: Consumer, where: str) -> None:
        """Add a consumer; it may get messages from the next dispatch on.

        Raises: AccessRefused (403) or PreconditionFailed (406) where it cannot be added; `where`
        names the queue in the error.
        """
        raise RuntimeError("a source knows its consumers")

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer; what it holds unacked stays unacked (behaviour 53)."""
        raise RuntimeError("a source knows its consumers")

    def ack(self, sequence: i64, message: Message) -> None:
        """Remove a delivered message for good."""
        raise RuntimeError("a source hears acks")

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """Remove a delivered message that was rejected; it may be dead-lettered."""
        raise RuntimeError("a source hears rejects")

    def requeue(self, sequence: i64, message: Message, count: i64, failed: bool = False) -> None:
        """Put a delivered message back at its old place; `count` is how often it was delivered.

        `failed` is True where it was rejected or its channel ended, and False where the client
        returned it.
        """
        raise RuntimeError("a source takes messages back")

    def own_entry(self) -> bytes:
        """Return a header that all deliveries carry, as a table's entry; b"" for none."""
        return b""

    def names(self) -> list[Name]:
        """Return the names that the permission to read is asked for."""
        return [self.name]


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer(Cancellable):
    """One subscription.  `prefix` is what the session prepared for its delivery frames."""

    def __init__(
        self,
        channel: DeliveryChannel,
        queue: Source,
        tag: str,
        no_ack: bool,
        exclusive: bool,
        prefetch_count: i64,
        arguments: dict[str, object],
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch_count = prefetch_count
        self.unacked_count: i64 = 0
        self.arguments = arguments
        #: `x-priority`: of several consumers the higher ones get messages first.
        self.priority: int = 0
        self.prefix = b""

    def cancel(self) -> None:
        """Tell the channel that the queue was deleted."""
        self.channel.cancelled(self)

    def ready(self) -> bool:
        """Return whether it can take one more message now."""
        channel = self.channel
        if not channel.link.writable:
            return False
        if self.no_ack:
            return True
        if channel.unacked_count >= UNACKED_PER_CHANNEL_MAX:
            return False
        if self.prefetch_count > 0 and self.unacked_count >= self.prefetch_count:
            return False
        return channel.prefetch_count == 0 or channel.unacked_count < channel.prefetch_count


def consumer_priority(arguments: dict[str, object], where: str) -> int:
    """Return a consumer's `x-priority`, 0 without one; `where` names the queue in the error.

    Raises: PreconditionFailed (406) for what is no integer.
    """
    value = arguments.get("x-priority", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise PreconditionFailed(
            f"invalid arg 'x-priority' for {where}: \"expected integer, got {type_name(value)}\""
        )
    return value
