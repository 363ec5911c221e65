"""Cutting the messages of a window into pages, each stored as a chunk in a segment file.

`fifo_pages.py` decides when to cut, and owns the pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.attributes.expiration import own_expiry
from leveret.broker.backlog.page import Page
from leveret.broker.backlog.stored import StoredChunk
from leveret.broker.backlog.window import TAKEN, RequeuedMessage, Window
from leveret.chunk import ROW_BYTES, ChunkBuilder
from leveret.limits import CHUNK_RECORDS_MAX

if TYPE_CHECKING:
    from leveret.broker.backlog.fifo_pages import FifoPages


def cut(pages: FifoPages, window: Window) -> list[Page]:
    """Return the waiting messages of a window as pages of the size of a chunk.

    Messages that are in no chunk are written to new chunks.  No page of a new chunk spans a message
    that was taken and must survive a restart.
    """
    chunks = pages.stored
    through = chunks.through
    page_bytes = pages.queue.core.memory.page_bytes
    found: list[Page] = []
    begin: i64 = window.head
    end: i64 = window.head
    size: i64 = 0
    items = window.items
    first: i64 = window.head_sequence - window.head
    stored = chunks.find(window.head_sequence)
    while end < len(items):
        size += items[end].size + ROW_BYTES
        end += 1
        following = (
            chunks.find(first + end) if end < len(items) and first + end <= through else None
        )
        full = size >= page_bytes or end - begin >= CHUNK_RECORDS_MAX
        full = full or _is_out(pages, window, end)
        if end == len(items) or following is not stored or (full and stored is None):
            page = _page(pages, window, begin, end, stored)
            if page is not None:
                found.append(page)
            stored = following
            begin = end
            size = 0
    return found


def _is_out(pages: FifoPages, window: Window, place: i64) -> bool:
    """Return whether the message at this place was taken and must survive until its ack."""
    if place >= len(window.items) or window.items[place] is not TAKEN:
        return False
    sequence = window.head_sequence + place - window.head
    return len(pages.owner.out_within(sequence, sequence)) > 0


def _spill(pages: FifoPages, page: Page) -> None:
    """Write a page's messages to a segment file."""
    queue = pages.queue
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
    page.stored = pages.stored.write(builder, page, temporary)
    page.stored.whole = True
    for gap in gaps:
        if gap < page.stored.ref.last:
            pages.stored.gone.add(gap, gap)


def _page(
    pages: FifoPages, window: Window, begin: i64, end: i64, stored: StoredChunk | None
) -> Page | None:
    """Return a part of a window as a page, or None if no message in it is waiting."""
    if stored is not None and not stored.whole:
        _return_transient(pages, window, begin, end)
    first: i64 = window.head_sequence + begin - window.head
    part = Window(first)
    part.fill(window.items[begin:end], first)
    page = Page(pages, part.head_sequence, part.next_sequence - 1)
    page.hold(part)
    if page.waiting == 0:
        return None
    if stored is None:
        _spill(pages, page)
    else:
        page.stored = stored
        page.restored = stored.restored
        page.min_expiry = stored.ref.min_expiry
        page.min_timestamp = stored.ref.min_timestamp
    return page


def _return_transient(pages: FifoPages, window: Window, begin: i64, end: i64) -> None:
    """Put transient messages into `returns`, because a checkpoint's chunk lacks them."""
    first: i64 = window.head_sequence - window.head
    while begin < end:
        message = window.items[begin]
        if message is not TAKEN and not message.persistent:
            window.items[begin] = TAKEN
            pages.ready.returns.put(RequeuedMessage(first + begin, message, 0))
        begin += 1
