"""Very many staging queues, and very many sinks: what one costs does not grow with all others."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from core import Node
from cost_gauge import Excess, Gauge, GaugedNode, QuickPeer
from cost_http import HttpClient
from cost_worlds import World
from leveret.broker.admin.stats import SinkListing
from leveret.broker.core.accounts import ROUTE_BYTES
from leveret.broker.queue.target import Destinations
from leveret.broker.staging.commit import COMMIT_KEY
from leveret.broker.staging.release import Sink, StagedRoutes
from leveret.clock import NO_DEADLINE
from leveret.limits import (
    DEAD_LETTER_RETRY_MS,
    ROUTE_TARGETS_CACHED_MAX,
    STEPS_PER_SLICE,
    TURN_SHARE_MIN,
)
from leveret.wire.staged import Staged
from raw_codec import method, publish

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


# -- commits and releases --------------------------------------------------------------------------

#: Many small values: they are gone through one by one.
LONG = {f"{number}": None for number in range(600)}


def staged_in(peer: QuickPeer, sink: str, count: int, **props: Any) -> None:
    """Stage messages of long headers for the queue `q` in a queue that is called like its sink."""
    headers = {"x-staged-exchange": "", "x-staged-routing-key": "q", **LONG}
    arguments = {"x-staging-sink": sink, "x-staging-batch": 1}
    peer.send(method(1, "queue.declare", queue=sink, durable=True, arguments=arguments))
    for _ in range(count):
        peer.send(publish(1, "", sink, b"m", headers=headers, delivery_mode=2, **props))


def commit_of(sink: str) -> bytes:
    """A commit of a sink with one queue."""
    command = {"sink": sink, "batch": 1, "queues": [sink]}
    return publish(2, "", COMMIT_KEY, json.dumps(command).encode())


def test_long_headers_are_counted_when_a_batch_is_looked_at_and_released() -> None:
    node, peer = gauged()
    count = 250
    with node.gauge.unmeasured():
        peer.send(method(1, "queue.declare", queue="q", durable=True))
        staged_in(peer, "s", count)
        node.sync()
    before = int(node.turn.accounts.total())
    peer.send(commit_of("s"))
    for _ in range(count):
        node.sync()
    assert node.waiting("q").ready_count() == count
    assert excesses(node) == []
    # The routes that it remembered are gone, and so are the queue and its place.
    assert int(node.turn.accounts.total()) < before


def test_batches_that_wait_for_room_are_counted_each_time() -> None:
    node, peer = gauged()
    count = 60
    full = {"x-max-length": 0, "x-overflow": "reject-publish"}
    with node.gauge.unmeasured():
        peer.send(method(1, "queue.declare", queue="q", durable=True, arguments=full))
        for number in range(count):
            staged_in(peer, f"s{number}", 1)
            peer.send(commit_of(f"s{number}"))
        node.sync()
    held = int(node.turn.accounts.total())
    for _ in range(3):
        node.tick(DEAD_LETTER_RETRY_MS)
    assert excesses(node) == []
    assert node.waiting("s0").ready_count() == 1
    assert int(node.turn.accounts.total()) == held


def test_routes_to_very_many_queues_are_not_kept_for_a_batch() -> None:
    node = Node()
    peer = node.connect()
    routes = StagedRoutes(node.vhost)
    targets = []
    for number in range(3):
        peer.declare(f"q{number}")
        targets.append(node.vhost.queues.by_name[f"q{number}"].target)
    booked = int(node.turn.accounts.total())
    routing = Destinations(targets * (ROUTE_TARGETS_CACHED_MAX // 6))
    for number in range(3):
        route = routes.find(Staged(b"amq.fanout", b"%d" % number))
        routes.keep(route, routing)
        assert route.routed
        # Two of them are as many as there may be; the third one begins anew.
        kept = 2 if number == 1 else 1
        size = int(node.turn.accounts.total()) - booked
        assert size == kept * (ROUTE_BYTES + len("amq.fanout1") + 8 * len(routing.targets))
    more = routes.find(Staged(b"amq.fanout", b"more"))
    routes.keep(more, Destinations(targets * ROUTE_TARGETS_CACHED_MAX))
    assert not more.routed
    routes.clear()
    assert int(node.turn.accounts.total()) == booked


# -- sinks that expire -----------------------------------------------------------------------------


def filled(node: Node, count: int) -> None:
    """Give `guest` so many sinks, each a millisecond younger than the one before."""
    owner = node.broker.users.owner("guest")
    for number in range(count):
        sink = Sink(f"sink{number}", "")
        sink.batch, sink.owner, sink.time_ms = 1, owner, node.clock.wall_ms() + number
        node.staging.restore(sink, [])


def test_a_refused_commit_walks_through_no_sinks() -> None:
    node, peer = gauged()
    count = 2_000
    node.broker.users.set_limits("guest", {"max-sinks": count})
    with node.gauge.unmeasured():
        filled(node, count)
    peer.send(method(2, "confirm.select"))
    node.clock.advance(int(node.turn.publisher_expiry_ms) - 1_000)
    peer.send(*(commit_of(f"more{number}") for number in range(20)))
    node.sync()
    assert len(node.staging.sinks.by_place) == count
    assert excesses(node) == []


def test_sinks_expire_each_at_its_time_and_some_at_once() -> None:
    node, _ = gauged()
    count = 3_000
    with node.gauge.unmeasured():
        filled(node, count)
        node.run()
    node.tick(int(node.turn.publisher_expiry_ms) + 1)
    assert len(node.staging.sinks.by_place) == count - 1
    node.tick(count)
    assert node.staging.sinks.by_place == {}
    assert node.turn.timers.next_ms() == NO_DEADLINE
    assert excesses(node) == []
    assert node.gauge.most["settle steps"] < TURN_SHARE_MIN


def test_the_sinks_of_a_deleted_vhost_go_in_slices() -> None:
    node = Node()
    filled(node, 3 * STEPS_PER_SLICE)
    node.run()
    sinks = node.staging.sinks
    node.broker.delete_vhost("/")
    most = 0
    while sinks.by_place:
        before = int(node.turn.steps)
        node.broker.settle()
        most = max(most, int(node.turn.steps) - before)
    node.run()
    assert 0 < most <= 2 * STEPS_PER_SLICE
    assert node.turn.timers.next_ms() == NO_DEADLINE
