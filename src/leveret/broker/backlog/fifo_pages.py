"""The pages of a queue that delivers its messages in the order of their sequences.

When a queue's memory is full, the messages in memory become its front, which stays in memory.  New
messages are appended to the tail, which is cut into pages.  After consumers have emptied the front,
the next page becomes the front, and some pages behind it are read ahead.

Invariants: a page without a window has a stored chunk, and its waiting messages are the rows from
`start` on that are not gone; `count` is the number of messages waiting in pages, in memory or on
disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.attributes.expiration import deadline_of
from leveret.broker.backlog.detached import Detached
from leveret.broker.backlog.folding import is_worth_a_page, lowest, may_lie_in_page, runs_of, within
from leveret.broker.backlog.owner import BacklogOwner
from leveret.broker.backlog.page import Page, place_of
from leveret.broker.backlog.page_cutter import cut
from leveret.broker.backlog.pages import Pages
from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.backlog.window import (
    NOTHING,
    TAKEN,
    RequeuedMessage,
    Window,
    WindowPart,
    filled_window,
    sequence_of,
    window_of,
)
from leveret.broker.consumers.consumer import Source
from leveret.broker.scheduler.costs import LOADED_PER_COST, LOOKED_AT_PER_COST, MESSAGES_PER_COST
from leveret.chunk import NEVER, ROW_BYTES, ChunkBuilder
from leveret.limits import (
    CHUNK_RECORDS_MAX,
    MESSAGE_OVERHEAD_BYTES,
    PAGES_AHEAD,
    PAGES_AHEAD_BYTES,
)
from leveret.message import Message
from leveret.store.segments.segments import ChunkRef, adopted_ref

if TYPE_CHECKING:
    from leveret.broker.backlog.ready import Ready


@final
class FifoPages(Pages):
    """The pages of one queue without priorities."""

    def __init__(
        self, queue: Source, ready: Ready, stored: StoredChunks, owner: BacklogOwner
    ) -> None:
        super().__init__(queue, ready, stored, owner)
        #: The next messages to deliver, while `active`.
        self.front = Window(1)
        #: The number of messages waiting in pages, in memory or on disk.
        self.count: i64 = 0
        #: The bytes in the tail up to `tail_end`.
        self.tail_bytes: i64 = 0
        self.tail_end: i64 = 0
        #: The sequences of damaged messages in the chunk read last.
        self._lost: list[int] = []

    # -- filling ----------------------------------------------------------------------------------

    def bound(self) -> None:
        """Begin paging, or write a page, if waiting messages take more memory than the window."""
        ready = self.ready
        held = ready.size - self.away_bytes
        count = ready.window.count() + ready.returns.count() + self.memory_count()
        if held + count * MESSAGE_OVERHEAD_BYTES <= self.queue.core.memory.window_bytes:
            return
        if not self.active:
            self._begin()
        elif self._measure_tail():
            self._cut_tail()

    def settle(self, boundary: i64) -> bool:
        """Write the beginning of the tail; return whether some of it below `boundary` is left."""
        if not self.active or self.ready.window.count() == 0:
            return False
        self._measure_tail()
        self._cut_tail()
        window = self.ready.window
        return window.count() > 0 and window.head_sequence < boundary

    def adopt(self, ref: ChunkRef) -> ChunkRef:
        """Append the messages of another queue's chunk; return the chunk's new reference."""
        own = adopted_ref(ref, self.end_tail())
        page = self.restored_page(own)
        page.stored = self.stored.add(own, own.count)
        self._put_behind(page)
        return own

    def end_tail(self) -> i64:
        """Cut all of the tail into pages; return the sequence of the next message."""
        if not self.active:
            self._begin()
        while self.ready.window.count() > 0:
            self._measure_tail()
            self._cut_tail()
        return self.ready.window.next_sequence

    def write_behind(self, builder: ChunkBuilder, page: Page) -> None:
        """Append the messages of a new chunk, which begins at `end_tail`."""
        page.stored = self.stored.write(builder, page, False)
        page.restore(page.stored.ref)
        self._put_behind(page)

    def _put_behind(self, page: Page) -> None:
        """Append a page whose messages are only in its chunk."""
        ready = self.ready
        assert page.stored is not None
        page.stored.whole = True
        self.items.append(page)
        self.count += page.waiting
        ready.size += page.size
        ready.bodies += page.bodies
        self._count_as_away(page)
        ready.window = Window(page.last + 1)
        self.tail_end = page.last + 1

    def _begin(self) -> None:
        """Begin paging.  The window becomes the front, and new messages form the tail."""
        ready = self.ready
        self.front = ready.window
        ready.window = Window(self.front.next_sequence)
        self.active = True
        self.tail_bytes = 0
        self.tail_end = ready.window.next_sequence

    def _measure_tail(self) -> bool:
        """Count the new messages in the tail; return whether they fill a page."""
        window = self.ready.window
        self.tail_end = max(self.tail_end, window.head_sequence)
        items = window.items
        place: i64 = window.head + self.tail_end - window.head_sequence
        size: i64 = self.tail_bytes
        while place < len(items):
            size += items[place].size + ROW_BYTES
            place += 1
        self.tail_bytes = size
        self.tail_end = window.next_sequence
        return size >= self.queue.core.memory.page_bytes or window.count() >= CHUNK_RECORDS_MAX

    def _cut_tail(self) -> None:
        """Cut the measured tail into pages.

        Only the beginning of a long tail is cut, because a window may contain 80,000 tiny messages.
        The next call continues.
        """
        ready = self.ready
        window = ready.window
        if len(window.items) - window.head > CHUNK_RECORDS_MAX:
            ready.window = window.split(window.head_sequence + CHUNK_RECORDS_MAX)
            for message in window.items[window.head :]:
                self.tail_bytes -= message.size + ROW_BYTES
        else:
            ready.window = Window(window.next_sequence)
            self.tail_bytes = 0
            self.tail_end = window.next_sequence
        self.queue.scheduler.spent += window.count() // MESSAGES_PER_COST
        for page in cut(self, window):
            self.items.append(page)
            self.count += page.waiting

    def spilled(self, page: Page, ref: ChunkRef) -> None:
        """Journal a written chunk, and drop its page from memory unless it is needed soon."""
        near = page in self._ahead() and not page.evicted
        if self.stored.written(self.queue, page.stored, ref) and page.listed and not near:
            self._unload(page)

    def _ahead(self) -> list[Page]:
        """Return the first pages, which must be read ahead."""
        ahead: list[Page] = []
        size: i64 = 0
        for page in self.items[:PAGES_AHEAD]:
            if size >= PAGES_AHEAD_BYTES:
                break
            ahead.append(page)
            size += page.size
        return ahead

    def _unload(self, page: Page) -> None:
        """Drop a page from memory."""
        if page.window is None:
            return
        page.release(self.stored.gone, self.owner.expires())
        self.queue.core.memory.release_all(page.waiting, page.size)
        self._count_as_away(page)

    def evict(self) -> bool:
        """Move waiting messages from memory to disk; return whether another call is needed.

        The tail is moved first, then the front, then requeued messages.  Each may have 80,000 tiny
        messages, so one call moves only a page or two.
        """
        if not self.active:
            self._begin()
        if self.settle(self.ready.window.next_sequence):
            return True
        if self.front.first() == NOTHING:
            return self._fold_returns()
        self._cut_end()
        if self.front.first() != NOTHING:
            return True
        self.leave()
        return self.ready.returns.count() > 0

    def leave(self) -> None:
        """Drop all pages from memory as soon as they are written, even those read ahead."""
        self.queue.scheduler.spent += len(self.items) // LOOKED_AT_PER_COST
        for page in self.items:
            self._leave(page)

    def _cut_end(self) -> None:
        """Turn the end of the front into pages before all others."""
        front = self.front
        first = self._end_of(front)
        if first > front.head_sequence:
            front = front.split(first)
        else:
            self.front = Window(front.next_sequence)
        self.queue.scheduler.spent += front.count() // MESSAGES_PER_COST
        back = within(self.ready.returns, front)
        if back:
            self._fold([*front.waiting(), *back])
            return
        pages = cut(self, front)
        self.items[:0] = pages
        for page in pages:
            self.count += page.waiting

    def _end_of(self, front: Window) -> i64:
        """Return the first sequence of the part of the front that becomes pages next."""
        first: i64 = front.next_sequence - CHUNK_RECORDS_MAX
        # A chunk is one page.
        stored = self.stored.find(first)
        if stored is not None:
            first = stored.ref.first
        return max(first, front.head_sequence)

    def _leave(self, page: Page) -> None:
        """Drop a page from memory as soon as it is written."""
        page.evicted = True
        stored = page.stored
        if stored is not None and self.stored.is_durable(stored):
            self._unload(page)

    def _fold_returns(self) -> bool:
        """Turn some requeued messages into pages; return whether another call may turn more."""
        returns = self.ready.returns
        before = returns.count()
        if before == 0:
            return False
        self._fold(lowest(returns))
        return 0 < returns.count() < before

    def _fold(self, items: list[RequeuedMessage]) -> None:
        """Turn messages into pages if possible, and put the others into `returns`."""
        free: list[RequeuedMessage] = []
        for item in sorted(items, key=sequence_of):
            if may_lie_in_page(item, self.items, self.stored):
                free.append(item)
            else:
                self.ready.returns.put(item)
        for run in runs_of(self.owner, self.items, free):
            self._fold_run(run)
        self.queue.scheduler.spent += len(items) // 4

    def _fold_run(self, run: list[RequeuedMessage]) -> None:
        """Turn a run into pages, unless it is too short."""
        if not is_worth_a_page(run, self.queue.core.memory.page_bytes):
            for item in run:
                self.ready.returns.put(item)
            return
        for item in run:
            self.keep_count(item.sequence, item.count)
        for page in cut(self, filled_window(run, run[-1].sequence + 1)):
            self.items.insert(place_of(self.items, page.first), page)
            self.count += page.waiting
            self._leave(page)

    # -- emptying ---------------------------------------------------------------------------------

    def first(self, at_once: bool) -> i64:
        """Return the sequence of the next message, or NOTHING.

        A message on disk is read: synchronously if `at_once`, and otherwise as an effect.  The
        result is then NOTHING until it is loaded.
        """
        back = self.ready.returns.first()
        front = self.front.first()
        while front == NOTHING:
            if not self.items:
                self._end()
                return self.ready.first_in_memory()
            page = self.items[0]
            if back != NOTHING and back < page.start:
                return back
            if page.window is None and page.waiting > 0:
                if not at_once:
                    self.want(page)
                    return NOTHING
                self._load_now(page)
            self._enter(page)
            back = self.ready.returns.first()
            front = self.front.first()
        return front if back == NOTHING or front < back else back

    def _end(self) -> None:
        """Stop paging because only the tail is left."""
        super()._end()
        self.front = Window(1)

    def _enter(self, page: Page) -> None:
        """Make the first page the front."""
        page.listed = False
        self.count -= page.waiting
        if page.window is not None:
            self.front = page.window
            if self.counts:
                self._part_returned(page.window)
        del self.items[0]
        for ahead in self._ahead():
            if ahead.window is None and ahead.waiting > 0:
                self.want(ahead)

    def _part_returned(self, window: Window) -> None:
        """Move requeued messages to `returns`, together with their counts."""
        sequence: i64 = window.head_sequence
        for message in window.items[window.head :]:
            count = self.counts.get(sequence, 0)
            if count > 0 and message is not TAKEN:
                self.take_count(sequence)
                self.ready.returns.put(RequeuedMessage(sequence, window.remove(sequence), count))
            sequence += 1

    def load(self, page: Page, data: bytes) -> None:
        """Load a page into memory from its chunk's bytes."""
        queue = self.queue
        found = self._decode(page, data)
        if self._peeked is page:
            self._forget_peeked()
        self.away_count -= page.waiting
        self.away_bytes -= page.size
        self.count -= page.waiting
        dense = page.last - page.start < 4 * len(found) + 64
        size: i64 = 0
        bodies: i64 = 0
        items: list[Message] = []
        for item in found:
            if self.counts:
                self.take_count(item.sequence)
            message = item.message
            size += message.size
            bodies += len(message.body)
            if item.count > 0 or not dense:
                # The message waits in `returns` from now on.
                self.ready.returns.put(item)
                continue
            while page.start + len(items) < item.sequence:
                items.append(TAKEN)
            items.append(message)
        queue.core.memory.hold_all(len(found), size)
        queue.scheduler.spent += len(found) // LOADED_PER_COST
        if len(found) < page.waiting:
            self.ready.size -= page.size - size
            self.ready.bodies -= page.bodies - bodies
            self._forget_lost(page, found)
        window = Window(page.start)
        window.fill(items, page.start)
        page.hold(window)
        self.count += page.waiting
        if self.owner.expires() or page.min_expiry != NEVER:
            ttl = queue.settings.message_ttl_ms
            queue.scheduler.spent += len(found) // LOADED_PER_COST
            for item in found:
                self.owner.note_deadline(deadline_of(item.message, ttl), item.sequence)
        self.owner.arrived()
        self.queue.schedule()

    def _forget_lost(self, page: Page, found: list[RequeuedMessage]) -> None:
        """Forget the unreadable messages of the chunk, which are in quarantine."""
        stored = page.stored
        assert stored is not None
        if not found:
            self.stored.remove(stored)
            return
        for sequence in self._lost:
            self.stored.forget(sequence)

    def _decode(self, page: Page, data: bytes) -> list[RequeuedMessage]:
        """Return the waiting messages of a page without damaged ones, which are reported once."""
        found: list[RequeuedMessage] = []
        self._lost = []
        chunk = self._open(page, data)
        if chunk is None:
            return found
        gone = self.stored.gone
        any_gone = gone.count(chunk.first, chunk.last) > 0
        index: i64 = chunk.find(page.start)
        while index < chunk.count and chunk.sequence(index) <= page.last:
            sequence = chunk.sequence(index)
            if (
                (not any_gone or not gone.has(sequence))
                and sequence not in page.absent
                and (not page.restored or chunk.persistent(index))
            ):
                item = self._row(chunk, index)
                if item is not None:
                    found.append(item)
                else:
                    self._lost.append(int(sequence))
            index += 1
        self._report(page, data, self._lost)
        return found

    # -- single messages --------------------------------------------------------------------------

    def has(self, sequence: i64) -> bool:
        """Return whether a message is in the front or in a page in memory."""
        if self.front.has(sequence):
            return True
        page = self.page_at(sequence)
        window = page.window if page is not None else None
        return window is not None and window.has(sequence)

    def remove(self, sequence: i64) -> RequeuedMessage | None:
        """Remove and return a message, or return None if it is not in memory."""
        if self.front.has(sequence):
            return RequeuedMessage(sequence, self.front.remove(sequence), 0)
        page = self.page_at(sequence)
        if page is None:
            return None
        window = page.window
        if window is None or not window.has(sequence):
            return None
        message = window.remove(sequence)
        page.waiting -= 1
        page.size -= message.size
        page.bodies -= len(message.body)
        self.count -= 1
        return RequeuedMessage(sequence, message, self.take_count(sequence) if self.counts else 0)

    def look(self, sequence: i64) -> RequeuedMessage | None:
        """Return a waiting message without taking it, or None if it is not waiting."""
        if self.front.has(sequence):
            return RequeuedMessage(sequence, self.front.at(sequence), 0)
        return super().look(sequence)

    def behind(self, sequence: i64, count: i64) -> tuple[i64, i64]:
        """Skip up to `count` messages from `sequence`; return the next sequence and the rest.

        The rest is the number left to skip.  It is smaller than the next page, because no page is
        read from disk.
        """
        front = self.front
        if sequence < front.next_sequence:
            sequence, count = front.behind(sequence, count)
        for page in self.items:
            if page.last < sequence:
                continue
            if count == 0 or page.waiting > count or page.start < sequence:
                break
            count -= page.waiting
            sequence = page.last + 1
        return sequence, count

    def waiting(self) -> list[RequeuedMessage]:
        """Return the waiting messages in memory, in the order of their sequences."""
        found = self.front.waiting()
        for page in self.items:
            window = page.window
            if window is not None:
                found += window.waiting()
        return found

    def copy_waiting(self, parts: list[WindowPart]) -> None:
        """Add copies of the windows in memory to `parts`."""
        parts.append(self.front.part())
        for page in self.items:
            window = page.window
            if window is not None:
                parts.append(window.part())

    def are_whole(self) -> bool:
        """Return whether each page that is only on disk covers its whole chunk."""
        for page in self.away():
            stored = page.stored
            if stored is None or page.start > stored.ref.first or page.last < stored.ref.last:
                return False
        return True

    def memory_count(self) -> i64:
        """Return the number of messages waiting in memory, without the tail."""
        return self.front.count() + self.count - self.away_count

    def first_sequence(self) -> i64:
        """Return the lowest sequence, or NOTHING."""
        front = self.front.first()
        return front if front != NOTHING else super().first_sequence()

    # -- all --------------------------------------------------------------------------------------

    def let_go_of(self, page: Page) -> None:
        """Forget the messages of a detached page that are on disk, and ack them in the journal."""
        queue = self.queue
        stored = page.stored
        if stored is None:
            return
        queue.scheduler.spent += 1 + len(page.absent) + self.stored.moved_cost()
        first: i64 = page.start
        for absent in [*sorted(page.absent), page.last + 1]:
            if queue.recorded and first < absent:
                queue.core.journal.ack(queue.queue_id, first, absent - 1)
            if stored.live > page.waiting:
                self.stored.gone.add(first, absent - 1)
            first = absent + 1
        self.stored.forget_count(stored, page.waiting)

    def detach(self, detached: Detached) -> None:
        """Detach all messages."""
        detached.windows.append(self.front)
        super().detach(detached)

    def clear(self) -> None:
        """Drop all messages."""
        super().clear()
        self.count = 0

    def fill_front(self, returned: list[RequeuedMessage]) -> list[RequeuedMessage]:
        """Put recovered messages from before the pages into the front; return the others."""
        count: i64 = 0
        first = self.items[0].first
        while count < len(returned) and returned[count].sequence < first:
            count += 1
        if count == 0:
            return returned
        window = window_of(returned[:count], returned[count - 1].sequence + 1)
        if window is None:
            return returned
        self.front = window
        return returned[count:]

    def restore(self, restored: list[Page], counts: dict[i64, i64]) -> None:
        """Restore pages on disk, in the order of their sequences."""
        super().restore(restored, counts)
        for page in restored:
            self.count += page.waiting
