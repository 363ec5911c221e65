"""Compaction: what lives in segment files that are mostly dead is copied forward, chunk by chunk.

A checkpoint notes how much of each file lives; when it is done, the chunks of files that are worth
it are read one after the other, written again without what is gone, and their queues told where
they lie.  Queues go on meanwhile.  The old files go two checkpoints later, when no snapshot and no
record of the journal that is kept names them.

It is not the reading and writing: those are effects (`turn.wanted`, `turn.spill`).

Invariants: a message lies in its old place until the new one is synced; a chunk that its queue has
forgotten meanwhile is left alone.  A chunk that does not check is not moved: it is found, told of
and kept when it is read for its messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.backlog.stored import StoredChunk
from leveret.broker.classic.chunked import ChunkedQueue
from leveret.broker.core.effects import ChunkWanted
from leveret.broker.core.turn import Turn
from leveret.chunk import Chunk, ChunkBuilder, ChunkDamaged
from leveret.store.segments.segments import ChunkRef, check_chunk
from leveret.store.segments.spill import SpillOwner
from leveret.store.segments.use import FileUse, row_bytes

#: Room for copies where nobody says how much there is.
UNBOUNDED: Final = 1 << 62

if TYPE_CHECKING:
    from leveret.broker.stream.block import Block
    from leveret.broker.stream.stream import Stream


class Move(ChunkWanted):
    """One chunk on its way to another file."""

    def __init__(self, compaction: Compaction, ref: ChunkRef) -> None:
        super().__init__(ref)
        self.compaction = compaction

    def alive(self) -> bool:
        """Tell whether the chunk is still used where it lay."""
        raise RuntimeError("a move knows whose chunk it moves")

    def rewrite(self, data: bytes) -> bool:
        """Have the chunk written again; False where that cannot be."""
        raise RuntimeError("a move knows how its chunk is written")

    def written(self, ref: ChunkRef) -> None:
        """Let the chunk lie at its new place."""
        raise RuntimeError("a move knows whose chunk it moves")

    def arrived(self, data: bytes) -> None:
        """Write what was read."""
        if not self.alive() or not self.rewrite(data):
            self.compaction.next()


@final
class Moved(SpillOwner):
    """Hears that a chunk is at its new place."""

    def __init__(self, move: Move) -> None:
        self.move = move

    def spilled(self, ref: ChunkRef) -> None:
        """Tell the owner, and go on with the next chunk."""
        if self.move.alive():
            self.move.written(ref)
        self.move.compaction.next()


@final
class QueueMove(Move):
    """A chunk of a queue: what is gone of it is left behind."""

    def __init__(self, compaction: Compaction, queue: ChunkedQueue, stored: StoredChunk) -> None:
        super().__init__(compaction, stored.ref)
        self.queue = queue
        self.stored = stored

    def alive(self) -> bool:
        """Tell whether the queue has the chunk still, at that place."""
        stored = self.stored
        return not self.queue.deleted and stored.kept and stored.ref is self.ref

    def rewrite(self, data: bytes) -> bool:
        """Write the messages that are not gone."""
        queue = self.queue
        try:
            chunk = check_chunk(data, self.ref, queue.queue_id)
        except ChunkDamaged:
            return False
        if chunk.damaged():
            return False
        builder = self._live(chunk)
        if builder.count == 0:
            return False
        queue.turn.spill.add(builder, Moved(self), False)
        return True

    def _live(self, chunk: Chunk) -> ChunkBuilder:
        """Return what lives of the chunk."""
        gone = self.queue.stored.gone
        ended = self.stored.restored and not self.queue.keeps_all
        builder = ChunkBuilder(self.queue.queue_id, False, True)
        for index in range(chunk.count):
            sequence = chunk.sequence(index)
            # What is not persistent ended with the process that took it.
            if gone.has(sequence) or (ended and not chunk.persistent(index)):
                continue
            builder.add(
                sequence,
                chunk.message(index),
                chunk.delivery_count(index),
                chunk.expiry_ms(index),
                chunk.priority(index),
            )
        return builder

    def written(self, ref: ChunkRef) -> None:
        """Tell the queue."""
        self.queue.stored.replace(self.stored, ref)


@final
class BlockMove(Move):
    """A chunk of a stream: all of it lives, so its bytes are copied as they are."""

    def __init__(self, compaction: Compaction, stream: Stream, block: Block, ref: ChunkRef) -> None:
        super().__init__(compaction, ref)
        self.stream = stream
        self.block = block

    def alive(self) -> bool:
        """Tell whether the stream has the block still, at that place."""
        stream = self.stream
        kept = self.block.first + self.block.count > stream.first_offset
        return not stream.deleted and kept and self.block.ref is self.ref

    def rewrite(self, data: bytes) -> bool:
        """Copy the chunk if it checks."""
        try:
            chunk = check_chunk(data, self.ref, self.stream.queue_id)
        except ChunkDamaged:
            return False
        if chunk.damaged() or len(data) != self.ref.size:
            return False
        self.stream.turn.spill.copy(self.ref, data, Moved(self))
        return True

    def written(self, ref: ChunkRef) -> None:
        """Tell the stream."""
        self.block.ref = ref


@final
class Compaction:
    """The moves of one round.  A checkpoint notes what there is; `begin` picks what is worth it."""

    def __init__(self, turn: Turn, rows_min: i64, live_percent: i64) -> None:
        self.turn = turn
        self.rows_min: i64 = rows_min
        self.live_percent: i64 = live_percent
        #: Chunks that are still to be moved, and how many there were.
        self.moves: list[Move] = []
        self.planned: i64 = 0
        self._uses: dict[int, FileUse] = {}
        self._noted: list[Move] = []

    def note_queue(self, queue: ChunkedQueue) -> None:
        """Note the chunks of a queue."""
        for stored in queue.stored.items:
            if not stored.ref.temporary:
                self._note(stored.ref, stored.live)
                self._noted.append(QueueMove(self, queue, stored))

    def note_block(self, stream: Stream, block: Block) -> None:
        """Note a chunk of a stream."""
        ref = block.ref
        if ref is not None:
            self._note(ref, ref.count)
            self._noted.append(BlockMove(self, stream, block, ref))

    def _note(self, ref: ChunkRef, live: i64) -> None:
        number = int(ref.file_number)
        use = self.turn.spill.use.file(ref)
        if number not in self._uses:
            self._uses[number] = use
            use.live_bytes = 0
        use.live_bytes += live * row_bytes(ref)

    def begin(self, below: i64, room: i64 = UNBOUNDED) -> bool:
        """Begin to move what is worth it of files with lower numbers; tell whether there is any.

        The copies take `room` at most: the files that they empty go only later.
        """
        noted = self._noted
        self._noted = []
        files = self._worth(below, room)
        for move in noted:
            if int(move.ref.file_number) in files:
                self.moves.append(move)
        self._uses = {}
        self.moves.reverse()
        self.planned = len(self.moves)
        if self.moves:
            self.next()
        return self.planned > 0

    def _worth(self, below: i64, room: i64) -> set[int]:
        """Return the files that are worth it, those with the least to copy first."""
        worth: list[tuple[int, int]] = []
        for number, use in self._uses.items():
            if number < below and use.worth(self.rows_min, self.live_percent):
                worth.append((int(use.live_bytes), number))
        worth.sort()
        files: set[int] = set()
        for live_bytes, number in worth:
            room -= live_bytes
            if room < 0:
                break
            files.add(number)
        return files

    def next(self) -> None:
        """Go on with the next chunk that is still used."""
        while self.moves:
            move = self.moves.pop()
            if move.alive():
                self.turn.wanted.append(move)
                return

    @property
    def done(self) -> bool:
        """Tell whether nothing is left to begin with."""
        return not self.moves
