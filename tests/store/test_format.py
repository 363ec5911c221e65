"""The format file: made once, true in two copies, and a guard against directories of others."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_digest

from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.format import UnknownFormat, look_at_format, open_format
from support.store.store_model import NOW, UUID, Store


def test_a_new_directory_gets_its_identity_and_keeps_it() -> None:
    disk = RecordingDisk()
    made = open_format(disk, UUID, NOW)
    read = open_format(disk, b"another uuid here", 1)
    assert made.uuid == read.uuid == UUID
    assert made.created_ms == read.created_ms == NOW
    assert made.seed == read.seed
    assert not read.damaged
    assert disk.list("") == ["format", "journal", "quarantine", "segments", "state"]


def test_any_flipped_bit_is_survived_and_what_matters_is_put_right() -> None:
    disk = RecordingDisk()
    open_format(disk, UUID, NOW)
    image = disk.image()
    whole = image.files["format"]
    positions = [*range(72), *range(4090, len(whole))]
    for position in positions:
        broken = bytearray(whole)
        broken[position] ^= 1 << (position % 8)
        image.files["format"] = bytes(broken)
        hurt = RecordingDisk(image)
        found = open_format(hurt, bytes(16), 1)
        assert found.uuid == UUID
        assert found.damaged == (position < 64 or position >= 4096)
        if found.damaged:
            assert hurt.image().files["format"] == whole


@pytest.mark.parametrize("size", [0, 1, 63, 64, 4096, 4159])
def test_a_file_that_was_cut_is_put_right_or_refused(size: int) -> None:
    disk = RecordingDisk()
    open_format(disk, UUID, NOW)
    image = disk.image()
    image.files["format"] = image.files["format"][:size]
    hurt = RecordingDisk(image)
    if size < 64:
        with pytest.raises(UnknownFormat):
            open_format(hurt, UUID, NOW)
    else:
        assert open_format(hurt, UUID, NOW).damaged
        assert len(hurt.image().files["format"]) == 4160


def with_layout(version: int) -> Image:
    """Return a new directory whose format file has another layout."""
    disk = RecordingDisk()
    open_format(disk, UUID, NOW)
    image = disk.image()
    block = bytearray(image.files["format"][:56])
    block[8] = version
    whole = bytes(block) + xxh3_64_digest(bytes(block))
    image.files["format"] = whole + bytes(4096 - 64) + whole
    return image


@pytest.mark.parametrize("version", [2, 6])
def test_a_later_layout_is_refused_and_so_is_one_that_is_too_old(version: int) -> None:
    disk = RecordingDisk(with_layout(version))
    with pytest.raises(UnknownFormat, match=f"layout {version}"):
        open_format(disk, UUID, NOW)
    assert disk.trace == []


@pytest.mark.parametrize("version", [3, 4])
def test_an_older_layout_is_read_and_a_start_raises_it(version: int) -> None:
    """So that an older release refuses the directory, instead of skipping what it cannot read."""
    disk = RecordingDisk(with_layout(version))
    assert [copy is not None and copy.uuid for copy in look_at_format(disk)] == [UUID] * 2
    assert disk.trace == []
    found = open_format(disk, bytes(16), 1)
    assert (found.uuid, found.created_ms, found.damaged) == (UUID, NOW, False)
    assert disk.image().files["format"] == with_layout(5).files["format"]


@pytest.mark.parametrize("path", ["journal/0000000000000001.jnl", "state/x", "segments/y"])
def test_a_directory_of_someone_else_is_refused(path: str) -> None:
    image = Image({path: b"theirs"}, {"journal", "state", "segments"})
    with pytest.raises(UnknownFormat, match="format file is missing"):
        open_format(RecordingDisk(image), UUID, NOW)


@pytest.mark.parametrize("path", ["notes.txt", "photos/one.jpg", "format"])
def test_what_is_refused_is_not_touched(path: str) -> None:
    folders = {path.partition("/")[0]} if "/" in path else set()
    disk = RecordingDisk(Image({path: b"theirs"}, folders))
    with pytest.raises(UnknownFormat, match=r"not a broker's directory|not a store's"):
        Store(disk)
    assert disk.trace == []
    assert disk.image() == Image({path: b"theirs"}, folders)


def test_what_a_new_disk_or_a_start_that_was_cut_off_left_is_no_hindrance() -> None:
    files = {"lock": b"", "format.new": b"half", ".keep": b"", "ballast": bytes(10)}
    disk = RecordingDisk(Image(files, {"lost+found", "journal", "quarantine"}))
    assert Store(disk).report.created
    assert not Store(RecordingDisk(disk.image())).report.created


def test_a_file_of_another_store_is_not_believed() -> None:
    """The uuid seeds every digest: a journal that was copied in is damage, not messages."""
    ours, theirs = RecordingDisk(), RecordingDisk()
    open_format(theirs, bytes(reversed(UUID)), NOW)
    other = Store(theirs)
    other.define_queue(1, "theirs")
    other.sync()
    Store(ours)
    image = ours.image()
    image.files.update(
        {path: data for path, data in theirs.image().files.items() if path.startswith("journal/")}
    )
    store = Store(RecordingDisk(image))
    assert store.state.queues == {}
    assert store.report.torn
