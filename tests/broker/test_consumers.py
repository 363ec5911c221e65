"""Whose turn it is: round robin while consumers come and go, priorities, one active consumer.

Sources: behaviours 61 (single active consumer) and 62 (consumer priorities); the fairness is the
house's own promise.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.consumers.consumer import DeliveryChannel, QueueConsumer
from leveret.broker.consumers.order import ConsumerPriorities, RoundRobin
from leveret.broker.consumers.single_active import SingleActive
from leveret.message import Message
from support.node.core import Node
from support.wire.raw_codec import method, publish


class Silent(DeliveryChannel):
    """A channel whose client gets nothing."""

    def deliver(self, consumer: QueueConsumer, message: Message, sequence: int, count: int) -> None:
        """Send nothing."""

    def cancelled(self, consumer: QueueConsumer) -> None:
        """Send nothing."""

    def open_consumers(self) -> list[QueueConsumer]:
        """Name none, as no listing asks."""
        return []

    def has(self, consumer: QueueConsumer) -> bool:
        """Tell that it has not ended."""
        return True


def make(node: Node, priority: int = 0) -> QueueConsumer:
    """A consumer of a queue that nothing is published to."""
    link = node.connect().connection
    queue = node.vhost.queues.by_name["q"]
    consumer = QueueConsumer(Silent(link), queue, "c", True, False, 0, {})
    consumer.priority = priority
    return consumer


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["in", "out", "give"]), st.integers(0, 9))))
def test_turns_stay_equal_while_consumers_come_and_go(steps: list[tuple[str, int]]) -> None:
    """Of those that are there all along nobody gets two more than another."""
    node = Node()
    node.connect().call(1, "queue.declare", queue="q")
    consumers = [make(node) for _ in range(3)]
    stayed = list(consumers)
    turns = RoundRobin(consumers)
    given_to = dict.fromkeys(map(id, consumers), 0)
    for step, number in steps:
        if step == "in":
            consumer = make(node)
            consumers.append(consumer)
            given_to[id(consumer)] = 0
            assert turns.added(consumer) is turns
        elif step == "out":
            place = number % len(consumers)
            if consumers[place] not in stayed:
                gone = consumers.pop(place)
                assert turns.removed(gone, place) is turns
        else:
            for _ in range(number):
                taken = turns.next()
                assert taken is not None
                given_to[id(taken)] += 1
        counts = [given_to[id(consumer)] for consumer in stayed]
        assert max(counts) - min(counts) <= 1


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(-1, 1), st.integers(0, 9)), max_size=30))
def test_the_highest_priority_takes_turns(steps: list[tuple[bool, int, int]]) -> None:
    """Behaviour 62 (consumer priorities).

    Whoever is next has the highest priority of all, and equals are equal.
    """
    node = Node()
    node.connect().call(1, "queue.declare", queue="q")
    consumers: list[QueueConsumer] = []
    turns = RoundRobin(consumers)
    for add, priority, number in steps:
        if add or not consumers:
            consumer = make(node, priority)
            consumers.append(consumer)
            turns = turns.added(consumer)
        else:
            place = number % len(consumers)
            gone = consumers.pop(place)
            turns = turns.removed(gone, place)
        highest = [c for c in consumers if c.priority == max(c.priority for c in consumers)]
        several = len({c.priority for c in consumers}) > 1
        assert isinstance(turns, ConsumerPriorities) == several
        got = [turns.next() for _ in range(2 * len(highest))]
        assert sorted(map(id, got)) == sorted(map(id, highest * 2))
    for consumer in consumers:
        consumer.channel.link.writable = False
    assert turns.next() is None


def test_ten_consumers_get_equal_shares() -> None:
    """With equal prefetch and acks as they come, within one message."""
    node = Node()
    publisher = node.connect()
    publisher.call(1, "queue.declare", queue="q")
    takers = [node.connect() for _ in range(10)]
    for taker in takers:
        taker.call(1, "basic.qos", prefetch_count=10)
        taker.call(1, "basic.consume", queue="q")
    counts = [0] * len(takers)
    sent = 0
    while sent < 1003:
        batch = min(59, 1003 - sent)
        publisher.send(*[publish(1, "", "q", b"m")] * batch)
        sent += batch
        for place, taker in enumerate(takers):
            got = taker.take()
            counts[place] += len(got)
            if got:
                tag = got[-1].delivery_tag
                taker.send(method(1, "basic.ack", delivery_tag=tag, multiple=True))
    assert sum(counts) == sent
    assert max(counts) - min(counts) <= 1


def test_one_is_active_and_the_others_wait() -> None:
    """Behaviour 61 (single active consumer)."""
    node = Node()
    publisher = node.connect()
    publisher.call(1, "queue.declare", queue="q", arguments={"x-single-active-consumer": True})
    queue = node.classic("q")
    takers = [node.connect() for _ in range(3)]
    for taker in takers:
        taker.call(1, "basic.qos", prefetch_count=1)
        taker.call(1, "basic.consume", queue="q")
    assert isinstance(queue.consumer_order, SingleActive)
    assert [queue.consumer_order.is_active(consumer) for consumer in queue.consumers] == [
        True,
        False,
        False,
    ]
    publisher.send(publish(1, "", "q", b"0"), publish(1, "", "q", b"1"))
    assert takers[0].bodies() == [b"0"]
    # The second one ends before it ever got anything: the third still waits for the first.
    takers[0].call(1, "basic.cancel", consumer_tag=queue.consumers[0].tag)
    takers[1].lose()
    assert takers[2].take() == []
    takers[0].send(method(1, "basic.nack", delivery_tag=1, requeue=True))
    assert takers[2].bodies() == [b"0"]
    takers[2].send(method(1, "basic.ack", delivery_tag=1))
    assert takers[2].bodies() == [b"1"]
    takers[2].lose()
    assert queue.consumer_order.next() is None
    assert publisher.node.connect().call(1, "basic.consume", queue="q").consumer_tag


def test_a_new_active_consumer_gets_what_waits_at_once() -> None:
    """Behaviour 61 (single active consumer): nothing needs to be published for it."""
    node = Node()
    first, second = node.connect(), node.connect()
    first.call(1, "queue.declare", queue="q", arguments={"x-single-active-consumer": True})
    for taker in (first, second):
        taker.call(1, "basic.consume", queue="q", consumer_tag="c", no_ack=True)
    first.reads = False
    first.connection.writable = False
    first.send(publish(1, "", "q", b"0"))
    assert second.take() == []
    first.lose()
    assert second.bodies() == [b"0"]


def test_who_is_active_again_goes_on_with_what_it_holds() -> None:
    """Behaviour 61 (single active consumer).

    A higher priority that came and went before its turn changes nothing.
    """
    node = Node()
    low, high = node.connect(), node.connect()
    low.call(1, "queue.declare", queue="q", arguments={"x-single-active-consumer": True})
    low.call(1, "basic.qos", prefetch_count=2)
    low.call(1, "basic.consume", queue="q")
    low.send(publish(1, "", "q", b"0"))
    assert low.bodies() == [b"0"]
    high.call(1, "basic.consume", queue="q", arguments={"x-priority": 1})
    low.send(publish(1, "", "q", b"1"), publish(1, "", "q", b"2"))
    assert low.take() == high.take() == []
    high.lose()
    assert low.bodies() == [b"1"]
    low.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    assert low.bodies() == [b"2"]
