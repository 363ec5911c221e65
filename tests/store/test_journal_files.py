"""Groups on disk: durable when `write` returns, and nothing more after the first failure."""

from __future__ import annotations

import errno

import pytest

from leveret.limits import JOURNAL_FILE_BYTES
from leveret.store.disk import StorageFailure
from leveret.store.disks.faulty import Fault, FaultyDisk
from leveret.store.disks.recording import RecordingDisk
from leveret.store.journal import Journal
from leveret.store.journal_files import JournalFiles, journal_name, journal_number
from store_model import Store, message


def opened() -> tuple[RecordingDisk, Journal, JournalFiles]:
    """Return a disk with the journal's folder, a journal and its files."""
    disk = RecordingDisk()
    disk.make_dir("journal")
    return disk, Journal(seed=1), JournalFiles(disk)


def test_names_are_numbers() -> None:
    assert journal_name(7) == "0000000000000007.jnl"
    assert journal_number("0000000000000007.jnl") == 7
    for name in ("7.jnl", "0000000000000007", "000000000000000x.jnl", "x", ""):
        assert journal_number(name) == -1


def test_a_new_file_and_its_name_are_durable_when_write_returns() -> None:
    disk, journal, files = opened()
    verbs = []
    for body in (b"a", b"x" * (JOURNAL_FILE_BYTES + 1), b"b"):
        journal.target(1, 1)
        journal.publish(message(body))
        group = journal.seal()
        assert group is not None
        before = len(disk.trace)
        files.write(group)
        verbs.append([operation.verb for operation in disk.trace[before:]])
    assert verbs == [
        ["create", "fsync_dir", "write", "sync"],
        ["write", "sync"],
        ["sync", "create", "fsync_dir", "write", "sync"],
    ]
    files.close()
    files.close()


@pytest.mark.parametrize("verb", ["open", "fsync_dir", "append", "sync"])
@pytest.mark.parametrize("kind", ["error", "short"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_after_one_failure_nothing_succeeds_any_more(verb: str, kind: str, number: int) -> None:
    """A kernel lets the next fdatasync succeed though pages are lost: it must not be asked.

    A lack of room is no failure where it shows at the write; see `test_full_disk`.
    """
    if number == errno.ENOSPC and verb in ("open", "append"):
        number = errno.EROFS
    recording = RecordingDisk()
    recording.make_dir("journal")
    fault = Fault(kind, 1, verbs=(verb,), number=number)
    disk = FaultyDisk(recording, fault)
    journal, files = Journal(seed=1), JournalFiles(disk)
    journal.requeue(1, 1, 1)
    group = journal.seal()
    assert group is not None
    with pytest.raises(StorageFailure) as raised:
        files.write(group)
    assert raised.value.full == (number == errno.ENOSPC)
    asked = len(disk.operations)
    journal.requeue(1, 1, 2)
    later = journal.seal()
    assert later is not None
    for call in (lambda: files.write(later), files.sync, lambda: files.append(later)):
        with pytest.raises(StorageFailure, match="failed before"):
            call()
    assert len(disk.operations) == asked, "a failed sync is never tried again"
    assert fault.hits == 1


def test_appended_groups_are_durable_by_one_later_sync() -> None:
    """`sync = interval` writes groups as they come and syncs them now and then."""
    disk, journal, files = opened()
    for number in range(3):
        journal.requeue(1, number, 1)
        group = journal.seal()
        assert group is not None
        files.append(group)
    assert [operation.verb for operation in disk.trace].count("sync") == 0
    journal.synced(files.sync())
    assert (journal.durable_group, journal.unsynced_bytes) == (3, 0)


def test_a_failed_write_that_was_cut_short_is_torn_for_the_next_start() -> None:
    recording = RecordingDisk()
    store = Store(FaultyDisk(recording, Fault("short", 3, verbs=("append",), within="journal")))
    store.define_queue(1, "q")
    store.sync()
    store.publish(message(b"kept"), 1)
    store.sync()
    store.publish(message(b"lost" * 100), 1)
    with pytest.raises(StorageFailure):
        store.sync()
    after = Store(RecordingDisk(recording.image()))
    assert [kept.body for kept in after.state.queues[1].live.values()] == [b"kept"]
    assert after.report.damages == []
    assert len(after.report.torn) == 1
