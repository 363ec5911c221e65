"""The memory of resolved routes: a change anywhere makes it forget."""

from __future__ import annotations

import pytest

from core import Node, Peer
from leveret.limits import ROUTES_CACHED_MAX
from raw_codec import publish

MESSAGE = publish(1, "x", "k", b"m", mandatory=True)


@pytest.fixture
def other(node: Node) -> Peer:
    """Another connection, which changes things: queues `a` and `b`, and the exchange `x`."""
    other = node.connect()
    other.declare("a", durable=False)
    other.declare("b", durable=False)
    other.call(1, "exchange.declare", exchange="x", type="direct")
    other.call(1, "queue.bind", queue="a", exchange="x", routing_key="k")
    return other


def reached(node: Node, peer: Peer) -> str:
    """Which queues a message reaches now; `-` where it comes back."""
    peer.send(MESSAGE)
    if peer.names() == ["basic.return"]:
        return "-"
    found = ""
    cleaner = node.connect()
    for name in sorted(node.vhost.queues):
        count = cleaner.call(1, "queue.purge", queue=name).message_count
        assert count <= 1
        found += name * count
    cleaner.lose()
    return found


def test_binds_and_unbinds(node: Node, peer: Peer, other: Peer) -> None:
    assert reached(node, peer) == "a"
    assert reached(node, peer) == "a"
    other.call(1, "queue.bind", queue="b", exchange="x", routing_key="k")
    assert reached(node, peer) == "ab"
    other.call(1, "queue.unbind", queue="a", exchange="x", routing_key="k")
    assert reached(node, peer) == "b"
    other.call(1, "queue.unbind", queue="b", exchange="x", routing_key="k")
    assert reached(node, peer) == "-"


def test_binds_between_exchanges(node: Node, peer: Peer, other: Peer) -> None:
    assert reached(node, peer) == "a"
    other.call(1, "queue.bind", queue="b", exchange="amq.fanout")
    assert reached(node, peer) == "a"
    values = {"source": "x", "destination": "amq.fanout", "routing_key": "k"}
    other.call(1, "exchange.bind", **values)
    assert reached(node, peer) == "ab"
    other.call(1, "exchange.unbind", **values)
    assert reached(node, peer) == "a"


def test_a_deleted_queue_and_its_successor(node: Node, peer: Peer, other: Peer) -> None:
    assert reached(node, peer) == "a"
    other.call(1, "queue.delete", queue="a")
    assert reached(node, peer) == "-"
    other.declare("a", durable=False)
    assert reached(node, peer) == "-"
    other.call(1, "queue.bind", queue="a", exchange="x", routing_key="k")
    assert reached(node, peer) == "a"


def test_a_deleted_exchange_and_its_successor(node: Node, peer: Peer, other: Peer) -> None:
    assert reached(node, peer) == "a"
    other.call(1, "exchange.delete", exchange="x")
    other.call(1, "exchange.declare", exchange="x", type="fanout")
    assert reached(node, peer) == "-"
    other.call(1, "exchange.delete", exchange="x")
    peer.send(MESSAGE)
    assert peer.expect(1, "channel.close").code == 404


def test_the_default_exchange(node: Node, peer: Peer) -> None:
    lost = publish(1, "", "later", b"m", mandatory=True)
    peer.send(lost)
    assert peer.names() == ["basic.return"]
    node.connect().declare("later", durable=False)
    peer.send(lost)
    assert peer.take() == []
    assert node.vhost.queues["later"].ready_count() == 1


def test_headers_decide_message_by_message(node: Node, peer: Peer) -> None:
    peer.declare("h", durable=False)
    arguments = {"x-match": "all", "color": "red"}
    peer.call(1, "queue.bind", queue="h", exchange="amq.headers", arguments=arguments)
    for color in ("red", "blue", "red"):
        peer.send(publish(1, "amq.headers", "", color.encode(), headers={"color": color}))
    assert [peer.call_get("h").body for _ in range(2)] == [b"red", b"red"]


def test_flags_of_a_publish_belong_to_its_route(peer: Peer) -> None:
    """The same address with and without `mandatory` are two entries."""
    peer.send(publish(1, "amq.fanout", "", b"m"))
    peer.send(publish(1, "amq.fanout", "", b"m", mandatory=True))
    assert peer.names() == ["basic.return"]
    peer.send(publish(1, "amq.fanout", "", b"m", immediate=True))
    assert peer.expect(0, "connection.close").code == 540


@pytest.mark.parametrize("count", [ROUTES_CACHED_MAX, ROUTES_CACHED_MAX + 1])
def test_the_memory_is_bounded(peer: Peer, count: int) -> None:
    peer.send(*[publish(1, "amq.topic", f"k{number}", b"") for number in range(count)])
    expected = count if count <= ROUTES_CACHED_MAX else 1
    assert len(peer.connection.routes) == expected


def test_the_two_ways_into_the_broker_are_one(node: Node, peer: Peer, other: Peer) -> None:
    """A publish fed whole and byte by byte does the same (section 4.2.6)."""
    assert reached(node, peer) == "a"
    for place in range(len(MESSAGE)):
        peer.send(MESSAGE[place : place + 1])
    got = other.call_get("a")
    assert (got.body, got.exchange, got.routing_key) == (b"m", "x", "k")
