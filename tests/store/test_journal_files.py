"""Groups on disk: durable when `write` returns, and nothing more after the first failure."""

from __future__ import annotations

import errno
import random

import pytest

from leveret.limits import JOURNAL_FILE_BYTES
from leveret.store.disk import StorageFailure
from leveret.store.disks.faulty import Fault, FaultyDisk
from leveret.store.disks.recording import RecordingDisk, crash_states
from leveret.store.journal.files import (
    JOURNAL_AHEAD_BYTES,
    JOURNAL_AHEAD_GROUP_BYTES,
    JOURNAL_AHEAD_GROUPS,
    JournalFiles,
    journal_name,
    journal_number,
)
from leveret.store.journal.journal import Journal, JournalGroup
from support.store.store_model import Store, message


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


def sealed(journal: Journal, size: int) -> JournalGroup:
    """Return a group of one message with a body of `size` bytes."""
    journal.target(1, int(journal.group))
    journal.publish(message(b"x" * size))
    group = journal.seal()
    assert group is not None
    return group


def test_zeros_are_written_ahead_of_small_groups_once_many_came() -> None:
    disk, journal, files = opened()
    data = b""
    sizes = []
    for _ in range(JOURNAL_AHEAD_GROUPS + 3):
        group = sealed(journal, 100)
        files.write(group)
        data += group.data
        content = disk.image().files["journal/" + journal_name(1)]
        assert content.startswith(data)
        assert not content[len(data) :].strip(b"\0")
        sizes.append(len(content) - len(data))
    assert sizes[: JOURNAL_AHEAD_GROUPS - 1] == [0] * (JOURNAL_AHEAD_GROUPS - 1)
    group_bytes = len(data) // (JOURNAL_AHEAD_GROUPS + 3)
    left = JOURNAL_AHEAD_BYTES - group_bytes
    assert sizes[JOURNAL_AHEAD_GROUPS - 1 :] == [left - group_bytes * n for n in range(4)]


def test_zeros_are_written_again_when_they_are_used_up() -> None:
    disk, journal, files = opened()
    grown = 0
    for _ in range(4 * JOURNAL_AHEAD_BYTES // JOURNAL_AHEAD_GROUP_BYTES):
        before = len(disk.trace)
        files.write(sealed(journal, JOURNAL_AHEAD_GROUP_BYTES - 200))
        writes = [operation for operation in disk.trace[before:] if operation.verb == "write"]
        grown += len(writes) > 1
    assert grown == 4


def test_a_large_group_goes_over_the_zeros_and_gets_none() -> None:
    disk, journal, files = opened()
    data = b""
    for size in [100] * JOURNAL_AHEAD_GROUPS + [2 * JOURNAL_AHEAD_BYTES] + [100] * 2:
        group = sealed(journal, size)
        files.write(group)
        data += group.data
    assert disk.image().files["journal/" + journal_name(1)] == data


def test_the_next_file_begins_without_zeros() -> None:
    disk, journal, files = opened()
    for _ in range(JOURNAL_AHEAD_GROUPS):
        files.write(sealed(journal, 100))
    journal.roll()
    group = sealed(journal, 100)
    files.write(group)
    content = disk.image().files["journal/" + journal_name(2)]
    assert content.startswith(group.data)


def test_what_was_written_over_zeros_survives_every_crash() -> None:
    """Each group is durable when `write` returned, whatever a crash keeps of the zeros."""
    disk = RecordingDisk()
    store = Store(disk)
    store.define_queue(1, "one")
    store.sync()
    ends = []
    for number in range(JOURNAL_AHEAD_GROUPS + 2):
        store.publish(message(b"message %d " % number * 60), 1)
        store.sync()
        ends.append(len(disk.trace))
    whole = store.state.seen()[1][2]
    states = list(crash_states(disk, random.Random(1).randrange, 20, ends[-5]))
    for state in states:
        after = Store(RecordingDisk(state.image))
        found = after.state.seen()[1][2]
        assert found == whole[: len(found)], state.what
        assert len(found) >= sum(end <= state.operations for end in ends), state.what
        assert after.report.damages == [], state.what
    assert len(states) > 100
