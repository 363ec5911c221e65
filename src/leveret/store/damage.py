"""Descriptions of damaged places, their counts, and copies of their bytes in `quarantine/`.

No damaged bytes are discarded: they are copied before any other change to them.  The copy's name
contains their file and position, so that a later start recognises the same damage.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.ballast import give_up_ballast
from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import QUARANTINE_DIR

#: How many damaged places are listed over HTTP.  All are counted and logged.
_DAMAGE_PLACES_MAX: Final = 100


@final
class Damage:
    """One damaged place: `size` bytes at `position` of the file `path`.

    `what` describes the bytes.  `records` is the number of lost records, or None if unknown;
    recovery corrects it once it knows which records have other copies.  `group` is the journal
    group, or 0 outside the journal, and `kind` is the kind in a damaged record's header.  `torn`
    means that a crash left the bytes, which were never durable, so nothing in them was confirmed.
    `known` means that an earlier start reported the same damage.
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
        """The number of lost records, or one if unknown."""
        return 1 if self.records is None else self.records

    @property
    def said(self) -> str:
        """The description of the bytes, which also says if nothing is lost."""
        return f"{self.what}; nothing is lost" if self.records == 0 else self.what

    def __str__(self) -> str:
        return f"{self.path} at {self.position}, {self.size} bytes: {self.said}"


@final
class DamageCounts:
    """Counts of the damage that this process has found; the log also names each place.

    `places` counts damaged places, including `known` ones, which an earlier start found.
    `records_lost` counts the records lost in the others, where an unknown number counts as one.
    `torn` counts ends of the journal that a crash left, in which nothing was confirmed.  `named`
    describes the first `_DAMAGE_PLACES_MAX` places.
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
    """Quarantine damage found by recovery, and free the ballast if there is no space."""
    try:
        quarantine(disk, damage, data)
    except StorageFailure as failure:
        if not failure.full or not give_up_ballast(disk):
            raise
        quarantine(disk, damage, data)


def quarantine(disk: Disk, damage: Damage, data: bytes) -> None:
    """Copy damaged bytes to the quarantine, durably; set `known` if it contains them already."""
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
