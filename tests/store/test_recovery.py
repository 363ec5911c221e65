"""Recovery: any cut, any flipped bit, any second start; what is lost is counted and named."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from leveret.limits import SLICE_MESSAGES
from leveret.store.disk import DiskLocked, RealDisk
from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.journal.files import journal_path
from leveret.store.records.record import GROUP_HEADER_BYTES, GROUP_MAGIC
from leveret.store.recovery.recovery import StoreRecovery, recover
from leveret.wire.buffer import COMPILED
from support.store.store_model import NOW, UUID, State, Store, content, message

#: The pure build takes every third place.
STRIDE = 1 if COMPILED else 3


def filled(groups: int = 4, per_group: int = 4) -> Store:
    """Return a store with two queues and some groups of messages, all of them durable."""
    store = Store(RecordingDisk())
    store.define_queue(1, "one")
    store.define_queue(2, "two")
    store.sync()
    for group in range(groups):
        for number in range(per_group):
            store.publish(message(b"%d.%d " % (group, number) * 3), 1, 2)
        store.ack(1, group, group)
        store.requeue(2, group * per_group, group + 1)
        store.sync()
    return store


def image_of(store: Store) -> Image:
    """Return what is on the store's disk."""
    assert isinstance(store.disk, RecordingDisk)
    return store.disk.image()


def again(image: Image) -> Store:
    """Return the store after a start from `image`."""
    return Store(RecordingDisk(image))


def test_a_new_directory_becomes_a_store() -> None:
    store = Store(RecordingDisk())
    assert store.report.created
    assert store.report.next_group == 1
    assert not again(image_of(store)).report.created


def test_everything_durable_is_there_after_any_number_of_starts() -> None:
    store = filled()
    expected = store.state.seen()
    image = image_of(store)
    for _ in range(3):
        store = again(image)
        assert store.state.seen() == expected
        assert (store.report.damages, store.report.torn) == ([], [])
        assert store.report.next_group == store.journal.group == store.journal.durable_group + 1
        image = image_of(store)


def test_the_real_disk_keeps_it_all(tmp_path: Path) -> None:
    """The same as on the recording disk, through the operating system."""
    disk = RealDisk(str(tmp_path / "data"))
    store = Store(disk)
    store.define_queue(1, "one")
    for number in range(50):
        store.publish(message(b"%d" % number * 2000), 1)
        if number % 10 == 0:
            store.sync()
    store.ack(1, 3, 7)
    store.sync()
    store.checkpoint(7)
    store.publish(message(b"x" * 300_000), 1)
    store.sync()
    disk.close()
    for _ in range(2):
        disk = RealDisk(str(tmp_path / "data"))
        after = Store(disk)
        disk.close()
        assert after.state.seen() == store.state.seen()
        assert (after.report.damages, after.report.torn) == ([], [])
    assert not list((tmp_path / "data" / "quarantine").iterdir())


def test_a_clean_stop_is_told_until_something_follows_it() -> None:
    store = filled()
    assert not again(image_of(store)).report.clean_stop
    store.journal.clean_stop(NOW)
    store.sync()
    store = again(image_of(store))
    assert store.report.clean_stop
    store.publish(message(b"more"), 1)
    store.sync()
    assert not again(image_of(store)).report.clean_stop


def test_one_process_at_a_time() -> None:
    disk = RecordingDisk()
    recover(disk, State(), UUID, NOW)
    with pytest.raises(DiskLocked):
        recover(disk, State(), UUID, NOW)


def test_recovery_goes_in_slices() -> None:
    store = Store(RecordingDisk())
    store.define_queue(1, "one")
    for _ in range(3 * SLICE_MESSAGES):
        store.publish(message(b"x"), 1)
    store.sync()
    recovery = StoreRecovery(RecordingDisk(image_of(store)), State(), UUID, NOW)
    assert sum(1 for _ in recovery.run()) >= 3
    assert recovery.report.records == 3 * SLICE_MESSAGES + 1


def test_the_last_group_cut_at_every_byte_loses_only_what_was_cut() -> None:
    store = filled(3)
    before = again(image_of(store)).state
    bodies = [b"last %d" % number for number in range(3)]
    for body in bodies:
        store.publish(message(body), 1)
    length = len(image_of(store).files[journal_path(1)])
    store.sync()
    whole = image_of(store)
    data = whole.files[journal_path(1)]
    kept_before = -1
    for size in range(length, len(data) + 1):
        whole.files[journal_path(1)] = data[:size]
        after = again(whole)
        assert after.report.damages == []
        assert bool(after.report.torn) == (length < size < len(data))
        kept = [kept.body for kept in list(after.state.queues[1].live.values())][
            len(before.queues[1].live) :
        ]
        assert kept == bodies[: len(kept)], "a prefix of what was published, in order"
        assert len(kept) >= kept_before
        kept_before = len(kept)
        second = again(image_of(after))
        assert second.state.seen() == after.state.seen()
        assert (second.report.damages, second.report.torn) == ([], [])
    assert kept_before == 3


def check_flip(store: Store, whole: Image, path: str, broken: bytes) -> bool:
    """Start from an image with a broken file; check what it costs; tell if anything was lost."""
    published = store_log(store)
    image = Image({**whole.files, path: broken}, whole.folders)
    after = again(image)
    lost = 0
    for queue_id, queue in store.state.queues.items():
        found = after.state.queues.get(queue_id)
        found_live = found.live if found else {}
        for sequence, kept in found_live.items():
            assert content(kept) == published[queue_id, sequence], "altered, or never published"
        lost = max(lost, len(queue.live.keys() - found_live.keys()))
    report = after.report
    changed = after.state.seen() != store.state.seen()
    if changed:
        assert report.damages or report.torn, "what is lost is counted"
    places = [*report.damages, *report.torn]
    if lost > 1:
        # A definition is a record too: its queue's messages wait unexplained, and are counted.
        assert after.state.orphans or any(place.records != 1 for place in places)
    for place in places:
        if place.size and place.path != "format":
            assert any(
                name.startswith(place.path.replace("/", "-"))
                for name in after.disk.list("quarantine")
            )
    second = again(image_of(after))
    assert second.state.seen() == after.state.seen(), "the second start finds the same"
    return changed


def store_log(store: Store) -> dict[tuple[int, int], object]:
    """Return the content of every message ever published, by queue and sequence."""
    return store.log  # type: ignore[attr-defined,no-any-return]


def logged(store: Store) -> Store:
    """Let a store remember all that is published to it."""
    log: dict[tuple[int, int], object] = {}
    for queue_id, queue in store.state.queues.items():
        for sequence, kept in queue.live.items():
            log[queue_id, sequence] = content(kept)
    store.log = log  # type: ignore[attr-defined]
    return store


def test_any_flipped_bit_of_the_journal_costs_one_record_at_most() -> None:
    store = Store(RecordingDisk())
    store.define_queue(1, "one")
    store.define_queue(2, "two")
    store.sync()
    everything: dict[tuple[int, int], object] = {}
    for group in range(3):
        for number in range(3):
            sent = message(b"%d.%d" % (group, number))
            for target in store.publish(sent, 1, 2):
                everything[target] = content(sent)
        store.ack(1, group, group)
        store.requeue(2, group, group + 1)
        store.sync()
    store.log = everything  # type: ignore[attr-defined]
    whole = image_of(store)
    path = journal_path(1)
    data = whole.files[path]
    chance = random.Random(3)
    changed = 0
    for position in range(0, len(data), STRIDE):
        broken = bytearray(data)
        broken[position] ^= 1 << chance.randrange(8)
        changed += check_flip(store, whole, path, bytes(broken))
    assert changed > 0


def test_a_flip_in_a_record_costs_that_record_and_in_a_header_or_size_nothing() -> None:
    """The places are known here, so the price is exact."""
    store = filled(3, 3)
    whole = image_of(store)
    path = journal_path(1)
    data = whole.files[path]
    starts = [at for at in range(len(data)) if data.startswith(GROUP_MAGIC, at)]
    assert len(starts) == 4
    for start in starts:
        for position in range(start, start + GROUP_HEADER_BYTES, STRIDE):
            broken = bytearray(data)
            broken[position] ^= 1
            after = again(Image({**whole.files, path: bytes(broken)}, whole.folders))
            assert after.state.seen() == store.state.seen()
            found = [*after.report.damages, *after.report.torn]
            assert [str(place.what) for place in found] == ["the header of a group"]
            assert after.report.lost_records == 0
        first = start + 48
        for position in range(first + 8, first + 12):
            broken = bytearray(data)
            broken[position] ^= 0x80
            after = again(Image({**whole.files, path: bytes(broken)}, whole.folders))
            assert after.state.seen() == store.state.seen()
            assert [place.records for place in [*after.report.damages, *after.report.torn]] == [0]
    second = starts[1] + 48 + 20
    broken = bytearray(data)
    broken[second] ^= 1
    after = again(Image({**whole.files, path: bytes(broken)}, whole.folders))
    assert [place.what for place in after.report.damages] == ["a record"]
    assert after.report.lost_records == 1
    assert set(store.state.queues[2].live) - set(after.state.queues[2].live) == {0}


def test_damage_is_reported_once_and_kept_in_the_quarantine() -> None:
    store = filled()
    whole = image_of(store)
    path = journal_path(1)
    broken = bytearray(whole.files[path])
    at = broken.find(b"1.0 1.0")
    broken[at] ^= 4
    whole.files[path] = bytes(broken)
    first = again(whole)
    assert [place.path for place in first.report.damages] == [path]
    damage = first.report.damages[0]
    assert str(damage).startswith(f"{path} at {damage.position}, {damage.size} bytes: a record")
    names = first.disk.list("quarantine")
    assert len(names) == 1
    kept = image_of(first).files[f"quarantine/{names[0]}"]
    assert kept == bytes(broken)[damage.position : damage.position + damage.size]
    second = again(image_of(first))
    assert second.report.damages == []
    assert [str(place) for place in second.report.known] == [str(damage)]
    assert second.disk.list("quarantine") == names


def test_zeros_behind_the_last_group_are_room() -> None:
    store = filled(2)
    whole = image_of(store)
    path = journal_path(1)
    data = whole.files[path]
    for tail in (bytes(1), bytes(5000)):
        whole.files[path] = data + tail
        after = again(whole)
        assert after.state.seen() == store.state.seen()
        assert after.report.torn == after.report.damages == []
        assert image_of(after).files[path] == data + tail


def test_noise_behind_the_last_group_is_torn() -> None:
    store = filled(2)
    whole = image_of(store)
    path = journal_path(1)
    data = whole.files[path]
    noise = random.Random(1).randbytes(300)
    for tail in (GROUP_MAGIC, noise, bytes(5000) + noise, noise + bytes(5000)):
        whole.files[path] = data + tail
        after = again(whole)
        assert after.state.seen() == store.state.seen()
        assert [place.size for place in after.report.torn] == [len(tail)]
        assert image_of(after).files[path] == data, "the tail is cut off"
        name = after.disk.list("quarantine")[0]
        assert image_of(after).files[f"quarantine/{name}"] == tail


def test_a_group_in_a_message_is_not_taken_for_a_group() -> None:
    """Who publishes a copy of the journal's bytes cannot forge records by it."""
    store = filled(2)
    copy = image_of(store).files[journal_path(1)]
    store.publish(message(copy), 1)
    store.publish(message(b"after"), 1)
    store.sync()
    store.publish(message(b"later"), 1)
    store.sync()
    whole = image_of(store)
    data = whole.files[journal_path(1)]
    inside = data.rfind(copy)
    for position in range(inside - 100, inside + len(copy), 7 * STRIDE):
        broken = bytearray(data)
        broken[position] ^= 2
        after = again(Image({**whole.files, journal_path(1): bytes(broken)}, whole.folders))
        live = {number: kept.body for number, kept in after.state.queues[1].live.items()}
        expected = {n: kept.body for n, kept in store.state.queues[1].live.items()}
        assert live.items() <= expected.items()
        assert len(expected) - len(live) <= 1


def test_a_lost_journal_file_is_named() -> None:
    store = filled(2)
    store.journal.roll()
    store.publish(message(b"second file"), 1)
    store.sync()
    store.journal.roll()
    store.publish(message(b"third file"), 1)
    store.sync()
    whole = image_of(store)
    del whole.files[journal_path(2)]
    after = again(whole)
    bodies = [kept.body for kept in after.state.queues[1].live.values()]
    assert b"second file" not in bodies
    assert bodies[-1] == b"third file"
    assert [place.what for place in after.report.damages] == ["groups 4 to 4 are missing"]


def test_unknown_files_are_left_alone() -> None:
    store = filled(1)
    whole = image_of(store)
    for path in ("journal/notes.txt", "state/notes", "segments/x", "quarantine/y", "mine"):
        whole.files[path] = b"?"
    after = again(whole)
    after.checkpoint()
    after.sync()
    assert after.state.seen() == store.state.seen()
    assert {"journal/notes.txt", "state/notes", "segments/x", "mine"} <= image_of(
        after
    ).files.keys()
