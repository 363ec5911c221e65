"""The journal as it lies on disk: groups go to numbered files, each written and synced in order.

Its methods run in the sync thread: each spends its time in calls that release the GIL.  It decides
nothing: which group goes to which file was decided when the group was sealed (`journal.py`).

Invariants: when `write` returns, the group and its file's name are durable.  After the first
failure of any call every later call fails too, for what the disk holds is not known any more and a
failed sync is never tried again.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.store.disk import Disk, File, StorageFailure
from leveret.store.format import JOURNAL_DIR
from leveret.store.journal import Group


def journal_name(number: int) -> str:
    """Return the name of the journal file `number` in its folder."""
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
    """Writes groups and syncs them.  One thread at a time calls it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: File | None = None
        self._number: i64 = -1
        self._written: i64 = 0
        self._failure: StorageFailure | None = None

    def write(self, group: Group) -> None:
        """Write `group` and return when it is durable.

        Raises: StorageFailure: nothing may be confirmed any more.
        """
        self.append(group)
        self.sync()

    def append(self, group: Group) -> None:
        """Write `group` without waiting for the disk; what it holds is durable after `sync`.

        Raises: StorageFailure: nothing may be confirmed any more.
        """
        self._check()
        try:
            self._file_for(group).append(group.parts)
        except StorageFailure as failure:
            self._failure = failure
            raise
        self._written = group.number

    def sync(self) -> i64:
        """Return when all that was written is durable; return the newest such group's number.

        Raises: StorageFailure: nothing may be confirmed any more.
        """
        self._check()
        if self._file is not None:
            try:
                self._file.sync()
            except StorageFailure as failure:
                self._failure = failure
                raise
        return self._written

    def close(self) -> None:
        """Close the open file; what was not synced stays so."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _check(self) -> None:
        """Refuse every call after a failure."""
        if self._failure is not None:
            raise StorageFailure(
                self._failure.verb, self._failure.path, "failed before", self._failure.errno
            )

    def _file_for(self, group: Group) -> File:
        """Return the file that `group` belongs in.

        A new file's name is made durable here, once its predecessor is synced and closed.
        """
        file = self._file
        if file is not None and group.file_number == self._number:
            return file
        if file is not None:
            file.sync()
            file.close()
        file = self._disk.open(journal_path(int(group.file_number)), create=True)
        self._disk.fsync_dir(JOURNAL_DIR)
        self._file = file
        self._number = group.file_number
        return file
