"""Very many messages that are handed out, or come back: no call moves or settles all of them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from support.costs.cost_gauge import PLAIN, Gauge
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

#: Messages that are more than a few slices.
MANY = 20_000

#: Entries of a dict, or a set, which grows in a moment.
ENTRIES_MAX = 5_000


def largest(*roots: object) -> int:
    """Return the entries of the largest dict or set that objects consist of."""
    most = 0
    seen: set[int] = set()
    left: list[Any] = list(roots)
    while left:
        found = left.pop()
        if id(found) in seen or isinstance(found, type):
            continue
        seen.add(id(found))
        if isinstance(found, dict | set):
            most = max(most, len(found))
        left += gc.get_referents(found)
    return most


@pytest.fixture
def node() -> Node:
    return Node(window_bytes=-1)


def filled(node: Node, arguments: dict[str, Any]) -> Peer:
    """A connection without a message of its own; the queue `q` has very many."""
    peer = node.connect(1, 2)
    peer.declare("q", arguments=arguments)
    for first in range(0, MANY, 500):
        peer.send(
            *[
                publish(2, "", "q", b"m", delivery_mode=2, priority=number % 7)
                for number in range(first, first + 500)
            ]
        )
    node.sync()
    peer.take()
    return peer


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 7}], ids=["plain", "priorities"])
def test_nothing_that_grows_moves_all_of_them(node: Node, arguments: dict[str, Any]) -> None:
    peer = filled(node, arguments)
    queue = node.classic("q")
    assert largest(queue.ready) < ENTRIES_MAX
    peer.send(method(1, "basic.consume", queue="q", consumer_tag="c"))
    node.sync()
    assert queue.unacked_count == queue.out.count == MANY
    assert largest(queue.out) < ENTRIES_MAX
    peer.send(method(1, "basic.cancel", consumer_tag="c"))
    peer.send(method(1, "basic.recover", requeue=True))
    node.sync()
    assert queue.ready_count() == MANY
    assert largest(queue.ready, queue.out) < ENTRIES_MAX


@pytest.mark.both_builds
def test_a_channel_with_very_many_consumers_ends_in_slices(node: Node) -> None:
    peer = node.connect()
    peer.declare("q", durable=False)
    consumers = 12_000
    for first in range(0, consumers, 500):
        peer.send(
            *[
                method(1, "basic.consume", queue="q", consumer_tag=f"c{number}", no_wait=True)
                for number in range(first, first + 500)
            ]
        )
    lines = Gauge(counts_lines=PLAIN)
    channel = peer.connection.channels.by_number[1]

    def close() -> None:
        peer.receive(method(1, "channel.close"))

    lines.measure("receive", node.core, close)
    assert lines.counted == []
    # What is not reached yet is still booked and subscribed.
    assert 0 < len(channel.consumers) < consumers
    assert len(node.classic("q").consumers) == len(channel.consumers)
    node.run()
    assert channel.consumers == {}
    assert node.classic("q").consumers == []
    assert peer.names()[-1] == "channel.close-ok"


def test_a_rollback_touches_what_it_settled_alone(node: Node) -> None:
    """Whether the oldest, the newest, or some between, of very many."""
    peer = filled(node, {})
    peer.call(1, "tx.select")
    peer.send(method(1, "basic.consume", queue="q"))
    node.sync()
    channel = peer.connection.channels.by_number[1]
    for tags in (range(1, 600), range(2, MANY, 1999), (MANY, 1)):
        for tag in tags:
            peer.send(method(1, "basic.ack", delivery_tag=tag))
        peer.receive(method(1, "tx.rollback"))
        assert channel.unacked.count == MANY
        left = channel.unacked.from_tag(0, MANY + 1)
        assert [one.tag for one in left] == list(range(1, MANY + 1))


@pytest.mark.both_builds
@pytest.mark.parametrize("end", ["tx.rollback", "channel.close"])
@pytest.mark.parametrize("apart", [1, 2])
def test_what_is_rolled_back_is_put_side_by_side(node: Node, end: str, apart: int) -> None:
    """All, or every other: each is looked for right behind the one before, not among all."""
    peer = filled(node, {})
    peer.call(1, "tx.select")
    peer.send(method(1, "basic.consume", queue="q"))
    node.sync()
    settled = 8_000
    for tag in range(1, apart * settled + 1, apart):
        peer.send(method(1, "basic.ack", delivery_tag=tag))
    lines = Gauge(counts_lines=PLAIN)

    def roll_back() -> None:
        peer.receive(method(1, end))

    lines.measure("receive", node.core, roll_back)
    assert lines.counted == []
    node.sync()
    queue = node.classic("q")
    assert queue.ready_count() + queue.unacked_count == MANY
    assert peer.names()[-1] == end + "-ok"
