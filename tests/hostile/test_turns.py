"""Connections take turns: how much of one client's input is handled before others', in steps."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from leveret.broker.scheduler.costs import (
    DEFINING_METHOD,
    DELIVERIES_OF_ONE_MIN,
    LATE_SLICE,
    METHOD,
    ROUND,
    ROUTE_RESOLVED,
    SHARE_MIN,
    SHARE_OF_DELIVERIES,
    SHARE_OF_INPUT,
    SHARE_OF_LATE_INPUT,
    SLICE,
)
from leveret.limits import CONTENT_BYTES_PER_COST, SLICE_MESSAGES
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

#: What the frame at which a slice ends may take beyond it.
LAST_FRAME_STEPS = 4 * (DEFINING_METHOD + METHOD)


def declares(peer: Peer, count: int) -> bytes:
    """Return so many declares, none of which is answered, so that no reply waits for a sync."""
    return b"".join(
        method(1, "queue.declare", queue=f"{id(peer)}-{number}", no_wait=True)
        for number in range(count)
    )


def a_round(node: Node) -> int:
    """Do one round of the loop; return the steps that it took."""
    before = int(node.core.scheduler.spent)
    node.broker.settle()
    return int(node.core.scheduler.spent) - before


@pytest.fixture
def node() -> Node:
    """A broker, which is at the beginning of a round whenever a client has been answered."""
    return Node()


def test_a_client_that_pipelines_declares_has_a_slice_a_round(node: Node) -> None:
    peer = node.connect()
    data = declares(peer, 1000)
    bytes_steps = len(data) // 256
    node.broker.settle()
    assert peer.feed(data) <= SLICE + LAST_FRAME_STEPS + bytes_steps
    declared = len(node.vhost.queues.by_name)
    assert 0 < declared < 200
    assert peer.connection.waits_for_turn()
    rounds = 0
    while peer.connection.waits_for_turn():
        assert a_round(node) <= SHARE_OF_INPUT + SLICE + LAST_FRAME_STEPS
        rounds += 1
    assert len(node.vhost.queues.by_name) == 1000
    assert 3 < rounds < 20


def test_nobody_else_waits_for_more_than_a_round(node: Node) -> None:
    greedy, quiet = node.connect(), node.connect_as("guest")
    node.broker.settle()
    greedy.feed(declares(greedy, 5000))
    a_round(node)
    quiet.feed(method(1, "queue.declare", queue="quiet", no_wait=True))
    for _ in range(2):
        a_round(node)
    assert "quiet" in node.vhost.queues.by_name
    assert greedy.connection.waits_for_turn()


def test_many_connections_of_one_user_have_one_share(node: Node) -> None:
    node.add_user("greedy", configure=".*")
    node.add_user("quiet", configure=".*")
    many = [node.connect_as("greedy") for _ in range(50)]
    quiet = node.connect_as("quiet")
    node.broker.settle()
    for peer in many:
        peer.feed(declares(peer, 1000))
    quiet.feed(method(1, "queue.declare", queue="quiet", no_wait=True))
    rounds = 0
    while "quiet" not in node.vhost.queues.by_name:
        a_round(node)
        rounds += 1
    assert rounds <= 2
    assert all(peer.connection.waits_for_turn() for peer in many)


def test_all_connections_that_ask_for_little_are_served_in_one_turn_of_their_user(
    node: Node,
) -> None:
    """They do not wait for a slice of the other user's each."""
    node.add_user("greedy", configure=".*")
    node.add_user("quiet", configure=".*")
    greedy = node.connect_as("greedy")
    quiet = [node.connect_as("quiet") for _ in range(20)]
    node.broker.settle()
    greedy.feed(declares(greedy, 5000))
    # What the round has left for those that come late is used up too.
    node.core.scheduler.spent += SHARE_OF_INPUT + SHARE_OF_LATE_INPUT
    for number, peer in enumerate(quiet):
        peer.feed(method(1, "queue.declare", queue=f"quiet{number}", no_wait=True))
    assert all(peer.connection.waits_for_turn() for peer in quiet)
    for _ in range(2):
        assert a_round(node) <= SHARE_OF_INPUT + SLICE + LAST_FRAME_STEPS
    assert not any(peer.connection.waits_for_turn() for peer in quiet)
    assert all(f"quiet{number}" in node.vhost.queues.by_name for number in range(20))
    assert greedy.connection.waits_for_turn()


def test_who_asks_for_little_when_the_round_is_over_is_served_all_the_same(node: Node) -> None:
    greedy, quiet = node.connect(), node.connect()
    greedy.feed(declares(greedy, 5000))
    a_round(node)
    assert node.core.scheduler.spent >= node.core.scheduler.round_end
    quiet.feed(method(1, "queue.declare", queue="quiet", no_wait=True))
    assert "quiet" in node.vhost.queues.by_name


def test_who_comes_late_has_a_small_slice_and_all_of_them_little(node: Node) -> None:
    greedy = node.connect()
    late = [node.connect() for _ in range(50)]
    greedy.feed(declares(greedy, 5000))
    a_round(node)
    before = int(node.core.scheduler.spent)
    inputs = [declares(peer, 20) for peer in late]
    read = sum(len(data) // 256 for data in inputs)
    taken = [peer.feed(data) for peer, data in zip(late, inputs, strict=True)]
    assert max(taken) <= LATE_SLICE + LAST_FRAME_STEPS
    most = SHARE_OF_LATE_INPUT + LATE_SLICE + LAST_FRAME_STEPS + read
    assert int(node.core.scheduler.spent) - before <= most
    assert all(peer.connection.waits_for_turn() for peer in late)


def test_many_small_batches_bring_no_more_of_what_expires_than_one(node: Node) -> None:
    """Each is the end of a batch, but all of them are in one round."""
    peer = node.connect()
    peer.declare("dead", durable=False, arguments={"x-max-length": 10})
    more = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    peer.declare("many", durable=False, arguments={"x-message-ttl": 1000} | more)
    count = 5 * ROUND
    peer.send(publish(1, "", "many", b"m") * count)
    quiet = node.connect()
    quiet.declare("quiet", durable=False)
    node.clock.advance(2000)
    node.now()
    before = int(node.core.scheduler.spent)
    node.broker.settle()
    for _ in range(40):
        quiet.connection.receive(publish(1, "", "quiet", b"m"), node.now())
        node.broker.settle(False)
    taken = int(node.core.scheduler.spent) - before
    assert taken <= ROUND + 2 * SHARE_MIN + 40 * 4
    assert node.classic("quiet").ready_count() == 40
    # What is left goes on in the next rounds, and all of it is done.
    assert node.core.scheduler.resume
    node.run()
    assert node.classic("many").ready_count() == 0
    assert not node.core.scheduler.letters.any()


def test_many_small_batches_deliver_no_more_than_one(node: Node) -> None:
    peer = node.connect(1, 2)
    for number in range(8):
        peer.declare(f"deep{number}", durable=False)
        peer.send(publish(1, "", f"deep{number}") * 3000)
    before = int(node.core.scheduler.spent)
    node.broker.settle()
    for number in range(8):
        consume = method(2, "basic.consume", queue=f"deep{number}", no_ack=True, no_wait=True)
        peer.connection.receive(consume, node.now())
        node.broker.settle(False)
    # What a method takes comes beside it.
    most = SHARE_OF_DELIVERIES + SHARE_OF_LATE_INPUT + 16 * DEFINING_METHOD
    assert int(node.core.scheduler.spent) - before <= most
    assert node.core.scheduler.has_more()
    node.run()
    assert sum(heard.method.name == "basic.deliver" for heard in peer.heard) == 8 * 3000


def test_the_input_of_a_round_is_bounded_whoever_sends_it(node: Node) -> None:
    peers = [node.connect() for _ in range(100)]
    inputs = [declares(peer, 60) for peer in peers]
    node.broker.settle()
    before = int(node.core.scheduler.spent)
    for peer, data in zip(peers, inputs, strict=True):
        peer.feed(data)
    taken = int(node.core.scheduler.spent) - before
    fed = sum(len(data) // 256 for data in inputs)
    assert taken <= SHARE_OF_INPUT + SLICE + LAST_FRAME_STEPS + fed
    while any(peer.connection.waits_for_turn() for peer in peers):
        a_round(node)
    assert len(node.vhost.queues.by_name) == 6000


def test_a_publish_to_many_queues_counts_each_of_them(node: Node) -> None:
    peer = node.connect()
    peer.call(1, "exchange.declare", exchange="all", type="fanout")
    for number in range(1000):
        peer.send(method(1, "queue.declare", queue=f"q{number}", no_wait=True))
        peer.send(method(1, "queue.bind", queue=f"q{number}", exchange="all", no_wait=True))
    node.broker.settle()
    taken = peer.feed(publish(1, "all", "", b"x") * 100)
    published = int(node.classic("q0").ready_count())
    assert 2 <= published <= 3
    assert taken <= SLICE + 2000
    while peer.connection.waits_for_turn():
        a_round(node)
    assert node.classic("q999").ready_count() == 100


def test_a_publish_with_a_new_key_counts_what_finds_its_queues(node: Node) -> None:
    peer = node.connect()
    peer.call(1, "exchange.declare", exchange="x", type="topic")
    peer.declare("q")
    peer.call(1, "queue.bind", queue="q", exchange="x", routing_key="a.#")
    node.broker.settle()
    data = b"".join(publish(1, "x", f"a.{number}", b"x") for number in range(1000))
    taken = peer.feed(data)
    published = int(node.classic("q").ready_count())
    assert 0 < published <= SLICE // ROUTE_RESOLVED
    # Publishes that lie whole in the input count themselves when the slice is over.
    assert taken <= SLICE + len(data) // 256 + published + 2 * ROUTE_RESOLVED
    assert peer.connection.waits_for_turn()
    while peer.connection.waits_for_turn():
        a_round(node)
    assert node.classic("q").ready_count() == 1000
    # A key that is known costs no more than its publish.
    assert peer.feed(publish(1, "x", "a.999", b"x") * 100) <= 200


def test_a_round_ends_when_a_slice_is_not_left_in_it(node: Node) -> None:
    """Until then a busy connection does without another look at what waits."""
    peer = node.connect()
    peer.declare("q")
    node.broker.settle()
    most = SHARE_OF_INPUT - SLICE - LAST_FRAME_STEPS
    peer.feed(publish(1, "", "q", b"x") * (most // 2))
    node.broker.settle(False)
    assert not node.core.scheduler.must_go_on()
    peer.feed(publish(1, "", "q", b"x") * (SLICE - 100))
    node.broker.settle(False)
    assert node.core.scheduler.must_go_on()
    node.broker.settle()
    assert not node.core.scheduler.must_go_on()


@pytest.mark.parametrize("name", ["basic.get", "queue.purge", "exchange.declare"])
def test_other_methods_end_a_slice_too(node: Node, name: str) -> None:
    peer = node.connect()
    values: dict[str, Any] = {"queue": "q"}
    if name == "exchange.declare":
        values = {"exchange": "amq.topic", "type": "topic", "durable": True, "no_wait": True}
    if name == "queue.purge":
        values["no_wait"] = True
    peer.declare("q", durable=False)
    node.broker.settle()
    peer.feed(method(1, name, **values) * 20_000)
    assert peer.connection.waits_for_turn()
    while peer.connection.waits_for_turn():
        assert a_round(node) <= SHARE_OF_INPUT + SLICE + LAST_FRAME_STEPS
        peer.flush()


def test_what_waits_for_a_turn_is_not_read_and_keeps_its_order(node: Node) -> None:
    peer = node.connect()
    node.broker.settle()
    peer.feed(declares(peer, 1000) + method(1, "queue.declare", queue="last"))
    peer.feed(method(1, "queue.delete", queue="last"))
    node.run()
    assert [heard.method.name for heard in peer.heard[-2:]] == [
        "queue.declare-ok",
        "queue.delete-ok",
    ]


def test_a_connection_that_is_lost_before_its_turn_asks_for_nothing_more(node: Node) -> None:
    peer, other = node.connect(), node.connect()
    node.broker.settle()
    peer.feed(declares(peer, 1000))
    declared = len(node.vhost.queues.by_name)
    peer.lose()
    node.run()
    assert len(node.vhost.queues.by_name) == declared
    other.declare("still", durable=False)
    assert not node.core.scheduler.has_more()


def test_queues_deliver_so_much_a_turn_and_new_messages_come_first(node: Node) -> None:
    peer = node.connect(1, 2)
    for number in range(8):
        name = f"deep{number}"
        peer.declare(name, durable=False)
        for _ in range(3):
            peer.send(publish(1, "", name) * 1000)
    quiet = node.connect()
    quiet.declare("quiet", durable=False)
    quiet.call(1, "basic.consume", queue="quiet", no_ack=True)
    node.run()
    for number in range(8):
        consume = method(2, "basic.consume", queue=f"deep{number}", no_ack=True, no_wait=True)
        peer.connection.receive(consume, node.now())
    quiet.feed(publish(1, "", "quiet", b"new"))
    taken = a_round(node)
    assert taken <= SHARE_OF_INPUT + SHARE_OF_DELIVERIES + SLICE_MESSAGES
    quiet.flush()
    assert quiet.heard[-1].method.name == "basic.deliver"
    peer.flush()
    while node.core.scheduler.has_more():
        assert a_round(node) <= SHARE_OF_INPUT + SHARE_OF_DELIVERIES + SLICE_MESSAGES
        peer.flush()
    delivered = sum(heard.method.name == "basic.deliver" for heard in peer.heard)
    assert delivered == 8 * 3000


def test_what_a_turn_brings_is_delivered_before_the_next_one(node: Node) -> None:
    first, second, consumer = node.connect(), node.connect(), node.connect()
    for queue in ("one", "two"):
        consumer.declare(queue, durable=False)
        consumer.call(1, "basic.consume", queue=queue, no_ack=True)
    node.broker.settle()
    # The round is over.
    node.core.scheduler.spent += SHARE_OF_INPUT + SHARE_OF_LATE_INPUT
    for peer, body in ((first, b"first"), (second, b"second")):
        peer.feed(publish(1, "", "one", body) + publish(1, "", "two", body))
        assert peer.connection.waits_for_turn()
    consumer.take()
    a_round(node)
    consumer.flush()
    delivered = [(heard.method.routing_key, heard.method.body) for heard in consumer.heard[-4:]]
    assert delivered == [
        ("one", b"first"),
        ("two", b"first"),
        ("one", b"second"),
        ("two", b"second"),
    ]


@pytest.mark.parametrize("limit", [{}, {"x-delivery-limit": 5}], ids=["plain", "counted"])
def test_queues_that_continue_have_a_share_whatever_is_scheduled_in_the_round(
    node: Node, limit: dict[str, Any]
) -> None:
    rounds = 5
    filler, quiet, greedy = node.connect(), node.connect(), [node.connect(1) for _ in range(2)]
    deep = [f"deep{number}" for number in range(2 * rounds)]
    for name in ("old", *deep):
        counted = limit if name in deep else {}
        filler.declare(name, durable=False, arguments=counted)
        for _ in range(10):
            filler.send(publish(1, "", name, b"m") * 500)
    quiet.connection.receive(consume("old"), node.now())
    a_round(node)
    quiet.flush()
    old = node.classic("old")
    shares = []
    for _ in range(rounds):
        left = old.ready_count()
        assert left > 0
        # The round is over, so that what follows is part of the next one.
        node.core.scheduler.spent += SHARE_OF_INPUT + SHARE_OF_LATE_INPUT
        for peer in greedy:
            peer.feed(consume(deep.pop()))
            assert peer.connection.waits_for_turn()
        # A delivery with a header is two steps, of which a share has as many as it has messages.
        most = SHARE_OF_INPUT + SHARE_OF_DELIVERIES + 2 * SHARE_MIN
        assert a_round(node) <= most + (SLICE_MESSAGES if limit else 0)
        assert not any(peer.connection.waits_for_turn() for peer in greedy)
        for peer in (*greedy, quiet):
            peer.flush()
        shares.append(int(left - old.ready_count()))
    # Where those that go on are too many for a round, the others of them come first in the next.
    pairs = itertools.pairwise(shares)
    assert all(sum(pair) >= DELIVERIES_OF_ONE_MIN for pair in pairs), shares


def test_deliveries_of_long_bodies_are_fewer_in_a_round(node: Node) -> None:
    """Each is copied into the output of its connection, which takes far longer than the rest."""
    publisher, body = node.connect(), bytes(60_000)
    consumers = [node.connect() for _ in range(40)]
    publisher.declare("q", durable=False)
    for _ in range(400):
        publisher.send(publish(1, "", "q", body))
    for peer in consumers:
        peer.connection.receive(consume("q"), node.now())
    queue = node.classic("q")
    most = SHARE_OF_DELIVERIES + SLICE + 2 * SHARE_MIN
    while left := int(queue.ready_count()):
        assert a_round(node) <= SHARE_OF_INPUT + most
        delivered = left - int(queue.ready_count())
        assert 0 < delivered * len(body) <= most * CONTENT_BYTES_PER_COST
        for peer in consumers:
            peer.flush()


def test_what_expires_at_once_is_delivered_where_others_had_the_round(node: Node) -> None:
    """A TTL of 0 asks for a consumer that can take the message, not for an idle broker."""
    greedy, publisher, consumer = node.connect(1, 2), node.connect(), node.connect()
    greedy.declare("fast", durable=False, arguments={"x-delivery-limit": 5})
    greedy.call(2, "basic.consume", queue="fast", no_ack=True)
    consumer.declare("now", durable=False, arguments={"x-message-ttl": 0})
    consumer.call(1, "basic.consume", queue="now", no_ack=True)
    node.broker.settle()
    node.core.scheduler.spent += SHARE_OF_INPUT + SHARE_OF_LATE_INPUT
    greedy.feed(publish(1, "", "fast", b"m") * 2000)
    publisher.feed(publish(1, "", "now", b"m") * 2000)
    assert publisher.connection.waits_for_turn()
    node.run()
    queue = node.classic("now")
    assert (queue.target.published, queue.delivered_no_ack) == (2000, 2000)


def consume(queue: str) -> bytes:
    """Return a request for all messages of a queue, which is not answered."""
    return method(1, "basic.consume", queue=queue, no_ack=True, no_wait=True)


@pytest.mark.parametrize("limit", [{}, {"x-delivery-limit": 5}], ids=["plain", "counted"])
def test_a_delivery_with_a_header_of_the_queue_is_two_steps(
    node: Node, limit: dict[str, Any]
) -> None:
    peer = node.connect()
    peer.send(method(1, "queue.declare", queue="q", arguments=limit))
    peer.send(publish(1, "", "q", b"m") * 500)
    node.broker.settle()
    peer.connection.receive(method(1, "basic.consume", queue="q", no_ack=True), node.now())
    steps = 0
    while node.core.scheduler.dispatchers:
        steps += a_round(node)
    assert 500 * (1 + len(limit)) <= steps < 500 * (2 + len(limit))
