"""Behaviour 64: a delivery that is not settled in time closes its channel."""

from __future__ import annotations

import pytest

from core import Node, Peer
from leveret.session.settings import SessionSettings
from leveret.store.disks.recording import RecordingDisk
from raw_codec import method, publish

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


@pytest.mark.parametrize("how", ["consume", "get"])
def test_the_setting_holds_for_every_queue(how: str) -> None:
    peer = make(10_000, channels=(1, 2))
    peer.call(1, "queue.declare", queue="q")
    put(peer, "q", 2)
    peer.send(method(2, f"basic.{how}", queue="q"))
    peer.take()
    ticks(peer, 10)
    assert peer.names() == []
    ticks(peer, 1)
    closed = peer.expect(2, "channel.close")
    assert (closed.code, closed.text) == (406, TEXT.format(2, 10_000))
    assert (closed.class_id, closed.method_id) == (0, 0)
    assert peer.node.classic("q").ready_count() == 2
    # The other channel goes on.
    again = peer.call_get("q")
    assert (again.body, again.redelivered) == (b"0", True)


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
    assert peer.names() == ["channel.close"]


def test_one_old_delivery_among_new_ones_closes() -> None:
    peer = make(5000)
    peer.call(1, "queue.declare", queue="q")
    peer.call(1, "basic.qos", prefetch_count=3)
    peer.call(1, "basic.consume", queue="q")
    put(peer, "q", 40)
    for tag in range(2, 7):
        peer.node.tick(1000)
        peer.send(method(1, "basic.ack", delivery_tag=tag))
    assert set(peer.names()) == {"basic.deliver"}
    ticks(peer, 1)
    assert peer.expect(1, "channel.close").code == 406


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
    ticks(peer, 10)
    assert peer.names() == []
    ticks(peer, 1)
    assert peer.expect(3, "channel.close").text == TEXT.format(3, 10_000)
    ticks(peer, 19)
    assert peer.names() == []
    ticks(peer, 1)
    assert peer.expect(2, "channel.close").text == TEXT.format(2, 30_000)


def test_marks_are_few_where_the_limit_is_long() -> None:
    peer = make(64 * 60_000)
    peer.call(1, "queue.declare", queue="q")
    peer.call(1, "basic.consume", queue="q")
    closed_after = 0
    for second in range(2 * 3600):
        put(peer, "q", 1)
        peer.node.tick(1000)
        if "channel.close" in peer.names():
            break
        closed_after = second
        assert len(peer.connection.channels.by_number[1].consumer_timeout.notes) <= 66
    assert 64 * 60 <= closed_after + 1 <= 65 * 60 + 1


def test_a_queue_s_limit_is_there_again_after_a_restart() -> None:
    node = Node()
    peer = node.connect()
    peer.declare("q", arguments={"x-consumer-timeout": 2000})
    again = Node(RecordingDisk(node.stop()))
    taker = again.connect()
    put(taker, "q", 1)
    taker.call(1, "basic.consume", queue="q")
    assert taker.names() == ["basic.deliver"]
    ticks(taker, 3)
    assert taker.names() == ["channel.close"]


def test_one_look_does_not_go_through_all_of_very_many() -> None:
    """What may wait for ever lies before what may not: the look after that comes to it."""
    peer = make(0, channels=(1, 2))
    for queue, timeout in (("never", 0), ("short", 10_000)):
        arguments = {"x-consumer-timeout": timeout}
        peer.call(1, "queue.declare", queue=queue, arguments=arguments)
        peer.call(2, "basic.consume", queue=queue)
    many = 16_384
    for _ in range(many // 512):
        put(peer, "never", 512)
    put(peer, "short", 1)
    assert peer.names() == ["basic.deliver"] * (many + 1)
    ticks(peer, 11)
    assert peer.names() == []
    ticks(peer, 1)
    assert peer.expect(2, "channel.close").text == TEXT.format(2, 10_000)
