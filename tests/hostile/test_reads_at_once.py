"""What a queue reads from the disk at once, because it cannot wait for it, is counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.scheduler.costs import CHUNK_BYTES_PER_COST, CHUNK_READ, ROUND
from leveret.limits import CHUNK_BYTES_MAX
from support.node.core import Node, Peer
from support.wire.raw_codec import BODY, frame, header, method, publish

COUNT = 100

#: What a frame of a body has at most.
PIECE = 131_064

#: What it costs to read one of these messages, each of which is a chunk of its own.
READ = CHUNK_READ + CHUNK_BYTES_MAX // CHUNK_BYTES_PER_COST

#: The turns that half of them take at least.
TURNS = COUNT // 2 * READ // ROUND


@pytest.fixture
def node() -> Node:
    return Node(window_bytes=4 * CHUNK_BYTES_MAX)


@pytest.fixture
def peer(node: Node) -> Peer:
    """A client whose queues `q` and `p` have large messages on the disk."""
    peer = node.connect()
    node.core.memory.window_mask = 0
    peer.declare("q", arguments={"x-max-length": 100_000})
    peer.declare("p", arguments={"x-max-length": 100_000, "x-max-priority": 2})
    return peer


def fill(node: Node, peer: Peer, queue: str) -> None:
    """Publish so many messages, most of which go to the disk."""
    for number in range(COUNT):
        peer.send(publish(1, "", queue, b"%04d" % number + bytes(CHUNK_BYTES_MAX)))
    node.sync()
    assert node.waiting(queue).ready.page_count() > COUNT // 2


def turns_until(node: Node, done: Callable[[], bool]) -> int:
    """Have turns until it is done; return how many."""
    count = 0
    while not done():
        node.settle()
        count += 1
        assert count < 1000
    return count


@pytest.mark.parametrize("queue", ["q", "p"])
def test_a_shorter_limit_drops_what_is_on_the_disk_in_turns(
    node: Node, peer: Peer, queue: str
) -> None:
    fill(node, peer, queue)
    value = {"pattern": ".*", "definition": {"max-length": 10}, "priority": 1}
    node.broker.parameters.set("/", "operator_policy", "short", value)
    assert turns_until(node, lambda: node.classic(queue).ready_count() <= 10) >= TURNS


def test_a_message_that_takes_the_place_of_many_pushes_them_out_in_turns(
    node: Node, peer: Peer
) -> None:
    limit = COUNT * (CHUNK_BYTES_MAX + 4)
    peer.declare("bytes", arguments={"x-max-length-bytes": limit})
    fill(node, peer, "bytes")
    frames = [
        method(1, "basic.publish", routing_key="bytes"),
        header(1, limit // 2),
        *[frame(BODY, 1, bytes(PIECE)) for _ in range(limit // 2 // PIECE)],
        frame(BODY, 1, bytes(limit // 2 % PIECE)),
    ]
    queue = node.classic("bytes")

    def done() -> bool:
        return queue.next_number() > COUNT + 1 and int(queue.ready.bodies) <= limit

    peer.receive(b"".join(frames))
    assert turns_until(node, done) >= TURNS // 2
    assert queue.ready_count() == COUNT // 2 + 1
