"""A queue that is full of tiny messages goes to the disk a page at a time."""

from __future__ import annotations

import pytest

from leveret.limits import CHUNK_RECORDS_MAX, MESSAGE_OVERHEAD_BYTES
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

COUNT = 20_000
BATCH = 2000


@pytest.fixture
def node() -> Node:
    return Node(window_bytes=COUNT * (MESSAGE_OVERHEAD_BYTES + 8))


@pytest.fixture
def peer(node: Node) -> Peer:
    """A client whose queue `q` has a long tail: what came first was handed out."""
    peer = node.connect()
    peer.declare("q")
    other = node.connect()
    node.core.memory.window_mask = 63
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
    cut = 0
    turns = 0
    for _ in range(COUNT // BATCH):
        had = pages(node)
        peer.receive(batch)
        cut = max(cut, pages(node) - had)
        while peer.connection.waits_for_turn():
            turns += 1
            node.settle()
        node.run()
    assert 1 <= cut <= 3
    assert turns > 0
    assert node.waiting("q").ready.memory_count() < COUNT + CHUNK_RECORDS_MAX


def test_nothing_is_lost_and_the_order_stays(node: Node) -> None:
    peer = node.connect()
    peer.declare("q")
    node.core.memory.window_mask = 63
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


def all_cut(node: Node) -> list[int]:
    """Have all of the queue `q` evicted; return the pages of each call."""
    queue = node.waiting("q")
    taken = []
    more = True
    while more:
        had = pages(node)
        more = queue.evict()
        taken.append(pages(node) - had)
        node.write_spilled()
    return taken


@pytest.mark.parametrize("returned", [0, 1000])
def test_a_queue_of_tiny_messages_is_evicted_some_pages_at_a_time(returned: int) -> None:
    """Its front as well as its tail, also where some of it came back."""
    node = Node(window_bytes=1 << 40)
    peer = node.connect()
    peer.declare("q")
    other = node.connect()
    numbers = [b"%06d" % number for number in range(COUNT)]
    peer.send(b"".join(publish(1, "", "q", body) for body in numbers[:BATCH]))
    if returned:
        other.call(1, "basic.qos", prefetch_count=returned)
        other.call(1, "basic.consume", queue="q", consumer_tag="c")
        other.send(method(1, "basic.cancel", consumer_tag="c"))
        other.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
    for first in range(BATCH, COUNT, BATCH):
        peer.send(b"".join(publish(1, "", "q", body) for body in numbers[first : first + BATCH]))
    taken = all_cut(node)
    assert len(taken) > COUNT // (2 * CHUNK_RECORDS_MAX)
    assert max(taken) <= 2
    assert node.waiting("q").ready.memory_count() == 0
    # What comes now is the tail, which a checkpoint would have in pages.
    late = [b"late%06d" % number for number in range(COUNT)]
    for first in range(0, COUNT, BATCH):
        peer.send(b"".join(publish(1, "", "q", body) for body in late[first : first + BATCH]))
    queue = node.waiting("q")
    boundary = queue.next_number()
    parts = []
    more = True
    while more:
        had = pages(node)
        more = queue.settle_pages(boundary)
        parts.append(pages(node) - had)
        if len(parts) == 1:
            # What comes behind the boundary need not be there.
            peer.send(publish(1, "", "q", b"last") * BATCH)
    assert len(parts) >= COUNT // CHUNK_RECORDS_MAX
    assert max(parts) <= 2
    assert max(all_cut(node)) <= 2
    peer.call(1, "basic.consume", queue="q", consumer_tag="c", no_ack=True)
    node.run()
    bodies = [one.body for one in peer.take() if one.name == "basic.deliver"]
    assert bodies == numbers + late + [b"last"] * BATCH
    assert (node.core.memory.held_messages, node.core.memory.held_bytes) == (0, 0)


def test_many_queues_are_evicted_some_at_a_time() -> None:
    node = Node(window_bytes=1 << 40)
    peer = node.connect()
    for number in range(20):
        peer.declare(f"q{number}")
        peer.send(publish(1, "", f"q{number}", b"m") * BATCH)
    node.broker.eviction.configure(1 << 40, 1)
    calls = 0
    while any(node.waiting(f"q{number}").ready.memory_count() for number in range(20)):
        node.settle()
        node.write_spilled()
        calls += 1
    assert calls > 1
