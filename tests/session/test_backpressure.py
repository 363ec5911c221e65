"""Backpressure both ways: peers that do not read, and publishers that are too fast.

A peer that does not read stops being fed; its output is bounded.  Publishers stand still while too
much waits for its sync or the memory alarm is on; what they sent is kept in order.
"""

from __future__ import annotations

import pytest

from leveret.limits import OUTPUT_BYTES_HIGH, OUTPUT_BYTES_MAX, UNSYNCED_BYTES_MAX
from leveret.names import Name
from leveret.session.states import CLOSED
from support.node.core import Node, Peer
from support.wire.raw_codec import BODY as BODY_FRAME
from support.wire.raw_codec import frame, header, method, publish

KIB = 1024
BODY = bytes(10 * KIB)
LARGE = bytes(100 * KIB)


def fill(node: Node, count: int, body: bytes = BODY) -> Peer:
    """Put messages into the transient queue `q`; return their publisher."""
    publisher = node.connect()
    publisher.call(1, "queue.declare", queue="q")
    publisher.send(*[publish(1, "", "q", body) for _ in range(count)])
    return publisher


# -- peers that do not read ------------------------------------------------------------------------


@pytest.mark.parametrize("body", [BODY, LARGE], ids=["through the writer", "apart"])
def test_a_consumer_that_does_not_read_stops_being_fed_and_goes_on(node: Node, body: bytes) -> None:
    count = 8 * OUTPUT_BYTES_HIGH // len(body)
    publisher = fill(node, count, body)
    consumer = node.connect()
    consumer.reads = False
    consumer.send(method(1, "basic.consume", queue="q", no_ack=True))
    held = len(consumer.waiting)
    assert OUTPUT_BYTES_HIGH < held < 2 * OUTPUT_BYTES_HIGH + 2 * len(body)
    # What others publish meanwhile waits in the queue, not in the output.
    publisher.send(publish(1, "", "q", body))
    assert len(consumer.waiting) == held
    consumer.read_on()
    consumer.expect(1, "basic.consume-ok")
    assert len(consumer.bodies()) == count + 1


def test_a_consumer_that_does_not_read_leaves_the_rest_to_others(node: Node) -> None:
    count = 8 * OUTPUT_BYTES_HIGH // len(BODY)
    fill(node, count)
    deaf, reader = node.connect(), node.connect()
    deaf.reads = False
    deaf.send(method(1, "basic.consume", queue="q", no_ack=True))
    reader.send(method(1, "basic.consume", queue="q", no_ack=True))
    reader.expect(1, "basic.consume-ok")
    theirs = len(reader.bodies())
    deaf.read_on()
    deaf.expect(1, "basic.consume-ok")
    assert theirs > count // 2
    assert theirs + len(deaf.bodies()) == count


def test_replies_to_a_peer_that_does_not_read_are_bounded(node: Node) -> None:
    """Its input waits instead, and is handled in order when it reads."""
    count = 20 * OUTPUT_BYTES_HIGH // len(LARGE)
    fill(node, count, LARGE)
    getter = node.connect()
    getter.reads = False
    getter.send(*[method(1, "basic.get", queue="q", no_ack=True)] * count, method(1, "basic.qos"))
    assert getter.connection.halted
    assert len(getter.waiting) < OUTPUT_BYTES_MAX + 2 * len(LARGE)
    getter.read_on()
    got = getter.take()
    assert [one.name for one in got] == ["basic.get-ok"] * count + ["basic.qos-ok"]
    assert [one.message_count for one in got[:-1]] == list(range(count - 1, -1, -1))


def test_a_peer_that_does_not_read_may_be_lost(node: Node) -> None:
    """What it held unacked returns, with what waited in its output."""
    count = 2 * OUTPUT_BYTES_HIGH // len(BODY)
    publisher = fill(node, count)
    consumer = node.connect()
    consumer.reads = False
    consumer.send(method(1, "basic.consume", queue="q"))
    consumer.lose()
    assert publisher.call(1, "queue.declare", queue="q", passive=True).message_count == count
    assert publisher.call_get("q").redelivered


# -- unsynced bytes --------------------------------------------------------------------------------


def unsynced_publisher(node: Node) -> Peer:
    """A publisher that sent three times what may wait for a sync, and then a qos."""
    peer = node.connect()
    peer.declare("q")
    peer.call(1, "confirm.select")
    count = 3 * UNSYNCED_BYTES_MAX // len(LARGE)
    one = publish(1, "", "q", LARGE, delivery_mode=2)
    peer.send(*[one] * count, method(1, "basic.qos"))
    return peer


def test_a_publisher_stands_still_above_the_unsynced_bytes(node: Node) -> None:
    peer = unsynced_publisher(node)
    assert UNSYNCED_BYTES_MAX < node.journal.unsynced_bytes < UNSYNCED_BYTES_MAX + 2 * len(LARGE)
    assert peer.connection.halted
    assert peer.take() == []
    before = peer.connection.published
    # More input is held as well.
    peer.send(publish(1, "", "q", b"later", delivery_mode=2))
    assert peer.connection.published == before
    node.sync()
    assert not peer.connection.halted
    got = peer.take()
    assert got[-1].delivery_tag == 3 * UNSYNCED_BYTES_MAX // len(LARGE) + 1
    assert [one.name for one in got].count("basic.qos-ok") == 1


def test_others_go_on_while_a_publisher_stands_still(node: Node) -> None:
    unsynced_publisher(node)
    other = node.connect()
    other.call(1, "basic.qos")
    assert other.call_get("q", no_ack=True).body == LARGE


def test_what_needs_no_sync_is_published_and_confirmed_meanwhile(node: Node) -> None:
    unsynced_publisher(node)
    other = node.connect()
    other.call(1, "queue.declare", queue="transient")
    other.call(1, "confirm.select")
    for number in range(1, 4):
        other.send(publish(1, "", "transient", b"x", delivery_mode=2))
        assert other.expect(1, "basic.ack").delivery_tag == number
        assert other.call_get("transient", no_ack=True).body == b"x"
    # One that needs a sync stands still with the rest.
    other.send(publish(1, "", "q", b"x", delivery_mode=2), method(1, "basic.qos"))
    assert other.connection.halted
    assert other.take() == []
    node.sync()
    assert other.names() == ["basic.ack", "basic.qos-ok"]


def test_one_sync_lets_a_publisher_go_on_as_far_as_it_made_room(node: Node) -> None:
    peer = unsynced_publisher(node)
    node.begin_sync()
    node.write()
    node.end_sync()
    assert peer.connection.halted
    assert UNSYNCED_BYTES_MAX < node.journal.unsynced_bytes < UNSYNCED_BYTES_MAX + 2 * len(LARGE)


def test_a_publisher_that_stands_still_may_be_lost(node: Node) -> None:
    peer = unsynced_publisher(node)
    peer.lose()
    node.sync()
    assert node.connect().connection.state != CLOSED
    assert peer.connection.state == CLOSED


def test_a_transaction_counts_when_it_is_committed(node: Node) -> None:
    peer = node.connect()
    peer.declare("q")
    peer.call(1, "tx.select")
    count = 2 * UNSYNCED_BYTES_MAX // len(LARGE)
    peer.send(*[publish(1, "", "q", LARGE, delivery_mode=2)] * count)
    assert peer.connection.published == count
    peer.send(method(1, "tx.commit"), *[publish(1, "", "q", LARGE, delivery_mode=2)] * 2)
    assert peer.take() == []
    node.sync()
    peer.expect(1, "tx.commit-ok")
    assert node.vhost.queues.existing(Name("q"), None).ready_count() == count


# -- what queues have no memory for ----------------------------------------------------------------


def test_a_publisher_stands_still_while_too_much_is_to_be_written(node: Node) -> None:
    """Its socket is read again by itself, though nothing is to be sent to it then."""
    node.hold_spill = True
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    one = publish(1, "", "s", bytes(1024 * KIB), delivery_mode=2)
    while not peer.connection.halted:
        peer.send(one)
        node.sync()
    # The next one is here but for its end.
    peer.send(one[:-100])
    before = peer.connection.published
    assert not peer.is_read
    assert node.write_batch()
    node.run()
    assert not peer.connection.halted
    peer.send(one[-100:])
    assert peer.connection.published == before + 1


# -- the memory alarm ------------------------------------------------------------------------------


@pytest.fixture
def small() -> Node:
    """A broker that blocks publishers above 100 KiB."""
    return Node(memory_bytes_max=100 * KIB)


def alarmed(small: Node, **capabilities: bool) -> Peer:
    """A publisher that raised the alarm and published once more."""
    peer = small.connect(**capabilities)
    peer.call(1, "queue.declare", queue="q")
    peer.send(publish(1, "", "q", LARGE))
    assert small.broker.blocked
    peer.send(publish(1, "", "q", b"one more"))
    return peer


def drain(small: Node) -> None:
    """Have another connection take the large message."""
    assert small.connect().call_get("q", no_ack=True).body == LARGE
    assert not small.broker.blocked


def test_a_publisher_is_blocked_once_and_unblocked_once(small: Node) -> None:
    """Behaviour 16 (alarms)."""
    peer = alarmed(small)
    blocked = peer.expect(0, "connection.blocked")
    assert blocked.reason == "low on memory"
    peer.send(*[publish(1, "", "q", b"held")] * 3, method(1, "basic.qos"))
    assert peer.take() == []
    assert small.vhost.queues.existing(Name("q"), None).ready_count() == 2
    drain(small)
    assert peer.names() == ["connection.unblocked", "basic.qos-ok"]
    assert small.vhost.queues.existing(Name("q"), None).ready_count() == 4


def test_without_the_capability_a_publisher_is_halted_in_silence(small: Node) -> None:
    """Behaviour 16 (alarms)."""
    peer = alarmed(small, **{"connection.blocked": False})
    peer.send(method(1, "basic.qos"))
    assert peer.take() == []
    drain(small)
    assert peer.names() == ["basic.qos-ok"]


@pytest.mark.parametrize("capable", [True, False])
def test_the_socket_is_read_again_when_the_alarm_ends(small: Node, capable: bool) -> None:
    peer = alarmed(small, **{"connection.blocked": capable})
    part = publish(1, "", "q", bytes(400 * KIB))[:-100]
    peer.send(part)
    assert not peer.is_read
    drain(small)
    assert peer.is_read


def test_who_does_not_publish_is_not_blocked(small: Node) -> None:
    alarmed(small)
    other = small.connect()
    other.call(1, "basic.qos")
    drain(small)
    assert other.take() == []


def test_a_publisher_that_comes_during_the_alarm_is_blocked_too(small: Node) -> None:
    alarmed(small)
    late = small.connect()
    late.send(publish(1, "", "q", b"late"))
    late.expect(0, "connection.blocked")
    drain(small)
    late.expect(0, "connection.unblocked")


def test_the_alarm_may_come_again(small: Node) -> None:
    peer = alarmed(small)
    peer.send(publish(1, "", "q", LARGE))
    small.connect().call_get("q", no_ack=True)
    assert small.broker.blocked
    peer.send(publish(1, "", "q", b"held"))
    assert peer.names() == ["connection.blocked", "connection.unblocked", "connection.blocked"]


@pytest.mark.in_memory
def test_the_alarm_ends_below_nine_tenths_only(small: Node) -> None:
    """So that it does not flicker at the watermark."""
    peer = small.connect()
    peer.call(1, "queue.declare", queue="q")
    peer.send(*[publish(1, "", "q", bytes(KIB))] * 90)
    held = small.broker.memory_bytes()
    getter = small.connect()
    while small.broker.blocked:
        held = small.broker.memory_bytes()
        getter.call_get("q", no_ack=True)
    assert small.broker.memory_bytes() <= 90 * KIB < held < 100 * KIB


def test_nothing_follows_connection_close_when_the_alarm_ends(small: Node) -> None:
    """AMQP 0-9-1 section 1.4.2.5: after close only its close-ok counts."""
    peer = alarmed(small)
    peer.connection.force("shutdown")
    small.run()
    drain(small)
    assert peer.names() == ["connection.blocked", "connection.close"]


def test_a_channel_error_behind_a_blocked_publish_waits_for_the_alarm_s_end(small: Node) -> None:
    peer = alarmed(small)
    peer.send(publish(1, "nowhere", "", b"x"), publish(1, "", "q", b"dropped"))
    drain(small)
    names = ["connection.blocked", "connection.unblocked", "channel.close"]
    assert peer.names() == names
    assert small.vhost.queues.existing(Name("q"), None).ready_count() == 1


def test_unacked_messages_count_for_the_alarm(small: Node) -> None:
    alarmed(small)
    taker = small.connect()
    taker.call_get("q")
    held = small.broker.blocked
    taker.send(method(1, "basic.ack", delivery_tag=1))
    assert (held, small.broker.blocked) == (True, False)


# -- both ways -------------------------------------------------------------------------------------


def test_frames_are_no_larger_than_agreed(node: Node) -> None:
    """Section 4.2.3: a body is split at the negotiated frame size."""
    fill(node, 1, LARGE)
    taker = node.dial()
    taker.login(frame_max=4096)
    taker.call(1, "channel.open")
    taker.call(1, "basic.consume", queue="q", consumer_tag="c")
    assert taker.bodies() == [LARGE]
    assert taker.inbox.frame_bytes_seen_max <= 4096


def test_all_publishers_together_are_bounded(node: Node) -> None:
    """Each that comes when the bound is reached adds one publish."""
    node.connect().declare("q")
    peers = [node.connect() for _ in range(5)]
    body = bytes(1024 * KIB)
    for peer in peers:
        peer.send(*[publish(1, "", "q", body, delivery_mode=2)] * 4)
    assert node.journal.unsynced_bytes < UNSYNCED_BYTES_MAX + (len(peers) + 1) * len(body)
    node.sync()
    assert node.classic("q").ready_count() == 20


def test_a_transaction_heeds_the_alarm_at_its_end(small: Node) -> None:
    """It is told at once, but one that stood still in the middle could never free its memory."""
    alarmed(small)
    peer = small.connect()
    peer.call(1, "tx.select")
    peer.send(*[publish(1, "", "q", b"held")] * 3)
    peer.expect(0, "connection.blocked")
    assert len(peer.connection.channels.by_number[1].transaction.publishes) == 3
    peer.send(method(1, "tx.commit"), publish(1, "", "q", b"later"), method(1, "basic.qos"))
    assert peer.names() == ["tx.commit-ok"]
    assert peer.connection.channels.by_number[1].transaction.publishes == []
    drain(small)
    assert peer.names() == ["connection.unblocked", "basic.qos-ok"]


def begun(channel: int, size: int, there: int) -> bytes:
    """A publish of `size` bytes of which `there` have come."""
    head = method(channel, "basic.publish", routing_key="q") + header(channel, size)
    return head + frame(BODY_FRAME, channel, bytes(there))


def test_incomplete_contents_raise_the_alarm_and_may_still_end(small: Node) -> None:
    peer, other = small.connect(), small.connect()
    peer.call(1, "queue.declare", queue="q")
    peer.send(begun(1, 120 * KIB, 110 * KIB))
    assert small.broker.blocked
    assert small.broker.memory_bytes() == 110 * KIB
    other.send(publish(1, "", "q", b"small"))
    other.expect(0, "connection.blocked")
    peer.send(frame(BODY_FRAME, 1, bytes(10 * KIB)), method(1, "basic.qos"))
    assert peer.names() == ["connection.blocked"]
    assert peer.connection.halted
    getter = small.connect()
    bodies = [len(getter.call_get("q", no_ack=True).body) for _ in range(2)]
    assert bodies == [5, 120 * KIB]
    assert (small.broker.blocked, small.broker.memory_bytes()) == (False, 0)
    assert peer.names() == ["connection.unblocked", "basic.qos-ok"]


@pytest.mark.parametrize("end", ["channel", "connection", "lost"])
def test_what_was_begun_and_given_up_is_free(small: Node, end: str) -> None:
    peer = small.connect(1, 2)
    peer.call(2, "queue.declare", queue="q")
    peer.call(2, "tx.select")
    peer.send(publish(2, "", "q", bytes(10 * KIB)), begun(1, 120 * KIB, 110 * KIB))
    assert small.broker.blocked
    if end == "channel":
        peer.send(frame(BODY_FRAME, 1, bytes(11 * KIB)))
        assert peer.expect(0, "connection.close").code == 505
    elif end == "connection":
        peer.connection.force("shutdown")
    else:
        peer.lose()
    small.run()
    assert (small.broker.blocked, small.broker.memory_bytes()) == (False, 0)


def test_there_is_an_end_to_what_may_come_in_spite_of_the_alarm(small: Node) -> None:
    """One and a half times the watermark: 506."""
    first, second = small.connect(), small.connect()
    first.send(begun(1, 150 * KIB, 110 * KIB))
    second.send(begun(1, 150 * KIB, 40 * KIB))
    assert small.broker.memory_bytes() == 150 * KIB
    assert second.take() == []
    second.send(frame(BODY_FRAME, 1, b"x"))
    assert second.expect(0, "connection.close").code == 506
    # Its memory is free, so the other goes on.
    first.send(frame(BODY_FRAME, 1, bytes(40 * KIB)), method(1, "basic.qos"))
    assert "channel.close" not in first.names()


def test_whole_messages_do_not_get_past_the_alarm_beside_an_incomplete_one(small: Node) -> None:
    peer = small.connect(1, 2)
    peer.call(1, "queue.declare", queue="q")
    peer.send(begun(2, 100 * KIB, KIB))
    peer.send(publish(1, "", "q", LARGE))
    assert small.broker.blocked
    peer.send(publish(1, "", "q", b"in between"))
    assert peer.names() == ["connection.blocked"]
    peer.send(publish(1, "", "q", LARGE))
    assert peer.expect(0, "connection.close").code == 506


def test_a_blocked_publisher_s_confirms_still_come(small: Node) -> None:
    peer = small.connect()
    peer.declare("d")
    peer.call(1, "confirm.select")
    alarmed(small)
    peer.send(publish(1, "", "d", b"m", delivery_mode=2))
    assert peer.names() == ["connection.blocked"]
    small.sync()
    assert peer.names() == ["basic.ack"]


def test_memory_that_a_deleted_queue_held_is_free(small: Node) -> None:
    alarmed(small)
    small.connect().call(1, "queue.delete", queue="q")
    assert not small.broker.blocked
    assert small.broker.memory_bytes() == 0
