"""A disk in memory that records all changes, and computes the states that a crash could leave.

It models a file system with only the guarantees of POSIX: bytes are durable if their file was
synced after the write, and names if their directory was synced after the change.  A crash may keep
any part of all other changes: none, all, the first few writes with the last one torn, single pages
of a write without the pages before them, or a length without its bytes.

With a limited size it fills up like a real disk: a write that does not fit is written in part and
fails.

It does not model bit rot (tests flip bytes), nor disks that falsely report a sync as done.  Random
choices are injected: `draw(n)` returns an integer from 0 to n - 1.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from leveret.store.disk import UNBOUNDED, Disk, DiskLocked, StorageFailure, StoreFile

#: The units that a device and the kernel write atomically.
SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4096


@dataclass
class Image:
    """The contents of a disk: files by path, and folders."""

    files: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Operation:
    """A recorded call with its arguments; `file` is a number that does not change with renames."""

    verb: str
    path: str = ""
    file: int = -1
    position: int = 0
    data: bytes = b""
    new_path: str = ""


class RecordingDisk(Disk):
    """A disk in memory with the initial contents `image`; `trace` lists all operations.

    `bytes_max` is the maximum total size of its files, which can be changed at any time.
    """

    def __init__(self, image: Image | None = None, bytes_max: int = UNBOUNDED) -> None:
        image = image or Image()
        self.bytes_max = bytes_max
        self.start = Image(dict(image.files), set(image.folders))
        self.trace: list[Operation] = []
        self.contents: list[bytearray] = []
        self._names: dict[str, int] = {}
        self._folders = set(image.folders) | {""}
        self._locked: set[str] = set()
        for path in sorted(image.files):
            self._names[path] = len(self.contents)
            self.contents.append(bytearray(image.files[path]))

    def image(self) -> Image:
        """Return the current contents, as after a stop without a crash."""
        files = {path: bytes(self.contents[number]) for path, number in self._names.items()}
        return Image(files, self._folders - {""})

    def make_dir(self, path: str) -> None:
        """Create a folder."""
        if path not in self._folders:
            self._folders.add(path)
            self.trace.append(Operation("make_dir", path))

    def list(self, path: str) -> list[str]:
        """Return the names in a folder."""
        self._need_folder("list", path)
        inside = [name for name in (*self._names, *self._folders) if name and _folder(name) == path]
        return sorted(name.rpartition("/")[2] for name in inside)

    def open(self, path: str, *, create: bool = False) -> StoreFile:
        """Open a file, creating it if requested."""
        number = self._names.get(path)
        if number is None:
            if not create:
                raise _missing("open", path)
            self._need_folder("open", _folder(path))
            number = len(self.contents)
            self.contents.append(bytearray())
            self._names[path] = number
            self.trace.append(Operation("create", path, number))
        return RecordingFile(self, number, path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        if old not in self._names:
            raise _missing("rename", old)
        self._names[new] = self._names.pop(old)
        self.trace.append(Operation("rename", old, new_path=new))

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        if self._names.pop(path, None) is None:
            raise _missing("unlink", path)
        self.trace.append(Operation("unlink", path))

    def fsync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        self._need_folder("fsync_dir", path)
        self.trace.append(Operation("fsync_dir", path))

    def free(self) -> int:
        """Return the free space.  A file uses space as long as it has a name."""
        if self.bytes_max == UNBOUNDED:
            return UNBOUNDED
        used = sum(len(self.contents[number]) for number in self._names.values())
        return max(0, self.bytes_max - used)

    def lock(self, path: str) -> None:
        """Lock a file.  Raises: DiskLocked if it is already locked."""
        if path in self._locked:
            raise DiskLocked("in memory", path)
        self._locked.add(path)

    def unlock(self) -> None:
        """Release all locks, as when a process ends."""
        self._locked.clear()

    def _need_folder(self, verb: str, path: str) -> None:
        """Fail like a real disk if the folder does not exist."""
        if path not in self._folders:
            raise _missing(verb, path)


class RecordingFile(StoreFile):
    """A file of a recording disk."""

    def __init__(self, disk: RecordingDisk, number: int, path: str) -> None:
        self._disk = disk
        self._number = number
        self._path = path
        self._end = len(self._content)

    @property
    def _content(self) -> bytearray:
        return self._disk.contents[self._number]

    def append(self, parts: list[bytes]) -> None:
        """Append all parts in one write, which a crash may tear at any byte."""
        self._write("append", b"".join(parts), self._end)

    def pwrite(self, data: bytes, position: int) -> None:
        """Write at a position."""
        self._write("pwrite", data, position)

    def write_ahead(self, size: int) -> None:
        """Write zeros after the end."""
        end = self._end
        try:
            self._write("write_ahead", bytes(size), end)
        finally:
            self._end = end

    def _write(self, verb: str, data: bytes, position: int) -> None:
        """Write as much as fits.  Raises: StorageFailure if not all of it fits."""
        grown = position + len(data) - len(self._content)
        missing = grown - self._disk.free() if grown > 0 else 0
        fitting = data[: max(0, len(data) - missing)] if missing > 0 else data
        if fitting or not data:
            _overwrite(self._content, position, fitting)
            operation = Operation("write", self._path, self._number, position, bytes(fitting))
            self._disk.trace.append(operation)
            self._end = max(self._end, position + len(fitting))
        if missing > 0:
            raise StorageFailure(verb, self._path, "No space left on device", errno.ENOSPC)

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes at a position."""
        return bytes(self._content[position : position + size])

    def size(self) -> int:
        """Return the size."""
        return len(self._content)

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""
        _cut(self._content, size)
        self._end = size
        self._disk.trace.append(Operation("truncate", self._path, self._number, size))

    def allocate(self, size: int) -> None:
        """Extend the file with zeros, which use space."""
        missing = size - len(self._content)
        if missing > self._disk.free():
            raise StorageFailure("allocate", self._path, "No space left on device", errno.ENOSPC)
        if missing > 0:
            self._write("allocate", bytes(missing), len(self._content))

    def sync(self) -> None:
        """Make the file's bytes durable."""
        self._disk.trace.append(Operation("sync", self._path, self._number))

    def close(self) -> None:
        """Do nothing, because closing a file makes nothing durable."""


@dataclass
class CrashState:
    """The result of a crash after `operations` calls; `what` says which parts were kept."""

    operations: int
    what: str
    image: Image


def crash_states(
    disk: RecordingDisk, draw: Callable[[int], int], per_point: int = 4, since: int = 0
) -> Iterator[CrashState]:
    """Yield states that a crash could leave, at each point of the disk's trace from `since` on.

    At each point, unsynced changes are all lost, all kept, kept for names only, and kept for bytes
    only.  In `per_point` more states, each file and folder keeps a random part of its changes.
    """
    model = CrashModel(disk.start)
    for done in range(len(disk.trace) + 1):
        if done:
            model.take(disk.trace[done - 1])
        if done >= since:
            yield from model.states(draw, per_point)


class CrashModel:
    """The durable contents and the pending changes of a disk at one point of a trace."""

    def __init__(self, start: Image) -> None:
        self.operations = 0
        self._durable: list[bytes] = []
        self._writes: list[list[Operation]] = []
        self._names: dict[str, int] = {}
        self._folders = set(start.folders)
        self._changes: dict[str, list[Operation]] = {}
        for path in sorted(start.files):
            self._names[path] = len(self._durable)
            self._durable.append(start.files[path])
            self._writes.append([])

    def pending(self) -> bool:
        """Return whether any change is not durable."""
        return any(self._writes) or any(self._changes.values())

    def take(self, operation: Operation) -> None:
        """Apply one operation."""
        self.operations += 1
        if operation.verb in ("write", "truncate"):
            self._writes[operation.file].append(operation)
        elif operation.verb == "sync":
            content = bytearray(self._durable[operation.file])
            for write in self._writes[operation.file]:
                _apply(content, write)
            self._durable[operation.file] = bytes(content)
            self._writes[operation.file] = []
        elif operation.verb == "fsync_dir":
            for change in self._changes.pop(operation.path, []):
                _rename(self._names, self._folders, change)
        else:
            if operation.verb == "create":
                self._durable.append(b"")
                self._writes.append([])
            self._changes.setdefault(_folder(operation.path), []).append(operation)

    def states(self, draw: Callable[[int], int], per_point: int) -> Iterator[CrashState]:
        """Yield the states that a crash at this point could leave, as in `crash_states`."""
        done = self.operations
        if not self.pending():
            yield CrashState(done, "nothing was under way", self._image(_Keep("all", "all", draw)))
            return
        for files, names in (("none", "none"), ("all", "all"), ("none", "all"), ("all", "none")):
            what = f"bytes: {files}, names: {names}"
            yield CrashState(done, what, self._image(_Keep(files, names, draw)))
        for number in range(per_point):
            keep = _Keep("some", "some", draw)
            image = self._image(keep)
            yield CrashState(done, f"drawn, number {number}: {'; '.join(keep.notes)}", image)

    def _image(self, keep: _Keep) -> Image:
        """Return the contents that remain if a crash keeps the given parts."""
        names = dict(self._names)
        folders = set(self._folders)
        for folder in sorted(self._changes):
            for change in _kept_changes(folder, self._changes[folder], keep):
                _rename(names, folders, change)
        files = {}
        for path, number in names.items():
            if _folder(path) in folders | {""}:
                writes = self._writes[number]
                files[path] = self._durable[number]
                if writes:
                    files[path] = _crashed(files[path], writes, keep)
        return Image(files, folders)


@dataclass
class _Keep:
    """Which unsynced changes a crash keeps: `none`, `all` or random ones, described in `notes`."""

    files: str
    names: str
    draw: Callable[[int], int]
    notes: list[str] = field(default_factory=list)


def _kept_changes(folder: str, changes: list[Operation], keep: _Keep) -> list[Operation]:
    """Return the changes of a folder's names that a crash keeps: the first few, or random ones."""
    if keep.names != "some":
        return changes if keep.names == "all" else []
    if keep.draw(4) == 0:
        kept = [change for change in changes if keep.draw(2)]
    else:
        kept = changes[: keep.draw(len(changes) + 1)]
    said = ", ".join(f"{change.verb} {change.path}" for change in kept)
    keep.notes.append(f"of {len(changes)} changes in '{folder}' {said or 'none'}")
    return kept


def _crashed(durable: bytes, writes: list[Operation], keep: _Keep) -> bytes:
    """Return a file's bytes after a crash that keeps a part of `writes`."""
    if keep.files == "none":
        return durable
    content = bytearray(durable)
    if keep.files == "all":
        kept = writes
    elif keep.draw(4) == 0:
        kept = [write for write in writes if keep.draw(2)]
        keep.notes.append(f"any {len(kept)} of {len(writes)} writes to {writes[0].path}")
    else:
        count = keep.draw(len(writes) + 1)
        kept = writes[:count]
        keep.notes.append(f"{count} of {len(writes)} writes to {writes[0].path}")
    for write in kept:
        _apply(content, write)
    if keep.files == "some" and kept == writes[: len(kept)] and len(kept) < len(writes):
        keep.notes[-1] += f", then {_apply_torn(content, writes[len(kept)], keep.draw)}"
    return bytes(content)


def _apply_torn(content: bytearray, write: Operation, draw: Callable[[int], int]) -> str:
    """Apply part of a write: its first bytes, some of its pages, or only its length.

    Return a description of the kept part.
    """
    if write.verb == "truncate":
        return "no cut"
    data = write.data
    way = draw(4)
    if way == 0:
        kept = draw(len(data) + 1)
        _overwrite(content, write.position, data[:kept])
        return f"{kept} of {len(data)} bytes"
    if way == 1:
        _overwrite(content, write.position + len(data), b"")
        return f"the length of {len(data)} bytes"
    unit = SECTOR_BYTES if way == 2 else PAGE_BYTES
    first = write.position - write.position % unit
    units = 0
    for start in range(first, write.position + len(data), unit):
        if draw(2):
            low = max(start, write.position)
            piece = data[low - write.position : start + unit - write.position]
            _overwrite(content, low, piece)
            units += 1
    return f"any {units} pieces of {unit} bytes of {len(data)}"


def _apply(content: bytearray, write: Operation) -> None:
    """Apply a write or a truncation."""
    if write.verb == "truncate":
        _cut(content, write.position)
    else:
        _overwrite(content, write.position, write.data)


def _overwrite(content: bytearray, position: int, data: bytes) -> None:
    """Write `data` at `position`; fill a gap before it with zeros."""
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _cut(content: bytearray, size: int) -> None:
    """Truncate contents to `size` bytes, or extend them with zeros."""
    del content[size:]
    content.extend(bytes(size - len(content)))


def _rename(names: dict[str, int], folders: set[str], change: Operation) -> None:
    """Apply a change of names, unless its file does not exist."""
    if change.verb == "create":
        names[change.path] = change.file
    elif change.verb == "unlink":
        names.pop(change.path, None)
    elif change.verb == "make_dir":
        folders.add(change.path)
    elif change.path in names:
        names[change.new_path] = names.pop(change.path)


def _folder(path: str) -> str:
    """Return the folder of `path`."""
    return path.rpartition("/")[0]


def _missing(verb: str, path: str) -> StorageFailure:
    """Return the failure for a missing path."""
    return StorageFailure(verb, path, "No such file or directory", errno.ENOENT)
