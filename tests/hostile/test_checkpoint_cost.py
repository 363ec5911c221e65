"""A checkpoint of very many queues and bindings holds nobody: counted definitions and lines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Final, final

import pytest

from leveret.broker.recovery.checkpoint import BrokerCheckpoint
from leveret.limits import SLICE_MESSAGES
from leveret.store.checkpoint.checkpoint import (
    Checkpoint,
    CheckpointOutput,
    CheckpointSource,
    CheckpointWork,
    NewChunk,
)
from leveret.store.disks.recording import RecordingDisk
from support.costs.cost_gauge import PLAIN, Gauge
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

MANY: Final = 3_000

#: Definitions of one slice, some 8 µs of compiled code each.
DEFINITIONS_MAX: Final = SLICE_MESSAGES // 4 + 1

#: Lines for each queue at the boundary, all of which is done at once: 250,000 queues, as many as a
#: user may have, take some 20 ms of compiled code.
BOUNDARY_LINES: Final = 12

#: Messages of a deep queue; bytes of a range, and of a count, in the snapshot.
DEEP: Final = 30_000
RANGE_BYTES: Final = 16
COUNT_BYTES: Final = 32

#: Lines of a slice of a queue's messages, each of which takes some 130 lines at most.
SLICE_LINES: Final = 130 * SLICE_MESSAGES


@final
class Counted(CheckpointSource):
    """A hand-over that tells how many definitions it has handed over."""

    def __init__(self, source: CheckpointSource) -> None:
        self._source = source
        self._out: CheckpointOutput | None = None

    def definitions(self) -> int:
        return 0 if self._out is None else int(self._out.definitions)

    def begin(self, group: int) -> None:
        self._source.begin(group)

    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        self._out = out
        yield from self._source.hand_over(out)

    def chunked(self, chunk: NewChunk) -> None:
        self._source.chunked(chunk)


@pytest.fixture
def node() -> Node:
    node = Node()
    peer = node.connect()
    for number in range(MANY):
        name = f"q{number}"
        peer.send(
            method(1, "queue.declare", queue=name, durable=True, no_wait=True),
            method(1, "queue.bind", queue=name, exchange="amq.topic", routing_key=name,
                   no_wait=True),
        )  # fmt: skip
    node.sync()
    return node


def take(node: Node, source: CheckpointSource) -> None:
    checkpoint = node.checkpoints.begin(node.journal, source, node.clock.wall_ms())
    while not checkpoint.done:
        work = checkpoint.step()
        if work is None:
            node.write_spilled()
            node.sync()
        else:
            node.checkpoint_files.run(work)


def test_a_slice_has_a_bounded_number_of_definitions(node: Node) -> None:
    source = Counted(BrokerCheckpoint(node.broker))
    checkpoint = node.checkpoints.begin(node.journal, source, node.clock.wall_ms())
    slices = []
    while not checkpoint.done:
        before = source.definitions()
        work = checkpoint.step()
        slices.append(source.definitions() - before)
        if work is None:
            node.write_spilled()
            node.sync()
        else:
            node.checkpoint_files.run(work)
    assert sum(slices) >= 2 * MANY
    assert max(slices) <= DEFINITIONS_MAX
    again = Node(RecordingDisk(node.image()), clock=node.clock)
    assert len(again.vhost.queues.by_name) == MANY


@pytest.mark.both_builds
@pytest.mark.skipif(not PLAIN, reason="counts lines of plain Python")
def test_the_boundary_is_little_work_for_each_queue(node: Node) -> None:
    source = BrokerCheckpoint(node.broker)
    gauge = Gauge()
    gauge.measure("begin", node.core, lambda: source.begin(int(node.journal.group)))
    assert MANY < gauge.most["begin lines"] <= BOUNDARY_LINES * MANY


def test_a_queue_that_is_declared_after_the_boundary_is_in_the_journal_alone(node: Node) -> None:
    peer = node.connect()
    source = BrokerCheckpoint(node.broker)
    checkpoint = node.checkpoints.begin(node.journal, source, node.clock.wall_ms())
    peer.declare("late", durable=True)
    while not checkpoint.done:
        work = checkpoint.step()
        if work is None:
            node.write_spilled()
            node.sync()
        else:
            node.checkpoint_files.run(work)
    late = node.vhost.queues.by_name["late"]
    assert late.queue_id not in source.queues
    assert len(source.queues) == MANY
    # The next one has it.
    take(node, following := BrokerCheckpoint(node.broker))
    assert following.queues[late.queue_id] is late


def deep(node: Node, messages: int) -> Peer:
    """Queue `d` with so many messages in chunks, all of which the client has unacked."""
    peer = node.connect()
    peer.declare("d", durable=True)
    for number in range(1, messages + 1):
        peer.send(publish(1, "", "d", b"%d" % number, delivery_mode=2))
    node.sync()
    take(node, BrokerCheckpoint(node.broker))
    peer.send(method(1, "basic.consume", queue="d", no_wait=True))
    node.sync()
    peer.take()
    return peer


def ack_others(node: Node, peer: Peer, first: int, last: int) -> None:
    """Ack every other delivery."""
    peer.send(*[method(1, "basic.ack", delivery_tag=tag) for tag in range(first, last, 2)])
    node.sync()


def test_what_is_gone_from_a_deep_queue_is_handed_over_in_slices() -> None:
    """Every other message was acked, and each is a range of its own."""
    node = Node()
    ack_others(node, deep(node, DEEP), 1, DEEP)
    assert len(node.classic("d").stored.gone) >= DEEP // 2 - 100
    sizes = records(node, BrokerCheckpoint(node.broker))
    assert sum(sizes) >= RANGE_BYTES * DEEP // 2
    assert max(sizes) <= RANGE_BYTES * SLICE_MESSAGES * 2 + 65_536


def test_how_often_messages_came_back_is_handed_over_in_slices() -> None:
    node = Node()
    peer = deep(node, DEEP)
    peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
    node.sync()
    sizes = records(node, BrokerCheckpoint(node.broker))
    assert sum(sizes) >= COUNT_BYTES * DEEP
    assert max(sizes) <= 2 * COUNT_BYTES * SLICE_MESSAGES + 65_536


@pytest.mark.both_builds
@pytest.mark.skipif(not PLAIN, reason="counts lines of plain Python")
def test_a_slice_of_a_deep_queue_runs_a_bounded_number_of_lines() -> None:
    """Whatever it looks at: what is waiting, unacked, gone, or in a chunk already."""
    node = Node(window_bytes=-1)
    peer = deep(node, DEEP)
    peer.send(method(1, "basic.nack", delivery_tag=DEEP // 2, multiple=True, requeue=True))
    ack_others(node, peer, DEEP // 2 + 1, DEEP)
    peer.send(*[publish(1, "", "d", b"m")] * DEEP)
    node.sync()
    gauge = Gauge()
    checkpoint = node.checkpoints.begin(
        node.journal, BrokerCheckpoint(node.broker), node.clock.wall_ms()
    )
    while not checkpoint.done:
        done: list[CheckpointWork | None] = []
        gauge.measure("step", node.core, partial(one_step, checkpoint, done))
        if done[0] is None:
            node.write_spilled()
            node.sync()
        else:
            node.checkpoint_files.run(done[0])
    assert gauge.most["step lines"] <= SLICE_LINES


@pytest.mark.parametrize("seed", range(5))
def test_what_is_acked_between_two_slices_is_gone_after_a_crash(seed: int) -> None:
    chance = random.Random(seed)
    node = Node()
    peer = deep(node, 3000)
    ack_others(node, peer, 1, 3000)
    left = set(range(2, 3001, 2))
    steps = 0
    while not node.step_checkpoint(50):
        node.write_spilled()
        gone = chance.sample(sorted(left), 5)
        left -= set(gone)
        peer.send(*[method(1, "basic.ack", delivery_tag=tag) for tag in gone])
        node.sync()
        steps += 1
    assert steps > 20
    again = Node(RecordingDisk(node.image()), clock=node.clock)
    other = again.connect()
    other.send(method(1, "basic.consume", queue="d", no_ack=True, no_wait=True))
    assert [int(body) for body in other.bodies()] == sorted(left)


def one_step(checkpoint: Checkpoint, found: list[CheckpointWork | None]) -> None:
    """Go on by a slice; put what is to be written into `found`."""
    found.append(checkpoint.step())


def records(node: Node, source: CheckpointSource) -> list[int]:
    """Take a checkpoint; return how many bytes of records each of its slices made."""
    sizes = []
    checkpoint = node.checkpoints.begin(node.journal, source, node.clock.wall_ms())
    while not checkpoint.done:
        work = checkpoint.step()
        if work is None:
            node.write_spilled()
            node.sync()
        else:
            sizes.append(len(work.records))
            node.checkpoint_files.run(work)
    return sizes
