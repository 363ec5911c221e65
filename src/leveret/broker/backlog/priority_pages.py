"""The messages of a deep priority queue that are on disk.

When a queue's memory is full, the messages in memory stay there.  Later messages form the *tail*,
which is cut into pages.  A page is a chunk of a run of sequences, with all levels.  Once the chunk
is written, its waiting messages are dropped from memory.

The messages of one level of a page are loaded together: when that level is the highest with waiting
messages, and no earlier message of it is waiting in memory.  So a chunk is read once for each of
its levels, or only once if memory has room for all of it.  When a message of a page may expire, the
whole page is read.

Invariants: a chunk has a row for each live message in its range that must survive, delivered or
not; the waiting messages of a page on disk are its rows of `levels` that are not in `skipped` and
not gone, and its chunk is kept while it has any.  Pages are in the order of their sequences, do not
overlap, and are below the tail.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.expiration import deadline_of, own_expiry
from leveret.broker.backlog.fifo_pages import FifoPages
from leveret.broker.backlog.owner import BacklogOwner
from leveret.broker.backlog.page import Page, place_of
from leveret.broker.backlog.pages import Pages
from leveret.broker.backlog.priorities import PriorityReady
from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.backlog.window import RequeuedMessage, sequence_of
from leveret.broker.consumers.consumer import Source
from leveret.broker.scheduler.costs import MESSAGES_PER_COST
from leveret.chunk import NEVER, ROW_BYTES, Chunk, ChunkBuilder
from leveret.limits import (
    CHUNK_RECORDS_MAX,
    MESSAGE_OVERHEAD_BYTES,
    PAGES_AHEAD,
    PAGES_AHEAD_BYTES,
)
from leveret.store.records.levels import highest_level, level_in, level_of, stored_level
from leveret.store.records.ranges import RangeSet
from leveret.store.segments.segments import ChunkRef

#: All levels, as a set of bits.
_ALL: Final = (1 << 256) - 1

#: If memory has fewer messages of a level than this, the level's next page is read ahead.
_AHEAD_BELOW: Final = 1024


#: The number of pages searched for pages to read ahead.
_AHEAD_PLACES: Final = 16


def level_bit(level: int) -> int:
    """Return the set of one level as an `int`, because 256 levels do not fit into an i64."""
    return 1 << level


def has_level(levels: int, level: int) -> bool:
    """Return whether a set of levels contains a level."""
    return levels >> level & 1 == 1


@final
class PriorityPage(Page):
    """A run of messages: the rows for its chunk, and once it is written, the messages on disk."""

    def __init__(self, owner: Pages, first: i64, last: i64, level_set: i64) -> None:
        super().__init__(owner, first, last)
        self._level_set: i64 = level_set
        #: The messages for the chunk, until it is written.
        self.rows: list[RequeuedMessage] = []
        #: The levels of the messages waiting on disk, and the requested levels, as sets of bits.
        self.levels: int = 0
        self.asked: int = 0
        #: Rows of `levels` that are not part of the page: they were delivered, or are in memory.
        self.skipped = RangeSet()

    def note_level(self, level: i64) -> None:
        """Add the level of a waiting message, from its row."""
        self.levels |= level_bit(level_in(level, self._level_set))

    def take_over(self, page: Page) -> None:
        """Take over the messages of a page on disk with the same chunk."""
        self.stored = page.stored
        self.waiting = page.waiting
        self.size = page.size
        self.bodies = page.bodies
        self.min_expiry = page.min_expiry
        self.min_timestamp = page.min_timestamp
        self.restored = page.restored
        self.reported = page.reported
        for sequence in page.absent:
            self.skipped.add(sequence, sequence)

    def skip(self, sequences: list[tuple[int, bool]]) -> None:
        """Set `skipped` from the rows of `levels`: each sequence, and whether to skip it."""
        self.skipped = RangeSet()
        before = -1
        for sequence, skipped in sequences:
            if skipped:
                # The sequences in between have no row, or a row of another level.
                self.skipped.add(before if before >= 0 else sequence, sequence)
            before = sequence if skipped else -1


@final
class PriorityPages(Pages):
    """The pages of one priority queue."""

    def __init__(
        self, queue: Source, ready: PriorityReady, stored: StoredChunks, owner: BacklogOwner
    ) -> None:
        super().__init__(queue, ready, stored, owner)
        self.counts_rows = True
        self.priorities = ready
        #: The number of pages with a chunk that is not written yet.
        self.unwritten: i64 = 0
        #: The first page with messages of each level.
        self.lowest: dict[i64, PriorityPage] = {}

    def levels(self) -> i64:
        """Return the queue's level set."""
        return self.priorities.level_set

    def _level_in(self, chunk: Chunk, index: i64) -> i64:
        """Return the level of a row of a chunk."""
        return level_in(chunk.priority(index), self.priorities.level_set)

    # -- filling ----------------------------------------------------------------------------------

    def _held(self) -> i64:
        """Return the memory of the waiting messages as the window counts it."""
        held = self.ready.size - self.away_bytes
        return held + self.priorities.at.count * MESSAGE_OVERHEAD_BYTES

    def bound(self) -> None:
        """Begin paging, or write a page, if waiting messages take more memory than the window."""
        ready = self.priorities
        core = self.queue.core
        if self._held() <= core.memory.window_bytes:
            if self.active and not self.items and self.unwritten == 0:
                self._end()
        elif not self.active:
            self.active = True
            ready.begin_tail()
        elif (
            ready.tail_bytes + ready.tail_count * ROW_BYTES >= core.memory.page_bytes
            or ready.tail_count >= CHUNK_RECORDS_MAX
        ):
            self._cut_tail()

    def settle(self, boundary: i64) -> bool:
        """Write the tail, so that a checkpoint finds it in chunks.

        Later pages contain no messages from before the new tail.  The checkpoint contains the
        unacked ones among these.
        """
        if self.active:
            self._cut_tail()
        return False

    def _end(self) -> None:
        """Stop paging because all messages are in memory."""
        super()._end()
        self.priorities.end_tail()

    def _cut_tail(self) -> None:
        """Cut the whole tail into pages, and write them."""
        rows = self._tail_rows()
        self.priorities.begin_tail()
        begin: i64 = 0
        end: i64 = 0
        size: i64 = 0
        while end < len(rows):
            size += rows[end].message.size + ROW_BYTES
            end += 1
            full = size >= self.queue.core.memory.page_bytes or end - begin >= CHUNK_RECORDS_MAX
            if full or end == len(rows):
                self._write(rows[begin:end])
                begin = end
                size = 0

    def _tail_rows(self) -> list[RequeuedMessage]:
        """Return all rows for the chunks of the tail, in the order of the sequences.

        They include messages that are unacked or retained after their ack, because recovery ignores
        the journal within the range of a chunk.
        """
        first = self.priorities.tail_start
        last = self.priorities.next - 1
        rows = self.priorities.at.within(first, last) + self.owner.out_within(first, last)
        rows.sort(key=sequence_of)
        return rows

    def _write(self, rows: list[RequeuedMessage]) -> None:
        """Write messages to a segment file, if at least one of them is waiting."""
        at = self.priorities.at
        if not [item for item in rows if at.get(item.sequence) is item]:
            return
        queue = self.queue
        builder = ChunkBuilder(queue.queue_id, False, True)
        for item in rows:
            message = item.message
            level = stored_level(message, self.priorities.level_set)
            builder.add(item.sequence, message, item.count, own_expiry(message), level)
        page = PriorityPage(self, builder.first, builder.last, self.levels())
        page.rows = rows
        page.min_expiry = builder.min_expiry
        page.min_timestamp = builder.min_timestamp
        temporary = not queue.recorded or builder.persistent == 0
        page.stored = self.stored.write(builder, page, temporary)
        page.stored.pinned = True
        self.unwritten += 1

    def spilled(self, page: Page, ref: ChunkRef) -> None:
        """Journal a written chunk, and drop its page from memory if memory is still full."""
        assert isinstance(page, PriorityPage)
        self.unwritten -= 1
        rows = page.rows
        page.rows = []
        kept = self.stored.written(self.queue, page.stored, ref)
        if kept and self.active and self._held() > self.queue.core.memory.window_bytes:
            self._let_go_of_rows(page, rows)

    def _let_go_of_rows(self, page: PriorityPage, rows: list[RequeuedMessage]) -> None:
        """Drop the messages of a page from memory that have been waiting since it was cut."""
        ready = self.priorities
        away: list[bool] = []
        levels: list[i64] = []
        for item in rows:
            level = level_of(item.message, ready.level_set)
            levels.append(level)
            # A requeued message stays in memory, because it has an entry in a heap.
            waits = item.count == 0 and ready.at.get(item.sequence) is item
            away.append(waits)
            if waits:
                ready.at.pop(item.sequence)
                page.levels |= level_bit(level)
                page.waiting += 1
                page.size += item.message.size
                page.bodies += len(item.message.body)
        if page.waiting == 0:
            return
        page.skip(
            [
                (int(rows[at].sequence), not away[at])
                for at in range(len(rows))
                if has_level(page.levels, levels[at])
            ]
        )
        ready.forget_range(page.first, page.last)
        self.queue.core.memory.release_all(page.waiting, page.size)
        self._list(page)
        self.items.append(page)
        self._count_as_away(page)

    def _list(self, page: PriorityPage) -> None:
        """Register the last page for its levels."""
        stored = page.stored
        assert stored is not None
        stored.pinned = True
        for level in range(highest_level(self.priorities.level_set) + 1):
            if has_level(page.levels, level) and level not in self.lowest:
                self.lowest[level] = page

    # -- emptying ---------------------------------------------------------------------------------

    def awaits(self, level: i64, sequence: i64, at_once: bool) -> bool:
        """Return whether the first message of a level is on disk, and request it.

        `sequence` is that of the first message in memory, or NOTHING.  With `at_once` the page is
        read synchronously.
        """
        page = self.lowest.get(level)
        if page is None:
            return False
        if 0 <= sequence < page.first:
            waiting = self.priorities.levels.get(level)
            if not page.wanted and (waiting is None or waiting.count() < _AHEAD_BELOW):
                self._want_level(page, level)
            return False
        page.asked |= level_bit(level)
        if at_once:
            self._load_now(page)
        elif not page.wanted:
            self._want_level(page, level)
        return True

    def _want_level(self, page: PriorityPage, level: i64) -> None:
        """Request a level of a page and of some pages behind it."""
        place = place_of(self.items, page.first)
        end: i64 = min(place + _AHEAD_PLACES, len(self.items))
        ahead: i64 = 0
        size: i64 = 0
        while place < end and ahead < PAGES_AHEAD and size < PAGES_AHEAD_BYTES:
            behind = self.items[place]
            assert isinstance(behind, PriorityPage)
            if has_level(behind.levels, level):
                behind.asked |= level_bit(level)
                super().want(behind)
                ahead += 1
                size += behind.size
            place += 1

    def want(self, page: Page) -> None:
        """Request all levels of a page."""
        assert isinstance(page, PriorityPage)
        page.asked = _ALL
        super().want(page)

    def load(self, page: Page, data: bytes) -> None:
        """Load the requested levels of a page, or all levels if they fit into memory."""
        assert isinstance(page, PriorityPage)
        asked = page.asked
        page.asked = 0
        self._forget_peeked()
        window = self.queue.core.memory.window_bytes
        size = self._held() + page.size + page.waiting * MESSAGE_OVERHEAD_BYTES
        if window < 0 or size <= window:
            asked = _ALL
        chunk = self._open(page, data)
        if chunk is None:
            self._lose(page)
        else:
            self._take(page, chunk, asked)
        self.owner.arrived()
        self.queue.schedule()

    def _lose(self, page: PriorityPage) -> None:
        """Forget the messages of a page that cannot be read."""
        stored = page.stored
        assert stored is not None
        self.ready.size -= page.size
        self.ready.bodies -= page.bodies
        self._count_away(page, page.waiting, page.size, page.bodies)
        self._keep_levels(page, 0)
        # Messages of the chunk that are in memory are then in no chunk.  A checkpoint writes them
        # again.
        self.stored.remove(stored)

    def _take(self, page: PriorityPage, chunk: Chunk, asked: int) -> None:
        """Load the requested levels into memory."""
        found: dict[i64, list[RequeuedMessage]] = {}
        broken: list[int] = []
        left: int = 0
        sequences: list[tuple[int, bool]] = []
        # Each level of a chunk is read separately, which examines every row.
        self.queue.scheduler.spent += chunk.count // MESSAGES_PER_COST
        for index in range(chunk.count):
            level = self._level_in(chunk, index)
            if not has_level(page.levels, level):
                continue
            waits = self._waits(page, chunk, index)
            if not has_level(asked, level):
                if waits:
                    left |= level_bit(level)
                sequences.append((int(chunk.sequence(index)), not waits))
            elif waits:
                properties, body = chunk.sizes(index)
                self._count_away(page, 1, properties + body, body)
                item = self._row(chunk, index)
                if item is not None:
                    found.setdefault(level, []).append(item)
                else:
                    self.ready.size -= properties + body
                    self.ready.bodies -= body
                    broken.append(int(chunk.sequence(index)))
        self._enter_rows(page, found)
        if broken:
            self._lose_rows(page, chunk, broken)
        page.skip(sequences)
        self._keep_levels(page, left)

    def _waits(self, page: PriorityPage, chunk: Chunk, index: i64) -> bool:
        """Return whether the message of a row of the page's levels is still waiting."""
        sequence = chunk.sequence(index)
        if page.skipped.has(sequence) or self.stored.gone.has(sequence):
            return False
        return not page.restored or chunk.persistent(index)

    def _count_away(self, page: PriorityPage, count: i64, size: i64, bodies: i64) -> None:
        """Count messages as no longer on disk."""
        page.waiting -= count
        page.size -= size
        page.bodies -= bodies
        self.away_count -= count
        self.away_bytes -= size

    def _enter_rows(self, page: PriorityPage, found: dict[i64, list[RequeuedMessage]]) -> None:
        """Put loaded messages into memory at their places."""
        queue = self.queue
        core = queue.core
        expires = self.owner.expires() or page.min_expiry != NEVER
        ttl = queue.settings.message_ttl_ms
        for level, items in found.items():
            # Finding the places takes as long as reading the messages, and setting deadlines half
            # as long.
            core.scheduler.spent += len(items) + (len(items) // 2 if expires else 0)
            self.priorities.enter(level, items)
            for item in items:
                core.memory.hold(item.message.size)
                if self.counts:
                    self.take_count(item.sequence)
                if expires:
                    self.owner.note_deadline(deadline_of(item.message, ttl), item.sequence)

    def _lose_rows(self, page: PriorityPage, chunk: Chunk, broken: list[int]) -> None:
        """Forget unreadable messages, which are in quarantine."""
        self._report(page, chunk.data, broken)
        for sequence in broken:
            self.take_count(sequence)
            self.stored.forget(sequence)

    def _keep_levels(self, page: PriorityPage, left: int) -> None:
        """Update the levels of a page; remove a page without levels."""
        place = place_of(self.items, page.first)
        lost = page.levels & ~left
        page.levels = left
        for level in range(highest_level(self.priorities.level_set) + 1):
            if has_level(lost, level) and self.lowest.get(level) is page:
                self._list_next(level, place)
        if left == 0:
            page.listed = False
            del self.items[place]
            if page.stored is not None:
                self.stored.unpin(page.stored)

    def _list_next(self, level: i64, place: i64) -> None:
        """Find the first page from `place` on with messages of a level."""
        del self.lowest[level]
        while place < len(self.items):
            page = self.items[place]
            assert isinstance(page, PriorityPage)
            if has_level(page.levels, level):
                self.lowest[level] = page
                return
            place += 1

    def take_over(self, fifo: FifoPages) -> None:
        """Take over the pages of a queue without levels.

        Its messages in memory are already in `priorities`.  All pages are whole chunks with rows of
        the usual level.
        """
        self.active = True
        self.counts = fifo.counts
        fifo.counts = {}
        for item in self.priorities.at.values():
            if self.counts:
                item.count = max(item.count, self.take_count(item.sequence))
        for before in fifo.away():
            page = PriorityPage(self, before.first, before.last, self.levels())
            page.take_over(before)
            page.note_level(0)
            self.ready.size += page.size
            self.ready.bodies += page.bodies
            self._list(page)
            self.items.append(page)
            self._count_as_away(page)
        fifo.clear()
        self._raise_highest()
        self.priorities.begin_tail()

    def _raise_highest(self) -> None:
        """Raise the highest level to the highest on disk."""
        ready = self.priorities
        for level in self.lowest:
            ready.highest = max(ready.highest, level)

    # -- all --------------------------------------------------------------------------------------

    def _decode(self, page: Page, data: bytes) -> list[RequeuedMessage]:
        """Return the waiting messages of a page without damaged ones, which are reported once."""
        assert isinstance(page, PriorityPage)
        found: list[RequeuedMessage] = []
        chunk = self._open(page, data)
        if chunk is None:
            return found
        broken: list[int] = []
        for index in range(chunk.count):
            if has_level(page.levels, self._level_in(chunk, index)) and self._waits(
                page, chunk, index
            ):
                item = self._row(chunk, index)
                if item is not None:
                    found.append(item)
                else:
                    broken.append(int(chunk.sequence(index)))
        self._report(page, chunk.data, broken)
        return found

    def let_go_of(self, page: Page) -> None:
        """Forget the messages of a detached page that are on disk, and ack them in the journal.

        Messages that are unacked, being dead-lettered or retained stay, and so do messages requeued
        since the purge.
        """
        queue = self.queue
        stored = page.stored
        if stored is None:
            return
        out = self.owner.out_within(page.first, page.last)
        back = self.priorities.at.within(page.first, page.last)
        kept = {int(item.sequence) for item in out + back}
        queue.scheduler.spent += 1 + len(kept) + self.stored.moved_cost()
        first: i64 = page.first
        for sequence in [*sorted(kept), int(page.last) + 1]:
            if first < sequence:
                if queue.recorded:
                    queue.core.journal.ack(queue.queue_id, first, sequence - 1)
                self.stored.gone.add(first, sequence - 1)
            first = sequence + 1
        # Other unacked messages are only in memory, and are no longer counted.
        self.stored.forget_count(stored, stored.live - len(kept))
        self.stored.unpin(stored)

    def clear(self) -> None:
        """Drop all messages."""
        super().clear()
        self.lowest.clear()

    def restore(self, restored: list[Page], counts: dict[i64, i64]) -> None:
        """Restore pages on disk, in the order of their sequences."""
        super().restore(restored, counts)
        ready = self.priorities
        for page in restored:
            assert isinstance(page, PriorityPage)
            self._list(page)
        self._raise_highest()
        # `fill` starts the tail again once the next sequence is known.
        ready.begin_tail()

    def restored_page(self, ref: ChunkRef) -> PriorityPage:
        """Return a page from before a restart; the caller counts its rows."""
        page = PriorityPage(self, ref.first, ref.last, self.levels())
        page.restore(ref)
        return page
