"""Max length and overflow: a classic queue's target takes, refuses or drops messages.

It also drops duplicates (`deduplication.py`).

Invariant: a queue with overflow reject takes no message beyond its limits.  Any other queue drops
messages from the head, after delivering as many as possible (behaviours 26: reject-publish, and 67:
max length).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.death_reasons import REASON_MAXLEN
from leveret.broker.attributes.expiration import EXPIRATION_FLAG, deadline_of
from leveret.broker.attributes.message_events import ROUTED
from leveret.broker.attributes.settings import DROP_HEAD, REJECT_PUBLISH_DLX
from leveret.broker.queue.dead_letters import DeadLetter
from leveret.broker.queue.deduplication import (
    Deduplication,
    QueuedKeys,
    key_of,
    replace_keys,
    window_of,
)
from leveret.broker.queue.target import (
    DROP,
    RECORDS_NONE,
    RECORDS_PERSISTENT,
    REFUSE,
    TAKE,
    Target,
)
from leveret.broker.queue.tracing import note_event
from leveret.broker.scheduler.costs import LOOKED_AT_PER_COST
from leveret.broker.scheduler.task import WAIT
from leveret.limits import BODY_APART_BYTES, DEDUPLICATION_KEYS_MAX, SLICE_MESSAGES
from leveret.message import Message
from leveret.store.records.levels import PRIORITY_FLAG, is_usual

if TYPE_CHECKING:
    from leveret.broker.queue.classic import ClassicQueue

#: The maximum number of messages dropped at once, before a task drops the rest.
_DROPPED_AT_ONCE: Final = 4

#: The messages that a task drops before it waits for dead letters, which may be of other queues.
_DROPPED_BEFORE_WAITING: Final = 64


@final
class ClassicTarget(Target):
    """The target of one classic queue."""

    def __init__(self, queue: ClassicQueue) -> None:
        records_from = RECORDS_PERSISTENT if queue.recorded else RECORDS_NONE
        super().__init__(queue.core, queue.name, queue.queue_id, records_from)
        self._queue: Final = queue
        self._ready = queue.ready
        #: True if messages beyond the limits are refused.
        self.rejects = False
        #: True while the queue exceeds limits that were set later, and while a task drops the
        #: excess.
        self.is_over_limit = False
        self.shrinks = False
        self.deduplication: Deduplication | None = None

    def configure(self) -> None:
        """Apply the queue's settings, which may have changed."""
        settings = self._queue.settings
        has_limits = settings.length_max >= 0 or settings.bytes_max >= 0
        self.rejects = has_limits and settings.overflow != DROP_HEAD
        self.bounded = has_limits and not self.rejects
        self.take_window(window_of(settings, self.deduplication))
        deduplicates = self.deduplication is not None or self._queue.queued_keys is not None
        self.has_rules = self.rejects or deduplicates
        self.look_at_admission()
        self.look_at_limits()

    def note_surcharge(self) -> None:
        """Compute the cost of a message in addition to storing it (a deadline, a level, a drop)."""
        queue = self._queue
        more = queue.special or queue.levels > 0
        self.surcharge = (1 if more else 0) + (1 if self.bounded else 0)

    def take_window(self, window: Deduplication | None) -> None:
        """Replace the window of remembered keys by `window`."""
        replace_keys(self.deduplication, window, self.core.accounts)
        self.deduplication = window

    def publish(self, message: Message) -> i64:
        """Put `message` at the tail; return its sequence."""
        self.published += 1
        size = message.size
        core = self.core
        memory = core.memory
        memory.hold(size)
        queue = self._queue
        if not queue.scheduled:
            queue.schedule()
        flags: i64 = message.properties[0]
        if (
            flags & PRIORITY_FLAG != 0
            and queue.may_have_levels
            and not is_usual(message)
            and queue.begin_levels()
        ):
            self.follow_levels()
        sequence = self._ready.append(message)
        if (sequence & core.event_mask) == 0:
            note_event(queue, ROUTED, sequence, message)
        if (sequence & memory.window_mask) == 0 or size >= BODY_APART_BYTES:
            queue.bound_window()
            if self.share is not None:
                self.share.note()
        expires = flags & EXPIRATION_FLAG != 0
        if expires or self.surcharge > 0:
            core.scheduler.spent += 1
            if expires or queue.special:
                queue.note_deadline(deadline_of(message, queue.settings.message_ttl_ms), sequence)
        return sequence

    def follow_levels(self) -> None:
        """Use the queue's new `ready` after the queue began to order messages by level."""
        self._ready = self._queue.ready
        self.note_surcharge()

    # -- at once ----------------------------------------------------------------------------------

    def takes_now(self) -> bool:
        """Return whether a message published now would be delivered at once."""
        queue = self._queue
        if queue.deleted or queue.is_held() or not queue.consumers:
            return False
        self.core.scheduler.spent += len(queue.consumers) // LOOKED_AT_PER_COST
        queue.dispatch(SLICE_MESSAGES)
        return self._ready.count() == 0 and queue.consumer_order.has_ready()

    def deliver_one(self) -> None:
        """Deliver a message at once."""
        self._queue.dispatch(1)

    def hold_until(self, group: i64) -> None:
        """Deliver nothing before `group` is synced."""
        self._queue.hold_until(group)

    # -- limits -----------------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Return whether the queue exceeds its limits."""
        settings = self._queue.settings
        return (0 <= settings.length_max < self._ready.count()) or (
            0 <= settings.bytes_max < self._ready.bodies
        )

    def look_at_limits(self) -> None:
        """Check whether the queue exceeds limits that make it drop messages."""
        self.is_over_limit = self.bounded and self.is_over()

    def make_room(self) -> None:
        """Deliver as many messages as possible, then drop the excess from the head.

        Source: behaviour 67 (max length).
        """
        if not self.is_over():
            return
        self._queue.make_way()
        self.shrink()

    def shrink(self) -> None:
        """Drop messages beyond the limits from the head.  If there are many, start a task."""
        left: i64 = _DROPPED_AT_ONCE
        while left > 0 and self.is_over():
            left -= 1
            self.core.scheduler.spent += 1
            self._drop_head()
        self.is_over_limit = self.is_over()
        if self.is_over_limit and not self.shrinks:
            self.shrinks = True
            self.core.scheduler.start(self._shrink())

    def _shrink(self) -> Iterator[int]:
        # A message on disk is read before it is dropped.
        left: i64 = _DROPPED_BEFORE_WAITING
        while not self.deleted and self.is_over_limit:
            if left <= 0 and self._queue.has_many_letters():
                yield WAIT
            else:
                left -= 1
                self._drop_head()
                yield 1
            # Messages may also have left in other ways.
            self.look_at_limits()
        self.shrinks = False
        if not self.deleted:
            self._queue.schedule()

    def _drop_head(self) -> None:
        self._queue.discard(self._ready.first_at_once(), REASON_MAXLEN)

    def is_full(self, message: Message) -> bool:
        """Return whether `message` exceeds a quota, or the limits of a queue that rejects."""
        return (self.rejects and self._exceeds(message)) or super().is_full(message)

    def _exceeds(self, message: Message) -> bool:
        settings = self._queue.settings
        return (0 <= settings.length_max < self._ready.count() + 1) or (
            0 <= settings.bytes_max < self._ready.bodies + len(message.body)
        )

    # -- admission --------------------------------------------------------------------------------

    def admit(self, message: Message) -> i64:
        """Return DROP for a duplicate, REFUSE for a message beyond the limits, or else TAKE."""
        keys = self._queue.queued_keys
        if keys is not None:
            return self._admit_queued(keys, message)
        deduplication = self.deduplication
        if deduplication is None:
            return self._admit_length(message)
        now_ms = self.core.now_ms
        key = key_of(message, deduplication.header)
        if key and deduplication.has(key, now_ms):
            self.deduplicated += 1
            return DROP
        verdict = self._admit_length(message)
        if key and verdict == TAKE:
            deduplication.note(key, now_ms)
        return verdict

    def _admit_queued(self, keys: QueuedKeys, message: Message) -> i64:
        """Implement `admit` for a queue that drops duplicates of queued messages."""
        key = key_of(message, keys.header)
        if not key:
            return self._admit_length(message)
        if key in keys.sequences:
            self.deduplicated += 1
            return DROP
        if len(keys.sequences) >= DEDUPLICATION_KEYS_MAX:
            return REFUSE
        verdict = self._admit_length(message)
        if verdict == TAKE:
            # The message is published next.
            keys.note(key, self._ready.next_sequence(), message.persistent)
        return verdict

    def _admit_length(self, message: Message) -> i64:
        """Return TAKE or REFUSE by the limits, after delivering as many messages as possible.

        Source: behaviour 26 (reject-publish).
        """
        share = self.share
        asks = self.rejects or (self.bounded and share is not None and share.watched)
        if asks and self._exceeds(message):
            self._queue.make_way()
            if self._exceeds(message):
                return self._admit_beyond(message)
        return super().admit(message)

    def _admit_beyond(self, message: Message) -> i64:
        """Refuse a message beyond the limits, unless the queue drops another one for it."""
        queue = self._queue
        if self.rejects:
            if queue.settings.overflow == REJECT_PUBLISH_DLX:
                queue.died(REASON_MAXLEN)
                letter = DeadLetter(queue, 0, message, REASON_MAXLEN, was_queued=False)
                self.core.scheduler.letters.add(letter)
            return REFUSE
        # If the message exceeds the byte limit, the queue drops as many bytes of older messages.
        bytes_max = queue.settings.bytes_max
        fits = 0 <= bytes_max < self._ready.bodies + len(message.body)
        share = self.share
        if share is not None and share.admits(0, 0 if fits else message.size):
            return TAKE
        self.core.counts.quota_refused += 1
        return REFUSE
