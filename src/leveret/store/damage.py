"""Damage that was found, described so that an operator can act, and copied to `quarantine/`.

Nothing damaged is discarded: its bytes are copied before anything else happens to them.  The name
of the copy says where they were, so that a later start recognises the same damage.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.ballast import give_up_ballast
from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import QUARANTINE_DIR

#: Damaged places that are listed over HTTP; the rest is counted, and in the log.
_DAMAGE_PLACES_MAX: Final = 100


@final
class Damage:
    """One damaged place: `size` bytes at `position` of the file `path`.

    `what` describes the bytes; `records` is the number of records lost, or None if it is
    unknown; recovery corrects it once it knows which of them have other copies.  `group` is the
    journal group concerned, else 0, and `kind` the kind that a damaged record claims to be.  `torn`
    means that the bytes were never durable, so that nothing in them was confirmed: a crash left
    them.  `known` means that an earlier start reported the same damage.
    """

    def __init__(
        self,
        path: str,
        position: i64,
        size: i64,
        what: str,
        records: int | None = None,
        group: i64 = 0,
        kind: i64 = 0,
    ) -> None:
        self.path: Final = path
        self.position: Final[i64] = position
        self.size: Final[i64] = size
        self.what: Final = what
        self.records: int | None = records
        self.group: Final[i64] = group
        self.kind: Final[i64] = kind
        self.torn = False
        self.known = False

    @property
    def lost(self) -> int:
        """The number of records lost; an unknown number counts as one."""
        return 1 if self.records is None else self.records

    @property
    def said(self) -> str:
        """Describe the contents, and whether nothing is lost."""
        return f"{self.what}; nothing is lost" if self.records == 0 else self.what

    def __str__(self) -> str:
        return f"{self.path} at {self.position}, {self.size} bytes: {self.said}"


@final
class DamageCounts:
    """Counts of the damage that this process has found; the log names each place too.

    `places` are damaged places, of which `known` were found by an earlier start; `records_lost` are
    the records of the others, where an unknown number counts as one.  `torn` are ends of the
    journal that a crash left: nothing in them was confirmed.  `named` describes the first
    `_DAMAGE_PLACES_MAX` places in words.
    """

    def __init__(self) -> None:
        self.places: i64 = 0
        self.known: i64 = 0
        self.torn: i64 = 0
        self.records_lost: i64 = 0
        self.named: list[str] = []

    def add(self, damage: Damage) -> None:
        """Count a place."""
        if damage.known:
            self.known += 1
        elif damage.torn:
            self.torn += 1
            return
        else:
            self.records_lost += damage.lost
        self.places += 1
        if len(self.named) < _DAMAGE_PLACES_MAX:
            self.named.append(str(damage))


def quarantine_at_start(disk: Disk, damage: Damage, data: bytes) -> None:
    """Quarantine damage found by recovery, giving up the ballast if there is no space."""
    try:
        quarantine(disk, damage, data)
    except StorageFailure as failure:
        if not failure.full or not give_up_ballast(disk):
            raise
        quarantine(disk, damage, data)


def quarantine(disk: Disk, damage: Damage, data: bytes) -> None:
    """Copy damaged bytes to the quarantine, durably; set `known` if they are there already."""
    name = f"{damage.path.replace('/', '-')}-{damage.position}-{len(data)}"
    path = f"{QUARANTINE_DIR}/{name}"
    there = name in disk.list(QUARANTINE_DIR)
    file = disk.open(path, create=True)
    if there and file.size() == len(data) and file.read(0, len(data)) == data:
        damage.known = True
    else:
        file.truncate(0)
        file.append([data])
    file.sync()
    file.close()
    disk.fsync_dir(QUARANTINE_DIR)
