"""One page of a deep queue: messages with adjacent places, in memory or in a chunk.

The owner of the pages (`pages.py`) creates, reads and delivers them.

Invariants: a page without a window has a stored chunk; `waiting`, `size` and `bodies` match the
window, if there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.attributes.expiration import own_expiry
from leveret.broker.backlog.stored import StoredChunk
from leveret.broker.backlog.window import TAKEN, Window
from leveret.broker.scheduler.effects import ChunkWanted
from leveret.chunk import NEVER, Chunk
from leveret.store.records.ranges import RangeSet
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import SpillOwner

if TYPE_CHECKING:
    from leveret.broker.backlog.pages import Pages


class Page(SpillOwner):
    """Waiting messages with adjacent places; `window` contains them while they are in memory."""

    def __init__(self, owner: Pages, first: i64, last: i64) -> None:
        self.owner = owner
        self.first: i64 = first
        self.last: i64 = last
        #: The page's first sequence.  Earlier messages of the chunk do not belong to the page.
        self.start: i64 = first
        self.window: Window | None = None
        self.stored: StoredChunk | None = None
        #: The number of waiting messages, their bytes, and the bytes of their bodies.
        self.waiting: i64 = 0
        self.size: i64 = 0
        self.bodies: i64 = 0
        #: The earliest `expiration` deadline of a message, and the earliest time of a publish.
        self.min_expiry: i64 = NEVER
        self.min_timestamp: i64 = 0
        self.wanted = False
        #: True until the page becomes the front, or is dropped.
        self.listed = True
        #: True for a page from before a restart, which has lost its transient messages.
        self.restored = False
        #: True if it must be dropped from memory even if consumers need it next.
        self.evicted = False
        #: True once damage to its chunk was reported.
        self.reported = False
        #: On disk: the messages of its chunk that have left the page but are not gone yet.
        self.absent: set[i64] = set()

    def spilled(self, ref: ChunkRef) -> None:
        """Tell the owner that the chunk is written."""
        self.owner.spilled(self, ref)

    def restore(self, ref: ChunkRef) -> None:
        """Make this a page from before a restart, with the counts in its chunk's reference."""
        self.restored = True
        self.waiting = ref.persistent
        self.size = ref.persistent_bytes
        self.bodies = ref.persistent_bodies
        self.min_expiry = ref.min_expiry
        self.min_timestamp = ref.min_timestamp

    def count_rows(self, chunk: Chunk, gone: RangeSet) -> None:
        """Count the waiting messages of a restored chunk row by row."""
        self.waiting = 0
        self.size = 0
        self.bodies = 0
        for index in range(chunk.count):
            if chunk.persistent(index) and not gone.has(chunk.sequence(index)):
                properties, body = chunk.sizes(index)
                self.waiting += 1
                self.size += properties + body
                self.bodies += body
                self.note_level(chunk.priority(index))

    def note_level(self, level: i64) -> None:
        """Add the level of a waiting message.  Only pages with priorities use it."""

    def hold(self, window: Window) -> None:
        """Set the messages in memory to those of `window`, and count them."""
        size: i64 = 0
        bodies: i64 = 0
        for message in window.items[window.head :]:
            size += message.size
            bodies += len(message.body)
        self.window = window
        self.start = window.head_sequence
        self.waiting = window.count()
        self.size = size
        self.bodies = bodies

    def release(self, gone: RangeSet, expires: bool) -> None:
        """Drop the messages from memory; `gone` are the sequences that the queue has forgotten.

        Other messages that left the page become `absent`, so that they are not loaded again.  If
        messages expire, the earliest deadlines are recomputed, because those of the chunk may have
        passed.
        """
        window = self.window
        assert window is not None
        self.window = None
        self.start = window.head_sequence
        self.absent = set()
        if expires:
            self.min_expiry = NEVER
            self.min_timestamp = NEVER
        sequence: i64 = window.head_sequence
        for message in window.items[window.head :]:
            if message is TAKEN:
                if not gone.has(sequence):
                    self.absent.add(sequence)
            elif expires:
                self.min_expiry = min(self.min_expiry, own_expiry(message))
                self.min_timestamp = min(self.min_timestamp, message.timestamp_ms)
            sequence += 1


@final
class PageWanted(ChunkWanted):
    """A request to read a page."""

    def __init__(self, owner: i64, page: Page, ref: ChunkRef, levels: i64) -> None:
        super().__init__(owner, ref, levels)
        self.page = page

    def arrived(self, data: bytes) -> None:
        """Load the page, unless it is no longer needed."""
        page = self.page
        page.wanted = False
        stored = page.stored
        if not page.listed or page.window is not None or stored is None:
            return
        if stored.ref is self.ref:
            page.owner.load(page, data)
        else:
            # The chunk was moved since the request, and may be gone from its old place.
            page.owner.want(page)


def place_of(pages: list[Page], sequence: i64) -> i64:
    """Return the index of the first page that does not end before a sequence."""
    low: i64 = 0
    high: i64 = len(pages)
    while low < high:
        middle: i64 = (low + high) >> 1
        if pages[middle].last < sequence:
            low = middle + 1
        else:
            high = middle
    return low
