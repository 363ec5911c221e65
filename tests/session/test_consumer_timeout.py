"""Behaviour 64 (consumer timeout).

A delivery that is not settled in time ends its consumer, as in RabbitMQ 4.3.
"""

from __future__ import annotations

import pytest

from leveret.session.settings import SessionSettings
from leveret.session.stats import queue_consumers
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import decode_properties, method, publish

TEXT = (
    "PRECONDITION_FAILED - delivery acknowledgement on channel {} timed out. Timeout value used: "
    "{} ms. This timeout value can be configured, see consumers doc guide to learn more"
)


def make(setting: int, *, channels: tuple[int, ...] = (1,)) -> Peer:
    """A client of a broker with this `consumer_timeout_ms`."""
    node = Node(settings=SessionSettings("test", consumer_timeout_ms=setting))
    return node.connect(*channels)


def ticks(peer: Peer, seconds: int) -> None:
    """Let so many seconds pass, one by one."""
    for _ in range(seconds):
        peer.node.tick(1000)


def put(peer: Peer, queue: str, count: int) -> None:
    """Publish to a queue."""
    peer.send(*[publish(1, "", queue, b"%d" % number) for number in range(count)])


def test_without_a_limit_nothing_happens() -> None:
    peer = make(0)
    peer.call(1, "queue.declare", queue="q")
    put(peer, "q", 1)
    peer.call(1, "basic.consume", queue="q")
    assert peer.names() == ["basic.deliver"]
    ticks(peer, 100)
    assert peer.names() == []
    channel = peer.connection.channels.by_number[1]
    assert channel.consumer_timeout.notes == []


def settle(node: Node) -> None:
    """Let as much time pass that the time of the next delivery is noted at once."""
    for _ in range(2):
        node.tick(500)


def state(node: Node, queue: str = "q") -> tuple[int, int, int]:
    """How many messages of a queue wait and are unacked, and its consumers."""
    found = node.classic(queue)
    return int(found.ready_count()), int(found.unacked_count), len(found.consumers)


@pytest.mark.parametrize("how", ["get", "cancelled", "incapable"])
def test_who_cannot_be_told_by_a_cancel_loses_the_channel(how: str) -> None:
    node = Node(settings=SessionSettings("test", consumer_timeout_ms=10_000))
    peer = node.connect(1, 2, consumer_cancel_notify=how != "incapable")
    peer.call(1, "queue.declare", queue="q")
    put(peer, "q", 2)
    if how == "get":
        peer.send(method(2, "basic.get", queue="q"))
    else:
        peer.send(method(2, "basic.consume", queue="q", consumer_tag="c"))
    if how == "cancelled":
        peer.send(method(2, "basic.cancel", consumer_tag="c"))
    peer.take()
    node.tick(9999)
    assert peer.names() == []
    node.tick(1)
    closed = peer.expect(2, "channel.close")
    assert (closed.code, closed.text) == (406, TEXT.format(2, 10_000))
    assert (closed.class_id, closed.method_id) == (0, 0)
    assert state(node) == (2, 0, 0)
    # The other channel goes on.
    again = peer.call_get("q")
    assert (again.body, again.redelivered) == (b"0", True)


def test_one_consumer_is_cancelled_on_time_and_its_channel_goes_on() -> None:
    node = Node()
    peer = node.connect()
    limits = {"x-consumer-timeout": 1000, "x-queue-type": "quorum"}
    peer.declare("q", arguments=limits)
    peer.declare("other")
    put(peer, "q", 3)
    peer.call(1, "basic.qos", prefetch_count=2)
    for queue, tag in (("q", "late"), ("other", "good")):
        peer.send(method(1, "basic.consume", queue=queue, consumer_tag=tag, no_wait=True))
    assert peer.names() == ["basic.deliver"] * 2
    node.tick(400)
    peer.send(method(1, "basic.ack", delivery_tag=1))
    assert peer.names() == ["basic.deliver"]
    node.tick(599)
    assert peer.names() == []
    node.tick(1)
    cancel = peer.expect(1, "basic.cancel")
    assert (cancel.consumer_tag, cancel.no_wait) == ("late", True)
    # What is not late yet stays: it may be on its way to its ack.
    assert state(node) == (1, 1, 0)
    got = peer.call_get("q", no_ack=True)
    headers = decode_properties(got.properties)["headers"]
    assert (got.body, got.redelivered, headers) == (b"1", True, {"x-acquired-count": 1})
    node.tick(399)
    assert (peer.names(), state(node)) == ([], (0, 1, 0))
    node.tick(1)
    # Its consumer is gone already.
    assert (peer.names(), state(node)) == ([], (1, 0, 0))
    put(peer, "other", 1)
    assert peer.expect(1, "basic.deliver").consumer_tag == "good"


@pytest.mark.parametrize("how", ["ack", "reject", "nack", "close", "recover"])
@pytest.mark.parametrize("limit", [1, 2])
def test_a_late_ack_is_taken_once_and_does_nothing(how: str, limit: int) -> None:
    node = Node()
    peer = node.connect(1, 2)
    peer.declare("q", arguments={"x-consumer-timeout": 1000, "x-delivery-limit": limit - 1})
    put(peer, "q", 1)
    for count in range(3):
        settle(node)
        peer.call(1, "basic.consume", queue="q", consumer_tag="c")
        peer.expect(1, "basic.deliver")
        node.tick(1000)
        assert peer.expect(1, "basic.cancel").consumer_tag == "c"
        assert state(node) == (1, 0, 0)
        if how == "close":
            peer.call(1, "channel.close")
            peer.call(1, "channel.open")
        elif how == "recover":
            peer.call(1, "basic.recover", requeue=True)
        else:
            peer.send(method(1, f"basic.{how}", delivery_tag=count + 1))
        assert (peer.names(), state(node)) == ([], (1, 0, 0))
        assert peer.connection.unacked.bytes == 0
    if how == "ack":
        peer.send(method(1, "basic.ack", delivery_tag=3))
        assert peer.expect(1, "channel.close").code == 406


def test_a_consumer_has_a_limit_of_its_own() -> None:
    node = Node()
    peer = node.connect()
    peer.declare("q", arguments={"x-consumer-timeout": 1000})
    put(peer, "q", 2)
    peer.call(1, "basic.qos", prefetch_count=1)
    for tag, limit in (("long", 5000), ("short", 500)):
        arguments = {"x-consumer-timeout": limit}
        peer.send(method(1, "basic.consume", queue="q", consumer_tag=tag, arguments=arguments))
    peer.take()
    listed = queue_consumers(node.broker, "/", "q", 2)
    assert {one.tag: one.consumer_timeout_ms for one in listed} == {"long": 5000, "short": 500}
    node.tick(500)
    assert peer.expect(1, "basic.cancel").consumer_tag == "short"
    node.tick(4499)
    assert peer.names() == []
    node.tick(1)
    assert peer.expect(1, "basic.cancel").consumer_tag == "long"


@pytest.mark.parametrize("whose", ["queue", "consumer"])
def test_the_longest_limit_does_not_overflow_the_time(whose: str) -> None:
    node = Node()
    peer = node.connect()
    limits = {"x-consumer-timeout": 2**63 - 1}
    peer.declare("q", arguments=limits if whose == "queue" else {})
    peer.declare("short", arguments={"x-consumer-timeout": 1000})
    arguments = limits if whose == "consumer" else {}
    peer.send(method(1, "basic.consume", queue="q", arguments=arguments, no_wait=True))
    put(peer, "q", 1)
    assert peer.names() == ["basic.deliver"]
    ticks(peer, 2)
    assert 0 < peer.connection.channels.acks.deadline_ms < 2**63
    assert state(node) == (0, 1, 1)


def test_the_next_single_active_consumer_gets_what_the_late_one_gave_back() -> None:
    node = Node()
    peer = node.connect(1, 2)
    limits = {"x-consumer-timeout": 1000, "x-single-active-consumer": True}
    peer.declare("q", arguments=limits)
    for channel in (1, 2):
        consumer = {"queue": "q", "consumer_tag": f"{channel}", "no_wait": True}
        peer.send(method(channel, "basic.consume", **consumer))
    put(peer, "q", 2)
    assert [one.channel for one in peer.take()] == [1, 1]
    node.tick(1000)
    got = [(one.name, one.channel, one.body) for one in peer.take()]
    delivered = [("basic.deliver", 2, b"0"), ("basic.deliver", 2, b"1")]
    assert got == [("basic.cancel", 1, b""), *delivered]
    # Late acks change nothing for it.
    peer.send(method(1, "basic.ack", delivery_tag=2, multiple=True))
    assert (peer.names(), state(node)) == ([], (0, 2, 1))


@pytest.mark.parametrize(
    ("value", "why"), [("a", '"expected integer, got longstr"'), (-1, "{value_negative,-1}")]
)
def test_a_limit_of_a_consumer_that_is_none(value: object, why: str) -> None:
    peer = make(0)
    peer.call(1, "queue.declare", queue="q")
    arguments = {"x-consumer-timeout": value}
    peer.send(method(1, "basic.consume", queue="q", arguments=arguments))
    text = f"invalid arg 'x-consumer-timeout' for queue 'q' in vhost '/': {why}"
    assert peer.expect(1, "channel.close").text == f"PRECONDITION_FAILED - {text}"


def test_notes_of_a_delivery_that_may_stay_for_ever_are_few() -> None:
    peer = make(0)
    for queue, timeout in (("never", 0), ("short", 1000)):
        peer.call(1, "queue.declare", queue=queue, arguments={"x-consumer-timeout": timeout})
        peer.call(1, "basic.consume", queue=queue, consumer_tag=queue)
    put(peer, "never", 1)
    tag = peer.expect(1, "basic.deliver").delivery_tag
    for _ in range(2000):
        put(peer, "short", 1)
        tag = peer.expect(1, "basic.deliver").delivery_tag
        peer.node.tick(20)
        peer.send(method(1, "basic.ack", delivery_tag=tag))
    assert len(peer.connection.channels.by_number[1].consumer_timeout.notes) <= 512
    settle(peer.node)
    put(peer, "short", 1)
    peer.expect(1, "basic.deliver")
    peer.node.tick(1000)
    assert peer.expect(1, "basic.cancel").consumer_tag == "short"


def test_acks_in_time_keep_a_channel() -> None:
    """Each delivery's own age counts, not how long the channel has had some."""
    peer = make(5000)
    peer.call(1, "queue.declare", queue="q")
    peer.call(1, "basic.qos", prefetch_count=3)
    peer.call(1, "basic.consume", queue="q")
    put(peer, "q", 40)
    for tag in range(1, 31):
        peer.node.tick(1000)
        peer.send(method(1, "basic.ack", delivery_tag=tag))
    assert set(peer.names()) == {"basic.deliver"}
    assert len(peer.connection.channels.by_number[1].consumer_timeout.notes) <= 6
    ticks(peer, 6)
    assert peer.names() == ["basic.cancel"]


def test_one_old_delivery_among_new_ones_closes() -> None:
    peer = make(5000)
    peer.call(1, "queue.declare", queue="q")
    peer.call(1, "basic.qos", prefetch_count=3)
    peer.call(1, "basic.consume", queue="q")
    put(peer, "q", 40)
    for tag in range(2, 7):
        peer.node.tick(1000)
        peer.send(method(1, "basic.ack", delivery_tag=tag))
    names = peer.names()
    assert names[-2:] == ["basic.cancel"] or names.pop() == "basic.cancel"
    assert set(names) == {"basic.deliver"}


@pytest.mark.parametrize("setting", [0, 3000, 60_000])
def test_a_queue_s_own_limit_comes_before_the_setting(setting: int) -> None:
    peer = make(setting, channels=(1, 2, 3))
    for queue, timeout in (("short", 10_000), ("never", 0), ("long", 30_000)):
        arguments = {"x-consumer-timeout": timeout}
        peer.call(1, "queue.declare", queue=queue, arguments=arguments)
        put(peer, queue, 2)
    for channel, queues in ((2, ("never", "long")), (3, ("never", "short"))):
        peer.call(channel, "basic.qos", prefetch_count=1)
        for queue in queues:
            peer.call(channel, "basic.consume", queue=queue)
            assert peer.expect(channel, "basic.deliver").routing_key == queue
    for channel, moment in ((3, 10_000), (2, 20_000)):
        peer.node.tick(moment - 1)
        assert peer.names() == []
        peer.node.tick(1)
        peer.expect(channel, "basic.cancel")
        assert peer.names() == []


def test_marks_are_few_where_the_limit_is_long() -> None:
    peer = make(64 * 60_000)
    peer.call(1, "queue.declare", queue="q")
    peer.call(1, "basic.consume", queue="q")
    closed_after = 0
    for second in range(2 * 3600):
        put(peer, "q", 1)
        peer.node.tick(1000)
        if "basic.cancel" in peer.names():
            break
        closed_after = second
        assert len(peer.connection.channels.by_number[1].consumer_timeout.notes) <= 66
    assert closed_after + 2 == 64 * 60


def test_a_queue_s_limit_is_there_again_after_a_restart() -> None:
    node = Node()
    peer = node.connect()
    peer.declare("q", arguments={"x-consumer-timeout": 2000})
    again = Node(RecordingDisk(node.stop()))
    taker = again.connect()
    put(taker, "q", 1)
    taker.call(1, "basic.consume", queue="q")
    assert taker.names() == ["basic.deliver"]
    ticks(taker, 2)
    assert taker.names() == ["basic.cancel"]


@pytest.mark.parametrize("shares", [(16_384,), (8192, 8192)], ids=["one channel", "two"])
def test_a_late_ack_is_found_behind_very_many_that_may_be_late(shares: tuple[int, ...]) -> None:
    """More than a check looks at at once."""
    peer = make(0, channels=(1, 2, 3))
    for queue, timeout in (("never", 0), ("short", 10_000)):
        arguments = {"x-consumer-timeout": timeout}
        peer.call(1, "queue.declare", queue=queue, arguments=arguments)
    for channel, many in enumerate(shares, 2):
        peer.call(channel, "basic.consume", queue="never", consumer_tag=f"{channel}")
        for _ in range(many // 512):
            put(peer, "never", 512)
        assert peer.names() == ["basic.deliver"] * many
        peer.send(method(channel, "basic.cancel", consumer_tag=f"{channel}"))
        peer.take()
    peer.call(channel, "basic.consume", queue="short")
    put(peer, "short", 1)
    assert peer.names() == ["basic.deliver"]
    ticks(peer, 11)
    assert peer.names() == ["basic.cancel"]
