"""How channels and connections end.

Sources: AMQP 0-9-1 sections 1.4.2.5 and 1.5.2.5; behaviours 13 (exclusive queues) and 15 (dropped
until close-ok).
"""

from __future__ import annotations

import pytest

from leveret.session.states import CLOSED, CLOSING
from support.node.core import Node, Peer
from support.wire.raw_codec import HEARTBEAT, frame, method, publish

GARBAGE = b"\x09what is no frame at all"
REFUSED = method(1, "basic.qos", prefetch_size=3)
CLOSE_OK = method(0, "connection.close-ok")


@pytest.mark.parametrize(
    "rest",
    [GARBAGE, frame(HEARTBEAT, 5, b""), frame(1, 1, b"\0\x3c\0\xff"), frame(1, 1, b"", b"\0")],
    ids=["no frame", "heartbeat on a channel", "unknown method", "bad end"],
)
def test_what_cannot_be_read_while_closing_ends_nothing_but_the_parsing(
    peer: Peer, rest: bytes
) -> None:
    peer.send(REFUSED)
    assert peer.expect(0, "connection.close").code == 540
    peer.send(rest)
    assert peer.connection.state == CLOSING
    assert peer.take() == []
    peer.send(CLOSE_OK)
    assert peer.connection.state == CLOSED


def test_garbage_after_a_refusal_before_the_login_ends_the_parsing(node: Node) -> None:
    stranger = node.dial()
    stranger.send(b"AMQP\0\0\x09\x01", method(0, "connection.tune-ok"), GARBAGE)
    assert [got.name for got in stranger.take()] == ["connection.start", "connection.close"]
    assert node.connect().connection.state != CLOSED


def test_a_close_ok_in_pieces_behind_garbage_is_found(peer: Peer) -> None:
    peer.send(REFUSED, GARBAGE)
    for place in range(len(CLOSE_OK)):
        assert peer.connection.state == CLOSING
        peer.send(CLOSE_OK[place : place + 1])
    assert peer.connection.state == CLOSED


@pytest.mark.parametrize("begun", [0, 3, 7])
def test_a_close_ok_far_behind_a_bad_frame_in_pieces_is_found(peer: Peer, begun: int) -> None:
    bad = frame(1, 1, b"", b"\0")
    peer.send(REFUSED)
    peer.send(bad[:begun])
    peer.send(bad[begun:] + GARBAGE * 1000 + CLOSE_OK)
    assert peer.connection.state == CLOSED


def test_nothing_follows_close_ok_on_a_channel(peer: Peer) -> None:
    """What is settled is confirmed before the close-ok, which ends the number's first life."""
    peer.call(1, "confirm.select")
    peer.send(publish(1, "amq.fanout", "", b"to nobody"), method(1, "channel.close"))
    assert peer.names() == ["basic.ack", "channel.close-ok"]


def test_a_channel_opened_anew_hears_nothing_of_its_number_s_first_life(peer: Peer) -> None:
    peer.declare("q")
    peer.call(1, "confirm.select")
    lasting = publish(1, "", "q", b"m", delivery_mode=2)
    peer.send(lasting, method(1, "channel.close"), method(1, "channel.open"))
    assert peer.names() == ["channel.close-ok", "channel.open-ok"]
    peer.node.sync()
    assert peer.take() == []
    peer.call(1, "confirm.select")
    peer.send(lasting)
    peer.node.sync()
    assert peer.expect(1, "basic.ack").delivery_tag == 1


@pytest.mark.parametrize("durable", [False, True])
def test_no_cancel_follows_close_ok(peer: Peer, durable: bool) -> None:
    peer.declare("q", durable=durable)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.send(method(1, "queue.delete", queue="q", no_wait=True), method(1, "channel.close"))
    assert peer.names() == ["channel.close-ok"]
    peer.node.sync()
    assert peer.names() == []
    peer.call(1, "channel.open")
    peer.declare("q", durable=durable)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.send(method(1, "queue.delete", queue="q"), method(1, "channel.close"))
    peer.node.sync()
    assert peer.names() == ["queue.delete-ok", "basic.cancel", "channel.close-ok"]


def test_settled_publishes_are_confirmed_before_connection_close_ok(peer: Peer) -> None:
    peer.call(1, "confirm.select")
    peer.send(publish(1, "amq.fanout", "", b"m"), method(0, "connection.close"))
    assert peer.names() == ["basic.ack", "connection.close-ok"]


def test_no_held_reply_follows_connection_close(node: Node, peer: Peer) -> None:
    """A declare-ok that waits for its sync is not sent after the broker's own close."""
    peer.send(method(1, "queue.declare", queue="q", durable=True))
    peer.connection.force("shutdown")
    node.sync()
    assert peer.names() == ["connection.close"]


def test_exclusive_queues_that_are_gone_are_not_kept(peer: Peer) -> None:
    for _ in range(100):
        queue = peer.declare("", durable=False, exclusive=True).queue
        peer.call(1, "queue.delete", queue=queue)
    peer.declare("last", durable=False, exclusive=True)
    assert [queue.name for queue in peer.connection.exclusive_queues.values()] == ["last"]


def test_a_soft_error_ends_its_channel_only(node: Node) -> None:
    peer = node.connect(1, 2)
    peer.send(method(1, "queue.declare", queue="none", passive=True))
    closed = peer.expect(1, "channel.close")
    assert (closed.code, closed.class_id, closed.method_id) == (404, 50, 10)
    # What comes for it is dropped until its close-ok, and then the number is free
    # (behaviour 15: dropped until close-ok).
    peer.send(publish(1, "nowhere", "", b"dropped"), method(1, "basic.qos"))
    assert peer.take() == []
    peer.call(2, "basic.qos")
    peer.send(method(1, "channel.close-ok"))
    peer.call(1, "channel.open")


@pytest.mark.parametrize("way", ["close", "lost", "channel"])
def test_unacked_messages_return_in_order(node: Node, peer: Peer, way: str) -> None:
    """Behaviours 13 (exclusive queues) and 59 (requeue keeps its place).

    However a consumer ends.
    """
    peer.declare("q")
    peer.send(*[publish(1, "", "q", b"%d" % number) for number in range(4)])
    taker = node.connect()
    for _ in range(3):
        taker.call_get("q")
    if way == "close":
        taker.send(method(0, "connection.close"))
    elif way == "lost":
        taker.lose()
    else:
        taker.send(method(1, "channel.close"))
    got = [peer.call_get("q") for _ in range(4)]
    assert [one.body for one in got] == [b"0", b"1", b"2", b"3"]
    assert [one.redelivered for one in got] == [True, True, True, False]


def test_a_goodbye_in_pieces_is_answered_when_it_is_whole(peer: Peer) -> None:
    """A peer that still sends its close must not meet a closed socket."""
    peer.send(frame(4, 0, b""))
    assert peer.expect(0, "connection.close").fields["code"] == 501
    goodbye = method(0, "connection.close", code=200)
    for place in range(len(goodbye)):
        assert not peer.connection.finished
        peer.send(goodbye[place : place + 1])
    peer.expect(0, "connection.close-ok")
    assert peer.connection.finished
