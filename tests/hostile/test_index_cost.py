"""The index of an exchange changes slice after slice, whatever one bind or delete asks for."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.exchanges.consistent_hash import ConsistentHashExchange
from leveret.limits import RING_POINTS_PER_WEIGHT, RING_WEIGHT_MAX
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import method

POINTS = RING_WEIGHT_MAX * RING_POINTS_PER_WEIGHT


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def peer(node: Node) -> Peer:
    peer = node.connect()
    peer.call(1, "exchange.declare", exchange="ring", type="x-consistent-hash", durable=True)
    return peer


def ring(node: Node) -> ConsistentHashExchange:
    exchange = node.vhost.exchanges.by_name["ring"]
    assert isinstance(exchange, ConsistentHashExchange)
    return exchange


def heavy(name: str, queue: str = "q", exchange: str = "ring") -> bytes:
    values: dict[str, Any] = {
        "queue": queue,
        "exchange": exchange,
        "routing_key": str(RING_WEIGHT_MAX),
    }
    return method(1, name, **values)


def test_the_answer_comes_when_the_binding_has_its_share(node: Node, peer: Peer) -> None:
    """Others are served meanwhile, and the binding is there after a crash."""
    peer.declare("q", durable=True)
    other = node.connect()
    peer.receive(heavy("queue.bind"))
    assert 0 < ring(node).ring.held < POINTS
    other.receive(method(1, "queue.declare", queue="other"))
    assert "other" in node.vhost.queues.by_name
    assert node.begin_sync()
    node.write()
    again = Node(RecordingDisk(node.image()))
    assert ring(again).ring.held == POINTS
    assert not ring(again).owes()
    node.end_sync()
    node.sync()
    peer.expect(1, "queue.bind-ok")
    other.expect(1, "queue.declare-ok")


def test_weights_that_come_and_go_do_not_gather(node: Node, peer: Peer) -> None:
    peer.declare("q", durable=True)
    for _ in range(3):
        peer.send(heavy("queue.bind") + heavy("queue.unbind"))
        node.sync()
    assert ring(node).ring.held == 0


def test_an_exchange_is_deleted_while_its_index_grows(node: Node, peer: Peer) -> None:
    """Who waits for the binding has his answer."""
    peer.declare("q", durable=True)
    other = node.connect()
    peer.receive(heavy("queue.bind"))
    grown = ring(node)
    other.receive(method(1, "exchange.delete", exchange="ring"))
    node.sync()
    other.expect(1, "exchange.delete-ok")
    peer.expect(1, "queue.bind-ok")
    assert grown.indexing is not None
    assert grown.indexing.over
    assert grown.ring.held == grown.ring.size == 0
