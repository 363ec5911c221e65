"""What the routing of one message may cost, whatever the bindings are, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.exchanges.modulus_hash import ModulusHashExchange
from leveret.broker.queue.target import FAN_OUT_RECORDED_BYTES
from leveret.broker.scheduler.costs import SLICE
from leveret.limits import (
    CHOICES_PER_QUEUE_MAX,
    COPY_KEYS_MAX,
    FAN_OUT_COPIES,
    ROUTING_LOOKS_MAX,
    TOPIC_WORDS_MAX,
)
from leveret.session.channel.content import BODY_AHEAD_BYTES
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.node.variants import few_of
from support.wire.raw_codec import method, publish


def bind(exchange: str, key: str, **values: Any) -> bytes:
    """A bind of the queue `q` that is not answered."""
    return method(
        1, "queue.bind", queue="q", exchange=exchange, routing_key=key, no_wait=True, **values
    )


@pytest.fixture
def node() -> Node:
    """A broker with the queue `q`, at the beginning of a round."""
    return Node()


@pytest.fixture
def peer(node: Node) -> Peer:
    """A client that has declared `q`."""
    peer = node.connect()
    peer.declare("q", durable=False)
    return peer


def arrived(node: Node) -> int:
    """How many messages `q` has."""
    return int(node.classic("q").ready_count())


def refused(node: Node, peer: Peer) -> str:
    """Why the channel was closed, which is 406; the next one is opened."""
    node.run()
    peer.flush()
    closed = peer.expect(1, "channel.close")
    assert closed.code == 406
    peer.send(method(1, "channel.close-ok"))
    peer.call(1, "channel.open")
    return str(closed.text)


def many_hashes(number: int) -> str:
    """A binding key of a tree of its own, in which every second word is `#`."""
    words = "abcd"
    own = "".join(words[number // 4**place % 4] for place in range(5))
    return ".".join(f"#.{word}" for word in own + "abcd" * 14)


def test_a_topic_exchange_with_many_wildcards_refuses_what_takes_too_long(
    node: Node, peer: Peer
) -> None:
    for number in range(1000):
        peer.send(bind("amq.topic", many_hashes(number)))
    node.settle()
    key = ".".join(["a", "b", "c", "d"] * 32)
    peer.receive(publish(1, "amq.topic", key, b"x") * 5)
    assert peer.connection.waits_for_turn()
    assert f"more than {ROUTING_LOOKS_MAX} bindings and wildcards" in refused(node, peer)
    # Few words are compared with the same patterns in no time, and are taken.
    peer.receive(publish(1, "amq.topic", "a.b.c", b"x"))
    assert arrived(node) == 0


def test_a_key_of_as_many_words_as_there_can_be_is_taken_by_honest_bindings(
    node: Node, peer: Peer
) -> None:
    for number in range(100):
        peer.send(bind("amq.topic", f"#.w{number}.#"), bind("amq.topic", f"*.*.w{number}.#"))
    node.settle()
    key = ".".join([""] * (TOPIC_WORDS_MAX - 4) + ["w7"])
    peer.receive(publish(1, "amq.topic", key, b"x"))
    assert arrived(node) == 1


@pytest.mark.parametrize("kind", few_of(["topic", "fanout", "x-recent-history"], 1))
def test_a_message_matches_so_many_bindings(node: Node, peer: Peer, kind: str) -> None:
    peer.call(1, "exchange.declare", exchange="e", type=kind)
    exchange = node.vhost.exchanges.by_name["e"]
    for number in range(ROUTING_LOOKS_MAX - 8):
        node.vhost.exchanges.restore_binding(exchange, "q", True, "k", {"n": number})
    node.settle()
    peer.receive(publish(1, "e", "k", b"x"))
    assert arrived(node) == 1
    for number in range(16):
        node.vhost.exchanges.restore_binding(exchange, "q", True, "#.k", {"n": number})
    node.settle()
    peer.receive(publish(1, "e", "k", b"x"))
    refused(node, peer)
    assert arrived(node) == 1


def test_routing_keys_in_cc_count_together(node: Node, peer: Peer) -> None:
    keys = [f"k{number}" for number in range(COPY_KEYS_MAX)]
    direct = node.vhost.exchanges.by_name["amq.direct"]
    for key in keys:
        for number in range(8):
            node.vhost.exchanges.restore_binding(direct, "q", True, key, {"n": number})
    node.settle()
    message = publish(1, "amq.direct", "k0", b"x", headers={"CC": keys})
    peer.receive(message * 20)
    assert 1 <= arrived(node) < 20
    node.run()
    assert arrived(node) == 20
    for number in range(8, 160):
        node.vhost.exchanges.restore_binding(direct, "q", True, "k1", {"n": number})
    for key in keys:
        for number in range(8, ROUTING_LOOKS_MAX // COPY_KEYS_MAX + 1):
            node.vhost.exchanges.restore_binding(direct, "q", True, key, {"n": number})
    node.settle()
    peer.receive(message)
    refused(node, peer)


def test_many_exchanges_with_many_ways_between_them_are_visited_once(
    node: Node, peer: Peer
) -> None:
    names = [f"e{number}" for number in range(300)]
    for name in names:
        peer.send(method(1, "exchange.declare", exchange=name, type="fanout", no_wait=True))
    exchanges = node.vhost.exchanges
    for name in names:
        for other in names:
            exchanges.restore_binding(exchanges.by_name[name], other, False, "", {})
    exchanges.restore_binding(exchanges.by_name["e299"], "q", True, "", {})
    node.settle()
    peer.receive(publish(1, "e0", "", b"x"))
    assert arrived(node) == 1
    for name in names:
        for number in range(200):
            exchanges.restore_binding(exchanges.by_name[name], "e0", False, f"{number}", {})
    node.settle()
    peer.receive(publish(1, "e0", "", b"x"))
    refused(node, peer)


def test_what_the_broker_moves_itself_goes_to_what_was_found(node: Node, peer: Peer) -> None:
    peer.call(1, "exchange.declare", exchange="dead", type="fanout")
    peer.declare(
        "dying", durable=False, arguments={"x-dead-letter-exchange": "dead", "x-message-ttl": 1}
    )
    dead = node.vhost.exchanges.by_name["dead"]
    for number in range(ROUTING_LOOKS_MAX + 10):
        node.vhost.exchanges.restore_binding(dead, "q", True, "", {"n": number})
    peer.send(publish(1, "", "dying", b"x"))
    node.tick(10)
    assert arrived(node) == 1


def test_a_headers_exchange_looks_at_bindings_that_may_match(node: Node, peer: Peer) -> None:
    headers = node.vhost.exchanges.by_name["amq.headers"]
    for number in range(5000):
        arguments: dict[str, object] = {"kind": "order", "id": number}
        node.vhost.exchanges.restore_binding(headers, "q", True, "", arguments)
    node.settle()
    message = publish(1, "amq.headers", "", b"x", headers={"kind": "order", "id": 4999})
    peer.receive(message)
    assert arrived(node) == 1
    # Whatever differs in a table alone is compared one by one, which is counted and ends.
    for number in range(5000):
        arguments = {"kind": {"of": ["thing"] * 20, "n": number}}
        node.vhost.exchanges.restore_binding(headers, "q", True, "", arguments)
    node.settle()
    kind = {"of": ["thing"] * 20, "n": 4999}
    costly = publish(1, "amq.headers", "", b"x", headers={"kind": kind})
    peer.receive(costly)
    assert peer.connection.waits_for_turn()
    assert arrived(node) == 2
    for number in range(1000):
        arguments = {"kind": {"of": ["thing"] * 20, "more": number}}
        node.vhost.exchanges.restore_binding(headers, "q", True, "", arguments)
    node.run()
    peer.receive(costly)
    refused(node, peer)


def test_changes_of_many_weights_of_a_ring_take_turns(node: Node, peer: Peer) -> None:
    peer.call(1, "exchange.declare", exchange="ring", type="x-consistent-hash")
    for number in range(300):
        peer.send(method(1, "queue.declare", queue=f"q{number}", no_wait=True))
    changes = b""
    for number in range(300):
        values: dict[str, Any] = {
            "queue": f"q{number}",
            "exchange": "ring",
            "routing_key": "30",
            "arguments": {},
        }
        changes += method(1, "queue.bind", no_wait=True, **values)
        if number % 2:
            changes += method(1, "queue.unbind", **values)
    node.settle()
    # A bind makes 3,000 points, an unbind puts twice as many in order; a slice has few of them.
    peer.receive(changes)
    rounds = 0
    while not node.rests():
        node.settle()
        rounds += 1
    assert rounds > 20
    assert len(node.vhost.exchanges.by_name["ring"].bindings) == 150
    # Looks for values put the ring in order, one segment each, of 1,757 points: a point is looked
    # at and sorted in some 0.4 µs, half a step.
    data = b"".join(publish(1, "ring", f"{number}", b"x") for number in range(100))
    peer.receive(data)
    assert node.vhost.exchanges.by_name["ring"].published_in <= 2 * SLICE // 1757 + 3


def test_a_queue_has_so_many_bindings_that_go_at_once_with_it(node: Node, peer: Peer) -> None:
    peer.call(1, "exchange.declare", exchange="any", type="x-random")
    peer.call(1, "exchange.declare", exchange="mod", type="x-modulus-hash")
    for number in range(CHOICES_PER_QUEUE_MAX - 1):
        peer.send(bind("any", f"{number}"))
    peer.send(bind("mod", ""))
    exchanges = node.vhost.exchanges
    assert len(exchanges.by_name["any"].bindings) == CHOICES_PER_QUEUE_MAX - 1
    peer.send(bind("mod", "more"))
    assert "cannot have more" in refused(node, peer)
    peer.call(1, "queue.unbind", queue="q", exchange="any", routing_key="7")
    peer.call(1, "queue.bind", queue="q", exchange="any", routing_key="7")
    # Bindings that go in slices are as many as they like.
    for number in range(CHOICES_PER_QUEUE_MAX * 2):
        peer.send(bind("amq.direct", f"{number}"))
    node.settle()
    peer.send(bind("any", "8"), method(1, "queue.delete", queue="q", no_wait=True))
    assert not exchanges.by_name["any"].bindings
    peer.declare("q", durable=False)
    peer.call(1, "queue.bind", queue="q", exchange="any", routing_key="7")


def test_a_modulus_hash_exchange_is_not_sorted_anew_for_each_binding(
    node: Node, peer: Peer
) -> None:
    peer.call(1, "exchange.declare", exchange="mod", type="x-modulus-hash")
    peer.send(bind("mod", ""))
    exchange = node.vhost.exchanges.by_name["mod"]
    assert isinstance(exchange, ModulusHashExchange)
    for number in range(3000):
        peer.send(method(1, "queue.declare", queue=f"q{number}", no_wait=True))
        node.vhost.exchanges.restore_binding(exchange, f"q{number}", True, "", {})
    assert exchange.names.size == 3001
    found = {exchange.names.at(number) for number in range(3001)}
    assert found == set(exchange.ends)
    # No block is so long that a name put into it moves all others.
    assert max(len(block) for block in exchange.names.blocks) <= 1024
    assert node.vhost.account.bytes > 3000 * exchange.index_bytes() // 3001


# -- one message for many queues -------------------------------------------------------------------

QUEUES = 5 * FAN_OUT_COPIES + 100


def fan_out(node: Node, *, durable: bool = False) -> list[str]:
    """Bind many queues to the exchange `all`, which is made; return their names."""
    peer = node.connect()
    peer.call(1, "exchange.declare", exchange="all", type="fanout", durable=durable)
    exchange = node.vhost.exchanges.by_name["all"]
    names = [f"f{number}" for number in range(QUEUES)]
    declares = [
        method(1, "queue.declare", queue=name, durable=durable, no_wait=True) for name in names
    ]
    peer.send(*declares)
    node.sync()
    for name in names:
        node.vhost.exchanges.restore_binding(exchange, name, True, "", {})
    peer.lose()
    return names


def copies(node: Node, names: list[str]) -> int:
    """How many messages all these queues have."""
    return sum(int(node.classic(name).ready_count()) for name in names)


def test_a_message_for_many_queues_comes_to_them_in_parts(node: Node, peer: Peer) -> None:
    names = fan_out(node)
    peer.call(1, "confirm.select")
    node.settle()
    declare = method(1, "queue.declare", queue="after", no_wait=True)
    peer.receive(publish(1, "all", "", b"x") * 3 + declare)
    assert FAN_OUT_COPIES <= copies(node, names) < QUEUES
    peer.flush()
    assert peer.pending() == 0
    rounds = 0
    while copies(node, names) < 3 * QUEUES:
        assert "after" not in node.vhost.queues.by_name
        node.settle()
        rounds += 1
    assert rounds >= 3
    node.run()
    assert "after" in node.vhost.queues.by_name
    acks = [got for got in peer.take() if got.name == "basic.ack"]
    assert acks[-1].delivery_tag == 3
    assert all(node.classic(name).ready_count() == 3 for name in names)


def test_a_recorded_message_for_many_queues_is_confirmed_when_all_parts_are_synced(
    node: Node,
) -> None:
    names = fan_out(node, durable=True)
    peer = node.connect()
    peer.call(1, "confirm.select")
    # A larger body would be in the journal before its message.
    body = bytes(min(FAN_OUT_RECORDED_BYTES // 4, BODY_AHEAD_BYTES - 1))
    peer.send(publish(1, "all", "", body, delivery_mode=2))
    node.run()
    assert copies(node, names) == QUEUES
    assert peer.pending() == 0
    node.sync()
    assert peer.expect(1, "basic.ack").delivery_tag == 1
    image = node.image()
    assert sum(len(data) for data in image.files.values()) < 6 * len(body)
    again = Node(RecordingDisk(image))
    assert copies(again, names) == QUEUES


def test_queues_that_are_deleted_between_two_parts_are_left_out(node: Node, peer: Peer) -> None:
    names = fan_out(node)
    other = node.connect()
    node.settle()
    peer.receive(publish(1, "all", "", b"x"))
    assert copies(node, names) < QUEUES
    other.send(method(1, "queue.delete", queue=names[-1], no_wait=True))
    node.run()
    assert copies(node, names[:-1]) == QUEUES - 1
    # Nothing is held for a queue that is no more, nor ever let go.
    assert node.core.memory.held_messages == QUEUES - 1


def test_a_fan_out_goes_on_when_its_publisher_is_lost(node: Node, peer: Peer) -> None:
    names = fan_out(node)
    node.settle()
    peer.receive(publish(1, "all", "", b"x", mandatory=True))
    peer.lose()
    node.run()
    assert copies(node, names) == QUEUES
    assert node.rests()
