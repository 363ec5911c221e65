"""One message for thousands of queues, whatever brings it there: each comes in parts.

The plain publish is in `test_routing_cost.py`; here are dead letters, publishes that want a
consumer at once, alternate exchanges, and publishes of HareMQ.
"""

from __future__ import annotations

import pytest

from leveret.broker.scheduler.costs import SLICE
from leveret.limits import FAN_OUT_COPIES
from leveret.session.settings import SessionSettings
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.hare import HarePeer, frame
from support.wire.raw_codec import method, publish

QUEUES = 3 * FAN_OUT_COPIES + 100


@pytest.fixture
def node() -> Node:
    """A broker that knows the flag `immediate`."""
    return Node(settings=SessionSettings("test", compatible=False))


def fan_out(node: Node, *, durable: bool = False) -> list[str]:
    """Bind many queues to the exchange `all`, which is made; return their names."""
    peer = node.connect()
    peer.call(1, "exchange.declare", exchange="all", type="fanout", durable=durable)
    exchange = node.vhost.exchanges.by_name["all"]
    names = [f"f{number}" for number in range(QUEUES)]
    peer.send(
        *[method(1, "queue.declare", queue=name, durable=durable, no_wait=True) for name in names]
    )
    node.sync()
    for name in names:
        node.vhost.exchanges.restore_binding(exchange, name, True, "", {})
    peer.lose()
    return names


def test_what_thousands_of_streams_wait_for_is_shown_in_parts(node: Node) -> None:
    """One message for all of them is synced: each stream shows it, and a few thousand a turn."""
    peer = node.connect()
    peer.call(1, "exchange.declare", exchange="all", type="fanout", durable=True)
    exchange = node.vhost.exchanges.by_name["all"]
    names = [f"s{number}" for number in range(2 * SLICE + 100)]
    arguments = {"x-queue-type": "stream"}
    for name in names:
        peer.send(
            method(1, "queue.declare", queue=name, durable=True, no_wait=True, arguments=arguments)
        )
    node.sync()
    for name in names:
        node.vhost.exchanges.restore_binding(exchange, name, True, "", {})

    def shown() -> int:
        return sum(int(node.stream(name).visible_end) for name in names)

    peer.send(publish(1, "all", "", b"m"))
    node.rest()
    group = node.journal.seal()
    assert group is not None
    node.files.write(group)
    assert shown() == 0
    node.core.syncs.synced(group.number)
    assert 0 < shown() <= SLICE
    node.rest()
    assert shown() == len(names)


def copies(node: Node, names: list[str]) -> int:
    """How many messages all these queues have."""
    return sum(int(node.classic(name).ready_count()) for name in names)


def rejected(node: Node, count: int = 1, **arguments: object) -> Peer:
    """A peer that rejects messages of a queue whose dead letters go to `all`."""
    peer = node.connect(1, 2)
    settings = {"x-dead-letter-exchange": "all", **arguments}
    peer.declare("q", arguments=settings)
    peer.send(*[publish(2, "", "q", b"%d" % number, delivery_mode=2) for number in range(count)])
    node.sync()
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.take()
    request = method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=False)
    peer.receive(request)
    return peer


def test_a_letter_comes_to_many_queues_in_parts(node: Node) -> None:
    names = fan_out(node)
    rejected(node, 2)
    seen = [copies(node, names)]
    while not node.rests():
        node.settle()
        seen.append(copies(node, names))
    assert len([count for count in seen if 0 < count < 2 * QUEUES]) >= 3
    assert seen[-1] == 2 * QUEUES
    # The first letter is everywhere before the second one is anywhere.
    assert all(
        [item.message.body for item in node.classic(name).ready.waiting()] == [b"0", b"1"]
        for name in (names[0], names[-1])
    )
    assert node.classic("q").ready_count() + node.classic("q").unacked_count == 0
    assert node.classic("q").out.count == 0


def test_one_part_of_a_letter_is_a_turn(node: Node) -> None:
    names = fan_out(node)
    rejected(node)
    node.settle()
    assert copies(node, names) == FAN_OUT_COPIES
    assert not node.rests()


def test_a_crash_between_two_parts_loses_nothing(node: Node) -> None:
    """The message is in its old queue again; those that had its letter have another one."""
    names = fan_out(node, durable=True)
    rejected(node)
    node.settle()
    group = node.journal.seal()
    assert group is not None
    node.files.write(group)
    again = Node(RecordingDisk(node.image()))
    assert again.classic("q").ready_count() == 1
    assert copies(again, names) == FAN_OUT_COPIES
    node.rest()
    node.core.syncs.synced(group.number)
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert again.classic("q").ready_count() == 0
    assert copies(again, names) == QUEUES


def test_a_stop_ends_a_letter_that_is_under_way(node: Node) -> None:
    names = fan_out(node, durable=True)
    rejected(node)
    node.settle()
    node.broker.journal_stop(node.clock.wall_ms())
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert again.classic("q").ready_count() == 0
    assert copies(again, names) == QUEUES


def test_queues_that_are_deleted_between_two_parts_are_left_out(node: Node) -> None:
    names = fan_out(node)
    rejected(node)
    node.settle()
    other = node.connect()
    other.send(method(1, "queue.delete", queue=names[-1], no_wait=True))
    node.run()
    assert copies(node, names[:-1]) == QUEUES - 1
    assert node.core.memory.held_messages == QUEUES - 1


def test_a_letter_waits_for_a_full_queue_between_two_parts(node: Node) -> None:
    """With at-least-once it is everywhere in the end, and its old queue keeps it until then."""
    names = fan_out(node)
    peer = node.connect()
    peer.send(method(1, "queue.delete", queue=names[-1], no_wait=True))
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    peer.declare(names[-1], durable=False, arguments=limits)
    exchange = node.vhost.exchanges.by_name["all"]
    node.vhost.exchanges.restore_binding(exchange, names[-1], True, "", {})
    strategy = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    rejected(node, 1, **strategy)
    node.settle()
    peer.send(publish(1, "", names[-1], b"full"))
    node.run()
    assert node.classic("q").out.count == 1
    assert copies(node, names[:-1]) < QUEUES - 1
    assert peer.call_get(names[-1], no_ack=True).body == b"full"
    node.tick(10_000)
    assert copies(node, names) == QUEUES
    assert node.classic("q").out.count == 0


def test_a_letter_of_a_transaction_goes_on_after_it(node: Node) -> None:
    names = fan_out(node, durable=True)
    peer = node.connect(1, 2)
    peer.declare("q", arguments={"x-dead-letter-exchange": "all"})
    peer.send(publish(2, "", "q", b"m", delivery_mode=2))
    node.sync()
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.take()
    peer.call(1, "tx.select")
    peer.send(method(1, "basic.nack", delivery_tag=1, requeue=False))
    peer.receive(method(1, "tx.commit"))
    assert 0 < copies(node, names) < QUEUES
    node.run()
    node.sync()
    assert copies(Node(RecordingDisk(node.image())), names) == QUEUES


@pytest.mark.parametrize("confirms", [False, True])
def test_a_publish_that_wants_consumers_asks_many_queues_in_parts(
    node: Node, confirms: bool
) -> None:
    names = fan_out(node)
    taker = node.connect()
    for name in (names[0], names[-1]):
        taker.call(1, "basic.consume", queue=name, no_ack=True)
    peer = node.connect()
    if confirms:
        peer.call(1, "confirm.select")
    node.settle()
    declare = method(1, "queue.declare", queue="after", no_wait=True)
    peer.receive(publish(1, "all", "", b"now", immediate=True) + declare)
    assert "after" not in node.vhost.queues.by_name
    node.run()
    assert "after" in node.vhost.queues.by_name
    assert taker.bodies() == [b"now", b"now"]
    assert copies(node, names) == 0
    assert peer.names() == (["basic.ack"] if confirms else [])
    taker.lose()
    peer.send(publish(1, "all", "", b"now", immediate=True))
    back, *rest = peer.take()
    assert (back.name, back.code) == ("basic.return", 313)
    assert len(rest) == (1 if confirms else 0)


def test_what_an_alternate_exchange_takes_comes_in_parts(node: Node) -> None:
    names = fan_out(node)
    peer = node.connect()
    arguments = {"alternate-exchange": "all"}
    peer.call(1, "exchange.declare", exchange="first", type="direct", arguments=arguments)
    node.settle()
    peer.receive(publish(1, "first", "nowhere", b"m"))
    assert 0 < copies(node, names) < QUEUES
    node.run()
    assert copies(node, names) == QUEUES


@pytest.mark.parametrize("mode", [1, 2])
def test_a_publish_of_haremq_comes_to_many_queues_in_parts(node: Node, mode: int) -> None:
    names = fan_out(node, durable=True)
    hare = HarePeer(node)
    assert hare.open()
    properties = {"delivery_mode": mode, "routing_key": ""}
    node.settle()
    request = frame(
        "basicPublishRequest", rid="p", cid="c1", exchange_name="all", body="m",
        properties=properties,
    )  # fmt: skip
    after = frame("declareQueueRequest", rid="d", cid="c1", queue_name="after")
    hare.receive(request + after)
    assert 0 < copies(node, names) < QUEUES
    assert "after" not in node.vhost.queues.by_name
    count = len(hare.inbox.got)
    node.run()
    assert copies(node, names) == QUEUES
    if mode == 2:
        assert hare.inbox.got[count:] == []
    node.sync()
    answers = hare.inbox.got[count:]
    assert [one.message.rid for one in answers] == ["p", "d"]
    assert all(one.ok for one in answers)


def test_a_fan_out_of_haremq_goes_on_when_its_publisher_is_lost(node: Node) -> None:
    names = fan_out(node)
    hare = HarePeer(node)
    assert hare.open()
    node.settle()
    request = frame(
        "basicPublishRequest", rid="p", cid="c1", exchange_name="all", body="m",
        properties={"delivery_mode": 1, "routing_key": ""},
    )  # fmt: skip
    hare.receive(request)
    assert copies(node, names) < QUEUES
    hare.vanish()
    node.run()
    assert copies(node, names) == QUEUES
    assert node.rests()
