"""Targets, to which exchanges route messages, and the journaling of a target's copy of a message.

A declared queue has a target, and so has the store of delayed messages.  The history of an exchange
is only a target.  A target decides whether it takes a message, tracks publishers for deduplication,
and counts its messages.  It does not deliver messages to consumers: a `Source` does.

Invariants: a message is in a target at most once for each publish; a tap is among the targets of a
message but is not a destination.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.attributes.expiration import EXPIRATION_FLAG
from leveret.broker.ownership import is_free_for
from leveret.broker.publishers.publishers import Publishers, publisher_record
from leveret.limits import FAN_OUT_COPIES
from leveret.names import Name

if TYPE_CHECKING:
    from leveret.broker.core import Core
    from leveret.broker.ownership import Owner
    from leveret.broker.quotas import QuotaShare
    from leveret.broker.scheduler.effects import SyncWaiter
    from leveret.message import Message
    from leveret.wire.numbered import Numbered

#: The maximum number of bytes in the records of one fan-out.  Each part is recorded with the whole
#: message, so this limits the number of parts.
FAN_OUT_RECORDED_BYTES: Final = 16 * 1024 * 1024


#: The decisions of `admit` about a message: take it, drop it as a duplicate, or refuse it.
TAKE: Final = 0
DROP: Final = 1
REFUSE: Final = 2

#: The weight of a message in the journal: 1 if it is persistent, else 0.  A target's copy is
#: recorded if the weight is at least the target's `records_from`.
RECORDS_ALL: Final = 0
RECORDS_PERSISTENT: Final = 1
RECORDS_NONE: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class Target:
    """The base of all targets that messages are routed to."""

    def __init__(self, core: Core, name: str, queue_id: i64, records_from: i64) -> None:
        self.core = core
        self.name = Name(name)
        #: Its id in the journal; 0 if no record names it.
        self.queue_id: i64 = queue_id
        #: The messages that are journaled: RECORDS_ALL, RECORDS_PERSISTENT or RECORDS_NONE.
        self.records_from: i64 = records_from
        #: True if `admit` must be called before each publish: the target has rules of its own, or
        #: its user or vhost is near a quota.
        self.checks_admission = False
        self.has_rules = False
        #: Its share of the messages of its user and vhost, or None if its messages do not count.
        self.share: QuotaShare | None = None
        #: True if `make_room` must be called after each publish.
        self.bounded = False
        #: The cost of handling a message in addition to storing it, at most 2.
        self.surcharge: i64 = 0
        self.deleted = False
        # Counters are plain numbers that only grow; rates are computed by their readers.
        self.published: i64 = 0
        #: The transient messages among them in a durable queue, which a restart drops.
        self.transient: i64 = 0
        self.deduplicated: i64 = 0
        #: The publishers that use deduplication, or None before the first.
        self.publishers: Publishers | None = None

    @abstractmethod
    def publish(self, message: Message) -> i64:
        """Take `message`; return its sequence (a stream's: offset)."""

    def records(self, message: Message) -> bool:
        """Return whether the journal records the target's copy of a message."""
        return (1 if message.persistent else 0) >= self.records_from

    @property
    def recorded(self) -> bool:
        """Return whether the journal records the target's definition."""
        return self.records_from < RECORDS_NONE

    def admit(self, message: Message) -> i64:
        """Decide whether this target accepts a message: TAKE, DROP or REFUSE."""
        return TAKE if self.is_in_quota(message) else REFUSE

    def is_full(self, message: Message) -> bool:
        """Return whether `admit` would refuse `message` because the quota is full."""
        share = self.share
        return share is not None and not share.has_room(message.size)

    def look_at_admission(self) -> None:
        """Decide again whether `admit` must be called, after the rules or the share changed."""
        share = self.share
        self.checks_admission = self.has_rules or (share is not None and share.watched)

    def is_in_quota(self, message: Message) -> bool:
        """Return whether a message is within the quotas; count it, because it is published next."""
        share = self.share
        if share is None or not share.watched or share.takes(message.size):
            return True
        self.core.counts.quota_refused += 1
        return False

    def begin_batch(self, batch: SyncWaiter, offset: i64 = -1) -> bool:
        """Hide the messages from `offset` on, or all new ones, until `end_batch`.

        Return whether the target began to hide them: only a stream does, once for each batch.
        """
        return False

    def end_batch(self, batch: SyncWaiter) -> None:
        """Stop hiding messages for a batch."""

    def batch_start(self, batch: SyncWaiter) -> i64:
        """Return the first offset that is hidden for a batch, or -1 if none is."""
        return -1

    def make_room(self) -> None:
        """Drop messages above the limits, after delivering as many as possible."""

    def takes_now(self) -> bool:
        """Return whether a message published now would be delivered at once."""
        return False

    def deliver_one(self) -> None:
        """Deliver a message at once, after `takes_now` returned True."""

    def hold_until(self, group: i64) -> None:
        """Deliver nothing before `group` is synced; a stream never does."""

    # -- publisher deduplication ------------------------------------------------------------------

    def admit_numbered(self, numbered: Numbered, by: Owner | None) -> i64:
        """Decide about a message of `by` by its publishing id: TAKE, DROP or REFUSE."""
        publishers = self.publishers
        if publishers is None:
            publishers = self.publishers = Publishers(self.core)
        known = publishers.known(numbered.publisher)
        if known is None:
            return TAKE if publishers.has_room(numbered.publisher, by) else REFUSE
        if not is_free_for(known.owner, by):
            return REFUSE
        if numbered.number > known.number:
            return TAKE
        # A duplicate shows that the publisher is not idle.
        known.time_ms = self.core.now_ms
        self.deduplicated += 1
        return DROP

    def give_publisher(self, name: bytes, to: Owner) -> None:
        """Transfer the name of a known publisher to the owner `to`, and journal the change."""
        publishers = self.publishers
        known = None if publishers is None else publishers.by_name.get(name)
        if publishers is None or known is None:
            return
        self.core.scheduler.changes += 1
        if self.recorded:
            record = publisher_record(self.queue_id, name, to)
            self.core.journal.define("publisher", record)
        publishers.give(known, to)

    def forget_publisher(self, name: bytes) -> None:
        """Forget a publisher here and in the journal.  It may then start with any number."""
        self.core.scheduler.changes += 1
        if self.publishers is not None:
            self.publishers.forget(name)
        if self.recorded:
            self.core.journal.delete("publisher", publisher_record(self.queue_id, name, None))

    def drop_publishers(self) -> None:
        """Forget all publishers, because the target is deleted."""
        if self.publishers is not None:
            self.publishers.drop()


def surcharge_of(targets: list[Target], message: Message) -> i64:
    """Return the cost of handling a message in all targets, in addition to storing it."""
    cost: i64 = 0
    if message.properties[0] & EXPIRATION_FLAG:
        for target in targets:
            # A message that is dropped at once leaves a stale deadline, which costs time later.
            cost += max(target.surcharge + (1 if target.bounded else 0), 1)
    else:
        for target in targets:
            cost += target.surcharge
    return cost


def copies_at_once(message: Message, targets: list[Target]) -> i64:
    """Return the number of targets in one part of a large fan-out.

    There are so few parts that their records take at most `FAN_OUT_RECORDED_BYTES` in addition to
    one copy.
    """
    parts: i64 = max(1, FAN_OUT_RECORDED_BYTES // max(1, message.size))
    return max(FAN_OUT_COPIES, len(targets) // parts + 1)


@final
class DroppedTarget(Target):
    """The target of a deleted queue, without a reference to the queue.

    It has the name and the counters of the old target.  Publishing to it is an error.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target.core, target.name, target.queue_id, target.records_from)
        self.deleted = True
        self.published = target.published
        self.transient = target.transient
        self.deduplicated = target.deduplicated

    def publish(self, message: Message) -> i64:
        """Refuse the message, because no exchange routes here.  Raises: RuntimeError."""
        raise RuntimeError(f"queue '{self.name}' is deleted")


@mypyc_attr(acyclic=True)
class Destinations:
    """The destinations of a message."""

    def __init__(self, targets: list[Target], taps: tuple[Target, ...] = ()) -> None:
        #: Each target once, including taps.
        self.targets = targets
        #: The targets that take the message but are not destinations.
        self.taps = taps
        #: The delay (ms) of the message in the stores of delayed exchanges among the targets.
        self.delay_ms: i64 = 0

    def reached(self) -> bool:
        """Return whether the message has a destination."""
        return len(self.targets) > len(self.taps)

    def left(self) -> Destinations:
        """Return the destinations that still exist."""
        targets = [target for target in self.targets if not target.deleted]
        if len(targets) == len(self.targets):
            return self
        taps = [tap for tap in self.taps if not tap.deleted]
        return Destinations(targets, tuple(taps))
