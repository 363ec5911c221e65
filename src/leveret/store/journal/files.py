"""The journal on disk: groups are written and synced in order, in numbered files.

The methods run in the sync thread and spend their time in calls that release the GIL.  They choose
no files: the file of each group was chosen when the group was sealed (`journal.py`).

Invariants: when `write` returns, the group and the name of its file are durable.  After the first
failure of any call, expected or not, every later call fails too, because the contents of the disk
are unknown and a failed sync is never repeated.  A write that finds no space is not such a failure:
the file is truncated to its last complete group, so that the same group may be written again
(`DiskFull`), but no other group before it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.ballast import Ballast
from leveret.store.disk import Disk, DiskFull, StorageFailure, StoreFile, append_whole, make_file
from leveret.store.format import JOURNAL_DIR
from leveret.store.journal.journal import JournalGroup

#: The number of zeros that are written ahead of a journal file's end, after a number of consecutive
#: groups of a limited size.  A sync that changes neither a file's size nor its blocks takes a
#: quarter less time (86 instead of 115 µs on ext4).
JOURNAL_AHEAD_BYTES: Final = 256 * 1024
JOURNAL_AHEAD_GROUP_BYTES: Final = 8192
JOURNAL_AHEAD_GROUPS: Final = 16


def journal_name(number: int) -> str:
    """Return the name of the journal file `number`, without its folder."""
    return f"{number:016d}.jnl"


def journal_path(number: int) -> str:
    """Return the path of the journal file `number`."""
    return f"{JOURNAL_DIR}/{journal_name(number)}"


def journal_number(name: str) -> int:
    """Return the number of the journal file called `name`, or -1 if it is not one."""
    stem = name.removesuffix(".jnl")
    return int(stem) if stem != name and len(stem) == 16 and stem.isdecimal() else -1


@final
class JournalFiles:
    """Writes and syncs groups; only one thread at a time may call it.

    If a write finds no space, it gives up the `ballast`, if there is one.
    """

    def __init__(self, disk: Disk, ballast: Ballast | None = None) -> None:
        self._disk = disk
        self._ballast = ballast
        self._file: StoreFile | None = None
        #: The end of the last complete group in the file.
        self._end: i64 = 0
        #: The end of the zeros in the file, and the number of consecutive small groups.
        self._zeros_end: i64 = 0
        self._small_groups: i64 = 0
        self._number: i64 = -1
        self._written: i64 = 0
        self._failure: StorageFailure | None = None
        #: True during a call, and permanently after an unexpected exception.
        self._broken = False

    def write(self, group: JournalGroup) -> None:
        """Write `group` and wait until it is durable.

        Raises: DiskFull, after which the caller may try again with the same group; StorageFailure,
        after which nothing may be confirmed.
        """
        self.append(group)
        self.sync()

    def append(self, group: JournalGroup) -> None:
        """Write `group` without a sync; its records are durable after `sync`.

        Raises: as `write`.
        """
        self._check()
        self._broken = True
        try:
            self._append_somehow(group)
        except StorageFailure as failure:
            self._broken = False
            if not isinstance(failure, DiskFull):
                self._failure = failure
            raise
        self._broken = False

    def _append_somehow(self, group: JournalGroup) -> None:
        """Write `group`; if there is no space, truncate the ballast for it."""
        try:
            self._append(group)
        except DiskFull:
            if self._ballast is None or not self._ballast.give_up():
                raise
            self._append(group)

    def _append(self, group: JournalGroup) -> None:
        """Write `group`, or raise `DiskFull` and leave the file as it was."""
        file = self._file_for(group)
        self._write_ahead(file, group.size)
        try:
            append_whole(file, group.parts, int(self._end))
        except DiskFull:
            self._zeros_end = self._end
            raise
        self._end += group.size
        self._written = group.number

    def _write_ahead(self, file: StoreFile, size: i64) -> None:
        """Write zeros ahead of small groups, which makes their syncs faster.

        Groups that overwrite zeros change neither the size nor the blocks of the file, so the file
        system writes less.  Large groups gain nothing, because the zeros are written in addition.
        """
        if size > JOURNAL_AHEAD_GROUP_BYTES:
            self._small_groups = 0
            return
        self._small_groups += 1
        if self._end + size <= self._zeros_end or self._small_groups < JOURNAL_AHEAD_GROUPS:
            return
        # Try again only after a while if there is no space for zeros.
        self._small_groups = 0
        try:
            file.write_ahead(JOURNAL_AHEAD_BYTES)
        except StorageFailure as failure:
            if not failure.full:
                raise
            file.truncate(int(self._end))
        else:
            self._zeros_end = self._end + JOURNAL_AHEAD_BYTES

    def sync(self) -> i64:
        """Wait until all written groups are durable, and return the number of the newest one.

        Raises: StorageFailure, after which nothing may be confirmed.
        """
        self._check()
        if self._file is not None:
            self._broken = True
            try:
                self._file.sync()
            except StorageFailure as failure:
                self._broken = False
                self._failure = failure
                raise
            self._broken = False
        return self._written

    def close(self) -> None:
        """Close the open file without syncing it."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _check(self) -> None:
        """Raise if an earlier call failed."""
        if self._failure is not None:
            raise StorageFailure(
                self._failure.verb, self._failure.path, "failed before", self._failure.errno
            )
        if self._broken:
            raise RuntimeError("the journal is not written to after a call that failed")

    def _file_for(self, group: JournalGroup) -> StoreFile:
        """Return the file of `group`.

        For a new file, sync and close its predecessor, and make the new file's name durable.
        """
        file = self._file
        if file is not None:
            if group.file_number == self._number:
                return file
            file.sync()
            self._file = None
            file.close()
        file = make_file(self._disk, journal_path(int(group.file_number)))
        self._end = file.size()
        self._zeros_end = self._end
        self._disk.fsync_dir(JOURNAL_DIR)
        self._file = file
        self._number = group.file_number
        return file
