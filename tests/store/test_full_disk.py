"""A disk without room under the journal: cut back, paid by the ballast, tried again.

What was confirmed stays, what was not may be written again as soon as there is room, and a restart
finds neither a torn nor a damaged place.
"""

from __future__ import annotations

import errno
import random

import pytest

from leveret.limits import JOURNAL_FILE_BYTES
from leveret.store.ballast import Ballast
from leveret.store.disk import DiskFull, StorageFailure
from leveret.store.disks.faulty import Fault, FaultyDisk
from leveret.store.disks.recording import Image, RecordingDisk, crash_states
from leveret.store.journal.files import JournalFiles
from leveret.store.journal.journal import JournalGroup
from support.store.store_model import Store, message


def filled(room: int, ballast: int = 0) -> tuple[RecordingDisk, Store]:
    """A store with one message, on a disk that has `room` left beside a ballast."""
    disk = RecordingDisk()
    store = Store(disk)
    if ballast:
        kept = Ballast(disk, ballast)
        assert kept.fill()
        store.files = JournalFiles(disk, kept)
    store.define_queue(1, "q")
    store.publish(message(b"first"), 1)
    store.sync()
    disk.bytes_max = sum(map(len, disk.image().files.values())) + room
    return disk, store


def sealed(store: Store, body: bytes) -> JournalGroup:
    """A group with one message of the queue."""
    store.publish(message(body), 1)
    group = store.journal.seal()
    assert group is not None
    return group


def bodies(image: Image) -> list[bytes]:
    """The bodies that a restart finds, which must find no damage and no torn end."""
    after = Store(RecordingDisk(image))
    assert (after.report.damages, after.report.torn) == ([], [])
    return [kept.body for kept in after.state.queues[1].live.values()]


@pytest.mark.parametrize("room", [0, 1, 40, 300])
def test_a_write_without_room_leaves_nothing_and_is_done_when_there_is(room: int) -> None:
    disk, store = filled(room)
    group = sealed(store, b"x" * 1000)
    for _ in range(3):
        with pytest.raises(DiskFull) as raised:
            store.files.write(group)
        assert raised.value.full
        assert disk.free() == room
    assert bodies(disk.image()) == [b"first"]
    disk.bytes_max += 10_000
    store.files.write(group)
    store.journal.synced(group.number)
    assert bodies(disk.image()) == [b"first", b"x" * 1000]


def test_the_ballast_pays_once() -> None:
    disk, store = filled(room=10, ballast=4000)
    store.files.write(sealed(store, b"a" * 1000))
    store.files.write(sealed(store, b"b" * 1000))
    with pytest.raises(DiskFull):
        store.files.write(sealed(store, b"c" * 4000))
    assert bodies(disk.image()) == [b"first", b"a" * 1000, b"b" * 1000]


def test_a_new_file_without_room_is_made_later() -> None:
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    store = Store(disk)
    store.define_queue(1, "q")
    store.files.write(sealed(store, b"y" * (JOURNAL_FILE_BYTES + 1)))
    disk.faults.append(Fault("error", 1, verbs=("open",), number=errno.EDQUOT))
    group = sealed(store, b"z")
    with pytest.raises(DiskFull):
        store.files.write(group)
    store.files.write(group)
    assert bodies(recording.image())[-1] == b"z"


@pytest.mark.parametrize("verb", ["truncate", "sync", "fsync_dir"])
def test_room_that_runs_out_later_than_at_the_write_is_a_failure(verb: str) -> None:
    """A file that cannot be cut back, or whose sync failed, is not known any more."""
    recording = RecordingDisk()
    recording.make_dir("journal")
    disk = FaultyDisk(recording)
    store = Store(disk)
    disk.faults.append(Fault("short", 1, verbs=("append",), within="journal", number=errno.ENOSPC))
    disk.faults.append(Fault("error", 1, verbs=(verb,), within="journal", number=errno.ENOSPC))
    if verb != "truncate":
        disk.faults.pop(0)
    store.define_queue(1, "q")
    with pytest.raises(StorageFailure) as raised:
        store.sync()
    assert not isinstance(raised.value, DiskFull)
    with pytest.raises(StorageFailure, match="failed before"):
        store.files.sync()


def test_a_crash_while_the_disk_is_full_loses_nothing_confirmed() -> None:
    """Between the short write, the cut and the second try: each state that a crash leaves."""
    disk, store = filled(room=500, ballast=2000)
    since = len(disk.trace)
    store.files.write(sealed(store, b"x" * 1000))
    draw = random.Random(0).randrange
    states = 0
    for state in crash_states(disk, draw, 8, since=since):
        states += 1
        after = Store(RecordingDisk(state.image))
        assert after.report.damages == [], state.what
        found = [kept.body for kept in after.state.queues[1].live.values()]
        assert found in ([b"first"], [b"first", b"x" * 1000]), state.what
    assert states > 30
