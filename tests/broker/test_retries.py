"""Delayed retry: what comes back to its queue waits before it goes out again."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.policies.policy import make_policy
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.node.paged import no_chance
from support.wire.raw_codec import method, publish


@pytest.fixture(params=[1 << 30, 0], ids=["flat", "paged"])
def node(request: pytest.FixtureRequest) -> Node:
    """A broker whose queues lie in memory, or in pages on the disk."""
    return Node(window_bytes=request.param)


def declare(node: Node, kind: str = "all", least: int = 1000, most: int = 2500) -> Peer:
    """A client of the queue `q`, whose messages come back after a delay."""
    peer = node.connect(1, 2)
    arguments = {
        "x-delayed-retry-type": kind,
        "x-delayed-retry-min": least,
        "x-delayed-retry-max": most,
    }
    peer.declare("q", arguments=arguments)
    return peer


def put(peer: Peer, *bodies: bytes, mode: int = 2, **properties: Any) -> None:
    """Publish to the queue."""
    for body in bodies:
        peer.send(publish(1, "", "q", body, delivery_mode=mode, **properties))


def nack(peer: Peer, tag: int = 0) -> None:
    """Give one delivery back, or all."""
    peer.send(method(1, "basic.nack", delivery_tag=tag, multiple=tag == 0, requeue=True))


def counts(node: Node) -> tuple[int, int, int]:
    """How many messages wait, wait for their next try, and are unacked."""
    queue = node.classic("q")
    return int(queue.ready_count()), int(queue.retry_count()), int(queue.unacked_count)


def again(node: Node, crash: bool) -> Node:
    """Start again, after a stop in order or after a crash."""
    image = node.crashed(no_chance)[0] if crash else node.stop()
    return Node(
        RecordingDisk(image), window_bytes=int(node.core.memory.window_bytes), clock=node.clock
    )


@pytest.mark.parametrize("mode", [1, 2])
def test_the_delay_grows_with_the_failures_up_to_the_most(node: Node, mode: int) -> None:
    peer = declare(node)
    put(peer, b"m", mode=mode)
    peer.call(1, "basic.consume", queue="q")
    hows = {"nack": [1000, 1000], "reject": [1000, 2000, 2500, 2500]}
    for how, delay in [(how, delay) for how, delays in hows.items() for delay in delays]:
        got = peer.expect(1, "basic.deliver")
        peer.send(method(1, f"basic.{how}", delivery_tag=got.delivery_tag, requeue=True))
        assert counts(node) == (0, 1, 0)
        node.tick(delay - 1)
        assert peer.take() == []
        node.tick(1)
    assert peer.expect(1, "basic.deliver").redelivered
    assert counts(node) == (0, 0, 1)


@pytest.mark.parametrize("how", ["reject", "nack", "recover", "close", "lost"])
@pytest.mark.parametrize("kind", ["disabled", "all", "failed", "returned"])
def test_the_type_says_what_is_delayed(node: Node, kind: str, how: str) -> None:
    peer = declare(node, kind)
    put(peer, b"m")
    tag = peer.call_get("q").delivery_tag
    if how == "reject":
        peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=True))
    elif how == "nack":
        nack(peer, tag)
    elif how == "recover":
        peer.call(1, "basic.recover", requeue=True)
    elif how == "close":
        peer.call(1, "channel.close")
    else:
        peer.lose()
    failed = how in ("reject", "close", "lost")
    delayed = kind in ("all", "failed" if failed else "returned")
    assert counts(node) == ((0, 1, 0) if delayed else (1, 0, 0))


def test_others_pass_what_waits_and_it_comes_back_to_its_place(node: Node) -> None:
    peer = declare(node)
    put(peer, b"1", b"2", b"3")
    nack(peer, peer.call_get("q").delivery_tag)
    assert peer.call_get("q", no_ack=True).body == b"2"
    node.tick(1000)
    assert [peer.call_get("q", no_ack=True).body for _ in range(2)] == [b"1", b"3"]


@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restart_keeps_the_delay(node: Node, crash: bool, checkpoint: bool) -> None:
    peer = declare(node)
    put(peer, b"1", b"2")
    nack(peer, peer.call_get("q").delivery_tag)
    node.sync()
    if checkpoint:
        node.take_checkpoint()
    node.tick(400)
    node = again(node, crash)
    peer = node.connect()
    peer.call(1, "basic.consume", queue="q", no_ack=True)
    assert [got.body for got in peer.take()] == [b"2"]
    node.tick(599)
    assert peer.take() == []
    node.tick(1)
    assert [(got.body, got.redelivered) for got in peer.take()] == [(b"1", True)]
    assert counts(node) == (0, 0, 0)
    assert node.core.memory.held_bytes == 0


def test_a_delay_that_was_over_before_a_restart_is_over(node: Node) -> None:
    peer = declare(node)
    put(peer, b"1")
    nack(peer, peer.call_get("q").delivery_tag)
    node.sync()
    node.clock.advance(1000)
    node = again(node, True)
    assert node.connect().call_get("q").body == b"1"


def test_what_was_acked_is_not_waited_for_after_a_restart(node: Node) -> None:
    peer = declare(node)
    put(peer, b"1", b"2")
    nack(peer, peer.call_get("q").delivery_tag)
    node.tick(1000)
    peer.call_get("q", no_ack=True)
    node.sync()
    node = again(node, True)
    assert node.connect().call_get("q").body == b"2"
    assert counts(node) == (0, 0, 1)


@pytest.mark.parametrize("restart", [False, True])
def test_purge_lets_go_of_it(node: Node, restart: bool) -> None:
    peer = declare(node)
    put(peer, b"1", b"2")
    nack(peer, peer.call_get("q").delivery_tag)
    node.sync()
    if restart:
        node = again(node, False)
        peer = node.connect()
    assert peer.call(1, "queue.purge", queue="q").message_count == 2
    node.tick(5000)
    assert counts(node) == (0, 0, 0)
    assert node.core.memory.held_bytes == 0
    node.sync()
    assert again(node, True).classic("q").ready_count() == 0


def test_a_queue_with_what_waits_is_not_empty(node: Node) -> None:
    peer = declare(node)
    put(peer, b"1")
    nack(peer, peer.call_get("q").delivery_tag)
    peer.send(method(2, "queue.delete", queue="q", if_empty=True))
    assert peer.expect(2, "channel.close").code == 406
    peer.call(1, "queue.delete", queue="q")
    node.tick(5000)
    assert node.core.memory.held_bytes == 0
    assert node.core.memory.held_messages == 0


def test_it_expires_on_time(node: Node) -> None:
    peer = node.connect()
    peer.declare("dead")
    peer.declare(
        "q",
        arguments={
            "x-delayed-retry-type": "all",
            "x-delayed-retry-min": 60_000,
            "x-message-ttl": 5000,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    put(peer, b"1")
    nack(peer, peer.call_get("q").delivery_tag)
    node.tick(4999)
    assert node.classic("dead").ready_count() == 0
    node.tick(2)
    assert peer.call_get("dead").body == b"1"


def test_the_delivery_limit_counts_on(node: Node) -> None:
    peer = node.connect()
    arguments = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 10, "x-delivery-limit": 2}
    peer.declare("q", arguments=arguments)
    put(peer, b"1")
    for how, waits in ("reject", 1), ("nack", 1), ("reject", 1), ("nack", 1), ("reject", 0):
        tag = peer.call_get("q").delivery_tag
        peer.send(method(1, f"basic.{how}", delivery_tag=tag, requeue=True))
        assert counts(node) == (0, waits, 0)
        node.tick(50)


@pytest.mark.parametrize("how", ["nack", "reject"])
@pytest.mark.parametrize(("most", "delay"), [({}, 200), ({"max": 0}, 200), ({"max": 150}, 150)])
def test_without_a_most_the_delay_is_always_the_least(
    node: Node, most: dict[str, int], delay: int, how: str
) -> None:
    """As RabbitMQ 4.3; a policy says it too, and without a least nothing is delayed."""
    peer = node.connect()
    peer.declare("q")
    definition: dict[str, object] = {"delayed-retry-type": "all", "delayed-retry-min": 200}
    definition |= {f"delayed-retry-{name}": value for name, value in most.items()}
    node.vhost.policies.set(make_policy("p", "^q$", definition))
    put(peer, b"1")
    for _ in range(3):
        tag = peer.call_get("q").delivery_tag
        peer.send(method(1, f"basic.{how}", delivery_tag=tag, requeue=True))
        node.tick(delay - 1)
        assert counts(node) == (0, 1, 0)
        node.tick(1)
        assert counts(node) == (1, 0, 0)
    del definition["delayed-retry-min"]
    node.vhost.policies.set(make_policy("p", "^q$", definition))
    tag = peer.call_get("q").delivery_tag
    peer.send(method(1, f"basic.{how}", delivery_tag=tag, requeue=True))
    assert counts(node) == (1, 0, 0)


def test_a_checkpoint_and_priorities_keep_all(node: Node) -> None:
    """Many that wait at once, of several priorities, over checkpoints and restarts."""
    peer = node.connect()
    arguments = {
        "x-delayed-retry-type": "all", "x-delayed-retry-min": 1000, "x-max-priority": 3,
    }  # fmt: skip
    peer.declare("q", arguments=arguments)
    for number in range(30):
        put(peer, b"%d" % number, priority=number % 4)
    for _ in range(20):
        peer.call_get("q")
    nack(peer)
    node.sync()
    node.take_checkpoint()
    node = again(node, True)
    peer = node.connect()
    first = [peer.call_get("q", no_ack=True).body for _ in range(10)]
    peer.send(method(1, "basic.get", queue="q"))
    peer.expect(1, "basic.get-empty")
    node.tick(1000)
    rest = [peer.call_get("q", no_ack=True).body for _ in range(20)]
    assert sorted(first + rest, key=int) == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-delayed-retry-type": "never"},
        {"x-delayed-retry-type": 1},
        {"x-delayed-retry-min": -1},
        {"x-delayed-retry-max": "x"},
        {"x-delayed-retry-min": 1 << 60},
        {"x-delayed-retry-type": "all", "x-queue-type": "stream"},
    ],
)
def test_what_cannot_be_is_refused(node: Node, arguments: dict[str, object]) -> None:
    peer = node.connect()
    peer.send(method(1, "queue.declare", queue="q", durable=True, arguments=arguments))
    assert peer.expect(1, "channel.close").code == 406
