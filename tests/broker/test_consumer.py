"""Consumers: who gets the next message, how many at once, and who gets none.

Sources: AMQP 0-9-1 section 1.8.3 and behaviours 51 to 56 (consumers, cancels and prefetch).
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.limits import OUTPUT_BYTES_HIGH, SLICE_MESSAGES
from leveret.names import Name
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish


def put(peer: Peer, *numbers: int) -> None:
    """Publish numbers to `q`."""
    peer.send(*[publish(1, "", "q", b"%d" % number) for number in numbers])


def consumer(node: Node, prefetch: int = 0, *, no_ack: bool = False) -> Peer:
    """A new connection that consumes `q`."""
    peer = node.connect()
    peer.call(1, "basic.qos", prefetch_count=prefetch)
    peer.call(1, "basic.consume", queue="q", no_ack=no_ack)
    return peer


def numbers(peer: Peer) -> list[int]:
    """The bodies that came, as numbers."""
    return [int(body) for body in peer.bodies()]


@pytest.fixture
def publisher(peer: Peer) -> Peer:
    """A connection that declared the transient queue `q`."""
    peer.call(1, "queue.declare", queue="q")
    return peer


# -- turns -----------------------------------------------------------------------------------------


def test_consumers_take_turns(publisher: Peer) -> None:
    consumers = [consumer(publisher.node) for _ in range(3)]
    put(publisher, *range(9))
    assert [numbers(one) for one in consumers] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    # The turn goes on where it was, not at the first one.
    put(publisher, 9)
    put(publisher, 10)
    assert [numbers(one) for one in consumers] == [[9], [10], []]


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.integers(0, 60),
    st.integers(1, 7),
)
def test_turns_are_fair(prefetches: list[int], count: int, together: int) -> None:
    """Nobody is two ahead of another that could have taken more; all is handed out once."""
    node = Node()
    publisher = node.connect()
    publisher.call(1, "queue.declare", queue="q")
    consumers = [consumer(node, prefetch) for prefetch in prefetches]
    for start in range(0, count, together):
        put(publisher, *range(start, min(start + together, count)))
    got = [numbers(one) for one in consumers]
    given_out = sorted(number for one in got for number in one)
    assert given_out == list(range(len(given_out)))
    for prefetch, mine in zip(prefetches, got, strict=True):
        assert mine == sorted(mine)
        assert prefetch == 0 or len(mine) <= prefetch
        most = max(map(len, got))
        assert len(mine) >= most - 1 or len(mine) == prefetch
    limit = sum(prefetches) if all(prefetches) else count
    assert len(given_out) == min(count, limit)


def test_a_consumer_that_goes_leaves_the_turns_whole(publisher: Peer) -> None:
    consumers = [consumer(publisher.node) for _ in range(4)]
    put(publisher, 0, 1)
    consumers[0].lose()
    put(publisher, *range(2, 11))
    # The message of the lost one came back first.
    got = [numbers(one) for one in consumers[1:]]
    assert sorted(number for one in got for number in one) == list(range(11))
    assert Counter(map(len, got)) == Counter({4: 2, 3: 1})


def test_a_long_queue_is_handed_out_in_slices(publisher: Peer) -> None:
    count = 2 * SLICE_MESSAGES + 5
    put(publisher, *range(count))
    assert numbers(consumer(publisher.node, no_ack=True)) == list(range(count))


# -- prefetch --------------------------------------------------------------------------------------


def test_prefetch_is_each_consumer_s(publisher: Peer) -> None:
    """Behaviour 56 (prefetch): it counts for the consumers that come later."""
    node = publisher.node
    peer = node.connect()
    for tag, prefetch in (("one", 1), ("three", 3)):
        peer.call(1, "basic.qos", prefetch_count=prefetch)
        peer.call(1, "basic.consume", queue="q", consumer_tag=tag)
    put(publisher, *range(9))
    assert Counter(got.consumer_tag for got in peer.take()) == {"one": 1, "three": 3}
    peer.send(method(1, "basic.ack", delivery_tag=4, multiple=True))
    assert Counter(got.consumer_tag for got in peer.take()) == {"one": 1, "three": 3}


def test_global_prefetch_is_the_channel_s(publisher: Peer) -> None:
    """Behaviour 56 (prefetch); both limits hold at once."""
    peer = publisher.node.connect(1, 2)
    peer.send(method(1, "basic.qos", prefetch_count=3, **{"global": True}))
    peer.expect(1, "basic.qos-ok")
    peer.call(1, "basic.qos", prefetch_count=2)
    for tag in ("a", "b"):
        peer.call(1, "basic.consume", queue="q", consumer_tag=tag)
    put(publisher, *range(9))
    assert numbers(peer) == [0, 1, 2]
    peer.send(method(1, "basic.ack", delivery_tag=1))
    assert numbers(peer) == [3]
    # Other channels are not concerned.
    peer.call(2, "basic.consume", queue="q", consumer_tag="c")
    assert numbers(peer) == [4, 5, 6, 7, 8]


def test_a_higher_global_prefetch_counts_at_once(publisher: Peer) -> None:
    peer = publisher.node.connect()
    for prefetch in (1, 3, 0):
        peer.send(method(1, "basic.qos", prefetch_count=prefetch, **{"global": True}))
        peer.expect(1, "basic.qos-ok")
        if prefetch == 1:
            peer.call(1, "basic.consume", queue="q")
            put(publisher, *range(6))
        assert numbers(peer) == {1: [0], 3: [1, 2], 0: [3, 4, 5]}[prefetch]


def test_the_global_credit_of_one_queue_serves_another(publisher: Peer) -> None:
    node = publisher.node
    publisher.call(1, "queue.declare", queue="r")
    peer = node.connect()
    peer.send(method(1, "basic.qos", prefetch_count=1, **{"global": True}))
    peer.expect(1, "basic.qos-ok")
    for queue in ("q", "r"):
        peer.call(1, "basic.consume", queue=queue)
    put(publisher, 0)
    publisher.send(publish(1, "", "r", b"1"))
    assert numbers(peer) == [0]
    peer.send(method(1, "basic.ack", delivery_tag=1))
    assert numbers(peer) == [1]


@pytest.mark.parametrize("whole", [False, True], ids=["consumer", "channel"])
def test_what_was_got_does_not_count_for_a_prefetch(publisher: Peer, whole: bool) -> None:
    """A prefetch bounds what the broker sends unasked, as in RabbitMQ."""
    put(publisher, *range(4))
    peer = publisher.node.connect()
    peer.call_get("q")
    peer.send(method(1, "basic.qos", prefetch_count=1, **{"global": whole}))
    peer.expect(1, "basic.qos-ok")
    peer.call(1, "basic.consume", queue="q")
    assert numbers(peer) == [1]
    peer.send(method(1, "basic.ack", delivery_tag=1))
    assert peer.take() == []
    peer.send(method(1, "basic.ack", delivery_tag=2))
    assert numbers(peer) == [2]


def test_without_acks_there_is_no_prefetch(publisher: Peer) -> None:
    """Behaviour 56 (prefetch)."""
    put(publisher, *range(4))
    assert numbers(consumer(publisher.node, 1, no_ack=True)) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["basic.reject", "basic.nack"])
def test_what_is_refused_is_credit_too(publisher: Peer, name: str) -> None:
    put(publisher, 0, 1)
    peer = consumer(publisher.node, 1)
    assert numbers(peer) == [0]
    peer.send(method(1, name, delivery_tag=1, requeue=False))
    assert numbers(peer) == [1]


def test_a_cancelled_consumer_s_messages_are_credit_for_nobody(publisher: Peer) -> None:
    """Behaviour 53 (basic.cancel): they stay unacked on the channel."""
    put(publisher, 0, 1)
    peer = publisher.node.connect()
    peer.call(1, "basic.qos", prefetch_count=1)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    assert numbers(peer) == [0]
    peer.call(1, "basic.cancel", consumer_tag="c")
    peer.send(method(1, "basic.ack", delivery_tag=1))
    assert peer.take() == []
    assert peer.call_get("q").body == b"1"


# -- consumers that get none -----------------------------------------------------------------------


def test_who_does_not_read_is_passed_over(publisher: Peer) -> None:
    node = publisher.node
    deaf, reader = consumer(node), consumer(node)
    deaf.reads = False
    large = publish(1, "", "q", bytes(OUTPUT_BYTES_HIGH))
    publisher.send(*[large] * 6)
    mine = len(reader.bodies())
    put(publisher, *range(10))
    assert numbers(reader) == list(range(10))
    deaf.read_on()
    assert mine + len(deaf.bodies()) == 6


def test_an_exclusive_consumer_is_alone(publisher: Peer) -> None:
    """Behaviour 52 (exclusive consumer)."""
    node = publisher.node
    text = "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"
    first = node.connect()
    first.call(1, "basic.consume", queue="q", consumer_tag="c", exclusive=True)
    for exclusive in (False, True):
        other = node.connect()
        other.send(method(1, "basic.consume", queue="q", exclusive=exclusive))
        closed = other.expect(1, "channel.close")
        assert (closed.code, closed.text) == (403, text)
    first.call(1, "basic.cancel", consumer_tag="c")
    second = consumer(node)
    first.send(method(1, "basic.consume", queue="q", exclusive=True))
    assert first.expect(1, "channel.close").code == 403
    put(publisher, 0)
    assert numbers(second) == [0]


def test_consume_ok_comes_before_the_first_delivery(publisher: Peer) -> None:
    """Behaviour 55 (consume-ok comes first)."""
    put(publisher, 0)
    publisher.send(method(1, "basic.consume", queue="q"))
    assert publisher.names() == ["basic.consume-ok", "basic.deliver"]


def test_nothing_comes_after_cancel_ok(publisher: Peer) -> None:
    """Behaviour 55 (consume-ok comes first)."""
    peer = consumer(publisher.node)
    tag = next(iter(next(iter(peer.connection.channels.by_number.values())).consumers))
    peer.call(1, "basic.cancel", consumer_tag=tag)
    put(publisher, 0)
    assert peer.take() == []
    assert not publisher.node.vhost.queues.existing(Name("q"), None).consumers


def test_a_consumer_tag_twice_is_a_hard_error(publisher: Peer) -> None:
    """Behaviour 51 (repeated consumer tag); another channel may use it."""
    peer = publisher.node.connect(1, 2)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.call(2, "basic.consume", queue="q", consumer_tag="c")
    peer.send(method(1, "basic.consume", queue="q", consumer_tag="c"))
    assert peer.expect(0, "connection.close").code == 530


@pytest.mark.parametrize("notify", [True, False])
def test_a_deleted_queue_cancels_its_consumers_where_they_want_to_know(
    publisher: Peer, notify: bool
) -> None:
    """Behaviour 54 (server cancels); the tag is free again, and what was out is forgotten."""
    node = publisher.node
    put(publisher, 0)
    peer = node.connect(consumer_cancel_notify=notify)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    assert numbers(peer) == [0]
    publisher.call(1, "queue.delete", queue="q")
    assert peer.names() == (["basic.cancel"] if notify else [])
    publisher.call(1, "queue.declare", queue="q")
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.send(method(1, "basic.ack", delivery_tag=1))
    put(publisher, 1)
    assert numbers(peer) == [1]
