"""Large persistent bodies reach the journal while they arrive, so that others do not wait long."""

from __future__ import annotations

import random

import pytest

from leveret.session.channel.content import BODY_AHEAD_BYTES, BODY_AHEAD_UNSYNCED_BYTES_MAX
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import frame, header, method, properties, publish

BODY = 3

#: The payload of the longest frame.
PIECE_BYTES = 131_064

LARGE = random.Random(1).randbytes(BODY_AHEAD_BYTES + 500_000)

#: The largest group: what may wait for a sync, one piece of input, and small records.
GROUP_BYTES_MAX = BODY_AHEAD_UNSYNCED_BYTES_MAX + PIECE_BYTES + 10_000


def pieces(content: bytes = LARGE, delivery_mode: int = 2) -> list[bytes]:
    """Return the frames of a publish to the queue `q`."""
    return [
        method(1, "basic.publish", routing_key="q")
        + header(1, len(content), properties(delivery_mode=delivery_mode)),
        *[
            frame(BODY, 1, content[start : start + PIECE_BYTES])
            for start in range(0, len(content), PIECE_BYTES)
        ],
    ]


@pytest.fixture
def sizes(node: Node) -> list[int]:
    """The sizes of the groups that the node writes."""
    found: list[int] = []

    def sealed(_: int) -> None:
        assert node.group is not None
        found.append(int(node.group.size))

    node.sealed = sealed
    return found


@pytest.fixture
def large(node: Node) -> Peer:
    """A publisher with confirms to a durable queue `q`."""
    peer = node.connect()
    peer.declare("q")
    peer.call(1, "confirm.select")
    return peer


def restarted(node: Node) -> Peer:
    """Return a client of the broker that starts after a crash."""
    return Node(RecordingDisk(node.image())).connect()


def test_others_are_confirmed_while_a_large_body_arrives(
    node: Node, large: Peer, sizes: list[int]
) -> None:
    other = node.connect()
    other.call(1, "confirm.select")
    for number, piece in enumerate(pieces()):
        large.send(piece)
        if number % 10 == 5:
            other.send(publish(1, "", "q", b"small", delivery_mode=2))
            node.sync()
            assert other.expect(1, "basic.ack").delivery_tag == number // 10 + 1
            assert large.take() == []
    node.sync()
    assert large.expect(1, "basic.ack").delivery_tag == 1
    assert max(sizes) < GROUP_BYTES_MAX
    found = restarted(node)
    assert [found.call_get("q").body for _ in range(5)] == [b"small"] * 4 + [LARGE]


def test_a_publisher_of_a_large_body_is_not_read_while_much_of_it_is_unsynced(
    node: Node, large: Peer, sizes: list[int]
) -> None:
    large.send(*pieces(2 * LARGE))
    assert large.connection.halted
    assert not large.connection.reads_on()
    unsynced = int(node.journal.unsynced_bytes)
    assert BODY_AHEAD_UNSYNCED_BYTES_MAX < unsynced < GROUP_BYTES_MAX
    other = node.connect()
    other.send(publish(1, "", "q", b"small", delivery_mode=2), method(1, "basic.qos"))
    assert other.names() == ["basic.qos-ok"]
    node.sync()
    assert large.expect(1, "basic.ack").delivery_tag == 1
    assert max(sizes) < GROUP_BYTES_MAX
    assert not large.connection.halted


@pytest.mark.parametrize("end", ["connection", "wrong frame"])
def test_a_body_that_is_not_complete_leaves_nothing(node: Node, large: Peer, end: str) -> None:
    large.send(*pieces()[:20])
    node.sync()
    assert node.journal.bodies_open == 1
    if end == "wrong frame":
        large.send(method(1, "basic.qos"))
        assert large.expect(0, "connection.close").fields["code"] == 505
    large.lose()
    node.sync()
    assert node.journal.bodies_open == 0
    found = restarted(node)
    found.send(method(1, "basic.get", queue="q"))
    found.expect(1, "basic.get-empty")


def test_a_message_that_no_queue_takes_leaves_nothing(node: Node, large: Peer) -> None:
    large.call(1, "queue.delete", queue="q")
    large.send(*pieces())
    node.sync()
    assert large.expect(1, "basic.ack").delivery_tag == 1
    assert (node.journal.bodies_open, node.journal.ahead) == (0, None)


def test_a_message_of_several_queues_is_in_all_of_them(node: Node, large: Peer) -> None:
    large.declare("other")
    for queue in ("q", "other"):
        large.call(1, "queue.bind", queue=queue, exchange="amq.fanout")
    large.send(
        method(1, "basic.publish", exchange="amq.fanout")
        + header(1, len(LARGE), properties(delivery_mode=2)),
        *pieces()[1:],
    )
    node.sync()
    found = restarted(node)
    assert (found.call_get("q").body, found.call_get("other").body) == (LARGE, LARGE)


def test_a_checkpoint_while_a_body_arrives_loses_nothing(node: Node, large: Peer) -> None:
    sent = pieces()
    large.send(*sent[:20])
    node.take_checkpoint()
    large.send(*sent[20:])
    node.sync()
    assert large.expect(1, "basic.ack").delivery_tag == 1
    node.take_checkpoint()
    assert restarted(node).call_get("q").body == LARGE


@pytest.mark.parametrize("how", ["transient", "in a transaction"])
def test_other_large_messages_are_not_written_ahead(node: Node, how: str) -> None:
    peer = node.connect()
    peer.declare("q")
    if how == "in a transaction":
        peer.call(1, "tx.select")
    before = int(node.journal.unsynced_bytes)
    peer.send(*pieces(delivery_mode=1 if how == "transient" else 2))
    assert node.journal.unsynced_bytes == before
    if how == "in a transaction":
        peer.send(method(1, "tx.commit"))
        node.sync()
        peer.expect(1, "tx.commit-ok")
        assert restarted(node).call_get("q").body == LARGE


@pytest.mark.parametrize("where", ["missing", "exclusive", "unroutable"])
def test_a_body_that_will_not_be_recorded_is_not_written(node: Node, where: str) -> None:
    peer = node.connect()
    peer.call(1, "queue.declare", queue="exclusive", exclusive=True)
    node.sync()
    before = int(node.journal.unsynced_bytes)
    exchange, key = ("missing", "") if where == "missing" else ("", where)
    peer.send(
        method(1, "basic.publish", exchange=exchange, routing_key=key)
        + header(1, len(LARGE), properties(delivery_mode=2)),
        *pieces()[1:],
    )
    assert node.journal.unsynced_bytes == before
    if where == "missing":
        assert peer.expect(1, "channel.close").code == 404


def test_nothing_of_a_body_is_written_during_an_alarm(node: Node, large: Peer) -> None:
    sent = pieces()
    large.send(*sent[:10])
    node.broker.disk_free_bytes_min = 1
    node.broker.judge_disk(0)
    dropped = int(node.journal.unsynced_bytes)
    large.send(*sent[10:20])
    assert node.journal.unsynced_bytes - dropped < 1000
    large.send(*sent[20:])
    node.sync()
    large.expect(0, "connection.blocked")
    assert large.expect(1, "basic.ack").delivery_tag == 1
    assert restarted(node).call_get("q").body == LARGE
