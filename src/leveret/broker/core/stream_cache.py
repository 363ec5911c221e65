"""Blocks of streams that files have and that stay in memory for readers, of all streams together.

A block comes here when it was written or read back, and goes when others were used since it was and
there is no more room.  So the tail of a busy stream is read from memory, many readers of one place
share a block, and a slow reader costs the memory of none.

Invariants: what is here has its bytes in a file and is seen; all of it takes `bytes_max` at most,
or one block.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.core.memory import HeldMemory
from leveret.limits import MESSAGE_OVERHEAD_BYTES, STREAM_CACHE_BYTES_MAX


class CachedBlock:
    """A block of a stream as far as the cache knows it."""

    def __init__(self) -> None:
        self.count: i64 = 0
        #: Bytes of bodies and properties.
        self.size: i64 = 0

    def unload(self) -> None:
        """Let go of the messages, which a file has."""


@final
class StreamCache:
    """The blocks, the one used longest ago first."""

    def __init__(self, memory: HeldMemory) -> None:
        self.memory = memory
        self.blocks: dict[CachedBlock, None] = {}
        #: Memory of what is here, and how much of it is bodies and properties.
        self.bytes: i64 = 0
        self.message_bytes: i64 = 0
        self.bytes_max: i64 = STREAM_CACHE_BYTES_MAX

    def put(self, block: CachedBlock) -> None:
        """Keep the messages of a block for a while; their memory is counted already."""
        self.blocks[block] = None
        self.bytes += block.size + block.count * MESSAGE_OVERHEAD_BYTES
        self.message_bytes += block.size
        while self.bytes > self.bytes_max and len(self.blocks) > 1:
            self.drop(next(iter(self.blocks)))

    def use(self, block: CachedBlock) -> None:
        """Note that a block was read."""
        if block in self.blocks:
            del self.blocks[block]
            self.blocks[block] = None

    def drop(self, block: CachedBlock) -> None:
        """Let go of a block's memory, if it is here."""
        if block not in self.blocks:
            return
        del self.blocks[block]
        self.bytes -= block.size + block.count * MESSAGE_OVERHEAD_BYTES
        self.message_bytes -= block.size
        block.unload()
        self.memory.held_bytes -= block.size
        self.memory.held_messages -= block.count
