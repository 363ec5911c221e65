"""Deduplication by what is queued: a value comes in again once its message has left the queue."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.policies.policy import make_policy
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.node.paged import no_chance
from support.wire.raw_codec import method, publish

QUEUED = {"x-deduplication-header": "id", "x-deduplication-scope": "queued"}


def declare(node: Node, **arguments: object) -> Peer:
    """A client that declared `q`, which knows what is queued."""
    peer = node.connect()
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    peer.declare("q", arguments=QUEUED | named)
    return peer


def put(peer: Peer, *values: object, mode: int = 2, **properties: Any) -> None:
    """Publish a message for each value of the header `id`, the value as its body too."""
    for value in values:
        body = str(value).encode()
        headers = {"id": value}
        peer.send(publish(1, "", "q", body, delivery_mode=mode, headers=headers, **properties))


def ready(peer: Peer) -> int:
    """How many messages wait."""
    return int(peer.node.vhost.queues.by_name["q"].ready_count())


def known(node: Node) -> set[bytes]:
    """The keys that the queue knows."""
    keys = node.classic("q").queued_keys
    assert keys is not None
    return set(keys.sequences)


@pytest.fixture(params=[1 << 30, 0], ids=["flat", "paged"])
def node(request: pytest.FixtureRequest) -> Node:
    """A broker whose queues lie in memory, or in pages on the disk."""
    return Node(window_bytes=request.param)


@pytest.mark.parametrize("mode", [1, 2])
def test_a_value_is_taken_once_until_it_is_acked(node: Node, mode: int) -> None:
    peer = declare(node)
    put(peer, "a", "b", "a", "c", "b", mode=mode)
    assert ready(peer) == 3
    assert node.classic("q").target.deduplicated == 2
    tag = peer.call_get("q").delivery_tag
    put(peer, "a", mode=mode)
    assert ready(peer) == 2, "an unacked message is in the queue"
    peer.send(method(1, "basic.ack", delivery_tag=tag))
    put(peer, "a", "a", mode=mode)
    assert ready(peer) == 3


def test_a_duplicate_is_confirmed_as_if_it_had_been_taken(node: Node) -> None:
    peer = declare(node)
    peer.call(1, "confirm.select")
    put(peer, "a")
    node.sync()
    put(peer, "a")
    node.sync()
    assert peer.names() == ["basic.ack"] * 2


def test_what_is_given_back_is_in_the_queue(node: Node) -> None:
    peer = declare(node)
    put(peer, "a")
    for _ in range(3):
        tag = peer.call_get("q").delivery_tag
        peer.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
        put(peer, "a")
        assert ready(peer) == 1


def test_no_ack_lets_a_value_come_again(node: Node) -> None:
    peer = declare(node)
    put(peer, "a")
    peer.call_get("q", no_ack=True)
    put(peer, "a")
    assert ready(peer) == 1


@pytest.mark.parametrize("letters", [False, True], ids=["gone", "dead letters"])
@pytest.mark.parametrize("end", ["reject", "expired", "maxlen", "limit"])
def test_what_dies_may_come_again(node: Node, letters: bool, end: str) -> None:
    arguments: dict[str, object] = {}
    if letters:
        arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
        node.connect().declare("dead")
    if end == "maxlen":
        arguments["x_max_length"] = 1
    if end == "limit":
        arguments["x_delivery_limit"] = 0
    peer = declare(node, **arguments)
    put(peer, "a", expiration="1000")
    if end == "maxlen":
        put(peer, "b")
    elif end == "expired":
        node.tick(1001)
    else:
        tag = peer.call_get("q").delivery_tag
        peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=end == "limit"))
    node.run()
    assert b"sa" not in known(node)
    put(peer, "a")
    assert b"sa" in known(node)
    assert not letters or node.vhost.queues.by_name["dead"].ready_count() >= 1


def test_a_letter_may_come_back_to_its_own_queue(node: Node) -> None:
    """A reject that leads back is no duplicate of itself."""
    peer = declare(node, x_dead_letter_exchange="")
    put(peer, "a")
    tag = peer.call_get("q").delivery_tag
    peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=False))
    assert ready(peer) == 1
    put(peer, "a")
    assert ready(peer) == 1


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("level", [0, 3])
def test_a_purge_lets_what_waited_come_again_and_not_what_is_unacked(
    node: Node, level: int, mode: int
) -> None:
    arguments = {"x_max_priority": level} if level else {}
    peer = declare(node, **arguments)
    for number in range(30):
        put(peer, number, mode=mode, priority=number % 4)
    node.sync()
    for _ in range(3):
        peer.call_get("q")
    peer.call(1, "queue.purge", queue="q")
    assert len(known(node)) == 3
    put(peer, *range(30), mode=mode)
    assert ready(peer) == 27
    assert len(known(node)) == 30


def test_what_is_retained_may_come_again(node: Node) -> None:
    peer = declare(node, x_retain_acked="1h")
    put(peer, "a")
    tag = peer.call_get("q").delivery_tag
    peer.send(method(1, "basic.ack", delivery_tag=tag))
    assert known(node) == set()
    node.classic("q").rewind(0)
    put(peer, "a")
    assert ready(peer) == 1, "what was rewound is in the queue again"


@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
@pytest.mark.parametrize("when", ["never", "before", "after"])
@pytest.mark.parametrize("level", [0, 3])
def test_what_is_queued_is_known_after_a_restart(
    node: Node, crash: bool, when: str, level: int
) -> None:
    """By the journal, by a checkpoint, and by a checkpoint with acks and publishes behind it."""
    arguments = {"x_max_priority": level} if level else {}
    peer = declare(node, **arguments)
    put(peer, *range(20))
    node.sync()
    if when == "before":
        node.take_checkpoint()
    for _ in range(10):
        peer.send(method(1, "basic.ack", delivery_tag=peer.call_get("q").delivery_tag))
    put(peer, *range(5))
    node.sync()
    if when == "after":
        node.take_checkpoint()
    image = node.crashed(no_chance)[0] if crash else node.stop()
    again = Node(
        RecordingDisk(image), window_bytes=int(node.core.memory.window_bytes), clock=node.clock
    )
    assert len(known(again)) == 15
    peer = again.connect()
    put(peer, *range(20))
    assert ready(peer) == 20
    assert again.classic("q").target.deduplicated == 15


@pytest.mark.parametrize("level", [0, 3])
def test_what_a_restart_loses_may_come_again(node: Node, level: int) -> None:
    """Transient messages lie between persistent ones, in the range of the same chunk."""
    arguments = {"x_max_priority": level} if level else {}
    peer = declare(node, **arguments)
    for number in range(9):
        put(peer, number, mode=1 + number % 2 if 0 < number < 8 else 2)
    node.sync()
    node.take_checkpoint()
    again = Node(RecordingDisk(node.stop()), window_bytes=int(node.core.memory.window_bytes))
    kept = ready(again.connect())
    assert kept < 9
    assert len(known(again)) == kept
    put(again.connect(), *range(9))
    assert again.classic("q").ready_count() == 9


def test_a_policy_says_it_too(node: Node) -> None:
    peer = node.connect()
    peer.declare("q")
    definition: dict[str, object] = {
        "deduplication-header": "id",
        "deduplication-scope": "queued",
    }
    node.vhost.policies.set(make_policy("p", "^q$", definition))
    put(peer, "a", "a")
    assert ready(peer) == 1
    node.sync()
    again = Node(RecordingDisk(node.stop()), clock=node.clock)
    put(again.connect(), "a", "b")
    assert again.classic("q").ready_count() == 2


@pytest.mark.parametrize("scope", ["", "all", 1, True])
def test_another_scope_is_refused(node: Node, scope: object) -> None:
    peer = node.connect()
    arguments = QUEUED | {"x-deduplication-scope": scope}
    peer.send(method(1, "queue.declare", queue="q", durable=True, arguments=arguments))
    assert peer.expect(1, "channel.close").code == 406


def test_the_window_is_what_counts_without_a_scope(node: Node) -> None:
    peer = node.connect()
    arguments = {"x-deduplication-header": "id", "x-deduplication-scope": "window"}
    peer.declare("q", arguments=arguments)
    put(peer, "a")
    peer.call_get("q", no_ack=True)
    put(peer, "a")
    assert ready(peer) == 0
