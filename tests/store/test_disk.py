"""The real disk: whole writes, modes, locks, and failures that say what failed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from leveret.store.disk import PARTS_MAX, DiskLocked, RealDisk, StorageFailure


def test_appended_parts_lie_in_order_even_when_there_are_more_than_one_call_takes(
    tmp_path: Path,
) -> None:
    disk = RealDisk(str(tmp_path / "data"))
    parts = [bytes([i % 251]) * (i % 7) for i in range(PARTS_MAX * 2 + 5)]
    file = disk.open("a", create=True)
    file.append(parts)
    file.append([b"", b"end"])
    file.sync()
    assert file.read(0, 1 << 20) == b"".join(parts) + b"end"
    assert file.size() == len(b"".join(parts)) + 3
    file.close()
    file.close()


def test_a_large_part_is_written_whole(tmp_path: Path) -> None:
    file = RealDisk(str(tmp_path)).open("big", create=True)
    body = os.urandom(3_000_000)
    file.append([b"head", body, b"tail"])
    assert file.read(0, 4_000_000) == b"head" + body + b"tail"


def test_append_goes_on_behind_what_pwrite_and_truncate_left(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    file = disk.open("a", create=True)
    file.append([b"0123456789"])
    file.pwrite(b"xy", 2)
    file.append([b"a"])
    file.truncate(4)
    file.append([b"b"])
    file.pwrite(b"c", 6)
    file.append([b"d"])
    assert file.read(0, 99) == b"01xyb\x00cd"
    assert file.read(3, 2) == b"yb"
    assert disk.open("a").size() == 8


def test_files_and_directories_are_for_their_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        disk = RealDisk(str(tmp_path / "data"))
        disk.make_dir("journal")
        disk.open("journal/1", create=True)
        disk.lock("lock")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data/journal").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data/journal/1").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "data/lock").stat().st_mode) == 0o600


def test_one_holder_at_a_time_has_the_lock(tmp_path: Path) -> None:
    first = RealDisk(str(tmp_path))
    second = RealDisk(str(tmp_path))
    first.lock("lock")
    with pytest.raises(DiskLocked):
        second.lock("lock")
    first.close()
    second.lock("lock")


def test_names_are_listed_renamed_and_removed(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.make_dir("d")
    disk.make_dir("d")
    for name in ("b", "a"):
        disk.open(f"d/{name}", create=True).close()
    assert disk.list("d") == ["a", "b"]
    disk.rename("d/a", "d/b")
    disk.fsync_dir("d")
    assert disk.list("d") == ["b"]
    disk.unlink("d/b")
    assert disk.list("d") == []


def test_a_failure_names_the_verb_the_path_and_the_errno(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    with pytest.raises(StorageFailure, match="open nothing: No such file") as raised:
        disk.open("nothing")
    assert raised.value.verb == "open"
    assert raised.value.errno == errno.ENOENT
    assert not raised.value.full
    for failing in (
        lambda: disk.unlink("nothing"),
        lambda: disk.rename("nothing", "more"),
        lambda: disk.list("nothing"),
        lambda: disk.fsync_dir("nothing"),
        lambda: disk.lock("no/where"),
    ):
        with pytest.raises(StorageFailure):
            failing()


def test_a_full_disk_is_told_apart() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    file = RealDisk("/dev").open("full")
    with pytest.raises(StorageFailure) as raised:
        file.append([b"x"])
    assert raised.value.full


def test_a_closed_file_fails_and_does_not_write_elsewhere(tmp_path: Path) -> None:
    file = RealDisk(str(tmp_path)).open("a", create=True)
    file.close()
    for failing in (
        lambda: file.append([b"x"]),
        lambda: file.pwrite(b"x", 0),
        lambda: file.read(0, 1),
        lambda: file.truncate(0),
        file.sync,
        file.size,
    ):
        with pytest.raises(StorageFailure):
            failing()
