"""Every state that a crash could leave is recovered, and its recovery too, against a model.

The model knows what was confirmed (its group was synced) and what was under way.  After a crash:

- I1 every confirmed message that nothing later took away is there, with its count,
- I2 nothing is there that was not published, and nothing is altered,
- I3 what was taken away and synced stays away,
- I4 order is by sequence, and each sequence holds the message that got it,
- I5 confirmed definitions are there,
- I6 of a transaction all is there or nothing,
- I7 it starts, and calls nothing damaged, for a crash damages nothing that was durable,
- I9 a recovery that is cut off, or done again, finds the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from leveret.store.disks.recording import Image, RecordingDisk, crash_states
from leveret.store.journal.body_ahead import BodyAhead
from leveret.wire.buffer import COMPILED
from support.store.store_model import NOW, Source, State, Store, content, message

SEEDS = range(60 if COMPILED else 15)
STEPS = 80
STATES_PER_POINT = 5

Key = tuple[int, int]


@dataclass
class Facts:
    """What is known at some point of the disk's trace.

    `published` are all messages ever, by queue and sequence; `removed` those that were taken away
    by an operation appended so far; `queues` the queues by the operations appended so far.
    """

    published: dict[Key, object] = field(default_factory=dict)
    removed: set[Key] = field(default_factory=set)
    counts: dict[Key, set[int]] = field(default_factory=dict)
    queues: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    transactions: list[tuple[set[Key], set[Key]]] = field(default_factory=list)
    purges: list[int] = field(default_factory=list)

    def copy(self) -> Facts:
        """Return the facts as they are now."""
        return Facts(
            dict(self.published),
            set(self.removed),
            {key: set(counts) for key, counts in self.counts.items()},
            set(self.queues),
            set(self.deleted),
            list(self.transactions),
            list(self.purges),
        )


class Workload:
    """Random operations on a store; `facts` follows them, `confirmed` says what was when durable.

    `confirmed` holds (length of the trace, facts) for each moment at which a sync had returned.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = RecordingDisk()
        self.store = Store(self.disk)
        self.facts = Facts()
        self.confirmed: list[tuple[int, Facts]] = [(0, Facts())]
        self.serial = 0

    def run(self, steps: int) -> None:
        """Do that many operations, then one last sync; a start syncs a record before anything."""
        self.declare()
        self.sync()
        for _ in range(steps):
            self.chance.choice(
                (
                    self.publish,
                    self.publish,
                    self.publish,
                    self.publish_in_parts,
                    self.ack,
                    self.ack,
                    self.requeue,
                    self.move,
                    self.transaction,
                    self.sync,
                    self.sync,
                    self.sync,
                    self.declare,
                    self.rare,
                )
            )()
        self.sync()

    def rare(self) -> None:
        """Do what is done now and then."""
        self.chance.choice((self.checkpoint, self.purge, self.delete, self.restart))()

    def a_queue(self) -> int:
        """Return some queue's id; make one if there is none."""
        if not self.store.state.queues:
            self.declare()
        return self.chance.choice(sorted(self.store.state.queues))

    def a_message(self) -> Key | None:
        """Return some live message."""
        queue_id = self.a_queue()
        live = sorted(self.store.state.queues[queue_id].live)
        return (queue_id, self.chance.choice(live)) if live else None

    def declare(self) -> None:
        if len(self.store.state.queues) < 3:
            queue_id = 1 + max([0, *self.facts.queues, *self.facts.deleted])
            self.store.define_queue(queue_id, f"q{queue_id % 3}")
            for gone in self.facts.queues - self.store.state.queues.keys():
                self.forget(gone)
            self.facts.queues.add(queue_id)

    def delete(self) -> None:
        queue_id = self.a_queue()
        self.store.delete_queue(queue_id)
        self.forget(queue_id)

    def forget(self, queue_id: int) -> None:
        """Note that a queue is gone, with its messages."""
        self.facts.queues.discard(queue_id)
        self.facts.deleted.add(queue_id)
        self.facts.removed |= {key for key in self.facts.published if key[0] == queue_id}

    def body(self) -> bytes:
        self.serial += 1
        size = self.chance.choice((3, 3, 40, 700, 9000))
        return b"%d:" % self.serial + self.chance.randbytes(size)

    def publish(self) -> None:
        queues = self.chance.sample(
            sorted(self.store.state.queues), min(len(self.store.state.queues), 2)
        )
        if queues:
            sent = message(self.body())
            for key in self.store.publish(sent, *queues):
                self.facts.published[key] = content(sent)

    def publish_in_parts(self) -> None:
        """Publish a message whose body comes before it, with other operations in between."""
        ahead = BodyAhead(self.store.journal, 32)
        sent = message(self.body())
        size = 1 + len(sent.body) // 3
        for start in range(0, len(sent.body), size):
            ahead.write(sent.body[start : start + size])
            if self.chance.random() < 0.6:
                self.chance.choice((self.publish, self.ack, self.sync, self.sync))()
            if self.chance.random() < 0.03:
                self.checkpoint()
        if self.chance.random() < 0.8:
            ahead.complete(sent.body)
            for key in self.store.publish(sent, self.a_queue()):
                self.facts.published[key] = content(sent)
        ahead.end()

    def ack(self) -> None:
        key = self.a_message()
        if key is not None:
            self.store.ack(key[0], key[1], key[1])
            self.facts.removed.add(key)

    def requeue(self) -> None:
        key = self.a_message()
        if key is not None:
            count = self.store.state.queues[key[0]].counts.get(key[1], 0) + 1
            self.store.requeue(*key, count)
            self.facts.counts.setdefault(key, {0}).add(count)

    def move(self) -> None:
        key = self.a_message()
        if key is not None:
            to = self.a_queue()
            target = (to, self.store.state.queues[to].next_sequence)
            self.store.move(*key, to)
            self.facts.published[target] = content(self.store.state.queues[to].live[target[1]])
            self.facts.removed.add(key)
            self.facts.transactions.append(({key}, {target}))

    def purge(self) -> None:
        queue_id = self.a_queue()
        live = self.store.state.queues[queue_id].live
        self.facts.removed |= {(queue_id, sequence) for sequence in live}
        self.store.purge(queue_id)
        self.facts.purges.append(queue_id)

    def transaction(self) -> None:
        """Ack up to two messages and publish two, all or nothing."""
        keys = {key for key in (self.a_message(), self.a_message()) if key is not None}
        queue_id = self.a_queue()
        self.store.journal.begin_tx()
        for queue, sequence in sorted(keys):
            self.store.ack(queue, sequence, sequence)
        added: set[Key] = set()
        for _ in range(2):
            sent = message(self.body())
            for key in self.store.publish(sent, queue_id):
                self.facts.published[key] = content(sent)
                added.add(key)
        self.store.journal.end_tx()
        self.facts.removed |= keys
        self.facts.transactions.append((keys, added))

    def sync(self) -> None:
        self.store.sync()
        self.confirmed.append((len(self.disk.trace), self.facts.copy()))

    def checkpoint(self) -> None:
        """Take a checkpoint with operations between its steps."""
        source = Source(self.store.state, self.chance.randint(1, 4))
        checkpoint = self.store.checkpoints.begin(self.store.journal, source, NOW)
        while not checkpoint.done:
            work = checkpoint.step()
            if work is not None:
                self.store.checkpoint_files.run(work)
            else:
                self.sync()
            if self.chance.random() < 0.4:
                self.chance.choice((self.publish, self.ack, self.move, self.transaction))()

    def restart(self) -> None:
        """Stop without a crash and start again on the same disk."""
        self.sync()
        self.disk.unlock()
        before = self.store.state.seen()
        self.store = Store(self.disk)
        assert self.store.state.seen() == before


def check(workload: Workload, at: int, image: Image, what: str) -> State:
    """Recover from `image`, which a crash after `at` operations left; check the invariants."""
    store = Store(RecordingDisk(image))
    state = store.state
    where = f"after {at} operations, {what}"
    sure = max((entry for entry in workload.confirmed if entry[0] <= at), key=lambda e: e[0])[1]
    later = [facts for length, facts in workload.confirmed if length > at]
    most = later[0] if later else workload.facts
    live = {
        (queue_id, sequence): kept
        for queue_id, queue in state.queues.items()
        for sequence, kept in queue.live.items()
    }
    for key, known in sure.published.items():
        if key not in most.removed:
            assert key in live, f"{where}: {key} was confirmed and is lost"
            assert content(live[key]) == known, f"{where}: {key} is altered"
            count = state.queues[key[0]].counts.get(key[1], 0)
            assert count >= max(sure.counts.get(key, {0})), f"{where}: {key} lost its count"
    for key, kept in live.items():
        assert key in most.published, f"{where}: {key} was never published"
        assert content(kept) == most.published[key], f"{where}: {key} is altered"
        assert key not in sure.removed, f"{where}: {key} came back"
        count = state.queues[key[0]].counts.get(key[1], 0)
        assert count in most.counts.get(key, {0}), f"{where}: {key} has a count of its own"
    assert sure.queues - most.deleted <= state.queues.keys() <= most.queues | most.deleted, where
    assert not state.queues.keys() & sure.deleted, f"{where}: a deleted queue came back"
    for removed, added in most.transactions:
        check_transaction(state, sure, removed, added, set(live), most, where)
    assert [str(d) for d in store.report.damages] == [], where
    return state


def check_transaction(
    state: State,
    sure: Facts,
    removed: set[Key],
    added: set[Key],
    there: set[Key],
    most: Facts,
    where: str,
) -> None:
    """Check that a transaction that was under way is there whole or not at all."""
    if (removed, added) in sure.transactions:
        return
    done: set[bool] = set()
    others = [key for pair in most.transactions if pair[1] != added for key in (*pair[0], *pair[1])]
    for key in added:
        if key not in most.removed and key[0] in state.queues:
            done.add(key in there)
    elsewhere = {*most.deleted, *most.purges[len(sure.purges) :]}
    for key in removed - set(others):
        known = key in sure.published and key not in sure.removed
        if known and key[0] in state.queues and key[0] not in elsewhere:
            done.add(key not in there)
    assert len(done) <= 1, f"{where}: a transaction is there in part"


def check_all(workload: Workload, chance: random.Random) -> int:
    """Check every crash state of a workload; return how many there were."""
    states = 0
    for crash in crash_states(workload.disk, chance.randrange, STATES_PER_POINT):
        states += 1
        state = check(workload, crash.operations, crash.image, crash.what)
        if chance.random() < 0.05:
            recover_again(workload, crash.operations, crash.image, state)
    return states


@pytest.mark.parametrize("seed", SEEDS)
def test_every_crash_state_keeps_the_promises(seed: int) -> None:
    workload = Workload(seed)
    workload.run(STEPS)
    assert check_all(workload, random.Random(seed)) > len(workload.disk.trace)


def recover_again(workload: Workload, at: int, image: Image, state: State) -> None:
    """Recover, crash inside the recovery anywhere, and recover from that: all find the same."""
    disk = RecordingDisk(image)
    store = Store(disk)
    assert store.state.seen() == state.seen()
    chance = random.Random(at)
    for crash in crash_states(disk, chance.randrange, 1):
        second = check(workload, at, crash.image, f"{crash.what} inside the recovery")
        assert second.seen() == state.seen(), f"a recovery after {at} operations was cut off"
    store.define_queue(1000, "after")
    store.publish(message(b"after"), 1000)
    store.sync()
    store.checkpoint(2)
    store.sync()
    third = Store(RecordingDisk(disk.image()))
    assert third.state.seen() == store.state.seen()
    assert third.report.damages == []


def test_the_recording_disk_loses_what_was_not_synced() -> None:
    """The crash states are worth something only if a store that does not sync fails them."""
    disk = RecordingDisk()
    disk.make_dir("journal")
    disk.fsync_dir("")
    file = disk.open("journal/a", create=True)
    file.append([b"x" * 9000])
    chance = random.Random(1)
    lengths = {
        len(crash.image.files["journal/a"].rstrip(b"\0"))
        for crash in crash_states(disk, chance.randrange, 50)
        if "journal/a" in crash.image.files
    }
    assert {0, 9000} < lengths
    file.sync()
    disk.fsync_dir("journal")
    last = [crash for crash in crash_states(disk, chance.randrange, 9) if crash.operations == 6]
    assert [crash.image.files for crash in last] == [{"journal/a": b"x" * 9000}]


@pytest.mark.parametrize(
    ("left_out", "folder"),
    [("sync", "journal"), ("fsync_dir", "journal"), ("sync", "state"), ("sync", "segments")],
)
def test_a_store_that_leaves_out_a_sync_is_caught(left_out: str, folder: str) -> None:
    """The checker itself is checked: without one kind of sync it must find that out."""
    workload = Workload(1)
    workload.declare()
    workload.sync()
    for _ in range(3):
        workload.publish()
        workload.sync()
        workload.checkpoint()
    confirmed = workload.confirmed
    kept = [
        (number, operation)
        for number, operation in enumerate(workload.disk.trace, 1)
        if not (operation.verb == left_out and operation.path.startswith(folder))
    ]
    workload.disk.trace = [operation for _, operation in kept]
    numbers = [number for number, _ in kept]
    workload.confirmed = [
        (sum(number <= length for number in numbers), facts) for length, facts in confirmed
    ]
    with pytest.raises(AssertionError, match="after"):
        check_all(workload, random.Random(1))
