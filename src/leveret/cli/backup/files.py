"""The files of a backup: copies, checksums, and the manifest that lists them.

    BACKUP/manifest.json     written last: a backup without it is incomplete

Invariants: every file and name is synced before the manifest is written; the manifest contains a
checksum of its own fields; no path in it points outside the backup.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_128

from leveret.cli import exits
from leveret.store.listing import FOLDERS

MANIFEST: Final = "manifest.json"
#: The version number of this layout in a manifest.
LAYOUT: Final = 1

PATH: Final = re.compile(
    r"format|(?:state/\d{16})|(?:journal/\d{16}\.jnl)|(?:segments/\d{16}\.seg)"
)

BLOCK_BYTES: Final = 1024 * 1024
#: The number of bytes between syncs of a copy, small enough not to delay the broker's syncs.
_SYNC_BYTES: Final = 4 * 1024 * 1024
#: Linux's ioctl for a file that shares the blocks of another (linux/fs.h).
_FICLONE: Final = 0x40049409


@dataclass(frozen=True)
class Copied:
    """A file in a backup: its path in the backup, its size and its checksum."""

    path: str
    bytes: int
    xxh3: str


@dataclass
class Manifest:
    """The contents of a backup, and the time of its data."""

    version: str
    uuid: str
    time_ms: int
    durable_group: int
    files: list[Copied] = field(default_factory=list)

    def write(self, directory: Path) -> None:
        """Write the manifest durably under its name.  Raises: OSError."""
        found: dict[str, Any] = {"leveret_backup": LAYOUT, **asdict(self)}
        found["xxh3"] = _digest(found)
        unnamed = directory / f"{MANIFEST}.new"
        with create(unnamed) as file:
            _write(file.fileno(), json.dumps(found, indent=1).encode())
            os.fsync(file.fileno())
        unnamed.rename(directory / MANIFEST)
        sync_folder(directory)


def read_manifest(directory: Path) -> Manifest:
    """Return a backup's manifest.  Raises: Failure if it is missing or damaged."""
    path = directory / MANIFEST
    try:
        found = json.loads(path.read_bytes())
        stored = found.pop("xxh3")
        if stored != _digest(found) or found.pop("leveret_backup") != LAYOUT:
            raise ValueError("its checksum does not match")
        files = [Copied(**each) for each in found.pop("files")]
        for each in files:
            if not PATH.fullmatch(each.path):
                raise ValueError(f"it contains the path {each.path!r}")
        return Manifest(**found, files=files)
    except OSError as error:
        text = f"{directory} is not a complete backup: {MANIFEST}: {error.strerror}"
        raise exits.Failure(text, exits.UNUSABLE) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        text = f"{directory}: {MANIFEST} is damaged: {error}"
        raise exits.Failure(text, exits.UNUSABLE) from None


def _digest(found: dict[str, Any]) -> str:
    """Return the checksum of a manifest's fields."""
    return xxh3_128(json.dumps(found, sort_keys=True).encode()).hexdigest()


class Copier:
    """Copies files from one directory to another, and calls `beat` with the bytes of each block."""

    def __init__(
        self, source: Path, target: Path, beat: Callable[[int], None], *, links: bool = False
    ) -> None:
        self._source = source
        self._target = target
        self._beat = beat
        self._links = links

    def copy(self, path: str, size: int, *, link: bool = False) -> Copied:
        """Copy the first `size` bytes of a file and sync the copy; `link` allows a hard link.

        If the file system supports it, the copy shares its blocks with the source.

        Raises: OSError.
        """
        source, target = self._source / path, self._target / path
        if link and self._links:
            os.link(source, target)
            with source.open("rb") as reading:
                return Copied(path, size, self._hash(reading.fileno(), size))
        with source.open("rb") as reading, create(target) as writing:
            if _clone(reading.fileno(), writing.fileno()):
                os.ftruncate(writing.fileno(), size)
                digest = self._hash(writing.fileno(), size)
            else:
                blocks = _blocks_of(reading.fileno(), size)
                digest = write_blocks(writing.fileno(), blocks, self._beat)
            os.fsync(writing.fileno())
        return Copied(path, size, digest)

    def _hash(self, reading: int, size: int) -> str:
        """Return the checksum of a file's first `size` bytes."""
        hasher = xxh3_128()
        for block in _blocks_of(reading, size):
            hasher.update(block)
            self._beat(len(block))
        return hasher.hexdigest()


def write_blocks(writing: int, blocks: Iterable[bytes], beat: Callable[[int], None]) -> str:
    """Write blocks to a new file, and return their checksum.  Raises: OSError."""
    hasher = xxh3_128()
    position = synced = 0
    for block in blocks:
        hasher.update(block)
        _write(writing, block)
        position += len(block)
        if position - synced >= _SYNC_BYTES:
            os.fdatasync(writing)
            # Synced pages must not displace the broker's pages in the page cache.
            os.posix_fadvise(writing, 0, position, os.POSIX_FADV_DONTNEED)
            synced = position
        beat(len(block))
    return hasher.hexdigest()


def _blocks_of(reading: int, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file.  Raises: OSError, also if the file is shorter."""
    position = 0
    while position < size:
        block = os.pread(reading, min(BLOCK_BYTES, size - position), position)
        if not block:
            raise OSError(0, "the file was truncated")
        position += len(block)
        yield block


def make_folders(directory: Path) -> None:
    """Create a directory with the folders of a store, for its owner only.  Raises: OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in FOLDERS:
        (directory / folder).mkdir(mode=0o700, exist_ok=True)


def sync_folders(directory: Path) -> None:
    """Sync a store's directory, its folders and its parent.  Raises: OSError."""
    for folder in FOLDERS:
        sync_folder(directory / folder)
    sync_folder(directory)
    sync_folder(directory.absolute().parent)


def sync_folder(folder: Path) -> None:
    """Sync a directory, so that the names in it are durable.  Raises: OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create(path: Path) -> Any:
    """Create and open a file that only its owner can read."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "r+b", buffering=0)


def _clone(reading: int, writing: int) -> bool:
    """Make a file share the blocks of another; return whether the file system supports this."""
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError:
        return False
    return True


def _write(descriptor: int, block: bytes) -> None:
    """Write a whole block."""
    left = memoryview(block)
    while left:
        left = left[os.write(descriptor, left) :]
