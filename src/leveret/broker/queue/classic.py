"""The classic queue: it delivers messages in order, each to one consumer, until they are acked.

A requeued message returns to its old place (behaviour 59: requeue keeps its place).  Waiting
messages are stored in `ready`: in memory up to a window, and beyond it in pages on disk
(`pages.py`).  Persistent messages of a durable queue are also in the journal.

TTLs, limits and dead-lettering depend on the settings, and cost a queue without them one test.

Invariant: a message is in one of three places: `ready`, unacked, or on its way to the dead-letter
exchange (`dead_letters.py`).
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.attributes.death_reasons import REASON_REJECTED
from leveret.broker.attributes.expiration import deadline_of
from leveret.broker.attributes.message_events import ACKED
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.backlog.window import NOTHING, RequeuedMessage, WindowPart
from leveret.broker.core import Core
from leveret.broker.queue.dead_letters import DeadLetter
from leveret.broker.queue.deduplication import (
    Deduplication,
    QueuedKeys,
    queued_keys_of,
    replace_keys,
)
from leveret.broker.queue.max_length import ClassicTarget
from leveret.broker.queue.requeue import DelayedRetry, requeue
from leveret.broker.queue.rewind import Retained, Rewinding, retention_of
from leveret.broker.queue.tracing import note_death, note_event
from leveret.broker.queue.ttl import Expiry
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.scheduler.costs import LOOKED_AT_PER_COST
from leveret.broker.scheduler.syncs import Resumption
from leveret.clock import NO_DEADLINE
from leveret.limits import LETTERS_WAITING_MAX, SLICE_MESSAGES
from leveret.message import Message
from leveret.store.records.record import is_retained
from leveret.store.records.returns import is_redelivered, known_returns, once_more


@final
class ClassicQueue(WaitingQueue):
    """A classic or quorum queue, which delivers its messages to consumers."""

    def __init__(self, core: Core, queue_id: i64, name: str, attributes: QueueAttributes) -> None:
        super().__init__(core, queue_id, name, attributes)
        if attributes.arguments.get("x-single-active-consumer") is True:
            self.keep_one_active()
        #: True if the queue has limits or deadlines to apply before each delivery.
        self.special = False
        #: The keys of the messages in the queue, if deduplication covers only queued messages.
        self.queued_keys: QueuedKeys | None = None
        #: The sync that must end before the queue delivers again; None if it never waited.
        self.resumption: Resumption | None = None
        #: The number of operations that are requeuing many messages.
        self._returning: i64 = 0
        self.expiry: Expiry | None = None
        self.retained: Retained | None = None
        #: The requeued messages waiting for their retry, or None before the first.
        self.retries: DelayedRetry | None = None
        #: The sequence of the message last taken by `get`.
        self.taken_sequence: i64 = 0
        #: The queue's target by its own type, or None once the queue is deleted.
        intake = ClassicTarget(self)
        self.intake: ClassicTarget | None = intake
        self.target = intake
        self.configure(attributes.arguments)

    def configure(self, merged: dict[str, object]) -> None:
        """Apply the queue's arguments, merged with its policies."""
        intake = self.intake
        if intake is None:
            # The queue is deleted.
            return
        super().configure(merged)
        settings = self.settings
        self._know_keys(queued_keys_of(settings, self.queued_keys))
        intake.configure()
        self.adds_headers = settings.delivery_limit >= 0 or self.kind == "quorum"
        self.retained = retention_of(self, self.retained)
        if self.expiry is not None or settings.message_ttl_ms >= 0:
            if self.expiry is None:
                self.expiry = Expiry(self)
            self.expiry.rebuild()
        self.special = intake.bounded or self.expiry is not None
        intake.note_surcharge()
        if intake.is_over_limit:
            self.schedule()

    def _know_keys(self, keys: QueuedKeys | None) -> None:
        """Replace the keys of queued messages by `keys`."""
        replace_keys(self.queued_keys, keys, self.core.accounts)
        self.queued_keys = keys

    def can_adopt(self) -> bool:
        """Return whether the queue can take over another's messages without checking each."""
        return (
            self.recorded
            and not self.deleted
            and self.levels <= 0
            and not self.special
            and self.queued_keys is None
            and self.deduplication() is None
        )

    def retry_count(self) -> i64:
        """Return the number of requeued messages waiting for their retry."""
        return len(self.retries.parked) if self.retries is not None else 0

    def retry_bytes(self) -> i64:
        """Return the bytes of the messages waiting for their retry."""
        return self.retries.size if self.retries is not None else 0

    def retained_count(self) -> i64:
        """Return the number of retained acked messages."""
        return len(self.retained.messages) if self.retained is not None else 0

    def retained_bytes(self) -> i64:
        """Return the bytes of the retained messages, as their limit counts them."""
        return self.retained.size if self.retained is not None else 0

    def look_at_limits(self) -> bool:
        """Return whether the queue exceeds limits that make it drop messages, and remember it."""
        intake = self.intake
        if intake is None:
            return False
        intake.look_at_limits()
        return intake.is_over_limit

    def deduplication(self) -> Deduplication | None:
        """Return the window of keys for deduplication, if the queue has one."""
        return None if self.intake is None else self.intake.deduplication

    # -- expiry and limits ------------------------------------------------------------------------

    def note_deadline(self, deadline_ms: i64, sequence: i64) -> None:
        """Set the deadline of a message, unless it is NO_DEADLINE."""
        if deadline_ms != NO_DEADLINE:
            expiry = self.expiry
            if expiry is None:
                expiry = self._begin_expiry()
            expiry.add(deadline_ms, sequence)

    def note_page_deadline(self, deadline_ms: i64, first: i64) -> None:
        """Set the deadline at which the page that begins at `first` is read."""
        expiry = self.expiry
        if expiry is None:
            expiry = self._begin_expiry()
        expiry.add_page(deadline_ms, first)

    def _begin_expiry(self) -> Expiry:
        """Create the list of deadlines."""
        expiry = Expiry(self)
        self.expiry = expiry
        self.special = True
        if self.intake is not None:
            self.intake.note_surcharge()
        return expiry

    def discard(self, sequence: i64, reason: str) -> bool:
        """Dead-letter or drop a waiting message.  Return False if it is not waiting."""
        returned = self.ready.remove(sequence)
        if returned is None:
            return False
        self.dead_letter(sequence, returned.message, returned.count, reason)
        return True

    def has_many_letters(self) -> bool:
        """Return whether so many dead letters are waiting that no more messages may be discarded.

        A dead letter is in memory, even if its message was on disk.
        """
        return (
            self.settings.dead_letter_exchange is not None
            and self.scheduler.letters.count() >= LETTERS_WAITING_MAX
        )

    def make_way(self) -> None:
        """Deliver as many messages as possible, and expire due messages."""
        if self.consumers:
            self.dispatch(SLICE_MESSAGES)
        if self.expiry is not None:
            self.expiry.expire(self.core.now_ms)

    def _tidy(self) -> bool:
        """Expire and drop messages before a delivery; return False while some are left."""
        now_ms = self.core.now_ms
        expiry = self.expiry
        if expiry is not None and expiry.is_due(now_ms - 1):
            # A message that expires this very moment may still be delivered, as a TTL of 0
            # requires.
            expiry.expire(now_ms - 1)
            if expiry.is_due(now_ms - 1):
                return False
        intake = self.intake
        if intake is None or not intake.is_over_limit:
            return True
        intake.shrink()
        return not intake.is_over_limit

    def expired(self) -> None:
        """Schedule the queue if deliveries or drops waited for messages to expire."""
        if self.consumers or (self.intake is not None and self.intake.is_over_limit):
            self.schedule()

    def _waits(self) -> bool:
        """Return whether the queue is scheduled again once the rest has expired or been dropped."""
        if self.scheduler.is_writing_much() or (self.expiry is not None and self.expiry.waits()):
            return True
        return self.intake is not None and self.intake.shrinks

    # -- consuming --------------------------------------------------------------------------------

    def hold_until(self, group: i64) -> None:
        """Deliver nothing before `group` is synced."""
        if self.resumption is None:
            self.resumption = Resumption(self)
        self.core.syncs.wait(self.resumption, group)

    def is_held(self) -> bool:
        """Return whether deliveries wait for a sync, or for a requeue of many messages."""
        resumption = self.resumption
        return self._returning > 0 or (resumption is not None and resumption.waits_for != 0)

    def begin_returns(self) -> None:
        """Pause deliveries until `end_returns`, because requeued messages go before others."""
        self._returning += 1

    def end_returns(self) -> None:
        """Resume deliveries."""
        self._returning -= 1
        self.schedule()

    def dispatch(self, limit: i64) -> bool:
        """Deliver up to `limit` messages, one to each ready consumer in turn."""
        if self.is_held():
            return False
        if self.special and not self._tidy():
            return not self._waits()
        if not self.consumers:
            return False
        ready = self.ready
        order = self.consumer_order
        retries = self.retries
        handed: i64 = 0
        more = True
        edits = self.adds_headers
        scheduler = self.scheduler
        end: i64 = scheduler.end_of_slice()
        while handed < limit:
            if scheduler.is_past(end):
                # The time spent includes that for writing long headers and bodies.
                break
            sequence = ready.first()
            if sequence == NOTHING:
                more = False
                break
            if retries is not None and retries.holds_back(sequence):
                continue
            consumer = order.next()
            if consumer is None:
                able = order.able(limit)
                if able is None:
                    more = order.has_more()
                    break
                scheduler.spent += able.asked // LOOKED_AT_PER_COST
                order = able
                continue
            message = self.take(sequence)
            count = self.taken_count
            consumer.channel.deliver(consumer, message, sequence, count)
            if consumer.no_ack:
                self.delivered_no_ack += 1
                self._finish(sequence, message)
            else:
                self.delivered += 1
                self._hold(sequence, message, count)
            if is_redelivered(count):
                self.redelivered += 1
            handed += 1
        scheduler.spent += handed
        if self.expiry is not None and handed > 0:
            self.expiry.tidy()
        if edits or self.retained is not None:
            # Writing a header into the properties, or retaining a message, takes as long as the
            # rest of its delivery.
            self.scheduler.spent += handed
        elif self.levels > 0:
            self.scheduler.spent += handed >> 1
        return more and ready.first() != NOTHING

    def get(self, no_ack: bool) -> Message | None:
        """Take one message for basic.get, and set `taken_sequence` and `taken_count`."""
        self.scheduler.changes += 1
        self.touch()
        self.scheduler.spent += 1
        if self.special:
            self.scheduler.spent += 3
        sequence = self._first_to_get()
        if sequence == NOTHING:
            return None
        message = self.take(sequence)
        if self.expiry is not None:
            self.expiry.tidy()
        self.taken_sequence = sequence
        self.got += 1
        if no_ack:
            self.got_no_ack += 1
            self._finish(sequence, message)
        else:
            self._hold(sequence, message, self.taken_count)
        if is_redelivered(self.taken_count):
            self.redelivered += 1
        return message

    def prepare_get(self) -> bool:
        """Expire and drop some messages before a basic.get; return whether that is complete."""
        core = self.core
        intake = self.intake
        if intake is not None and intake.is_over_limit:
            core.scheduler.changes += 1
            intake.shrink()
            if intake.is_over_limit:
                return False
        expiry = self.expiry
        if expiry is None:
            return True
        expiry.expire_some(core.now_ms)
        return not expiry.drop_next()

    def _first_to_get(self) -> i64:
        """Return the sequence of the next message that has not expired and is due, or NOTHING."""
        retries = self.retries
        while True:
            while self.special and not self.prepare_get():
                pass
            sequence = self.ready.first_at_once()
            if sequence == NOTHING or retries is None or not retries.holds_back(sequence):
                return sequence

    def _hold(self, sequence: i64, message: Message, count: i64) -> None:
        """Count a message as unacked.  Add a persistent one to `out` for checkpoints."""
        self.unacked_count += 1
        self.unacked_bytes += message.size
        if self.recorded and message.persistent:
            self.out.put(RequeuedMessage(sequence, message, known_returns(count)))
        elif self.queued_keys is not None:
            self.queued_keys.handed[int(sequence)] = True

    def _finish(self, sequence: i64, message: Message) -> None:
        """Forget an acked message, or retain it if the queue is configured to."""
        if (sequence & self.core.event_mask) == 0:
            note_event(self, ACKED, sequence, message)
        if self.queued_keys is not None:
            self.queued_keys.left(sequence, message)
        retained = self.retained
        if retained is None or not retained.wants(message):
            super().let_go(sequence, message)
            return
        if self.recorded and message.persistent:
            self.core.journal.retain(self.queue_id, sequence)
        retained.keep(sequence, message)

    def rewind(self, timestamp_ms: i64) -> Rewinding | None:
        """Start putting back retained messages published at `timestamp_ms` or later.

        Return None if the queue retains no messages.
        """
        retained = self.retained
        if retained is None or self.deleted:
            return None
        return retained.rewind(timestamp_ms)

    def let_go(self, sequence: i64, message: Message) -> None:
        """Remove a message from the queue and the journal for good."""
        super().let_go(sequence, message)
        if self.queued_keys is not None:
            self.queued_keys.left(sequence, message)

    def ack(self, sequence: i64, message: Message) -> None:
        """Forget a message that was delivered."""
        if self._take_back(sequence, message):
            self.acked += 1
            self._finish(sequence, message)

    def _take_back(self, sequence: i64, message: Message) -> bool:
        """Count a message as no longer unacked; return False if the queue is deleted."""
        if self.deleted:
            self.core.memory.count_freed(message.size)
            return False
        self.unacked_count -= 1
        self.unacked_bytes -= message.size
        if self.out.count > 0:
            self.out.pop(sequence)
        if self.queued_keys is not None:
            self.queued_keys.handed.pop(int(sequence))
        return True

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """Dead-letter or drop a message that its consumer rejected."""
        if self._take_back(sequence, message):
            self.dead_letter(sequence, message, known_returns(count), REASON_REJECTED)

    def requeue(self, sequence: i64, message: Message, count: i64, failed: bool = False) -> None:
        """Put a message back at its old place, unless it reached the delivery limit."""
        if self._take_back(sequence, message):
            requeue(self, sequence, message, once_more(count, failed), failed)

    # -- dead letters -----------------------------------------------------------------------------

    def died(self, reason: str) -> None:
        """Count a message that the queue dead-lettered or dropped."""
        settings = self.settings
        strategy = "disabled"
        if settings.dead_letter_exchange is not None:
            strategy = "at_least_once" if settings.at_least_once else "at_most_once"
        deaths = self.core.counts.deaths.setdefault((self.kind, strategy), {})
        deaths[reason] = deaths.get(reason, 0) + 1

    def dead_letter(self, sequence: i64, message: Message, count: i64, reason: str) -> None:
        """Dead-letter a message that has left `ready`; drop it without a dead-letter exchange."""
        self.died(reason)
        if (sequence & self.core.event_mask) == 0:
            note_death(self, sequence, message, reason, count)
        if self.queued_keys is not None:
            # The dead-lettered message may come back to this queue.
            self.queued_keys.left(sequence, message)
        if self.settings.dead_letter_exchange is None:
            super().let_go(sequence, message)
            return
        if self.recorded and message.persistent:
            self.out.put(RequeuedMessage(sequence, message, count))
        self.scheduler.letters.add(DeadLetter(self, sequence, message, reason))

    def purge(self) -> i64:
        """Drop the waiting messages, including those waiting for their retry."""
        dropped = super().purge()
        if self.expiry is not None:
            self.expiry.clear()
        return dropped

    def begin_retries(self) -> DelayedRetry:
        """Return the messages waiting for their retry.  Create their list on first use."""
        if self.retries is None:
            self.retries = DelayedRetry(self)
        return self.retries

    def take_parked(self) -> dict[i64, RequeuedMessage]:
        """Remove and return the messages waiting for their retry, for a purge."""
        return {} if self.retries is None else self.retries.take_all()

    def known_keys(self) -> QueuedKeys | None:
        """Return the keys of the messages in the queue, if it drops duplicates of them."""
        return self.queued_keys

    def drop(self) -> None:
        """Drop all messages.  In the journal, the record of the deletion covers them."""
        super().drop()
        self._know_keys(None)
        if self.intake is not None:
            self.intake.take_window(None)
        self.core.memory.release_all(self.unacked_count, self.unacked_bytes)
        if self.retries is not None:
            self.retries.end()
        if self.retained is not None:
            self.retained.clear()
        if self.expiry is not None:
            self.expiry.clear()

    def untie(self) -> None:
        """Drop the parts that refer to the queue, after it was dropped."""
        super().untie()
        self.intake = None
        self.expiry = None
        self.retries = None
        self.retained = None

    # -- pages -------------------------------------------------------------------------------------

    def expires(self) -> bool:
        """Return whether messages may expire or be dropped before a consumer takes them."""
        return self.special

    def arrived(self) -> None:
        """Set the timer for messages of a loaded page."""
        if self.expiry is not None:
            self.expiry.arm()

    def gaps_return(self) -> bool:
        """Return whether messages missing from `out_within` may return to the queue.

        They may if a transient message is unacked, or an acked message is retained.
        """
        kept = self.retained_count() > 0
        return kept or self.unacked_count + self.retry_count() > self.out.count

    def out_within(self, first: i64, last: i64) -> list[RequeuedMessage]:
        """Return the persistent messages in a range that are not waiting, in any order."""
        rows = super().out_within(first, last)
        if self.retained is not None and self.recorded:
            rows += self.retained.within(first, last)
        return rows

    # -- checkpoints ------------------------------------------------------------------------------

    def live_parts(self, parts: list[WindowPart]) -> list[list[RequeuedMessage | None]]:
        """Return the messages in memory for a checkpoint, including retained ones."""
        lists = super().live_parts(parts)
        if self.retained is not None:
            lists.append([*self.retained.persistent()])
        return lists

    def holds(self, sequence: i64) -> bool:
        """Return whether a persistent message that was in memory is still in the queue."""
        if super().holds(sequence):
            return True
        return self.retained is not None and sequence in self.retained.messages

    def restore(self, returned: list[RequeuedMessage], next_sequence: i64, unclean: bool) -> None:
        """Restore the messages of the journal, in the order of their sequences.

        `restore_chunks` has already restored the messages on disk.
        """
        retained = [item for item in returned if is_retained(item.count)]
        if retained:
            returned = [item for item in returned if not is_retained(item.count)]
            if self.retained is None:
                self.retained = Retained(self)
                self.retained.end()
            self.retained.restore(retained)
        super().restore(returned, next_sequence, unclean)
        ttl = self.settings.message_ttl_ms
        for item in returned:
            self.note_deadline(deadline_of(item.message, ttl), item.sequence)
        if self.look_at_limits():
            self.schedule()

    def restore_levels(self) -> None:
        """Order messages by level again, as before a restart."""
        super().restore_levels()
        if self.intake is not None:
            self.intake.follow_levels()

    def restore_retries(self, times: dict[i64, i64]) -> None:
        """Continue the retry delays of requeued messages; called after `restore`."""
        if times:
            self.begin_retries().restore(times)
