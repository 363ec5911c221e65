"""The two alarms that block publishers: when each is raised, when both are over, in which words."""

from __future__ import annotations

import pytest

from leveret.names import Name
from support.node.core import Node, Peer
from support.wire.raw_codec import publish

RESERVE = 1_000_000
BODY = bytes(1000)


@pytest.fixture
def node() -> Node:
    """A broker whose reserve is 1 MB; the disk is empty, so nothing is journaled but the start."""
    node = Node(memory_bytes_max=100_000)
    node.broker.disk_free_bytes_min = RESERVE
    return node


def judge(node: Node, free_bytes: int, owed_bytes: int = 0) -> bool:
    """Have the broker judge the disk, and do what follows; tell whether the alarm is on."""
    node.broker.judge_disk(free_bytes, owed_bytes)
    node.run()
    return node.broker.disk_alarm


def publisher(node: Node) -> Peer:
    """A client with a durable queue."""
    peer = node.connect()
    peer.call(1, "queue.declare", queue="q", durable=True)
    return peer


def test_publishers_are_blocked_below_the_reserve_and_go_on_above_it(node: Node) -> None:
    peer = publisher(node)
    assert not judge(node, RESERVE)
    assert judge(node, RESERVE - 1)
    assert node.broker.disk_free_bytes == RESERVE - 1
    peer.send(publish(1, "", "q", b"one more"), publish(1, "", "q", b"held"))
    assert peer.expect(0, "connection.blocked").reason == "low on disk"
    assert node.vhost.queues.existing(Name("q"), None).ready_count() == 1
    node.sync()
    # What the journal has of it would have to be written by a checkpoint.
    assert judge(node, RESERVE * 9 // 8)
    judge(node, RESERVE * 9 // 8 + 1000)
    peer.expect(0, "connection.unblocked")
    assert node.vhost.queues.existing(Name("q"), None).ready_count() == 2


def test_consumers_acks_and_deletes_go_on(node: Node) -> None:
    peer, other = publisher(node), node.connect()
    peer.send(publish(1, "", "q", b"m", delivery_mode=2))
    judge(node, 0)
    assert other.call_get("q").body == b"m"
    other.call(1, "basic.qos")
    other.call(1, "queue.delete", queue="q")
    assert node.broker.disk_alarm


def test_what_is_accepted_and_not_written_counts(node: Node) -> None:
    peer = publisher(node)
    peer.send(publish(1, "", "q", BODY, delivery_mode=2))
    unsynced = int(node.journal.unsynced_bytes)
    assert unsynced > 1000
    taken = unsynced + int(node.broker.checkpoint_bytes())
    assert not judge(node, RESERVE + taken)
    assert judge(node, RESERVE + taken - 1)


@pytest.mark.in_memory
def test_what_a_checkpoint_needs_counts(node: Node) -> None:
    """Live messages that only the journal has; acked ones and those in chunks need nothing."""
    peer = publisher(node)
    peer.send(*[publish(1, "", "q", BODY, delivery_mode=2)] * 10)
    node.sync()
    assert 10_000 < node.broker.checkpoint_bytes() < 12_000
    assert judge(node, RESERVE + 5000)
    node.take_checkpoint()
    assert node.broker.checkpoint_bytes() < 1000
    assert judge(node, RESERVE * 9 // 8 + 1000, owed_bytes=5000)
    assert not judge(node, RESERVE * 9 // 8 + 1000)
    peer.send(*[publish(1, "", "q", BODY, delivery_mode=2)] * 10)
    node.sync()
    peer.call(1, "queue.purge", queue="q")
    assert node.broker.checkpoint_bytes() < 1000


def test_both_alarms_must_be_over(node: Node) -> None:
    peer, other = publisher(node), node.connect()
    peer.send(publish(1, "", "q", bytes(100_000)))
    assert node.broker.memory_alarm
    assert node.broker.blocked_reason == "low on memory"
    judge(node, 0)
    assert node.broker.blocked_reason == "low on memory & disk"
    peer.send(publish(1, "", "q", b"held"))
    peer.expect(0, "connection.blocked")
    other.call_get("q", no_ack=True)
    assert node.broker.blocked_reason == "low on disk"
    assert peer.take() == []
    judge(node, RESERVE * 2)
    peer.expect(0, "connection.unblocked")
    assert node.broker.blocked_reason == ""
