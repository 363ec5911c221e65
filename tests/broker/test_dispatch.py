"""Who gets which message: fair turns, prefetch of consumers and channels, old places."""

from __future__ import annotations

import random

import pytest

from core import Node, Peer
from raw_codec import method, publish


def messages(start: int, end: int) -> bytes:
    """Publishes to `q`, each with its number as the body."""
    return b"".join(publish(1, "", "q", b"%d" % number) for number in range(start, end))


def consume(peer: Peer, *, channel: int = 1, tag: str = "c", **values: bool) -> None:
    """Consume `q`."""
    peer.call(channel, "basic.consume", queue="q", consumer_tag=tag, **values)


def numbers(peer: Peer) -> list[int]:
    """The bodies that came since the last look."""
    return [int(body) for body in peer.bodies()]


@pytest.fixture
def publisher(node: Node) -> Peer:
    """A client with the queue `q`."""
    peer = node.connect()
    peer.declare("q", durable=False)
    return peer


def test_consumers_take_turns(node: Node, publisher: Peer) -> None:
    takers = [node.connect() for _ in range(3)]
    for taker in takers:
        consume(taker, no_ack=True)
    publisher.send(messages(0, 9))
    assert [numbers(taker) for taker in takers] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    # The turn goes on where it was, batch after batch.
    publisher.send(messages(9, 10))
    publisher.send(messages(10, 12))
    assert [numbers(taker) for taker in takers] == [[9], [10], [11]]


def test_a_consumer_that_leaves_does_not_disturb_the_turns(node: Node, publisher: Peer) -> None:
    takers = [node.connect() for _ in range(3)]
    for taker in takers:
        consume(taker, no_ack=True)
    publisher.send(messages(0, 2))
    assert numbers(takers[1]) == [1]
    takers[1].call(1, "basic.cancel", consumer_tag="c")
    publisher.send(messages(2, 6))
    assert numbers(takers[1]) == []
    got = [numbers(takers[0]), numbers(takers[2])]
    assert sorted(got[0] + got[1]) == [0, 2, 3, 4, 5]
    assert abs(len(got[0]) - len(got[1])) <= 1


def test_prefetch_of_a_consumer(node: Node, publisher: Peer) -> None:
    """Behaviour 56: for consumers to come, each on its own."""
    taker = node.connect()
    taker.call(1, "basic.qos", prefetch_count=2)
    consume(taker, tag="two")
    taker.call(1, "basic.qos", prefetch_count=0)
    publisher.send(messages(0, 5))
    assert numbers(taker) == [0, 1]
    taker.send(method(1, "basic.ack", delivery_tag=2))
    assert numbers(taker) == [2]
    taker.send(method(1, "basic.ack", delivery_tag=3, multiple=True))
    assert numbers(taker) == [3, 4]


def test_prefetch_of_a_channel_counts_all_its_consumers(node: Node, publisher: Peer) -> None:
    publisher.declare("q2", durable=False)
    taker = node.connect()
    taker.call(1, "basic.qos", **{"prefetch_count": 3, "global": True})
    consume(taker, tag="a")
    taker.call(1, "basic.consume", queue="q2", consumer_tag="b")
    publisher.send(messages(0, 2), *[publish(1, "", "q2", b"%d" % n) for n in (10, 11, 12)])
    assert len(numbers(taker)) == 3
    taker.send(method(1, "basic.ack", delivery_tag=1))
    assert len(numbers(taker)) == 1
    # A change takes effect at once, for consumers that are there.
    taker.call(1, "basic.qos", **{"prefetch_count": 0, "global": True})
    assert len(numbers(taker)) == 1


def test_no_ack_consumers_ignore_prefetch(node: Node, publisher: Peer) -> None:
    taker = node.connect()
    taker.call(1, "basic.qos", prefetch_count=1)
    consume(taker, no_ack=True)
    publisher.send(messages(0, 5))
    assert numbers(taker) == [0, 1, 2, 3, 4]


def test_a_full_consumer_loses_its_turn_to_others(node: Node, publisher: Peer) -> None:
    full, free = node.connect(), node.connect()
    full.call(1, "basic.qos", prefetch_count=1)
    consume(full)
    consume(free, no_ack=True)
    publisher.send(messages(0, 6))
    assert numbers(full) == [0]
    assert numbers(free) == [1, 2, 3, 4, 5]


def test_requeued_messages_return_to_their_places(node: Node, publisher: Peer) -> None:
    """Behaviour 59: before newer ones, in the old order, whatever the order of the nacks."""
    taker = node.connect()
    publisher.send(messages(0, 6))
    for _ in range(4):
        taker.call_get("q")
    for tag in (3, 1):
        taker.send(method(1, "basic.reject", delivery_tag=tag, requeue=True))
    got = [taker.call_get("q", no_ack=True) for _ in range(4)]
    assert [(int(one.body), one.redelivered) for one in got] == [
        (0, True), (2, True), (4, False), (5, False),
    ]  # fmt: skip
    taker.send(method(1, "basic.recover", requeue=True))
    assert taker.names() == ["basic.recover-ok"]
    assert [int(taker.call_get("q").body) for _ in range(2)] == [1, 3]


def test_a_requeued_message_goes_to_whoever_is_ready(node: Node, publisher: Peer) -> None:
    """Behaviour 60."""
    first, second = node.connect(), node.connect()
    for taker in (first, second):
        taker.call(1, "basic.qos", prefetch_count=1)
        consume(taker)
    publisher.send(messages(0, 2))
    first.take()
    second.take()
    second.send(method(1, "basic.ack", delivery_tag=1))
    first.send(method(1, "basic.nack", delivery_tag=1, requeue=True))
    got = first.take() + second.take()
    assert [(one.body, one.redelivered) for one in got] == [(b"0", True)]


@pytest.mark.parametrize("seed", range(20))
def test_any_load_is_handed_out_once_and_within_bounds(seed: int) -> None:
    """Consumers with prefetches come, ack, nack and go; nothing is lost, doubled or overfed."""
    draw = random.Random(seed)
    node = Node(seed=seed)
    publisher = node.connect()
    publisher.declare("q", durable=False)
    takers: dict[Peer, int] = {}
    out: dict[Peer, dict[int, int]] = {}
    sent, done = 0, list[int]()
    for _ in range(300):
        step = draw.randrange(10)
        if step < 4:
            count = draw.randrange(1, 6)
            publisher.send(messages(sent, sent + count))
            sent += count
        elif step == 4 and len(takers) < 4:
            taker = node.connect()
            takers[taker] = draw.randrange(1, 5)
            out[taker] = {}
            taker.call(1, "basic.qos", prefetch_count=takers[taker])
            consume(taker)
        elif step == 5 and takers:
            taker = draw.choice(list(takers))
            taker.lose()
            del takers[taker], out[taker]
        elif takers:
            taker = draw.choice(list(takers))
            if out[taker]:
                tag = draw.choice(sorted(out[taker]))
                number = out[taker].pop(tag)
                requeue = draw.randrange(3) == 0
                if not requeue:
                    done.append(number)
                taker.send(method(1, "basic.nack", delivery_tag=tag, requeue=requeue))
        for taker, most in takers.items():
            for got in taker.take():
                out[taker][got.delivery_tag] = int(got.body)
            assert len(out[taker]) <= most
        held = sorted(number for tags in out.values() for number in tags.values())
        waiting = int(node.vhost.queues["q"].ready_count())
        assert len(held) == len(set(held))
        assert waiting + len(held) + len(done) == sent
        if waiting:
            assert all(len(out[taker]) == most for taker, most in takers.items())
    for taker in list(takers):
        taker.lose()
    rest = [int(publisher.call_get("q").body) for _ in range(sent - len(done))]
    assert rest == sorted(rest)
    assert sorted(rest + done) == list(range(sent))
