"""Very many readers of one stream are served in slices, and none of them is left out."""

from __future__ import annotations

import pytest

from leveret.broker.scheduler.costs import SHARE_OF_DELIVERIES, SLICE
from leveret.limits import CONTENT_BYTES_PER_COST, SLICE_MESSAGES
from leveret.wire.content.output import OUTPUT_APART_BYTES
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

READERS = 3 * SLICE_MESSAGES + 100


@pytest.fixture
def node() -> Node:
    return Node()


def readers(node: Node, count: int = READERS) -> Peer:
    """A client with so many consumers of stream `s`, which take one message before the ack."""
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.call(1, "basic.qos", prefetch_count=1)
    peer.send(
        *(
            method(1, "basic.consume", queue="s", consumer_tag=f"c{number}", no_wait=True)
            for number in range(count)
        )
    )
    node.sync()
    peer.take()
    return peer


def show(node: Node, publisher: Peer, messages: int = 1, body: bytes = b"m") -> None:
    """Publish and sync messages, of which the readers learn; none is served yet."""
    publisher.receive(publish(1, "", "s", body) * messages)
    assert node.begin_sync()
    node.write()
    group, node.group = node.group, None
    assert group is not None
    node.core.syncs.synced(group.number)


def step(node: Node, peer: Peer) -> int:
    """Do one round, after which the client reads; return how many deliveries it made."""
    stream = node.stream("s")
    before = int(stream.delivered)
    node.settle()
    peer.flush()
    return int(stream.delivered) - before


def rest(node: Node, peer: Peer) -> list[int]:
    """Let the broker go on until it rests; return how many deliveries each round made."""
    found = []
    while not node.rests():
        found.append(step(node, peer))
        assert len(found) < 100
    return found


def test_a_reader_with_credit_again_behind_the_walk_gets_the_next_message(node: Node) -> None:
    publisher, peer = node.connect(), readers(node)
    show(node, publisher)
    rest(node, peer)
    show(node, publisher)
    # Nobody has credit: the walk passes over the first ones.
    assert step(node, peer) == 0
    peer.receive(method(1, "basic.ack", delivery_tag=1))
    rest(node, peer)
    assert int(node.stream("s").delivered) == READERS + 1


def test_readers_that_go_during_the_walk_are_passed_over(node: Node) -> None:
    publisher, peer = node.connect(), readers(node)
    show(node, publisher)
    assert 0 < step(node, peer) <= SLICE_MESSAGES
    last = method(1, "basic.cancel", consumer_tag=f"c{READERS - 1}", no_wait=True)
    peer.receive(last)
    rest(node, peer)
    assert int(node.stream("s").delivered) == READERS - 1


def test_a_stream_deleted_during_the_walk_delivers_nothing_more(node: Node) -> None:
    publisher, peer = node.connect(), readers(node)
    show(node, publisher)
    delivered = step(node, peer)
    stream = node.stream("s")
    publisher.receive(method(1, "queue.delete", queue="s", no_wait=True))
    node.run()
    assert 0 < delivered <= SLICE_MESSAGES
    assert int(stream.delivered) == delivered


def test_readers_get_long_bodies_in_turns_and_all_of_them(node: Node) -> None:
    publisher, size = node.connect(), OUTPUT_APART_BYTES - 1
    peers = [node.connect() for _ in range(300)]
    peers[0].declare("s", arguments={"x-queue-type": "stream"})
    for peer in peers:
        peer.call(1, "basic.qos", prefetch_count=8)
        peer.call(1, "basic.consume", queue="s")
    node.sync()
    show(node, publisher, 8, bytes(size))
    stream = node.stream("s")
    most = 2 * SHARE_OF_DELIVERIES + SLICE
    rounds = 0
    while not node.rests():
        before = int(stream.delivered)
        node.settle()
        assert (int(stream.delivered) - before) * size <= most * CONTENT_BYTES_PER_COST
        rounds += 1
    assert (int(stream.delivered), rounds > 1) == (8 * 300, True)
