"""The files of spilled chunks, which are appended and, unless they are temporary, synced.

The methods run in a separate thread, not in the one that syncs the journal, so that no confirm
waits for megabytes of chunks.  Like the journal's files, they stop permanently at the first
failure, except for a lack of space (`DiskFull`), after which the same batch may be written again.

Invariant: when `write` returns, the chunks and their file's name are durable, or temporary.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.store.disk import Disk, DiskFull, StorageFailure, StoreFile, append_whole, make_file
from leveret.store.format import SEGMENTS_DIR
from leveret.store.segments.segments import segment_path, temporary_path
from leveret.store.segments.spill import SpillBatch


@final
class SpillFiles:
    """Writes chunks to files; only one thread at a time may call it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[bool, StoreFile] = {}
        self._numbers: dict[bool, i64] = {}
        self._ends: dict[bool, i64] = {}
        self._failure: StorageFailure | None = None

    def write(self, batch: SpillBatch) -> None:
        """Append the chunks of a batch to their file, and sync it unless it is temporary.

        Raises: DiskFull, after which the caller may try again with the same batch; StorageFailure,
        after which nothing that depends on the chunks may be confirmed.
        """
        if self._failure is not None:
            raise StorageFailure(
                self._failure.verb, self._failure.path, "failed before", self._failure.errno
            )
        try:
            file = self._file_for(batch)
            append_whole(file, batch.parts, int(self._ends[batch.temporary]))
            self._ends[batch.temporary] += batch.size
            if not batch.temporary:
                file.sync()
        except StorageFailure as failure:
            if not isinstance(failure, DiskFull):
                self._failure = failure
            raise

    def _file_for(self, batch: SpillBatch) -> StoreFile:
        """Return the file of a batch, and make the name of a new file durable."""
        kind = batch.temporary
        file = self._files.get(kind)
        if file is not None and self._numbers[kind] == batch.file_number:
            return file
        if file is not None:
            file.close()
            del self._files[kind]
        number = int(batch.file_number)
        path = temporary_path(number) if kind else segment_path(number)
        file = make_file(self._disk, path)
        file.truncate(0)
        if not kind:
            self._disk.fsync_dir(SEGMENTS_DIR)
        self._files[kind] = file
        self._numbers[kind] = batch.file_number
        self._ends[kind] = 0
        return file

    def remove(self, numbers: list[int]) -> None:
        """Remove temporary files that are no longer used.  Raises: StorageFailure."""
        for number in numbers:
            if self._files and self._numbers.get(True, -1) == number:
                self._files.pop(True).close()
                del self._numbers[True]
            self._disk.unlink(temporary_path(number))

    def close(self) -> None:
        """Close the open files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
