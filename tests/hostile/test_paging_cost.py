"""A queue that is full of tiny messages goes to the disk a page at a time."""

from __future__ import annotations

import pytest

from core import Node, Peer
from leveret.limits import (
    CHUNK_RECORDS_MAX,
    INPUT_BYTES_PER_STEP,
    MESSAGE_OVERHEAD_BYTES,
    STEPS_PER_SLICE,
)
from raw_codec import method, publish

COUNT = 20_000
BATCH = 2000

#: Steps of one page that is cut, where four messages are a step.
CUT = CHUNK_RECORDS_MAX // 4


@pytest.fixture
def node() -> Node:
    return Node(window_bytes=COUNT * (MESSAGE_OVERHEAD_BYTES + 8))


@pytest.fixture
def peer(node: Node) -> Peer:
    """A client whose queue `q` has a long tail: what came first was handed out."""
    peer = node.connect()
    peer.declare("q")
    other = node.connect()
    node.turn.window_mask = 63
    for _ in range(COUNT // BATCH + 2):
        peer.send(publish(1, "", "q", b"m") * BATCH)
    other.call(1, "basic.qos", prefetch_count=COUNT - 1000)
    other.call(1, "basic.consume", queue="q")
    node.run()
    return peer


def pages(node: Node) -> int:
    return int(node.waiting("q").ready.page_count())


def test_a_long_tail_is_cut_page_by_page_and_ends_the_turn_of_its_publisher(
    node: Node, peer: Peer
) -> None:
    batch = publish(1, "", "q", b"m") * BATCH
    most = cut = 0
    turns = 0
    for _ in range(COUNT // BATCH):
        before, had = node.turn.steps, pages(node)
        peer.connection.receive(batch, node.now())
        most = max(most, int(node.turn.steps - before))
        cut = max(cut, pages(node) - had)
        while peer.connection.waits_for_turn():
            turns += 1
            before, had = node.turn.steps, pages(node)
            node.broker.settle()
            most = max(most, int(node.turn.steps - before))
        node.run()
    assert 1 <= cut <= 3
    assert turns > 0
    assert most <= 3 * STEPS_PER_SLICE + CUT + len(batch) // INPUT_BYTES_PER_STEP
    assert node.waiting("q").ready.memory_count() < COUNT + CHUNK_RECORDS_MAX


def test_nothing_is_lost_and_the_order_stays(node: Node) -> None:
    peer = node.connect()
    peer.declare("q")
    node.turn.window_mask = 63
    numbers = [b"%06d" % number for number in range(2 * COUNT)]
    for first in range(0, COUNT + BATCH, BATCH):
        peer.send(b"".join(publish(1, "", "q", body) for body in numbers[first : first + BATCH]))
    got = []
    consumer = node.connect()
    consumer.send(method(1, "basic.qos", prefetch_count=COUNT - 1000))
    consumer.send(method(1, "basic.consume", queue="q", consumer_tag="c"))
    node.run()
    for first in range(COUNT + BATCH, 2 * COUNT, BATCH):
        peer.send(b"".join(publish(1, "", "q", body) for body in numbers[first : first + BATCH]))
    node.run()
    while heard := consumer.take():
        bodies = [one.body for one in heard if one.name == "basic.deliver"]
        if not bodies:
            continue
        got += bodies
        consumer.send(method(1, "basic.ack", delivery_tag=len(got), multiple=True))
        node.run()
    assert got == numbers
