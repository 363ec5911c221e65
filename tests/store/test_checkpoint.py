"""Checkpoints: what they keep, what they remove, and that the broker may go on in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from leveret.chunk import Chunk
from leveret.limits import CHUNK_RECORDS_MAX
from leveret.store.checkpoint.checkpoint import (
    CHECKPOINT_BYTES_HELD_MAX,
    CheckpointOutput,
    CheckpointSource,
    NewChunk,
)
from leveret.store.disk import StorageFailure
from leveret.store.disks.faulty import Fault, FaultyDisk
from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.journal.files import journal_number
from leveret.store.recovery.recovery import NO_STATE
from leveret.store.segments.segments import SegmentNumbers, read_chunk, segment_path
from leveret.store.segments.spill import SEGMENT_FILE_BYTES
from leveret.store.snapshot import SnapshotHead, state_path
from leveret.wire.buffer import COMPILED
from support.store.store_model import NOW, Source, Store, content, message

STRIDE = 1 if COMPILED else 3


def image_of(store: Store) -> Image:
    """Return what is on the store's disk."""
    assert isinstance(store.disk, RecordingDisk)
    return store.disk.image()


def again(store: Store) -> Store:
    """Return the store after a stop and a start."""
    after = Store(RecordingDisk(image_of(store)))
    assert (after.report.damages, after.report.torn) == ([], [])
    return after


def filled(count: int = 12) -> Store:
    """Return a store with two queues of messages, some acked, some requeued."""
    store = Store(RecordingDisk())
    store.state.counters["next_queue_id"] = 3
    store.state.definitions["exchange", "x"] = {"name": "x", "type": "topic"}
    store.journal.define("exchange", {"name": "x", "type": "topic"})
    store.define_queue(1, "one")
    store.define_queue(2, "two")
    for number in range(count):
        store.publish(message(b"body %d" % number, routing_key=b"k%d" % (number % 3)), 1, 2)
    store.ack(1, 0, 2)
    store.requeue(2, 4, 3)
    store.state.offsets[2, b"creader"] = 17
    store.journal.consumer_offset(2, b"reader", 17)
    store.sync()
    return store


def test_a_checkpoint_takes_over_from_the_journal() -> None:
    store = filled()
    store.checkpoint()
    after = again(store)
    assert after.report.generation == 1
    assert after.report.records == 1, "the checkpoint's mark is all that the journal still tells"
    assert after.state.seen() == store.state.seen()
    assert after.state.counters["next_queue_id"] == 3
    assert after.state.definitions == store.state.definitions
    assert after.state.offsets == store.state.offsets
    assert after.state.queues[1].next_sequence == 12


def test_what_is_older_than_the_previous_checkpoint_goes() -> None:
    store = filled()
    for round_ in range(5):
        store.publish(message(b"round %d" % round_), 1)
        store.ack(2, round_, round_)
        store.sync()
        store.checkpoint()
    assert store.disk.list("state") == [f"{number:016d}" for number in (4, 5)]
    journals = [journal_number(name) for name in store.disk.list("journal")]
    assert journals[0] >= 4
    assert again(store).state.seen() == store.state.seen()


def test_segments_go_when_nothing_in_them_is_live() -> None:
    store = filled()
    store.checkpoint()
    assert len(store.disk.list("segments")) == 1
    store.ack(1, 0, 11)
    store.ack(2, 0, 11)
    store.publish(message(b"only"), 1)
    store.sync()
    for _ in range(3):
        store.checkpoint()
    assert store.disk.list("segments") == ["0000000000000002.seg"]
    assert again(store).state.seen() == store.state.seen()


def test_acks_and_counts_of_chunked_messages_survive_many_checkpoints() -> None:
    store = filled(20)
    chance = random.Random(2)
    for _ in range(6):
        store.checkpoint(chance.randint(1, 9))
        for queue_id, queue in store.state.queues.items():
            for sequence in chance.sample(sorted(queue.live), 2):
                store.ack(queue_id, sequence, sequence)
            sequence = chance.choice(sorted(queue.live))
            store.requeue(queue_id, sequence, chance.randint(1, 9))
        store.publish(message(b"more"), 1, 2)
        store.sync()
        store = again(store)
    store.checkpoint()
    assert again(store).state.seen() == store.state.seen()


Step = Callable[[Store], object]

BETWEEN: list[tuple[str, Step]] = [
    ("publish", lambda store: store.publish(message(b"between"), 1, 2)),
    ("ack what waits", lambda store: store.ack(1, 3, 4)),
    ("ack what is chunked", lambda store: store.ack(2, 0, 0)),
    ("requeue", lambda store: store.requeue(2, 5, 8)),
    ("purge", lambda store: store.purge(2)),
    ("move", lambda store: store.move(2, 6, 1)),
    ("delete", lambda store: store.delete_queue(2)),
    ("define", lambda store: store.define_queue(9, "nine")),
]


@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize(("what", "act"), BETWEEN, ids=[name for name, _ in BETWEEN])
def test_the_broker_goes_on_between_the_steps(what: str, act: Step, at: int) -> None:
    """What happens while the snapshot is taken is in it, in the journal, or in both: no matter."""
    store = filled()
    source = Source(store.state, slice_messages=4)
    checkpoint = store.checkpoints.begin(store.journal, source, NOW)
    step = 0
    while not checkpoint.done:
        if step == at:
            act(store)
            if what == "define":
                store.publish(message(b"to the new one"), 9)
        step += 1
        work = checkpoint.step()
        if work is not None:
            store.checkpoint_files.run(work)
        else:
            store.sync()
    store.sync()
    assert step > at or at == 7
    after = again(store)
    assert after.state.seen() == store.state.seen()
    after.checkpoint()
    after.sync()
    assert again(after).state.seen() == store.state.seen()


def test_a_queue_deleted_and_declared_again_meanwhile_is_the_new_one() -> None:
    store = filled()
    source = Source(store.state, slice_messages=4)
    checkpoint = store.checkpoints.begin(store.journal, source, NOW)
    store.delete_queue(1)
    store.define_queue(3, "one")
    store.publish(message(b"new"), 3)
    while not checkpoint.done:
        work = checkpoint.step()
        if work is not None:
            store.checkpoint_files.run(work)
        else:
            store.sync()
    after = again(store)
    assert after.state.seen() == store.state.seen()
    assert after.state.orphans == {}


def test_the_commit_waits_for_the_journal() -> None:
    """A moved message has left its old queue in the snapshot; its new one is in the journal."""
    store = filled()
    source = Source(store.state)
    checkpoint = store.checkpoints.begin(store.journal, source, NOW)
    store.move(1, 5, 2)
    work = checkpoint.step()
    while work is not None:
        store.checkpoint_files.run(work)
        work = checkpoint.step()
    assert checkpoint.step() is None
    assert checkpoint.barrier == store.journal.group
    assert store.disk.list("state") == [f"{1:016d}.new"]
    without = Store(RecordingDisk(image_of(store)))
    assert 5 in without.state.queues[1].live
    store.sync()
    work = checkpoint.step()
    assert work is not None
    store.checkpoint_files.run(work)
    assert checkpoint.step() is None
    assert checkpoint.done
    assert again(store).state.seen() == store.state.seen()


def test_what_a_broken_off_checkpoint_left_is_harmless_and_goes() -> None:
    store = filled()
    checkpoint = store.checkpoints.begin(store.journal, Source(store.state, 2), NOW)
    for _ in range(8):
        work = checkpoint.step()
        assert work is not None
        store.checkpoint_files.run(work)
    store.sync()
    assert store.disk.list("segments")
    after = again(store)
    assert after.state.seen() == store.state.seen()
    after.checkpoint()
    after.sync()
    assert after.disk.list("state") == [f"{2:016d}"]
    assert after.disk.list("segments") == ["0000000000000002.seg"]
    assert again(after).state.seen() == store.state.seen()


def test_any_flipped_bit_of_a_snapshot_costs_nothing() -> None:
    """The previous generation and its journal stand in."""
    for checkpoints in (1, 2):
        store = filled()
        for _ in range(checkpoints):
            store.checkpoint()
            store.publish(message(b"later"), 1)
            store.ack(1, 5, 5)
            store.sync()
        whole = image_of(store)
        path = state_path(checkpoints)
        chance = random.Random(9)
        for position in range(0, len(whole.files[path]), STRIDE):
            broken = bytearray(whole.files[path])
            broken[position] ^= 1 << chance.randrange(8)
            after = Store(RecordingDisk(Image({**whole.files, path: bytes(broken)}, whole.folders)))
            assert after.state.seen() == store.state.seen()
            assert [place.path for place in after.report.damages] == [path]
            assert after.report.lost_records == 0
        after.checkpoint()
        after.sync()
        last = again(after)
        assert last.state.seen() == store.state.seen()
        assert path.removeprefix("state/") not in last.disk.list("state")


def test_both_snapshots_damaged_cost_the_records_hit() -> None:
    store = filled()
    store.checkpoint()
    store.checkpoint()
    whole = image_of(store)
    for number in (1, 2):
        broken = bytearray(whole.files[state_path(number)])
        broken[broken.find(b"next_queue_id")] ^= 1
        whole.files[state_path(number)] = bytes(broken)
    after = Store(RecordingDisk(whole))
    assert not after.report.state_whole
    assert [(place.path, place.what) for place in after.report.damages if place.lost] == [
        ("state", NO_STATE)
    ]
    assert after.report.torn == []
    assert "next_queue_id" not in after.state.counters
    assert after.state.seen() == store.state.seen()
    segments = set(after.disk.list("segments"))
    for _ in range(2):
        after.checkpoint()
        after.sync()
        assert segments <= set(after.disk.list("segments")) or after.report.state_whole
        segments &= set(after.disk.list("segments"))


def test_any_flipped_bit_of_a_segment_costs_a_message_or_its_chunk() -> None:
    store = filled(5)
    store.checkpoint()
    store.checkpoint()
    store.ack(1, 4, 4)
    store.sync()
    whole = image_of(store)
    path = segment_path(1)
    lost_most = 0
    for position in range(0, len(whole.files[path]), STRIDE):
        broken = bytearray(whole.files[path])
        broken[position] ^= 1 << (position % 8)
        after = Store(RecordingDisk(Image({**whole.files, path: bytes(broken)}, whole.folders)))
        lost = 0
        for queue_id, queue in store.state.queues.items():
            found = after.state.queues[queue_id].live
            assert found.keys() <= queue.live.keys()
            for sequence, kept in found.items():
                assert content(kept) == content(queue.live[sequence])
            lost += len(queue.live) - len(found)
        assert lost <= 5
        assert after.report.lost_records >= lost
        assert after.report.damages or not lost
        lost_most = max(lost_most, lost)
    assert lost_most == 5


def test_a_damaged_chunk_costs_nothing_while_the_journal_still_has_its_messages() -> None:
    """The journal of the previous generation is replayed when a chunk of this one is bad."""
    store = filled(5)
    store.checkpoint()
    store.ack(1, 4, 4)
    store.delete_queue(2)
    store.define_queue(3, "two")
    store.publish(message(b"later"), 1, 3)
    store.sync()
    whole = image_of(store)
    path = segment_path(1)
    for position in range(0, len(whole.files[path]), STRIDE):
        broken = bytearray(whole.files[path])
        broken[position] ^= 1 << (position % 8)
        after = Store(RecordingDisk(Image({**whole.files, path: bytes(broken)}, whole.folders)))
        assert after.state.seen() == store.state.seen()
        assert after.state.orphans == {}
        after.checkpoint()
        after.sync()
        assert again(after).state.seen() == store.state.seen()


def test_a_lost_segment_is_named() -> None:
    store = filled(5)
    store.checkpoint()
    store.checkpoint()
    whole = image_of(store)
    del whole.files[segment_path(1)]
    after = Store(RecordingDisk(whole))
    assert after.report.lost_records == 7
    assert {place.path for place in after.report.damages} == {segment_path(1)}
    assert all("No such file" in place.what for place in after.report.damages)


def test_long_queues_become_several_chunks_in_several_segments() -> None:
    numbers = SegmentNumbers(5)
    output = CheckpointOutput(1, SnapshotHead(1, 1, 1, NOW), numbers)
    output.queue(4, 100_000)
    tiny = message(b"")
    for sequence in range(CHUNK_RECORDS_MAX + 1):
        output.message(4, sequence, tiny)
    large = message(b"x" * (SEGMENT_FILE_BYTES + 1))
    output.message(4, 10_000, large)
    assert output.full
    output.message(4, 10_001, tiny)
    output.close_chunk()
    refs = [chunk.ref for chunk in output.new_refs]
    assert [(ref.file_number, ref.first, ref.last, ref.count) for ref in refs] == [
        (5, 0, CHUNK_RECORDS_MAX - 1, CHUNK_RECORDS_MAX),
        (5, CHUNK_RECORDS_MAX, 10_000, 2),
        (6, 10_001, 10_001, 1),
    ]
    assert refs[0].position == 0
    assert refs[1].position == refs[0].size
    assert refs[2].position == 0
    assert numbers.next == 7
    assert [write.file_number for write in output.take().segments] == [5, 6]
    assert not output.full


def test_a_source_is_told_when_enough_waits() -> None:
    output = CheckpointOutput(1, SnapshotHead(1, 1, 1, NOW), SegmentNumbers(1))
    output.queue(4, 1)
    output.message(4, 0, message(b"x" * (CHECKPOINT_BYTES_HELD_MAX - 300)))
    assert not output.full
    output.message(4, 1, message(b"x" * 400))
    assert output.full


def test_a_large_message_is_written_in_parts_between_which_others_are_synced() -> None:
    store = Store(RecordingDisk())
    store.define_queue(1, "q")
    sent = message(b"x" * (3 * CHECKPOINT_BYTES_HELD_MAX))
    store.publish(message(b"before"), 1)
    store.publish(sent, 1)
    store.publish(message(b"after"), 1)
    store.sync()
    checkpoint = store.checkpoints.begin(store.journal, Source(store.state), NOW)
    sizes = []
    while not checkpoint.done:
        work = checkpoint.step()
        if work is None:
            store.sync()
        else:
            sizes.append(work.size)
            store.checkpoint_files.run(work)
            store.publish(message(b"meanwhile"), 1)
            store.sync()
    assert sum(size > CHECKPOINT_BYTES_HELD_MAX // 2 for size in sizes) == 3
    assert max(sizes) < CHECKPOINT_BYTES_HELD_MAX + 1000
    assert isinstance(store.disk, RecordingDisk)
    again = Store(RecordingDisk(store.disk.image()))
    assert again.state.seen() == store.state.seen()
    assert again.report.damages == []


def test_states_of_queues_are_not_mixed() -> None:
    output = CheckpointOutput(1, SnapshotHead(1, 1, 1, NOW), SegmentNumbers(1))
    output.queue(4, 1)
    with pytest.raises(ValueError, match="in one go"):
        output.message(5, 1, message(b""))
    with pytest.raises(ValueError, match="in one go"):
        output.acked(5, [(1, 2)])
    with pytest.raises(ValueError, match="in one go"):
        output.delivery_count(5, 1, 1)


def test_a_chunk_can_be_read_by_its_reference() -> None:
    store = filled(5)
    store.checkpoint()
    ref = store.state.queues[1].refs[0]
    chunk = read_chunk(store.disk, ref, 1)
    assert isinstance(chunk, Chunk)
    assert [int(chunk.sequence(i)) for i in range(int(chunk.count))] == [3, 4]
    assert repr(ref) == "<chunk 3-4 at 1:0>"


@pytest.mark.parametrize(
    ("verb", "within"),
    [
        ("append", "segments"),
        ("sync", "segments"),
        ("open", "state"),
        ("append", "state"),
        ("pwrite", "state"),
        ("sync", "state"),
        ("rename", "state"),
        ("fsync_dir", "state"),
        ("fsync_dir", "segments"),
    ],
)
def test_a_failure_inside_a_checkpoint_ends_it_for_good(verb: str, within: str) -> None:
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    store = Store(disk)
    store.define_queue(1, "one")
    for number in range(5):
        store.publish(message(b"%d" % number), 1)
    store.sync()
    fault = Fault("error", 1, verbs=(verb,), within=within)
    disk.faults.append(fault)
    with pytest.raises(StorageFailure):
        store.checkpoint()
    asked = len(disk.operations)
    work = store.checkpoints.begin(store.journal, Source(store.state), NOW).step()
    assert work is not None
    with pytest.raises(StorageFailure, match="failed before"):
        store.checkpoint_files.run(work)
    assert len(disk.operations) == asked
    assert fault.hits == 1
    after = Store(RecordingDisk(recording.image()))
    assert after.state.seen() == store.state.seen()
    assert after.report.damages == []


def test_without_any_snapshot_no_segment_is_removed() -> None:
    """Nobody knows what the chunks hold then: a salvage can still tell."""
    store = filled()
    for _ in range(3):
        store.publish(message(b"more"), 1)
        store.sync()
        store.checkpoint()
    image = image_of(store)
    for path in [path for path in image.files if path.startswith("state/")]:
        del image.files[path]
    segments = {path for path in image.files if path.startswith("segments/")}
    assert segments
    after = Store(RecordingDisk(image))
    assert not after.report.state_whole
    for _ in range(4):
        after.checkpoint()
    kept = {path for path in image_of(after).files if path.startswith("segments/")}
    assert segments <= kept


class Faulty(CheckpointSource):
    """Raises in one call of a source's method, and after that says that nothing is left."""

    def __init__(self, source: Source, method: str, call: int) -> None:
        self.source = source
        self.method = method
        self.call = call
        self.calls = 0

    def _count(self, method: str) -> None:
        if method == self.method:
            self.calls += 1
            if self.calls == self.call:
                raise ZeroDivisionError(method)

    def begin(self, group: int) -> None:
        self._count("begin")
        self.source.begin(group)

    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        for items in self.source.hand_over(out):
            self._count("hand_over")
            yield items
            if self.calls >= self.call:
                return
        self._count("hand_over")

    def chunked(self, chunk: NewChunk) -> None:
        self._count("chunked")
        self.source.chunked(chunk)


def failed(store: Store, source: Faulty) -> bool:
    """Take a checkpoint as a shell does that went on after an exception; tell whether one came."""
    came = False
    try:
        checkpoint = store.checkpoints.begin(store.journal, source, NOW)
    except ZeroDivisionError:
        return True
    while not checkpoint.done:
        try:
            work = checkpoint.step()
        except ZeroDivisionError:
            came = True
            continue
        except RuntimeError:
            break
        if work is not None:
            store.checkpoint_files.run(work)
        else:
            store.sync()
    return came


@pytest.mark.parametrize("method", ["begin", "hand_over", "chunked"])
def test_a_checkpoint_that_raises_supersedes_nothing(method: str) -> None:
    """Whatever is called after it: the generation before it and the journal tell all."""
    for call in range(1, 10):
        store = filled()
        store.checkpoint()
        store.publish(message(b"newer"), 1, 2)
        store.sync()
        before = store.disk.list("state"), store.disk.list("segments")
        if not failed(store, Faulty(Source(store.state, 1), method, call)):
            assert call > 1, "the fault never struck"
            break
        store.publish(message(b"newest"), 1)
        store.sync()
        states = [name for name in store.disk.list("state") if not name.endswith(".new")]
        assert (states, store.disk.list("segments")[: len(before[1])]) == before
        with pytest.raises(RuntimeError, match="after a failed one"):
            store.checkpoints.begin(store.journal, Source(store.state), NOW)
        after = again(store)
        assert after.state.seen() == store.state.seen()
        after.checkpoint()
        assert again(after).state.seen() == store.state.seen()
    else:
        raise AssertionError("the fault struck in every call")
