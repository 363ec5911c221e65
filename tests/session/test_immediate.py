"""The flag `immediate`: a message is handed out now, or comes back with 313.

Where the broker says that it is RabbitMQ the flag is 540 (behaviour 17: immediate), see the
protocol's tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.session.settings import SessionSettings
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish


@pytest.fixture
def node() -> Node:
    """A broker that does not say that it is RabbitMQ."""
    return Node(settings=SessionSettings("test", compatible=False))


@pytest.fixture
def peer(node: Node) -> Peer:
    """A publisher with confirms on channel 1, another channel, and the queue `q`."""
    peer = node.connect(1, 2)
    peer.declare("q")
    peer.call(1, "confirm.select")
    return peer


def consume(peer: Peer, prefetch: int = 0, queue: str = "q", **arguments: Any) -> None:
    """Consume on channel 2."""
    peer.call(2, "basic.qos", prefetch_count=prefetch)
    peer.call(2, "basic.consume", queue=queue, arguments=arguments)


def now(key: str = "q", exchange: str = "", body: bytes = b"m", **values: Any) -> bytes:
    """A publish with the flag on channel 1."""
    return publish(1, exchange, key, body, immediate=True, **values)


def came(peer: Peer) -> list[str]:
    """What came, with the reply codes of returns."""
    peer.node.sync()
    return [f"{got.name} {got.code}" if "return" in got.name else got.name for got in peer.take()]


BACK = ["basic.return 313", "basic.ack"]


@pytest.mark.parametrize("mode", [1, 2])
def test_without_a_consumer_it_comes_back_before_its_confirm(peer: Peer, mode: int) -> None:
    peer.send(now(delivery_mode=mode))
    got = peer.take()
    assert [one.name for one in got] == ["basic.return", "basic.ack"]
    assert (got[0].code, got[0].text, got[0].body) == (313, "NO_CONSUMERS", b"m")
    assert peer.node.classic("q").ready_count() == 0


@pytest.mark.parametrize("mode", [1, 2])
def test_a_consumer_gets_it(peer: Peer, mode: int) -> None:
    consume(peer)
    peer.send(now(delivery_mode=mode))
    assert came(peer) == ["basic.deliver", "basic.ack"]


def test_what_has_no_room_in_the_prefetch_comes_back(peer: Peer) -> None:
    """Also among publishes that come in one piece."""
    consume(peer, 2)
    peer.send(*[now(body=b"%d" % number) for number in range(4)])
    got = peer.take()
    assert [one.body for one in got if one.name == "basic.deliver"] == [b"0", b"1"]
    assert [one.body for one in got if one.name == "basic.return"] == [b"2", b"3"]
    peer.send(method(2, "basic.ack", delivery_tag=1), now(body=b"4"))
    assert [one.body for one in peer.take() if one.name == "basic.deliver"] == [b"4"]


def test_what_waits_goes_first(peer: Peer) -> None:
    consume(peer, 1)
    peer.send(publish(1, "", "q", b"held"), publish(1, "", "q", b"waits"), now(body=b"late"))
    assert came(peer) == ["basic.deliver", "basic.ack", *BACK]
    peer.send(method(2, "basic.ack", delivery_tag=1), now(body=b"late"))
    # The turn of what waits: then there is no room again.
    assert came(peer) == ["basic.deliver", *BACK]


def test_consumers_keep_their_turns(peer: Peer) -> None:
    for _ in range(2):
        consume(peer, 10)
    peer.send(*[now() for _ in range(6)])
    tags = [one.consumer_tag for one in peer.take() if one.name == "basic.deliver"]
    assert len(set(tags)) == 2
    assert tags == tags[:2] * 3


def test_each_queue_judges_for_itself(peer: Peer) -> None:
    """It comes back only where no queue hands it out."""
    peer.declare("other")
    for queue in ("q", "other"):
        peer.call(1, "queue.bind", queue=queue, exchange="amq.fanout")
    consume(peer)
    peer.send(now("", "amq.fanout"))
    assert came(peer) == ["basic.deliver", "basic.ack"]
    assert peer.node.classic("other").ready_count() == 0


@pytest.mark.parametrize(("mandatory", "code"), [(False, 313), (True, 312)])
def test_mandatory_tells_what_no_queue_is_bound_for(peer: Peer, mandatory: bool, code: int) -> None:
    peer.send(now("nowhere", mandatory=mandatory))
    assert came(peer) == [f"basic.return {code}", "basic.ack"]
    peer.send(now("q", mandatory=mandatory))
    assert came(peer) == BACK


def test_one_active_consumer_counts_alone(peer: Peer) -> None:
    peer.declare("single", arguments={"x-single-active-consumer": True})
    consume(peer, 1, "single")
    consume(peer, 1, "single")
    peer.send(now("single"), now("single"))
    assert sorted(came(peer)) == ["basic.ack", "basic.ack", "basic.deliver", "basic.return 313"]
    assert peer.node.classic("single").ready_count() == 0


def test_a_stream_takes_it_where_somebody_reads(peer: Peer) -> None:
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.send(now("s"))
    assert came(peer) == BACK
    consume(peer, 5, "s")
    peer.send(now("s"))
    assert sorted(came(peer)) == ["basic.ack", "basic.deliver"]


def test_what_is_to_be_delayed_comes_back(peer: Peer) -> None:
    arguments = {"x-delayed-type": "direct"}
    peer.call(1, "exchange.declare", exchange="d", type="x-delayed-message", arguments=arguments)
    peer.call(1, "queue.bind", queue="q", exchange="d", routing_key="q")
    consume(peer)
    peer.send(now("q", "d", headers={"x-delay": 1000}))
    assert came(peer) == BACK
    peer.send(now("q", "d"))
    assert came(peer) == ["basic.deliver", "basic.ack"]


def test_copies_are_looked_at(peer: Peer) -> None:
    consume(peer)
    peer.send(now("nowhere", headers={"BCC": ["q"]}))
    assert came(peer) == ["basic.deliver", "basic.ack"]


def test_in_a_transaction_the_commit_decides(node: Node) -> None:
    peer = node.connect(1, 2)
    peer.declare("q")
    peer.call(1, "tx.select")
    peer.send(now(delivery_mode=2), method(1, "tx.commit"))
    assert came(peer) == ["basic.return 313", "tx.commit-ok"]
    peer.send(now(delivery_mode=2))
    consume(peer)
    peer.send(method(1, "tx.commit"))
    assert came(peer) == ["basic.deliver", "tx.commit-ok"]


def test_it_is_540_where_the_broker_says_that_it_is_rabbitmq() -> None:
    peer = Node().connect()
    peer.declare("q")
    peer.send(now())
    assert peer.expect(0, "connection.close").code == 540
