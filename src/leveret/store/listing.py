"""Which files of a data directory make a copy of it, in an order that makes the copy consistent.

    snapshots   first: all that they refer to is there, and the journal goes beyond their barrier
    journal     up to where it was when the snapshots were looked at; its last group may be torn
    segments    last: what the journal says lies in a chunk lay there before it said so

No file may be removed from the look until the copy is made (`CheckpointFiles.hold`).  Sizes are as
they were at the look: what is there never changes, and what grew since belongs to no copy.
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
    """Return the paths and sizes of a folder's files as they are now, in the order of their names.

    Files without their last name yet, and those that end with the process, are not among them.  A
    folder that is not there has none.

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
    """Return `size` bytes of a file from `at` on, nothing where they cannot be read.

    It is for who copies: what he cannot read is his loss alone.
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
    """Return whether a name is that of a file of the folder."""
    if folder == STATE_DIR:
        return state_generation(name) >= 0
    if folder == JOURNAL_DIR:
        return journal_number(name) >= 0
    return segment_number(name) >= 0
