"""What was found damaged, said so that an operator can act on it, and kept in `quarantine/`.

Nothing damaged is thrown away: its bytes are copied before anything else happens to them.  The
copy's name says where they lay, so that the same damage, met again at the next start, is known.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.limits import DAMAGE_PLACES_MAX
from leveret.store.ballast import give_up_ballast
from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import QUARANTINE_DIR


@final
class Damage:
    """One damaged place: `size` bytes at `position` of the file `path`.

    `what` says what lay there; `records` is how many records are lost by it, as far as that can be
    told (-1: it cannot).  `group` is the journal group concerned, else 0.  `torn` tells that the
    bytes were never durable, so that nothing of them was confirmed: a crash left them so.  `known`
    tells that an earlier start reported the same.
    """

    def __init__(
        self, path: str, position: i64, size: i64, what: str, records: i64 = -1, group: i64 = 0
    ) -> None:
        self.path: Final = path
        self.position: Final[i64] = position
        self.size: Final[i64] = size
        self.what: Final = what
        self.records: Final[i64] = records
        self.group: Final[i64] = group
        self.torn = False
        self.known = False

    def __str__(self) -> str:
        return f"{self.path} at {self.position}, {self.size} bytes: {self.what}"


@final
class DamageCounts:
    """What this process has found damaged, for whoever asks; the log names each place too.

    `places` are damaged places, those among them that an earlier start had found are `known`;
    `records_lost` are the records of the others, a part that cannot be told counting as one.
    `torn` are ends of the journal that a crash left: nothing of them was confirmed.  `named` are
    the first `DAMAGE_PLACES_MAX` places, in words.
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
            self.records_lost += damage.records if damage.records >= 0 else 1
        self.places += 1
        if len(self.named) < DAMAGE_PLACES_MAX:
            self.named.append(str(damage))


def quarantine_at_start(disk: Disk, damage: Damage, data: bytes) -> None:
    """Quarantine what recovery found; where there is no room, the ballast pays for it."""
    try:
        quarantine(disk, damage, data)
    except StorageFailure as failure:
        if not failure.full or not give_up_ballast(disk):
            raise
        quarantine(disk, damage, data)


def quarantine(disk: Disk, damage: Damage, data: bytes) -> None:
    """Copy the damaged bytes `data` to the quarantine, durably; mark damage that lies there."""
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
