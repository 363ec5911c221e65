"""No request of a HareMQ client, and no end of one, does more in one call than it counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.scheduler.costs import SLICE
from leveret.limits import HAREMQ_LISTED_MAX
from leveret.names import Name
from support.costs.cost_gauge import PLAIN, Gauge
from support.node.core import Node
from support.node.variants import few_of
from support.wire.hare import HarePeer, frame
from support.wire.raw_codec import publish

QUERY = frame("basicQueryRequest", rid="r", cid="c1")


class Calls:
    """Makes calls into the core; each is judged by what it counts, and its lines by that."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.gauge = Gauge(counts_lines=PLAIN)

    def make(self, call: Callable[[], Any]) -> None:
        """Make a call."""
        self.gauge.measure("receive", self.node.core, call)

    def rest(self) -> None:
        """Have the core rest, which it did not."""
        assert not self.node.rests()
        self.node.run()

    def check(self) -> None:
        """Check that no call did more than it may, nor more than it counted."""
        assert self.gauge.counted == []


@pytest.fixture
def node() -> Node:
    """A broker on an empty disk in memory."""
    return Node()


@pytest.fixture
def calls(node: Node) -> Calls:
    """What measures calls."""
    return Calls(node)


def declare(node: Node, count: int) -> None:
    """Declare queues; none of their names is one that the user `limited` may read."""
    for number in range(count):
        node.vhost.queues.declare(None, Name(f"q{number}"), QueueAttributes())
    node.run()


def receive(peer: HarePeer, data: bytes) -> Callable[[], None]:
    """Return the call in which the broker receives bytes."""
    return lambda: peer.connection.receive(data, peer.node.now())


# -- queries ---------------------------------------------------------------------------------------


def test_a_query_that_finds_nothing_to_read_looks_in_parts(node: Node, calls: Calls) -> None:
    queues = 20_000
    declare(node, queues)
    node.add_user("limited", configure="", write="", read="^(mine|x)$")
    node.vhost.queues.declare(None, Name("mine"), QueueAttributes())
    peer = HarePeer(node, user="limited")
    assert peer.open()
    calls.make(receive(peer, QUERY * 3 + frame("openChannelRequest", rid="r", cid="c2")))
    assert peer.connection.halted != 0
    calls.rest()
    calls.check()
    # They are answered in their order, each whole.
    answers = [got.message for got in peer.inbox.got[-4:]]
    assert [answer.cid for answer in answers] == ["c1", "c1", "c1", "c2"]
    assert all("exists queues: mine\n" in answer.body for answer in answers[:3])


def test_queries_take_turns_by_what_they_look_at(node: Node, calls: Calls) -> None:
    declare(node, 1_000)
    node.add_user("limited", configure="", write="", read="^mine$")
    peer = HarePeer(node, user="limited")
    assert peer.open()
    calls.make(receive(peer, QUERY * 60))
    calls.check()
    assert peer.connection.answers.given < 5
    calls.rest()
    assert peer.connection.answers.given == 61


def test_a_query_names_so_many_bindings(node: Node, calls: Calls) -> None:
    declare(node, 10)
    peer = HarePeer(node)
    assert peer.open()
    for number in range(4 * HAREMQ_LISTED_MAX):
        node.vhost.exchanges.bind(
            Name("amq.direct"), Name("q0"), True, f"k{number}", {}, peer.connection
        )
    node.run()
    calls.make(receive(peer, QUERY))
    node.run()
    body = peer.inbox.got[-1].message.body
    assert body.count("<-->q0, binding_key: k") == HAREMQ_LISTED_MAX
    assert "and more" in body


def test_a_query_ends_with_its_connection(node: Node, calls: Calls) -> None:
    declare(node, 4_000)
    node.add_user("limited", configure="", write="", read="^mine$")
    peer = HarePeer(node, user="limited")
    assert peer.open()
    calls.make(receive(peer, QUERY))
    peer.lose()
    node.run()
    assert node.rests()


# -- the end of a connection -----------------------------------------------------------------------


@pytest.mark.parametrize("end", ["lost", "forced"])
def test_a_connection_with_many_channels_ends_in_parts(node: Node, calls: Calls, end: str) -> None:
    channels, each = 40, 300
    peer = HarePeer(node)
    for number in range(channels):
        assert peer.open(f"c{number}")
        assert peer.queue(f"q{number}", exclusive=number == 0)
        assert peer.consume(f"q{number}")
    amqp = node.connect()
    for number in range(1, channels):
        amqp.send(*[publish(1, "", f"q{number}", b"m")] * each)
    assert len(peer.pushes()) == (channels - 1) * each
    if end == "lost":
        node.peers.pop(peer.connection)
        calls.make(peer.connection.lost)
    else:
        calls.make(lambda: peer.connection.force("the operator closes it"))
    calls.check()
    # What has not come back yet is of no channel that could get more.
    assert node.classic("q1").unacked_count == each
    amqp.receive(publish(1, "", "q1", b"late"))
    calls.rest()
    for number in range(1, channels):
        queue = node.classic(f"q{number}")
        assert queue.unacked_count == 0
        assert queue.ready_count() == each + (number == 1)
        assert queue.consumers == []
    assert "q0" not in node.vhost.queues.by_name
    assert len(peer.shared.deliveries) == 0


# -- unbinding -------------------------------------------------------------------------------------


def bind_often(peer: HarePeer, count: int, *, durable: bool = False) -> None:
    """Declare `x` and `q`, with very many bindings between them and one of another exchange."""
    node = peer.node
    assert peer.exchange("x", 3, durable=durable)
    assert peer.queue("q", durable=durable)
    for number in range(count):
        node.vhost.exchanges.bind(Name("x"), Name("q"), True, f"k{number}", {}, None)
    assert peer.bind("amq.fanout", "q")
    node.sync()


def unbind(cid: str = "c1") -> bytes:
    return frame("unbindRequest", rid="u", cid=cid, exchange_name="x", queue_name="q")


def test_a_pair_with_very_many_bindings_is_unbound_in_parts(node: Node, calls: Calls) -> None:
    peer = HarePeer(node)
    assert peer.open()
    bindings = 4_000
    bind_often(peer, bindings, durable=True)
    calls.make(receive(peer, unbind() + QUERY))
    calls.check()
    assert node.vhost.exchanges.by_name["x"].bindings
    heard = len(peer.inbox.got)
    calls.rest()
    # It waits for the sync of all removals, and what follows it waits with it.
    assert len(peer.inbox.got) == heard
    node.sync()
    answers = peer.inbox.got[heard:]
    assert [answer.name for answer in answers] == ["basicCommonResponse", "basicQueryResponse"]
    assert answers[0].ok
    assert "x<-->q" not in answers[1].message.body
    assert "amq.fanout<-->q" in answers[1].message.body


def test_a_pair_is_unbound_while_others_change_it(node: Node, calls: Calls) -> None:
    """What is removed meanwhile, or deleted, is gone; what is bound meanwhile stays."""
    peer = HarePeer(node)
    assert peer.open()
    bind_often(peer, 3_000)
    calls.make(receive(peer, unbind()))
    assert peer.connection.halted != 0
    exchanges = node.vhost.exchanges
    for number in range(3_000):
        exchanges.unbind(Name("x"), Name("q"), True, f"k{number}", {}, None)
    exchanges.bind(Name("x"), Name("q"), True, "new", {}, None)
    calls.rest()
    assert peer.inbox.got[-1].ok
    assert [one.binding_key for one in exchanges.by_name["x"].bindings.values()] == ["new"]
    bind_often(peer, 3_000)
    calls.make(receive(peer, unbind()))
    node.vhost.queues.delete(None, Name("q"), False, False)
    calls.rest()
    assert peer.inbox.got[-1].ok
    assert not exchanges.by_name["x"].bindings
    calls.check()


def test_nothing_of_a_pair_is_unbound_where_one_key_may_not_be(node: Node) -> None:
    boss = HarePeer(node)
    assert boss.open()
    bind_often(boss, 5)
    node.add_user("limited", configure="", write=".*", read=".*")
    node.broker.users.set_topic_permission("limited", "/", "x", ".*", "^(|k[0-3])$")
    peer = HarePeer(node, user="limited")
    assert peer.open()
    assert not peer.call("unbindRequest", exchange_name="x", queue_name="q").ok
    assert len(node.vhost.exchanges.by_name["x"].bindings) == 5
    assert "topic 'k4'" in peer.connection.log[-1][1]


# -- ids -------------------------------------------------------------------------------------------


def test_nobody_makes_the_broker_look_for_an_id(node: Node, calls: Calls) -> None:
    count = 40_000
    peer = HarePeer(node)
    assert peer.open()
    assert peer.queue("q")
    assert peer.consume("q")
    assert peer.pushes() == []
    made = f"leveret-{node.classic('q').queue_id}-{count + 1}"
    amqp = node.connect()
    for first in range(0, count, 1_000):
        numbers = range(first, first + 1_000)
        ids = [f"{made}-{number}" if number else made for number in numbers]
        amqp.send(*[publish(1, "", "q", b"", message_id=one) for one in ids])
    assert len(peer.pushed()) == count
    calls.make(lambda: amqp.connection.receive(publish(1, "", "q", b""), node.now()))
    calls.make(node.broker.settle)
    node.run()
    assert peer.pushed()[-1].properties.id.startswith(made)
    # They are in no table that moves all of them when it grows.
    by_key = peer.shared.deliveries
    sizes = [len(part) for part in by_key.in_parts()]
    assert sum(sizes) == count + 1
    assert max(sizes) < 20_000
    calls.check()


def test_consumers_of_one_stream_have_ids_of_their_own(node: Node) -> None:
    peer = HarePeer(node)
    assert peer.open()
    assert peer.queue("s", durable=True, args={"x-queue-type": "stream"})
    for number in range(20):
        assert peer.open(f"c{number}")
        assert peer.consume("s")
    assert peer.pushes() == []
    amqp = node.connect()
    amqp.send(*[publish(1, "", "s", b"m", delivery_mode=2)] * 3)
    node.sync()
    ids = [push.properties.id for push in peer.pushes()]
    assert len(ids) == len(set(ids)) == 60
    for one in ids:
        assert peer.ack("s", one)
    assert len(peer.shared.deliveries) == 0


# -- long bodies -----------------------------------------------------------------------------------

LONG = 400_000

#: What is long on the wire, and the text that is pushed.
LONG_BODIES = {
    "ascii": b"b" * 4 * LONG,
    "text": "\u00e9\u20ac".encode() * LONG,
    "no text": b"\xff" * LONG,
    "a little": b"b" * 100_000 + b"\xe9" + b"b" * 4 * LONG,
}


@pytest.mark.parametrize("auto_ack", few_of([False, True], 1))
@pytest.mark.parametrize("body", LONG_BODIES.values(), ids=LONG_BODIES)
def test_long_bodies_are_pushed_in_parts_and_in_order(
    node: Node, calls: Calls, body: bytes, auto_ack: bool
) -> None:
    peer = HarePeer(node)
    assert peer.open()
    assert peer.queue("q")
    assert peer.consume("q", auto_ack=auto_ack)
    assert peer.pushes() == []
    amqp = node.connect()
    sent = [b"first", body, b"second", body, b"third"]
    node.tick()
    before = int(peer.connection.account.bytes)
    for number, one in enumerate(sent):
        amqp.receive(publish(1, "", "q", one, message_id=f"i{number}"))
    for _ in range(1_000):
        calls.gauge.measure("settle", node.core, node.broker.settle)
        for link in node.core.take_woken(100):
            node.peers[link].flush()
        if node.rests():
            break
    assert [push.body for push in peer.pushed()] == [one.decode("utf-8", "replace") for one in sent]
    assert calls.gauge.counted == []
    queue = node.classic("q")
    assert queue.unacked_count == (0 if auto_ack else len(sent))
    for number in range(len(sent)):
        assert peer.ack("q", f"i{number}")
    assert queue.unacked_count == queue.ready_count() == 0
    node.tick()
    assert peer.connection.account.bytes == before


@pytest.mark.parametrize("end", ["cancel", "close", "lost", "lost among many", "ack", "delete"])
def test_a_long_push_that_is_wanted_no_more_is_none(node: Node, end: str) -> None:
    peer, other = HarePeer(node), node.connect()
    assert peer.open()
    assert peer.queue("q")
    assert peer.consume("q", auto_ack=True)
    assert peer.pushes() == []
    size = 3 * LONG
    if end == "lost among many":
        # Its other channel is ended first, and in more slices than the push takes.
        size = 3 * LONG // 10
        assert peer.open("c2")
        assert peer.queue("many")
        assert peer.consume("many", cid="c2", tag="t2")
        other.send(publish(1, "", "many", b"m") * (10 * SLICE))
        peer.pushes()
    body = b"\xff" * size
    other.receive(publish(1, "", "q", body, message_id="i"))
    node.settle()
    assert peer.connection.preparing == 1
    assert peer.connection.account.bytes > size // 12
    second = HarePeer(node, peer.shared)
    fields: dict[str, Any] = {"rid": "r", "cid": "c1"}
    if end.startswith("lost"):
        peer.vanish()
        assert peer.connection.account.bytes == 0
    else:
        request = {
            "cancel": frame("basicCancelRequest", **fields, queue_name="q", consumer_tag="t"),
            "close": frame("closeChannelRequest", **fields),
            "ack": frame("basicAckRequest", **fields, queue_name="q", message_id="i"),
            "delete": frame("deleteQueueRequest", **fields, queue_name="q"),
        }[end]
        peer.receive(request)
    assert second.open()
    node.run()
    assert [push for push in peer.pushed() if push.cid == "c1"] == []
    assert peer.connection.preparing == 0
    assert len(peer.shared.deliveries) == 0
    if end not in ("ack", "delete"):
        assert second.consume("q")
        assert [push.body for push in second.pushes()] == ["\ufffd" * len(body)]
    elif end == "ack":
        assert node.classic("q").ready_count() == node.classic("q").unacked_count == 0
        assert peer.publish("", "next", "q")
        assert [push.body for push in peer.pushes()] == ["next"]
