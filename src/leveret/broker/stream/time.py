"""Finds a time in a stream: the first message received at or after it, or the last one before it.

The broker's clock does not go back while it runs, but it may have been set between two starts.  So
blocks are searched by the newest time up to their end, which only grows, and messages one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.backlog.damage import chunk_if_true
from leveret.chunk import NEVER

if TYPE_CHECKING:
    from leveret.broker.scheduler.effects import ChunkReader
    from leveret.broker.stream.block import StreamBlock


def offset_in_time(
    blocks: list[StreamBlock], chunks: ChunkReader, queue_id: i64, timestamp_ms: i64
) -> i64 | None:
    """Return the offset of the first message received at or after a time, or None.

    `blocks` are those of the stream with that `queue_id`, and `chunks` reads them from files.
    """
    place = _place_in_time(blocks, timestamp_ms)
    if place is None:
        return None
    block = blocks[place]
    for offset, taken_ms in _times(block, chunks, queue_id):
        if taken_ms >= timestamp_ms:
            return offset
    # Readers of a damaged block skip its lost messages, which are then reported.
    return block.first


def end_in_time(
    blocks: list[StreamBlock], chunks: ChunkReader, queue_id: i64, timestamp_ms: i64
) -> i64 | None:
    """Return the offset after the last message received before a time, or None.

    All messages from that offset on were received at or after the time, even if the clock was set
    back.  All blocks after that offset are examined by the times of their oldest messages.
    """
    place: i64 = len(blocks) - 1
    while place >= 0 and _oldest(blocks[place]) >= timestamp_ms:
        place -= 1
    if place < 0:
        return None
    block = blocks[place]
    for offset, taken_ms in reversed(_times(block, chunks, queue_id)):
        if taken_ms < timestamp_ms:
            return offset + 1
    return block.end


def block_in_time(blocks: list[StreamBlock], timestamp_ms: i64) -> i64 | None:
    """Return the first offset of the block with the first message at or after a time, or None.

    Nothing is read from disk.
    """
    place = _place_in_time(blocks, timestamp_ms)
    return None if place is None else blocks[place].first


def _place_in_time(blocks: list[StreamBlock], timestamp_ms: i64) -> i64 | None:
    """Return the place of the first block that reaches a time, or None."""
    place: i64 = bisect_left(blocks, int(timestamp_ms), key=_newest)
    # Retention may have dropped earlier blocks; blocks are skipped only if the clock was set back.
    while place < len(blocks) and blocks[place].timestamp_max < timestamp_ms:
        place += 1
    if place >= len(blocks) or blocks[place].count == 0:
        return None
    return place


def _newest(block: StreamBlock) -> int:
    """Return the time of the newest message up to the end of a block."""
    return int(max(block.timestamp_before, block.timestamp_max))


def _oldest(block: StreamBlock) -> i64:
    """Return the time of the oldest message of a block, or NEVER if it has none."""
    ref = block.ref
    if ref is not None:
        return ref.min_timestamp
    messages = block.messages or ()
    return min((message.timestamp_ms for message in messages if message is not None), default=NEVER)


def _times(block: StreamBlock, chunks: ChunkReader, queue_id: i64) -> list[tuple[int, int]]:
    """Return the offset and time of each message of a block; nothing for a damaged block."""
    messages = block.messages
    if messages is not None:
        return [
            (int(offset), int(message.timestamp_ms))
            for offset, message in enumerate(messages, int(block.first))
            if message is not None
        ]
    ref = block.ref
    assert ref is not None
    chunk = chunk_if_true(queue_id, ref, chunks.read(queue_id, ref, 0))
    if chunk is None:
        return []
    return [(int(chunk.sequence(at)), int(chunk.timestamp_ms(at))) for at in range(chunk.count)]
