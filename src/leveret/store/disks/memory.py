"""A disk in memory, for brokers whose data may end with the process.

It stores only the current contents of files; `recording` also stores their history.  The next
broker on the same disk finds all written data, as after a killed process.  A sync does nothing.

Invariants: an open file is independent of its name, and remains usable after an unlink.  One thread
at a time changes a file, while others may read it.  Several threads may use the names, because each
change and each listing of names is one step of the interpreter.
"""

from __future__ import annotations

import errno

from leveret.store.disk import UNBOUNDED, Disk, DiskLocked, StorageFailure, StoreFile


class MemoryDisk(Disk):
    """Files and folders in memory."""

    def __init__(self) -> None:
        self._files: dict[str, MemoryFile] = {}
        self._folders = {""}
        self._locked: set[str] = set()

    @property
    def size(self) -> int:
        """The total size of all files."""
        return sum(file.size() for file in list(self._files.values()))

    def make_dir(self, path: str) -> None:
        """Create a folder."""
        self._folders.add(path)

    def list(self, path: str) -> list[str]:
        """Return the names in a folder."""
        self._need_folder("list", path)
        inside = [name for name in (*self._files, *self._folders) if name]
        return sorted(name.rpartition("/")[2] for name in inside if _folder(name) == path)

    def open(self, path: str, *, create: bool = False) -> StoreFile:
        """Open a file, creating it if requested."""
        file = self._files.get(path)
        if file is None:
            if not create:
                raise _missing("open", path)
            self._need_folder("open", _folder(path))
            file = self._files.setdefault(path, MemoryFile())
        return file

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        if old not in self._files:
            raise _missing("rename", old)
        self._files[new] = self._files.pop(old)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        if self._files.pop(path, None) is None:
            raise _missing("unlink", path)

    def fsync_dir(self, path: str) -> None:
        """Check that the folder exists; memory needs no sync."""
        self._need_folder("fsync_dir", path)

    def free(self) -> int:
        """Return UNBOUNDED, because the memory limit of a process is unknown."""
        return UNBOUNDED

    def lock(self, path: str) -> None:
        """Lock the disk for one broker until `close`."""
        if path in self._locked:
            raise DiskLocked("in memory", path)
        self._locked.add(path)

    def close(self) -> None:
        """Release all locks; the files remain for the next broker."""
        self._locked.clear()

    def _need_folder(self, verb: str, path: str) -> None:
        if path not in self._folders:
            raise _missing(verb, path)


class MemoryFile(StoreFile):
    """The contents of a file, shared by all its users."""

    def __init__(self) -> None:
        self._content = bytearray()

    def append(self, parts: list[bytes]) -> None:
        """Write at the end."""
        self._content += b"".join(parts)

    def pwrite(self, data: bytes, position: int) -> None:
        """Write at a position; a gap before it is filled with zeros."""
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
        """Truncate the file, or extend it with zeros."""
        del self._content[size:]
        self.allocate(size)

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long."""
        missing = size - len(self._content)
        if missing > 0:
            self._content += bytes(missing)

    def write_ahead(self, size: int) -> None:
        """Do nothing, because zeros ahead only make syncs of real disks faster."""

    def sync(self) -> None:
        """Do nothing, because memory needs no sync."""

    def close(self) -> None:
        """Do nothing, because the contents remain for the next open."""


def _folder(path: str) -> str:
    """Return the folder of a path."""
    return path.rpartition("/")[0]


def _missing(verb: str, path: str) -> StorageFailure:
    """Return the failure for a missing file or folder."""
    return StorageFailure(verb, path, "No such file or directory", errno.ENOENT)
