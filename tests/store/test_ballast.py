"""The ballast: room that is really taken, given up at once, and made again."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

import pytest

from leveret.store.ballast import BALLAST_PATH, Ballast, give_up_ballast
from leveret.store.disk import RealDisk, StorageFailure
from leveret.store.disks.faulty import Fault, FaultyDisk
from leveret.store.disks.recording import RecordingDisk


def test_it_takes_room_on_a_real_disk_for_its_owner_only(tmp_path: Path) -> None:
    ballast = Ballast(RealDisk(str(tmp_path)), 1_000_000)
    assert not ballast.whole
    assert ballast.fill()
    found = (tmp_path / BALLAST_PATH).stat()
    assert (found.st_size, stat.S_IMODE(found.st_mode)) == (1_000_000, 0o600)
    assert found.st_blocks * 512 >= 1_000_000
    assert ballast.give_up()
    assert not ballast.whole
    assert (tmp_path / BALLAST_PATH).stat().st_blocks == 0
    assert not ballast.give_up()


def test_a_ballast_of_an_earlier_start_gets_the_size_of_this_one(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    for size in (200_000, 300_000, 100_000, 0):
        ballast = Ballast(disk, size)
        assert ballast.fill()
        assert ballast.whole
        assert (tmp_path / BALLAST_PATH).stat().st_size == size


def test_there_is_none_to_give_up_where_none_was_made() -> None:
    assert not give_up_ballast(RecordingDisk())


def test_without_room_nothing_of_it_stays() -> None:
    disk = RecordingDisk(bytes_max=999)
    ballast = Ballast(disk, 1000)
    assert not ballast.fill()
    assert not ballast.whole
    assert disk.free() == 999
    disk.bytes_max = 1000
    assert ballast.fill()
    assert disk.free() == 0


@pytest.mark.parametrize("verb", ["open", "allocate", "sync", "fsync_dir"])
def test_a_disk_that_fails_is_no_disk_without_room(verb: str) -> None:
    disk = FaultyDisk(RecordingDisk(), Fault("error", 1, verbs=(verb,), number=errno.EIO))
    ballast = Ballast(disk, 1000)
    with pytest.raises(StorageFailure):
        ballast.fill()
    assert not ballast.whole


def test_a_disk_that_fails_gives_nothing_back() -> None:
    disk = FaultyDisk(RecordingDisk(), Fault("error", 1, verbs=("truncate",)))
    ballast = Ballast(disk, 1000)
    assert ballast.fill()
    assert not ballast.give_up()
