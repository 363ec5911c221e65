"""The classic queue: messages wait in order, go to one consumer each, and end with their ack.

A requeued message returns to its old place (behaviour 59).  What waits lies in `ready`: in memory
up to a window, beyond it in pages on the disk (`pages.py`); what is persistent, of a durable queue,
is in the journal as well.
What a queue is asked for beyond that (TTLs, limits, dead letters) comes by its settings and costs a
queue without them one test.

Invariant: a message is in one of three places: `ready`, handed out, or on its way
to the dead-letter exchange (`dead_letter.py`).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.backlog.fifo_pages import FifoPages
from leveret.broker.backlog.owner import BacklogOwner
from leveret.broker.backlog.page import Page
from leveret.broker.backlog.pages import Pages
from leveret.broker.backlog.priorities import PriorityReady
from leveret.broker.backlog.priority_pages import PriorityPages
from leveret.broker.backlog.source import NOTHING, Returned, sequence_of
from leveret.broker.classic.dead_letter import NEVER_TAKEN, DeadLetter
from leveret.broker.classic.expiry import Expiry
from leveret.broker.classic.ready_queue import ReadyQueue
from leveret.broker.classic.retained import RETAINED_COUNT, Retained, retention_of
from leveret.broker.classic.retries import Retries
from leveret.broker.classic.staging_role import StagingRole
from leveret.broker.core.ownership import Owner
from leveret.broker.core.turn import Turn
from leveret.broker.queue.consumer import Consumer
from leveret.broker.queue.consumers import SingleActive
from leveret.broker.queue.queue import DROP, REFUSE, TAKE
from leveret.broker.values.death_reasons import (
    REASON_DELIVERY_LIMIT,
    REASON_MAXLEN,
    REASON_REJECTED,
)
from leveret.broker.values.deduplication import Deduplication, QueuedKeys, key_of
from leveret.broker.values.event_names import ACKED, DELETED, DELIVERED, PURGED, REQUEUED, ROUTED
from leveret.broker.values.expiration import EXPIRATION_FLAG, deadline_of
from leveret.broker.values.queue_settings import DROP_HEAD, REJECT_PUBLISH_DLX
from leveret.clock import NO_DEADLINE
from leveret.limits import BODY_APART_BYTES, DEDUPLICATION_KEYS_MAX, SLICE_MESSAGES
from leveret.message import Message

#: The count of a message of which a crash hides whether it was handed out: it is marked as
#: redelivered, but no return of it is known.
REDELIVERED_UNCOUNTED: Final = -1


@final
class ClassicQueue(ReadyQueue):
    """A queue whose messages are consumed."""

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
        super().__init__(turn, queue_id, name, durable, exclusive, auto_delete, arguments)
        if arguments.get("x-single-active-consumer") is True:
            self.single_active = True
            self.consumer_order = SingleActive(self.consumers)
        #: Messages with lower sequences may have been delivered before an unclean stop.
        self.redelivered_below: i64 = 0
        #: True if the queue has limits or deadlines, so that `_tidy` has something to do.
        self.special = False
        #: True while the queue exceeds limits that were set later.
        self.is_over_limit = False
        self.expiry: Expiry | None = None
        #: True if messages beyond the limits are refused.
        self.rejects = False
        self.deduplication: Deduplication | None = None
        #: The keys of the messages in the queue, if only those are duplicates.
        self.queued_keys: QueuedKeys | None = None
        self.retained: Retained | None = None
        #: The returned messages that wait for their retry; None before the first one.
        self.retries: Retries | None = None
        #: What makes it a staging queue, if it is one.
        self.staging: StagingRole | None = None
        #: The sequence of the message taken last, and how often it had been returned.
        self.taken_sequence: i64 = 0
        self.taken_count: i64 = 0
        self.configure(arguments)

    @property
    def kind(self) -> str:
        """Return `classic`, or `quorum` where it was declared so."""
        return "quorum" if self.arguments.get("x-queue-type") == "quorum" else "classic"

    def configure(self, merged: dict[str, object]) -> None:
        """Take the queue's arguments as its policies have changed them."""
        super().configure(merged if self.staging is None else self.arguments)
        settings = self.settings
        bounded = settings.length_max >= 0 or settings.bytes_max >= 0
        self.rejects = bounded and settings.overflow != DROP_HEAD
        self.deduplication = settings.deduplication(self.deduplication)
        self.queued_keys = settings.queued_keys(self.queued_keys)
        deduplicates = self.deduplication is not None or self.queued_keys is not None
        self.checks_admission = self.rejects or deduplicates or self.staging is not None
        self.adds_headers = settings.delivery_limit >= 0
        self.is_over_limit = bounded and not self.rejects and self._over()
        self.retained = retention_of(self, self.retained)
        if self.expiry is not None or settings.message_ttl_ms >= 0:
            if self.expiry is None:
                self.expiry = Expiry(self)
            self.expiry.rebuild()
        self.bounded = bounded and not self.rejects
        self.special = self.bounded or self.expiry is not None
        if self.is_over_limit:
            self.schedule()

    def make_staging(self, role: StagingRole) -> None:
        """Let a new queue be a staging queue from now on."""
        self.staging = role
        self.hidden = True
        self.checks_admission = True

    def publish(self, message: Message) -> i64:
        """Put `message` at the tail; return its sequence."""
        self.published += 1
        size = message.size
        turn = self.turn
        turn.held_bytes += size
        turn.held_messages += 1
        if not self.scheduled:
            self.schedule()
        sequence = self.ready.append(message)
        if (sequence & turn.event_mask) == 0:
            self.note_event(ROUTED, sequence, message)
        if (sequence & turn.window_mask) == 0 or size >= BODY_APART_BYTES:
            self._bound_window()
        if self.special or message.properties[0] & EXPIRATION_FLAG:
            self.note_deadline(deadline_of(message, self.settings.message_ttl_ms), sequence)
        return sequence

    def _bound_window(self) -> None:
        """Keep the memory of waiting messages within the window."""
        if self.turn.window_bytes >= 0:
            self._pages().bound()

    def _pages(self) -> Pages:
        """Return the pages of the queue, which are created when they are first needed."""
        pages = self.ready.pages
        if pages is None:
            pages = self.new_pages()
            self.ready.deepen(pages)
        return pages

    def new_pages(self) -> Pages:
        """Return new pages for this queue, which are empty."""
        ready = self.ready
        owner = ClassicOwner(self)
        if isinstance(ready, PriorityReady):
            return PriorityPages(self, ready, self.stored, owner)
        return FifoPages(self, ready, self.stored, owner)

    def evict(self) -> None:
        """Move the waiting messages in memory to disk, unless some of them were requeued.

        What came back may belong between what is in the front, which no page could tell.
        """
        if self.settings.priority_max <= 0 and self.ready.returns.count() == 0:
            self._pages().evict()

    def settle_pages(self) -> None:
        """Write the tail of a deep queue, so that a checkpoint finds it in chunks."""
        if self.ready.pages is not None:
            self.ready.pages.settle()

    def ready_count(self) -> i64:
        """Return how many messages wait."""
        return self.ready.count()

    def ready_bytes(self) -> i64:
        """Return the bytes of the messages that wait."""
        return self.ready.size

    def retry_count(self) -> i64:
        """Return how many requeued messages wait for their retry."""
        return len(self.retries.parked) if self.retries is not None else 0

    def retry_bytes(self) -> i64:
        """Return the bytes of these."""
        return self.retries.size if self.retries is not None else 0

    def retained_count(self) -> i64:
        """Return how many acked messages are kept."""
        return len(self.retained.messages) if self.retained is not None else 0

    def retained_bytes(self) -> i64:
        """Return what the acked messages that are kept count for their limit."""
        return self.retained.size if self.retained is not None else 0

    def first(self) -> i64:
        """Return the sequence of the message that is next, or NOTHING."""
        return self.ready.first()

    def take(self, sequence: i64) -> Message:
        """Return the message that `first` named and move on; sets `taken_count`.

        That is how often it came back, or REDELIVERED_UNCOUNTED.
        """
        ready = self.ready
        message = ready.take(sequence)
        count = ready.taken_count
        if count == 0 and sequence < self.redelivered_below:
            count = REDELIVERED_UNCOUNTED
        self.taken_count = count
        if (sequence & self.turn.event_mask) == 0:
            self.note_event(DELIVERED, sequence, message, count)
        return message

    # -- expiry and limits ------------------------------------------------------------------------

    def note_deadline(self, deadline: i64, sequence: i64) -> None:
        """Set the deadline of a message, unless it is NO_DEADLINE."""
        if deadline != NO_DEADLINE and self.staging is None:
            expiry = self.expiry
            if expiry is None:
                expiry = self._begin_expiry()
            expiry.add(deadline, sequence)

    def note_page_deadline(self, deadline: i64, first: i64) -> None:
        """Set the deadline at which the page that begins at `first` is read."""
        if self.staging is None:
            expiry = self.expiry
            if expiry is None:
                expiry = self._begin_expiry()
            expiry.add_page(deadline, first)

    def _begin_expiry(self) -> Expiry:
        """Create the list of deadlines."""
        expiry = Expiry(self)
        self.expiry = expiry
        self.special = True
        return expiry

    def discard(self, sequence: i64, reason: str) -> bool:
        """Dead-letter or drop a waiting message; return False if it does not wait."""
        returned = self.ready.remove(sequence)
        if returned is None:
            return False
        self._discard(sequence, returned.message, returned.count, reason)
        return True

    def _over(self) -> bool:
        """Return whether the queue exceeds its limits."""
        settings = self.settings
        return (0 <= settings.length_max < self.ready.count()) or (
            0 <= settings.bytes_max < self.ready.bodies
        )

    def make_room(self) -> None:
        """Deliver what can be delivered, then drop the excess from the head (behaviour 67)."""
        if not self._over():
            return
        self._clear()
        self._drop_head(SLICE_MESSAGES)

    def _clear(self) -> None:
        """Deliver what can be delivered and expire what is due, to make room."""
        if self.consumers:
            self.dispatch(SLICE_MESSAGES)
        if self.expiry is not None:
            self.expiry.expire(self.turn.now_ms, SLICE_MESSAGES)

    def _drop_head(self, limit: i64) -> None:
        """Drop up to `limit` messages beyond the limits from the head."""
        dropped: i64 = 0
        while dropped < limit and self._over():
            self.discard(self.ready.first_at_once(), REASON_MAXLEN)
            dropped += 1

    def is_full(self, message: Message) -> bool:
        """Return whether `message` would exceed the limits of a queue that rejects."""
        if not self.rejects:
            return False
        settings = self.settings
        return (0 <= settings.length_max < self.ready.count() + 1) or (
            0 <= settings.bytes_max < self.ready.bodies + len(message.body)
        )

    def admit(self, message: Message) -> i64:
        """Judge a message: DROP a duplicate, REFUSE what has no room, else TAKE it."""
        if self.staging is not None:
            return self.staging.admit()
        if self.queued_keys is not None:
            return self._admit_queued(self.queued_keys, message)
        deduplication = self.deduplication
        if deduplication is None:
            return self._admit_length(message)
        now_ms = self.turn.now_ms
        key = key_of(message, deduplication.header)
        if key and deduplication.has(key, now_ms):
            self.deduplicated += 1
            return DROP
        verdict = self._admit_length(message)
        if key and verdict == TAKE:
            deduplication.note(key, now_ms)
        return verdict

    def _admit_queued(self, keys: QueuedKeys, message: Message) -> i64:
        """Judge a message whose like may be in the queue."""
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
            # It is published next.
            keys.note(key, self.next_number(), message.persistent)
        return verdict

    def _admit_length(self, message: Message) -> i64:
        """Refuse a message beyond the limits, after delivering what can be (behaviour 26)."""
        if not self.is_full(message):
            return TAKE
        self._clear()
        if not self.is_full(message):
            return TAKE
        if self.settings.overflow == REJECT_PUBLISH_DLX:
            self.turn.dead_messages.append(DeadLetter(self, NEVER_TAKEN, message, REASON_MAXLEN))
        return REFUSE

    def _tidy(self) -> bool:
        """Expire and drop messages before a delivery; return False if more turns are needed."""
        now_ms = self.turn.now_ms
        expiry = self.expiry
        if expiry is not None and expiry.heap and expiry.heap[0][0] < now_ms:
            # What expires this very moment may still be delivered: a TTL of 0 asks for that.
            expiry.expire(now_ms - 1, SLICE_MESSAGES)
            if expiry.heap and expiry.heap[0][0] < now_ms:
                return False
        if self.is_over_limit:
            self._shrink()
        return not self.is_over_limit

    def _shrink(self) -> None:
        """Drop a slice of the messages beyond limits that were set later."""
        self._drop_head(SLICE_MESSAGES)
        self.is_over_limit = self._over()

    # -- consuming --------------------------------------------------------------------------------

    def attach(self, consumer: Consumer, where: str) -> None:
        """Raises: AccessRefused (403) for a staging queue."""
        if self.staging is not None:
            self.staging.refuse_consumer()

    def takes_now(self) -> bool:
        """Return whether a message that is published now would be delivered at once."""
        if self.deleted or self.staging is not None or self.waits_for != 0 or not self.consumers:
            return False
        self.dispatch(SLICE_MESSAGES)
        return self.ready.count() == 0 and self.consumer_order.has_ready()

    def hold_until(self, group: i64) -> None:
        """Deliver nothing before `group` is synced."""
        self.turn.wait(self, group)

    def synced(self, group: i64) -> None:
        """Deliver again."""
        self.schedule()

    def dispatch(self, limit: i64) -> bool:
        """Deliver up to `limit` messages, one to each ready consumer in turn."""
        if self.staging is not None:
            return self.staging.dispatch(limit)
        if self.waits_for != 0:
            return False
        if self.special and not self._tidy():
            waits = self.turn.is_writing_much() or (self.expiry is not None and self.expiry.reads())
            return not waits
        if not self.consumers:
            return False
        ready = self.ready
        order = self.consumer_order
        retries = self.retries
        handed: i64 = 0
        while handed < limit:
            sequence = ready.first()
            if sequence == NOTHING:
                return False
            if retries is not None and retries.holds_back(sequence):
                continue
            consumer = order.next()
            if consumer is None:
                return False
            message = self.take(sequence)
            count = self.taken_count
            consumer.channel.deliver(consumer, message, sequence, count)
            if consumer.no_ack:
                self.delivered_no_ack += 1
                self._finish(sequence, message)
            else:
                self.delivered += 1
                self._hold(sequence, message, count)
            if count != 0:
                self.redelivered += 1
            handed += 1
        return ready.first() != NOTHING

    def check_user(self, by: Owner | None) -> None:
        """Check that a user may use it: a staging queue is one user's alone."""
        if self.staging is not None:
            self.staging.check_user(by)

    def get(self, no_ack: bool) -> Message | None:
        """Take one message for basic.get; `taken_sequence` and `taken_count` go with it.

        Raises: AccessRefused (403) for a staging queue.
        """
        if self.staging is not None:
            self.staging.refuse_consumer()
        self.turn.changes += 1
        self.touch()
        if self.special:
            if self.expiry is not None:
                # All of it: what is got here must not have expired.
                self.expiry.expire(self.turn.now_ms, self.ready.count())
            while self.is_over_limit:
                self._shrink()
        sequence = self._first_to_get()
        if sequence == NOTHING:
            return None
        message = self.take(sequence)
        self.taken_sequence = sequence
        self.got += 1
        if no_ack:
            self._finish(sequence, message)
        else:
            self._hold(sequence, message, self.taken_count)
        if self.taken_count != 0:
            self.redelivered += 1
        return message

    def _first_to_get(self) -> i64:
        """Return the sequence of the next message that has not expired and is due, or NOTHING."""
        retries = self.retries
        while True:
            sequence = self.expiry.first_alive() if self.expiry else self.ready.first_at_once()
            if sequence == NOTHING or retries is None or not retries.holds_back(sequence):
                return sequence

    def _hold(self, sequence: i64, message: Message, count: i64) -> None:
        """Count a message as unacked; a checkpoint must find persistent ones."""
        self.unacked_count += 1
        self.unacked_bytes += message.size
        if self.recorded and message.persistent:
            self.out[sequence] = Returned(sequence, message, max(count, 0))
        elif self.queued_keys is not None:
            self.queued_keys.handed.add(int(sequence))

    def _finish(self, sequence: i64, message: Message) -> None:
        """Forget an acked message, or retain it if the queue is configured so."""
        if (sequence & self.turn.event_mask) == 0:
            self.note_event(ACKED, sequence, message)
        retained = self.retained
        if retained is None or not retained.wants(message):
            self.let_go(sequence, message)
            return
        if self.queued_keys is not None:
            self.queued_keys.left(sequence, message)
        if self.recorded and message.persistent:
            self.turn.journal.requeue(self.queue_id, sequence, RETAINED_COUNT)
        retained.keep(sequence, message)

    def rewind(self, timestamp_ms: i64) -> i64:
        """Put back retained messages that were published at that time or later; return how many.

        It lies at its old places, marked as redelivered.  What has expired stays where it is.
        """
        retained = self.retained
        if retained is None or self.deleted:
            return 0
        self.turn.changes += 1
        taken = retained.take_since(timestamp_ms)
        for item in taken:
            if self.recorded and item.message.persistent:
                self.turn.journal.requeue(self.queue_id, item.sequence, item.count)
            if self.queued_keys is not None:
                self.queued_keys.came_back(item.sequence, item.message)
            self.put_back(item)
        self.rewound += len(taken)
        return len(taken)

    def let_go(self, sequence: i64, message: Message) -> None:
        """Forget a message for good, here and in the journal."""
        turn = self.turn
        turn.held_bytes -= message.size
        turn.held_messages -= 1
        if self.recorded and message.persistent:
            turn.journal.ack(self.queue_id, sequence, sequence)
        if sequence <= self.stored.through:
            self.stored.forget(sequence)
        if self.queued_keys is not None:
            self.queued_keys.left(sequence, message)

    def ack(self, sequence: i64, message: Message) -> None:
        """Forget a message that was delivered."""
        if self.deleted:
            return
        self.acked += 1
        self._take_back(sequence, message)
        self._finish(sequence, message)

    def _take_back(self, sequence: i64, message: Message) -> None:
        """Count a message as not unacked any more."""
        self.unacked_count -= 1
        self.unacked_bytes -= message.size
        if self.out:
            self.out.pop(sequence, None)
        if self.queued_keys is not None:
            self.queued_keys.handed.discard(int(sequence))

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """Dead-letter or drop a message that its consumer does not want."""
        if self.deleted:
            return
        self._take_back(sequence, message)
        self._discard(sequence, message, max(count, 0), REASON_REJECTED)

    def requeue(self, sequence: i64, message: Message, count: i64, failed: bool = False) -> None:
        """Put a message back into its place, unless it was returned too often (behaviour 63)."""
        if self.deleted:
            return
        self._take_back(sequence, message)
        count = max(count, 0)
        limit = self.settings.delivery_limit
        if 0 <= limit <= count:
            self._discard(sequence, message, count, REASON_DELIVERY_LIMIT)
            return
        if self.recorded and message.persistent:
            self.turn.journal.requeue(self.queue_id, sequence, count + 1)
        if (sequence & self.turn.event_mask) == 0:
            self.note_event(REQUEUED, sequence, message, count + 1)
        item = Returned(sequence, message, count + 1)
        delay_ms = self.settings.retry_delay_ms(count + 1, failed)
        if delay_ms == 0:
            self.put_back(item)
            return
        if self.retries is None:
            self.retries = Retries(self)
        self.retries.delay(item, delay_ms)

    def put_back(self, item: Returned) -> None:
        """Put a returned message back into its old place."""
        self.ready.put(item)
        if self.special:
            self.note_deadline(
                deadline_of(item.message, self.settings.message_ttl_ms), item.sequence
            )
            if not self.rejects and self._over():
                # Not before all that comes back with it is here: the first of all goes first.
                self.is_over_limit = True
        if not self.scheduled:
            self.schedule()

    # -- dead letters -----------------------------------------------------------------------------

    def _discard(self, sequence: i64, message: Message, count: i64, reason: str) -> None:
        """Dead-letter a message that was taken out, or drop it without a dead-letter exchange."""
        if (sequence & self.turn.event_mask) == 0:
            self.note_death(sequence, message, reason, count)
        if self.settings.dead_letter_exchange is None:
            self.let_go(sequence, message)
            return
        if self.queued_keys is not None:
            # Its letter may come back to this queue.
            self.queued_keys.left(sequence, message)
        if self.recorded and message.persistent:
            self.out[sequence] = Returned(sequence, message, count)
        self.turn.dead_messages.append(DeadLetter(self, sequence, message, reason))

    def moved(self, sequence: i64, message: Message, recorded: bool) -> None:
        """Forget a message that was moved on; `recorded` tells that the journal knows it left."""
        if sequence == NEVER_TAKEN:
            return
        self.out.pop(sequence, None)
        if not recorded and not self.deleted:
            self.let_go(sequence, message)
            return
        turn = self.turn
        turn.held_bytes -= message.size
        turn.held_messages -= 1
        if sequence <= self.stored.through:
            self.stored.forget(sequence)

    def purge(self) -> i64:
        """Drop the waiting messages, here and in the journal."""
        if self.staging is not None:
            self.staging.check_free()
        self.turn.changes += 1
        dropped = self.ready_count()
        self.note_event(PURGED, self.next_number(), None)
        if self.queued_keys is not None:
            self._forget_keys_of_ready(self.queued_keys)
        self._let_go_of_ready()
        self._clear_ready()
        if self.retries is not None:
            dropped += self.retries.purge()
        return dropped

    def _forget_keys_of_ready(self, keys: QueuedKeys) -> None:
        """Forget the keys of the waiting messages, but not those of unacked ones."""
        for key, number in list(keys.sequences.items()):
            sequence: i64 = number
            if sequence not in self.out and number not in keys.handed:
                keys.forget(key)

    def _clear_ready(self) -> None:
        """Drop the waiting messages from memory and the counts, but not from the journal."""
        turn = self.turn
        turn.held_bytes -= self.ready.memory_bytes()
        turn.held_messages -= self.ready.memory_count()
        self.ready.clear()

    def _let_go_of_ready(self) -> None:
        """Forget the waiting messages in the journal and in the chunks."""
        journal = self.turn.journal
        stored = self.stored
        for item in self.ready.waiting():
            sequence = item.sequence
            if self.recorded:
                # Those that were never journaled are unknown there, and do no harm.
                journal.ack(self.queue_id, sequence, sequence)
            if sequence <= stored.through:
                stored.forget(sequence)
        if self.ready.pages is not None:
            self.ready.pages.let_go()

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the queue as its journal record holds it."""
        definition = super().definition(vhost)
        if self.staging is not None:
            definition |= self.staging.definition()
        return definition

    def drop(self) -> None:
        """Drop everything; the record of the delete stands for it in the journal."""
        self.note_event(DELETED, self.next_number(), None)
        if self.staging is not None:
            self.staging.drop()
        self._clear_ready()
        self.turn.held_bytes -= self.unacked_bytes
        self.turn.held_messages -= self.unacked_count
        if self.retries is not None:
            self.turn.held_bytes -= self.retries.size
            self.turn.held_messages -= len(self.retries.parked)
            self.retries.clear()
        self.out.clear()
        self.stored.clear()
        if self.retained is not None:
            self.retained.clear()
        if self.expiry is not None:
            self.turn.timers.cancel(self.expiry)
        if self.expiry_of_queue is not None:
            self.turn.timers.cancel(self.expiry_of_queue)

    # -- checkpoints ------------------------------------------------------------------------------

    def next_number(self) -> i64:
        """Return the sequence that the next message gets."""
        return self.ready.next_sequence()

    def live(self) -> list[Returned]:
        """Return the persistent messages in memory, waiting or unacked, in order."""
        live = [item for item in self.ready.waiting() if item.message.persistent]
        if self.retained is not None:
            live += self.retained.persistent()
        if self.out:
            live += list(self.out.values())
        if self.out or self.retained is not None:
            live.sort(key=sequence_of)
        return live

    def holds(self, sequence: i64) -> bool:
        """Return whether a persistent message that `live` returned is still here."""
        if self.ready.has(sequence) or sequence in self.out:
            return True
        return self.retained is not None and sequence in self.retained.messages

    def counts(self) -> list[tuple[int, int]]:
        """Return the sequences of stored messages that came back, and how often they did."""
        found = super().counts()
        pages = self.ready.pages
        if pages is not None:
            found += [(int(sequence), int(count)) for sequence, count in pages.counts.items()]
        return found

    def redelivered_definition(self) -> dict[str, object]:
        """Return the record of messages that may have been delivered before."""
        return {"id": int(self.queue_id), "below": int(self.redelivered_below)}

    def restore(self, returned: list[Returned], next_sequence: i64, unclean: bool) -> None:
        """Start with the messages of the journal, in the order of their sequences.

        What waits on the disk is there before (`restore_pages`).
        """
        turn = self.turn
        turn.held_messages += len(returned)
        retained = [item for item in returned if item.count == RETAINED_COUNT]
        if retained:
            returned = [item for item in returned if item.count != RETAINED_COUNT]
            if self.retained is None:
                self.retained = Retained(self)
                self.retained.end()
            self.retained.restore(retained)
        self.ready.fill(returned, next_sequence)
        ttl = self.settings.message_ttl_ms
        for item in returned:
            turn.held_bytes += item.message.size
            self.note_deadline(deadline_of(item.message, ttl), item.sequence)
        if unclean:
            self.redelivered_below = next_sequence
        self.is_over_limit = self.bounded and self._over()
        if self.is_over_limit:
            self.schedule()

    def restore_retries(self, times: dict[i64, i64]) -> None:
        """Continue the delays of returned messages; called after `restore`."""
        if times:
            self.retries = Retries(self)
            self.retries.restore(times)

    def restore_pages(self, pages: Pages, restored: list[Page], counts: dict[i64, i64]) -> None:
        """Add the pages on disk of an earlier start; called before `restore`."""
        self.ready.deepen(pages)
        pages.restore(restored, counts)
        self.is_over_limit = self.bounded and self._over()
        self.schedule()


@final
class ClassicOwner(BacklogOwner):
    """What the pages of a classic queue ask of it."""

    def __init__(self, queue: ClassicQueue) -> None:
        self.queue: Final = queue

    def expires(self) -> bool:
        """Return whether messages may expire or be dropped before a consumer takes them."""
        return self.queue.special

    def note_deadline(self, deadline_ms: i64, sequence: i64) -> None:
        """Set the deadline of a message."""
        self.queue.note_deadline(deadline_ms, sequence)

    def note_page_deadline(self, deadline_ms: i64, first: i64) -> None:
        """Set the deadline at which the page that begins at `first` is read."""
        self.queue.note_page_deadline(deadline_ms, first)

    def arrived(self) -> None:
        """Expire messages of a loaded page that are due, and deliver the rest."""
        queue = self.queue
        if queue.expiry is not None:
            queue.expiry.arm()
        queue.schedule()

    def is_out(self, sequence: i64) -> bool:
        """Return whether a persistent message was taken and is not gone yet."""
        out = self.queue.out
        return bool(out) and sequence in out

    def out_from(self, start: i64) -> list[Returned]:
        """Return the persistent messages from `start` on that do not wait."""
        queue = self.queue
        rows = [item for item in queue.out.values() if item.sequence >= start]
        if queue.retained is not None and queue.recorded:
            rows += [item for item in queue.retained.persistent() if item.sequence >= start]
        return rows

    def out_sequences(self) -> list[int]:
        """Return the sequences of all messages that do not wait and are not gone."""
        queue = self.queue
        sequences = [int(sequence) for sequence in queue.out]
        if queue.retained is not None:
            sequences += [int(sequence) for sequence in queue.retained.messages]
        return sequences
