"""Transactions: publishes and acks together, or not at all (section 1.9, behaviours 28 and 29)."""

from __future__ import annotations

import random

import pytest

from core import Node, Peer
from leveret.limits import TX_MESSAGES_MAX
from leveret.store.disks.recording import Image, RecordingDisk, crash_states
from raw_codec import method, publish


@pytest.fixture
def tx(peer: Peer) -> Peer:
    """A transactional channel, with the queue `q` and `old` in it."""
    peer.declare("q")
    peer.send(publish(1, "", "q", b"old", delivery_mode=2))
    peer.call(1, "tx.select")
    return peer


def lasting(body: bytes, queue: str = "q") -> bytes:
    """A persistent publish."""
    return publish(1, "", queue, body, delivery_mode=2)


def ready(node: Node) -> int:
    """How many messages wait in `q`."""
    return int(node.vhost.queues["q"].ready_count())


def test_publishes_wait_for_the_commit(node: Node, tx: Peer) -> None:
    tx.send(lasting(b"1"), lasting(b"2"))
    assert ready(node) == 1
    tx.call(1, "tx.commit")
    assert ready(node) == 3
    # The next transaction has begun by itself.
    tx.send(lasting(b"3"))
    assert ready(node) == 3


def test_commit_ok_waits_for_its_sync(node: Node, tx: Peer) -> None:
    tx.send(lasting(b"1"), method(1, "tx.commit"))
    assert tx.take() == []
    node.sync()
    assert tx.names() == ["tx.commit-ok"]


def test_acks_wait_for_the_commit(node: Node, tx: Peer) -> None:
    tag = tx.call_get("q").delivery_tag
    tx.send(method(1, "basic.ack", delivery_tag=tag))
    assert node.vhost.queues["q"].unacked_count == 1
    tx.call(1, "tx.commit")
    assert node.vhost.queues["q"].unacked_count == 0


def test_rollback_undoes_both(node: Node, tx: Peer) -> None:
    """Behaviour 29: what was acked is unacked again, not requeued."""
    tag = tx.call_get("q").delivery_tag
    tx.send(lasting(b"new"), method(1, "basic.ack", delivery_tag=tag))
    tx.call(1, "tx.rollback")
    assert (ready(node), node.vhost.queues["q"].unacked_count) == (0, 1)
    tx.send(method(1, "basic.ack", delivery_tag=tag))
    tx.call(1, "tx.commit")
    assert node.vhost.queues["q"].unacked_count == 0


def test_acks_that_were_rolled_back_are_in_order(node: Node, tx: Peer) -> None:
    other = node.connect()
    other.send(*[lasting(b"%d" % number) for number in range(5)])
    tags = [tx.call_get("q").delivery_tag for _ in range(6)]
    for tag in (tags[4], tags[1]):
        tx.send(method(1, "basic.ack", delivery_tag=tag))
    tx.call(1, "tx.rollback")
    tx.send(method(1, "basic.ack", delivery_tag=tags[2], multiple=True))
    tx.call(1, "tx.commit")
    tx.send(method(1, "channel.close"))
    assert [other.call_get("q").body for _ in range(3)] == [b"2", b"3", b"4"]


def test_a_settled_tag_is_unknown_also_before_the_commit(tx: Peer) -> None:
    tag = tx.call_get("q").delivery_tag
    ack = method(1, "basic.ack", delivery_tag=tag)
    tx.send(ack, ack)
    closed = tx.expect(1, "channel.close")
    assert (closed.code, closed.text) == (406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")


@pytest.mark.parametrize("way", ["channel", "connection", "lost"])
def test_an_end_without_a_commit_is_a_rollback(node: Node, tx: Peer, way: str) -> None:
    tag = tx.call_get("q").delivery_tag
    tx.send(lasting(b"new"), method(1, "basic.ack", delivery_tag=tag))
    if way == "lost":
        tx.lose()
    else:
        tx.send(method(1 if way == "channel" else 0, f"{way.replace('lost', '')}.close"))
    other = node.connect()
    got = other.call_get("q")
    assert (got.body, got.redelivered) == (b"old", True)
    assert ready(node) == 0


def test_errors_come_at_the_publish(tx: Peer) -> None:
    """Behaviour 29."""
    tx.send(publish(1, "none", "", b"m"))
    assert tx.expect(1, "channel.close").code == 404


def test_returns_come_before_commit_ok(tx: Peer) -> None:
    tx.send(publish(1, "amq.fanout", "", b"m", mandatory=True))
    assert tx.take() == []
    tx.send(method(1, "tx.commit"))
    tx.node.sync()
    assert tx.names() == ["basic.return", "tx.commit-ok"]


def test_a_queue_deleted_before_the_commit_takes_nothing(node: Node, tx: Peer) -> None:
    tx.send(lasting(b"new"))
    other = node.connect()
    other.call(1, "queue.delete", queue="q")
    other.declare("q")
    tx.call(1, "tx.commit")
    assert ready(node) == 0


def test_modes_exclude_each_other(node: Node, tx: Peer) -> None:
    """Behaviour 28."""
    tx.send(method(1, "confirm.select"))
    assert tx.expect(1, "channel.close").code == 406
    other = node.connect()
    other.call(1, "confirm.select")
    other.call(1, "confirm.select")
    other.send(method(1, "tx.select"))
    assert other.expect(1, "channel.close").code == 406
    plain = node.connect()
    plain.send(method(1, "tx.commit"))
    assert plain.expect(1, "channel.close").code == 406


def test_a_transaction_is_bounded(node: Node, tx: Peer) -> None:
    small = publish(1, "", "q", b"")
    tx.send(small * TX_MESSAGES_MAX)
    assert tx.take() == []
    tx.send(small)
    assert tx.expect(1, "channel.close").code == 406
    assert ready(node) == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_leaves_all_of_it_or_nothing(seed: int) -> None:
    """Promise 3: at any legal state that a crash during the commit's sync leaves."""
    draw = random.Random(seed)
    node = Node(seed=seed)
    peer = node.connect()
    peer.declare("q")
    peer.declare("q2")
    peer.send(lasting(b"old"))
    node.sync()
    peer.call(1, "tx.select")
    peer.send(
        method(1, "basic.get", queue="q"),
        *[lasting(b"new" + bytes(draw.choice([0, 1000, 90_000])), "q2") for _ in range(5)],
        method(1, "basic.ack", delivery_tag=1),
        method(1, "tx.commit"),
    )
    node.begin_sync()
    node.write()
    assert node.recording is not None
    outcomes = set()
    for image in images(node, draw):
        again = Node(RecordingDisk(image))
        outcomes.add((ready(again), int(again.vhost.queues["q2"].ready_count())))
    assert outcomes == {(1, 0), (0, 5)}


def images(node: Node, draw: random.Random) -> list[Image]:
    """What a crash may leave at the last operations of the disk: before, in, and after the sync."""
    assert node.recording is not None
    since = node.trace_length() - 2
    return [s.image for s in crash_states(node.recording, draw.randrange, 12, since=since)]
