"""A consumer: one subscription of a channel to a source of messages, such as a queue.

The session's channel extends `DeliveryChannel`, and what can be subscribed to extends `Source`.
Both are native base classes: a call through one costs 2 to 3 ns, through a Protocol or a Callable
about 30 (measured with mypyc).
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.accounts import CONSUMER_BYTES, table_bytes
from leveret.broker.core.core import Core
from leveret.broker.scheduler.cancels import Cancellable
from leveret.broker.scheduler.link import Link
from leveret.broker.scheduler.scheduler import Dispatcher
from leveret.broker.values.arguments import ack_limit_ms, check_count, type_name
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
        self.room: Final = link.unacked
        #: How many deliveries the whole channel may hold unacked (basic.qos global); 0 is no limit.
        self.prefetch_count: i64 = 0
        #: Deliveries to its consumers that are unacked.
        self.unacked_count: i64 = 0

    @abstractmethod
    def deliver(self, consumer: Consumer, message: Message, sequence: i64, count: i64) -> None:
        """Send `message`; `count` is how often it was delivered before, as far as is known."""

    @abstractmethod
    def cancelled(self, consumer: Consumer) -> None:
        """Tell the client that the broker cancelled `consumer`, because its queue was deleted."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Source(Dispatcher):
    """What a consumer is subscribed to: a queue, or what represents some consumers of one.

    It delivers messages and handles their acks.  The name is one that was cleaned or kept.
    """

    def __init__(self, core: Core, name: str, settings: QueueSettings) -> None:
        super().__init__(core.scheduler)
        self.core: Final = core
        self.name = Name(name)
        self.settings = settings
        #: True where deliveries carry headers of the source's own, and where their sequences are
        #: offsets of a stream, which these headers tell.
        self.adds_headers = False
        self.has_offsets = False
        self.consumers: list[Consumer] = []
        self.deleted = False

    @abstractmethod
    def subscribe(self, consumer: Consumer, where: str) -> None:
        """Add a consumer; it may get messages from the next dispatch on.

        Raises: AccessRefused (403) or PreconditionFailed (406) where it cannot be added; `where`
        names the queue in the error.
        """

    @abstractmethod
    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer; what it holds unacked stays unacked (behaviour 53)."""

    # What follows is for a source that keeps no account of what it delivered: a delivery that is
    # settled is room for the next one.

    def ack(self, sequence: i64, message: Message) -> None:
        """Remove a delivered message for good."""
        self.schedule()

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """Remove a delivered message that was rejected; it may be dead-lettered."""
        self.schedule()

    def requeue(self, sequence: i64, message: Message, count: i64, failed: bool = False) -> None:
        """Put a delivered message back at its old place; `count` is how often it was delivered.

        `failed` is True where it was rejected or its channel ended, and False where the client
        returned it.
        """
        self.schedule()

    def begin_returns(self) -> None:
        """Deliver nothing before `end_returns`: many deliveries come back."""

    def end_returns(self) -> None:
        """Deliver again: all of them are back."""

    def check_consumed(self) -> None:
        """Raises: AccessRefused (403) for a source of which nobody gets, consumes or browses."""

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
        #: It grows from one consumer of the broker to the next, so that it is found in their order.
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
        #: `x-priority`: of several consumers the higher ones get messages first.
        self.priority: int = 0
        self.prefix = b""
        #: `x-consumer-timeout`: how long its deliveries may stay unacked; negative for the queue's.
        self.ack_limit_ms: i64 = -1
        #: True once it was ended because an ack was late.
        self.timed_out = False

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
        room = channel.room
        if room.bytes >= room.limit and not room.reserve():
            return False
        return channel.prefetch_count == 0 or channel.unacked_count < channel.prefetch_count


def consumer_ack_limit_ms(arguments: dict[str, object], where: str) -> i64:
    """Return a consumer's `x-consumer-timeout`, -1 without one; `where` names the queue.

    Raises: PreconditionFailed (406) for what is no number from 0.
    """
    name = "x-consumer-timeout"
    if name not in arguments:
        return -1
    check_count(arguments[name], name, where)
    return ack_limit_ms(arguments)


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
