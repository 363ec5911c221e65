"""What checking routing keys against topic permissions may cost, whatever pattern they have.

An administrator sets the patterns, and mostly to a few characters; who publishes chooses the keys.
"""

from __future__ import annotations

import pytest

from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

#: A key of many words, and a pattern that looks at each of them.
WORDS = "ab." * 80
PATTERN = "^([a-z]+\\.)*[a-z]+[0-9]+$"


@pytest.fixture
def node() -> Node:
    """A broker with a topic exchange `t`, to which `mallory` publishes as a pattern lets him."""
    node = Node()
    node.connect().call(1, "exchange.declare", exchange="t", type="topic")
    node.add_user("mallory", configure=".*", write=".*", read=".*")
    permit(node, "t", PATTERN)
    return node


def permit(node: Node, exchange: str, pattern: str) -> None:
    node.broker.users.set_topic_permission("mallory", "/", exchange, pattern, pattern)
    node.run()


def published(node: Node) -> int:
    return int(node.vhost.exchanges.by_name["t"].published_in)


def test_the_copies_of_a_message_are_checked_within_a_limit(node: Node) -> None:
    guest = node.connect()
    for number in range(20):
        name = f"e{number}"
        guest.call(1, "exchange.declare", exchange=name, type="topic")
        guest.call(1, "exchange.bind", destination=name, source="t", routing_key="#")
        permit(node, name, PATTERN)
    peer = node.connect_as("mallory")
    keys = [f"{WORDS}q{number}" for number in range(100)]
    few = publish(1, "t", keys[0], b"", headers={"CC": keys[:1]})
    peer.receive(few)
    assert published(node) == 1
    node.run()
    many = publish(1, "t", keys[0], b"", headers={"CC": keys})
    peer.receive(many)
    node.run()
    peer.flush()
    closed = peer.expect(1, "channel.close")
    assert closed.code == 406
    assert "100 keys in CC and BCC" in closed.text
    assert published(node) == 1


def held(node: Node, count: int) -> Peer:
    """A client whose transaction holds so many publishes, with a key each."""
    peer = node.connect_as("mallory")
    peer.call(1, "tx.select")
    for number in range(count):
        peer.send(publish(1, "t", f"{WORDS}q{number}", b""))
    return peer


def test_others_are_served_while_rights_that_changed_are_checked(node: Node) -> None:
    """However long that takes, the transaction is then committed whole."""
    peer = held(node, 2000)
    permit(node, "t", "^ab.*[0-9]$")
    other = node.connect()
    peer.receive(method(1, "tx.commit"))
    assert not node.rests()
    other.declare("q")
    node.sync()
    assert peer.names() == ["tx.commit-ok"]


def test_rights_that_change_once_more_are_checked_from_the_first_publish(node: Node) -> None:
    peer = held(node, 2000)
    permit(node, "t", "^ab.*[0-9]$")
    peer.receive(method(1, "tx.commit"))
    node.broker.users.set_topic_permission("mallory", "/", "t", "q[1-9][0-9]*$", ".*")
    node.sync()
    assert peer.expect(1, "channel.close").code == 403


def test_a_client_that_goes_while_its_rights_are_checked_commits_nothing(node: Node) -> None:
    node.connect().call(1, "queue.declare", queue="q")
    node.connect().call(1, "queue.bind", queue="q", exchange="t", routing_key="#")
    peer = held(node, 2000)
    permit(node, "t", "^ab.*[0-9]$")
    peer.receive(method(1, "tx.commit"))
    peer.lose()
    node.run()
    assert node.classic("q").ready_count() == 0


def test_a_change_that_does_not_touch_the_keys_refuses_none(node: Node) -> None:
    node.broker.users.clear_topic_permission("mallory", "/", "t")
    peer = held(node, 2000)
    permit(node, "other", PATTERN)
    peer.receive(method(1, "tx.commit"))
    node.sync()
    assert peer.names() == ["tx.commit-ok"]
