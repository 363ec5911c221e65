"""Where in a stream a time lies: the first message taken at or after it, the last one before it.

The broker's clock does not go back while it runs, but between two starts it may have been set.  So
blocks are searched by the newest time up to their end, which only grows, and messages one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.backlog.damage import chunk_if_true
from leveret.chunk import NEVER, Chunk

if TYPE_CHECKING:
    from leveret.broker.core.effects import ChunkReader
    from leveret.broker.stream.block import Block


def offset_in_time(
    blocks: list[Block], chunks: ChunkReader, queue_id: i64, timestamp_ms: i64
) -> i64 | None:
    """Return the offset of the first message taken at or after a time, None where none was.

    `blocks` are those of the stream of that `queue_id`, and `chunks` reads what files have of them.
    """
    place = _place_in_time(blocks, timestamp_ms)
    if place is None:
        return None
    return _offset_in_block(blocks[place], chunks, queue_id, timestamp_ms)


def end_in_time(
    blocks: list[Block], chunks: ChunkReader, queue_id: i64, timestamp_ms: i64
) -> i64 | None:
    """Return the offset after the last message taken before a time, None where none was.

    What is behind it was taken later, also where the clock was set back.  All blocks behind it are
    looked at, by their oldest times.
    """
    place: i64 = len(blocks) - 1
    while place >= 0 and _oldest(blocks[place]) >= timestamp_ms:
        place -= 1
    if place < 0:
        return None
    return _end_in_block(blocks[place], chunks, queue_id, timestamp_ms)


def block_in_time(blocks: list[Block], timestamp_ms: i64) -> i64 | None:
    """Return where the block begins that holds that message, or None; nothing is read."""
    place = _place_in_time(blocks, timestamp_ms)
    return None if place is None else blocks[place].first


def _place_in_time(blocks: list[Block], timestamp_ms: i64) -> i64 | None:
    """Return the place of the first block that reaches a time, or None."""
    place = _first_that_reaches(blocks, timestamp_ms)
    # Retention may have dropped earlier blocks; blocks are skipped only if the clock was set back.
    while place < len(blocks) and blocks[place].timestamp_max < timestamp_ms:
        place += 1
    if place >= len(blocks) or blocks[place].count == 0:
        return None
    return place


def _first_that_reaches(blocks: list[Block], timestamp_ms: i64) -> i64:
    """Return the place of the first block that ends at or after a time; their number if none."""
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


def _offset_in_block(block: Block, chunks: ChunkReader, queue_id: i64, timestamp_ms: i64) -> i64:
    """Return the offset in a block that reaches the time; its first one where it is damaged."""
    offset: i64 = block.first
    messages = block.messages
    if messages is not None:
        for message in messages:
            if message is not None and message.timestamp_ms >= timestamp_ms:
                return offset
            offset += 1
        return block.first
    chunk = _chunk_of(block, chunks, queue_id)
    # Readers of a damaged block skip what is lost, which is reported then.
    return block.first if chunk is None else _sequence_in_time(chunk, timestamp_ms)


def _chunk_of(block: Block, chunks: ChunkReader, queue_id: i64) -> Chunk | None:
    """Return the chunk of a block that lies in a file, None where it is damaged."""
    ref = block.ref
    assert ref is not None
    return chunk_if_true(queue_id, ref, chunks.read(queue_id, ref, 0))


def _oldest(block: Block) -> i64:
    """Return when the oldest message of a block was taken; a block without any is never."""
    ref = block.ref
    if ref is not None:
        return ref.min_timestamp
    oldest: i64 = NEVER
    for message in block.messages or ():
        if message is not None:
            oldest = min(oldest, message.timestamp_ms)
    return oldest


def _end_in_block(block: Block, chunks: ChunkReader, queue_id: i64, timestamp_ms: i64) -> i64:
    """Return the offset after the last of a block's messages taken before a time."""
    offset: i64 = block.end
    messages = block.messages
    if messages is not None:
        for message in reversed(messages):
            if message is not None and message.timestamp_ms < timestamp_ms:
                return offset
            offset -= 1
        return block.end
    chunk = _chunk_of(block, chunks, queue_id)
    if chunk is not None:
        for index in range(chunk.count - 1, -1, -1):
            if chunk.timestamp_ms(index) < timestamp_ms:
                return chunk.sequence(index) + 1
    return block.end


def _sequence_in_time(chunk: Chunk, timestamp_ms: i64) -> i64:
    """Return the first sequence of a chunk that was taken at or after a time."""
    for index in range(chunk.count):
        if chunk.timestamp_ms(index) >= timestamp_ms:
            return chunk.sequence(index)
    return chunk.first
