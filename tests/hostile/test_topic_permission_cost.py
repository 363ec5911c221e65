"""What checking routing keys against topic permissions may cost, whatever pattern they have.

An administrator sets the patterns, and mostly to a few characters; who publishes chooses the keys.
"""

from __future__ import annotations

import pytest

from leveret.broker.scheduler.costs import LOOKS_PER_COST, PATTERN_WALK_PER_COST, SLICE
from leveret.limits import PATTERN_LOOKS_MAX, ROUTING_LOOKS_MAX
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

#: A key of many words, and a pattern that looks at each of them.
WORDS = "ab." * 80
PATTERN = "^([a-z]+\\.)*[a-z]+[0-9]+$"

#: Steps that a key of so many characters takes at least, and one match at most.
KEY_STEPS = len(WORDS) // PATTERN_WALK_PER_COST
MATCH_STEPS = PATTERN_LOOKS_MAX // PATTERN_WALK_PER_COST

#: Steps that the routing of one message takes at most, with the checks of its keys.
ROUTING_STEPS_MAX = ROUTING_LOOKS_MAX // LOOKS_PER_COST


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


@pytest.mark.parametrize("pattern", [PATTERN, "^ab\\..*$", ".*\\.z$|.*[0-9]$"])
def test_each_new_key_counts_what_its_check_walks(node: Node, pattern: str) -> None:
    permit(node, "t", pattern)
    peer = node.connect_as("mallory")
    data = b"".join(publish(1, "t", f"{WORDS}q{number}", b"") for number in range(400))
    # A slice ends with the check of the key that fills it.
    assert peer.feed(data) <= 2 * SLICE
    assert 0 < published(node) <= SLICE // KEY_STEPS
    node.run()
    assert published(node) == 400


def test_a_known_key_is_not_checked_again(node: Node) -> None:
    peer = node.connect_as("mallory")
    one = publish(1, "t", f"{WORDS}q1", b"")
    first = peer.feed(one)
    assert first >= KEY_STEPS
    assert peer.feed(one) < KEY_STEPS
    assert published(node) == 2


def test_binding_keys_count_too(node: Node) -> None:
    peer = node.connect_as("mallory")
    peer.declare("q")
    bind = method(1, "queue.bind", queue="q", exchange="t", routing_key=f"{WORDS}q1", no_wait=True)
    with_check = peer.feed(bind)
    node.broker.users.clear_topic_permission("mallory", "/", "t")
    node.run()
    bind = method(1, "queue.bind", queue="q", exchange="t", routing_key=f"{WORDS}q2", no_wait=True)
    assert with_check - peer.feed(bind) >= KEY_STEPS


def test_what_a_place_of_a_key_takes_beside_its_states_counts(node: Node) -> None:
    peer = node.connect_as("mallory")
    taken = []
    large = "".join(chr(0x4E00 + 2 * number) for number in range(500))
    for pattern in ("[xyz]|q$", f"[{large}]|q$"):
        permit(node, "t", pattern)
        taken.append(peer.feed(publish(1, "t", f"{WORDS}q", b"")))
    assert taken[1] - taken[0] >= len(WORDS)
    assert published(node) == 2


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
    assert 20 * KEY_STEPS < peer.feed(few) < ROUTING_STEPS_MAX
    assert published(node) == 1
    node.run()
    many = publish(1, "t", keys[0], b"", headers={"CC": keys})
    assert peer.feed(many) <= ROUTING_STEPS_MAX + MATCH_STEPS
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
    assert peer.feed(method(1, "tx.commit")) <= SLICE + MATCH_STEPS
    assert node.core.scheduler.tasks
    other.declare("q")
    node.sync()
    assert peer.names() == ["tx.commit-ok"]


def test_rights_that_change_once_more_are_checked_from_the_first_publish(node: Node) -> None:
    peer = held(node, 2000)
    permit(node, "t", "^ab.*[0-9]$")
    peer.feed(method(1, "tx.commit"))
    node.broker.users.set_topic_permission("mallory", "/", "t", "q[1-9][0-9]*$", ".*")
    node.sync()
    assert peer.expect(1, "channel.close").code == 403


def test_a_client_that_goes_while_its_rights_are_checked_commits_nothing(node: Node) -> None:
    node.connect().call(1, "queue.declare", queue="q")
    node.connect().call(1, "queue.bind", queue="q", exchange="t", routing_key="#")
    peer = held(node, 2000)
    permit(node, "t", "^ab.*[0-9]$")
    peer.feed(method(1, "tx.commit"))
    peer.lose()
    node.run()
    assert node.classic("q").ready_count() == 0


def test_a_change_that_does_not_touch_the_keys_costs_little(node: Node) -> None:
    node.broker.users.clear_topic_permission("mallory", "/", "t")
    peer = held(node, 2000)
    permit(node, "other", PATTERN)
    taken = peer.feed(method(1, "tx.commit"))
    assert taken <= 2000 // 4 + 2000 + SLICE
    node.sync()
    assert peer.names() == ["tx.commit-ok"]
