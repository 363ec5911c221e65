"""Restores a stream from its chunks, without reading them, and from messages in the journal.

Invariant: blocks are in the order of their offsets, regardless of the order of their records.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.backlog.window import RequeuedMessage
from leveret.broker.stream.block import stored_block
from leveret.broker.stream.stream import Stream
from leveret.message import Message
from leveret.store.segments.segments import ChunkRef


def restore_stream(
    stream: Stream,
    chunks: list[ChunkRef],
    messages: list[RequeuedMessage],
    first_offset: i64,
    next_offset: i64,
) -> None:
    """Add chunks, and messages that are in no chunk, to a stream; all of them are synced."""
    place: i64 = 0
    for ref in sorted(chunks, key=_first):
        while place < len(messages) and messages[place].sequence < ref.first:
            _restore_message(stream, messages[place].sequence, messages[place].message)
            place += 1
        _restore_chunk(stream, ref)
    for item in messages[place:]:
        _restore_message(stream, item.sequence, item.message)
    _restore_end(stream, first_offset, next_offset)


def _first(ref: ChunkRef) -> int:
    return int(ref.first)


def _restore_chunk(stream: Stream, ref: ChunkRef) -> None:
    """Add a block that is in a file."""
    use = stream.core.spill.use
    use.wrote(ref)
    if ref.first < stream.next_offset:
        return
    use.lives(ref, ref.count)
    block = stored_block(ref)
    stream.add_block(block)
    stream.size += block.size
    stream.next_offset = block.end


def _restore_message(stream: Stream, offset: i64, message: Message) -> None:
    """Add a message from the journal; damage may have left a gap before it."""
    if offset < stream.next_offset:
        return
    if offset > stream.next_offset or stream.last.ref is not None:
        stream.begin_block(offset)
        stream.next_offset = offset
    stream.append(message)


def _restore_end(stream: Stream, first_offset: i64, next_offset: i64) -> None:
    """Set the first and the next offset."""
    stream.next_offset = max(stream.next_offset, next_offset)
    last = stream.last
    if last.ref is not None or last.end != stream.next_offset:
        stream.begin_block(stream.next_offset)
    blocks = stream.blocks
    gone: i64 = 0
    while gone < len(blocks) - 1 and blocks[gone].end <= first_offset:
        stream.size -= blocks[gone].size
        stream.forget(blocks[gone])
        gone += 1
    del blocks[:gone]
    stream.first_offset = max(blocks[0].first, first_offset)
    stream.synced_end = stream.visible_end = stream.next_offset
