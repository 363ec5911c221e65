"""Lists and reads files for backups over HTTP, outside the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import FORMAT_PATH, look_at_format
from leveret.store.listing import FOLDERS, files_in, size_of


@dataclass(frozen=True)
class Listed:
    """The contents of a data directory: the uuid of its store, and its files' paths and sizes."""

    uuid: str
    files: dict[str, int]


def listed(disk: Disk) -> Listed | None:
    """Return the contents of a data directory, or None if it cannot be read.

    The files are in the order in which they must be copied.  The caller prevents their removal.
    """
    try:
        uuids = [copy.uuid.hex() for copy in look_at_format(disk) if copy is not None]
        if not uuids:
            return None
        files = {FORMAT_PATH: size_of(disk, FORMAT_PATH)}
        for folder in FOLDERS:
            files.update(files_in(disk, folder))
        return Listed(uuids[0], files)
    except StorageFailure:
        return None


@dataclass(frozen=True)
class FileSource:
    """Access to the files of one broker's data directory.

    `hold` prevents the removal of files until `release` is called as often.  `look` returns the
    contents, or None if they cannot be read.  `read` takes a path, a position and a number of
    bytes; it returns fewer bytes at the end of the file, and none if the file cannot be read.
    """

    hold: Callable[[], Awaitable[None]]
    release: Callable[[], object]
    look: Callable[[], Awaitable[Listed | None]]
    read: Callable[[str, int, int], Awaitable[bytes]]
