"""The messages of a deep queue that wait between its front and its tail, most of them on the disk.

When a queue's memory is full, what it holds becomes its first page, in memory; from then on new
messages are cut from the tail into pages, each a chunk of a segment file, and let go of once the
file has them.  Consumers empty the front; then the next page becomes the front, read some pages
ahead of them.  Of a page on the disk only these few numbers are in memory.

A page is read as an effect (`turn.wanted`): until it is there the queue has nothing to hand out.
Where an answer cannot wait (basic.get, dropping from the head, browsing) it is read at once, by
`turn.reader`; reading ahead makes that rare.

Invariants: pages are in the order of their sequences and do not overlap; every message of a page
has a lower sequence than the tail's; a page without a window has a stored chunk, whose rows from
`start` on that are not gone are what waits.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.backlog.damage import open_chunk, report_messages
from leveret.broker.backlog.in_memory import InMemory
from leveret.broker.backlog.owner import BacklogOwner
from leveret.broker.backlog.page import Page, PageOwner, PageWanted
from leveret.broker.backlog.source import NOTHING, TAKEN, Returned, Window, window_of
from leveret.broker.backlog.spill_record import SpillRecord
from leveret.broker.backlog.stored import StoredChunk, StoredChunks
from leveret.broker.queue.queue import Queue
from leveret.broker.values.expiration import deadline_of, own_expiry
from leveret.chunk import NEVER, ROW_BYTES, Chunk, ChunkBuilder
from leveret.limits import (
    CHUNK_RECORDS_MAX,
    MESSAGE_OVERHEAD_BYTES,
    PAGES_AHEAD,
    PAGES_AHEAD_BYTES,
)
from leveret.message import Message
from leveret.store.segments.segments import ChunkRef

#: Places before the first page that are worth moving the rest for.
_COMPACT_AT: Final = 1024


class Pages(PageOwner):
    """The pages of one queue."""

    def __init__(
        self, queue: Queue, ready: InMemory, stored: StoredChunks, owner: BacklogOwner
    ) -> None:
        self.queue = queue
        #: What waits outside of the pages.
        self.ready = ready
        self.stored = stored
        self.owner = owner
        #: True from the first page to the last one's end.
        self.active = False
        #: What is handed out next, while `active`.
        self.front = Window(1)
        self.items: list[Page] = []
        self.head: i64 = 0
        #: The messages that wait in pages; of them, those on the disk alone and their bytes.
        self.count: i64 = 0
        self.away_count: i64 = 0
        self.away_bytes: i64 = 0
        #: How often messages on the disk came back, where their chunks do not say it.
        self.counts: dict[i64, i64] = {}
        #: The bytes in the tail up to `tail_end`.
        self.tail_bytes: i64 = 0
        self.tail_end: i64 = 0
        #: The page that was read last to be looked at, and what it holds.
        self._peeked: Page | None = None
        self._peeked_items: dict[i64, Returned] = {}
        #: The messages that waited in the chunk read last and are damaged.
        self._lost: list[int] = []

    # -- filling ----------------------------------------------------------------------------------

    def bound(self) -> None:
        """Keep what waits in memory within the window: begin to page, or write what is enough."""
        ready = self.ready
        held = ready.size - self.away_bytes
        count = ready.window.count() + ready.returns.count() + self.memory_count()
        if held + count * MESSAGE_OVERHEAD_BYTES <= self.queue.turn.window_bytes:
            return
        if not self.active:
            self.begin()
        elif self._measure_tail():
            self._cut_tail()

    def settle(self) -> None:
        """Write the tail, so that a checkpoint finds it in chunks."""
        if self.active and self.ready.window.count() > 0:
            self._cut_tail()

    def begin(self) -> None:
        """Begin: what the window holds is the front, what comes from now on the tail."""
        ready = self.ready
        self.front = ready.window
        ready.window = Window(self.front.next_sequence)
        self.active = True
        self.tail_bytes = 0
        self.tail_end = ready.window.next_sequence

    def _measure_tail(self) -> bool:
        """Count what came to the tail; tell whether it is worth a page."""
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
        return size >= self.queue.turn.page_bytes or window.count() >= CHUNK_RECORDS_MAX

    def _cut_tail(self) -> None:
        """Cut the whole tail into pages, and have them written."""
        window = self.ready.window
        self.ready.window = Window(window.next_sequence)
        self.tail_bytes = 0
        self.tail_end = window.next_sequence
        for page in self._cut(window):
            self._spill(page)
            self._append(page)

    def _cut(self, window: Window) -> list[Page]:
        """Return what waits in a window as pages of the size of a chunk.

        No page reaches over a message that left and must survive: it lies in no chunk yet.
        """
        pages: list[Page] = []
        size: i64 = 0
        begin: i64 = window.head
        end: i64 = window.head
        items = window.items
        while end < len(items):
            size += items[end].size + ROW_BYTES
            end += 1
            full = size >= self.queue.turn.page_bytes or end - begin >= CHUNK_RECORDS_MAX
            if full or self._is_out(window, end) or end == len(items):
                page = self._slice(window, begin, end)
                if page.waiting > 0:
                    pages.append(page)
                begin = end
                size = 0
        return pages

    def _is_out(self, window: Window, place: i64) -> bool:
        """Tell whether what lay at a place of a window left it, and is to survive until it went."""
        if place >= len(window.items) or window.items[place] is not TAKEN:
            return False
        return self.owner.is_out(window.head_sequence + place - window.head)

    def _slice(self, window: Window, begin: i64, end: i64) -> Page:
        """Return a page of the places from `begin` to `end` of a window."""
        first: i64 = window.head_sequence + begin - window.head
        part = Window(first)
        part.fill(window.items[begin:end], first)
        page = Page(self, part.head_sequence, part.next_sequence - 1)
        page.window = part
        self._measure(page, part)
        return page

    def _measure(self, page: Page, window: Window) -> None:
        """Count what waits in a page's window."""
        size: i64 = 0
        bodies: i64 = 0
        for message in window.items[window.head :]:
            size += message.size
            bodies += len(message.body)
        page.size = size
        page.bodies = bodies
        page.waiting = window.count()
        page.start = window.head_sequence

    def _append(self, page: Page) -> None:
        self.items.append(page)
        self.count += page.waiting

    def _spill(self, page: Page) -> None:
        """Give a page's messages a place in a segment file."""
        queue = self.queue
        builder = ChunkBuilder(queue.queue_id, False, True)
        window = page.window
        assert window is not None
        gaps: list[i64] = []
        sequence: i64 = window.head_sequence
        for message in window.items[window.head :]:
            if message is not TAKEN:
                builder.add(sequence, message, 0, own_expiry(message))
            else:
                gaps.append(sequence)
            sequence += 1
        page.min_expiry = builder.min_expiry
        page.min_timestamp = builder.min_timestamp
        temporary = not queue.recorded or builder.persistent == 0
        count = builder.count
        ref = queue.turn.spill.add(builder, page, temporary)
        page.stored = self.stored.add(ref, count)
        page.stored.whole = True
        page.stored.written = False
        for gap in gaps:
            if gap < ref.last:
                self.stored.skip(gap, gap)

    def spilled(self, page: Page, ref: ChunkRef) -> None:
        """Let go of a page's memory, for its chunk is written, and journal where it lies."""
        queue = self.queue
        stored = page.stored
        if queue.deleted or stored is None or not stored.kept:
            return
        stored.written = True
        if not ref.temporary:
            queue.turn.journal.later(SpillRecord(queue, self.stored, stored, ref))
        if page.listed and (page.far or not self._is_near(page)):
            self._unload(page)

    def _is_near(self, page: Page) -> bool:
        """Tell whether a page is among those that are read ahead."""
        place: i64 = self.head
        end = self._ahead_end()
        while place < end:
            if self.items[place] is page:
                return True
            place += 1
        return False

    def _ahead_end(self) -> i64:
        """Return the place behind the pages that are read ahead."""
        end: i64 = self.head
        most: i64 = min(self.head + PAGES_AHEAD, len(self.items))
        size: i64 = 0
        while end < most and size < PAGES_AHEAD_BYTES:
            size += self.items[end].size
            end += 1
        return end

    def _unload(self, page: Page) -> None:
        """Let go of a page's memory."""
        window = page.window
        if window is None:
            return
        page.window = None
        page.start = window.head_sequence
        self._note_absent(page, window)
        if self.owner.expires():
            self._note_oldest(page, window)
        turn = self.queue.turn
        turn.held_bytes -= page.size
        turn.held_messages -= page.waiting
        self.away_count += page.waiting
        self.away_bytes += page.size
        self.note_deadline(page)

    def _note_absent(self, page: Page, window: Window) -> None:
        """Remember what left a page's window and is not gone: it must not come back with it."""
        page.absent = set()
        if window.gaps == 0:
            return
        gone = self.stored.gone
        sequence: i64 = window.head_sequence
        for message in window.items[window.head :]:
            if message is TAKEN and not gone.has(sequence):
                page.absent.add(sequence)
            sequence += 1

    def _note_oldest(self, page: Page, window: Window) -> None:
        """Know the deadlines of what is left: those of the chunk may be of what expired."""
        page.min_expiry = NEVER
        page.min_timestamp = NEVER
        for message in window.items[window.head :]:
            if message is not TAKEN:
                page.min_expiry = min(page.min_expiry, own_expiry(message))
                page.min_timestamp = min(page.min_timestamp, message.timestamp_ms)

    def note_deadline(self, page: Page) -> None:
        """Have a page that is on the disk read when a message in it may expire."""
        deadline = page.min_expiry
        ttl = self.queue.settings.message_ttl_ms
        if ttl >= 0 and page.min_timestamp != NEVER:
            deadline = min(deadline, page.min_timestamp + ttl)
        if deadline != NEVER:
            self.owner.note_page_deadline(deadline, page.first)

    def fetch(self, first: i64) -> bool:
        """Have the page that begins at `first` read; False where it is in memory or gone."""
        page = self.page_at(first)
        if page is None or page.window is not None:
            return False
        self.want(page)
        return True

    # -- where the node's memory fills ------------------------------------------------------------

    def evict(self) -> None:
        """Let all that waits in memory go to the disk; nothing of it came back before."""
        if not self.active:
            self.begin()
        self.settle()
        front = self.front
        cut = self._cut_front(front)
        self.front = Window(front.next_sequence)
        self.items[self.head : self.head] = cut
        for page in self.items[self.head :]:
            page.far = True
            stored = page.stored
            if stored is not None and stored.written:
                self._unload(page)

    def _cut_front(self, front: Window) -> list[Page]:
        """Return what waits in the front as pages; what no chunk has is written to new ones."""
        stored_chunks = self.stored
        page_bytes = self.queue.turn.page_bytes
        cut: list[Page] = []
        begin: i64 = front.head
        end: i64 = front.head
        size: i64 = 0
        items = front.items
        first: i64 = front.head_sequence - front.head
        stored = stored_chunks.find(front.head_sequence)
        while end < len(items):
            size += items[end].size + ROW_BYTES
            end += 1
            following = stored_chunks.find(first + end) if end < len(items) else None
            full = size >= page_bytes or end - begin >= CHUNK_RECORDS_MAX
            full = full or self._is_out(front, end)
            if end == len(items) or following is not stored or (full and stored is None):
                page = self._front_page(front, begin, end, stored)
                if page is not None:
                    cut.append(page)
                stored = following
                begin = end
                size = 0
        return cut

    def _front_page(
        self, front: Window, begin: i64, end: i64, stored: StoredChunk | None
    ) -> Page | None:
        """Return a part of the front as a page, or None if nothing in it waits."""
        if stored is not None and not stored.whole:
            self._return_transient(front, begin, end)
        page = self._slice(front, begin, end)
        if page.waiting == 0:
            return None
        if stored is None:
            self._spill(page)
        else:
            page.stored = stored
            page.restored = stored.restored
            page.min_expiry = stored.ref.min_expiry
            page.min_timestamp = stored.ref.min_timestamp
        self.count += page.waiting
        return page

    def _return_transient(self, front: Window, begin: i64, end: i64) -> None:
        """Keep in memory what the chunk of a checkpoint has not, for it does not survive."""
        first: i64 = front.head_sequence - front.head
        while begin < end:
            message = front.items[begin]
            if message is not TAKEN and not message.persistent:
                front.items[begin] = TAKEN
                self.ready.returns.put(Returned(first + begin, message, 0))
            begin += 1

    # -- emptying ---------------------------------------------------------------------------------

    def first(self, at_once: bool) -> i64:
        """Return the sequence of the message that is next, or NOTHING.

        Where it lies on the disk it is read: at once, or as an effect, and NOTHING until it came.
        """
        back = self.ready.returns.first()
        front = self.front.first()
        while front == NOTHING:
            if self.head >= len(self.items):
                self._end()
                return self.ready.first_in_memory()
            page = self.items[self.head]
            if back != NOTHING and back < page.start:
                return back
            if page.window is None and page.waiting > 0:
                if not at_once:
                    self.want(page)
                    return NOTHING
                self._load_now(page)
                back = self.ready.returns.first()
            self._enter(page)
            front = self.front.first()
        return front if back == NOTHING or front < back else back

    def _end(self) -> None:
        """Stop: nothing is left but the tail."""
        self.active = False
        self.items.clear()
        self.head = 0
        self.front = Window(1)

    def _enter(self, page: Page) -> None:
        """Let the first page be the front."""
        page.listed = False
        self.count -= page.waiting
        if page.window is not None:
            self.front = page.window
        self.head += 1
        if self.head >= _COMPACT_AT and self.head * 2 >= len(self.items):
            del self.items[: self.head]
            self.head = 0
        place: i64 = self.head
        end = self._ahead_end()
        while place < end:
            ahead = self.items[place]
            if ahead.window is None and ahead.waiting > 0:
                self.want(ahead)
            place += 1

    def awaits(self, level: i64, sequence: i64, at_once: bool) -> bool:
        """Tell whether the first message of a level lies on the disk; have it read.

        `sequence` is that of the first in memory, or NOTHING.  Only the pages of a priority queue
        know levels.
        """
        return False

    def want(self, page: Page) -> None:
        """Have a page read, once."""
        stored = page.stored
        if not page.wanted and stored is not None:
            page.wanted = True
            self.queue.turn.wanted.append(PageWanted(page, stored.ref))

    def _load_now(self, page: Page) -> None:
        """Read a page without waiting."""
        stored = page.stored
        assert stored is not None
        self.load(page, self.queue.turn.reader.read(stored.ref))

    def load(self, page: Page, data: bytes) -> None:
        """Take a page into memory from its chunk's bytes."""
        queue = self.queue
        found = self._decode(page, data)
        if self._peeked is page:
            self._peeked = None
            self._peeked_items = {}
        self.away_count -= page.waiting
        self.away_bytes -= page.size
        self.count -= page.waiting
        dense = page.last - page.start < 4 * len(found) + 64
        size: i64 = 0
        bodies: i64 = 0
        items: list[Message] = []
        for item in found:
            if self.counts:
                self.counts.pop(item.sequence, None)
            message = item.message
            size += message.size
            bodies += len(message.body)
            if item.count > 0 or not dense:
                # It waits among those that came back from here on.
                self.ready.returns.put(item)
                continue
            while page.start + len(items) < item.sequence:
                items.append(TAKEN)
            items.append(message)
        turn = queue.turn
        turn.held_bytes += size
        turn.held_messages += len(found)
        if len(found) < page.waiting:
            self.ready.size -= page.size - size
            self.ready.bodies -= page.bodies - bodies
            self._forget_lost(page, found)
        window = Window(page.start)
        window.fill(items, page.start)
        page.window = window
        self._measure(page, window)
        self.count += page.waiting
        if self.owner.expires() or page.min_expiry != NEVER:
            ttl = queue.settings.message_ttl_ms
            for item in found:
                self.owner.note_deadline(deadline_of(item.message, ttl), item.sequence)
        self.owner.arrived()

    def _forget_lost(self, page: Page, found: list[Returned]) -> None:
        """Keep nothing in the chunk for messages that cannot be read: they are in quarantine."""
        stored = page.stored
        assert stored is not None
        if not found:
            self.stored.remove(stored)
            return
        for sequence in self._lost:
            self.stored.forget(sequence)

    def _open(self, page: Page, data: bytes) -> Chunk | None:
        """Return a page's chunk; None where it is damaged, which is reported once."""
        stored = page.stored
        assert stored is not None
        chunk = open_chunk(self.queue, stored.ref, data, page.waiting, not page.reported)
        if chunk is None:
            page.reported = True
        return chunk

    def _report(self, page: Page, data: bytes, broken: list[int]) -> None:
        """Report once the messages of a page's chunk that do not check."""
        stored = page.stored
        if broken and not page.reported and stored is not None:
            page.reported = True
            report_messages(self.queue, stored.ref, data, broken)

    def _decode(self, page: Page, data: bytes) -> list[Returned]:
        """Return the messages that wait in a page; damage is left out, and reported once."""
        found: list[Returned] = []
        self._lost = []
        chunk = self._open(page, data)
        if chunk is not None:
            self._decode_rows(page, chunk, set(chunk.damaged()), found)
            self._report(page, data, self._lost)
        return found

    def _decode_rows(
        self, page: Page, chunk: Chunk, broken: set[int], found: list[Returned]
    ) -> None:
        gone = self.stored.gone
        any_gone = gone.count(chunk.first, chunk.last) > 0
        index: i64 = chunk.find(page.start)
        while index < chunk.count:
            sequence = chunk.sequence(index)
            if sequence > page.last:
                break
            index += 1
            if (any_gone and gone.has(sequence)) or sequence in page.absent:
                continue
            if page.restored and not chunk.persistent(index - 1):
                continue
            if broken and int(sequence) in broken:
                self._lost.append(int(sequence))
                continue
            count = chunk.delivery_count(index - 1)
            if self.counts:
                count = self.counts.get(sequence, count)
            found.append(Returned(sequence, chunk.message(index - 1), count))

    # -- single messages --------------------------------------------------------------------------

    def page_at(self, sequence: i64) -> Page | None:
        """Return the page in whose range a sequence lies, or None."""
        items = self.items
        low: i64 = self.head
        high: i64 = len(items)
        while low < high:
            middle: i64 = (low + high) >> 1
            if items[middle].last < sequence:
                low = middle + 1
            else:
                high = middle
        if low < len(items) and items[low].first <= sequence:
            return items[low]
        return None

    def has(self, sequence: i64) -> bool:
        """Tell whether a message with this sequence is in the front or in a page in memory."""
        if self.front.has(sequence):
            return True
        page = self.page_at(sequence)
        window = page.window if page is not None else None
        return window is not None and window.has(sequence)

    def remove(self, sequence: i64) -> Returned | None:
        """Take out a message that is in memory; None where it is not."""
        if self.front.has(sequence):
            return Returned(sequence, self.front.remove(sequence), 0)
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
        return Returned(sequence, message, 0)

    def look(self, sequence: i64) -> Returned | None:
        """Return a message that waits, without taking it; None where it does not wait."""
        if self.front.has(sequence):
            return Returned(sequence, self.front.at(sequence), 0)
        page = self.page_at(sequence)
        if page is None:
            return None
        window = page.window
        if window is not None:
            return Returned(sequence, window.at(sequence), 0) if window.has(sequence) else None
        if self._peeked is not page:
            self._peek(page)
        return self._peeked_items.get(sequence)

    def _peek(self, page: Page) -> None:
        """Read a page to look at it."""
        stored = page.stored
        assert stored is not None
        found = self._decode(page, self.queue.turn.reader.read(stored.ref))
        self._peeked = page
        self._peeked_items = {item.sequence: item for item in found}

    def waiting(self) -> list[Returned]:
        """Return what waits in memory, in the order of the sequences."""
        found = self.front.waiting()
        for page in self.items[self.head :]:
            window = page.window
            if window is not None:
                found += window.waiting()
        return found

    def memory_count(self) -> i64:
        """Return how many messages wait in memory, the tail apart."""
        return self.front.count() + self.count - self.away_count

    def first_sequence(self) -> i64:
        """Return the lowest sequence here, or NOTHING."""
        front = self.front.first()
        if front != NOTHING:
            return front
        if self.head < len(self.items):
            return self.items[self.head].start
        return NOTHING

    def away(self) -> list[Page]:
        """Return the pages that are on the disk alone."""
        return [page for page in self.items[self.head :] if page.window is None]

    def let_go(self) -> None:
        """Forget what waits on the disk, page by page, in the journal too."""
        queue = self.queue
        for page in self.away():
            stored = page.stored
            if stored is None:
                continue
            first: i64 = page.start
            for absent in [*sorted(page.absent), page.last + 1]:
                if queue.recorded and first < absent:
                    queue.turn.journal.ack(queue.queue_id, first, absent - 1)
                if stored.live > page.waiting:
                    self.stored.gone.add(first, absent - 1)
                first = absent + 1
            self.stored.forget_count(stored, page.waiting)

    # -- all --------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Drop all."""
        for page in self.items[self.head :]:
            page.listed = False
        self._end()
        self.count = 0
        self.away_count = 0
        self.away_bytes = 0
        self.counts = {}
        self._peeked = None
        self._peeked_items = {}

    def fill_front(self, returned: list[Returned]) -> list[Returned]:
        """Take those of the recovered messages that come before the pages; return the others."""
        count: i64 = 0
        first = self.items[self.head].first
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
        """Start with pages on the disk, in the order of the sequences."""
        self.counts = counts
        for page in restored:
            self.ready.size += page.size
            self.ready.bodies += page.bodies
            self.note_deadline(page)
            self._append(page)
            self.away_count += page.waiting
            self.away_bytes += page.size
        if restored:
            self.active = True
