"""Very many consumers of one queue cost each of its operations little, whoever has credit."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from leveret.broker.consumers.consumer import DeliveryChannel, QueueConsumer
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.costs import SLICE
from leveret.errors import PreconditionFailed
from leveret.limits import CONSUMERS_PER_QUEUE_MAX, SLICE_MESSAGES
from leveret.message import Message
from leveret.session.stats import channels, consumers, queue_consumers
from support.node.core import Node, Peer
from support.node.variants import few_of
from support.wire.raw_codec import method, publish

MANY = 2_000
MESSAGES = 500


class Taking(DeliveryChannel):
    """A channel whose client takes what it gets and acks nothing."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.connect().connection)
        #: The tags of those that got a message, in order.
        self.tags: list[str] = []

    def deliver(self, consumer: QueueConsumer, message: Message, sequence: int, count: int) -> None:
        """Note who got it."""
        consumer.unacked_count += 1
        self.unacked_count += 1
        self.tags.append(consumer.tag)

    def cancelled(self, consumer: QueueConsumer) -> None:
        """Send nothing."""

    def open_consumers(self) -> list[QueueConsumer]:
        """Name none, as no listing asks."""
        return []

    def has(self, consumer: QueueConsumer) -> bool:
        """Tell that it has not ended."""
        return True


class Asked(QueueConsumer):
    """A consumer that notes how often it is asked."""

    asked = 0

    def ready(self) -> bool:
        Asked.asked += 1
        return super().ready()


@pytest.fixture
def node() -> Node:
    return Node()


def consume(
    queue: Queue, channel: Taking, counts: list[int], priorities: list[int] | None = None
) -> list[QueueConsumer]:
    """Subscribe a consumer for each of these counts; their tags are their places."""
    made: list[QueueConsumer] = []
    for place, credit in enumerate(counts):
        consumer = Asked(channel, queue, str(place), False, False, credit, {})
        if priorities is not None:
            consumer.priority = priorities[place]
        queue.subscribe(consumer, "queue 'q'")
        made.append(consumer)
    return made


def queue_with(node: Node, messages: int, **arguments: object) -> ClassicQueue:
    """Queue `q` with so many messages."""
    peer = node.connect()
    peer.declare("q", arguments={name.replace("_", "-"): at for name, at in arguments.items()})
    peer.send(*[publish(1, "", "q", b"m")] * messages)
    return node.classic("q")


def test_one_with_credit_among_many_without_gets_all_without_asking_them_each_time(
    node: Node,
) -> None:
    queue, channel = queue_with(node, MESSAGES), Taking(node)
    made = consume(queue, channel, [1] * MANY + [MESSAGES])
    for consumer in made[:-1]:
        consumer.unacked_count = 1
    Asked.asked = 0
    queue.dispatch(SLICE_MESSAGES)
    assert channel.tags == [str(MANY)] * MESSAGES
    # All once, some before that was known, and the one for each message.
    assert Asked.asked <= MANY + MESSAGES + 100


def test_those_behind_many_that_share_the_credit_of_a_channel_get_what_is_left(node: Node) -> None:
    """More of these can take a message than are asked at once, until the first one has it."""
    queue, sharing, others = queue_with(node, 3), Taking(node), Taking(node)
    sharing.prefetch_count = 1
    made = consume(queue, sharing, [1] * 200)
    for consumer in made[:100]:
        consumer.unacked_count = 1
    consume(queue, others, [1] * 200)

    assert queue.dispatch(4)
    assert sharing.tags == ["100"]
    assert not queue.dispatch(4)
    assert others.tags == ["0", "1"]


@pytest.mark.parametrize("seed", few_of(range(20), 6))
def test_the_order_is_that_of_asking_each_in_turn(node: Node, seed: int) -> None:
    """A naive walk in a circle, for each message and in each priority, gives the same order."""
    chance = random.Random(seed)
    size = chance.choice([3, 60, 70, 200, 500])
    priorities = [chance.randrange(chance.choice([1, 2, 30])) for _ in range(size)]
    counts = [chance.choice([1, 1, 1, 2, 9]) for _ in range(size)]
    queue, channel = queue_with(node, 0), Taking(node)
    made = consume(queue, channel, counts, priorities)
    left = [chance.choice([0, 0, 0, credit]) for credit in counts]
    for consumer, credit, room in zip(made, counts, left, strict=True):
        consumer.unacked_count = credit - room
    places = dict.fromkeys(priorities, 0)
    expected: list[str] = []
    waiting = 0
    for _ in range(12):
        more = chance.randrange(1, 40)
        node.connect().send(*[publish(1, "", "q", b"m")] * more)
        waiting += more
        while waiting and (taken := naive_next(priorities, left, places)):
            expected += taken
            waiting -= 1
        assert channel.tags == expected
        for given in chance.sample(range(size), chance.randrange(size // 2 + 1)):
            made[given].unacked_count -= 1
            left[given] += 1


def naive_next(priorities: list[int], left: list[int], places: dict[int, int]) -> list[str]:
    """The next one by asking each in turn, and what is left to it; nobody where none has credit."""
    for priority in sorted(places, reverse=True):
        tier = [place for place, own in enumerate(priorities) if own == priority]
        for tried in range(len(tier)):
            at = (places[priority] + tried) % len(tier)
            if left[tier[at]] > 0:
                left[tier[at]] -= 1
                places[priority] = at + 1
                return [str(tier[at])]
    return []


@pytest.mark.parametrize("single", [False, True])
def test_the_end_of_each_of_many_costs_little(node: Node, single: bool) -> None:
    """Wherever it stands in the list, and though the active one ends each time."""
    arguments = {"x_single_active_consumer": True} if single else {}
    queue, channel = queue_with(node, 0, **arguments), Taking(node)
    made = consume(queue, channel, [1] * MANY, [place % 500 for place in range(MANY)])
    by_priority = sorted(made, key=lambda consumer: -consumer.priority)
    Asked.asked = 0
    for consumer in by_priority:
        if single:
            assert queue.consumer_order.is_active(consumer)
        queue.unsubscribe(consumer)
    assert Asked.asked <= MANY
    assert not queue.consumers


def test_a_queue_has_so_many_consumers_and_no_more(node: Node) -> None:
    queue, channel = queue_with(node, 0), Taking(node)
    made = consume(queue, channel, [1] * int(CONSUMERS_PER_QUEUE_MAX))
    with pytest.raises(PreconditionFailed, match="queue 'q' has 65535 consumers"):
        consume(queue, channel, [1])
    queue.unsubscribe(made[100])
    consume(queue, channel, [1])
    peer = node.connect()
    peer.send(method(1, "basic.consume", queue="q"))
    assert "can have no more: cancel some" in peer.expect(1, "channel.close").text


def test_the_list_of_consumers_leaves_out_those_that_end_meanwhile() -> None:
    node = Node()
    peer = node.connect(1, 2)
    peer.declare("q")
    peer.send(
        *[
            method(1, "basic.consume", queue="q", consumer_tag=f"c{at}", no_wait=True)
            for at in range(MANY)
        ]
    )
    peer.call(2, "basic.consume", queue="q", consumer_tag="other")
    listing = (one for one in consumers(node.broker) if one is not None)
    found = [(one.number, one.tag) for one in islice(listing, 100)]
    assert len(found) == 100
    # What ends meanwhile is not shown any more.
    for at in range(100, MANY, 2):
        peer.send(method(1, "basic.cancel", consumer_tag=f"c{at}", no_wait=True))
    found += [(one.number, one.tag) for one in listing]
    left = [(1, f"c{at}") for at in range(MANY) if at < 100 or at % 2]
    assert found == [*left, (2, "other")]


def test_the_list_of_consumers_tells_of_channels_without_any() -> None:
    """So a look at some of it ends, however many channels there are without consumers."""
    node = Node()
    peer = node.connect(*range(1, 500))
    peer.declare("q")
    peer.call(499, "basic.consume", queue="q", consumer_tag="c")
    looked = list(islice(consumers(node.broker), 100))
    assert looked == [None] * 100
    assert [one.tag for one in consumers(node.broker) if one is not None] == ["c"]


def test_one_queue_and_one_channel_are_shown_with_some_of_their_consumers() -> None:
    node = Node()
    peer = node.connect(1, 2)
    peer.declare("q")
    for at in range(20):
        peer.call(1 + at % 2, "basic.consume", queue="q", consumer_tag=f"c{at}")
    shown = queue_consumers(node.broker, "/", "q", 5)
    assert [one.tag for one in shown] == [f"c{at}" for at in range(5)]
    second = next(one for one in channels(node.broker) if one is not None and one.number == 2)
    assert [(one.number, one.tag) for one in second.first_consumers(5)] == [
        (2, f"c{at}") for at in range(1, 10, 2)
    ]
    peer.call(2, "channel.close")
    assert second.first_consumers(5) == []


# -- a client that reads on ------------------------------------------------------------------------


def stop_reading(peer: Peer) -> None:
    """Have the transport of a client full."""
    peer.connection.flushed(True)
    assert not peer.connection.writable


def test_a_client_that_reads_on_has_its_consumers_looked_at_in_turns() -> None:
    """Also where it stops and reads on before the end: all have what came meanwhile."""
    count = int(SLICE)
    node = Node()
    peer = node.connect(*range(1, 11))
    peer.declare("q")
    queue = node.classic("q")
    for channel in peer.connection.channels.by_number.values():
        for number in range(count):
            tag = f"c{number}"
            channel.consumers[tag] = QueueConsumer(channel, queue, tag, True, False, 0, {})
    peer.declare("last")
    peer.send(method(10, "basic.consume", queue="last", consumer_tag="last", no_ack=True))
    peer.expect(10, "basic.consume-ok")
    other = node.connect()
    stop_reading(peer)
    node.judged(lambda: peer.connection.flushed(False))
    other.receive(publish(1, "", "last", b"m"))
    # Once more: another walk follows, and does not keep this one from its end.
    stop_reading(peer)
    node.judged(lambda: peer.connection.flushed(False))
    assert not node.rests()
    node.run()
    assert peer.bodies() == [b"m"]


def test_a_client_that_reads_on_has_all_partitions_of_its_consumers_looked_at_in_turns() -> None:
    count, consumers = 32, 60
    node = Node()
    peer = node.connect()
    arguments = {"x-super-stream-partitions": count}
    peer.declare("s", arguments=arguments)
    node.sync()
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=1)
    for number in range(consumers):
        tag = f"c{number}"
        reader.send(method(1, "basic.consume", queue="s", consumer_tag=tag, no_wait=True))
    node.sync()
    stop_reading(reader)
    peer.receive(publish(1, "s", "key", b"m"))
    node.judged(lambda: reader.connection.flushed(False))
    assert not any(node.stream(f"s-{number}").scheduled for number in range(count))
    node.sync()
    reader.flush()
    assert reader.bodies() == [b"m"] * consumers
