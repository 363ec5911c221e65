"""What the clock ends: handshakes that dawdle, refused logins, silent peers, closes unanswered."""

from __future__ import annotations

import pytest

from core import Node, Peer
from leveret.session.settings import SessionSettings
from leveret.session.states import CLOSED, CLOSING, HALT_LOGIN
from raw_codec import HEARTBEAT, PROTOCOL_HEADER, frame, method

BEAT = frame(HEARTBEAT, 0, b"")
START_OK = {"mechanism": "PLAIN", "locale": "en_US"}


@pytest.mark.parametrize("progress", ["nothing", "part of the header", "header", "start-ok"])
def test_a_handshake_has_ten_seconds(node: Node, progress: str) -> None:
    stranger = node.dial()
    if progress == "part of the header":
        stranger.send(PROTOCOL_HEADER[:5])
    elif progress != "nothing":
        stranger.send(PROTOCOL_HEADER)
    if progress == "start-ok":
        stranger.send(method(0, "connection.start-ok", response=b"\0guest\0guest", **START_OK))
    node.tick(9_999)
    assert stranger.connection.state != CLOSED
    node.tick(1)
    assert stranger.connection.state == CLOSED
    assert stranger.connection not in node.peers


def test_bytes_now_and_then_do_not_lengthen_a_handshake(node: Node) -> None:
    """Slowloris: the time counts from the first byte to connection.open."""
    stranger = node.dial()
    for place in range(8):
        stranger.send(PROTOCOL_HEADER[place : place + 1])
        node.tick(1_249)
    stranger.send(BEAT)
    assert stranger.connection.state != CLOSED
    node.tick(8)
    assert stranger.connection.state == CLOSED


def test_an_open_connection_has_no_such_end(node: Node, peer: Peer) -> None:
    node.tick(10_000_000)
    peer.call(1, "basic.qos")


@pytest.mark.parametrize("told", [True, False])
def test_a_refused_login_is_told_or_ends_in_silence_after_a_while(told: bool) -> None:
    """Behaviour 3."""
    node = Node(settings=SessionSettings("test", login_failure_delay_ms=3000))
    stranger = node.dial(authentication_failure_close=told)
    stranger.send(PROTOCOL_HEADER)
    stranger.take()
    client = {"capabilities": {"authentication_failure_close": told}}
    stranger.send(
        method(0, "connection.start-ok", client_properties=client, response=b"\0guest\0no",
               **START_OK)
    )  # fmt: skip
    if told:
        assert stranger.expect(0, "connection.close").code == 403
        assert stranger.connection.state == CLOSING
        return
    stranger.send(method(0, "connection.tune-ok"))
    assert stranger.take() == []
    assert stranger.connection.halted == HALT_LOGIN
    node.tick(2_999)
    assert stranger.connection.state != CLOSED
    node.tick(1)
    assert stranger.connection.state == CLOSED
    assert stranger.take() == []


def test_heartbeats_are_sent_each_half_interval_of_silence(node: Node) -> None:
    peer = node.connect(heartbeat=10)
    beats = []
    for _ in range(20):
        peer.send(BEAT)
        node.tick(1_000)
        beats.append(peer.inbox.heartbeats)
    assert beats[3] == 0
    assert beats[-1] == 4


def test_any_output_counts_as_a_heartbeat(node: Node) -> None:
    peer = node.connect(heartbeat=10)
    for _ in range(20):
        node.tick(1_000)
        peer.call(1, "basic.qos")
    assert peer.inbox.heartbeats == 0


def test_a_silent_peer_is_given_up_after_two_intervals(node: Node) -> None:
    """Behaviour 8: what it held goes to others."""
    peer = node.connect(heartbeat=10)
    peer.declare("q")
    silent = node.connect(heartbeat=10)
    silent.declare("mine", durable=False, exclusive=True)
    for second in range(20):
        assert silent.connection.state != CLOSED, second
        node.tick(1_000)
        peer.send(BEAT)
    assert silent.connection.state != CLOSED
    node.tick(1)
    assert silent.connection.state == CLOSED
    assert peer.connection.state != CLOSED
    assert set(node.vhost.queues) == {"q"}


def test_any_input_counts_as_a_heartbeat(node: Node) -> None:
    """Also half a frame."""
    peer = node.connect(heartbeat=10)
    part = method(1, "basic.qos")
    for place in range(len(part)):
        node.tick(19_000)
        peer.send(part[place : place + 1])
    assert peer.names() == ["basic.qos-ok"]


def test_without_heartbeats_silence_means_nothing(node: Node) -> None:
    peer = node.connect(heartbeat=0)
    node.tick(1_000_000_000)
    peer.call(1, "basic.qos")
    assert peer.inbox.heartbeats == 0


def test_a_close_that_is_not_answered_ends_after_ten_seconds(node: Node, peer: Peer) -> None:
    peer.connection.force("because")
    node.run()
    assert peer.expect(0, "connection.close").code == 320
    node.tick(9_999)
    assert peer.connection.state == CLOSING
    node.tick(1)
    assert peer.connection.state == CLOSED


def test_a_step_of_the_wall_clock_ends_nothing(node: Node) -> None:
    """Times are measured on the monotonic clock: only that is handed to `tick`."""
    peer = node.connect(heartbeat=10)
    node.turn.now_ms += 1_000_000_000
    peer.connection.tick(node.clock.monotonic_ms())
    assert peer.connection.state != CLOSED
