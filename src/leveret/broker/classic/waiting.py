"""A queue in which messages wait in their order until they leave it.

They wait in memory, and beyond a window in pages on the disk.

It says where messages lie, how they are counted, what a checkpoint finds of them and what comes
back after a restart.  When and to whom they go is for its heirs: `ClassicQueue` gives them to
consumers, `StagingQueue` to the exchanges of a committed batch.

A message is written to a chunk at most once.  It may leave its queue at any time, before the chunk
is synced and after; the queue remembers which messages of its chunks are gone for the next start,
which reads the chunks and not the journal before them.

Invariants: a message is in `ready`, or its queue's heir has it: handed out, kept, or on its way to
the dead-letter exchange; one that a checkpoint must find is in memory or in a stored chunk.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from leveret.broker.backlog.detached import Detached
from leveret.broker.backlog.fifo_pages import FifoPages
from leveret.broker.backlog.message_table import MessageTable
from leveret.broker.backlog.owner import BacklogOwner
from leveret.broker.backlog.pages import Pages
from leveret.broker.backlog.priorities import PriorityReady
from leveret.broker.backlog.priority_pages import PriorityPages
from leveret.broker.backlog.ready import Ready
from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.backlog.window import Returned, WindowPart
from leveret.broker.classic.deduplication import QueuedKeys
from leveret.broker.classic.purging import purge_rest
from leveret.broker.classic.tracing import note_event
from leveret.broker.core.core import Core
from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.costs import LISTED_PER_COST, MESSAGES_PER_COST
from leveret.broker.scheduler.task import Task
from leveret.broker.values.event_names import DELETED, DELIVERED, PURGED
from leveret.broker.values.queue_attributes import QueueAttributes
from leveret.message import Address, Message
from leveret.store.records.levels import STRICT
from leveret.store.records.returns import MAYBE_DELIVERED


@mypyc_attr(allow_interpreted_subclasses=True)
class WaitingQueue(Queue, BacklogOwner):
    """The base of the queues whose messages wait."""

    def __init__(self, core: Core, queue_id: i64, name: str, attributes: QueueAttributes) -> None:
        super().__init__(core, queue_id, name, attributes)
        self.stored = StoredChunks(core.spill)
        #: Where its last dead letter went; None before the first one.
        self.letter_address: Address | None = None
        self._kind = "quorum" if attributes.arguments.get("x-queue-type") == "quorum" else "classic"
        #: The levels of its priorities as `levels.py` knows them; 0 while it keeps none.
        self.levels: i64 = max(self.settings.priority_max, 0)
        self.ready: Ready = PriorityReady(self.levels) if self.levels > 0 else Ready()
        #: True for a quorum queue that has had no message of a level but the usual one.
        self.may_have_levels = self._kind == "quorum" and self.settings.priority_max < 0
        #: Persistent messages that do not wait and are not gone, by their sequences.
        self.out = MessageTable()
        #: What is left of the last purge that could not be done at once.
        self.purging: Task | None = None
        #: Messages with lower sequences may have been delivered before an unclean stop.
        self.redelivered_below: i64 = 0
        #: How often the message taken last had been returned.
        self.taken_count: i64 = 0

    @property
    def kind(self) -> str:
        """Return `classic`, or `quorum` where it was declared so."""
        return self._kind

    def ready_count(self) -> i64:
        """Return how many messages wait."""
        return self.ready.count()

    def ready_bytes(self) -> i64:
        """Return the bytes of the messages that wait."""
        return self.ready.size

    def memory_count(self) -> i64:
        """Return how many of the messages that wait are in memory."""
        return self.ready.memory_count()

    def memory_bytes(self) -> i64:
        """Return the bytes of these."""
        return self.ready.memory_bytes()

    def next_number(self) -> i64:
        """Return the sequence that the next message gets."""
        return self.ready.next_sequence()

    # -- priorities -------------------------------------------------------------------------------

    def begin_levels(self) -> bool:
        """Keep the levels of messages from now on; return whether that is possible yet.

        All that waits has one level, so the pages of a deep queue stay where they are.  It is not
        possible while a page is only a part of its chunk, until that part is read.
        """
        ready = self.ready
        fifo = ready.fifo
        if fifo is not None:
            self.core.scheduler.spent += ready.page_count() // LISTED_PER_COST
            if not fifo.are_whole():
                return False
        waiting = ready.waiting()
        self.core.scheduler.spent += len(waiting) // MESSAGES_PER_COST
        self._have_levels()
        self.ready.fill(waiting, ready.next_sequence())
        if fifo is not None and (fifo.active or fifo.counts):
            pages = self.backlog()
            assert isinstance(pages, PriorityPages)
            pages.take_over(fifo)
        if self.recorded:
            self.core.journal.define("levels", self.levels_definition())
        return True

    def _have_levels(self) -> None:
        self.levels = STRICT
        self.ready = PriorityReady(STRICT)
        self.may_have_levels = False

    def restore_levels(self) -> None:
        """Keep the levels of messages, as before a restart; called before all else is restored."""
        if self.may_have_levels:
            self._have_levels()

    def levels_definition(self) -> dict[str, object]:
        """Return the record of a quorum queue that keeps levels."""
        return {"id": int(self.queue_id)}

    # -- pages ------------------------------------------------------------------------------------

    def out_within(self, first: i64, last: i64) -> list[Returned]:
        """Return the persistent messages in that range that do not wait, in any order."""
        return self.out.within(first, last)

    def bound_window(self) -> None:
        """Keep the memory of waiting messages within the window."""
        if self.core.memory.window_bytes >= 0:
            self.backlog().bound()

    def backlog(self) -> Pages:
        """Return the pages of the queue, which are created when they are first needed."""
        ready = self.ready
        pages = ready.pages
        if pages is None:
            if isinstance(ready, PriorityReady):
                pages = PriorityPages(self, ready, self.stored, self)
            else:
                pages = ready.fifo = FifoPages(self, ready, self.stored, self)
            ready.pages = pages
        return pages

    def evict(self) -> bool:
        """Move waiting messages in memory to disk; return whether there are more for another call.

        Those of a queue with priorities stay.
        """
        return self.levels <= 0 and self.backlog().evict()

    def settle_pages(self, boundary: i64) -> bool:
        """Write the tail of a deep queue, so that a checkpoint finds it in chunks.

        Returns whether some below `boundary` are left; it is asked again then.
        """
        pages = self.ready.pages
        return pages is not None and pages.settle(boundary)

    # -- what leaves ------------------------------------------------------------------------------

    def take(self, sequence: i64) -> Message:
        """Return the message that `ready.first` named and move on; sets `taken_count`.

        That is how often it was returned, or MAYBE_DELIVERED.
        """
        ready = self.ready
        message = ready.take(sequence)
        count = ready.taken_count
        if count == 0 and sequence < self.redelivered_below:
            count = MAYBE_DELIVERED
        self.taken_count = count
        if (sequence & self.core.event_mask) == 0:
            note_event(self, DELIVERED, sequence, message, count)
        return message

    def let_go(self, sequence: i64, message: Message) -> None:
        """Forget a message for good, here and in the journal."""
        core = self.core
        core.memory.release(message.size)
        if self.recorded and message.persistent:
            core.journal.ack(self.queue_id, sequence, sequence)
        if sequence <= self.stored.through:
            self.stored.forget(sequence)

    def moved(self, sequence: i64, message: Message, recorded: bool) -> None:
        """Forget a message that was moved on; `recorded` tells that the journal knows it left."""
        self.out.pop(sequence)
        if not recorded and not self.deleted:
            self.let_go(sequence, message)
            return
        core = self.core
        core.memory.release(message.size)
        if sequence <= self.stored.through:
            self.stored.forget(sequence)

    def purge(self) -> i64:
        """Drop the waiting messages, here at once; the rest of it may take longer (`purging`)."""
        self.core.scheduler.changes += 1
        dropped = self.ready_count()
        note_event(self, PURGED, self.next_number(), None)
        pages = self.ready.pages
        detached = self._detach()
        parked = self.take_parked()
        dropped += len(parked)
        purging = self.core.scheduler.start(purge_rest(self, detached, pages, parked))
        self.purging = None if purging.over else purging
        return dropped

    def take_parked(self) -> dict[i64, Returned]:
        """Forget what waits elsewhere to come back, because the queue is purged, and return it."""
        return {}

    def known_keys(self) -> QueuedKeys | None:
        """Return the keys of the messages in the queue, where their like is dropped."""
        return None

    def _detach(self) -> Detached:
        """Let the waiting messages leave the memory's account, the counts and all lists."""
        self.core.memory.release_all(self.ready.memory_count(), self.ready.memory_bytes())
        return self.ready.detach()

    def drop(self) -> None:
        """Drop everything; the record of the delete stands for it in the journal."""
        note_event(self, DELETED, self.next_number(), None)
        self._detach().free(self.core)
        self.out.free(self.core.scheduler)
        self.stored.free(self.core)
        if self.expiry_of_queue is not None:
            self.core.timers.cancel(self.expiry_of_queue)

    def untie(self) -> None:
        """Let go of the parts that know the queue, which was dropped."""
        super().untie()
        self.ready.pages = None
        self.ready.fifo = None
        self.purging = None

    # -- checkpoints ------------------------------------------------------------------------------

    def live_parts(self, parts: list[WindowPart]) -> list[list[Returned | None]]:
        """Return the messages in memory, waiting or not, that a checkpoint must find.

        They are in lists of any order, and in windows, which are put into `parts`: a checkpoint
        looks at some after the other, as there may be millions.  With them come messages that are
        not persistent, and None.
        """
        return [self.ready.copy_waiting(parts), self.out.places()]

    def holds(self, sequence: i64) -> bool:
        """Return whether a persistent message that was in memory is still here."""
        return self.ready.has(sequence) or self.out.has(sequence)

    def counts_on_disk(self) -> dict[i64, i64]:
        """Return how often messages that are on the disk alone came back."""
        pages = self.ready.pages
        return {} if pages is None else pages.counts

    def redelivered_definition(self) -> dict[str, object]:
        """Return the record of messages that may have been delivered before."""
        return {"id": int(self.queue_id), "below": int(self.redelivered_below)}

    def restore(self, returned: list[Returned], next_sequence: i64, unclean: bool) -> None:
        """Start with the messages of the journal, in the order of their sequences.

        What waits on the disk is there before (`restore_chunks`).
        """
        self.ready.fill(returned, next_sequence)
        for item in returned:
            self.core.memory.hold(item.message.size)
        if unclean:
            self.redelivered_below = next_sequence
