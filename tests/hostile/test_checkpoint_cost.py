"""A checkpoint of very many queues and bindings holds nobody: counted definitions and lines."""

from __future__ import annotations

from typing import Final, final

import pytest

from core import Node
from cost_gauge import PLAIN, Gauge
from leveret.broker.recovery.checkpoint import BrokerCheckpoint
from leveret.limits import SLICE_MESSAGES
from leveret.store.checkpoint.checkpoint import CheckpointOutput, CheckpointSource, NewChunk
from leveret.store.disks.recording import RecordingDisk
from raw_codec import method

MANY: Final = 3_000

#: Definitions of one slice, some 8 µs of compiled code each.
DEFINITIONS_MAX: Final = SLICE_MESSAGES // 4 + 1

#: Lines for each queue at the boundary, all of which is done at once: 250,000 queues, as many as a
#: user may have, take some 20 ms of compiled code.
BOUNDARY_LINES: Final = 12


@final
class Counted(CheckpointSource):
    """A hand-over that notes how many definitions each of its slices has."""

    def __init__(self, source: CheckpointSource) -> None:
        self._source = source
        self.slices: list[int] = []

    def begin(self, group: int) -> None:
        self._source.begin(group)

    def step(self, out: CheckpointOutput, limit: int) -> bool:
        before = int(out.definitions)
        more = self._source.step(out, limit)
        self.slices.append(int(out.definitions) - before)
        return more

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
    counted = Counted(BrokerCheckpoint(node.broker))
    take(node, counted)
    assert sum(counted.slices) >= 2 * MANY
    assert max(counted.slices) <= DEFINITIONS_MAX
    again = Node(RecordingDisk(node.image()), clock=node.clock)
    assert len(again.vhost.queues.by_name) == MANY


@pytest.mark.skipif(not PLAIN, reason="counts lines of plain Python")
def test_the_boundary_is_little_work_for_each_queue(node: Node) -> None:
    source = BrokerCheckpoint(node.broker)
    gauge = Gauge()
    gauge.measure("begin", node.turn, lambda: source.begin(int(node.journal.group)))
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
