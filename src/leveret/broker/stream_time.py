"""Where in a stream a time lies: the first message that was taken at or after it.

The broker's clock does not go back while it runs, but between two starts it may have been set.  So
blocks are searched by the newest time up to their end, which only grows, and messages one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.chunk import Chunk, ChunkDamaged
from leveret.store.segments import check_chunk

if TYPE_CHECKING:
    from leveret.broker.stream import Stream
    from leveret.broker.stream_block import Block


def offset_in_time(stream: Stream, timestamp_ms: i64) -> i64:
    """Return the offset of the first message taken at or after a time, else the next offset."""
    place = _place_in_time(stream.blocks, timestamp_ms)
    if place < 0:
        return stream.next_offset
    return _offset_in_block(stream, stream.blocks[place], timestamp_ms)


def block_in_time(stream: Stream, timestamp_ms: i64) -> i64:
    """Return the first offset of the block that holds that message; nothing is read."""
    place = _place_in_time(stream.blocks, timestamp_ms)
    return stream.next_offset if place < 0 else stream.blocks[place].first


def _place_in_time(blocks: list[Block], timestamp_ms: i64) -> i64:
    """Return the place of the first block that reaches a time, or -1."""
    place = _first_that_reaches(blocks, timestamp_ms)
    # What reached it before may be gone: only where the clock was set back are blocks passed by.
    while place < len(blocks) and blocks[place].timestamp_max < timestamp_ms:
        place += 1
    if place >= len(blocks) or blocks[place].count == 0:
        return -1
    return place


def _first_that_reaches(blocks: list[Block], timestamp_ms: i64) -> i64:
    """Return the place of the first block at whose end a time has come; their number if none."""
    low: i64 = 0
    high: i64 = len(blocks)
    while low < high:
        middle: i64 = (low + high) >> 1
        block = blocks[middle]
        if max(block.timestamp_before, block.timestamp_max) < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _offset_in_block(stream: Stream, block: Block, timestamp_ms: i64) -> i64:
    """Return the offset in a block that reaches the time; its first one where it is damaged."""
    offset: i64 = block.first
    messages = block.messages
    if messages is not None:
        for message in messages:
            if message is not None and message.timestamp_ms >= timestamp_ms:
                return offset
            offset += 1
        return block.first
    ref = block.ref
    assert ref is not None
    try:
        chunk = check_chunk(stream.turn.reader.read(ref), ref, stream.queue_id)
    except ChunkDamaged:
        # Who reads it is told, and passes by what is lost.
        return block.first
    return _sequence_in_time(chunk, timestamp_ms)


def _sequence_in_time(chunk: Chunk, timestamp_ms: i64) -> i64:
    """Return the first sequence of a chunk that was taken at or after a time."""
    for index in range(chunk.count):
        if chunk.timestamp_ms(index) >= timestamp_ms:
            return chunk.sequence(index)
    return chunk.first
