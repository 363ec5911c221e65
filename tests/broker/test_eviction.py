"""The memory of all queues together: where it fills, what waits goes to the disk."""

from __future__ import annotations

import random

import pytest

from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer, all_waiting
from support.wire.raw_codec import method, publish

LARGE = 1 << 40


def fill(peer: Peer, queue: str, start: int, count: int, every: int = 1) -> list[bytes]:
    """Publish numbers; each `every`-th is persistent."""
    bodies = [b"%05d" % number for number in range(start, start + count)]
    for number, body in enumerate(bodies):
        mode = 2 if number % every == 0 else 1
        peer.send(publish(1, "", queue, body, delivery_mode=mode))
    peer.node.sync()
    return bodies


def drained(peer: Peer, queue: str) -> list[bytes]:
    """Get all that waits."""
    count = int(peer.node.classic(queue).ready_count())
    return [peer.call_get(queue, no_ack=True).body for _ in range(count)]


def node_with(*queues: str, bytes_max: int = -1) -> tuple[Node, Peer]:
    node = Node(window_bytes=LARGE)
    node.broker.eviction.configure(LARGE, bytes_max)
    node.core.memory.page_bytes = 600
    peer = node.connect()
    for queue in queues:
        peer.declare(queue)
    return node, peer


def in_memory(node: Node) -> int:
    return int(node.broker.memory_bytes())


@pytest.mark.parametrize("every", [1, 3, 1000])
def test_queues_write_what_they_hold(every: int) -> None:
    node, peer = node_with("a", "b", "c")
    expected = {queue: fill(peer, queue, 0, 40, every) for queue in "abc"}
    before = in_memory(node)
    node.broker.eviction.configure(LARGE, before // 4)
    node.run()
    assert in_memory(node) < before // 4
    assert node.core.memory.window_bytes < LARGE
    for queue in "abc":
        expected[queue] += fill(peer, queue, 40, 10, every)
        assert node.classic(queue).ready_count() == 50
        assert drained(peer, queue) == expected[queue]
    assert (node.core.memory.held_messages, node.core.memory.held_bytes) == (0, 0)
    node.run()
    assert node.core.memory.window_bytes == LARGE


@pytest.mark.parametrize("every", [1, 3])
def test_what_a_checkpoint_wrote_is_not_written_again(every: int) -> None:
    node, peer = node_with("a")
    expected = fill(peer, "a", 0, 60, every)
    node.take_checkpoint()
    written = int(node.spill.submitted)
    node.broker.eviction.configure(LARGE, 1)
    node.run()
    # Messages behind the last persistent one lie in no chunk.
    assert node.spill.submitted == written + (every > 1)
    expected += fill(peer, "a", 60, 5, every)
    assert [item.message.body for item in all_waiting(node.classic("a"))] == expected
    assert drained(peer, "a") == expected
    assert (node.core.memory.held_messages, node.core.memory.held_bytes) == (0, 0)


def test_what_is_handed_out_and_came_back_keeps_its_place() -> None:
    node, peer = node_with("a")
    expected = fill(peer, "a", 0, 60)
    tags = [peer.call_get("a").delivery_tag for _ in range(10)]
    node.broker.eviction.configure(LARGE, 1)
    node.run()
    for tag in tags[::2]:
        peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=True))
    node.run()
    left = [body for number, body in enumerate(expected) if number >= 10 or number % 2 == 0]
    assert drained(peer, "a") == left


def test_a_crash_finds_what_went_to_the_disk() -> None:
    node, peer = node_with("a", "b")
    expected = {queue: fill(peer, queue, 0, 50) for queue in "ab"}
    node.broker.eviction.configure(LARGE, 1)
    node.run()
    node.sync()
    for image in node.crashed(random.Random(7).randrange):
        again = Node(RecordingDisk(image))
        for queue in "ab":
            found = [item.message.body for item in all_waiting(again.classic(queue))]
            assert found == expected[queue]
