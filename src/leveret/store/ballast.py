"""The ballast: a file of nothing, given up when the disk is full.

    ballast    zeros that take room on the disk; 0 bytes long once it is given up

A full disk stops publishers, but what makes room needs some first: acks, deletes, the checkpoint
after which old files go.  Who finds no room for those gives the ballast up and tries again; it is
made again when the disk has room.

Not a promise: a disk that was full from the start has none, and some file systems do not give room
back at once.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.disk import Disk, StorageFailure

BALLAST_PATH: Final = "ballast"


def give_up_ballast(disk: Disk) -> bool:
    """Give the room of the ballast back; tell whether there was any.

    A disk that fails in it gives nothing back: who needed the room finds out.
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
    """The ballast of one store: `bytes_max` when it is whole.  One thread at a time calls it."""

    def __init__(self, disk: Disk, bytes_max: i64) -> None:
        self.bytes_max: Final[i64] = bytes_max
        #: Tells whether all of it is there; false until `fill` was called.
        self.whole = False
        self._disk = disk

    def fill(self) -> bool:
        """Make it whole, durably; tell whether there was room.

        A larger one of an earlier start is cut.  Raises: StorageFailure: the disk failed.
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
        """Give its room back; tell whether there was any."""
        self.whole = False
        return give_up_ballast(self._disk)
