"""A disk that forwards every operation to another disk, the base class of disks with faults."""

from __future__ import annotations

from leveret.store.disk import Disk, StoreFile


class WrappedDisk(Disk):
    """Forwards all calls to `disk`; subclasses override operations."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def make_dir(self, path: str) -> None:
        """Make a directory."""
        self._disk.make_dir(path)

    def list(self, path: str) -> list[str]:
        """Return the names in a directory."""
        return self._disk.list(path)

    def open(self, path: str, *, create: bool = False) -> StoreFile:
        """Open a file."""
        return self._disk.open(path, create=create)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self._disk.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._disk.unlink(path)

    def fsync_dir(self, path: str) -> None:
        """Sync a directory."""
        self._disk.fsync_dir(path)

    def free(self) -> int:
        """Return the free space."""
        return self._disk.free()

    def capacity(self) -> int:
        """Return the total number of bytes."""
        return self._disk.capacity()

    def lock(self, path: str) -> None:
        """Lock a file."""
        self._disk.lock(path)

    def spare(self, count: int) -> bool:
        """Reserve spare descriptors."""
        return self._disk.spare(count)

    def close(self) -> None:
        """Release the locks and the spare descriptors."""
        self._disk.close()


class WrappedFile(StoreFile):
    """Forwards all calls to `file`; subclasses override operations."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file

    def append(self, parts: list[bytes]) -> None:
        """Append."""
        self._file.append(parts)

    def pwrite(self, data: bytes, position: int) -> None:
        """Write at a position."""
        self._file.pwrite(data, position)

    def read(self, position: int, size: int) -> bytes:
        """Read."""
        return self._file.read(position, size)

    def size(self) -> int:
        """Return the size."""
        return self._file.size()

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        """Allocate space."""
        self._file.allocate(size)

    def write_ahead(self, size: int) -> None:
        """Write zeros after the end."""
        self._file.write_ahead(size)

    def sync(self) -> None:
        """Sync the file."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
