"""Compaction, which copies the live data of mostly dead segment files to new files.

A checkpoint records how much of each file is live.  Afterwards the chunks of files worth compacting
are read one after the other and written again without dead messages, and their queues are notified
of the new places.  Queues continue to work during compaction.  The old files are removed two
checkpoints later, when no snapshot and no kept journal record refers to them.

The shell reads and writes the chunks (`core.wanted`, `core.spill`).

Invariants: a message stays in its old place until the new one is synced; a chunk that its queue has
dropped in the meantime is not moved.  A damaged chunk is not moved either: its damage is found,
reported and quarantined when the chunk is read for its messages.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.backlog.damage import whole_chunk
from leveret.broker.backlog.stored import StoredChunk
from leveret.broker.core import Core
from leveret.broker.delayed.delayed import ChunkedQueue
from leveret.broker.scheduler.effects import ChunkWanted
from leveret.chunk import Chunk, ChunkBuilder
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import SpillOwner
from leveret.store.segments.use import FileUse, row_bytes

#: The space for copies if the available space is unknown.
UNBOUNDED: Final = 1 << 62

if TYPE_CHECKING:
    from leveret.broker.stream.block import StreamBlock
    from leveret.broker.stream.stream import Stream


class Move(ChunkWanted):
    """One chunk that is being moved to another file."""

    def __init__(self, compaction: Compaction, owner: i64, ref: ChunkRef) -> None:
        super().__init__(owner, ref, -1)
        self.compaction = compaction

    @abstractmethod
    def alive(self) -> bool:
        """Return whether the chunk is still used at its old place."""

    @abstractmethod
    def rewrite(self, data: bytes) -> bool:
        """Request that the chunk be written again; return False if that is impossible."""

    @abstractmethod
    def written(self, ref: ChunkRef) -> None:
        """Handle the end of the write to the new place."""

    def arrived(self, data: bytes) -> None:
        """Write the data that was read."""
        if not self.alive() or not self.rewrite(data):
            self.compaction.next()


@final
class MovedChunk(SpillOwner):
    """The waiter for the write of a chunk to its new place."""

    def __init__(self, move: Move) -> None:
        self.move = move

    def spilled(self, ref: ChunkRef) -> None:
        """Notify the owner, and continue with the next chunk."""
        if self.move.alive():
            self.move.written(ref)
        self.move.compaction.next()


@final
class QueueMove(Move):
    """A chunk of a queue; dead messages are left out of the copy."""

    def __init__(self, compaction: Compaction, queue: ChunkedQueue, stored: StoredChunk) -> None:
        super().__init__(compaction, queue.queue_id, stored.ref)
        self.queue = queue
        self.stored = stored

    def alive(self) -> bool:
        """Return whether the queue still has the chunk at that place."""
        stored = self.stored
        return not self.queue.deleted and stored.kept and stored.ref is self.ref

    def rewrite(self, data: bytes) -> bool:
        """Write the messages that were not removed."""
        queue = self.queue
        chunk = whole_chunk(queue.queue_id, self.ref, data)
        if chunk is None:
            return False
        builder = self._live(chunk)
        if builder.count == 0:
            return False
        queue.core.spill.add(builder, MovedChunk(self), False)
        return True

    def _live(self, chunk: Chunk) -> ChunkBuilder:
        """Return the live messages of the chunk."""
        gone = self.queue.stored.gone
        stored = self.queue.stored
        builder = ChunkBuilder(self.queue.queue_id, stored.keeps_all, True)
        for index in range(chunk.count):
            sequence = chunk.sequence(index)
            # Transient messages do not outlive the process that received them.
            ended = self.stored.restored and not stored.outlives(chunk, index)
            if gone.has(sequence) or ended:
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
        """Notify the queue."""
        self.queue.stored.replace(self.stored, ref)


@final
class BlockMove(Move):
    """A chunk of a stream, which is all live, so that its bytes are copied unchanged."""

    def __init__(
        self, compaction: Compaction, stream: Stream, block: StreamBlock, ref: ChunkRef
    ) -> None:
        super().__init__(compaction, stream.queue_id, ref)
        self.stream = stream
        self.block = block

    def alive(self) -> bool:
        """Return whether the stream still has the block at that place."""
        stream = self.stream
        kept = self.block.first + self.block.count > stream.first_offset
        return not stream.deleted and kept and self.block.ref is self.ref

    def rewrite(self, data: bytes) -> bool:
        """Copy the chunk if it is intact."""
        chunk = whole_chunk(self.stream.queue_id, self.ref, data)
        if chunk is None or len(data) != self.ref.size:
            return False
        self.stream.core.spill.copy(self.ref, chunk.data, MovedChunk(self))
        return True

    def written(self, ref: ChunkRef) -> None:
        """Notify the stream."""
        self.block.ref = ref


@final
class Compaction:
    """The moves after a checkpoint, which notes the chunks; `begin` selects the files."""

    def __init__(self, core: Core, rows_min: i64, live_percent: i64) -> None:
        self.core = core
        self.rows_min: i64 = rows_min
        self.live_percent: i64 = live_percent
        #: The chunks that are still to be moved, and their number at the beginning.
        self.moves: list[Move] = []
        self.planned: i64 = 0
        self._uses: dict[int, FileUse] = {}
        self._noted: list[Move] = []

    def note_chunk(self, queue: ChunkedQueue, stored: StoredChunk) -> None:
        """Record a chunk of a queue."""
        self._note(stored.ref, stored.live)
        self._noted.append(QueueMove(self, queue, stored))

    def note_block(self, stream: Stream, block: StreamBlock) -> None:
        """Record a chunk of a stream."""
        ref = block.ref
        if ref is not None:
            self._note(ref, ref.count)
            self._noted.append(BlockMove(self, stream, block, ref))

    def _note(self, ref: ChunkRef, live: i64) -> None:
        number = int(ref.file_number)
        use = self.core.spill.use.file(ref)
        if number not in self._uses:
            self._uses[number] = use
            use.live_bytes = 0
        use.live_bytes += live * row_bytes(ref)

    def begin(self, below: i64, room: i64 = UNBOUNDED) -> bool:
        """Begin to move chunks out of files numbered below `below`; return whether there are any.

        The copies take at most `room` bytes, because the emptied files are removed only later.
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
        """Return the files worth compacting, preferring those with the least data to copy."""
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
        """Continue with the next chunk that is still used."""
        while self.moves:
            move = self.moves.pop()
            if move.alive():
                self.core.wanted.append(move)
                return

    @property
    def done(self) -> bool:
        """Return whether no chunk is left."""
        return not self.moves
