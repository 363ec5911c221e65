"""The disk in memory does what a real one does, and so does one that is full on command."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.store.disk import Disk, DiskLocked, RealDisk, StorageFailure
from leveret.store.disks.fillable import FillableDisk
from leveret.store.disks.memory import MemoryDisk


@pytest.fixture(params=["real", "memory", "fillable"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    """Give a disk of each kind: what holds for one holds for all."""
    if request.param == "real":
        return RealDisk(str(tmp_path))
    return MemoryDisk() if request.param == "memory" else FillableDisk(MemoryDisk())


def test_a_file_holds_what_was_written_where(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append([b"0123", b"", b"456789"])
    file.pwrite(b"xy", 2)
    file.truncate(4)
    file.append([b"b"])
    file.pwrite(b"c", 6)
    file.sync()
    assert file.read(0, 99) == b"01xyb\x00c"
    assert file.read(3, 2) == b"yb"
    assert file.size() == 7
    file.allocate(10)
    assert file.size() == 10
    file.close()
    assert disk.open("a").read(4, 99) == b"b\x00c\x00\x00\x00"


def test_folders_list_their_own_names(disk: Disk) -> None:
    disk.make_dir("journal")
    disk.make_dir("journal")
    disk.open("journal/2", create=True).close()
    disk.open("journal/1", create=True).close()
    disk.open("format", create=True).close()
    assert disk.list("") == ["format", "journal"]
    assert disk.list("journal") == ["1", "2"]
    disk.fsync_dir("journal")


def test_a_rename_replaces_and_an_unlink_leaves_open_files(disk: Disk) -> None:
    old, new = disk.open("old", create=True), disk.open("new", create=True)
    old.append([b"old"])
    new.append([b"new"])
    disk.rename("old", "new")
    assert disk.list("") == ["new"]
    assert disk.open("new").read(0, 9) == b"old"
    disk.unlink("new")
    assert disk.list("") == []
    assert (old.read(0, 9), new.read(0, 9)) == (b"old", b"new")


@pytest.mark.parametrize(
    "call",
    [
        lambda disk: disk.open("nowhere"),
        lambda disk: disk.open("nowhere/file", create=True),
        lambda disk: disk.list("nowhere"),
        lambda disk: disk.rename("nowhere", "b"),
        lambda disk: disk.unlink("nowhere"),
        lambda disk: disk.fsync_dir("nowhere"),
    ],
)
def test_what_is_not_there_is_said(disk: Disk, call: Callable[[Disk], object]) -> None:
    with pytest.raises(StorageFailure, match="nowhere") as failed:
        call(disk)
    assert failed.value.errno == errno.ENOENT


def test_one_broker_at_a_time_has_the_lock(disk: Disk) -> None:
    disk.lock("lock")
    with pytest.raises(DiskLocked):
        disk.lock("lock")
    disk.close()
    disk.lock("lock")
    disk.close()


def test_a_full_disk_keeps_what_it_has_and_takes_no_more() -> None:
    disk = FillableDisk(MemoryDisk())
    file = disk.open("a", create=True)
    file.append([b"kept"])
    disk.full = True
    assert disk.free() == 0
    growing: list[Callable[[], object]] = [
        lambda: file.append([b"more"]),
        lambda: file.pwrite(b"more", 2),
        lambda: file.write_ahead(1),
        lambda: file.allocate(9),
        lambda: disk.open("b", create=True),
    ]
    for call in growing:
        with pytest.raises(StorageFailure) as failed:
            call()
        assert failed.value.full
    file.pwrite(b"K", 0)
    assert file.read(0, 9) == b"Kept"
    file.truncate(1)
    disk.unlink("a")
    disk.full = False
    assert disk.free() > 0
    disk.open("b", create=True)
