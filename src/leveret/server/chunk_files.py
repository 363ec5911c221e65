"""The chunks on the disk, for the threads that write, read and keep them, and for those in a hurry.

Invariant: a read that fails costs the chunk, as damage does; a write that fails costs the broker.
"""

from __future__ import annotations

import time

from leveret.broker.core.effects import ChunkReader
from leveret.store.disk import Disk
from leveret.store.segments.segments import ChunkRef, read_if_readable, read_part_if_readable
from leveret.store.segments.spill import SpillBatch
from leveret.store.segments.spill_files import SpillFiles


class ChunkFiles(ChunkReader):
    """The chunks of one data directory.  Each method is called by one thread at a time."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk
        self._spilled = SpillFiles(disk)

    def write(self, batch: SpillBatch) -> None:
        """Write chunks.  Raises: StorageFailure."""
        self._spilled.write(batch)

    def remove(self, numbers: list[int]) -> None:
        """Remove temporary files.  Raises: StorageFailure."""
        self._spilled.remove(numbers)

    def read(self, ref: ChunkRef) -> bytes:
        """Return a chunk's bytes, fewer where they cannot be read."""
        began = time.monotonic_ns()
        data = read_if_readable(self._disk, ref)
        self.count_read(len(data), time.monotonic_ns() - began)
        return data

    def read_part(self, ref: ChunkRef, at: int, size: int) -> bytes:
        """Return `size` bytes of a chunk from `at` on, fewer where they cannot be read."""
        began = time.monotonic_ns()
        data = read_part_if_readable(self._disk, ref, at, size)
        self.count_read(len(data), time.monotonic_ns() - began)
        return data

    def close(self) -> None:
        """Close the open files."""
        self._spilled.close()
