"""The listing of a data directory's files for a copy, in an order that makes it consistent.

    snapshots   first: all files that they refer to exist, and the journal extends past their
                barrier
    journal     up to its size at the time of listing; its last group may be torn
    segments    last: a chunk was written before the journal referred to it

Between the listing and the end of the copy, no file may be removed (`CheckpointFiles.hold`).  Sizes
are those at the time of listing.  Listed bytes never change, and later growth is not copied.
"""

from __future__ import annotations

from typing import Final

from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import JOURNAL_DIR, SEGMENTS_DIR, STATE_DIR
from leveret.store.journal.files import journal_number
from leveret.store.segments.segments import segment_number
from leveret.store.snapshot import state_generation

#: The folders in the order in which they are copied.
FOLDERS: Final = (STATE_DIR, JOURNAL_DIR, SEGMENTS_DIR)


def files_in(disk: Disk, folder: str) -> list[tuple[str, int]]:
    """Return the paths and sizes of a folder's files, in the order of their names.

    Temporary files, and files without a final name yet, are omitted.  A missing folder has no
    files.

    Raises: StorageFailure.
    """
    if folder not in disk.list(""):
        return []
    names = [name for name in disk.list(folder) if _counts(folder, name)]
    return [(f"{folder}/{name}", size_of(disk, f"{folder}/{name}")) for name in names]


def size_of(disk: Disk, path: str) -> int:
    """Return a file's size in bytes.  Raises: StorageFailure."""
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


def read_some(disk: Disk, path: str, at: int, size: int) -> bytes:
    """Return `size` bytes of a file from `at` on, or b"" if they cannot be read.

    Copies use it, so unreadable bytes are missing only in the copy.
    """
    try:
        file = disk.open(path)
        try:
            return file.read(at, size)
        finally:
            file.close()
    except StorageFailure:
        return b""


def _counts(folder: str, name: str) -> bool:
    """Return whether a name is the final name of a file in the folder."""
    if folder == STATE_DIR:
        return state_generation(name) >= 0
    if folder == JOURNAL_DIR:
        return journal_number(name) >= 0
    return segment_number(name) >= 0
