"""The figures by which lists are sorted are those that the snapshot of each queue has."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import pytest

from leveret.broker.policies.policy import make_policy
from leveret.broker.stats.queue_figures import FIGURES, queue_figures
from leveret.broker.stats.stats import QueueStats, queue_stats
from support.node.core import Node
from support.wire.raw_codec import method, publish

OF_SNAPSHOT: Final[dict[str, Callable[[QueueStats], object]]] = {
    "name": lambda stats: stats.name,
    "vhost": lambda stats: stats.vhost,
    "type": lambda stats: stats.kind,
    "durable": lambda stats: stats.durable,
    "auto_delete": lambda stats: stats.auto_delete,
    "exclusive": lambda stats: stats.exclusive,
    "policy": lambda stats: stats.policy or "",
    "consumers": lambda stats: stats.consumer_count,
    "memory": lambda stats: stats.memory_bytes,
    "messages": lambda stats: stats.ready_count + stats.unacked_count + stats.retry_count,
    "messages_ready": lambda stats: stats.ready_count,
    "messages_unacknowledged": lambda stats: stats.unacked_count,
    "message_bytes": lambda stats: stats.ready_bytes + stats.unacked_bytes + stats.retry_bytes,
    "message_stats.publish": lambda stats: int(stats.done.published),
    "message_stats.ack": lambda stats: int(stats.done.acked),
}


@pytest.fixture
def filled(node: Node) -> Node:
    """A broker with queues that differ in each figure."""
    peer = node.connect()
    peer.declare("a", arguments={"x-queue-type": "stream"})
    peer.declare("b", durable=False, auto_delete=True)
    peer.declare("c", durable=False, exclusive=True)
    peer.declare("d")
    node.vhost.policies.set(make_policy("p", "^d", {"max-length": 100}))
    peer.send(*[publish(1, "", "d", b"message") for _ in range(9)])
    for _ in range(5):
        peer.call_get("d")
    peer.send(method(1, "basic.ack", delivery_tag=3, multiple=True))
    for number in range(7):
        peer.call(1, "basic.consume", queue="b", consumer_tag=f"{number}")
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    node.connect_as("guest", vhost="v").declare("e")
    return node


def taken(node: Node, wanted: tuple[str, ...], vhost: str | None, slices: int) -> list[Any]:
    figures = queue_figures(node.broker, wanted, vhost)
    found: list[Any] = []
    while part := list(islice(figures, slices)):
        found += part
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_one_of_the_snapshot(filled: Node, name: str) -> None:
    found = taken(filled, (name,), None, 2)
    assert len(found) == 5
    values = set()
    for row in found:
        value, vhost, queue = row
        stats = queue_stats(filled.broker, vhost, queue)
        assert stats is not None
        assert value == OF_SNAPSHOT[name](stats)
        values.add(value)
    assert len(values) > 1, "the queues do not differ in it"


def test_several_figures_are_in_the_order_that_was_asked_for(filled: Node) -> None:
    found = taken(filled, ("messages", "messages_ready", "message_stats.ack"), "/", 1)
    assert (6, 4, 3, "/", "d") in found
    assert len(found) == 4
    assert taken(filled, ("name",), "no such vhost", 1) == []


def test_a_queue_that_is_deleted_meanwhile_is_left_out(filled: Node) -> None:
    figures = queue_figures(filled.broker, ("name",), "/")
    first = list(islice(figures, 1))
    filled.vhost.queues.drop(filled.vhost.queues.by_name["d"])
    rest = list(figures)
    assert [row[0] for row in first + rest] == ["a", "b", "c"]
