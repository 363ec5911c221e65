"""What queues do beside keeping a message is counted: in commits, in requeues, and in requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from leveret.limits import TX_COST_MAX, TX_MESSAGES_MAX
from support.costs.cost_gauge import PLAIN, Gauge
from support.node.core import Node, Peer
from support.node.variants import few_of
from support.wire.raw_codec import method, publish

pytestmark = pytest.mark.both_builds

#: Each earlier than the one before, so that each is the first of its queue.
EARLIER: dict[str, Any] = {"expiration": lambda at: str(600_000 - at)}

#: The longest text that is a legal expiration.
LONG: dict[str, Any] = {"expiration": lambda at: str(60_000 + at).rjust(255, "0")}

LEVELS = {"x-max-priority": 7}
TTL = {"x-message-ttl": 60_000}
SHORT = {"x-max-length": 0}


@pytest.fixture
def node() -> Node:
    return Node(window_bytes=-1)


def measure(node: Node, call: Callable[[], None]) -> None:
    """Make a call, and all that follows; nothing of it may cost more than it counts."""
    gauge = Gauge(counts_lines=PLAIN)
    gauge.measure("receive", node.core, call)
    gauge.measure("settle", node.core, node.broker.settle)
    while not node.rests():
        gauge.measure("settle", node.core, node.broker.settle)
    assert gauge.counted == []
    node.sync()


def messages(count: int, exchange: str, key: str, values: dict[str, Any]) -> bytes:
    """Return publishes with properties, of which the expiration follows from the place."""
    made = []
    for at in range(count):
        properties = {"delivery_mode": 2, "priority": at % 7} | values
        if "expiration" in values:
            properties["expiration"] = values["expiration"](at)
        made.append(publish(1, exchange, key, b"m", **properties))
    return b"".join(made)


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ({}, EARLIER),
        ({}, LONG),
        (LEVELS, {}),
        (LEVELS | TTL, EARLIER),
        (TTL, {}),
        (SHORT, EARLIER),
    ],
)
def test_a_commit_counts_what_its_queues_do(
    node: Node, arguments: dict[str, Any], values: dict[str, Any]
) -> None:
    peer = node.connect(1, 2)
    peer.call(1, "exchange.declare", exchange="all", type="fanout")
    for number in range(50):
        peer.declare(f"f{number}", arguments=arguments)
        peer.call(1, "queue.bind", queue=f"f{number}", exchange="all")
    for number in range(50):
        consumer_tag = f"c{number}"
        peer.call(2, "basic.consume", queue=f"f{number}", no_ack=True, consumer_tag=consumer_tag)
    peer.call(1, "tx.select")
    peer.send(messages(50, "all", "", values))
    measure(node, lambda: peer.connection.receive(method(1, "tx.commit"), node.now()))
    delivered = [one for one in peer.take() if one.channel == 2 and one.body == b"m"]
    assert len(delivered) == 50 * 50


@pytest.mark.parametrize(
    ("arguments", "values"), [({}, EARLIER), ({}, LONG), (LEVELS, EARLIER), (LEVELS | TTL, {})]
)
@pytest.mark.parametrize("end", few_of(["basic.nack", "tx.commit", "channel.close"], 2))
def test_what_comes_back_counts_its_deadlines(
    node: Node, arguments: dict[str, Any], values: dict[str, Any], end: str
) -> None:
    count = 4_000
    peer = handed_out(node, count, arguments, values)
    nack = method(2, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    if end == "tx.commit":
        peer.call(2, "tx.select")
        peer.send(nack)
    data = nack if end == "basic.nack" else method(2, end)
    measure(node, lambda: peer.connection.receive(data, node.now()))
    assert node.classic("q").ready_count() == count
    if values:
        node.tick(600_001)
        assert node.classic("q").ready_count() == 0


def handed_out(node: Node, count: int, arguments: dict[str, Any], values: dict[str, Any]) -> Peer:
    """A client with unacked deliveries of the queue `q` on its second channel, and no consumer."""
    peer = node.connect(1, 2)
    peer.declare("q", arguments=arguments)
    peer.send(messages(count, "", "q", values))
    peer.send(method(2, "basic.consume", queue="q", consumer_tag="c"))
    node.sync()
    peer.send(method(2, "basic.cancel", consumer_tag="c"))
    node.sync()
    peer.take()
    assert node.classic("q").unacked_count == count
    return peer


@pytest.mark.parametrize(
    ("arguments", "values"), [({}, {}), (LEVELS, {}), (LEVELS, LONG), (TTL, {}), ({}, EARLIER)]
)
def test_very_many_gets_and_deliveries_count_what_they_look_at(
    node: Node, arguments: dict[str, Any], values: dict[str, Any]
) -> None:
    peer = node.connect(1, 2)
    peer.declare("q", arguments=arguments)
    peer.send(messages(5_000, "", "q", values))
    gets = method(2, "basic.get", queue="q", no_ack=True) * 1_000
    measure(node, lambda: peer.connection.receive(gets, node.now()))
    assert node.classic("q").ready_count() == 4_000
    consume = method(2, "basic.consume", queue="q", no_ack=True)
    measure(node, lambda: peer.connection.receive(consume, node.now()))
    assert node.classic("q").ready_count() == 0


@pytest.mark.parametrize(
    ("arguments", "values", "quarters"),
    [(SHORT, {}, 13), (SHORT, EARLIER, 17)],
)
def test_a_transaction_that_is_too_much_work_is_refused(
    node: Node, arguments: dict[str, Any], values: dict[str, Any], quarters: int
) -> None:
    """A message is a quarter of a step, its copy one, and each thing more another."""
    peer = node.connect(1, 2)
    peer.declare("q", arguments=arguments)
    peer.call(1, "tx.select")
    most = TX_COST_MAX * 4 // quarters
    # Their bytes are steps too.
    fits = most - most // 100
    for first in range(0, fits, 500):
        peer.send(messages(min(500, fits - first), "", "q", values))
    assert peer.names() == []
    measure(node, lambda: peer.connection.receive(method(1, "tx.commit"), node.now()))
    assert peer.names() == ["tx.commit-ok"]
    before = node.classic("q").ready_count()
    for first in range(0, most, 500):
        peer.send(messages(min(500, most - first), "", "q", values))
    peer.send(messages(500, "", "q", values))
    closed = peer.expect(1, "channel.close")
    assert closed.code == 406
    assert "commit it in parts" in closed.text
    assert node.classic("q").ready_count() == before


@pytest.mark.parametrize("values", [EARLIER, TTL, LEVELS], ids=["expiring", "ttl", "levels"])
def test_there_is_room_for_all_messages_of_other_queues(node: Node, values: dict[str, Any]) -> None:
    peer = node.connect(1)
    peer.declare("q", arguments={} if values is EARLIER else values)
    peer.call(1, "tx.select")
    for _ in range(TX_MESSAGES_MAX // 500):
        peer.send(messages(500, "", "q", EARLIER if values is EARLIER else {}))
    measure(node, lambda: peer.connection.receive(method(1, "tx.commit"), node.now()))
    assert peer.names() == ["tx.commit-ok"]


def test_as_many_deliveries_come_back_by_one_transaction_as_are_acked(node: Node) -> None:
    peer = handed_out(node, TX_MESSAGES_MAX, {}, {})
    peer.call(2, "tx.select")
    nack = method(2, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    for data in (nack, method(2, "tx.commit")):
        measure(node, partial(peer.connection.receive, data, node.now()))
    assert peer.names()[-1] == "tx.commit-ok"
    assert node.classic("q").ready_count() == TX_MESSAGES_MAX
    other = node.connect(1)
    other.call(1, "tx.select")
    other.call(1, "basic.consume", queue="q")
    node.sync()
    queue = node.classic("q")
    assert queue.unacked_count == TX_MESSAGES_MAX
    ack = method(1, "basic.ack", delivery_tag=0, multiple=True)
    for data in (ack, method(1, "tx.commit")):
        measure(node, partial(other.connection.receive, data, node.now()))
    assert other.names()[-1] == "tx.commit-ok"
    assert queue.unacked_count == queue.ready_count() == 0
