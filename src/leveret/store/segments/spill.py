"""Spilled chunks, which queues write when their memory is full.

A chunk gets its position and reference as soon as it is added.  Its bytes are queued until the
event loop passes them to the thread that writes and, unless they are temporary, syncs them
(`spill_files.py`).  Then the owner is notified.  Checkpoints write their own files (`checkpoint/`).

This module does no I/O.

Invariants: one thread writes a file from front to back.  `temporary` chunks are in separate files,
which are removed when none of their chunks is used.  `submitted` and `completed` count batches: all
chunks added so far are durable when `completed` reaches the current value of `submitted`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import ChunkBuilder
from leveret.limits import SPILL_BATCH_BYTES, SPILL_BYTES_MAX
from leveret.store.segments.segments import ChunkRef, SegmentNumbers, chunk_ref, moved_ref
from leveret.store.segments.use import SegmentUse

#: The size from which no more chunks are added to a segment file.
SEGMENT_FILE_BYTES: Final = 64 * 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class SpillOwner:
    """An owner that is notified when its chunk is durable."""

    @abstractmethod
    def spilled(self, ref: ChunkRef) -> None:
        """Record that the chunk is at `ref` (and synced, unless it is temporary)."""


@final
class SpillBatch:
    """Chunks to append to one file in one write."""

    def __init__(self, number: i64, file_number: i64, temporary: bool) -> None:
        self.number: Final[i64] = number
        self.file_number: Final[i64] = file_number
        self.temporary: Final = temporary
        self.parts: list[bytes] = []
        self.size: i64 = 0
        self.owners: list[tuple[SpillOwner, ChunkRef]] = []


@final
class Spill:
    """The chunks to be written, and their files."""

    def __init__(self, numbers: SegmentNumbers) -> None:
        self.numbers = numbers
        self.use = SegmentUse()
        #: The number of bytes that were added but are not written yet.
        self.unwritten_bytes: i64 = 0
        self.submitted: i64 = 0
        self.completed: i64 = 0
        #: Files that contain chunks added since the last call of `take_files`.
        self.files: set[int] = set()
        #: Files with chunks of a checkpoint that are not written yet.
        self.checkpointed: set[int] = set()
        #: Temporary files that are no longer used.
        self.unused: list[int] = []
        self._waiting: list[SpillBatch] = []
        #: The file of the batch that is being written.
        self._under_way: i64 = -1
        self._file: i64 = -1
        self._position: i64 = 0
        self._temporary: i64 = -1
        self._temporary_position: i64 = 0
        #: The number of used chunks in each temporary file.
        self._used: dict[int, int] = {}

    def add(self, builder: ChunkBuilder, owner: SpillOwner, temporary: bool) -> ChunkRef:
        """Assign a position to a builder's chunk; `owner` is notified when it is written."""
        parts = builder.parts()
        size: i64 = 0
        for part in parts:
            size += len(part)
        file_number, position = self._place(size, temporary)
        ref = chunk_ref(builder, file_number, position, size, temporary)
        self._queue(ref, parts, owner)
        return ref

    def copy(self, ref: ChunkRef, data: bytes, owner: SpillOwner) -> ChunkRef:
        """Assign another position to a chunk; `owner` is notified when the copy is written."""
        file_number, position = self._place(len(data), False)
        copied = moved_ref(ref, file_number, position)
        self._queue(copied, [data], owner)
        return copied

    def _queue(self, ref: ChunkRef, parts: list[bytes], owner: SpillOwner) -> None:
        """Queue a chunk for writing."""
        self.use.wrote(ref)
        batch = self._batch(ref)
        batch.parts.extend(parts)
        batch.size += ref.size
        batch.owners.append((owner, ref))
        self.unwritten_bytes += ref.size

    def _place(self, size: i64, temporary: bool) -> tuple[i64, i64]:
        """Return the file and the position for a chunk of `size` bytes."""
        if temporary:
            if self._temporary < 0 or self._temporary_position >= SEGMENT_FILE_BYTES:
                self._temporary = self.numbers.take()
                self._temporary_position = 0
            position = self._temporary_position
            self._temporary_position += size
            number = int(self._temporary)
            self._used[number] = self._used.get(number, 0) + 1
            return self._temporary, position
        if self._file < 0 or self._position >= SEGMENT_FILE_BYTES:
            self._file = self.numbers.take()
            self._position = 0
        self.files.add(int(self._file))
        position = self._position
        self._position += size
        return self._file, position

    def _batch(self, ref: ChunkRef) -> SpillBatch:
        """Return the batch for the chunk."""
        waiting = self._waiting
        if waiting:
            last = waiting[-1]
            if (
                last.file_number == ref.file_number
                and last.temporary == ref.temporary
                and last.size < SPILL_BATCH_BYTES
            ):
                return last
        self.submitted += 1
        batch = SpillBatch(self.submitted, ref.file_number, ref.temporary)
        waiting.append(batch)
        return batch

    @property
    def overfull(self) -> bool:
        """Whether checkpoints must wait, at twice the unwritten bytes that block publishers."""
        return self.unwritten_bytes > 2 * SPILL_BYTES_MAX

    @property
    def waits(self) -> bool:
        """Whether there is a batch to write."""
        return bool(self._waiting)

    def take(self) -> SpillBatch:
        """Return the next batch to write, after which the caller must call `written`."""
        batch = self._waiting.pop(0)
        self._under_way = batch.file_number
        return batch

    def written(self, batch: SpillBatch) -> None:
        """Mark a batch as written, and notify the owners."""
        self.completed = batch.number
        self._under_way = -1
        self.unwritten_bytes -= batch.size
        for owner, ref in batch.owners:
            owner.spilled(ref)

    def release(self, ref: ChunkRef) -> None:
        """Mark a chunk as no longer used."""
        if not ref.temporary:
            return
        number = int(ref.file_number)
        left = self._used.get(number, 0) - 1
        if left > 0:
            self._used[number] = left
            return
        if number == self._temporary:
            # Later chunks are written to another file, so that this one can be removed soon.
            self._temporary = -1
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._used.pop(number, None)
        self.unused.append(number)

    def take_files(self) -> set[int]:
        """Return the files used since the last call; the next chunk begins a new file."""
        files, self.files = self.files, set()
        self._file = -1
        return files

    def take_unused(self) -> list[int]:
        """Return the unused temporary files that have no chunks to be written."""
        waiting = {int(batch.file_number) for batch in self._waiting}
        if self._under_way >= 0:
            waiting.add(int(self._under_way))
        unused = [number for number in self.unused if number not in waiting]
        self.unused = [number for number in self.unused if number in waiting]
        return unused
