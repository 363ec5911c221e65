"""What a policy does to queues that are there, with their messages, and what is left without it.

Each effect is also one of an argument, whose tests say more; here is that it comes and goes with
the policy, at once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.policies.policy import make_policy
from support.brokers.broker_restarts import RESTARTS
from support.node.core import Node, Peer, all_waiting
from support.wire.raw_codec import method, publish


@pytest.fixture
def peer(node: Node) -> Peer:
    """A connection, with the queues `q` and `dead` there."""
    peer = node.connect()
    peer.declare("q")
    peer.declare("dead")
    return peer


def put(peer: Peer, *bodies: bytes, queue: str = "q") -> None:
    """Publish persistent messages."""
    peer.send(*[publish(1, "", queue, body, delivery_mode=2) for body in bodies])


def follow(node: Node, name: str = "p", pattern: str = "^q", **definition: object) -> None:
    """Set a policy of these keys, with `-` for `_`."""
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    node.vhost.policies.set(make_policy(name, pattern, keys))
    node.run()


def operate(node: Node, **definition: object) -> None:
    """Set an operator policy of these keys for all queues."""
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    node.vhost.policies.set(make_policy("o", "", keys, operator=True))
    node.run()


def waiting(node: Node, queue: str) -> list[bytes]:
    return [item.message.body for item in all_waiting(node.classic(queue))]


def test_a_length_drops_what_is_too_much_and_dead_letters_it(node: Node, peer: Peer) -> None:
    put(peer, b"1", b"2", b"3")
    follow(node, max_length=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    assert (waiting(node, "q"), waiting(node, "dead")) == ([b"3"], [b"1", b"2"])
    put(peer, b"4")
    assert waiting(node, "dead") == [b"1", b"2", b"3"]
    node.vhost.policies.clear("p")
    put(peer, b"5", b"6")
    assert waiting(node, "q") == [b"4", b"5", b"6"]


@pytest.mark.parametrize("count", [30, 31])
def test_a_length_drops_no_more_while_messages_expire(count: int) -> None:
    """Messages that expire while others are dropped for the length count too."""
    node = Node()
    peer = node.connect()
    peer.declare("q", durable=False, arguments={"x-max-length": 30})
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.send(publish(1, "", "q", b"short", expiration="1000") * count)
    peer.send(method(1, "basic.cancel", consumer_tag="c", no_wait=True))
    peer.send(publish(1, "", "q", b"long") * 30)
    node.core.scheduler.slice_cost = 1
    peer.receive(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
    node.settle()
    node.settle()
    assert 30 < node.classic("q").ready_count() < 30 + count
    node.clock.advance(1001)
    node.now()
    node.run()
    assert [item.message.body for item in all_waiting(node.classic("q"))] == [b"long"] * 30


def test_a_length_set_while_messages_expire_is_applied_afterwards(node: Node, peer: Peer) -> None:
    """Even without a consumer, which would make the queue look at its limits."""
    peer.send(publish(1, "", "q", b"short", expiration="1000") * 200)
    peer.send(publish(1, "", "q", b"long") * 30)
    node.core.scheduler.slice_cost = 20
    node.clock.advance(1001)
    node.now()
    node.vhost.policies.set(make_policy("short", "^q", {"max-length": 10}))
    node.run()
    assert waiting(node, "q") == [b"long"] * 10


def test_a_ttl_counts_for_what_waits(node: Node, peer: Peer) -> None:
    put(peer, b"old")
    node.tick(500)
    follow(node, message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="dead")
    put(peer, b"new")
    node.tick(1000)
    assert waiting(node, "q") == []
    assert sorted(waiting(node, "dead")) == [b"new", b"old"]
    node.vhost.policies.clear("p")
    node.run()
    put(peer, b"stays")
    node.tick(10**9)
    assert waiting(node, "q") == [b"stays"]


def test_the_shorter_of_ttls_counts(node: Node, peer: Peer) -> None:
    peer.declare("q2", arguments={"x-message-ttl": 500})
    follow(node, message_ttl=1000)
    put(peer, b"m", queue="q2")
    node.tick(499)
    assert waiting(node, "q2") == [b"m"]
    node.tick(1)
    assert waiting(node, "q2") == []
    operate(node, message_ttl=200)
    put(peer, b"m", queue="q2")
    node.tick(200)
    assert waiting(node, "q2") == []


def test_an_unused_queue_ends_by_policy(node: Node, peer: Peer) -> None:
    follow(node, expires=1000)
    peer.declare("q-new")
    node.tick(999)
    peer.declare("q-new", passive=True)
    node.tick(1)
    assert "q" not in node.vhost.queues.by_name
    node.vhost.policies.clear("p")
    node.tick(10_000)
    assert "q-new" in node.vhost.queues.by_name


def test_a_full_queue_refuses_by_policy(node: Node, peer: Peer) -> None:
    peer.call(1, "confirm.select")
    follow(node, max_length=1, overflow="reject-publish")
    answers = []
    for body in (b"1", b"2"):
        put(peer, body)
        node.sync()
        answers += peer.names()
    assert answers == ["basic.ack", "basic.nack"]
    assert waiting(node, "q") == [b"1"]
    operate(node, overflow="drop-head")
    put(peer, b"3")
    node.sync()
    assert peer.names() == ["basic.ack"]
    assert waiting(node, "q") == [b"3"]


def test_a_delivery_limit_by_policy(node: Node, peer: Peer) -> None:
    follow(node, delivery_limit=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    put(peer, b"m")
    for _ in range(2):
        tag = peer.call_get("q").delivery_tag
        peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=True))
    assert (waiting(node, "q"), waiting(node, "dead")) == ([], [b"m"])


def test_a_stream_keeps_what_its_policy_says(node: Node, peer: Peer) -> None:
    arguments = {"x-queue-type": "stream", "x-max-length-bytes": 10**9}
    peer.declare("s", arguments=arguments)
    follow(node, pattern="^s", max_length_bytes=300_000)
    for number in range(10):
        put(peer, b"%d." % number + bytes(100_000), queue="s")
        node.sync()
    assert node.stream("s").first_offset > 0
    first = node.stream("s").first_offset
    node.vhost.policies.clear("p")
    for number in range(10):
        put(peer, b"%d." % number + bytes(100_000), queue="s")
        node.sync()
    assert node.stream("s").first_offset == first


def test_exclusive_and_server_named_queues_follow_policies(node: Node, peer: Peer) -> None:
    follow(node, pattern=r"^amq\.gen-", max_length=1)
    name = peer.call(1, "queue.declare", queue="", exclusive=True).queue
    put(peer, b"1", b"2", queue=name)
    assert waiting(node, name) == [b"2"]


def test_declaring_again_asks_nothing_of_policies(node: Node, peer: Peer) -> None:
    """45: only the arguments are compared."""
    peer.declare("q-own", arguments={"x-max-length": 5})
    follow(node, max_length=1, message_ttl=1000)
    peer.declare("q")
    peer.declare("q-own", arguments={"x-max-length": 5})
    peer.send(method(1, "queue.declare", queue="q", durable=True, arguments={"x-max-length": 1}))
    assert peer.expect(1, "channel.close").code == 406


@pytest.mark.parametrize("restart", RESTARTS)
def test_messages_and_their_policy_come_back_together(
    node: Node, peer: Peer, restart: Callable[[Node], Node]
) -> None:
    follow(
        node,
        message_ttl=1000,
        max_length=3,
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    put(peer, b"1", b"2", b"3", b"4")
    node.sync()
    again = restart(node)
    again.run()
    assert (waiting(again, "q"), waiting(again, "dead")) == ([b"2", b"3", b"4"], [b"1"])
    other = again.connect()
    put(other, b"5")
    assert waiting(again, "dead") == [b"1", b"2"]
    again.tick(10_000)
    assert waiting(again, "q") == []
    assert sorted(waiting(again, "dead")) == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("restart", RESTARTS)
def test_what_a_cleared_policy_left_is_not_dropped_by_a_restart(
    node: Node, peer: Peer, restart: Callable[[Node], Node]
) -> None:
    follow(node, max_length=1)
    node.vhost.policies.clear("p")
    put(peer, b"1", b"2")
    node.sync()
    assert waiting(restart(node), "q") == [b"1", b"2"]
