"""Chunks that queues write when their memory is full: they get a place at once, the bytes follow.

A chunk is added, and has its reference from then on; its bytes wait here until the shell takes them
to the thread that writes and, where they are to survive, syncs them (`spill_files.py`).  When that
is done their owner hears of it.  Checkpoints write files of their own (`checkpoint.py`).

It is not the files: no I/O here.

Invariants: a file is written front to back by one thread; what is `temporary` lies in files apart,
which go when nothing in them is used any more.  `submitted` and `completed` count batches: all that
was added before `submit` is durable when `completed` has reached what that returned.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import ChunkBuilder
from leveret.limits import SEGMENT_FILE_BYTES, SPILL_BATCH_BYTES, SPILL_BYTES_MAX
from leveret.store.segments.segments import ChunkRef, SegmentNumbers, chunk_ref, moved_ref
from leveret.store.segments.use import SegmentUse


@mypyc_attr(allow_interpreted_subclasses=True)
class SpillOwner:
    """Who wants to know when its chunk is durable."""

    def spilled(self, ref: ChunkRef) -> None:
        """Hear that the chunk is where `ref` points (and synced, unless it is temporary)."""
        raise RuntimeError("an owner of a chunk hears when it is written")


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
    """What waits to be written, and the files that are written to."""

    def __init__(self, numbers: SegmentNumbers) -> None:
        self.numbers = numbers
        self.use = SegmentUse()
        #: Bytes that were added and are not written yet.
        self.unwritten_bytes: i64 = 0
        self.submitted: i64 = 0
        self.completed: i64 = 0
        #: Files that hold chunks added since the last call of `take_files`.
        self.files: set[int] = set()
        #: Temporary files that nothing uses any more.
        self.unused: list[int] = []
        self._waiting: list[SpillBatch] = []
        #: The file of the batch that was taken and is not written.
        self._under_way: i64 = -1
        self._file: i64 = -1
        self._position: i64 = 0
        self._temporary: i64 = -1
        self._temporary_position: i64 = 0
        #: How many chunks of each temporary file are used.
        self._used: dict[int, int] = {}

    def add(self, builder: ChunkBuilder, owner: SpillOwner, temporary: bool) -> ChunkRef:
        """Give the chunk in `builder` its place; `owner` hears when it is written."""
        parts = builder.parts()
        size: i64 = 0
        for part in parts:
            size += len(part)
        file_number, position = self._place(size, temporary)
        ref = chunk_ref(builder, file_number, position, size, temporary)
        self._queue(ref, parts, owner)
        return ref

    def copy(self, ref: ChunkRef, data: bytes, owner: SpillOwner) -> ChunkRef:
        """Give a chunk's bytes another place as they are; `owner` hears when it is written."""
        file_number, position = self._place(len(data), False)
        copied = moved_ref(ref, file_number, position)
        self._queue(copied, [data], owner)
        return copied

    def _queue(self, ref: ChunkRef, parts: list[bytes], owner: SpillOwner) -> None:
        """Have a chunk written."""
        self.use.wrote(ref)
        batch = self._batch(ref)
        batch.parts.extend(parts)
        batch.size += ref.size
        batch.owners.append((owner, ref))
        self.unwritten_bytes += ref.size

    def _place(self, size: i64, temporary: bool) -> tuple[i64, i64]:
        """Return the file and the position of a chunk of that size."""
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
        """Return the batch that takes the chunk."""
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
        """Tell whether even a checkpoint waits: twice what stops publishers is to be written."""
        return self.unwritten_bytes > 2 * SPILL_BYTES_MAX

    @property
    def waits(self) -> bool:
        """Tell whether there is a batch to write."""
        return bool(self._waiting)

    def take(self) -> SpillBatch:
        """Return the next batch to write; `written` ends it."""
        batch = self._waiting.pop(0)
        self._under_way = batch.file_number
        return batch

    def written(self, batch: SpillBatch) -> None:
        """Take note that a batch is written, and tell the owners."""
        self.completed = batch.number
        self._under_way = -1
        self.unwritten_bytes -= batch.size
        for owner, ref in batch.owners:
            owner.spilled(ref)

    def release(self, ref: ChunkRef) -> None:
        """Take note that a chunk is not used any more."""
        if not ref.temporary:
            return
        number = int(ref.file_number)
        left = self._used.get(number, 0) - 1
        if left > 0:
            self._used[number] = left
            return
        if number == self._temporary:
            # What comes next goes to a file of its own, so that this one need not wait for it.
            self._temporary = -1
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._used.pop(number, None)
        self.unused.append(number)

    def take_files(self) -> set[int]:
        """Return the files written to since the last call; what is added next begins a new one."""
        files, self.files = self.files, set()
        self._file = -1
        return files

    def take_unused(self) -> list[int]:
        """Return the temporary files to remove: those of which nothing is to be written."""
        waiting = {int(batch.file_number) for batch in self._waiting}
        if self._under_way >= 0:
            waiting.add(int(self._under_way))
        unused = [number for number in self.unused if number not in waiting]
        self.unused = [number for number in self.unused if number in waiting]
        return unused
