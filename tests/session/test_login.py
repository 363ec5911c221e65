"""A login that is judged later: what the connection does until the answer comes, and after."""

from __future__ import annotations

import pytest

from leveret.session.authentication import Authenticator, Login
from leveret.session.settings import SessionSettings
from support.node.core import Node, Peer
from support.wire.raw_codec import PROTOCOL_HEADER, method


class Later(Authenticator):
    """Keeps the logins for the test to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Login] = []

    def begin(self, login: Login) -> None:
        self.asked.append(login)


@pytest.fixture
def later(node: Node) -> Later:
    """Who judges the logins of the node."""
    later = Later()
    node.logins = later
    return later


TUNE_OK = method(0, "connection.tune-ok", channel_max=100, frame_max=131_072, heartbeat=0)
OPEN = method(0, "connection.open", vhost="/")


def begin(node: Node, **capabilities: bool) -> Peer:
    """A connection whose login was sent."""
    peer = node.dial()
    announced = {"capabilities": capabilities}
    start_ok = method(
        0, "connection.start-ok", client_properties=announced, mechanism="PLAIN",
        response=b"\0guest\0secret", locale="en_US",
    )  # fmt: skip
    peer.send(PROTOCOL_HEADER)
    peer.expect(0, "connection.start")
    peer.send(start_ok)
    return peer


def open_later(node: Node, later: Later) -> Peer:
    """An open connection with channel 1."""
    peer = begin(node)
    later.asked.pop().answer(True)
    node.run()
    peer.send(TUNE_OK, OPEN, method(1, "channel.open"))
    assert peer.names() == ["connection.tune", "connection.open-ok", "channel.open-ok"]
    return peer


def test_what_follows_a_login_waits_for_the_answer(node: Node, later: Later) -> None:
    peer = begin(node)
    peer.send(TUNE_OK, OPEN)
    assert peer.names() == []
    (login,) = later.asked
    assert (login.user, login.password) == ("guest", b"secret")
    assert login.wanted()
    login.answer(True)
    node.run()
    assert peer.names() == ["connection.tune", "connection.open-ok"]
    assert peer.connection.user == "guest"


def test_only_the_first_answer_counts(node: Node, later: Later) -> None:
    peer = begin(node, authentication_failure_close=True)
    (login,) = later.asked
    login.answer(False)
    login.answer(True)
    node.run()
    assert peer.expect(0, "connection.close").code == 403
    assert peer.connection.user == ""


def test_a_refusal_that_comes_later_is_told_after_the_delay(node: Node, later: Later) -> None:
    peer = begin(node)
    later.asked[0].answer(False)
    node.run()
    peer.send(TUNE_OK, OPEN)
    node.tick(node.settings.login_failure_delay_ms - 1)
    ended = [peer.connection.finished]
    node.tick(1)
    ended.append(peer.connection.finished)
    assert ended == [False, True]
    assert peer.names() == []


def test_an_answer_that_does_not_come_ends_with_the_handshake(later: Later, node: Node) -> None:
    peer = begin(node)
    node.tick(SessionSettings("test").handshake_ms)
    assert peer.connection.finished
    (login,) = later.asked
    assert not login.wanted()
    login.answer(True)
    node.run()
    assert peer.names() == []
    assert peer.connection.user == ""


def test_a_peer_that_went_away_is_not_wanted(node: Node, later: Later) -> None:
    peer = begin(node)
    peer.lose()
    (login,) = later.asked
    assert not login.wanted()
    login.answer(True)
    node.run()


def test_a_broker_that_stops_does_not_wait(node: Node, later: Later) -> None:
    peer = begin(node)
    peer.connection.force("shutdown")
    node.run()
    assert not later.asked[0].wanted()
    assert peer.connection.finished


def test_a_new_secret_is_answered_without_a_judge(node: Node, later: Later) -> None:
    peer = open_later(node, later)
    for secret in (b"secret", b"", b"\xff" * 1000):
        peer.send(method(0, "connection.update-secret", new_secret=secret, reason="r"))
    peer.send(method(1, "queue.declare", queue="q"))
    assert peer.names() == ["connection.update-secret-ok"] * 3 + ["queue.declare-ok"]
    assert later.asked == []
