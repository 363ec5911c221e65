"""A consumer, and its prefetch: one subscription of a channel to a source, such as a queue.

`QueueConsumer.ready` compares the unacked deliveries with the prefetch of the consumer and of its
channel; `session/channel/channel.py` counts them (`deliver`, `credit`).

The session's channel extends `DeliveryChannel`, and anything it can subscribe to extends `Source`.
Both are native base classes: a call through one costs 2 to 3 ns, through a Protocol or a Callable
about 30 (measured with mypyc).
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.attributes.arguments import ack_limit_ms, check_count, type_name
from leveret.broker.attributes.settings import QueueSettings
from leveret.broker.core import Core
from leveret.broker.scheduler.accounts import CONSUMER_BYTES, table_bytes
from leveret.broker.scheduler.cancels import Cancellable
from leveret.broker.scheduler.link import Link
from leveret.broker.scheduler.scheduler import Dispatcher
from leveret.errors import PreconditionFailed
from leveret.limits import UNACKED_PER_CHANNEL_MAX
from leveret.message import Message
from leveret.names import Name


@mypyc_attr(allow_interpreted_subclasses=True)
class DeliveryChannel:
    """A channel as its queues see it: it sends their deliveries."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.room: Final = link.unacked
        #: The most unacked deliveries the whole channel may have (basic.qos global); 0 is no limit.
        self.prefetch_count: i64 = 0
        #: The number of unacked deliveries of its consumers.
        self.unacked_count: i64 = 0

    @abstractmethod
    def deliver(self, consumer: QueueConsumer, message: Message, sequence: i64, count: i64) -> None:
        """Send `message`; `count` is the number of earlier deliveries, as far as it is known."""

    @abstractmethod
    def open_consumers(self) -> list[QueueConsumer]:
        """Return its consumers."""

    @abstractmethod
    def has(self, consumer: QueueConsumer) -> bool:
        """Return whether a consumer of this channel has not ended."""

    @abstractmethod
    def cancelled(self, consumer: QueueConsumer) -> None:
        """Tell the client that the broker cancelled `consumer`, because its queue was deleted."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Source(Dispatcher):
    """A source of messages for consumers: a queue, or a reader on behalf of some of its consumers.

    It delivers messages and handles their acks.  The name is one that was cleaned or kept.
    """

    def __init__(self, core: Core, name: str, settings: QueueSettings, queue_id: i64 = 0) -> None:
        super().__init__(core.scheduler)
        self.core: Final = core
        self.name = Name(name)
        self.settings = settings
        #: True if deliveries carry headers of the source's own; and if their sequences are offsets
        #: of a stream, which these headers give.
        self.adds_headers = False
        self.has_offsets = False
        self.consumers: list[QueueConsumer] = []
        self.deleted = False
        #: The id of a queue, or 0.
        self.queue_id: i64 = queue_id
        #: True if the journal holds the definition of the queue.
        self.recorded = False

    @abstractmethod
    def subscribe(self, consumer: QueueConsumer, where: str) -> None:
        """Add a consumer; it may get messages from the next dispatch on.

        Raises: AccessRefused (403) or PreconditionFailed (406) if it cannot be added; `where` names
        the queue in the error.
        """

    @abstractmethod
    def unsubscribe(self, consumer: QueueConsumer) -> None:
        """Remove a consumer; its unacked messages stay unacked (behaviour 53: basic.cancel)."""

    # These defaults are for a source that keeps no record of its deliveries: each settled delivery
    # makes room for the next one.

    def ack(self, sequence: i64, message: Message) -> None:
        """Remove a delivered message for good."""
        self.schedule()

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """Remove a delivered message that was rejected; it may be dead-lettered."""
        self.schedule()

    def requeue(self, sequence: i64, message: Message, count: i64, failed: bool = False) -> None:
        """Put a delivered message back at its old place; `count` is its number of deliveries.

        `failed` is True if the message was rejected or its channel ended, and False if the client
        returned it.
        """
        self.schedule()

    def begin_returns(self) -> None:
        """Pause deliveries until `end_returns`: many messages are about to be requeued."""

    def end_returns(self) -> None:
        """Resume deliveries: all of the messages are requeued."""

    def check_consumed(self) -> None:
        """Raises: AccessRefused (403) if clients may not get, consume or browse this source."""

    def own_entry(self) -> bytes:
        """Return a header for all deliveries as a table entry; b"" if there is none."""
        return b""

    def names(self) -> list[Name]:
        """Return the names that need the permission to read."""
        return [self.name]


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueConsumer(Cancellable):
    """One subscription.  `prefix` is the part of its delivery frames that the session prepares."""

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
        #: Numbers grow across the broker, so that a consumer is found by a binary search.
        core = queue.core
        core.consumer_number += 1
        self.number: i64 = core.consumer_number
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch_count = prefetch_count
        self.unacked_count: i64 = 0
        self.arguments = arguments
        #: The memory booked for it by its connection.
        self.bytes: i64 = CONSUMER_BYTES + 2 * sys.getsizeof(tag) + table_bytes(arguments)
        #: `x-priority`: consumers with a higher priority get messages first.
        self.priority: int = 0
        self.prefix = b""
        #: `x-consumer-timeout`: how long its deliveries may stay unacked; negative means the
        #: queue's.
        self.ack_limit_ms: i64 = -1
        #: True once it was cancelled because of a late ack.
        self.timed_out = False

    def cancel(self) -> None:
        """Tell the channel that the queue was deleted."""
        self.channel.cancelled(self)

    def ready(self) -> bool:
        """Return whether it can take another message now."""
        channel = self.channel
        if not channel.link.writable:
            return False
        if self.no_ack:
            return True
        if channel.unacked_count >= UNACKED_PER_CHANNEL_MAX:
            return False
        if self.prefetch_count > 0 and self.unacked_count >= self.prefetch_count:
            return False
        room = channel.room
        if room.bytes >= room.limit and not room.reserve():
            return False
        return channel.prefetch_count == 0 or channel.unacked_count < channel.prefetch_count


def consumer_ack_limit_ms(arguments: dict[str, object], where: str) -> i64:
    """Return a consumer's `x-consumer-timeout`, -1 without one; `where` names the queue.

    Raises: PreconditionFailed (406) if it is not a number from 0.
    """
    name = "x-consumer-timeout"
    if name not in arguments:
        return -1
    check_count(arguments[name], name, where)
    return ack_limit_ms(arguments)


def consumer_priority(arguments: dict[str, object], where: str) -> int:
    """Return a consumer's `x-priority`, 0 without one; `where` names the queue in the error.

    Raises: PreconditionFailed (406) if it is not an integer.
    """
    value = arguments.get("x-priority", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise PreconditionFailed(
            f"invalid arg 'x-priority' for {where}: \"expected integer, got {type_name(value)}\""
        )
    return value
