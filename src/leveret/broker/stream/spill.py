"""A full block on its way to a file: who hears that it is written, and the record that says so.

The record comes a group after the block's messages (`spill_record.py` says why), so a crash finds
either the messages in the journal, or both, or the chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.chunk import ChunkBuilder
from leveret.store.journal.journal import Journal, LateRecord
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import SpillOwner

if TYPE_CHECKING:
    from leveret.broker.stream.block import Block
    from leveret.broker.stream.stream import Stream


@final
class BlockSpill(SpillOwner):
    """Hears that a block is written."""

    def __init__(self, stream: Stream, block: Block) -> None:
        self.stream: Final = stream
        self.block: Final = block

    def spilled(self, ref: ChunkRef) -> None:
        """Tell the stream."""
        self.stream.spilled(self.block, ref)


@final
class BlockRecord(LateRecord):
    """The record of a block that is written and synced."""

    def __init__(self, stream: Stream, block: Block, ref: ChunkRef) -> None:
        self.stream: Final = stream
        self.block: Final = block
        self.ref: Final = ref

    def append_to(self, journal: Journal) -> None:
        """Append it, unless retention took the block meanwhile."""
        if not self.stream.gone(self.block):
            journal.spill(self.stream.queue_id, self.ref, [])


def spill(stream: Stream, block: Block) -> None:
    """Give a block in memory its place in a segment file; its memory goes once it lies there."""
    messages = block.messages
    assert messages is not None
    builder = ChunkBuilder(stream.queue_id, True)
    offset: i64 = block.first
    for message in messages:
        if message is not None:
            builder.add(offset, message)
        offset += 1
    turn = stream.turn
    ref = turn.spill.add(builder, BlockSpill(stream, block), False)
    block.ref = ref
    turn.spill.use.lives(ref, ref.count)
    turn.unchunked_bytes -= block.size
