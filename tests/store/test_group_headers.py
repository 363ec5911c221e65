"""The headers of groups: their times, and journals of older builds, whose headers have none."""

from __future__ import annotations

import struct

import pytest
from xxhash import xxh3_64_digest

from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.journal.files import journal_path
from leveret.store.journal.scan import JournalScan
from leveret.store.records.record import GROUP_HEADER_BYTES, OLD_GROUP_HEADER_BYTES
from support.store.store_model import Store, message


def a_store(disk: RecordingDisk, *times_ms: int) -> Store:
    """Return a store with a message and a group for each time."""
    store = Store(disk)
    if 1 not in store.state.queues:
        store.define_queue(1, "q")
    for time_ms in times_ms:
        store.journal.time_ms = max(store.journal.time_ms, time_ms)
        store.publish(message(b"at %d" % time_ms), 1)
        store.sync()
    return store


def of_an_older_build(store: Store) -> Image:
    """Return the directory as an older build would have written it: with shorter headers."""
    assert isinstance(store.disk, RecordingDisk)
    image = store.disk.image()
    data, written = image.files[journal_path(1)], b""
    at = 0
    while at < len(data):
        number, size, durable, records = struct.unpack_from("<QQQQ", data, at + 8)
        head = b"LVgroup1" + struct.pack("<QQQQ", number, size, durable, records)
        end = at + GROUP_HEADER_BYTES + size
        written += head + xxh3_64_digest(head, store.report.seed ^ 1)
        written += data[at + GROUP_HEADER_BYTES : end]
        at = end
    return Image(image.files | {journal_path(1): written}, set(image.folders))


def times_in(image: Image, store: Store, number: int = 1) -> list[tuple[int, int]]:
    """Return the groups of a journal file with the times in their headers."""
    data = image.files[journal_path(number)]
    scan = JournalScan(data, store.report.seed, "journal", number, 1)
    found: list[tuple[int, int]] = []
    while scan.next():
        if not found or found[-1][0] != scan.group:
            found.append((int(scan.group), int(scan.time_ms)))
    return found


def test_each_group_has_its_time_also_after_a_start() -> None:
    disk = RecordingDisk()
    store = a_store(disk, 1000, 2000)
    again = a_store(RecordingDisk(disk.image()), 1500, 3000)
    assert times_in(disk.image(), store) == [(1, 1000), (2, 2000)]
    assert isinstance(again.disk, RecordingDisk)
    assert times_in(again.disk.image(), again, 2)[-2:] == [(3, 2000), (4, 3000)]


def test_the_journal_of_an_older_build_is_read_and_continued() -> None:
    older = of_an_older_build(a_store(RecordingDisk(), 1000, 2000))
    disk = RecordingDisk(older)
    store = a_store(disk, 3000)
    assert (store.report.damages, store.report.torn) == ([], [])
    after = Store(RecordingDisk(disk.image()))
    live = after.state.queues[1].live
    assert [live[number].body for number in sorted(live)] == [b"at 1000", b"at 2000", b"at 3000"]


@pytest.mark.parametrize("at", range(OLD_GROUP_HEADER_BYTES))
def test_a_flip_in_an_older_header_costs_nothing(at: int) -> None:
    store = a_store(RecordingDisk(), 1000, 2000, 3000)
    older = of_an_older_build(store)
    data = bytearray(older.files[journal_path(1)])
    data[data.index(b"LVgroup1", 1) + at] ^= 1
    harmed = Image(older.files | {journal_path(1): bytes(data)}, set(older.folders))
    after = Store(RecordingDisk(harmed))
    assert after.state.seen() == store.state.seen()
    assert [damage.records for damage in after.report.damages] == [0]
