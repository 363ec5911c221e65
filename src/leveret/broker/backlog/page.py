"""One page of a deep queue: messages that wait next to each other, in memory or in a chunk.

It is not where pages are made, read and handed out: that is `pages.py`.

Invariants: a page without a window has a stored chunk; `waiting`, `size` and `bodies` are those of
the window where there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.backlog.source import Window
from leveret.broker.backlog.stored import StoredChunk
from leveret.broker.core.turn import ChunkWanted
from leveret.chunk import NEVER
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import SpillOwner

if TYPE_CHECKING:
    from leveret.broker.backlog.pages import Pages


class Page(SpillOwner):
    """Messages that wait next to each other; `window` holds them while they are in memory."""

    def __init__(self, pages: Pages, first: i64, last: i64) -> None:
        self.pages = pages
        self.first: i64 = first
        self.last: i64 = last
        #: Messages of the chunk with lower sequences are not the page's.
        self.start: i64 = first
        self.window: Window | None = None
        self.stored: StoredChunk | None = None
        #: What waits: messages, their bytes, and the bytes of their bodies.
        self.waiting: i64 = 0
        self.size: i64 = 0
        self.bodies: i64 = 0
        #: The first deadline that a message has of its own, and when the oldest was taken.
        self.min_expiry: i64 = NEVER
        self.min_timestamp: i64 = 0
        self.wanted = False
        #: True until the page became the front, or was dropped.
        self.listed = True
        #: True for a page of an earlier start: messages that are not persistent are gone.
        self.restored = False
        #: True where it is to leave the memory however soon its turn comes.
        self.far = False
        #: True once it was told that its chunk is damaged.
        self.told = False
        #: Of a page on the disk: messages of its chunk that left it and are still dying.
        self.absent: set[i64] = set()

    def spilled(self, ref: ChunkRef) -> None:
        """Hear that the chunk is written."""
        self.pages.spilled(self, ref)


@final
class PageWanted(ChunkWanted):
    """A page on its way from the disk."""

    def __init__(self, page: Page, ref: ChunkRef) -> None:
        super().__init__(ref)
        self.page = page

    def arrived(self, data: bytes) -> None:
        """Take the page's messages into memory, unless it is not wanted any more."""
        page = self.page
        page.wanted = False
        stored = page.stored
        if not page.listed or page.window is not None or stored is None:
            return
        if stored.ref is self.ref:
            page.pages.load(page, data)
        else:
            # It was moved meanwhile, and may be gone from where it lay.
            page.pages.want(page)
