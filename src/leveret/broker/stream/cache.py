"""Blocks of streams that files have and that stay in memory for readers, of all streams together.

A block comes here when it was written or read back, and goes when others were used since it was and
there is no more room.  So the tail of a busy stream is read from memory, many readers of one place
share a block, and a slow reader costs the memory of none.

Invariants: what is here has its bytes in a file and is seen; all of it takes `bytes_max` at most,
or one block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.limits import MESSAGE_OVERHEAD_BYTES, STREAM_CACHE_BYTES_MAX

if TYPE_CHECKING:
    from leveret.broker.core.turn import Turn
    from leveret.broker.stream.block import Block


@final
class StreamCache:
    """The blocks, the one used longest ago first."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.blocks: dict[Block, None] = {}
        #: Memory of what is here, and how much of it is bodies and properties.
        self.bytes: i64 = 0
        self.message_bytes: i64 = 0
        self.bytes_max: i64 = STREAM_CACHE_BYTES_MAX

    def put(self, block: Block) -> None:
        """Keep the messages of a block for a while; their memory is counted already."""
        self.blocks[block] = None
        self.bytes += block.size + block.count * MESSAGE_OVERHEAD_BYTES
        self.message_bytes += block.size
        while self.bytes > self.bytes_max and len(self.blocks) > 1:
            self.drop(next(iter(self.blocks)))

    def use(self, block: Block) -> None:
        """Note that a block was read."""
        if block in self.blocks:
            del self.blocks[block]
            self.blocks[block] = None

    def drop(self, block: Block) -> None:
        """Let go of a block's memory, if it is here."""
        if block not in self.blocks:
            return
        del self.blocks[block]
        self.bytes -= block.size + block.count * MESSAGE_OVERHEAD_BYTES
        self.message_bytes -= block.size
        block.messages = None
        self.turn.held_bytes -= block.size
        self.turn.held_messages -= block.count
