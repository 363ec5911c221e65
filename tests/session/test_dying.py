"""Expiry, limits, priorities and dead letters on a clock that a test moves, across crashes.

The wire side of it is in `tests/protocol`; here are exact moments and what a disk holds.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.queue.dead_letters import DEAD_LETTER_RETRY_MS
from leveret.limits import SLICE_MESSAGES
from leveret.store.disks.recording import RecordingDisk
from leveret.store.records.record import RETAINED_COUNT
from leveret.store.records.returns import (
    FAILURES_COUNTED_MAX,
    MAYBE_DELIVERED,
    RETURNS_COUNTED_MAX,
    acquisitions,
    failures,
    once_more,
)
from support.node.core import Node, Peer, all_waiting, held
from support.wire.raw_codec import decode_properties, method, publish


def put(queue: str, body: bytes, **properties: Any) -> bytes:
    """A persistent publish to a queue."""
    return publish(1, "", queue, body, delivery_mode=2, **properties)


def waiting(node: Node, queue: str) -> list[bytes]:
    """The bodies that wait in a queue, in the order of delivery."""
    found = node.classic(queue)
    return [item.message.body for item in all_waiting(found)]


def reborn(node: Node, *, clean: bool = False) -> Node:
    """The broker after a stop, or after a crash that lost what was not synced."""
    image = node.stop() if clean else node.crashed(lambda _: 0)[0]
    return Node(RecordingDisk(image), clock=node.clock)


def letters(peer: Peer, name: str, **arguments: Any) -> None:
    """A durable queue `name` whose dead letters go to the durable queue `dead`."""
    peer.declare("dead")
    more = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    peer.declare(name, arguments=more | arguments)


@pytest.fixture
def peer(node: Node) -> Peer:
    return node.connect()


# -- moments ---------------------------------------------------------------------------------------


def test_a_message_expires_at_its_moment_and_not_before(node: Node, peer: Peer) -> None:
    letters(peer, "q", **{"x-message-ttl": 1000})
    peer.send(put("q", b"m"))
    node.tick(999)
    assert waiting(node, "q") == [b"m"]
    node.tick(1)
    assert waiting(node, "q") == []
    assert waiting(node, "dead") == [b"m"]


def test_each_expires_in_its_own_time_wherever_it_lies(node: Node, peer: Peer) -> None:
    """The deadlines are 3000, 1000 and 2000 in that order; `ever` has none."""
    letters(peer, "q")
    ttls = {"a": 3000, "b": 1000, "c": 2000}
    peer.send(*[put("q", name.encode(), expiration=str(ttl)) for name, ttl in ttls.items()])
    peer.send(put("q", b"ever"))
    gone: list[bytes] = []
    for _ in range(3):
        node.tick(1000)
        gone = waiting(node, "dead")
    assert gone == [b"b", b"c", b"a"]
    assert waiting(node, "q") == [b"ever"]


def test_a_delivery_is_not_expired_meanwhile_and_expires_when_it_returns(
    node: Node, peer: Peer
) -> None:
    letters(peer, "q")
    peer.send(put("q", b"m", expiration="1000"))
    tag = peer.call_get("q").delivery_tag
    node.tick(5000)
    assert waiting(node, "dead") == []
    peer.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
    assert waiting(node, "q") == []
    assert waiting(node, "dead") == [b"m"]


def test_what_is_due_is_not_delivered_whoever_comes_first(node: Node, peer: Peer) -> None:
    """A consumer that comes after the moment gets nothing, tick or no tick."""
    peer.declare("q", arguments={"x-message-ttl": 1000})
    peer.send(put("q", b"m"))
    node.clock.advance(1001)
    peer.call(1, "basic.consume", queue="q", no_ack=True)
    assert peer.take() == []
    assert node.core.memory.held_messages == 0


def test_many_expire_in_slices_and_all_of_them(node: Node, peer: Peer) -> None:
    count = 2 * SLICE_MESSAGES + 1
    peer.declare("q", durable=False)
    peer.send(*[publish(1, "", "q", b"m", expiration="10") for _ in range(count)])
    assert node.classic("q").ready_count() == count
    node.tick(10)
    assert node.classic("q").ready_count() == 0
    assert node.core.memory.held_bytes == node.core.memory.held_messages == 0


def test_an_unused_queue_ends_and_use_postpones_it(node: Node, peer: Peer) -> None:
    peer.declare("q", arguments={"x-expires": 1000})
    node.tick(999)
    peer.declare("q", passive=True)
    node.tick(999)
    peer.send(method(1, "basic.get", queue="q"))
    assert peer.names() == ["basic.get-empty"]
    node.tick(999)
    assert "q" in node.vhost.queues.by_name
    node.tick(1)
    assert "q" not in node.vhost.queues.by_name


def test_a_queue_with_a_consumer_does_not_end(node: Node, peer: Peer) -> None:
    peer.declare("q", arguments={"x-expires": 1000})
    tag = peer.call(1, "basic.consume", queue="q").consumer_tag
    node.tick(5000)
    peer.call(1, "basic.cancel", consumer_tag=tag)
    node.tick(999)
    assert "q" in node.vhost.queues.by_name
    node.tick(1)
    assert "q" not in node.vhost.queues.by_name


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_what_expires_at_once_takes_nobodys_place(node: Node, peer: Peer, overflow: str) -> None:
    peer.declare("q", arguments={"x-max-length": 2, "x-overflow": overflow})
    peer.send(put("q", b"stays"), *[put("q", b"gone", expiration="0") for _ in range(3)])
    assert waiting(node, "q") == [b"stays"]
    peer.send(put("q", b"too"))
    assert waiting(node, "q") == [b"stays", b"too"]


def test_an_entry_of_x_death_counts_and_keeps_its_first_time(node: Node, peer: Peer) -> None:
    """Behaviour 68 (x-death); as in RabbitMQ 3.10.8 (observed) and 4."""
    start = node.clock.wall_ms() // 1000
    for name, other in (("a", "b"), ("b", "a")):
        more = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}
        peer.declare(name, arguments=more)
    peer.send(put("a", b"m"))
    for name in ("a", "b", "a"):
        tag = peer.call_get(name).delivery_tag
        peer.send(method(1, "basic.reject", delivery_tag=tag))
        node.tick(5000)
    deaths = decode_properties(peer.call_get("b").properties)["headers"]["x-death"]
    found = [(death["queue"], death["count"], death["time"] - start) for death in deaths]
    assert found == [("a", 2, 0), ("b", 1, 5)]


# -- priorities ------------------------------------------------------------------------------------


def test_the_highest_priority_first_and_in_order_within(node: Node, peer: Peer) -> None:
    """Priorities above the queue's count as its highest; none is 0."""
    peer.declare("q", arguments={"x-max-priority": 5})
    peer.send(put("q", b"none"))
    for priority, name in [(0, b"0"), (5, b"5a"), (200, b"5b"), (3, b"3"), (5, b"5c")]:
        peer.send(put("q", name, priority=priority))
    order = [peer.call_get("q").body for _ in range(6)]
    assert order == [b"5a", b"5b", b"5c", b"3", b"none", b"0"]


@pytest.mark.parametrize("how", ["clean", "crash", "checkpoint"])
def test_priorities_last(node: Node, peer: Peer, how: str) -> None:
    peer.declare("q", arguments={"x-max-priority": 9})
    peer.send(*[put("q", b"%d" % n, priority=n) for n in (3, 9, 1)])
    node.sync()
    if how == "checkpoint":
        node.take_checkpoint()
    again = reborn(node, clean=how == "clean").connect()
    assert [again.call_get("q").body for _ in range(3)] == [b"9", b"3", b"1"]


def test_a_priority_queue_gives_back_to_its_old_place(node: Node, peer: Peer) -> None:
    peer.declare("q", arguments={"x-max-priority": 2})
    peer.send(put("q", b"a", priority=1), put("q", b"b", priority=1), put("q", b"c", priority=2))
    tags = [peer.call_get("q").delivery_tag for _ in range(2)]
    peer.send(*[method(1, "basic.nack", delivery_tag=tag, requeue=True) for tag in tags])
    assert [peer.call_get("q").body for _ in range(3)] == [b"c", b"a", b"b"]


def test_a_priority_queue_takes_the_same_message_back_again_and_again(peer: Peer) -> None:
    peer.declare("q", arguments={"x-max-priority": 2})
    peer.send(put("q", b"a"))
    for _ in range(3):
        tag = peer.call_get("q").delivery_tag
        peer.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
    assert peer.call_get("q").body == b"a"


# -- what a disk holds -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["clean", "crash", "checkpoint"])
def test_deadlines_last(node: Node, peer: Peer, how: str) -> None:
    """A message expires when it would have, though the broker was down for a part of the time."""
    letters(peer, "q")
    peer.send(put("q", b"m", expiration="1000"), put("q", b"later", expiration="5000"))
    node.sync()
    if how == "checkpoint":
        node.take_checkpoint()
    again = reborn(node, clean=how == "clean")
    again.tick(999)
    assert waiting(again, "dead") == []
    again.tick(1)
    assert waiting(again, "dead") == [b"m"]
    assert waiting(again, "q") == [b"later"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_dead_letter_is_in_one_queue_after_a_crash(
    node: Node, peer: Peer, checkpoint: bool
) -> None:
    """Before its record is synced it is in the old queue, from then on in the new one."""
    letters(peer, "q")
    peer.send(put("q", b"m"))
    node.sync()
    if checkpoint:
        node.take_checkpoint()
    tag = peer.call_get("q").delivery_tag
    peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=False))
    assert waiting(node, "dead") == [b"m"]
    before = reborn(node)
    assert (waiting(before, "q"), waiting(before, "dead")) == ([b"m"], [])
    node.sync()
    after = reborn(node)
    assert (waiting(after, "q"), waiting(after, "dead")) == ([], [b"m"])
    node.take_checkpoint()
    later = reborn(node)
    assert (waiting(later, "q"), waiting(later, "dead")) == ([], [b"m"])
    letter = later.connect().call_get("dead")
    assert decode_properties(letter.properties)["headers"]["x-death"][0]["count"] == 1


def test_the_history_of_a_letter_counts_on_after_a_restart(node: Node, peer: Peer) -> None:
    """The mark that this broker wrote the x-death is stored with the message."""
    letters(peer, "q")
    peer.send(put("q", b"m"))
    for _ in range(2):
        tag = peer.call_get("q").delivery_tag
        peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=False))
        letter = peer.call_get("dead", no_ack=True)
        headers = decode_properties(letter.properties)["headers"]
        peer.send(publish(1, "", "q", b"m", delivery_mode=2, headers={}))
    assert headers["x-death"][0]["count"] == 1
    peer.declare("loop", arguments={"x-dead-letter-exchange": ""})
    peer.send(put("loop", b"m"))
    for count in (1, 2, 3):
        tag = peer.call_get("loop").delivery_tag
        peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=False))
        node.sync()
        if count == 2:
            node.take_checkpoint()
        node = reborn(node)
        peer = node.connect()
        got = peer.call_get("loop")
        assert decode_properties(got.properties)["headers"]["x-death"][0]["count"] == count
        peer.send(method(1, "basic.nack", delivery_tag=got.delivery_tag, requeue=True))


def returned(node: Node, peer: Peer, how: str) -> Peer:
    """Take the message of `q` and give it back; return a peer whose channel is open."""
    consumes = how.startswith("cancel")
    if consumes:
        peer.call(1, "basic.consume", queue="q", consumer_tag="c")
        tag = peer.expect(1, "basic.deliver").delivery_tag
        peer.call(1, "basic.cancel", consumer_tag="c")
    else:
        tag = peer.call_get("q").delivery_tag
    multiple = how.endswith("all")
    if "nack" in how:
        peer.send(method(1, "basic.nack", delivery_tag=tag, multiple=multiple, requeue=True))
    elif how == "reject":
        peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=True))
    elif how == "recover":
        peer.call(1, "basic.recover", requeue=True)
    elif how == "failure":
        peer.send(method(1, "basic.ack", delivery_tag=99))
        peer.expect(1, "channel.close")
    elif how.endswith("close"):
        peer.call(1, "channel.close")
    else:
        peer.lose()
    node.sync()
    return peer if "nack" in how or how in ("reject", "recover") else node.connect()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("how", "fails"),
    [
        *[(how, False) for how in ("nack", "nack all", "recover", "cancel, nack")],
        *[(how, True) for how in ("reject", "close", "failure", "lose", "cancel, close")],
    ],
)
def test_only_a_failed_delivery_counts(
    node: Node, peer: Peer, how: str, fails: bool, restart: bool
) -> None:
    """As RabbitMQ 4.3: a nack and a recover count for no limit; a reject and a lost channel do."""
    limit = 2 if fails else 0
    letters(peer, "q", **{"x-queue-type": "quorum", "x-delivery-limit": limit})
    peer.send(put("q", b"m"))
    for count in range(1, 3):
        peer = returned(node, peer, how)
        if restart:
            node.take_checkpoint()
            node = reborn(node)
            peer = node.connect()
        got = peer.call_get("q")
        expected = {"x-acquired-count": 2 * count - 1}
        if fails:
            expected["x-delivery-count"] = count
        assert decode_properties(got.properties)["headers"] == expected
        peer.send(method(1, "basic.nack", delivery_tag=got.delivery_tag, requeue=True))
    returned(node, peer, how)
    assert waiting(node, "dead") == ([b"m"] if fails else [])


def test_counts_have_a_greatest() -> None:
    """Both fit a record, beside the count that says that a message was acked and is kept."""
    count = MAYBE_DELIVERED
    for number in range(RETURNS_COUNTED_MAX + 2):
        count = once_more(count, failed=False)
        assert acquisitions(count) == min(number + 1, RETURNS_COUNTED_MAX)
    for number in range(FAILURES_COUNTED_MAX + 2):
        count = once_more(count, failed=True)
        assert failures(count) == min(number + 1, FAILURES_COUNTED_MAX)
    assert acquisitions(count) == RETURNS_COUNTED_MAX + FAILURES_COUNTED_MAX
    assert count < RETAINED_COUNT


@pytest.mark.parametrize("checkpoint", [False, True])
def test_delivery_counts_last(node: Node, peer: Peer, checkpoint: bool) -> None:
    letters(peer, "q", **{"x-delivery-limit": 2})
    peer.send(put("q", b"m"))
    for count in range(3):
        got = peer.call_get("q")
        headers = decode_properties(got.properties).get("headers", {})
        assert headers.get("x-delivery-count", 0) == count
        peer.send(method(1, "basic.reject", delivery_tag=got.delivery_tag, requeue=True))
        node.sync()
        if checkpoint:
            node.take_checkpoint()
        node = reborn(node)
        peer = node.connect()
    assert waiting(node, "q") == []
    assert waiting(node, "dead") == [b"m"]


def test_a_letter_waits_for_room_where_it_must_not_be_lost(node: Node, peer: Peer) -> None:
    """`at-least-once`: while no queue takes it, it dies on, and a crash finds it in its queue."""
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    peer.declare("dead", arguments=full)
    more = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    peer.declare("q", arguments=more | {"x-dead-letter-strategy": "at-least-once"})
    peer.send(put("dead", b"first"), put("q", b"m", expiration="10"))
    node.tick(10)
    assert waiting(node, "q") == []
    node.sync()
    node.take_checkpoint()
    assert [item.message.body for item in held(reborn(node).classic("q"))] == [b"m"]
    peer.call_get("dead", no_ack=True)
    node.tick(DEAD_LETTER_RETRY_MS)
    assert waiting(node, "dead") == [b"m"]
    node.sync()
    assert waiting(reborn(node), "dead") == [b"m"]
    assert node.core.memory.held_messages == 1


def test_what_exceeds_a_limit_goes_at_a_start_too(node: Node, peer: Peer) -> None:
    """A crash may bring back what was dropped but not synced so; the limit holds all the same."""
    peer.declare("q", arguments={"x-max-length": 2})
    peer.send(*[put("q", b"%d" % n) for n in range(5)])
    node.sync()
    again = reborn(node)
    assert waiting(again, "q") == [b"3", b"4"]


# -- duplicates ------------------------------------------------------------------------------------


def test_a_duplicate_is_not_confirmed_before_what_it_repeats_is_synced(node: Node) -> None:
    """Another connection's retry must not be told that a message is safe which is not yet."""
    first, second = node.connect(), node.connect()
    first.declare("q", arguments={"x-deduplication-header": "id"})
    for peer in (first, second):
        peer.call(1, "confirm.select")
    first.send(put("q", b"m", headers={"id": "1"}))
    second.send(put("q", b"m", headers={"id": "1"}))
    assert second.names() == []
    assert node.begin_sync()
    third = node.connect()
    third.call(1, "confirm.select")
    third.send(put("q", b"m", headers={"id": "1"}))
    assert (second.names(), third.names()) == ([], [])
    node.write()
    node.end_sync()
    assert [peer.names() for peer in (first, second, third)] == [["basic.ack"]] * 3
    third.send(put("q", b"m", headers={"id": "1"}))
    assert third.names() == ["basic.ack"]
    assert waiting(node, "q") == [b"m"]


def test_a_crash_is_no_return_of_a_message(node: Node, peer: Peer) -> None:
    """What may have been delivered is marked so, and has all its deliveries yet."""
    letters(peer, "q", **{"x-delivery-limit": 1})
    peer.send(put("q", b"m"))
    node.sync()
    again = reborn(node).connect()
    for count in (None, 1):
        got = again.call_get("q")
        headers = decode_properties(got.properties).get("headers", {})
        assert (got.redelivered, headers.get("x-delivery-count")) == (True, count)
        again.send(method(1, "basic.reject", delivery_tag=got.delivery_tag, requeue=True))
    assert waiting(again.node, "q") == []
    assert waiting(again.node, "dead") == [b"m"]
