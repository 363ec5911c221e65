"""The index of an exchange changes slice after slice, whatever one bind or delete asks for."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.topology.exchange import Exchange
from leveret.broker.topology.exchanges.consistent_hash import ConsistentHashExchange
from leveret.broker.topology.exchanges.topic import TopicExchange
from leveret.limits import RING_POINTS_PER_WEIGHT, RING_WEIGHT_MAX, STEPS_PER_SLICE
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw import publish
from support.wire.raw_codec import method

POINTS = RING_WEIGHT_MAX * RING_POINTS_PER_WEIGHT

#: A slice, and what the last part of it may take beyond: a segment of a ring of 500,000 points.
SLICE_MAX = 2 * STEPS_PER_SLICE


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


def slices(node: Node, peer: Peer, data: bytes) -> int:
    """Have bytes done slice by slice, each of which is bounded; return how many there were."""
    turn = node.turn
    before = turn.steps
    peer.connection.receive(data, node.now())
    assert turn.steps - before <= SLICE_MAX
    count = 1
    while turn.works:
        before = turn.steps
        turn.continue_works(1)
        assert turn.steps - before <= SLICE_MAX
        count += 1
    node.sync()
    return count


def test_a_great_weight_is_bound_and_unbound_in_slices(node: Node, peer: Peer) -> None:
    peer.declare("q", durable=True)
    assert slices(node, peer, heavy("queue.bind")) > POINTS // 4 // SLICE_MAX
    peer.expect(1, "queue.bind-ok")
    assert ring(node).ring.held == POINTS
    peer.send(publish(1, "ring", "any", b"m"))
    assert node.classic("q").ready_count() == 1
    assert slices(node, peer, heavy("queue.unbind")) > POINTS // 2 // SLICE_MAX
    peer.expect(1, "queue.unbind-ok")
    assert ring(node).ring.held == 0


def test_the_answer_comes_when_the_binding_has_its_share(node: Node, peer: Peer) -> None:
    """Others are served meanwhile, and the binding is there after a crash."""
    peer.declare("q", durable=True)
    other = node.connect()
    peer.connection.receive(heavy("queue.bind"), node.now())
    assert 0 < ring(node).ring.held < POINTS
    other.connection.receive(method(1, "queue.declare", queue="other"), node.now())
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


def test_a_queue_with_many_great_weights_is_deleted_in_slices(node: Node, peer: Peer) -> None:
    peer.declare("q")
    names = [f"ring-{number}" for number in range(5)]
    for name in names:
        peer.call(1, "exchange.declare", exchange=name, type="x-consistent-hash")
        peer.send(heavy("queue.bind", exchange=name))
        node.sync()
        peer.expect(1, "queue.bind-ok")
    assert slices(node, peer, method(1, "queue.delete", queue="q")) > 5 * POINTS // 2 // SLICE_MAX
    peer.expect(1, "queue.delete-ok")
    peer.send(publish(1, names[0], "any", b"m"))
    assert not node.vhost.exchanges.by_name[names[0]].bindings


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
    peer.connection.receive(heavy("queue.bind"), node.now())
    grown = ring(node)
    other.connection.receive(method(1, "exchange.delete", exchange="ring"), node.now())
    node.sync()
    other.expect(1, "exchange.delete-ok")
    peer.expect(1, "queue.bind-ok")
    assert grown.indexing is not None
    assert grown.indexing.over
    assert grown.ring.held == grown.ring.size == 0


@pytest.mark.parametrize("by_vhost", [False, True])
def test_what_was_deleted_leaves_its_index_in_slices(node: Node, by_vhost: bool) -> None:
    """An index and its bindings know each other: the collector would let go of them at once."""
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    peer = node.connect_as("guest", vhost="v")
    peer.call(1, "exchange.declare", exchange="x", type="topic")
    peer.declare("q")
    for number in range(3000):
        peer.send(
            method(
                1, "queue.bind", queue="q", exchange="x", routing_key=f"a.{number}", no_wait=True
            )
        )
    exchange: Exchange = node.broker.vhosts["v"].exchanges.by_name["x"]
    assert isinstance(exchange, TopicExchange)
    assert exchange.trie.nodes > 3000
    if by_vhost:
        node.broker.delete_vhost("v")
    else:
        peer.connection.receive(method(1, "exchange.delete", exchange="x"), node.now())
    turn = node.turn
    while turn.works:
        before, nodes = turn.steps, exchange.trie.nodes
        turn.continue_works(1)
        assert turn.steps - before <= SLICE_MAX
        assert nodes - exchange.trie.nodes <= STEPS_PER_SLICE
    assert exchange.trie.nodes <= 1
    assert not exchange.bindings
