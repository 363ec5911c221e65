"""What a long stream, or one with many named consumers, does by itself is done in slices."""

from __future__ import annotations

import pytest

from leveret.limits import (
    MEASURED_AT_ONCE,
    STEPS_PER_SLICE,
    STEPS_PER_TURN,
    STREAM_OFFSETS_MS,
    TIMED_STEPS_PER_TURN,
    WORK_STEPS_PER_TURN,
)
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

NAMES = 2 * TIMED_STEPS_PER_TURN + 100


@pytest.fixture
def node() -> Node:
    return Node()


def acked(node: Node) -> Peer:
    """A client with so many named consumers of stream `s`, each of which has acked a message."""
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.call(1, "basic.qos", prefetch_count=10)
    for number in range(NAMES):
        consume = method(
            1, "basic.consume", queue="s", consumer_tag=f"c{number}", no_wait=True,
            arguments={"x-stream-consumer": f"n{number}"},
        )  # fmt: skip
        peer.send(consume)
    node.sync()
    peer.send(publish(1, "", "s", b"m"))
    node.sync()
    peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    node.sync()
    peer.take()
    return peer


def test_offsets_of_many_names_are_journaled_in_slices(node: Node) -> None:
    acked(node)
    stored = node.stream("s").offsets.stored
    node.clock.advance(STREAM_OFFSETS_MS)
    node.now()
    parts = []
    while list(stored.values()).count(1) < NAMES:
        before = list(stored.values()).count(1)
        node.broker.settle()
        parts.append(list(stored.values()).count(1) - before)
        assert len(parts) < 100
    assert max(parts) <= TIMED_STEPS_PER_TURN
    assert len(parts) >= 3


def test_one_that_ends_before_its_turn_is_not_stored_again(node: Node) -> None:
    peer = acked(node)
    node.clock.advance(STREAM_OFFSETS_MS)
    node.now()
    node.broker.settle()
    offsets = node.stream("s").offsets
    peer.connection.receive(method(1, "basic.cancel", consumer_tag="c0"), node.now())
    offsets.forget("n0")
    node.run()
    assert "n0" not in offsets.stored
    assert set(offsets.stored.values()) == {1}


@pytest.mark.parametrize("segment_bytes", [0, 18_000, 180_000])
def test_a_shorter_retention_drops_blocks_in_slices(node: Node, segment_bytes: int) -> None:
    """Also a segment of very many blocks, and then nothing of them is left in any account."""
    peer = node.connect()
    held = (int(node.turn.held_messages), int(node.turn.held_bytes))
    node.turn.page_bytes = 1
    segment = {"x-stream-max-segment-size-bytes": segment_bytes} if segment_bytes else {}
    peer.declare("s", arguments={"x-queue-type": "stream"} | segment)
    for _ in range(60):
        peer.send(publish(1, "", "s", b"m") * 1_000)
        node.sync()
    stream = node.stream("s")
    assert len(stream.blocks) >= 60_000
    # The newest message stays, and the newest segment.
    peer.send(publish(1, "", "s", b"m"))
    node.sync()
    value = {"pattern": ".*", "definition": {"max-length-bytes": 1}, "priority": 1}
    node.broker.parameters.set("/", "operator_policy", "short", value)
    node.run()
    looks = 0
    while stream.ready_count() > 1:
        before = int(node.turn.steps)
        node.broker.tick()
        assert int(node.turn.steps) - before <= 2 * STEPS_PER_SLICE + STEPS_PER_TURN
        while node.turn.works:
            before = int(node.turn.steps)
            node.broker.settle()
            assert int(node.turn.steps) - before <= WORK_STEPS_PER_TURN + STEPS_PER_SLICE
        looks += 1
        assert looks <= 60_000 // MEASURED_AT_ONCE + 2
    assert looks > 1
    assert len(stream.blocks) <= 2
    node.sync()
    left = (int(node.turn.held_messages) - held[0], int(node.turn.held_bytes) - held[1])
    assert left == (1, int(stream.ready_bytes()))


def test_the_blocks_of_a_deleted_stream_are_forgotten_in_slices(node: Node) -> None:
    """And then nothing of them is left in any account, also of those in the cache."""
    peer = node.connect()
    held = (int(node.turn.held_messages), int(node.turn.held_bytes))
    node.turn.page_bytes = 1
    peer.declare("s", arguments={"x-queue-type": "stream"})
    for _ in range(4):
        peer.send(publish(1, "", "s", b"m") * WORK_STEPS_PER_TURN)
        node.sync()
    assert len(node.stream("s").blocks) >= 4 * WORK_STEPS_PER_TURN
    before = int(node.turn.steps)
    peer.connection.receive(method(1, "queue.delete", queue="s"), node.now())
    assert int(node.turn.steps) - before < 2 * STEPS_PER_SLICE
    turns = 0
    while node.turn.works:
        before = int(node.turn.steps)
        node.broker.settle()
        assert int(node.turn.steps) - before <= WORK_STEPS_PER_TURN + STEPS_PER_SLICE
        turns += 1
    assert turns > 1
    node.sync()
    assert (int(node.turn.held_messages), int(node.turn.held_bytes)) == held
    assert node.turn.unchunked_bytes == 0
    assert node.turn.stream_cache.bytes == 0
    assert node.turn.spill.use.bytes_live == 0


def test_the_names_of_a_deleted_stream_are_forgotten_in_slices(node: Node) -> None:
    """Their consumers are cancelled at once, and get nothing; no account has them any more."""
    marks = int(node.turn.accounts.mark_bytes)
    peer = acked(node)
    offsets = node.stream("s").offsets
    groups = list(offsets.groups.values())
    peer.connection.receive(publish(1, "", "s", b"m"), node.now())
    peer.connection.receive(method(1, "queue.delete", queue="s", no_wait=True), node.now())
    assert all(group.deleted for group in groups)
    assert int(node.turn.accounts.mark_bytes) == marks
    assert not offsets.stored
    left = sum(len(group.consumers) for group in groups)
    assert left > NAMES // 2
    turns = 0
    while node.turn.works:
        before = int(node.turn.steps)
        node.broker.settle()
        assert int(node.turn.steps) - before <= WORK_STEPS_PER_TURN + STEPS_PER_SLICE
        turns += 1
    assert turns > 1
    assert not any(group.consumers for group in groups)
    node.sync()
    assert peer.names() == ["basic.cancel"] * NAMES
