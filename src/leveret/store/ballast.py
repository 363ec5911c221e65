"""The ballast: a file that only takes up space, and is truncated when the disk is full.

    ballast    zeros that occupy space on the disk; 0 bytes long after it was given up

A full disk blocks publishers, but acks, deletes, and the checkpoint after which old files are
removed need some space before any is freed.  If a write for one of these finds no space, the
ballast is given up and the write repeated.  When the disk has space again, the ballast is created
again.

This is no guarantee: a disk that was full from the start has no ballast, and some file systems do
not free space at once.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.disk import Disk, StorageFailure

BALLAST_PATH: Final = "ballast"


def give_up_ballast(disk: Disk) -> bool:
    """Free the space of the ballast, and return whether there was any.

    If the disk fails, return False; the write that needs the space then fails too.
    """
    try:
        if BALLAST_PATH not in disk.list(""):
            return False
        file = disk.open(BALLAST_PATH)
        try:
            if file.size() == 0:
                return False
            file.truncate(0)
            return True
        finally:
            file.close()
    except StorageFailure:
        return False


@final
class Ballast:
    """The ballast of a store, with `bytes_max` when complete; one thread at a time calls it."""

    def __init__(self, disk: Disk, bytes_max: i64) -> None:
        self.bytes_max: Final[i64] = bytes_max
        #: Whether the ballast is complete; false until `fill` is called.
        self.whole = False
        self._disk = disk

    def fill(self) -> bool:
        """Complete the ballast, durably, and return whether there was enough space.

        A larger ballast of an earlier start is truncated.

        Raises: StorageFailure if the disk fails.
        """
        file = self._disk.open(BALLAST_PATH, create=True)
        try:
            if file.size() > self.bytes_max:
                file.truncate(int(self.bytes_max))
            if self.bytes_max > 0:
                file.allocate(int(self.bytes_max))
            file.sync()
        except StorageFailure as failure:
            if not failure.full:
                raise
            file.truncate(0)
            return False
        finally:
            file.close()
        self._disk.fsync_dir("")
        self.whole = True
        return True

    def give_up(self) -> bool:
        """Free the space of the ballast, and return whether there was any."""
        self.whole = False
        return give_up_ballast(self._disk)
