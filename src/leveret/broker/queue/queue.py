"""The base of all queue types: a name, attributes, bindings and consumers.

The types are `classic` (messages are removed when acked) and `stream` (messages stay and are read
by offset).  A queue is the source that consumers subscribe to, and owns the target that exchanges
route to.  It delivers messages to channels and writes to the journal.  It does not handle frames.

Invariants: a queue never reuses a sequence; a message's journal record is written before anything
that depends on it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.attributes.delay import KnownDelay
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.attributes.settings import QueueSettings
from leveret.broker.consumers.consumer import QueueConsumer, Source
from leveret.broker.consumers.order import RoundRobin, place_of
from leveret.broker.consumers.single_active import SingleActive
from leveret.broker.core import Core
from leveret.broker.counters import QueueCounts
from leveret.broker.ownership import owner_fields
from leveret.broker.policies.policy import Policy
from leveret.broker.queue.expires import QueueExpiry, expiry_of
from leveret.broker.queue.target import Destinations, DroppedTarget, Target
from leveret.broker.scheduler.costs import COPIED_PER_COST, PLACES_MOVED_PER_COST
from leveret.broker.scheduler.link import Link
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.limits import CONSUMERS_PER_QUEUE_MAX
from leveret.message import Message

if TYPE_CHECKING:
    from leveret.broker.ownership import Owner
    from leveret.broker.quotas import QuotaShare


@mypyc_attr(allow_interpreted_subclasses=True)
class Queue(Source):
    """The base of the queue types."""

    #: The target that exchanges route to for it; each type has its own class.
    target: Target

    def __init__(self, core: Core, queue_id: i64, name: str, attributes: QueueAttributes) -> None:
        super().__init__(core, name, QueueSettings(attributes.arguments), queue_id)
        # An exclusive queue ends with its connection.
        self.recorded = attributes.durable and not attributes.exclusive
        self.durable = attributes.durable
        self.exclusive = attributes.exclusive
        self.auto_delete = attributes.auto_delete
        #: True while it must not be deleted, because it contains a committed batch.
        self.kept = False
        #: True for an internal queue, which does not appear in listings, exports, policies or
        #: events.
        self.hidden = False
        self.arguments = attributes.arguments
        #: The policies that apply to it (`vhost.policies`).
        self.policy: Policy | None = None
        self.operator_policy: Policy | None = None
        #: The vhost of the queue.
        self.vhost: QueueHost | None = None
        self.expiry_of_queue: QueueExpiry | None = None
        self.owner: Link | None = None
        #: The order that picks the consumer of the next message.
        self.consumer_order = RoundRobin(self.consumers)
        #: True if one consumer at a time gets all messages (`x-single-active-consumer`).
        self.single_active = False
        self.exclusive_consumer = False
        self.define_group: i64 = 0
        #: The memory that its vhost has booked for it.
        self.booked: i64 = 0
        #: Its share of the quotas of its user and its vhost.
        self.quota: QuotaShare | None = None
        # Counters are plain numbers that only grow; rates are computed by their readers.
        self.delivered: i64 = 0
        self.delivered_no_ack: i64 = 0
        self.got: i64 = 0
        #: Messages got without acks (part of `got`), and requests that found the queue empty.
        self.got_no_ack: i64 = 0
        self.got_nothing: i64 = 0
        self.redelivered: i64 = 0
        self.acked: i64 = 0
        self.rewound: i64 = 0
        self.unacked_count: i64 = 0
        self.unacked_bytes: i64 = 0
        #: The next sequence (or offset) at the boundary of the last checkpoint, and its group.  A
        #: queue declared since then has none.
        self.boundary: i64 = 0
        self.boundary_group: i64 = -1
        #: The last walk over all queues that visited this one (`counters`); 0 if none did.
        self.walk: i64 = 0

    @property
    @abstractmethod
    def kind(self) -> str:
        """The queue type as `x-queue-type` names it."""

    @abstractmethod
    def ready_count(self) -> i64:
        """Return the number of ready messages."""

    @abstractmethod
    def ready_bytes(self) -> i64:
        """Return the bytes (bodies and properties) of the ready messages."""

    def retry_count(self) -> i64:
        """Return the number of requeued messages waiting for their retry."""
        return 0

    def retry_bytes(self) -> i64:
        """Return the bytes of the messages waiting for their retry."""
        return 0

    def retained_count(self) -> i64:
        """Return the number of acked messages that are retained for a rewind."""
        return 0

    def retained_bytes(self) -> i64:
        """Return the bytes of the retained messages."""
        return 0

    def configure(self, merged: dict[str, object]) -> None:
        """Apply the queue's arguments, merged with its policies."""
        self.settings = QueueSettings(merged)
        self.core.limit_acks(self.settings.consumer_timeout_ms)
        self.expiry_of_queue = expiry_of(self, self.expiry_of_queue)

    def touch(self) -> None:
        """Restart the expiry time because the queue was used (behaviour 49: expires)."""
        if self.expiry_of_queue is not None:
            self.expiry_of_queue.touch()

    def check_user(self, by: Owner | None) -> None:
        """Check that a user may use a queue that belongs to one user.

        Raises: AccessRefused (403).
        """

    def declared_by(self, by: Owner | None) -> None:
        """Record the user who declared the queue, if it belongs to one user."""

    def mark_deleted(self) -> None:
        """Mark the queue as deleted, so that it takes and delivers no more messages."""
        if not self.deleted:
            counts = QueueCounts()
            self.add_counts(counts)
            self.core.counts.queue_gone(self.kind, counts, self.walk)
        self.deleted = True
        self.target.deleted = True

    def add_counts(self, counts: QueueCounts) -> None:
        """Add the queue's counters since startup to `counts`."""
        counts.published += self.target.published
        counts.delivered += self.delivered
        counts.delivered_no_ack += self.delivered_no_ack
        counts.got += self.got
        counts.got_no_ack += self.got_no_ack
        counts.got_nothing += self.got_nothing
        counts.redelivered += self.redelivered
        counts.acked += self.acked

    def memory_count(self) -> i64:
        """Return the number of ready messages in memory."""
        return self.ready_count()

    def memory_bytes(self) -> i64:
        """Return the bytes of the ready messages in memory."""
        return self.ready_bytes()

    @abstractmethod
    def purge(self) -> i64:
        """Drop the ready messages; return their number.  Unacked ones stay."""

    @abstractmethod
    def drop(self) -> None:
        """Drop all messages because the queue is deleted."""

    def moved(self, sequence: i64, message: Message, recorded: bool) -> None:
        """Forget a message that moved to other targets.  A stream keeps it.

        `recorded` is True if the journal has a record of the move.
        """

    def keep_one_active(self) -> None:
        """Use the single active consumer order.

        It is not set in a constructor, because mypyc does not free an attribute replaced there.
        """
        self.single_active = True
        self.consumer_order = SingleActive(self.consumers)

    def untie(self) -> None:
        """Drop the parts that refer to the queue, after it was dropped.

        So its memory is freed with the last reference to it.  Otherwise it would wait for the cycle
        collector, which scans all objects of a broker.
        """
        _drop_target(self)
        self.expiry_of_queue = None
        self.consumer_order = RoundRobin(self.consumers)

    @abstractmethod
    def next_number(self) -> i64:
        """Return the sequence (a stream's: offset) that the next message gets."""

    def attach(self, consumer: QueueConsumer, where: str) -> None:
        """Prepare for a consumer that is about to be added; `where` names the queue in errors."""

    def detach(self, consumer: QueueConsumer) -> None:
        """Clean up after `consumer`, which was removed."""

    def subscribe(self, consumer: QueueConsumer, where: str) -> None:
        """Add a consumer, which may receive messages from the next dispatch on.

        Raises: AccessRefused (403) if the queue has an exclusive consumer, or others while this one
        is exclusive (behaviour 52: exclusive consumers); PreconditionFailed (406) if the queue has
        too many consumers.
        """
        taken = self.single_active or bool(self.consumers)
        if self.exclusive_consumer or (consumer.exclusive and taken):
            raise AccessRefused(f"{where} in exclusive use")
        if len(self.consumers) >= CONSUMERS_PER_QUEUE_MAX:
            raise PreconditionFailed(
                f"{where} has {CONSUMERS_PER_QUEUE_MAX} consumers, and can have no more: "
                "cancel some, or use another queue"
            )
        self.core.scheduler.changes += 1
        self.attach(consumer, where)
        self.consumers.append(consumer)
        order = self.consumer_order.added(consumer)
        if order is not self.consumer_order:
            # Adding the consumer copied the list of all consumers.
            self.core.scheduler.spent += len(self.consumers) // COPIED_PER_COST
            self.consumer_order = order
        self.exclusive_consumer = consumer.exclusive
        self.schedule()

    def unsubscribe(self, consumer: QueueConsumer) -> None:
        """Remove a consumer; its unacked messages stay unacked (behaviour 53: basic.cancel)."""
        self.core.scheduler.changes += 1
        consumers = self.consumers
        place = place_of(consumer, consumers)
        self.core.scheduler.spent += (len(consumers) - place) // PLACES_MOVED_PER_COST
        del consumers[place]
        self.consumer_order = self.consumer_order.removed(consumer, place)
        self.detach(consumer)
        if consumer.exclusive:
            self.exclusive_consumer = False
        if not self.consumers:
            self.touch()
        # Messages may be ready for the next consumer.
        self.schedule()

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the content of the queue's journal record."""
        attributes = QueueAttributes(auto_delete=self.auto_delete, arguments=self.arguments)
        record = queue_record(vhost, self.name, int(self.queue_id), attributes)
        return record | owner_fields(None if self.quota is None else self.quota.owner)


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueHost:
    """The interface of a virtual host for its queues.

    It finds the destinations of dead-lettered, expired and delayed messages, and moves these.
    """

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.known_delay: Final = KnownDelay()

    @abstractmethod
    def drop_unused(self, queue: Queue) -> None:
        """Delete a queue that was unused for its expiry time."""

    @abstractmethod
    def has_exchange(self, name: str) -> bool:
        """Return whether an exchange of that name exists."""

    @abstractmethod
    def route_letter(
        self, exchange: str, routing_key: str, more_keys: list[str], properties: bytes
    ) -> Destinations:
        """Return the destinations of a dead-lettered message from an existing exchange."""

    @abstractmethod
    def destinations(self, exchange: str, message: Message) -> list[Target]:
        """Return the destinations of a message of the broker; none if the exchange is missing."""

    @abstractmethod
    def move(
        self,
        queue: Queue,
        sequence: i64,
        message: Message,
        letter: Message,
        targets: list[Target],
    ) -> i64:
        """Remove `sequence` from `queue` and put `letter` into `targets`, in one record.

        `message` is the message of that sequence, and `letter` its dead-lettered form.  Return the
        outcome, as a publish does.
        """

    @abstractmethod
    def put(self, letter: Message, targets: list[Target]) -> None:
        """Put `letter` into `targets`, without removing a message from a queue."""


def queue_identity(vhost: str, queue: Queue) -> dict[str, object]:
    """Return the content of the record of a queue's deletion."""
    return {"vhost": vhost, "name": queue.name, "id": int(queue.queue_id)}


def queue_record(
    vhost: str, name: str, queue_id: int, attributes: QueueAttributes
) -> dict[str, object]:
    """Return the content of a queue's journal record."""
    return {
        "vhost": vhost,
        "name": name,
        "id": queue_id,
        "auto_delete": attributes.auto_delete,
        "arguments": attributes.arguments,
    }


def _drop_target(queue: Queue) -> None:
    """Give a deleted queue a target that does not refer to it."""
    queue.target = DroppedTarget(queue.target)
