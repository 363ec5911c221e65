"""Writes, reads and removes chunk files, in threads for disk I/O.

Invariant: a failed read counts as damage of the chunk; a failed write stops the broker.
"""

from __future__ import annotations

import time

from leveret.broker.scheduler.effects import ChunkReader, DamagedChunk
from leveret.store.disk import Disk
from leveret.store.recovery.mending import heal, read_best
from leveret.store.segments.segments import ChunkRef, read_if_readable, read_part_if_readable
from leveret.store.segments.spill import SpillBatch
from leveret.store.segments.spill_files import SpillFiles


class ChunkFiles(ChunkReader):
    """The chunk files of one data directory.  Each method is called by one thread at a time."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        #: The seed of the digests in the store; set after recovery.
        self.seed = 0
        self._disk = disk
        #: Damaged chunks whose messages were all found elsewhere, for the broker to report.
        self._mended: list[DamagedChunk] = []
        self._spilled = SpillFiles(disk)

    def write(self, batch: SpillBatch) -> None:
        """Write chunks.  Raises: StorageFailure."""
        self._spilled.write(batch)

    def remove(self, numbers: list[int]) -> None:
        """Remove temporary files.  Raises: StorageFailure."""
        self._spilled.remove(numbers)

    def read(self, owner: int, ref: ChunkRef, levels: int) -> bytes:
        """Return the bytes of a chunk, fewer if it is unreadable, and repair it if possible."""
        began = time.monotonic_ns()
        best = read_best(self._disk, self.seed, owner, ref, levels)
        self.count_read(len(best.data), time.monotonic_ns() - began)
        if best.damaged is not None and best.whole:
            what = f"queue {owner}: {ref} was damaged, and its messages were found elsewhere"
            self._mended.append(DamagedChunk(ref, best.damaged, what, 0))
            if best.same:
                # The other copy will be removed, so this one must be repaired.
                heal(self._disk, ref, best.data)
        return best.data

    def take_mended(self) -> list[DamagedChunk]:
        """Return the damaged chunks whose messages were found elsewhere since the last call."""
        taken, self._mended = self._mended, []
        return taken

    def read_part(self, owner: int, ref: ChunkRef, at: int, size: int) -> bytes:
        """Return `size` bytes of a stream's chunk from `at` on, fewer if they are unreadable.

        A read of the whole chunk repairs it if possible, like `read`.
        """
        if at == 0 and size >= ref.size:
            data = self.read(owner, ref, 0)
            # The answer must have the announced number of bytes.
            return data if len(data) == ref.size else read_if_readable(self._disk, ref)
        began = time.monotonic_ns()
        data = read_part_if_readable(self._disk, ref, at, size)
        self.count_read(len(data), time.monotonic_ns() - began)
        return data

    def close(self) -> None:
        """Close the open files."""
        self._spilled.close()
