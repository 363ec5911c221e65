"""A stream as chunks, for bulk readers: stored chunks as they are, and the tail built on request.

Usage, part by part from an offset on:

    part = next_part(stream, offset)
    if part is None:             # the end: nothing at or after the offset is synced yet
        stream.watch(watcher)    # `watcher.moved()` is called once, when there may be more
    elif part.ref is not None:   # a stored chunk: read its bytes, off the loop
        data = reader.read(stream.queue_id, part.ref, 0)
    else:                        # the tail, or a block not yet written to its file
        data = part.data
    offset = part.end            # and so on

A part contains the messages from `part.first` to `part.end` - 1.  A stored chunk is returned whole,
so its first messages may be before the offset.  If retention or damage removed messages, the next
part begins after the offset.  A part is valid in the iteration of the event loop in which it was
made, because compaction may move a chunk, and retention may remove it.  So if a read returns fewer
bytes than `ref.size`, or a damaged chunk, call `next_part` once more before reporting damage.

Nothing in this module waits.

Invariant: no part contains messages beyond `stream.visible_end`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.backlog.damage import report_chunk
from leveret.broker.stream.stream import Stream
from leveret.chunk import ChunkBuilder, ChunkDamaged
from leveret.store.segments.segments import ChunkRef


@final
class StreamPart:
    """The messages `first` to `end` - 1 as one chunk, by its reference or else its bytes."""

    def __init__(self, first: i64, end: i64, ref: ChunkRef | None, data: bytes) -> None:
        self.first: Final[i64] = first
        self.end: Final[i64] = end
        self.ref: Final = ref
        self.data: Final = data


def next_part(stream: Stream, offset: i64) -> StreamPart | None:
    """Return the chunk of the message at or next after `offset`, or None at the end.

    The cost is a search among the blocks and, in the tail, building one chunk of at most
    `CHUNK_RECORDS_MAX` messages.
    """
    block = stream.block_at(offset)
    if block is None:
        return None
    end: i64 = block.end
    ref = block.ref
    if ref is not None and block.written and end <= stream.visible_end:
        return StreamPart(block.first, end, ref, b"")
    first: i64 = max(offset, block.first)
    end = min(end, stream.visible_end)
    if first >= end:
        return None
    if block.messages is None:
        # A batch that is being released begins in this block, so not all of it is visible.
        stream.load(block)
    chunk = block.build(ChunkBuilder(stream.queue_id), first, end)
    return StreamPart(first, end, None, chunk.build())


def end_of_parts(stream: Stream, start: i64, end: i64, bytes_max: i64) -> i64:
    """Return the end offset of the parts from `start` on within two limits.

    Stop before a part that begins at `end` or later, and after the part that reaches a total of
    `bytes_max` bytes.
    """
    position = start
    size: i64 = 0
    while size < bytes_max:
        block = stream.block_at(position)
        if block is None or block.first >= min(end, stream.visible_end):
            break
        position = min(block.end, stream.visible_end)
        size += block.size
    return max(position, start)


def report_damage(stream: Stream, part: StreamPart, data: bytes, damage: ChunkDamaged) -> bool:
    """Report a stored part's chunk, read as `data`, as damaged; return False if it has moved."""
    ref = part.ref
    block = stream.block_at(part.first)
    if ref is None or block is None or block.ref is not ref:
        return False
    report_chunk(stream, ref, data, damage, ref.count)
    return True
