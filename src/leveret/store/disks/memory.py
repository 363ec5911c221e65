"""A disk in memory, for a broker whose data need not outlive its process.

It keeps what its files hold now, and nothing of how they came to hold it (`recording` does).  What
was written is there for the next broker on the same disk, as after the end of a process that was
killed; a sync has nothing to wait for.

Invariants: a file is its contents, whatever its name; who has it open keeps it after an unlink.
One thread at a time changes a file, and others may read it meanwhile.  Several threads may use the
names: each change and each listing of them is one step of the interpreter.
"""

from __future__ import annotations

import errno

from leveret.store.disk import UNBOUNDED, Disk, DiskLocked, File, StorageFailure


class MemoryDisk(Disk):
    """Files and folders in memory."""

    def __init__(self) -> None:
        self._files: dict[str, MemoryFile] = {}
        self._folders = {""}
        self._locked: set[str] = set()

    @property
    def size(self) -> int:
        """The bytes that all files hold together."""
        return sum(file.size() for file in list(self._files.values()))

    def make_dir(self, path: str) -> None:
        """Make a folder."""
        self._folders.add(path)

    def list(self, path: str) -> list[str]:
        """Return the names in a folder."""
        self._need_folder("list", path)
        inside = [name for name in (*self._files, *self._folders) if name]
        return sorted(name.rpartition("/")[2] for name in inside if _folder(name) == path)

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file, or make it."""
        file = self._files.get(path)
        if file is None:
            if not create:
                raise _missing("open", path)
            self._need_folder("open", _folder(path))
            file = self._files.setdefault(path, MemoryFile())
        return file

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        if old not in self._files:
            raise _missing("rename", old)
        self._files[new] = self._files.pop(old)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        if self._files.pop(path, None) is None:
            raise _missing("unlink", path)

    def fsync_dir(self, path: str) -> None:
        """Do nothing but look for the folder: memory has nothing to sync."""
        self._need_folder("fsync_dir", path)

    def free(self) -> int:
        """Say that there is room: how much memory a process may have nobody knows."""
        return UNBOUNDED

    def lock(self, path: str) -> None:
        """Lock the disk for one broker until `close`."""
        if path in self._locked:
            raise DiskLocked("in memory", path)
        self._locked.add(path)

    def close(self) -> None:
        """Release the lock; the files stay for the next broker."""
        self._locked.clear()

    def _need_folder(self, verb: str, path: str) -> None:
        if path not in self._folders:
            raise _missing(verb, path)


class MemoryFile(File):
    """The contents of a file, which all that have it open share."""

    def __init__(self) -> None:
        self._content = bytearray()

    def append(self, parts: list[bytes]) -> None:
        """Write at the end."""
        self._content += b"".join(parts)

    def pwrite(self, data: bytes, position: int) -> None:
        """Write at a position; a gap before it becomes zeros."""
        missing = position - len(self._content)
        if missing > 0:
            self._content += bytes(missing)
        self._content[position : position + len(data)] = data

    def read(self, position: int, size: int) -> bytes:
        """Read."""
        return bytes(self._content[position : position + size])

    def size(self) -> int:
        """Return the size."""
        return len(self._content)

    def truncate(self, size: int) -> None:
        """Cut the file, or make it longer by zeros."""
        del self._content[size:]
        self.allocate(size)

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long."""
        missing = size - len(self._content)
        if missing > 0:
            self._content += bytes(missing)

    def write_ahead(self, size: int) -> None:
        """Do nothing: zeros ahead make a disk's syncs faster, and here they only take memory."""

    def sync(self) -> None:
        """Do nothing: memory has nothing to sync."""

    def close(self) -> None:
        """Do nothing: who opens the file next finds the same contents."""


def _folder(path: str) -> str:
    """Return the folder of a path."""
    return path.rpartition("/")[0]


def _missing(verb: str, path: str) -> StorageFailure:
    """Return the failure of a disk that has no such file or folder."""
    return StorageFailure(verb, path, "No such file or directory", errno.ENOENT)
