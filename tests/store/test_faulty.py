"""The faulty disk: faults hit the operation they name, and a wait is the caller's."""

from __future__ import annotations

import errno

import pytest

from leveret.store.disk import StorageFailure
from leveret.store.disks.faulty import Fault, FaultyDisk
from leveret.store.disks.recording import RecordingDisk
from support.store.store_model import Store, message


def test_a_fault_hits_the_operation_it_names_and_no_other() -> None:
    fault = Fault("error", 2, verbs=("sync",), within="b", number=errno.ENOSPC)
    disk = FaultyDisk(RecordingDisk(), fault)
    a, b = disk.open("a", create=True), disk.open("b", create=True)
    for file in (a, a, b):
        file.sync()
    with pytest.raises(StorageFailure) as raised:
        b.sync()
    assert raised.value.full
    b.sync()
    assert fault.hits == 1
    assert [verb for verb, _ in disk.operations] == ["open", "open", *["sync"] * 5]


def test_a_lasting_fault_hits_all_that_follows() -> None:
    disk = FaultyDisk(RecordingDisk(), Fault("error", 3, lasting=True))
    disk.make_dir("d")
    disk.fsync_dir("")
    for call in (
        lambda: disk.open("d/a", create=True),
        lambda: disk.make_dir("e"),
        lambda: disk.rename("d", "e"),
        lambda: disk.unlink("d"),
    ):
        with pytest.raises(StorageFailure):
            call()
    assert disk.list("") == ["d"]


def test_a_short_write_leaves_half() -> None:
    disk = FaultyDisk(RecordingDisk(), Fault("short", 1, verbs=("append", "pwrite"), lasting=True))
    file = disk.open("a", create=True)
    with pytest.raises(StorageFailure):
        file.append([b"0123", b"4567"])
    with pytest.raises(StorageFailure):
        file.pwrite(b"abcd", 2)
    assert file.read(0, 99) == b"01ab"
    file.truncate(1)
    assert file.size() == 1
    file.close()


def test_nothing_is_durable_while_the_sync_waits() -> None:
    """What gathers during a sync is the next group; only a sync that came back counts."""
    seen: list[tuple[int, int, bool]] = []
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    store = Store(disk)
    store.define_queue(1, "q")
    store.sync()

    def during_the_sync() -> None:
        store.publish(message(b"meanwhile"), 1)
        journal = store.journal
        seen.append((int(journal.durable_group), int(journal.group), journal.has_records()))

    disk.faults.append(Fault("wait", 1, verbs=("sync",), wait=during_the_sync))
    store.publish(message(b"first"), 1)
    waiting_for = store.journal.group
    store.sync()
    assert seen == [(1, 3, True)]
    assert store.journal.durable_group == waiting_for == 2
    assert store.journal.unsynced_bytes > 0
    crashed = Store(RecordingDisk(recording.image()))
    assert [kept.body for kept in crashed.state.queues[1].live.values()] == [b"first"]


@pytest.mark.parametrize("at", range(1, 40))
@pytest.mark.parametrize("kind", ["error", "short"])
def test_any_call_may_fail_and_what_was_confirmed_is_there(kind: str, at: int) -> None:
    """The k-th call to the disk fails, for every k of a script with a checkpoint in it."""
    recording = RecordingDisk()
    disk = FaultyDisk(recording, Fault(kind, at))
    confirmed: list[bytes] = []
    try:
        store = Store(disk)
        store.define_queue(1, "q")
        store.sync()
        for number in range(4):
            body = b"%d" % number
            store.publish(message(body), 1)
            store.sync()
            confirmed.append(body)
            if number == 1:
                store.checkpoint(1)
    except StorageFailure:
        recording.unlock()
        after = Store(RecordingDisk(recording.image()))
        queue = after.state.queues.get(1)
        bodies = [kept.body for kept in queue.live.values()] if queue else []
        assert bodies[: len(confirmed)] == confirmed
        assert len(bodies) <= len(confirmed) + 1
        assert after.report.damages == []
    else:
        assert len(confirmed) == 4
        assert at > len(disk.operations)


def divide_by_zero() -> None:
    """Stand for a fault of ours, which nobody expects."""
    raise ZeroDivisionError


def go_on(store: Store) -> None:
    """Do what a shell would do next that went on after an exception."""
    store.sync()
    store.checkpoint()


@pytest.mark.parametrize("at", range(1, 40))
def test_a_bug_in_any_call_is_the_last_of_its_files(at: int) -> None:
    """Where the journal's or the checkpoint's work raises it is not gone on with, whoever asks."""
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    confirmed: list[bytes] = []
    store = Store(disk)
    store.define_queue(1, "q")
    store.sync()
    disk.faults.append(Fault("wait", at, wait=divide_by_zero))
    try:
        for number in range(4):
            body = b"%d" % number
            store.publish(message(body), 1)
            store.sync()
            confirmed.append(body)
            if number == 1:
                store.checkpoint(1)
    except ZeroDivisionError:
        with pytest.raises(RuntimeError):
            go_on(store)
        after = Store(RecordingDisk(recording.image()))
        bodies = [kept.body for kept in after.state.queues[1].live.values()]
        assert bodies[: len(confirmed)] == confirmed
        assert len(bodies) <= len(confirmed) + 1
        assert after.report.damages == []
    else:
        assert len(confirmed) == 4
        assert disk.faults[0].hits == 0


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="no such fault"):
        Fault("magic", 1)
