"""Time on a connection: the handshake's end, heartbeats, and peers that are gone.

Sources: AMQP 0-9-1 section 4.2.7 and behaviours 3 (refused logins) and 8 (heartbeats).
"""

from __future__ import annotations

import pytest

from leveret.limits import HANDSHAKE_SECONDS_MAX
from leveret.session.states import CLOSED, CLOSING, OPEN
from support.node.core import Node, Peer
from support.wire.raw_codec import PROTOCOL_HEADER, frame, method, publish

HEARTBEAT = frame(8, 0, b"")


def seconds(node: Node, count: int) -> None:
    """Let whole seconds pass, with a look at the clock at each."""
    for _ in range(count):
        node.tick(1000)


# -- the handshake ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"AMQP", PROTOCOL_HEADER])
def test_a_handshake_has_ten_seconds(node: Node, sent: bytes) -> None:
    """However slowly its octets come."""
    peer = node.dial()
    peer.send(sent)
    seconds(node, HANDSHAKE_SECONDS_MAX - 1)
    assert peer.connection.state != CLOSED
    seconds(node, 1)
    assert peer.connection.state == CLOSED
    assert ("warning", "handshake timeout") in peer.connection.log
    assert "connection.close" not in peer.names()


def test_octets_do_not_prolong_a_handshake(node: Node) -> None:
    peer = node.dial()
    for octet in PROTOCOL_HEADER[:-1] + b"\x01\x01\x00\x00":
        peer.send(bytes([octet]))
        seconds(node, 1)
    assert peer.connection.state == CLOSED


def test_an_open_connection_has_all_the_time(node: Node) -> None:
    """A heartbeat of 0 is none."""
    peer = node.connect()
    seconds(node, 10 * HANDSHAKE_SECONDS_MAX)
    node.tick(10_000_000)
    assert peer.connection.state == OPEN
    assert peer.inbox.heartbeats == 0


def refused(node: Node, tell: bool) -> Peer:
    """A connection whose password is wrong."""
    peer = node.dial()
    peer.send(PROTOCOL_HEADER)
    peer.expect(0, "connection.start")
    client = {"capabilities": {"authentication_failure_close": tell}}
    values = {"client_properties": client, "response": b"\0guest\0wrong", "locale": "en_US"}
    peer.send(method(0, "connection.start-ok", mechanism="PLAIN", **values))
    return peer


def test_a_refused_login_costs_three_seconds_of_silence(node: Node) -> None:
    """Behaviour 3 (refused logins)."""
    peer = refused(node, tell=False)
    peer.send(PROTOCOL_HEADER)
    seconds(node, 2)
    assert peer.connection.state != CLOSED
    seconds(node, 1)
    assert peer.connection.state == CLOSED
    assert peer.take() == []


def test_a_refused_login_is_told_at_once_to_who_wants_to_know(node: Node) -> None:
    """Behaviour 3 (refused logins)."""
    peer = refused(node, tell=True)
    assert peer.expect(0, "connection.close").code == 403
    peer.send(method(0, "connection.close-ok"))
    assert peer.connection.state == CLOSED


# -- heartbeats ------------------------------------------------------------------------------------


def test_heartbeats_are_sent_where_nothing_else_is(node: Node) -> None:
    """At half the interval, so that none is missed."""
    peer = node.connect(heartbeat=10)
    for count in range(4):
        assert peer.inbox.heartbeats == count
        seconds(node, 5)
        peer.send(HEARTBEAT)
    # Other output is as good.
    before = peer.inbox.heartbeats
    for _ in range(20):
        seconds(node, 1)
        peer.call(1, "basic.qos")
    assert peer.inbox.heartbeats == before


@pytest.mark.parametrize("sent", [HEARTBEAT, HEARTBEAT[:3], publish(1, "", "q", b"x")])
def test_any_octets_are_a_sign_of_life(node: Node, sent: bytes) -> None:
    """Behaviour 8 (heartbeats)."""
    peer = node.connect(heartbeat=10)
    seconds(node, 20)
    peer.send(sent)
    seconds(node, 20)
    assert peer.connection.state == OPEN


def test_two_silent_intervals_end_a_connection(node: Node) -> None:
    """What it held goes back at once, without a close: nobody is there to hear it."""
    peer, other = node.connect(heartbeat=10), node.connect()
    other.call(1, "queue.declare", queue="q")
    other.send(publish(1, "", "q", b"x"))
    peer.call_get("q")
    seconds(node, 21)
    # The shell looks at the socket once more.
    assert peer.connection.state == OPEN
    seconds(node, 1)
    assert peer.connection.state == CLOSED
    assert peer.take() == []
    text = "missed heartbeats from client, timeout: 10s"
    assert ("error", text) in peer.connection.log
    assert other.call_get("q").redelivered


def test_silence_means_nothing_while_the_socket_is_not_read() -> None:
    """A blocked publisher's octets wait in its socket; it is judged by what follows the alarm."""
    small = Node(memory_bytes_max=1000)
    peer, other = small.connect(heartbeat=10), small.connect()
    peer.call(1, "queue.declare", queue="q")
    peer.send(publish(1, "", "q", bytes(1001)))
    peer.send(publish(1, "", "q", b"x"))
    assert peer.connection.halted
    seconds(small, 300)
    other.call_get("q", no_ack=True)
    assert not peer.connection.halted
    seconds(small, 21)
    assert peer.connection.state == OPEN
    seconds(small, 1)
    assert peer.connection.state == CLOSED


def test_nothing_is_sent_after_close_ok(node: Node) -> None:
    """AMQP 0-9-1 section 1.4.2.5: not while a slow peer takes what was written, either."""
    peer = node.connect(heartbeat=10)
    connection = peer.connection
    connection.receive(method(0, "connection.close"), node.now())
    assert connection.take_output()
    node.clock.advance(60_000)
    connection.tick(node.now())
    assert connection.take_output() == []
    assert not connection.log or "missed" not in connection.log[-1][1]


# -- closing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("heartbeat", [0, 1])
def test_a_close_ok_has_ten_seconds(node: Node, heartbeat: int) -> None:
    peer = node.connect(heartbeat=heartbeat)
    peer.send(method(1, "basic.qos", prefetch_size=1))
    assert peer.expect(0, "connection.close").code == 540
    seconds(node, 9)
    assert peer.connection.state == CLOSING
    peer.send(HEARTBEAT)
    seconds(node, 1)
    assert peer.connection.state == CLOSED
