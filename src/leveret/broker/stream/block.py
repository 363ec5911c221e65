"""Blocks of a stream, which are consecutive messages in memory, in a chunk of a file, or both.

The stream decides when a block is written, read back and unloaded.

Invariants: a block without messages in memory has a reference, and its bytes are written; its
counters are valid with and without messages in memory.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.scheduler.stream_cache import CachedBlock
from leveret.chunk import CHUNK_HEADER_BYTES, ROW_BYTES, ChunkBuilder
from leveret.message import Message
from leveret.store.segments.segments import ChunkRef


@final
class StreamBlock(CachedBlock):
    """Consecutive messages of a stream."""

    def __init__(self, first: i64) -> None:
        super().__init__()
        self.first: i64 = first
        #: The time of the block's newest message, and the newest time in all blocks before it.
        self.timestamp_max: i64 = 0
        self.timestamp_before: i64 = 0
        #: None while the messages are only in the file; a damaged message is None.
        self.messages: list[Message | None] | None = []
        #: The reference of the block's chunk; None while it has no place in a file.
        self.ref: ChunkRef | None = None
        #: True once the bytes are written at the place of the reference.
        self.written = False
        self.wanted = False

    @property
    def end(self) -> i64:
        """The offset after the block's last message."""
        return self.first + self.count

    def add(self, message: Message) -> None:
        """Append a message to a block in memory."""
        messages = self.messages
        assert messages is not None
        self.timestamp_max = max(self.timestamp_max, message.timestamp_ms)
        messages.append(message)
        self.count += 1
        self.size += message.size

    def build(self, builder: ChunkBuilder, first: i64, end: i64) -> ChunkBuilder:
        """Add the messages `first` to `end` - 1 of a block in memory to a chunk, and return it."""
        messages = self.messages
        assert messages is not None
        for offset in range(first, end):
            message = messages[offset - self.first]
            if message is not None:
                builder.add(offset, message)
        return builder

    def unload(self) -> None:
        """Drop the messages from memory; the file contains them."""
        self.messages = None


def first_of(block: StreamBlock) -> int:
    """Return the first offset of a block, the sort key of blocks."""
    return int(block.first)


def stored_block(ref: ChunkRef) -> StreamBlock:
    """Return a block that is in a file."""
    block = StreamBlock(ref.first)
    block.count = ref.last - ref.first + 1
    block.size = stored_size(ref)
    block.timestamp_max = ref.max_timestamp
    block.messages = None
    block.ref = ref
    block.written = True
    return block


def stored_size(ref: ChunkRef) -> i64:
    """Return the bytes of bodies and properties of a stream's chunk."""
    if ref.persistent == ref.count:
        return ref.persistent_bytes
    # A salvage wrote the chunk, and counted only its persistent messages.
    return max(ref.size - CHUNK_HEADER_BYTES - ROW_BYTES * ref.count, 0)
