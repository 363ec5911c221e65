"""The disk interface and its real implementation, which alone opens files of the data directory.

The store calls a `Disk` with paths relative to the data directory.  So it can run on a real disk,
on one that fails on command (`disks/faulty.py`) or on one that records (`disks/recording.py`).
This module is interpreted on purpose: each call ends in the kernel, and interpreted classes can be
subclassed and can release the GIL around each call.

Invariants: a write is complete or raises.  After an exception the contents of the disk are unknown,
and the caller stops using the file.  A failed sync is never repeated, because the kernel marks the
lost pages clean.  Only a write that finds no space (`full`) may be repeated: it changes no more
than the end of the file, at which the caller must first truncate the file.  Files are created with
mode 0600 and directories with 0700, even if the umask allows more.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")


class StorageFailure(Exception):
    """A call to the disk failed, so nothing may be confirmed any more.

    `verb` and `path` name the attempted operation, `errno` is the operating system's number (0 if
    there is none), `full` means that the disk or a quota has no space left.
    """

    def __init__(self, verb: str, path: str, reason: str, number: int = 0) -> None:
        super().__init__(f"{verb} {path}: {reason}")
        self.verb = verb
        self.path = path
        self.errno = number

    @property
    def full(self) -> bool:
        """Whether there is no space left."""
        return self.errno in (errno.ENOSPC, errno.EDQUOT)

    @classmethod
    def of(cls, verb: str, path: str, error: OSError) -> StorageFailure:
        """Return the failure for an error of the operating system."""
        return cls(verb, path, error.strerror or str(error), error.errno or 0)


class DiskLocked(StorageFailure):
    """Another process has locked the data directory; `pid` is its process id, or 0 if unknown."""

    def __init__(self, directory: str, path: str, pid: int = 0) -> None:
        super().__init__("lock", path, "another process has locked it", errno.EAGAIN)
        self.directory = directory
        self.pid = pid

    def __str__(self) -> str:
        who = f"process {self.pid}" if self.pid else "another process"
        return f"the data directory {self.directory} is in use by {who}"


class DiskFull(StorageFailure):
    """A write found no space.  Its written part was removed, so it may be repeated."""


class StoreFile(ABC):
    """An open file of the store.  Every method raises `StorageFailure`."""

    @abstractmethod
    def append(self, parts: list[bytes]) -> None:
        """Write all of `parts`, one after the other, at the end of the file."""

    @abstractmethod
    def pwrite(self, data: bytes, position: int) -> None:
        """Write all of `data` at `position`."""

    @abstractmethod
    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes from `position` on, fewer only at the end of the file."""

    @abstractmethod
    def size(self) -> int:
        """Return the file's size in bytes."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    @abstractmethod
    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long, and reserve disk space for all of them."""

    @abstractmethod
    def write_ahead(self, size: int) -> None:
        """Write `size` zeros after the end without moving it; appends overwrite the zeros."""

    @abstractmethod
    def sync(self) -> None:
        """Wait until all data written so far has reached the disk."""

    @abstractmethod
    def close(self) -> None:
        """Close the file without syncing it."""


class Disk(ABC):
    """The store's operations.  All raise `StorageFailure`; paths are relative, with `/`."""

    @abstractmethod
    def make_dir(self, path: str) -> None:
        """Create the directory `path` unless it exists."""

    @abstractmethod
    def list(self, path: str) -> list[str]:
        """Return the names in the directory `path`, sorted."""

    @abstractmethod
    def open(self, path: str, *, create: bool = False) -> StoreFile:
        """Open the file `path` to read and write; `create` creates it if it does not exist."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Rename the file `old` to `new` in one step, replacing a file of that name."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove the file `path`."""

    @abstractmethod
    def fsync_dir(self, path: str) -> None:
        """Wait until the names in the directory `path` have reached the disk."""

    @abstractmethod
    def free(self) -> int:
        """Return how many bytes this process can still write to the disk."""

    def capacity(self) -> int:
        """Return the disk's total number of bytes, or UNBOUNDED if unknown."""
        return UNBOUNDED

    @abstractmethod
    def lock(self, path: str) -> None:
        """Lock the file `path` for this process until it ends.

        Raises: DiskLocked if another process has locked it.
        """

    def spare(self, count: int) -> bool:
        """Reserve `count` spare descriptors, and return whether the system had enough.

        A disk that needs none returns True.
        """
        return True

    def close(self) -> None:  # noqa: B027 (a disk may have nothing to release)
        """Release the locks and the spare descriptors."""


def append_whole(file: StoreFile, parts: list[bytes], end: int) -> None:
    """Append all of `parts` at `end`, the end of the file, or nothing.

    Raises: DiskFull if there is no space, with the file unchanged; StorageFailure.
    """
    try:
        file.append(parts)
    except StorageFailure as failure:
        if not failure.full:
            raise
        file.truncate(end)
        raise DiskFull(failure.verb, failure.path, str(failure), failure.errno) from failure


def make_file(disk: Disk, path: str) -> StoreFile:
    """Open the file `path`, and create it if it does not exist.

    Raises: DiskFull if there is no space for a new file; StorageFailure.
    """
    try:
        return disk.open(path, create=True)
    except StorageFailure as failure:
        if not failure.full:
            raise
        raise DiskFull(failure.verb, path, str(failure), failure.errno) from failure


#: The free space of a disk that does not report it.
UNBOUNDED: Final = 1 << 62

#: The number of parts that one `pwritev` accepts.
PARTS_MAX: Final = min(1024, os.sysconf("SC_IOV_MAX"))


class RealFile(StoreFile):
    """A file of the operating system.

    It tracks its end itself, because with `O_APPEND` Linux would make `pwrite` append too.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path
        self._end = self.size()

    def append(self, parts: list[bytes]) -> None:
        """Write all of `parts` at the end, in as many calls as the kernel needs."""
        try:
            for first in range(0, len(parts), PARTS_MAX):
                self._append_some(parts[first : first + PARTS_MAX])
        except OSError as error:
            raise StorageFailure.of("append", self._path, error) from error

    def _append_some(self, parts: list[bytes]) -> None:
        """Write up to `PARTS_MAX` parts, repeating the call until none is left."""
        left: list[bytes | memoryview] = [part for part in parts if part]
        while left:
            written = os.pwritev(self._descriptor, left, self._end)
            self._end += written
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = memoryview(left[0])[written:]

    def pwrite(self, data: bytes, position: int) -> None:
        """Write all of `data` at `position`."""
        left = memoryview(data)
        try:
            while left:
                written = os.pwrite(self._descriptor, left, position)
                position += written
                self._end = max(self._end, position)
                left = left[written:]
        except OSError as error:
            raise StorageFailure.of("pwrite", self._path, error) from error

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes from `position` on, fewer only at the end of the file."""
        pieces: list[bytes] = []
        try:
            while size > 0:
                piece = os.pread(self._descriptor, size, position)
                if not piece:
                    break
                pieces.append(piece)
                position += len(piece)
                size -= len(piece)
        except OSError as error:
            raise StorageFailure.of("read", self._path, error) from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def size(self) -> int:
        """Return the file's size in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise StorageFailure.of("stat", self._path, error) from error

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        try:
            os.ftruncate(self._descriptor, size)
            self._end = size
        except OSError as error:
            raise StorageFailure.of("truncate", self._path, error) from error

    def allocate(self, size: int) -> None:
        """Call `posix_fallocate`, which writes zeros if the file system cannot reserve space."""
        try:
            os.posix_fallocate(self._descriptor, 0, size)
            self._end = max(self._end, size)
        except OSError as error:
            raise StorageFailure.of("allocate", self._path, error) from error

    def write_ahead(self, size: int) -> None:
        """Write zeros after the tracked end.  A short write does no harm."""
        try:
            os.pwrite(self._descriptor, bytes(size), self._end)
        except OSError as error:
            raise StorageFailure.of("write_ahead", self._path, error) from error

    def sync(self) -> None:
        """Call `fdatasync`, which also writes a changed size."""
        if self._descriptor < 0:
            raise StorageFailure("sync", self._path, "the file is closed", errno.EBADF)
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise StorageFailure.of("sync", self._path, error) from error

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                os.close(descriptor)
            except OSError as error:
                raise StorageFailure.of("close", self._path, error) from error


def _locker(descriptor: int) -> int:
    """Return the process named in a lock file, or 0 if no such process is running."""
    try:
        pid = int(os.pread(descriptor, 20, 0))
        os.kill(pid, 0)
    except PermissionError:
        # The process is running as another user.
        return pid
    except (OSError, ValueError, OverflowError):
        return 0
    return max(0, pid)


#: The error numbers for no free descriptors, in the process or in the system.
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)


class RealDisk(Disk):
    """A directory of the operating system, which is created if it does not exist.

    It can reserve spare descriptors (`spare`).  If the system runs out of descriptors, a spare one
    is closed when one is needed, so that other users of descriptors cannot stop writes.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._locks: list[int] = []
        self._spares: list[int] = []
        self._make(directory, "")

    def _at(self, path: str) -> str:
        return os.path.join(self._directory, path)

    def spare(self, count: int) -> bool:
        """Reserve `count` spare descriptors, and return whether the system had enough."""
        try:
            while len(self._spares) < count:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def _opening(self, call: Callable[[], T]) -> T:
        """Make a call that opens a descriptor; close spare ones if necessary.  Raises: OSError."""
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    raise
                try:
                    spare = self._spares.pop()
                except IndexError:
                    raise error from None
                os.close(spare)

    def _make(self, full: str, path: str) -> None:
        """Create a directory with mode 0700; an existing one keeps its mode."""
        try:
            os.makedirs(full, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageFailure.of("make_dir", path or full, error) from error

    def make_dir(self, path: str) -> None:
        """Create the directory `path` unless it exists."""
        self._make(self._at(path), path)

    def list(self, path: str) -> list[str]:
        """Return the names in the directory `path`, sorted."""
        try:
            return sorted(self._opening(lambda: os.listdir(self._at(path))))
        except OSError as error:
            raise StorageFailure.of("list", path, error) from error

    def open(self, path: str, *, create: bool = False) -> StoreFile:
        """Open the file `path` to read and write; `create` creates it."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return RealFile(self._opening(lambda: os.open(self._at(path), flags, 0o600)), path)
        except OSError as error:
            raise StorageFailure.of("open", path, error) from error

    def rename(self, old: str, new: str) -> None:
        """Rename the file `old` to `new` in one step."""
        try:
            os.rename(self._at(old), self._at(new))
        except OSError as error:
            raise StorageFailure.of("rename", old, error) from error

    def unlink(self, path: str) -> None:
        """Remove the file `path`."""
        try:
            os.unlink(self._at(path))
        except OSError as error:
            raise StorageFailure.of("unlink", path, error) from error

    def fsync_dir(self, path: str) -> None:
        """Sync the directory `path`."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            descriptor = self._opening(lambda: os.open(self._at(path), flags))
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageFailure.of("fsync_dir", path, error) from error

    def free(self) -> int:
        """Call `statvfs`; space that is reserved for root does not count."""
        try:
            found = os.statvfs(self._directory)
        except OSError as error:
            raise StorageFailure.of("statvfs", self._directory, error) from error
        # Some user-space file systems do not report it.
        return found.f_bavail * found.f_frsize if found.f_blocks else UNBOUNDED

    def capacity(self) -> int:
        """Call `statvfs`; space that is reserved for root does not count."""
        try:
            found = os.statvfs(self._directory)
        except OSError as error:
            raise StorageFailure.of("statvfs", self._directory, error) from error
        blocks = found.f_blocks - found.f_bfree + found.f_bavail
        return blocks * found.f_frsize if found.f_blocks else UNBOUNDED

    def lock(self, path: str) -> None:
        """Take a `flock` on the file `path`, which the kernel releases when the process ends."""
        try:
            descriptor = os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                pid = _locker(descriptor)
                os.close(descriptor)
                raise DiskLocked(self._directory, path, pid) from error
        except OSError as error:
            raise StorageFailure.of("lock", path, error) from error
        self._locks.append(descriptor)
        with contextlib.suppress(OSError):
            # The pid is for processes that find the file locked.  On a full disk it is unknown.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)

    def close(self) -> None:
        """Release the locks and the spare descriptors."""
        for descriptors in (self._locks, self._spares):
            while descriptors:
                os.close(descriptors.pop())


class ReadDisk(RealDisk):
    """A read-only directory, in which every operation that would change it raises.

    Raises: StorageFailure if it is not a directory.
    """

    def _make(self, full: str, path: str) -> None:
        """Create nothing."""
        if not os.path.isdir(full):
            raise StorageFailure("open", path or full, "no such directory", errno.ENOENT)

    def open(self, path: str, *, create: bool = False) -> StoreFile:
        """Open the file `path` read-only."""
        if create:
            raise StorageFailure("open", path, "the directory is opened read-only", errno.EROFS)
        try:
            return RealFile(os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC), path)
        except OSError as error:
            raise StorageFailure.of("open", path, error) from error

    def rename(self, old: str, new: str) -> None:
        """Refuse."""
        raise StorageFailure("rename", old, "the directory is opened read-only", errno.EROFS)

    def unlink(self, path: str) -> None:
        """Refuse."""
        raise StorageFailure("unlink", path, "the directory is opened read-only", errno.EROFS)

    def lock(self, path: str) -> None:
        """Lock out brokers, but not other readers.  Without a lock file no broker is running."""
        try:
            descriptor = os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageFailure.of("lock", path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            pid = _locker(descriptor)
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise DiskLocked(self._directory, path, pid) from error
            raise StorageFailure.of("lock", path, error) from error
        self._locks.append(descriptor)
