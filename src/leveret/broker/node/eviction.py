"""The memory of all queues together: where it fills, what waits goes to the disk early.

Each queue keeps a window in memory (`pages.py`).  Many queues can fill the node's memory with
windows that are not full; so above a share of it the windows are made small, and one queue after
the other is asked to write what it holds, until enough is free again.

Invariant: one call asks few queues, and none while much waits to be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.backlog.page import Page
from leveret.broker.backlog.pages import Pages
from leveret.broker.backlog.source import TAKEN, Returned, Window
from leveret.broker.backlog.stored import StoredChunk
from leveret.broker.classic.classic import ClassicQueue
from leveret.broker.core.turn import Turn
from leveret.chunk import ROW_BYTES
from leveret.limits import (
    CHUNK_RECORDS_MAX,
    EVICT_QUEUES,
    QUEUE_WINDOW_BYTES_LEAST,
    SPILL_BATCH_BYTES,
)

if TYPE_CHECKING:
    from leveret.broker.vhost.vhost import Vhost


@final
class Eviction:
    """Keeps what waits in memory within `bytes_max`; below 0 there is no limit."""

    def __init__(self, turn: Turn, vhosts: dict[str, Vhost]) -> None:
        self.turn = turn
        self.vhosts = vhosts
        self.bytes_max: i64 = -1
        #: The window of a queue while there is memory for it.
        self.window_bytes: i64 = -1
        #: True while the memory is fuller than it should be.
        self.full = False
        self._queues: Iterator[ClassicQueue] | None = None
        #: What was held when all queues had been asked: not again before more comes.
        self._asked_at: i64 = -1

    def configure(self, window_bytes: i64, bytes_max: i64) -> None:
        """Take the settings."""
        self.window_bytes = window_bytes
        self.bytes_max = bytes_max
        self.turn.window_bytes = window_bytes

    def judge(self, held: i64) -> None:
        """Have queues write while `held` bytes are too much; nine tenths of the limit are not."""
        if self.bytes_max < 0:
            return
        if not self.full:
            if held <= self.bytes_max:
                return
            self.full = True
            self.turn.window_bytes = min(self.window_bytes, QUEUE_WINDOW_BYTES_LEAST)
        elif held <= self.bytes_max // 10 * 9:
            self.full = False
            self.turn.window_bytes = self.window_bytes
            self._queues = None
            self._asked_at = -1
            return
        if self._asked_at < 0 or held > self._asked_at + QUEUE_WINDOW_BYTES_LEAST:
            self._ask(held)

    def _ask(self, held: i64) -> None:
        """Ask some queues to write what they hold."""
        queues = self._queues
        if queues is None:
            queues = self._all()
            self._queues = queues
        asked: i64 = 0
        while asked < EVICT_QUEUES and self.turn.spill.unwritten_bytes < SPILL_BATCH_BYTES:
            queue = next(queues, None)
            if queue is None:
                self._queues = None
                self._asked_at = held
                return
            evict(queue)
            asked += 1

    def _all(self) -> Iterator[ClassicQueue]:
        for vhost in list(self.vhosts.values()):
            for queue in list(vhost.queues.by_name.values()):
                if isinstance(queue, ClassicQueue) and queue.bytes_ready > 0:
                    yield queue


def evict(queue: ClassicQueue) -> None:
    """Let what waits in a queue's memory go to the disk, but for what came back."""
    if queue.settings.priority_max > 0 or queue.ready.returns.count() > 0:
        # What came back may belong between what is in the front, which no page could tell.
        return
    pages = queue.ready.pages
    if pages is None:
        pages = Pages(queue)
        queue.ready.pages = pages
    if not pages.active:
        pages.begin()
    pages.settle()
    front = pages.front
    cut = _cut_front(pages, front)
    pages.front = Window(front.next_sequence)
    pages.items[pages.head : pages.head] = cut
    for page in pages.items[pages.head :]:
        page.far = True
        stored = page.stored
        if stored is not None and stored.written:
            pages.unload(page)


def _cut_front(pages: Pages, front: Window) -> list[Page]:
    """Return what waits in the front as pages; what no chunk has is written to new ones."""
    stored_chunks = pages.queue.stored
    page_bytes = pages.queue.turn.page_bytes
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
        full = full or pages.dies_at(front, end)
        if end == len(items) or following is not stored or (full and stored is None):
            page = _front_page(pages, front, begin, end, stored)
            if page is not None:
                cut.append(page)
            stored = following
            begin = end
            size = 0
    return cut


def _front_page(
    pages: Pages, front: Window, begin: i64, end: i64, stored: StoredChunk | None
) -> Page | None:
    """Return a part of the front as a page, or None if nothing in it waits."""
    if stored is not None and not stored.whole:
        _return_transient(pages, front, begin, end)
    page = pages.slice(front, begin, end)
    if page.waiting == 0:
        return None
    if stored is None:
        pages.spill(page)
    else:
        page.stored = stored
        page.restored = stored.restored
        page.min_expiry = stored.ref.min_expiry
        page.min_timestamp = stored.ref.min_timestamp
    pages.count += page.waiting
    return page


def _return_transient(pages: Pages, front: Window, begin: i64, end: i64) -> None:
    """Keep in memory what the chunk of a checkpoint has not, for it does not survive."""
    first: i64 = front.head_sequence - front.head
    while begin < end:
        message = front.items[begin]
        if message is not TAKEN and not message.persistent:
            front.items[begin] = TAKEN
            pages.queue.ready.returns.put(Returned(first + begin, message, 0))
        begin += 1
