"""The cache of stream blocks that are stored in files, shared by all streams.

A block is added when it is written or read back, and the least recently used block is dropped when
the cache is full.  So the tail of a busy stream is read from memory, many readers at one offset
share a block, and a slow reader uses no memory.

Invariants: a cached block is in a file and visible; the blocks take at most `bytes_max`, or there
is only one.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.scheduler.memory import Memory
from leveret.limits import MESSAGE_OVERHEAD_BYTES, STREAM_CACHE_BYTES_MAX


class CachedBlock:
    """A block of a stream, as seen by the cache."""

    def __init__(self) -> None:
        self.count: i64 = 0
        #: Bytes of bodies and properties.
        self.size: i64 = 0

    def unload(self) -> None:
        """Drop the messages from memory; the file contains them."""


@final
class StreamCache:
    """The cached blocks, the least recently used first."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.blocks: dict[CachedBlock, None] = {}
        #: Memory of the blocks, and the part of it that is bodies and properties.
        self.bytes: i64 = 0
        self.message_bytes: i64 = 0
        self.bytes_max: i64 = STREAM_CACHE_BYTES_MAX

    def put(self, block: CachedBlock) -> None:
        """Add a block whose memory is already counted."""
        self.blocks[block] = None
        self.bytes += block.size + block.count * MESSAGE_OVERHEAD_BYTES
        self.message_bytes += block.size
        while self.bytes > self.bytes_max and len(self.blocks) > 1:
            self.drop(next(iter(self.blocks)))

    def use(self, block: CachedBlock) -> None:
        """Mark a block that is read as the most recently used one."""
        if block in self.blocks:
            del self.blocks[block]
            self.blocks[block] = None

    def drop(self, block: CachedBlock) -> None:
        """Drop a block from the cache and from memory, if it is cached."""
        if block not in self.blocks:
            return
        del self.blocks[block]
        self.bytes -= block.size + block.count * MESSAGE_OVERHEAD_BYTES
        self.message_bytes -= block.size
        block.unload()
        self.memory.release_all(block.count, block.size)
