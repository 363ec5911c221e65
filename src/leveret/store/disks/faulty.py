"""A disk that fails on command, with an error, a short write or a wait at a chosen operation.

It wraps another disk, and numbers the operations that change or sync data, from 1 on.  A fault
occurs once, or permanently from its operation on.  As in a kernel, a sync may succeed after a
failed one, which the store must not trust.  A wait calls a function of the caller before the
operation.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from leveret.store.disk import Disk, StorageFailure, StoreFile
from leveret.store.disks.wrapping import WrappedDisk, WrappedFile


class Fault:
    """A fault and its condition.

    `at` is the number of the operation, counted over `verbs` (all if empty) on paths that contain
    `within`.  `kind` is `error`, `short` (half of a write is done before it fails) or `wait`
    (`wait` is called before the operation).  With `lasting`, all later operations fail too.
    """

    def __init__(
        self,
        kind: str,
        at: int,
        *,
        verbs: tuple[str, ...] = (),
        within: str = "",
        number: int = errno.EIO,
        lasting: bool = False,
        wait: Callable[[], None] | None = None,
    ) -> None:
        if kind not in ("error", "short", "wait"):
            raise ValueError(f"no such fault: {kind}")
        self.kind = kind
        self.at = at
        self.verbs = verbs
        self.within = within
        self.number = number
        self.lasting = lasting
        self.seen = 0
        self.hits = 0
        self.wait = wait

    def strikes(self, verb: str, path: str) -> bool:
        """Count an operation, and return whether the fault applies to it."""
        if (self.verbs and verb not in self.verbs) or self.within not in path:
            return False
        self.seen += 1
        hit = self.seen == self.at or (self.lasting and self.seen > self.at)
        self.hits += hit
        return hit


class FaultyDisk(WrappedDisk):
    """`disk` with `faults`; `operations` lists the calls as (verb, path)."""

    def __init__(self, disk: Disk, *faults: Fault) -> None:
        super().__init__(disk)
        self.faults = list(faults)
        self.operations: list[tuple[str, str]] = []

    def strike(self, verb: str, path: str) -> Fault | None:
        """Count an operation and apply its faults; return a fault that makes a write short.

        Raises: StorageFailure if a fault of the kind `error` applies.
        """
        self.operations.append((verb, path))
        short: Fault | None = None
        for fault in self.faults:
            if not fault.strikes(verb, path):
                continue
            if fault.kind == "wait":
                if fault.wait is not None:
                    fault.wait()
            elif fault.kind == "short" and verb in ("append", "pwrite"):
                short = fault
            else:
                raise StorageFailure(verb, path, "a requested fault", fault.number)
        return short

    def make_dir(self, path: str) -> None:
        """Make a directory."""
        self.strike("make_dir", path)
        self._disk.make_dir(path)

    def open(self, path: str, *, create: bool = False) -> StoreFile:
        """Open a file; creating one can fail."""
        if create:
            self.strike("open", path)
        return FaultyFile(self, self._disk.open(path, create=create), path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self.strike("rename", old)
        self._disk.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self.strike("unlink", path)
        self._disk.unlink(path)

    def fsync_dir(self, path: str) -> None:
        """Sync a directory."""
        self.strike("fsync_dir", path)
        self._disk.fsync_dir(path)


class FaultyFile(WrappedFile):
    """A file of a faulty disk."""

    def __init__(self, disk: FaultyDisk, file: StoreFile, path: str) -> None:
        super().__init__(file)
        self._disk = disk
        self._path = path

    def append(self, parts: list[bytes]) -> None:
        """Append, or append the first half and fail."""
        fault = self._disk.strike("append", self._path)
        if fault is not None:
            whole = b"".join(parts)
            self._file.append([whole[: len(whole) // 2]])
            raise StorageFailure("append", self._path, "cut short", fault.number)
        self._file.append(parts)

    def pwrite(self, data: bytes, position: int) -> None:
        """Write, or write the first half and fail."""
        fault = self._disk.strike("pwrite", self._path)
        if fault is not None:
            self._file.pwrite(data[: len(data) // 2], position)
            raise StorageFailure("pwrite", self._path, "cut short", fault.number)
        self._file.pwrite(data, position)

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        self._disk.strike("truncate", self._path)
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        """Allocate space."""
        self._disk.strike("allocate", self._path)
        self._file.allocate(size)

    def write_ahead(self, size: int) -> None:
        """Write zeros after the end."""
        self._disk.strike("write_ahead", self._path)
        self._file.write_ahead(size)

    def sync(self) -> None:
        """Sync the file."""
        self._disk.strike("sync", self._path)
        self._file.sync()
