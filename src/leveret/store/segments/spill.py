"""Chunks that queues write when their memory is full: their places are assigned at once.

A chunk has its reference as soon as it is added; its bytes wait here until the event loop passes
them to the thread that writes and, if they must survive, syncs them (`spill_files.py`).  Then their
owner is notified.  Checkpoints write files of their own (`checkpoint/`).

This module does no I/O.

Invariants: one thread writes a file from front to back; `temporary` chunks are in separate files,
which are removed when nothing in them is used.  `submitted` and `completed` count batches: all
chunks that were added before `submit` are durable when `completed` has reached its result.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import ChunkBuilder
from leveret.limits import SPILL_BATCH_BYTES, SPILL_BYTES_MAX
from leveret.store.segments.segments import ChunkRef, SegmentNumbers, chunk_ref, moved_ref
from leveret.store.segments.use import SegmentUse

#: A segment file of this size takes no more chunks.
SEGMENT_FILE_BYTES: Final = 64 * 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class SpillOwner:
    """An owner that is notified when its chunk is durable."""

    @abstractmethod
    def spilled(self, ref: ChunkRef) -> None:
        """Record that the chunk is at `ref` (and synced, unless it is temporary)."""


@final
class SpillBatch:
    """Chunks to be appended to one file."""

    def __init__(self, number: i64, file_number: i64, temporary: bool) -> None:
        self.number: Final[i64] = number
        self.file_number: Final[i64] = file_number
        self.temporary: Final = temporary
        self.parts: list[bytes] = []
        self.size: i64 = 0
        self.owners: list[tuple[SpillOwner, ChunkRef]] = []


@final
class Spill:
    """The chunks that wait to be written, and the files being written."""

    def __init__(self, numbers: SegmentNumbers) -> None:
        self.numbers = numbers
        self.use = SegmentUse()
        #: Bytes that were added and are not written yet.
        self.unwritten_bytes: i64 = 0
        self.submitted: i64 = 0
        self.completed: i64 = 0
        #: Files that contain chunks added since the last call of `take_files`.
        self.files: set[int] = set()
        #: Files with chunks that a checkpoint has assigned and not written yet.
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
        """Assign a place to the chunk in `builder`; `owner` is notified when it is written."""
        parts = builder.parts()
        size: i64 = 0
        for part in parts:
            size += len(part)
        file_number, position = self._place(size, temporary)
        ref = chunk_ref(builder, file_number, position, size, temporary)
        self._queue(ref, parts, owner)
        return ref

    def copy(self, ref: ChunkRef, data: bytes, owner: SpillOwner) -> ChunkRef:
        """Assign another place to a chunk's bytes; `owner` is notified when they are written."""
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
        """Return the file and the position for a chunk of that size."""
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
        """Return whether even a checkpoint waits, at twice the bytes that block publishers."""
        return self.unwritten_bytes > 2 * SPILL_BYTES_MAX

    @property
    def waits(self) -> bool:
        """Return whether there is a batch to write."""
        return bool(self._waiting)

    def take(self) -> SpillBatch:
        """Return the next batch to write; call `written` after it."""
        batch = self._waiting.pop(0)
        self._under_way = batch.file_number
        return batch

    def written(self, batch: SpillBatch) -> None:
        """Record that a batch is written, and notify the owners."""
        self.completed = batch.number
        self._under_way = -1
        self.unwritten_bytes -= batch.size
        for owner, ref in batch.owners:
            owner.spilled(ref)

    def release(self, ref: ChunkRef) -> None:
        """Record that a chunk is no longer used."""
        if not ref.temporary:
            return
        number = int(ref.file_number)
        left = self._used.get(number, 0) - 1
        if left > 0:
            self._used[number] = left
            return
        if number == self._temporary:
            # Later chunks go to another file, so that this one can be removed soon.
            self._temporary = -1
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._used.pop(number, None)
        self.unused.append(number)

    def take_files(self) -> set[int]:
        """Return the files written to since the last call; later chunks begin a new one."""
        files, self.files = self.files, set()
        self._file = -1
        return files

    def take_unused(self) -> list[int]:
        """Return the temporary files to remove: those with no chunks left to write."""
        waiting = {int(batch.file_number) for batch in self._waiting}
        if self._under_way >= 0:
            waiting.add(int(self._under_way))
        unused = [number for number in self.unused if number not in waiting]
        self.unused = [number for number in self.unused if number in waiting]
        return unused
