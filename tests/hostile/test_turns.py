"""Connections take turns: how much of one client's input is handled before others'.

What the scheduler counts is in `broker/test_scheduler.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.scheduler.costs import SHARE_MIN, SHARE_OF_DELIVERIES, SLICE
from leveret.limits import CONTENT_BYTES_PER_COST
from leveret.wire.content.output import OUTPUT_APART_BYTES
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish


@pytest.fixture
def node() -> Node:
    """A broker, which is at the beginning of a round whenever a client has been answered."""
    return Node()


def declares(peer: Peer, count: int) -> bytes:
    """Return so many declares, none of which is answered, so that no reply waits for a sync."""
    return b"".join(
        method(1, "queue.declare", queue=f"{id(peer)}-{number}", no_wait=True)
        for number in range(count)
    )


def test_a_client_that_pipelines_declares_has_a_slice_a_round(node: Node) -> None:
    peer = node.connect()
    node.settle()
    peer.receive(declares(peer, 1000))
    declared = len(node.vhost.queues.by_name)
    assert 0 < declared < 200
    assert peer.connection.waits_for_turn()
    rounds = 0
    while peer.connection.waits_for_turn():
        node.settle()
        rounds += 1
    assert len(node.vhost.queues.by_name) == 1000
    assert 3 < rounds < 20


def test_nobody_else_waits_for_more_than_a_round(node: Node) -> None:
    greedy, quiet = node.connect(), node.connect_as("guest")
    node.settle()
    greedy.receive(declares(greedy, 5000))
    node.settle()
    quiet.receive(method(1, "queue.declare", queue="quiet", no_wait=True))
    for _ in range(2):
        node.settle()
    assert "quiet" in node.vhost.queues.by_name
    assert greedy.connection.waits_for_turn()


def test_many_connections_of_one_user_have_one_share(node: Node) -> None:
    node.add_user("greedy", configure=".*")
    node.add_user("quiet", configure=".*")
    many = [node.connect_as("greedy") for _ in range(50)]
    quiet = node.connect_as("quiet")
    node.settle()
    for peer in many:
        peer.receive(declares(peer, 1000))
    quiet.receive(method(1, "queue.declare", queue="quiet", no_wait=True))
    rounds = 0
    while "quiet" not in node.vhost.queues.by_name:
        node.settle()
        rounds += 1
    assert rounds <= 2
    assert all(peer.connection.waits_for_turn() for peer in many)


def test_who_asks_for_little_when_the_round_is_over_is_served_all_the_same(node: Node) -> None:
    greedy, quiet = node.connect(), node.connect()
    greedy.receive(declares(greedy, 5000))
    node.settle()
    quiet.receive(method(1, "queue.declare", queue="quiet", no_wait=True))
    assert "quiet" in node.vhost.queues.by_name


@pytest.mark.parametrize("name", ["basic.get", "queue.purge", "exchange.declare"])
def test_other_methods_end_a_slice_too(node: Node, name: str) -> None:
    peer = node.connect()
    values: dict[str, Any] = {"queue": "q"}
    if name == "exchange.declare":
        values = {"exchange": "amq.topic", "type": "topic", "durable": True, "no_wait": True}
    if name == "queue.purge":
        values["no_wait"] = True
    peer.declare("q", durable=False)
    node.settle()
    peer.receive(method(1, name, **values) * 20_000)
    assert peer.connection.waits_for_turn()
    while peer.connection.waits_for_turn():
        node.settle()
        peer.flush()


def test_what_waits_for_a_turn_is_not_read_and_keeps_its_order(node: Node) -> None:
    peer = node.connect()
    node.settle()
    peer.receive(declares(peer, 1000) + method(1, "queue.declare", queue="last"))
    peer.receive(method(1, "queue.delete", queue="last"))
    node.run()
    assert [heard.method.name for heard in peer.heard[-2:]] == [
        "queue.declare-ok",
        "queue.delete-ok",
    ]


def test_a_connection_that_is_lost_before_its_turn_asks_for_nothing_more(node: Node) -> None:
    peer, other = node.connect(), node.connect()
    node.settle()
    peer.receive(declares(peer, 1000))
    declared = len(node.vhost.queues.by_name)
    peer.lose()
    node.run()
    assert len(node.vhost.queues.by_name) == declared
    other.declare("still", durable=False)
    assert node.rests()


def test_queues_deliver_so_much_a_turn_and_new_messages_come_first(node: Node) -> None:
    peer = node.connect(1, 2)
    for number in range(8):
        name = f"deep{number}"
        peer.declare(name, durable=False)
        for _ in range(3):
            peer.send(publish(1, "", name) * 1000)
    quiet = node.connect()
    quiet.declare("quiet", durable=False)
    quiet.call(1, "basic.consume", queue="quiet", no_ack=True)
    node.run()
    for number in range(8):
        consume = method(2, "basic.consume", queue=f"deep{number}", no_ack=True, no_wait=True)
        peer.receive(consume)
    quiet.receive(publish(1, "", "quiet", b"new"))
    node.settle()
    quiet.flush()
    assert quiet.heard[-1].method.name == "basic.deliver"
    peer.flush()
    while not node.rests():
        node.settle()
        peer.flush()
    delivered = sum(heard.method.name == "basic.deliver" for heard in peer.heard)
    assert delivered == 8 * 3000


def test_deliveries_of_long_bodies_are_fewer_in_a_round(node: Node) -> None:
    """Each is copied into the output of its connection, which takes far longer than the rest."""
    publisher, body = node.connect(), bytes(OUTPUT_APART_BYTES - 1)
    consumers = [node.connect() for _ in range(40)]
    publisher.declare("q", durable=False)
    for _ in range(3000):
        publisher.send(publish(1, "", "q", body))
    for peer in consumers:
        peer.receive(consume("q"))
    queue = node.classic("q")
    most = SHARE_OF_DELIVERIES + SLICE + 2 * SHARE_MIN
    while left := int(queue.ready_count()):
        node.settle()
        delivered = left - int(queue.ready_count())
        assert 0 < delivered * len(body) <= most * CONTENT_BYTES_PER_COST
        for peer in consumers:
            peer.flush()


def consume(queue: str) -> bytes:
    """Return a request for all messages of a queue, which is not answered."""
    return method(1, "basic.consume", queue=queue, no_ack=True, no_wait=True)
