"""Restores the chunks of a queue as pages, which are read when consumers reach them.

A start reads a chunk only for information that is not in its reference: the remaining messages, if
some were removed; the levels of a priority queue; and messages that a queue always keeps in memory.

Invariant: damage is reported to the quarantine, and only the unreadable messages are lost.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.backlog.damage import open_chunk, report_messages
from leveret.broker.backlog.page import Page
from leveret.broker.backlog.window import RequeuedMessage
from leveret.broker.delayed.delayed import ChunkedQueue, DelayedMessages
from leveret.broker.queue.waiting import WaitingQueue
from leveret.chunk import Chunk
from leveret.store.records.ranges import RangeSet
from leveret.store.records.record import is_retained
from leveret.store.segments.segments import ChunkRef


def restore_chunks(
    queue: ChunkedQueue,
    chunks: list[ChunkRef],
    gone: RangeSet,
    messages: dict[i64, RequeuedMessage],
    counts: dict[i64, i64],
) -> None:
    """Restore a queue's chunks and pages, and add messages that must be in memory to `messages`."""
    if isinstance(queue, DelayedMessages):
        _restore_delayed(queue, chunks, gone)
        return
    if not chunks:
        return
    pages = queue.backlog()
    by_level = pages.counts_rows
    restored: list[Page] = []
    for ref in sorted(chunks, key=_first):
        queue.core.spill.use.wrote(ref)
        dead = gone.count(ref.first, ref.last)
        if dead == ref.last - ref.first + 1:
            continue
        page = None if _in_memory(ref, counts) else pages.restored_page(ref)
        if page is None or dead > 0 or by_level:
            data = queue.core.reader.read(queue.queue_id, ref, pages.levels())
            live = min(ref.persistent, ref.last - ref.first + 1 - dead)
            chunk = open_chunk(queue, ref, data, live)
            if chunk is None:
                continue
            if page is None:
                _take(queue, ref, chunk, gone, messages, counts)
                continue
            page.count_rows(chunk, gone)
        if page.waiting > 0:
            page.stored = queue.stored.add(ref, page.waiting)
            page.stored.restored = True
            _forget(queue, ref, gone)
            restored.append(page)
    if restored:
        pages.restore(restored, counts)
        queue.schedule()


def _restore_delayed(queue: DelayedMessages, chunks: list[ChunkRef], gone: RangeSet) -> None:
    """Restore the pages of a store of delayed messages, without reading them."""
    for ref in sorted(chunks, key=_first):
        queue.core.spill.use.wrote(ref)
        absent = gone.count(ref.first, ref.last)
        if absent <= ref.last - ref.first:
            queue.pages.restore(ref, absent)
            _forget(queue, ref, gone)


def _first(ref: ChunkRef) -> int:
    return int(ref.first)


def _in_memory(ref: ChunkRef, counts: dict[i64, i64]) -> bool:
    """Return whether a chunk's messages belong in memory, because some are retained after acks."""
    if is_retained(ref.count_max):
        return True
    for sequence, count in counts.items():
        if is_retained(count) and ref.first <= sequence <= ref.last:
            return True
    return False


def _take(
    queue: WaitingQueue,
    ref: ChunkRef,
    chunk: Chunk,
    gone: RangeSet,
    messages: dict[i64, RequeuedMessage],
    counts: dict[i64, i64],
) -> None:
    """Load a chunk's live messages into memory."""
    broken = set(chunk.damaged())
    if broken:
        report_messages(queue, ref, chunk.data, sorted(broken))
    live: i64 = 0
    for index in range(chunk.count):
        sequence = chunk.sequence(index)
        kept = queue.stored.outlives(chunk, index)
        if kept and not gone.has(sequence) and int(sequence) not in broken:
            count = counts.pop(sequence, chunk.delivery_count(index))
            messages[sequence] = RequeuedMessage(sequence, chunk.message(index), count)
            live += 1
    if live > 0:
        queue.stored.add(ref, live).restored = True
        _forget(queue, ref, gone)


def _forget(queue: ChunkedQueue, ref: ChunkRef, gone: RangeSet) -> None:
    """Record the removed messages of a chunk in the queue."""
    for first, last in gone.within(ref.first, ref.last):
        queue.stored.gone.add(first, last)
