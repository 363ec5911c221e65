"""Very many staging queues, and very many sinks: what one costs does not grow with all others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from core import Node
from cost_gauge import Excess, Gauge, GaugedNode, QuickPeer
from cost_http import HttpClient
from cost_worlds import World
from leveret.broker.admin.stats import SinkListing
from raw_codec import method

#: Staging queues: a walk over all of them for each of them is seen.
MANY = 1_500


def declare(number: int, destination: str, batch: int = 1) -> bytes:
    """Declare a staging queue of one sink name."""
    return method(
        1,
        "queue.declare",
        queue=f"s{number}",
        durable=True,
        no_wait=True,
        arguments={
            "x-staging-sink": "job",
            "x-staging-batch": batch,
            "x-staging-destination": destination,
        },
    )


def destinations(spread: bool, count: int = MANY) -> Iterable[bytes]:
    """Staging queues of a destination each, or of one."""
    return (declare(number, f"d{number if spread else 0}") for number in range(count))


def gauged() -> tuple[GaugedNode, QuickPeer]:
    """A broker whose calls are measured, and a client."""
    world = World(1, 10, Gauge())
    return world.node, world.peers[0]


def excesses(node: GaugedNode) -> list[Excess]:
    """What cost too much by steps and lines."""
    return node.gauge.counted


# -- listings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [False, True])
def test_sinks_are_listed_in_slices(spread: bool) -> None:
    """However many queues one has, and however many destinations a name."""
    count = 3 * MANY
    node, peer = gauged()
    with node.gauge.unmeasured():
        peer.send(*destinations(spread, count))
        node.sync()
    with HttpClient(node) as http:
        assert http.ask("GET", "/api/sinks/%2F") == 200
    assert excesses(node) == []
    listing = SinkListing(node.broker, "/")
    rows, slices = [], 0
    while not listing.ended:
        rows += listing.take(200)
        slices += 1
    assert slices > 2
    assert sum(row.staging_queues for row in rows) == count
    assert len(rows) == (count if spread else 1)


def test_what_is_deleted_while_sinks_are_listed_is_left_out() -> None:
    node = Node()
    peer = node.connect()
    peer.send(*destinations(spread=False), declare(MANY, "other"))
    for sink in ("a", "b"):
        peer.declare(sink, arguments={"x-staging-sink": sink, "x-staging-batch": 1})
    listing = SinkListing(node.broker, "/")
    (first,) = listing.take(1)
    assert first.staging_queues == MANY
    for name in (f"s{MANY}", "a"):
        peer.call(1, "queue.delete", queue=name)
    found = []
    while not listing.ended:
        found += listing.take(10)
    assert [(row.name, row.staging_queues) for row in found] == [("b", 1)]
