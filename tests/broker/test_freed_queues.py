"""A deleted queue leaves nothing in memory that only the collector of cycles would free."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.broker.quotas import Use
from support.node.core import Node, Peer
from support.node.staged import released, stage, stage_queue, start
from support.node.uncollected import no_collector, objects_of
from support.wire.raw_codec import method, publish

#: A queue of each kind, with what adds parts to it.
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"x-message-ttl": 60_000},
    {"x-max-length": 2, "x-dead-letter-exchange": "amq.fanout"},
    {"x-expires": 100_000},
    {"x-max-priority": 5},
    {"x-queue-type": "quorum", "x-delivery-limit": 2},
    {"x-queue-type": "stream"},
    {"x-single-active-consumer": True},
    {"x-message-deduplication": True},
    {"x-delayed-retry-type": "all", "x-delayed-retry-min": 60_000},
    {"x-retain-acked": "1h"},
]

#: Where its objects are defined; what is kept for the next queue of the user is in none of them.
ROOMS = ("queue", "classic", "stream", "backlog")


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    with no_collector():
        yield


def in_memory() -> Counter[str]:
    """How many objects of queues there are, by their types."""
    return objects_of(*(f"leveret.broker.{room}." for room in ROOMS))


def declared(peer: Peer, name: str) -> None:
    """Nobody uses it."""


def bound(peer: Peer, name: str) -> None:
    for exchange in ("amq.topic", "amq.fanout", "amq.direct"):
        peer.send(method(1, "queue.bind", queue=name, exchange=exchange, routing_key="k"))


def filled(peer: Peer, name: str) -> None:
    for number in range(5):
        headers = {"x-deduplication-header": str(number)}
        props: dict[str, Any] = {"headers": headers, "expiration": "90000", "delivery_mode": 2}
        peer.send(publish(1, "", name, b"m" * 300, **props))
    peer.node.sync()


def read(peer: Peer, name: str) -> None:
    filled(peer, name)
    peer.send(method(1, "basic.qos", prefetch_count=3))
    for priority in (1, 2):
        arguments = {"x-priority": priority}
        tag = f"{name}-{priority}"
        peer.send(
            method(1, "basic.consume", queue=name, consumer_tag=tag, arguments=arguments)
        )  # fmt: skip
    peer.node.sync()


def returned(peer: Peer, name: str) -> None:
    read(peer, name)
    peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
    peer.node.sync()


def acked(peer: Peer, name: str) -> None:
    read(peer, name)
    peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    peer.node.sync()


@pytest.mark.parametrize("use", [declared, bound, filled, read, returned, acked])
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda one: "-".join(one) or "plain")
@pytest.mark.parametrize("window_bytes", [-1, 0], ids=["in-memory", "paged"])
def test_nothing_is_left_of_deleted_queues(
    arguments: dict[str, Any], use: Any, window_bytes: int
) -> None:
    node = Node(window_bytes=window_bytes)
    peer = node.connect()
    before = in_memory()
    for number in range(3):
        name = f"q{number}"
        peer.send(method(1, "queue.declare", queue=name, durable=True, arguments=arguments))
        node.sync()
        assert name in node.vhost.queues.by_name
        use(peer, name)
    assert in_memory() - before
    for number in range(3):
        peer.send(method(1, "queue.delete", queue=f"q{number}"))
        node.sync()
    # What a channel holds unacked, and where it published last, is known until it goes on.
    peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
    peer.send(publish(1, "", "nowhere", b""))
    node.sync()
    assert in_memory() - before == Counter()


def test_a_queue_that_expires_is_freed() -> None:
    node = Node()
    peer = node.connect()
    before = in_memory()
    for number in range(200):
        peer.declare(f"q{number}", arguments={"x-expires": 1_000, "x-message-ttl": 500})
    node.tick(1_001)
    assert not node.vhost.queues.by_name
    assert in_memory() - before == Counter()


def test_queues_that_are_deleted_in_a_row_are_freed_at_once() -> None:
    node = Node()
    peer = node.connect()
    before = in_memory()
    for number in range(2_000):
        name = f"q{number}"
        peer.send(
            method(1, "queue.declare", queue=name, no_wait=True),
            method(1, "queue.bind", queue=name, exchange="amq.topic", routing_key=f"a.{number}"),
            method(1, "queue.delete", queue=name, no_wait=True),
        )
    assert in_memory() - before == Counter()


def test_nothing_is_left_of_a_deleted_super_stream(node: Node, peer: Peer) -> None:
    """Its exchange and its streams go together, each with an eye on the other."""
    before = in_memory()
    peer.declare("super", arguments={"x-super-stream-partitions": 3})
    peer.call(1, "queue.delete", queue="super")
    node.sync()
    assert in_memory() - before == Counter()


@pytest.mark.in_memory
def test_nothing_is_left_of_a_committed_batch(node: Node) -> None:
    peer = start(node)
    before = in_memory()
    stage_queue(peer, "staged")
    stage(peer, "staged", b"m")
    assert "basic.ack" in released(peer, "staged")
    peer.call(1, "queue.purge", queue="q")
    peer.send(publish(1, "", "nowhere", b""))
    node.sync()
    assert "staged" not in node.vhost.queues.by_name
    assert in_memory() - before == Counter()


def test_a_user_who_has_no_queue_any_more_is_counted_no_more() -> None:
    node = Node()
    peer = node.connect()
    before = sum(isinstance(one, Use) for one in gc.get_objects())
    for _ in range(5):
        peer.declare("q")
        assert sum(isinstance(one, Use) for one in gc.get_objects()) > before
        peer.call(1, "queue.delete", queue="q")
    node.sync()
    assert sum(isinstance(one, Use) for one in gc.get_objects()) == before


# -- delayed messages ------------------------------------------------------------------------------


def delays(peer: Peer, *, count: int = 0) -> None:
    """Declare a delayed exchange, and publish messages of 70 kB to it, due after 100 s."""
    arguments = {"x-delayed-type": "direct"}
    values = {"type": "x-delayed-message", "durable": True, "arguments": arguments}
    peer.call(1, "exchange.declare", exchange="e", **values)
    for _ in range(count):
        headers = {"x-delay": 100_000}
        peer.send(publish(1, "e", "k", bytes(70_000), headers=headers, delivery_mode=2))


def unused(peer: Peer) -> None:
    delays(peer)


def waiting(peer: Peer) -> None:
    delays(peer, count=3)
    peer.node.sync()


def being_written(peer: Peer) -> None:
    peer.node.hold_spill = True
    waiting(peer)


def being_read(peer: Peer) -> None:
    waiting(peer)
    peer.node.hold_reads = True
    peer.node.tick(99_990)


def being_unloaded(peer: Peer) -> None:
    waiting(peer)
    store = peer.node.vhost.exchanges.by_name["e"].delayed
    assert store is not None
    store.evict()


@pytest.mark.parametrize("whole", [False, True], ids=["exchange", "vhost"])
@pytest.mark.parametrize("use", [unused, waiting, being_written, being_read, being_unloaded])
@pytest.mark.parametrize("window_bytes", [-1, 100_000], ids=["in-memory", "paged"])
def test_nothing_is_left_of_a_deleted_delayed_exchange(
    use: Any, window_bytes: int, whole: bool
) -> None:
    node = Node(window_bytes=window_bytes)
    peer = node.connect()
    node.run()
    before = in_memory()
    use(peer)
    assert in_memory() - before
    if whole:
        node.broker.delete_vhost("/")
    else:
        peer.send(method(1, "exchange.delete", exchange="e"))
        # It published there last.
        peer.send(publish(1, "", "nowhere", b""))
    node.hold_spill = False
    node.sync()
    node.read_wanted()
    node.sync()
    assert in_memory() - before == Counter()
