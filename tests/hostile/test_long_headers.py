"""Deliveries that rewrite long headers count what that takes, and are handed out in slices."""

from __future__ import annotations

import pytest

from leveret.broker.scheduler.costs import SHARE_OF_DELIVERIES, SLICE
from leveret.limits import HISTORY_COPIES_MAX, TABLE_BYTES_PER_COST
from support.node.core import Node, Peer
from support.wire.raw_codec import decode_properties, method, properties, publish

#: So many headers, among them one under a name that the broker's own entry replaces.
HEADERS = {f"h{number:03}": True for number in range(900)}
MESSAGES = 300

#: What a turn spends on deliveries, and the slice in which the last queue of it may go on.
ROUND_STEPS_MAX = SHARE_OF_DELIVERIES + 2 * SLICE


@pytest.fixture
def node() -> Node:
    return Node()


def publish_all(node: Node, queue: str, headers: dict[str, object]) -> int:
    """Publish and sync the messages; return the steps that the headers of one count."""
    publisher = node.connect()
    publisher.connection.receive(
        publish(1, "", queue, b"m", headers=headers) * MESSAGES, node.now()
    )
    node.sync()
    return len(properties(headers=headers)) // TABLE_BYTES_PER_COST


def rounds(node: Node, peer: Peer) -> list[int]:
    """Let the broker go on until it rests; return the steps of each round, of a reading client."""
    steps = []
    while node.core.scheduler.has_more():
        before = int(node.core.scheduler.spent)
        node.broker.settle()
        steps.append(int(node.core.scheduler.spent) - before)
        peer.flush()
        assert len(steps) < 1000
    return steps


def consume(node: Node, peer: Peer, queue: str) -> None:
    """Ask for the messages; none is delivered yet."""
    from_first = {"x-stream-offset": "first"}
    request = method(1, "basic.consume", queue=queue, arguments=from_first)
    peer.connection.receive(request, node.now())


def deliveries(peer: Peer) -> list[dict[str, object]]:
    """The headers of all deliveries that the client got."""
    got = [found for found in peer.take() if found.name == "basic.deliver"]
    return [decode_properties(found.properties)["headers"] for found in got]


def test_a_stream_delivers_long_headers_in_slices(node: Node) -> None:
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    each = publish_all(node, "s", HEADERS | {"x-stream-offset": "mine"})
    peer.call(1, "basic.qos", prefetch_count=MESSAGES)
    peer.take()
    consume(node, peer, "s")
    steps = rounds(node, peer)
    assert max(steps) <= ROUND_STEPS_MAX + each
    assert sum(steps) >= MESSAGES * each
    offsets = [headers["x-stream-offset"] for headers in deliveries(peer)]
    assert offsets == list(range(MESSAGES))


def test_a_filter_reads_long_headers_of_messages_that_nobody_wants_in_slices(node: Node) -> None:
    """Neighbours differ, or one verdict would do for all of them."""
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    each = len(properties(headers=HEADERS)) // TABLE_BYTES_PER_COST
    both = publish(1, "", "s", b"m", headers=HEADERS)
    both += publish(1, "", "s", b"m", headers={**HEADERS, "one": "more"})
    peer.connection.receive(both * (MESSAGES // 2), node.now())
    node.sync()
    peer.call(1, "basic.qos", prefetch_count=MESSAGES)
    arguments = {"x-stream-offset": "first", "x-stream-filter-headers": {"wanted": 1}}
    peer.connection.receive(method(1, "basic.consume", queue="s", arguments=arguments), node.now())
    steps = rounds(node, peer)
    assert max(steps) <= ROUND_STEPS_MAX + each
    assert sum(steps) >= MESSAGES * each


def test_messages_that_come_again_have_their_long_headers_written_in_slices(node: Node) -> None:
    peer, first = node.connect(), node.connect()
    peer.declare("q", arguments={"x-delivery-limit": 3})
    each = publish_all(node, "q", HEADERS | {"x-delivery-count": "mine"})
    first.send(method(1, "basic.consume", queue="q"))
    first.lose()
    consume(node, peer, "q")
    steps = rounds(node, peer)
    assert max(steps) <= ROUND_STEPS_MAX + each
    assert sum(steps) >= MESSAGES * each
    assert [headers["x-delivery-count"] for headers in deliveries(peer)] == [1] * MESSAGES


@pytest.mark.parametrize(("kind", "more"), [("fanout", {"CC": ["k"]}), ("headers", {})])
def test_a_binding_to_an_exchange_reads_as_many_headers_as_it_may(
    node: Node, kind: str, more: dict[str, object]
) -> None:
    """Of each message that the history publishes they are read for a CC, or to be compared."""
    peer = node.connect()
    arguments = {"x-recent-history-length": MESSAGES}
    peer.call(1, "exchange.declare", exchange="h", type="x-recent-history", arguments=arguments)
    peer.call(1, "exchange.declare", exchange="to", type=kind)
    peer.declare("q")
    peer.call(1, "queue.bind", queue="q", exchange="to")
    headers = HEADERS | more
    peer.send(publish(1, "h", "", b"m", headers=headers) * MESSAGES)
    node.sync()
    before = int(node.core.scheduler.spent)
    bind = method(1, "exchange.bind", source="h", destination="to")
    peer.connection.receive(bind, node.now())
    steps = int(node.core.scheduler.spent) - before
    each = len(properties(headers=headers)) // TABLE_BYTES_PER_COST
    assert HISTORY_COPIES_MAX - each <= steps <= 2 * (HISTORY_COPIES_MAX + each)
    node.sync()
    assert HISTORY_COPIES_MAX // each - 1 <= node.classic("q").ready_count() < MESSAGES
