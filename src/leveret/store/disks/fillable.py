"""A disk that is full on command, so that operations that need space fail with ENOSPC."""

from __future__ import annotations

import errno

from leveret.store.disk import Disk, StorageFailure, StoreFile
from leveret.store.disks.wrapping import WrappedDisk, WrappedFile


class FillableDisk(WrappedDisk):
    """Forwards to `disk`, on which no file can grow while `full` is True."""

    def __init__(self, disk: Disk, full: bool = False) -> None:
        super().__init__(disk)
        self.full = full

    def check(self, verb: str, path: str) -> None:
        """Refuse an operation that needs space on a full disk.  Raises: StorageFailure."""
        if self.full:
            raise StorageFailure(verb, path, "No space left on device", errno.ENOSPC)

    def open(self, path: str, *, create: bool = False) -> StoreFile:
        """Open a file; a full disk refuses `create`, even if the file exists."""
        if create:
            self.check("open", path)
        return FillableFile(self, self._disk.open(path, create=create), path)

    def free(self) -> int:
        """Return the free space, or 0 on a full disk."""
        return 0 if self.full else self._disk.free()


class FillableFile(WrappedFile):
    """A file of a fillable disk."""

    def __init__(self, disk: FillableDisk, file: StoreFile, path: str) -> None:
        super().__init__(file)
        self._disk = disk
        self._path = path

    def append(self, parts: list[bytes]) -> None:
        """Append, if there is space."""
        self._disk.check("append", self._path)
        self._file.append(parts)

    def pwrite(self, data: bytes, position: int) -> None:
        """Write at a position, which needs space only if it extends the file."""
        if position + len(data) > self._file.size():
            self._disk.check("pwrite", self._path)
        self._file.pwrite(data, position)

    def allocate(self, size: int) -> None:
        """Allocate space, if there is any."""
        self._disk.check("allocate", self._path)
        self._file.allocate(size)

    def write_ahead(self, size: int) -> None:
        """Write zeros after the end, if there is space."""
        self._disk.check("write_ahead", self._path)
        self._file.write_ahead(size)
