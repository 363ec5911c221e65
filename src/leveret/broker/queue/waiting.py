"""The base of queues whose messages wait in order: in memory, and beyond a window on disk.

This class decides where messages are stored, how they are counted, which of them a checkpoint
contains and which are restored after a restart.  Subclasses decide when and where they are
delivered: `ClassicQueue` to consumers, `StagingQueue` to the exchanges of a committed batch.

A message is written to a chunk at most once.  It may leave its queue at any time, before or after
the chunk is synced.  The queue records which messages of its chunks are gone, because the next
start reads the chunks and not the earlier journal.

Invariants: a message is in `ready`, or the subclass has it (unacked, retained, or on its way to the
dead-letter exchange); a message that a checkpoint must find is in memory or in a stored chunk.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from leveret.broker.attributes.message_events import DELETED, DELIVERED, PURGED
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.backlog.detached import Detached
from leveret.broker.backlog.fifo_pages import FifoPages
from leveret.broker.backlog.message_table import MessageTable
from leveret.broker.backlog.owner import BacklogOwner
from leveret.broker.backlog.pages import Pages
from leveret.broker.backlog.priorities import PriorityReady
from leveret.broker.backlog.priority_pages import PriorityPages
from leveret.broker.backlog.ready import Ready
from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.backlog.window import RequeuedMessage, WindowPart
from leveret.broker.core import Core
from leveret.broker.queue.deduplication import QueuedKeys
from leveret.broker.queue.purge import purge_rest
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.tracing import note_event
from leveret.broker.scheduler.costs import LISTED_PER_COST, MESSAGES_PER_COST
from leveret.broker.scheduler.task import Task
from leveret.message import Address, Message
from leveret.store.records.levels import STRICT
from leveret.store.records.returns import MAYBE_DELIVERED
from leveret.store.segments.segments import ChunkRef


@mypyc_attr(allow_interpreted_subclasses=True)
class WaitingQueue(Queue, BacklogOwner):
    """The base of the queues in which messages wait."""

    def __init__(self, core: Core, queue_id: i64, name: str, attributes: QueueAttributes) -> None:
        super().__init__(core, queue_id, name, attributes)
        self.stored = StoredChunks(core.spill)
        #: The address of its last dead letter, or None before the first.
        self.letter_address: Address | None = None
        self._kind = "quorum" if attributes.arguments.get("x-queue-type") == "quorum" else "classic"
        #: Its level set (see `levels.py`); 0 while it has no levels.
        self.levels: i64 = max(self.settings.priority_max, 0)
        self.ready: Ready = PriorityReady(self.levels) if self.levels > 0 else Ready()
        #: True for a quorum queue that has only had messages of the usual level.
        self.may_have_levels = self._kind == "quorum" and self.settings.priority_max < 0
        #: Persistent messages that left `ready` but not the queue, by their sequences.
        self.out = MessageTable()
        #: The task for the rest of the last purge, if it could not be done at once.
        self.purging: Task | None = None
        #: Messages with lower sequences may have been delivered before an unclean stop.
        self.redelivered_below: i64 = 0
        #: The number of returns of the message taken last.
        self.taken_count: i64 = 0

    @property
    def kind(self) -> str:
        """Return `classic`, or `quorum` if it was declared as such."""
        return self._kind

    def ready_count(self) -> i64:
        """Return the number of waiting messages."""
        return self.ready.count()

    def ready_bytes(self) -> i64:
        """Return the bytes of the waiting messages."""
        return self.ready.size

    def memory_count(self) -> i64:
        """Return the number of messages waiting in memory."""
        return self.ready.memory_count()

    def memory_bytes(self) -> i64:
        """Return the bytes of the messages waiting in memory."""
        return self.ready.memory_bytes()

    def next_number(self) -> i64:
        """Return the sequence that the next message gets."""
        return self.ready.next_sequence()

    # -- priorities -------------------------------------------------------------------------------

    def begin_levels(self) -> bool:
        """Start ordering messages by level; return whether that is possible yet.

        All waiting messages have one level, so the pages of a deep queue stay as they are.  It is
        not possible while a page is only a part of its chunk, until that part is read.
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
        """Order messages by level, as before a restart.  Call this before other restores."""
        if self.may_have_levels:
            self._have_levels()

    def levels_definition(self) -> dict[str, object]:
        """Return the record of a quorum queue with levels."""
        return {"id": int(self.queue_id)}

    # -- pages ------------------------------------------------------------------------------------

    def out_within(self, first: i64, last: i64) -> list[RequeuedMessage]:
        """Return the persistent messages in a range that are not waiting, in any order."""
        return self.out.within(first, last)

    def bound_window(self) -> None:
        """Keep the memory of waiting messages within the window."""
        if self.core.memory.window_bytes >= 0:
            self.backlog().bound()

    def backlog(self) -> Pages:
        """Return the pages of the queue; create them when they are first needed."""
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
        """Move waiting messages from memory to disk; return whether another call is needed.

        Messages of a queue with priorities stay in memory.
        """
        return self.levels <= 0 and self.backlog().evict()

    def settle_pages(self, boundary: i64) -> bool:
        """Write the tail of a deep queue, so that a checkpoint finds it in chunks.

        Return whether messages below `boundary` remain for another call.
        """
        pages = self.ready.pages
        return pages is not None and pages.settle(boundary)

    def adopt(self, refs: list[ChunkRef]) -> None:
        """Append the messages of another queue's chunks."""
        pages = self.backlog()
        assert isinstance(pages, FifoPages)
        for ref in refs:
            self.core.journal.spill(self.queue_id, pages.adopt(ref), [])
        self.schedule()

    def give_away(self) -> list[ChunkRef]:
        """Return the chunks, which contain all messages of the queue, and forget the messages."""
        self.ready.detach()
        return self.stored.give_away()

    # -- leaving messages -------------------------------------------------------------------------

    def take(self, sequence: i64) -> Message:
        """Remove and return the message with the sequence that `ready.first` returned.

        Set `taken_count` to its number of returns, or to MAYBE_DELIVERED.
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
        """Remove a message from the queue and the journal for good."""
        core = self.core
        core.memory.release(message.size)
        if self.recorded and message.persistent:
            core.journal.ack(self.queue_id, sequence, sequence)
        if sequence <= self.stored.through:
            self.stored.forget(sequence)

    def moved(self, sequence: i64, message: Message, recorded: bool) -> None:
        """Forget a message that moved elsewhere; `recorded` is True if the move is journaled."""
        self.out.pop(sequence)
        if not recorded and not self.deleted:
            self.let_go(sequence, message)
            return
        core = self.core
        core.memory.release(message.size)
        if sequence <= self.stored.through:
            self.stored.forget(sequence)

    def purge(self) -> i64:
        """Drop the waiting messages at once.  A task does the remaining work (`purging`)."""
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

    def take_parked(self) -> dict[i64, RequeuedMessage]:
        """Remove and return the messages waiting for their retry, for a purge."""
        return {}

    def known_keys(self) -> QueuedKeys | None:
        """Return the keys of the messages in the queue, if it drops duplicates of them."""
        return None

    def _detach(self) -> Detached:
        """Remove the waiting messages from the memory account, the counts and all lists."""
        self.core.memory.release_all(self.ready.memory_count(), self.ready.memory_bytes())
        return self.ready.detach()

    def drop(self) -> None:
        """Drop all messages.  In the journal, the record of the deletion covers them."""
        note_event(self, DELETED, self.next_number(), None)
        self._detach().free(self.core)
        self.out.free(self.core.scheduler)
        self.stored.free(self.core)
        if self.expiry_of_queue is not None:
            self.core.timers.cancel(self.expiry_of_queue)

    def untie(self) -> None:
        """Drop the parts that refer to the queue, after it was dropped."""
        super().untie()
        self.ready.pages = None
        self.ready.fifo = None
        self.purging = None

    # -- checkpoints ------------------------------------------------------------------------------

    def live_parts(self, parts: list[WindowPart]) -> list[list[RequeuedMessage | None]]:
        """Return the messages in memory, waiting or not, that a checkpoint must find.

        The lists have no order.  Windows, which may contain millions of messages, are added to
        `parts`; a checkpoint examines a few messages at a time.  Lists and windows may also contain
        transient messages, and None.
        """
        return [self.ready.copy_waiting(parts), self.out.places()]

    def holds(self, sequence: i64) -> bool:
        """Return whether a persistent message that was in memory is still in the queue."""
        return self.ready.has(sequence) or self.out.has(sequence)

    def counts_on_disk(self) -> dict[i64, i64]:
        """Return the numbers of returns of messages that are only on disk."""
        pages = self.ready.pages
        return {} if pages is None else pages.counts

    def redelivered_definition(self) -> dict[str, object]:
        """Return the record of messages that may have been delivered before."""
        return {"id": int(self.queue_id), "below": int(self.redelivered_below)}

    def restore(self, returned: list[RequeuedMessage], next_sequence: i64, unclean: bool) -> None:
        """Restore the messages of the journal, in the order of their sequences.

        `restore_chunks` has already restored the messages on disk.
        """
        self.ready.fill(returned, next_sequence)
        for item in returned:
            self.core.memory.hold(item.message.size)
        if unclean:
            self.redelivered_below = next_sequence
