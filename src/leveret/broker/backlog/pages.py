"""The part of a deep queue that is on disk, for queues with and without priorities.

When a queue's memory is full, its newest messages are cut into pages.  Each page is a chunk of a
segment file.  Once the chunk is written, the page is dropped from memory, except for a few numbers.
`fifo_pages.py` and `priority_pages.py` decide which page is read next.

A page is read as an effect (`core.wanted`), and the queue delivers nothing until it is loaded.
Callers that cannot wait (basic.get, dropping from the head, browsing) read it synchronously with
`core.reader`.  Reading ahead makes that rare.

Invariants: pages are in the order of their sequences and do not overlap; every message of a page
has a lower sequence than those of the tail.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.backlog.damage import chunk_if_true, open_chunk, report_messages
from leveret.broker.backlog.detached import Detached
from leveret.broker.backlog.owner import BacklogOwner
from leveret.broker.backlog.page import Page, PageWanted, place_of
from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.backlog.window import NOTHING, RequeuedMessage
from leveret.broker.consumers.consumer import Source
from leveret.broker.scheduler.costs import CHUNK_BYTES_PER_COST, CHUNK_READ
from leveret.chunk import NEVER, Chunk, RecordDamaged
from leveret.store.segments.segments import ChunkRef

if TYPE_CHECKING:
    from leveret.broker.backlog.ready import Ready

#: The memory for the number of returns of a message on disk.
RETURN_COUNT_BYTES: Final = 100


class Pages:
    """The pages of one queue."""

    def __init__(
        self, queue: Source, ready: Ready, stored: StoredChunks, owner: BacklogOwner
    ) -> None:
        self.queue = queue
        #: The waiting messages outside the pages.
        self.ready = ready
        self.stored = stored
        self.owner = owner
        #: True if the rows of a restored page must be counted, because a reference lacks their
        #: levels.
        self.counts_rows = False
        #: True from the first page until the last one is used up.
        self.active = False
        self.items: list[Page] = []
        #: The messages that wait only on disk, and their bytes.
        self.away_count: i64 = 0
        self.away_bytes: i64 = 0
        #: The numbers of returns of messages on disk, if their chunks lack them.
        self.counts: dict[i64, i64] = {}
        #: The page last read without being loaded, and its messages.
        self._peeked: Page | None = None
        self._peeked_items: dict[i64, RequeuedMessage] = {}

    # -- writing ----------------------------------------------------------------------------------

    @abstractmethod
    def bound(self) -> None:
        """Begin paging, or write a page, if waiting messages take more memory than the window."""

    @abstractmethod
    def spilled(self, page: Page, ref: ChunkRef) -> None:
        """Journal a written chunk, and drop its page from memory if possible."""

    @abstractmethod
    def settle(self, boundary: i64) -> bool:
        """Write the tail, or some of it, so that a checkpoint finds it in chunks.

        Return whether messages below `boundary` remain for another call.
        """

    def evict(self) -> bool:
        """Move some waiting messages to disk; return whether another call is needed."""
        return False

    def note_deadline(self, page: Page) -> None:
        """Set the deadline at which a page on disk is read because a message in it may expire."""
        deadline = page.min_expiry
        ttl = self.queue.settings.message_ttl_ms
        if ttl >= 0 and page.min_timestamp != NEVER:
            deadline = min(deadline, page.min_timestamp + ttl)
        if deadline != NEVER:
            self.owner.note_page_deadline(deadline, page.first)

    def _count_as_away(self, page: Page) -> None:
        """Count a page's messages as only on disk, and set their deadline."""
        self.away_count += page.waiting
        self.away_bytes += page.size
        self.note_deadline(page)

    # -- reading ----------------------------------------------------------------------------------

    def awaits(self, level: i64, sequence: i64, at_once: bool) -> bool:
        """Return whether the first message of a level is on disk, and request it.

        `sequence` is that of the first message in memory, or NOTHING.  Only the pages of a priority
        queue have levels.
        """
        return False

    def fetch(self, first: i64) -> bool:
        """Request the page that begins at `first`; return False if it is in memory or gone."""
        page = self.page_at(first)
        if page is None or page.window is not None:
            return False
        self.want(page)
        return True

    def want(self, page: Page) -> None:
        """Request a read of a page, unless it is already requested."""
        stored = page.stored
        if not page.wanted and stored is not None:
            page.wanted = True
            wanted = PageWanted(self.queue.queue_id, page, stored.ref, self.levels())
            self.queue.core.wanted.append(wanted)

    @abstractmethod
    def load(self, page: Page, data: bytes) -> None:
        """Load a page into memory from its chunk's bytes."""

    def _load_now(self, page: Page) -> None:
        """Read a page synchronously."""
        self.load(page, self._read(page))

    def _read(self, page: Page) -> bytes:
        """Return the bytes of a page's chunk, read synchronously, and count the cost."""
        core = self.queue.core
        stored = page.stored
        assert stored is not None
        ref = stored.ref
        core.scheduler.spent += CHUNK_READ + ref.size // CHUNK_BYTES_PER_COST
        return core.reader.read(self.queue.queue_id, ref, self.levels())

    def levels(self) -> i64:
        """Return the queue's level set (see `levels.py`), or 0 if it has none."""
        return 0

    def _open(self, page: Page, data: bytes) -> Chunk | None:
        """Return a page's chunk, or None if it is damaged; report damage once."""
        stored = page.stored
        assert stored is not None
        if page.reported:
            return chunk_if_true(self.queue.queue_id, stored.ref, data)
        chunk = open_chunk(self.queue, stored.ref, data, page.waiting)
        if chunk is None:
            page.reported = True
        return chunk

    def _report(self, page: Page, data: bytes, broken: list[int]) -> None:
        """Report the messages of a page's chunk that fail their check, unless already reported."""
        stored = page.stored
        if broken and not page.reported and stored is not None:
            page.reported = True
            report_messages(self.queue, stored.ref, data, broken)

    def _row(self, chunk: Chunk, index: i64) -> RequeuedMessage | None:
        """Return a message of a chunk, or None if it is damaged."""
        try:
            message = chunk.message(index)
        except RecordDamaged:
            return None
        sequence = chunk.sequence(index)
        count = chunk.delivery_count(index)
        return RequeuedMessage(sequence, message, self.counts.get(sequence, count))

    @abstractmethod
    def _decode(self, page: Page, data: bytes) -> list[RequeuedMessage]:
        """Return the waiting messages of a page without damaged ones, which are reported once."""

    # -- single messages --------------------------------------------------------------------------

    def page_at(self, sequence: i64) -> Page | None:
        """Return the page whose range contains a sequence, or None."""
        items = self.items
        place = place_of(items, sequence)
        if place < len(items) and items[place].first <= sequence:
            return items[place]
        return None

    def look(self, sequence: i64) -> RequeuedMessage | None:
        """Return a waiting message without taking it, or None if it is not waiting."""
        page = self.page_at(sequence)
        if page is None:
            return None
        window = page.window
        if window is not None:
            if not window.has(sequence):
                return None
            return RequeuedMessage(sequence, window.at(sequence), self.counts.get(sequence, 0))
        if self._peeked is not page:
            self._peek(page)
        return self._peeked_items.get(sequence)

    def _peek(self, page: Page) -> None:
        """Read a page without loading it."""
        found = self._decode(page, self._read(page))
        self._peeked = page
        self._peeked_items = {item.sequence: item for item in found}

    def _forget_peeked(self) -> None:
        """Drop the page that was read without being loaded."""
        self._peeked = None
        self._peeked_items = {}

    def first_sequence(self) -> i64:
        """Return the lowest sequence, or NOTHING."""
        return self.items[0].start if self.items else NOTHING

    def away(self) -> list[Page]:
        """Return the pages that are only on disk."""
        return [page for page in self.items if page.window is None]

    def keep_count(self, sequence: i64, count: i64) -> None:
        """Store a message's number of returns, which its chunk does not contain."""
        if count > 0 and sequence not in self.counts:
            self.queue.core.memory.hold_all(0, RETURN_COUNT_BYTES)
            self.counts[sequence] = count

    def take_count(self, sequence: i64) -> i64:
        """Remove and return a message's number of returns, 0 if it is not stored."""
        count = self.counts.pop(sequence, 0)
        if count > 0:
            self.queue.core.memory.release_all(0, RETURN_COUNT_BYTES)
        return count

    # -- all --------------------------------------------------------------------------------------

    def let_go_of(self, page: Page) -> None:
        """Forget the messages of a detached page that are on disk, and ack them in the journal."""

    def detach(self, detached: Detached) -> None:
        """Detach all messages."""
        detached.pages = list(self.items)
        self.clear()

    def _end(self) -> None:
        """Stop paging because only the tail is left."""
        self.active = False
        self.items.clear()

    def clear(self) -> None:
        """Drop all messages."""
        for page in self.items:
            page.listed = False
        self._end()
        self.away_count = 0
        self.away_bytes = 0
        self.queue.core.memory.release_all(0, len(self.counts) * RETURN_COUNT_BYTES)
        self.counts = {}
        self._forget_peeked()

    def restore(self, restored: list[Page], counts: dict[i64, i64]) -> None:
        """Restore pages on disk, in the order of their sequences."""
        self.counts = counts
        self.queue.core.memory.hold_all(0, len(counts) * RETURN_COUNT_BYTES)
        for page in restored:
            self.ready.size += page.size
            self.ready.bodies += page.bodies
            self.items.append(page)
            self._count_as_away(page)
        if restored:
            self.active = True

    def restored_page(self, ref: ChunkRef) -> Page:
        """Return a page from before a restart, with the counts in its chunk's reference."""
        page = Page(self, ref.first, ref.last)
        page.restore(ref)
        return page
