"""Any load of consumers and messages: handed out once, within bounds, in order."""

from __future__ import annotations

import random

import pytest

from support.node.core import Node, Peer
from support.node.variants import few_of
from support.wire.raw_codec import method, publish


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


def test_a_requeued_message_goes_to_whoever_is_ready(node: Node, publisher: Peer) -> None:
    """Behaviour 60 (recover)."""
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


@pytest.mark.parametrize("seed", few_of(range(20), 6))
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
        waiting = int(node.vhost.queues.by_name["q"].ready_count())
        assert len(held) == len(set(held))
        assert waiting + len(held) + len(done) == sent
        if waiting:
            assert all(len(out[taker]) == most for taker, most in takers.items())
    for taker in list(takers):
        taker.lose()
    rest = [int(publisher.call_get("q").body) for _ in range(sent - len(done))]
    assert rest == sorted(rest)
    assert sorted(rest + done) == list(range(sent))
