"""Topic permissions hold on every way that leads a message to a topic exchange.

`limited` may do everything, but publish to the topic exchange `t` only with keys that begin with
`app.`: whatever he declares or sends, no message comes out of `t` by another key.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.users.permissions import TopicPermission
from support.node.core import Node, Peer
from support.node.staged import commit, stage, stage_queue
from support.wire.raw_codec import method, publish

DLX, DLK = "x-dead-letter-exchange", "x-dead-letter-routing-key"


@pytest.fixture
def node() -> Node:
    """A broker with `t`, all of whose messages come to the queue `all`."""
    node = Node()
    guest = node.connect()
    guest.call(1, "exchange.declare", exchange="t", type="topic", durable=True)
    for name, kind in (("f", "fanout"), ("d", "direct"), ("own", "topic"), ("h", "headers")):
        guest.call(1, "exchange.declare", exchange=name, type=kind, durable=True)
    guest.declare("all")
    guest.call(1, "queue.bind", queue="all", exchange="t", routing_key="#")
    for user in ("limited", "free"):
        node.add_user(user, configure=".*", write=".*", read=".*")
    node.broker.users.set_topic_permission("limited", "/", "t", "^app\\.", ".*")
    node.broker.users.set_topic_permission("limited", "/", "gone", "^app\\.", ".*")
    return node


def declared(queue: str, **arguments: Any) -> bytes:
    return method(1, "queue.declare", queue=queue, arguments=arguments)


def bound(source: str, key: str, destination: str = "t") -> bytes:
    return method(
        1, "exchange.bind", source=source, destination=destination, routing_key=key, arguments={}
    )


def alternate(exchange: str) -> bytes:
    arguments = {"alternate-exchange": exchange}
    return method(1, "exchange.declare", exchange="new", type="fanout", arguments=arguments)


#: What opens a way, and whether `limited` may.
WAYS = {
    "a dead-letter key": (declared("x", **{DLX: "t", DLK: "secret.key"}), False),
    "a dead-letter key of his": (declared("x", **{DLX: "t", DLK: "app.key"}), True),
    "dead letters by their own keys": (declared("x", **{DLX: "t"}), False),
    "dead letters to an exchange that may come": (declared("x", **{DLX: "gone"}), False),
    "dead letters elsewhere": (declared("x", **{DLX: "own", DLK: "secret.key"}), True),
    "an alternate exchange": (alternate("t"), False),
    "an alternate exchange elsewhere": (alternate("own"), True),
    "a binding by one key": (bound("d", "secret.key"), False),
    "a binding by a key of his": (bound("d", "app.key"), True),
    "a binding of all": (bound("own", "#"), False),
    "a binding of one word": (bound("own", "*"), False),
    "a binding of all that end so": (bound("own", "#.key"), False),
    "a binding that his keys begin": (bound("own", "app.*.#"), True),
    "a binding that matches one key more": (bound("own", "app.#"), False),
    "a binding by a topic's key": (bound("own", "secret.key"), False),
    "a binding by a topic's key of his": (bound("own", "app.key"), True),
    "a binding of a fanout": (bound("f", "app.key"), False),
    "a binding of headers": (bound("h", "app.key"), False),
    "a binding elsewhere": (bound("f", "", "own"), True),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_judged_when_it_is_opened(node: Node, way: str) -> None:
    data, allowed = WAYS[way]
    peer = node.connect_as("limited")
    peer.send(data)
    node.sync()
    (answer,) = peer.take()
    assert answer.name.endswith("-ok") == allowed, answer
    if not allowed:
        assert answer.code == 403
        assert "topic" in answer.text
    free = node.connect_as("free")
    free.send(data)
    node.sync()
    (answer,) = free.take()
    assert answer.name.endswith("-ok"), answer


def test_a_delayed_exchange_that_matches_words_is_judged(node: Node) -> None:
    """RabbitMQ looks at the type alone, which is `x-delayed-message` here."""
    guest = node.connect()
    arguments = {"x-delayed-type": "topic"}
    guest.call(
        1, "exchange.declare", exchange="later", type="x-delayed-message", arguments=arguments
    )
    node.broker.users.set_topic_permission("limited", "/", "later", "^app\\.", "^app\\.")
    for data in (
        publish(1, "later", "secret.key", b"x"),
        publish(1, "later", "secret.key", b"x", headers={"x-delay": 1000}),
        method(1, "queue.bind", queue="all", exchange="later", routing_key="secret.key"),
    ):
        peer = node.connect_as("limited")
        peer.send(data)
        assert "topic 'secret.key'" in peer.expect(1, "channel.close").text


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize("staged", [False, True])
def test_copies_do_not_pass_through_a_binding(node: Node, header: str, staged: bool) -> None:
    """The binding is for one key, and lets a message through with all its keys."""
    limited: Peer = node.connect_as("limited")
    limited.send(bound("d", "app.key"))
    node.sync()
    limited.expect(1, "exchange.bind-ok")
    headers = {header: ["secret.key"]}
    if staged:
        stage_queue(limited, "stage")
        stage(limited, "stage", b"x", exchange="d", key="app.key", headers=headers)
    else:
        limited.send(publish(1, "d", "app.key", b"x", headers=headers))
    assert "topic 'secret.key'" in limited.expect(1, "channel.close").text
    limited = node.connect_as("limited")
    limited.send(publish(1, "d", "app.key", b"fine", headers={header: ["app.other"]}))
    assert limited.names() == []
    assert node.connect().call_get("all").body == b"fine"


def test_a_commit_does_not_send_on_what_its_user_may_not(node: Node) -> None:
    """What no queue takes would come to the dead-letter exchange by its own key."""
    for user, refused in (("limited", True), ("free", False)):
        peer = node.connect_as(user)
        stage_queue(peer, user, sink=user)
        stage(peer, user, b"x", exchange="", key="secret.key")
        commit(peer, user, sink=user, unroutable="dead-letter:t")
        node.sync()
        node.sync()
        assert [got.name for got in peer.take()] == (["channel.close"] if refused else [])
    assert node.connect().call_get("all").body == b"x"


@pytest.mark.parametrize(
    ("pattern", "start", "every"),
    [
        (".*", "", True),
        ("^.*$", "", True),
        ("", "", False),
        ("^", "", True),
        ("^app\\.", "app.", True),
        ("^app\\..*$", "app.", True),
        ("^app\\.", "app", False),
        ("^app\\.$", "app.", False),
        ("^(?!secret)", "", False),
        ("^(?:app|other)\\.", "other.x.", True),
        ("^app\\.*$", "app", False),
        ("^app\\b", "app", False),
        ("^app.$", "app.", False),
        ("x$", "x", False),
        # The end is text, for nothing ends the quotation.
        ("^app\\.\\Q.*$", "app.", False),
    ],
)
def test_what_allows_every_key_that_begins_so(pattern: str, start: str, every: bool) -> None:
    found = TopicPermission(pattern, "", "user", "/").every_write
    assert (found is not None and found.matches(start)) == every


def test_a_user_in_the_pattern_stands_for_himself() -> None:
    found = TopicPermission("^{username}\\.", "", "a.*", "/").every_write
    assert found is not None
    assert found.matches("a.*.")
    assert not found.matches("abc.")
