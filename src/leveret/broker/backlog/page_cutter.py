"""How the messages of a window become pages, each with a place in a segment file.

When that happens, and where the pages are kept, is the matter of `fifo_pages.py`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.backlog.in_memory import InMemory
from leveret.broker.backlog.owner import BacklogOwner
from leveret.broker.backlog.page import Page, PageOwner
from leveret.broker.backlog.stored import StoredChunk, StoredChunks
from leveret.broker.backlog.window import TAKEN, Returned, Window
from leveret.broker.queue.queue import Queue
from leveret.broker.values.expiration import own_expiry
from leveret.chunk import ROW_BYTES, ChunkBuilder
from leveret.limits import CHUNK_RECORDS_MAX


@final
class PageCutter:
    """Cuts the windows of one queue into pages."""

    def __init__(
        self,
        queue: Queue,
        ready: InMemory,
        stored: StoredChunks,
        owner: BacklogOwner,
        pages: PageOwner,
    ) -> None:
        self.queue: Final = queue
        self.ready: Final = ready
        self.stored: Final = stored
        self.owner: Final = owner
        self.pages: Final = pages

    def cut(self, window: Window) -> list[Page]:
        """Return what waits in a window as pages of the size of a chunk, which are to be written.

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
                    self._spill(page)
                    pages.append(page)
                begin = end
                size = 0
        return pages

    def _is_out(self, window: Window, place: i64) -> bool:
        """Return whether the message of this place was taken and must survive until its ack."""
        if place >= len(window.items) or window.items[place] is not TAKEN:
            return False
        return self.owner.is_out(window.head_sequence + place - window.head)

    def _slice(self, window: Window, begin: i64, end: i64) -> Page:
        """Return a page of the places from `begin` to `end` of a window."""
        first: i64 = window.head_sequence + begin - window.head
        part = Window(first)
        part.fill(window.items[begin:end], first)
        page = Page(self.pages, part.head_sequence, part.next_sequence - 1)
        page.hold(part)
        return page

    def _spill(self, page: Page) -> None:
        """Write a page's messages to a segment file."""
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

    def cut_front(self, front: Window) -> list[Page]:
        """Return the front as pages; messages that are in no chunk are written to new chunks."""
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
        """Return a part of the front as a page, or None if no message in it waits."""
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
        return page

    def _return_transient(self, front: Window, begin: i64, end: i64) -> None:
        """Keep transient messages in memory: the chunk of a checkpoint does not have them."""
        first: i64 = front.head_sequence - front.head
        while begin < end:
            message = front.items[begin]
            if message is not TAKEN and not message.persistent:
                front.items[begin] = TAKEN
                self.ready.returns.put(Returned(first + begin, message, 0))
            begin += 1
