"""What every queue is, whatever its type: a name, attributes, bindings to it and consumers.

The types are `classic` (messages wait and go when they are acked) and `stream` (messages stay and
are read at offsets).  A queue hands messages to channels and writes to the journal; it knows
nothing of frames.

Invariants: a sequence is used once in the life of a queue; what is journaled of a message is
written before anything that depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.turn import Link, Turn
from leveret.broker.queue.consumer import Consumer, Source
from leveret.broker.queue.consumers import RoundRobin
from leveret.broker.queue.expiry import QueueExpiry
from leveret.broker.queue.publishers import Publishers, publisher_record
from leveret.broker.values.applied_policy import AppliedPolicy
from leveret.broker.values.queue_settings import QueueSettings
from leveret.errors import AccessRefused
from leveret.wire.numbered import Numbered

if TYPE_CHECKING:
    from leveret.broker.core.ownership import Owner
    from leveret.broker.queue.host import QueueHost
    from leveret.message import Message
    from leveret.store.checkpoint.checkpoint import NewChunk

#: What `admit` decides about a message: take it, drop it as taken before, or refuse it.
TAKE: Final = 0
DROP: Final = 1
REFUSE: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class Queue(Source):
    """The base of the queue types."""

    #: True while it must not be deleted, because it holds a committed batch.
    kept: bool = False
    #: True for an internal queue, which no listing, export, policy or event shows.
    hidden: bool = False
    #: The publishers that number their messages; None before the first.
    publishers: Publishers | None = None

    def __init__(
        self,
        turn: Turn,
        queue_id: i64,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> None:
        super().__init__(turn, name, QueueSettings(arguments))
        self.queue_id: i64 = queue_id
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments = arguments
        #: The policies that apply to it (`vhost.policies`).
        self.policy: AppliedPolicy | None = None
        self.operator_policy: AppliedPolicy | None = None
        #: True for queues whose definition is in the journal; an exclusive one ends with its link.
        self.recorded = durable and not exclusive
        #: The vhost that holds it.
        self.vhost: QueueHost | None = None
        #: True where `admit` must be asked before each publish.
        self.checks_admission = False
        #: True where `make_room` must be asked after each publish.
        self.bounded = False
        self.expiry_of_queue: QueueExpiry | None = None
        #: True for what takes messages but does not count as a destination of a message.
        self.is_tap = False
        #: True where every message is journaled, persistent or not (streams).
        self.keeps_all = False
        self.owner: Link | None = None
        #: Which of them gets the next message.
        self.consumer_order = RoundRobin(self.consumers)
        #: True where one consumer at a time gets everything (`x-single-active-consumer`).
        self.single_active = False
        self.exclusive_consumer = False
        self.had_consumer = False
        self.define_group: i64 = 0
        # Counters are plain numbers that only grow; who wants a rate computes it.
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.delivered_no_ack: i64 = 0
        self.got: i64 = 0
        self.redelivered: i64 = 0
        self.acked: i64 = 0
        self.deduplicated: i64 = 0
        self.rewound: i64 = 0
        self.unacked_count: i64 = 0
        self.unacked_bytes: i64 = 0

    @property
    def kind(self) -> str:
        """The queue type as `x-queue-type` names it."""
        raise RuntimeError("a queue type has a name")

    def publish(self, message: Message) -> i64:
        """Take `message`; return its sequence (a stream's: offset)."""
        raise RuntimeError("a queue type takes messages")

    def ready_count(self) -> i64:
        """Return how many messages wait for a consumer."""
        raise RuntimeError("a queue type counts its messages")

    def ready_bytes(self) -> i64:
        """Return the bytes (bodies and properties) of the messages that wait."""
        raise RuntimeError("a queue type counts its bytes")

    def retry_count(self) -> i64:
        """Return how many messages came back and wait for their next try."""
        return 0

    def retry_bytes(self) -> i64:
        """Return the bytes of these."""
        return 0

    def retained_count(self) -> i64:
        """Return how many acked messages are kept to be put back."""
        return 0

    def retained_bytes(self) -> i64:
        """Return the bytes that these count."""
        return 0

    def configure(self, merged: dict[str, object]) -> None:
        """Apply the queue's arguments, merged with its policies."""
        self.settings = QueueSettings(merged)
        self.turn.limit_acks(self.settings.consumer_timeout_ms)
        expiry = self.expiry_of_queue
        if expiry is not None:
            self.turn.timers.cancel(expiry)
            self.expiry_of_queue = None
        if self.settings.expires_ms > 0:
            self.expiry_of_queue = QueueExpiry(self, self.settings.expires_ms)

    def takes_now(self) -> bool:
        """Return whether a message that is published now would be delivered at once."""
        return False

    def hold_until(self, group: i64) -> None:
        """Deliver nothing before `group` is synced; a stream never does."""

    def touch(self) -> None:
        """Note that the queue is used (behaviour 49)."""
        if self.expiry_of_queue is not None:
            self.expiry_of_queue.touch()

    def check_user(self, by: Owner | None) -> None:
        """Check that a user may use a queue that belongs to one user.

        Raises: AccessRefused (403).
        """

    def admit(self, message: Message) -> i64:
        """Decide about a message before it is published here: TAKE, DROP or REFUSE."""
        return TAKE

    def admit_numbered(self, numbered: Numbered, by: Owner | None) -> i64:
        """Decide about a message of `by` by its publisher's number: TAKE, DROP or REFUSE."""
        publishers = self.publishers
        if publishers is None:
            publishers = self.publishers = Publishers(self.turn)
        if not publishers.is_free(numbered.publisher, by):
            return REFUSE
        if publishers.has(numbered):
            self.deduplicated += 1
            return DROP
        return TAKE if publishers.has_room(numbered.publisher, by) else REFUSE

    def give_publisher(self, name: bytes, to: Owner) -> None:
        """Give a publisher's name that is known here to the owner `to`, and journal that."""
        publishers = self.publishers
        known = None if publishers is None else publishers.by_name.get(name)
        if publishers is None or known is None:
            return
        self.turn.changes += 1
        if self.recorded:
            record = publisher_record(self.queue_id, name, to)
            self.turn.journal.define("publisher", record)
        publishers.give(known, to)

    def forget_publisher(self, name: bytes) -> None:
        """Forget a publisher, which may then begin with any number, and journal that."""
        self.turn.changes += 1
        if self.publishers is not None:
            self.publishers.forget(name)
        if self.recorded:
            self.turn.journal.delete("publisher", publisher_record(self.queue_id, name, None))

    def make_room(self) -> None:
        """Drop messages above the limits, after all that can be delivered was delivered."""

    def is_full(self, message: Message) -> bool:
        """Return whether `admit` would refuse `message` because the queue is full."""
        return False

    def moved(self, sequence: i64, message: Message, recorded: bool) -> None:
        """Forget a message that left; `recorded` tells that the journal knows it."""
        raise RuntimeError("a queue type knows what leaves it")

    def purge(self) -> i64:
        """Drop the messages that wait; return their number.  Unacked ones stay."""
        raise RuntimeError("a queue type purges")

    def drop(self) -> None:
        """Drop all messages because the queue is deleted."""
        raise RuntimeError("a queue type drops its messages")

    def next_number(self) -> i64:
        """Return the sequence (a stream's: offset) that the next message gets."""
        raise RuntimeError("a queue type counts its messages")

    def chunked(self, chunk: NewChunk) -> None:
        """Take note that a checkpoint wrote some of the messages to a chunk."""
        raise RuntimeError("a queue type keeps its chunks")

    def attach(self, consumer: Consumer, where: str) -> None:
        """Prepare for a consumer that is about to be added; `where` names the queue in errors."""

    def detach(self, consumer: Consumer) -> None:
        """Clean up after `consumer`, which was removed."""

    def subscribe(self, consumer: Consumer, where: str) -> None:
        """Add a consumer; it may get messages from the next dispatch on.

        Raises: AccessRefused (403) when either it or one that is there is exclusive (behaviour 52).
        """
        taken = self.single_active or bool(self.consumers)
        if self.exclusive_consumer or (consumer.exclusive and taken):
            raise AccessRefused(f"{where} in exclusive use")
        self.turn.changes += 1
        self.attach(consumer, where)
        self.consumers.append(consumer)
        self.consumer_order = self.consumer_order.added(consumer)
        self.exclusive_consumer = consumer.exclusive
        self.had_consumer = True
        self.schedule()

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer; what it holds unacked stays unacked (behaviour 53)."""
        self.turn.changes += 1
        place = self.consumers.index(consumer)
        del self.consumers[place]
        self.consumer_order = self.consumer_order.removed(consumer, place)
        self.detach(consumer)
        if consumer.exclusive:
            self.exclusive_consumer = False
        if not self.consumers:
            self.touch()
        # Messages may wait for the consumer that is next now.
        self.schedule()

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the queue as its journal record holds it."""
        return queue_record(vhost, self.name, int(self.queue_id), self.auto_delete, self.arguments)


def queue_record(
    vhost: str, name: str, queue_id: int, auto_delete: bool, arguments: dict[str, object]
) -> dict[str, object]:
    """Return a queue as its journal record holds it."""
    return {
        "vhost": vhost,
        "name": name,
        "id": queue_id,
        "auto_delete": auto_delete,
        "arguments": arguments,
    }


def is_reached(queues: list[Queue]) -> bool:
    """Return whether a message has a destination among its queues: a tap is none."""
    for queue in queues:
        if not queue.is_tap:
            return True
    return False
