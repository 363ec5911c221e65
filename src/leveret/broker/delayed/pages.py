"""The delayed messages of one exchange that are on disk, and the times to load them.

When the memory of a store is full, its fresh messages are written to chunks, in the order of their
sequences whatever their delays.  Once a chunk is written, its messages that are not due soon are
dropped from memory.  The chunk is then a *page*, of which only a few numbers stay in memory.  A
page is read when its first message is due soon.  Only the messages due soon are loaded, and the
others stay on disk.  So a message may be in memory and in a page at once, but is delivered once.

The chunks of a store contain the due times of their messages in the column of expiries.  So after a
restart, the chunk's reference contains the time to read it, and no chunk is read earlier.  Chunks
of earlier versions have no due times.  They begin below `from_sequence`, and are read soon after a
start.

Invariants: `next_due` is not later than the due time of any message that is only in the page;
`away` is the number of such messages; a page without a chunk is forgotten.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.delay import due_ms
from leveret.broker.backlog.damage import chunk_if_true, open_chunk, report_messages
from leveret.broker.backlog.stored import StoredChunk
from leveret.broker.delayed.memory import DELAYED_OVERHEAD_BYTES, Delayed
from leveret.broker.scheduler.effects import ChunkWanted
from leveret.chunk import NEVER, Chunk, ChunkBuilder
from leveret.limits import PAGES_AHEAD, PAGES_AHEAD_BYTES, SPILL_BATCH_BYTES
from leveret.message import Message
from leveret.store.records.fields import number
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import SpillOwner

if TYPE_CHECKING:
    from leveret.broker.delayed.delayed import DelayedMessages

#: The time before its due time at which a delayed message is read from disk.  A chunk of messages
#: that are due one after the other is read again each time half of this time has passed.
DELAYED_NEAR_MS: Final = 60_000

#: The memory of a chunk of delayed messages on disk.
DELAYED_PAGE_BYTES: Final = 1000


#: The field of a store's record with the sequence from which chunks contain due times.
_DUES_FROM: Final = "dues_from"

#: The heap size from which stale entries are removed.
_SORT_OUT_AT: Final = 64

#: The maximum number of messages in a page, because a page is written and loaded in one call.  A
#: chunk of tiny messages could have eight times as many.
PAGE_MESSAGES_MAX: Final = 512

#: The cost of writing one message of a page.
_CUT: Final = 2


@final
class DelayedPage(SpillOwner):
    """A chunk of delayed messages."""

    def __init__(self, pages: DelayedPages) -> None:
        self.pages = pages
        self.stored: StoredChunk | None = None
        #: The sequences of its messages and their memory, until the page is written.
        self.rows: list[i64] = []
        self.leaving: i64 = 0
        #: The messages that are only on disk, and their bytes.
        self.away: i64 = 0
        self.away_bytes: i64 = 0
        self.next_due: i64 = NEVER
        self.loading = False
        #: False for a chunk of an earlier version, which does not contain the due times.
        self.says_due = True

    def spilled(self, ref: ChunkRef) -> None:
        """Tell the pages that the chunk is written."""
        self.pages.written(self, ref)

    def note_away(self, size: i64, due: i64) -> None:
        """Count a message of `size` bytes that is only on disk."""
        self.away += 1
        self.away_bytes += size
        self.next_due = min(self.next_due, due)


@final
class DelayedWanted(ChunkWanted):
    """A request to read a page."""

    def __init__(self, owner: i64, page: DelayedPage, ref: ChunkRef) -> None:
        super().__init__(owner, ref, -1)
        self.page = page

    def arrived(self, data: bytes) -> None:
        """Load the messages of the page that are due soon."""
        self.page.pages.load(self.page, self.ref, data)


@final
class DelayedPages:
    """The pages of one store."""

    def __init__(self, store: DelayedMessages) -> None:
        self._core: Final = store.core
        #: The store, or None once it is deleted.
        self._queue: DelayedMessages | None = store
        self.memory: Final = store.memory
        self.stored: Final = store.stored
        #: The pages by the `key` of their chunks.
        self.by_key: dict[i64, DelayedPage] = {}
        #: The messages that are only on disk, and their bytes.
        self.away: i64 = 0
        self.away_bytes: i64 = 0
        #: Chunks with a lower first sequence do not contain due times.
        self.from_sequence: i64 = 1
        #: The time before its due time at which a message is loaded; shorter if memory is full.
        self.near_ms: i64 = DELAYED_NEAR_MS
        self._heap: list[tuple[int, int]] = []
        self._loading: list[DelayedPage] = []
        #: True while a task writes pages.
        self._cuts = False
        #: True while a task drops messages from memory, and the due time after which it drops them.
        self._unloads = False
        self._unload_until: i64 = 0

    @property
    def queue(self) -> DelayedMessages:
        """Return the store, which must not be deleted."""
        queue = self._queue
        assert queue is not None, "a deleted store has no pages"
        return queue

    def untie(self) -> None:
        """Drop the reference to the deleted store.  All pages have been forgotten."""
        self._queue = None

    def _arrived(self) -> None:
        """Make the store continue, because messages may be due or have to be written."""
        if self._queue is not None:
            self._queue.go_on()

    # -- writing ----------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Return whether messages that are due soon may stay in memory."""
        window = self._core.memory.window_bytes
        return window < 0 or self.memory.taken() <= window

    def bound(self) -> None:
        """Write pages of fresh messages if the store takes more memory than the window."""
        if not self._cuts and self._must_cut():
            self._cuts = True
            self._core.scheduler.start_later(self._cut_pages())

    def _must_cut(self) -> bool:
        """Return whether a page must be written, and can be written now."""
        memory = self.memory
        if self.has_room() or self._core.spill.unwritten_bytes >= SPILL_BATCH_BYTES:
            return False
        fills = memory.fresh_bytes >= self._core.memory.page_bytes
        return fills or len(memory.fresh) >= PAGE_MESSAGES_MAX

    def _cut_pages(self) -> Iterator[int]:
        while self._queue is not None and self._must_cut():
            self.cut()
            yield 1
        self._cuts = False

    def cut(self) -> None:
        """Write the first fresh messages, which must exist, to a chunk."""
        queue = self.queue
        memory = self.memory
        builder = ChunkBuilder(queue.queue_id, True, True)
        page = DelayedPage(self)
        gaps: list[tuple[i64, i64]] = []
        size: i64 = 0
        last: i64 = -1
        for sequence, delayed in memory.fresh.items():
            full = size >= queue.core.memory.page_bytes or builder.count >= PAGE_MESSAGES_MAX
            if last >= 0 and (full or self.stored.parts(last, sequence)):
                break
            if last >= 0 and sequence > last + 1:
                gaps.append((last + 1, sequence - 1))
            builder.add(sequence, delayed.message, 0, delayed.due_ms)
            page.rows.append(sequence)
            size += delayed.message.size
            last = sequence
        for sequence in page.rows:
            memory.written(sequence)
        page.leaving = size + len(page.rows) * DELAYED_OVERHEAD_BYTES
        memory.leaving += page.leaving
        queue.scheduler.spent += _CUT * len(page.rows)
        self._keep(page, self.stored.write(builder, page, not queue.recorded))
        for first, end in gaps:
            self.stored.gone.add(first, end)

    def _keep(self, page: DelayedPage, stored: StoredChunk) -> None:
        page.stored = stored
        stored.whole = True
        self.by_key[stored.key] = page
        self._core.memory.hold_all(0, DELAYED_PAGE_BYTES)

    def written(self, page: DelayedPage, ref: ChunkRef) -> None:
        """Journal a written chunk, and drop its messages that are not due soon from memory."""
        queue = self._queue
        rows, page.rows = page.rows, []
        self.memory.leaving -= page.leaving
        if queue is None or not self.stored.written(queue, page.stored, ref):
            return
        until = queue.core.now_ms + self.near_ms
        for sequence in rows:
            delayed = self.memory.loaded.get(sequence)
            if delayed is not None and (delayed.due_ms > until or not self.has_room()):
                self._unload(page, sequence, delayed)
        queue.scheduler.spent += len(rows)
        self._arrived()

    def _unload(self, page: DelayedPage, sequence: i64, delayed: Delayed) -> None:
        """Drop a message from memory, because its page contains it."""
        self.memory.remove(sequence)
        size = delayed.message.size
        page.note_away(size, delayed.due_ms)
        self.away += 1
        self.away_bytes += size
        if page.next_due == delayed.due_ms:
            self._list(page)

    def unload_after(self, until_ms: i64) -> None:
        """Drop messages from memory that have a page and are due later than `until_ms`."""
        if self._unloads:
            self._unload_until = min(self._unload_until, until_ms)
            return
        self._unloads = True
        self._unload_until = until_ms
        self._core.scheduler.start_later(self._unload_loaded())

    def _unload_loaded(self) -> Iterator[int]:
        """Drop the messages that are loaded now and due after `_unload_until`."""
        loaded = self.memory.loaded
        left = list(loaded.items())
        while left and self._queue is not None:
            sequence, delayed = left.pop()
            if delayed.due_ms > self._unload_until and loaded.get(sequence) is delayed:
                page = self._page_of(sequence)
                stored = page.stored if page is not None else None
                if page is not None and stored is not None and self.stored.is_durable(stored):
                    self._unload(page, sequence, delayed)
            yield 1
        self._unloads = False

    # -- reading ----------------------------------------------------------------------------------

    def _page_of(self, sequence: i64) -> DelayedPage | None:
        stored = self.stored.find(sequence)
        return None if stored is None else self.by_key.get(stored.key)

    def _list(self, page: DelayedPage) -> None:
        """Add the time to read a page to the heap."""
        stored = page.stored
        if stored is None or page.away == 0 or page.loading:
            return
        heap = self._heap
        heapq.heappush(heap, (int(page.next_due), int(stored.key)))
        size: i64 = len(heap)
        if size > _SORT_OUT_AT and size > 2 * len(self.by_key):
            self._heap = list({entry for entry in heap if self._counts(entry)})
            heapq.heapify(self._heap)

    def _counts(self, entry: tuple[int, int]) -> bool:
        """Return whether an entry of the heap is current, for a page on disk."""
        page = self.by_key.get(entry[1])
        return page is not None and page.away > 0 and not page.loading and page.next_due == entry[0]

    def first(self) -> DelayedPage | None:
        """Return the page to read next, or None."""
        heap = self._heap
        while heap:
            if self._counts(heap[0]):
                return self.by_key[heap[0][1]]
            heapq.heappop(heap)
        return None

    def precedes(self, due: i64, sequence: i64) -> bool:
        """Return whether a page may have a message that is due before the given one.

        Such a page is being read, or will be read.
        """
        first = self.first()
        if first is not None and _is_before(first, due, sequence):
            return True
        for page in self._loading:
            if _is_before(page, due, sequence):
                return True
        return False

    def deadline_ms(self) -> i64:
        """Return when to read the next page; NEVER if there is none, or too many are being read."""
        page = self.first()
        if page is None or self._reads_enough():
            return NEVER
        if self.has_room():
            return page.next_due - self.near_ms // 2
        first = self.memory.first()
        if first is not None and not _is_before(page, first[0], first[1]):
            # A message in memory is due before those of the page, and will make room.
            return NEVER
        return page.next_due

    def fetch(self) -> None:
        """Request the pages that have to be read by now."""
        now_ms = self._core.now_ms
        while self.deadline_ms() <= now_ms:
            page = self.first()
            if page is None:
                return
            page.loading = True
            self._loading.append(page)
            self._request(page)

    def _reads_enough(self) -> bool:
        size: i64 = 0
        for page in self._loading:
            size += page.stored.ref.size if page.stored is not None else 0
        return len(self._loading) >= PAGES_AHEAD or size >= PAGES_AHEAD_BYTES

    def _request(self, page: DelayedPage) -> None:
        stored = page.stored
        assert stored is not None
        self._core.wanted.append(DelayedWanted(self.queue.queue_id, page, stored.ref))

    def load(self, page: DelayedPage, ref: ChunkRef, data: bytes) -> None:
        """Load the messages of a page that are due soon, unless the page was forgotten."""
        stored = page.stored
        if self._queue is None:
            return
        if stored is None or not stored.kept:
            if page.loading:
                self._loading.remove(page)
                page.loading = False
                self._arrived()
            return
        if stored.ref is not ref:
            # The chunk was moved since the request, and may be gone from its old place.
            self._request(page)
            return
        self._loading.remove(page)
        page.loading = False
        self._judge_room()
        chunk = open_chunk(self.queue, ref, data, page.away)
        self._count_off(page)
        if chunk is None:
            self._lose(page, stored)
        else:
            self._load_rows(page, chunk)
            self.away += page.away
            self.away_bytes += page.away_bytes
            self._list(page)
        self._arrived()

    def _judge_room(self) -> None:
        """Halve `near_ms` if memory is full, and double it if memory is mostly empty."""
        core = self._core
        if not self.has_room():
            self.near_ms //= 2
            self.unload_after(core.now_ms + self.near_ms)
        elif self.memory.taken() * 4 <= core.memory.window_bytes or core.memory.window_bytes < 0:
            self.near_ms = min(2 * self.near_ms + 1, DELAYED_NEAR_MS)

    def _count_off(self, page: DelayedPage) -> None:
        """Count the messages of a page as no longer only on disk."""
        self.away -= page.away
        self.away_bytes -= page.away_bytes
        page.away = 0
        page.away_bytes = 0
        page.next_due = NEVER

    def _load_rows(self, page: DelayedPage, chunk: Chunk) -> None:
        """Load the messages that are due soon, and count the others."""
        core = self._core
        core.scheduler.spent += chunk.count
        gone = self.stored.gone
        broken = set(chunk.damaged())
        lost: list[int] = []
        until = core.now_ms + self.near_ms
        for index in range(chunk.count):
            sequence = chunk.sequence(index)
            if gone.has(sequence) or sequence in self.memory.loaded:
                continue
            if broken and int(sequence) in broken:
                lost.append(int(sequence))
                continue
            message: Message | None = None
            due = chunk.expiry_ms(index)
            if not page.says_due:
                message = chunk.message(index)
                due = due_ms(message)
            if due <= until:
                message = chunk.message(index) if message is None else message
                self.memory.add_loaded(sequence, Delayed(message, due))
            else:
                properties, body = chunk.sizes(index)
                page.note_away(properties + body, due)
        if lost and page.stored is not None:
            report_messages(self.queue, page.stored.ref, chunk.data, lost)
            for broken_one in lost:
                self.forget(broken_one)

    def _lose(self, page: DelayedPage, stored: StoredChunk) -> None:
        """Forget a damaged chunk, and mark its messages in memory to be written again."""
        ref = stored.ref
        loaded = self.memory.loaded
        self.memory.unwritten([at for at in loaded if ref.first <= at <= ref.last])
        self.stored.remove(stored)
        self._drop(stored)

    # -- single messages --------------------------------------------------------------------------

    def look(self, sequence: i64) -> Delayed | None:
        """Read and return a message that is only on disk, or return None."""
        page = self._page_of(sequence)
        if page is None or page.away == 0 or self.stored.gone.has(sequence):
            return None
        found = self.rows(page, sequence, 1)
        return found[0][1] if found and found[0][0] == sequence else None

    def rows(self, page: DelayedPage, start: i64, count: i64) -> list[tuple[i64, Delayed]]:
        """Return up to `count` messages of a page from `start` on, after reading it if needed."""
        found: list[tuple[i64, Delayed]] = []
        stored = page.stored
        assert stored is not None
        ref = stored.ref
        memory = self.memory.loaded
        if page.away == 0:
            self._core.scheduler.spent += len(memory) // 4
            here = sorted(at for at in memory if start <= at and ref.first <= at <= ref.last)
            return [(at, memory[at]) for at in here[:count]]
        data = self._core.reader.read(self.queue.queue_id, ref, -1)
        chunk = chunk_if_true(self.queue.queue_id, ref, data)
        if chunk is None:
            return found
        broken = set(chunk.damaged())
        index: i64 = chunk.find(start)
        self._core.scheduler.spent += chunk.count - index
        while index < chunk.count and len(found) < count:
            sequence = chunk.sequence(index)
            index += 1
            if self.stored.gone.has(sequence) or int(sequence) in broken:
                continue
            delayed = memory.get(sequence)
            if delayed is None:
                message = chunk.message(index - 1)
                says = page.says_due
                due = chunk.expiry_ms(index - 1) if says else due_ms(message)
                delayed = Delayed(message, due)
            found.append((sequence, delayed))
        return found

    def rows_from(self, start: i64, count: i64) -> tuple[list[tuple[i64, Delayed]], i64]:
        """Return up to `count` messages of the store from the id `start` on, and the next `start`.

        The messages are in the order of their ids.  The next `start` is 0 at the end.  Pages are
        read synchronously.
        """
        while start <= self.stored.through:
            stored = self.stored.next_from(start)
            page = None if stored is None else self.by_key.get(stored.key)
            if stored is None or page is None:
                start = self.stored.through + 1
                continue
            found = self.rows(page, start, count)
            start = found[-1][0] + 1 if len(found) == count else stored.ref.last + 1
            if found:
                return found, start
        fresh = self.memory.fresh
        self._core.scheduler.spent += len(fresh) // 4
        rest = [sequence for sequence in fresh if sequence >= start]
        found = [(sequence, fresh[sequence]) for sequence in rest[:count]]
        return found, found[-1][0] + 1 if len(rest) > len(found) else 0

    def forget(self, sequence: i64) -> None:
        """Forget a message that left, if a chunk contains it."""
        if sequence > self.stored.through:
            return
        stored = self.stored.find(sequence)
        if stored is None:
            return
        self.stored.forget(sequence)
        if not stored.kept:
            self._drop(stored)

    def count_away(self, sequence: i64, size: i64) -> None:
        """Stop counting a message that was only on disk, because it leaves."""
        page = self._page_of(sequence)
        if page is not None:
            size = min(size, page.away_bytes)
            page.away -= 1
            page.away_bytes -= size
            self.away -= 1
            self.away_bytes -= size

    def _drop(self, stored: StoredChunk) -> None:
        """Forget the page of a chunk that is no longer kept."""
        page = self.by_key.pop(stored.key, None)
        if page is not None:
            self._count_off(page)
            self._core.memory.release_all(0, DELAYED_PAGE_BYTES)

    # -- all --------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget all pages.  The store drops their chunks."""
        self._core.memory.release_all(0, len(self.by_key) * DELAYED_PAGE_BYTES)
        for page in self._loading:
            page.loading = False
        self.by_key = {}
        self.away = 0
        self.away_bytes = 0
        self._heap = []
        self._loading = []

    def definition(self) -> dict[str, object]:
        """Return the fields about pages in the record of the store."""
        return {_DUES_FROM: int(self.from_sequence)}

    def restore_definition(self, definition: dict[str, object], next_sequence: i64) -> None:
        """Read from the store's record which chunks contain due times.

        Versions that do not record this have written no such chunks.
        """
        known = _DUES_FROM in definition
        self.from_sequence = number(definition, _DUES_FROM) if known else next_sequence

    def restore(self, ref: ChunkRef, gone: i64) -> StoredChunk:
        """Add and return a chunk from before a restart, without `gone` of its sequences."""
        page = DelayedPage(self)
        live: i64 = ref.last - ref.first + 1 - gone
        page.says_due = ref.first >= self.from_sequence and ref.min_expiry != NEVER
        page.next_due = ref.min_expiry if page.says_due else ref.min_timestamp
        page.away = live
        # This is an estimate, because the sizes of the absent messages are not known before the
        # page is read.
        page.away_bytes = ref.persistent_bytes * live // max(ref.count, 1)
        stored = self.stored.add(ref, live)
        stored.restored = True
        self._keep(page, stored)
        self.away += page.away
        self.away_bytes += page.away_bytes
        self._list(page)
        return stored


def _is_before(page: DelayedPage, due: i64, sequence: i64) -> bool:
    """Return whether a message of a page may be due before the given one."""
    stored = page.stored
    if stored is None or page.away == 0 or page.next_due > due:
        return False
    return page.next_due < due or stored.ref.first < sequence
