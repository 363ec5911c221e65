"""The disk: the one place of the broker that opens files.

The store speaks to a `Disk` with paths relative to the data directory, and so runs on a real disk,
on one that fails on command (`disks/faulty.py`) and on one that records (`disks/recording.py`).
This module is interpreted on purpose: each call ends in the kernel, and interpreted classes can be
subclassed and can release the GIL around each of them.

Invariants: a write is whole or raises; after a raise nothing is known of what reached the disk, and
the caller gives the file up (a failed sync is never tried again: the kernel marks the lost pages
clean).  One case is better: a write that found no room (`full`) changed nothing but the end of the
file, so who cuts that off may try again.  Files are made with mode 0600, directories with 0700,
whatever the umask allows.
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
    """A call to the disk failed: nothing may be confirmed any more.

    `verb` and `path` say what was tried, `errno` is the operating system's number (0 when there is
    none), `full` tells whether the disk or a quota ran out.
    """

    def __init__(self, verb: str, path: str, reason: str, number: int = 0) -> None:
        super().__init__(f"{verb} {path}: {reason}")
        self.verb = verb
        self.path = path
        self.errno = number

    @property
    def full(self) -> bool:
        """Tell whether space ran out."""
        return self.errno in (errno.ENOSPC, errno.EDQUOT)

    @classmethod
    def of(cls, verb: str, path: str, error: OSError) -> StorageFailure:
        """Return the failure that `error` of the operating system stands for."""
        return cls(verb, path, error.strerror or str(error), error.errno or 0)


class DiskLocked(StorageFailure):
    """Another process has the data directory; `pid` is its number, 0 where that is not known."""

    def __init__(self, directory: str, path: str, pid: int = 0) -> None:
        super().__init__("lock", path, "another process has it", errno.EAGAIN)
        self.directory = directory
        self.pid = pid

    def __str__(self) -> str:
        who = f"process {self.pid}" if self.pid else "another process"
        return f"the data directory {self.directory} is in use by {who}"


class DiskFull(StorageFailure):
    """There was no room for a write, and what it had begun is taken back: it may be tried again."""


class File(ABC):
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
        """Make the file at least `size` bytes long, with room on the disk for all of them."""

    @abstractmethod
    def write_ahead(self, size: int) -> None:
        """Write `size` zeros behind the end, which stays where it is: appends go over them."""

    @abstractmethod
    def sync(self) -> None:
        """Return when everything written so far has reached the disk."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; nothing is synced by it."""


class Disk(ABC):
    """The store's verbs.  Every method raises `StorageFailure`; paths are relative, with `/`."""

    @abstractmethod
    def make_dir(self, path: str) -> None:
        """Make the directory `path` unless it is there."""

    @abstractmethod
    def list(self, path: str) -> list[str]:
        """Return the names in the directory `path`, sorted."""

    @abstractmethod
    def open(self, path: str, *, create: bool = False) -> File:
        """Open the file `path` to read and write; `create` makes it where it is not there."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Give the file `old` the name `new`, in one step, over what had that name."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove the file `path`."""

    @abstractmethod
    def fsync_dir(self, path: str) -> None:
        """Return when the names in the directory `path` have reached the disk."""

    @abstractmethod
    def free(self) -> int:
        """Return how many bytes more the disk has room for, for this process."""

    @abstractmethod
    def lock(self, path: str) -> None:
        """Take the file `path` for this process until it ends.

        Raises: DiskLocked: another process has it.
        """


def append_whole(file: File, parts: list[bytes], end: int) -> None:
    """Append all of `parts` at `end`, where the file ends, or nothing of them.

    Raises: DiskFull: there was no room, and the file ends where it did.  StorageFailure.
    """
    try:
        file.append(parts)
    except StorageFailure as failure:
        if not failure.full:
            raise
        file.truncate(end)
        raise DiskFull(failure.verb, failure.path, str(failure), failure.errno) from failure


def make_file(disk: Disk, path: str) -> File:
    """Open the file `path`, made where it is not there.

    Raises: DiskFull: there was no room for a new one.  StorageFailure.
    """
    try:
        return disk.open(path, create=True)
    except StorageFailure as failure:
        if not failure.full:
            raise
        raise DiskFull(failure.verb, path, str(failure), failure.errno) from failure


#: What a disk has free that does not know its size.
UNBOUNDED: Final = 1 << 62

#: Parts that one `pwritev` takes.
PARTS_MAX: Final = min(1024, os.sysconf("SC_IOV_MAX"))


class RealFile(File):
    """A file of the operating system.

    It keeps the end itself: with `O_APPEND` Linux would let `pwrite` append too.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path
        self._end = self.size()

    def append(self, parts: list[bytes]) -> None:
        """Write all of `parts` at the end; the kernel may take them in pieces."""
        try:
            for first in range(0, len(parts), PARTS_MAX):
                self._append_some(parts[first : first + PARTS_MAX])
        except OSError as error:
            raise StorageFailure.of("append", self._path, error) from error

    def _append_some(self, parts: list[bytes]) -> None:
        """Write at most `PARTS_MAX` parts, again and again until none is left."""
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
        """Call `posix_fallocate`, which writes where the file system cannot do it otherwise."""
        try:
            os.posix_fallocate(self._descriptor, 0, size)
            self._end = max(self._end, size)
        except OSError as error:
            raise StorageFailure.of("allocate", self._path, error) from error

    def write_ahead(self, size: int) -> None:
        """Write zeros behind the end that this object keeps; fewer of them do no harm."""
        try:
            os.pwrite(self._descriptor, bytes(size), self._end)
        except OSError as error:
            raise StorageFailure.of("write_ahead", self._path, error) from error

    def sync(self) -> None:
        """Call `fdatasync`: it also writes a changed size."""
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
    """Return the process that a lock file names, 0 where none is named or it does not live."""
    try:
        pid = int(os.pread(descriptor, 20, 0))
        os.kill(pid, 0)
    except PermissionError:
        # It lives, and is another user's.
        return pid
    except (OSError, ValueError, OverflowError):
        return 0
    return max(0, pid)


#: What the system says when it has no descriptor left for the process, or for any.
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)


class RealDisk(Disk):
    """A directory of the operating system; it is made where it is not there.

    It may keep spare descriptors open (`spare`): where the system has none left, a spare one makes
    room for the one that is needed, so that what else takes descriptors stops no write.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._locks: list[int] = []
        self._spares: list[int] = []
        self._make(directory, "")

    def _at(self, path: str) -> str:
        return os.path.join(self._directory, path)

    def spare(self, count: int) -> bool:
        """Keep `count` spare descriptors, as far as the system gives them; tell whether all are."""
        try:
            while len(self._spares) < count:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def _opening(self, call: Callable[[], T]) -> T:
        """Make a call that opens a descriptor; spare ones make room.  Raises: OSError."""
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
        """Make a directory with mode 0700; one that is there keeps its mode."""
        try:
            os.makedirs(full, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageFailure.of("make_dir", path or full, error) from error

    def make_dir(self, path: str) -> None:
        """Make the directory `path` unless it is there."""
        self._make(self._at(path), path)

    def list(self, path: str) -> list[str]:
        """Return the names in the directory `path`, sorted."""
        try:
            return sorted(self._opening(lambda: os.listdir(self._at(path))))
        except OSError as error:
            raise StorageFailure.of("list", path, error) from error

    def open(self, path: str, *, create: bool = False) -> File:
        """Open the file `path` to read and write; `create` makes it."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return RealFile(self._opening(lambda: os.open(self._at(path), flags, 0o600)), path)
        except OSError as error:
            raise StorageFailure.of("open", path, error) from error

    def rename(self, old: str, new: str) -> None:
        """Give the file `old` the name `new`, in one step."""
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
        """Ask `statvfs`; what is kept for root does not count."""
        try:
            found = os.statvfs(self._directory)
        except OSError as error:
            raise StorageFailure.of("statvfs", self._directory, error) from error
        # Some file systems of user space do not say.
        return found.f_bavail * found.f_frsize if found.f_blocks else UNBOUNDED

    def lock(self, path: str) -> None:
        """Take a `flock` on the file `path`; it goes with the process, however that ends."""
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
            # For who finds it locked; on a full disk it is not known who has it.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)

    def close(self) -> None:
        """Let go of the locks and of the spare descriptors."""
        for descriptors in (self._locks, self._spares):
            while descriptors:
                os.close(descriptors.pop())


class ReadDisk(RealDisk):
    """A directory that is looked at and not changed by a byte: what would change it raises.

    Raises: StorageFailure: it is no directory.
    """

    def _make(self, full: str, path: str) -> None:
        """Make nothing."""
        if not os.path.isdir(full):
            raise StorageFailure("open", path or full, "there is no such directory", errno.ENOENT)

    def open(self, path: str, *, create: bool = False) -> File:
        """Open the file `path` to read; the system refuses all that would change it."""
        if create:
            raise StorageFailure("open", path, "nothing is made here", errno.EROFS)
        try:
            return RealFile(os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC), path)
        except OSError as error:
            raise StorageFailure.of("open", path, error) from error

    def rename(self, old: str, new: str) -> None:
        """Refuse."""
        raise StorageFailure("rename", old, "nothing is changed here", errno.EROFS)

    def unlink(self, path: str) -> None:
        """Refuse."""
        raise StorageFailure("unlink", path, "nothing is changed here", errno.EROFS)

    def lock(self, path: str) -> None:
        """Keep brokers away, but not others who only look; where no lock file is, none runs."""
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
