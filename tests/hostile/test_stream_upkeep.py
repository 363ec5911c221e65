"""What a long stream, or one with many named consumers, does by itself is done in slices."""

from __future__ import annotations

import pytest

from leveret.broker.scheduler.costs import SHARE_OF_DEADLINES
from leveret.broker.stream.offsets import STREAM_OFFSETS_MS
from leveret.broker.stream.retention import MEASURED_AT_ONCE
from support.node.core import Node, Peer
from support.node.variants import few_of
from support.wire.raw_codec import method, publish

NAMES = 2 * SHARE_OF_DEADLINES + 100


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


def test_one_that_ends_before_its_turn_is_not_stored_again(node: Node) -> None:
    peer = acked(node)
    node.clock.advance(STREAM_OFFSETS_MS)
    node.now()
    node.settle()
    offsets = node.stream("s").offsets
    peer.receive(method(1, "basic.cancel", consumer_tag="c0"))
    offsets.forget("n0")
    node.run()
    assert "n0" not in offsets.stored
    assert set(offsets.stored.values()) == {1}


@pytest.mark.parametrize("segment_bytes", few_of([18_000, 0, 180_000], 1))
def test_a_shorter_retention_drops_blocks_in_parts(node: Node, segment_bytes: int) -> None:
    """Also a segment of very many blocks, and then nothing of them is left in any account."""
    peer = node.connect()
    held = (int(node.core.memory.held_messages), int(node.core.memory.held_bytes))
    node.core.memory.page_bytes = 1
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
        node.judged(node.broker.tick)
        node.rest()
        looks += 1
        assert looks <= 60_000 // MEASURED_AT_ONCE + 2
    assert looks > 1
    assert len(stream.blocks) <= 2
    node.sync()
    left = (
        int(node.core.memory.held_messages) - held[0],
        int(node.core.memory.held_bytes) - held[1],
    )
    assert left == (1, int(stream.ready_bytes()))
