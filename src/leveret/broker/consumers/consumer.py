"""A consumer: the subscription of a channel to a source, such as a queue, and its prefetch.

`QueueConsumer.ready` compares the unacked deliveries with the prefetch of the consumer and of its
channel.  `session/channel/channel.py` counts them (`deliver`, `credit`).

The session's channel extends `DeliveryChannel`, and everything it can subscribe to extends
`Source`.  Both are native base classes, because a call through one takes 2 to 3 ns, and a call
through a Protocol or a Callable about 30 (measured with mypyc).
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
    """The interface of a channel for queues, which sends their deliveries."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.room: Final = link.unacked
        #: The maximum number of unacked deliveries of the whole channel (basic.qos global); 0 means
        #: no limit.
        self.prefetch_count: i64 = 0
        #: The number of unacked deliveries of the channel's consumers.
        self.unacked_count: i64 = 0

    @abstractmethod
    def deliver(self, consumer: QueueConsumer, message: Message, sequence: i64, count: i64) -> None:
        """Send `message`; `count` is the number of earlier deliveries, as far as known."""

    @abstractmethod
    def open_consumers(self) -> list[QueueConsumer]:
        """Return the channel's consumers."""

    @abstractmethod
    def has(self, consumer: QueueConsumer) -> bool:
        """Return whether `consumer` is still a consumer of this channel."""

    @abstractmethod
    def cancelled(self, consumer: QueueConsumer) -> None:
        """Notify the client that the broker cancelled `consumer` because its queue was deleted."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Source(Dispatcher):
    """A source of messages for consumers: a queue, or a reader on behalf of some of its consumers.

    It delivers messages and handles their acks.
    """

    def __init__(self, core: Core, name: str, settings: QueueSettings, queue_id: i64 = 0) -> None:
        super().__init__(core.scheduler)
        self.core: Final = core
        self.name = Name(name)
        self.settings = settings
        #: True if the source adds headers to deliveries; true if the deliveries' sequences are
        #: offsets of a stream, which these headers contain.
        self.adds_headers = False
        self.has_offsets = False
        self.consumers: list[QueueConsumer] = []
        self.deleted = False
        #: The id of a queue, or 0.
        self.queue_id: i64 = queue_id
        #: True if the journal contains the definition of the queue.
        self.recorded = False

    @abstractmethod
    def subscribe(self, consumer: QueueConsumer, where: str) -> None:
        """Add a consumer, which may receive messages as soon as the next dispatch.

        Raises: AccessRefused (403) or PreconditionFailed (406) if it cannot be added; `where` names
        the queue in the error.
        """

    @abstractmethod
    def unsubscribe(self, consumer: QueueConsumer) -> None:
        """Remove a consumer; its unacked messages stay unacked (behaviour 53: basic.cancel)."""

    # These defaults are for a source that does not track its deliveries.  Each settled delivery
    # allows the next.

    def ack(self, sequence: i64, message: Message) -> None:
        """Remove a delivered message for good."""
        self.schedule()

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """Remove a delivered message that was rejected, and perhaps dead-letter it."""
        self.schedule()

    def requeue(self, sequence: i64, message: Message, count: i64, failed: bool = False) -> None:
        """Put a delivered message back at its old place; `count` is its number of deliveries.

        `failed` is True if the message was rejected or its channel ended, and False if the client
        returned it.
        """
        self.schedule()

    def begin_returns(self) -> None:
        """Pause deliveries until `end_returns`, because many messages will be requeued."""

    def end_returns(self) -> None:
        """Resume deliveries after all of the messages are requeued."""

    def check_consumed(self) -> None:
        """Raises: AccessRefused (403) if clients cannot get, consume or browse this source."""

    def own_entry(self) -> bytes:
        """Return a header for all deliveries as a table entry, or b"" for none."""
        return b""

    def names(self) -> list[Name]:
        """Return the names for which a consumer needs the read permission."""
        return [self.name]


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueConsumer(Cancellable):
    """One subscription.  The session prepares `prefix`, a part of its delivery frames."""

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
        # Numbers grow across the broker, so that a binary search finds a consumer.
        core = queue.core
        core.consumer_number += 1
        self.number: i64 = core.consumer_number
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch_count = prefetch_count
        self.unacked_count: i64 = 0
        self.arguments = arguments
        #: The memory that its connection has booked for it.
        self.bytes: i64 = CONSUMER_BYTES + 2 * sys.getsizeof(tag) + table_bytes(arguments)
        #: `x-priority`: consumers with a higher priority receive messages first.
        self.priority: int = 0
        self.prefix = b""
        #: `x-consumer-timeout`, the time for which deliveries may stay unacked; negative for the
        #: queue's.
        self.ack_limit_ms: i64 = -1
        #: True once the consumer was cancelled because of a late ack.
        self.timed_out = False

    def cancel(self) -> None:
        """Notify the channel that the queue was deleted."""
        self.channel.cancelled(self)

    def ready(self) -> bool:
        """Return whether the consumer can take another message now."""
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
    """Return a consumer's `x-consumer-timeout`, or -1 without it; `where` names the queue.

    Raises: PreconditionFailed (406) if it is not a number from 0.
    """
    name = "x-consumer-timeout"
    if name not in arguments:
        return -1
    check_count(arguments[name], name, where)
    return ack_limit_ms(arguments)


def consumer_priority(arguments: dict[str, object], where: str) -> int:
    """Return a consumer's `x-priority`, 0 by default; `where` names the queue in the error.

    Raises: PreconditionFailed (406) if it is not an integer.
    """
    value = arguments.get("x-priority", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise PreconditionFailed(
            f"invalid arg 'x-priority' for {where}: \"expected integer, got {type_name(value)}\""
        )
    return value
