"""Consumers that never ack: what they hold has a share of the memory, and others are served.

What is delivered and not acked cannot leave the memory, so that without a bound a consumer without
prefetch keeps all publishers blocked for as long as it likes.
"""

from __future__ import annotations

import random

import pytest

from leveret.broker.scheduler.unacked_share import UnackedRoom, UnackedShare
from leveret.limits import CHUNK_BYTES_MAX, MESSAGE_OVERHEAD_BYTES
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

LIMIT = 4_000_000
SHARE = LIMIT // 4
KIB = b"x" * 1024
#: What one of them counts.
COST = len(KIB) + 3 + MESSAGE_OVERHEAD_BYTES

#: A share of the walk at random.
MAX = 1_000_000


def make() -> Node:
    """A broker with little memory and two users who may do all, `guest` and `other`."""
    node = Node(memory_bytes_max=LIMIT, window_bytes=500_000)
    node.broker.eviction.configure(500_000, LIMIT // 2)
    node.core.memory.unacked.bytes_max = SHARE
    node.add_user("other", configure=".*", write=".*", read=".*")
    return node


def consume(peer: Peer, queue: str, **values: object) -> None:
    peer.call(1, "basic.consume", queue=queue, **values)
    peer.node.sync()


def fill(peer: Peer, queue: str, count: int, mode: int = 2) -> None:
    """Publish numbered messages of a KiB."""
    for start in range(0, count, 50):
        some = [b"%d" % number + KIB for number in range(start, start + 50)]
        peer.send(*[publish(1, "", queue, body, delivery_mode=mode) for body in some])
        peer.node.sync()


def is_blocked(node: Node) -> bool:
    node.tick(1000)
    for _ in range(2):
        node.run()
    return bool(node.broker.blocked)


def acks(peer: Peer) -> list[int]:
    """The numbers of what came since the last look, all of it acked."""
    came = [int(body.split(b"x")[0]) for body in peer.bodies()]
    if came:
        peer.forget_sent()
        peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
        peer.node.sync()
    return came


def test_a_place_for_small_messages_is_no_place_for_large_ones() -> None:
    """Forty connections that hold a byte each, or just acked one, do not get a megabyte each."""
    node = make()
    peer = node.connect()
    takers = [node.connect() for _ in range(40)]
    for number, taker in enumerate(takers):
        peer.declare(f"q{number}")
        consume(taker, f"q{number}")
        peer.send(publish(1, "", f"q{number}", b"m"))
        node.sync()
        if number % 2:
            taker.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    node.sync()
    large = 500_000
    for number in range(40):
        peer.send(publish(1, "", f"q{number}", b"x" * large))
        node.sync()
    assert SHARE <= int(node.core.memory.unacked.bytes) < 2 * SHARE + large


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("hogs", [1, 8])
def test_who_never_acks_blocks_nobody(hogs: int, mode: int) -> None:
    """Three times the memory is published; what nobody may have yet is on the disk."""
    node = make()
    peer = node.connect()
    peer.declare("q")
    takers = [node.connect() for _ in range(hogs)]
    for taker in takers:
        consume(taker, "q")
    fill(peer, "q", 12_000, mode)
    assert not is_blocked(node)
    queue = node.classic("q")
    held = int(queue.unacked_count) * COST
    assert SHARE - COST <= held < 2 * SHARE
    assert queue.unacked_count + queue.ready_count() == 12_000
    assert node.broker.memory_bytes() < LIMIT // 2 + 2 * CHUNK_BYTES_MAX
    assert sum(int(taker.connection.unacked.bytes) for taker in takers) >= held


def test_all_come_in_order_once_they_are_acked() -> None:
    node = make()
    peer, taker = node.connect(), node.connect()
    peer.declare("q")
    consume(taker, "q")
    fill(peer, "q", 5000)
    came = acks(taker)
    assert SHARE // COST <= len(came) < 2 * SHARE // COST
    while some := acks(taker):
        came += some
    assert came == list(range(5000))
    assert taker.connection.unacked.bytes == 0
    for _ in range(2):
        # What was refused before is granted in the first, and given back in the second.
        node.tick(1000)
    share = node.core.memory.unacked
    assert (share.bytes, share.users) == (0, {})


def test_a_connection_of_the_same_user_is_served_beside_one_that_holds_all() -> None:
    node = make()
    peer, greedy, quiet = node.connect(), node.connect(), node.connect()
    for name in ("full", "used"):
        peer.declare(name)
    consume(greedy, "full")
    fill(peer, "full", 5000)
    consume(quiet, "used")
    fill(peer, "used", 2000)
    came: list[int] = []
    while some := acks(quiet):
        came += some
    assert came == list(range(2000))
    assert not is_blocked(node)


def test_another_user_is_served_beside_many_connections_that_hold_all() -> None:
    """The greedy user has two parts at most, however many connections he opens."""
    node = make()
    peer, quiet = node.connect(), node.connect_as("other", 1)
    for name in ("full", "used"):
        peer.declare(name)
    for _ in range(40):
        consume(node.connect(), "full")
    fill(peer, "full", 12_000)
    consume(quiet, "used")
    fill(peer, "used", 2000)
    came: list[int] = []
    while some := acks(quiet):
        came += some
    assert came == list(range(2000))
    assert int(node.core.memory.unacked.users["guest"].bytes) < 2 * SHARE + CHUNK_BYTES_MAX
    assert not is_blocked(node)


def test_who_waits_for_others_goes_on_within_a_second_of_their_end() -> None:
    node = make()
    peer = node.connect()
    peer.declare("q")
    greedy = [node.connect() for _ in range(8)]
    for one in greedy:
        consume(one, "q")
    fill(peer, "q", 5000)
    last = node.connect()
    consume(last, "q")
    while node.core.memory.unacked.grants(last.connection.unacked):
        fill(peer, "q", 50)
    node.tick(1000)
    last.take()
    for one in greedy:
        one.lose()
    node.tick(1000)
    node.run()
    assert len(last.bodies()) > 100
    assert [user.rooms for user in node.core.memory.unacked.users.values()] == [1]


def test_a_message_larger_than_the_share_is_delivered() -> None:
    node = make()
    peer = node.connect()
    peer.declare("q")
    for _ in range(3):
        peer.send(publish(1, "", "q", b"x" * (SHARE + 1)))
    consume(peer, "q")
    assert len(peer.bodies()) == 1
    assert int(node.core.memory.unacked.bytes) > SHARE
    for _ in range(2):
        peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
        node.sync()
        assert len(peer.bodies()) == 1


def test_a_get_beyond_it_is_refused_and_changes_nothing() -> None:
    node = make()
    peer = node.connect(1, 2)
    peer.declare("q")
    fill(peer, "q", 5000)
    consume(peer, "q", consumer_tag="c")
    peer.take()
    peer.call(1, "basic.cancel", consumer_tag="c")
    queue = node.classic("q")
    ready = int(queue.ready_count())
    assert ready > 0
    peer.send(method(2, "basic.get", queue="q", no_ack=True))
    peer.expect(2, "basic.get-ok")
    peer.send(method(2, "basic.get", queue="q"))
    error = peer.expect(2, "channel.close")
    assert error.code == 406
    assert "unacked_bytes_max" in error.fields["text"]
    assert queue.ready_count() == ready - 1
    peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    peer.send(method(2, "channel.close-ok"))
    peer.call(2, "channel.open")
    peer.send(method(2, "basic.get", queue="q"))
    peer.expect(2, "basic.get-ok")


def test_the_log_says_it_once() -> None:
    node = make()
    peer = node.connect()
    peer.declare("q")
    consume(peer, "q")
    fill(peer, "q", 5000)
    for _ in range(3):
        node.tick(1000)
    said = [text for _, text in peer.connection.log if "unacked_bytes_max" in text]
    assert len(said) == 1


def test_another_share_counts_at_once() -> None:
    """A lower one takes nothing back, and a higher one lets deliveries go on within a second."""
    node = make()
    peer, taker = node.connect(), node.connect()
    peer.declare("q")
    consume(taker, "q")
    fill(peer, "q", 500)
    node.core.memory.unacked.limit_all(SHARE // 4)
    came = len(taker.bodies())
    assert came == 500
    fill(peer, "q", 500)
    assert taker.bodies() == []
    node.core.memory.unacked.limit_all(SHARE)
    node.tick(1000)
    node.run()
    assert 200 < len(taker.bodies()) < 500


def test_streams_count_too() -> None:
    """Each reader has messages of its own, which are in no block that the stream still holds."""
    node = make()
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    fill(peer, "s", 2000)
    for number in range(8):
        reader = node.connect()
        reader.call(1, "basic.qos", prefetch_count=60_000)
        offset = {"x-stream-offset": "first"}
        consume(reader, "s", arguments=offset, consumer_tag=f"c{number}")
    assert SHARE - COST <= int(node.core.memory.unacked.bytes) < 2 * SHARE + CHUNK_BYTES_MAX


def test_what_is_reserved_is_what_all_hold_and_a_little_more() -> None:
    """By a walk at random: the total has a bound, and all of it is given back."""
    chance = random.Random(11)
    share = UnackedShare()
    share.bytes_max = MAX
    rooms = [UnackedRoom(share) for _ in range(30)]
    for number, room in enumerate(rooms):
        room.user = f"u{number % 3}"
    held: list[tuple[UnackedRoom, int]] = []
    refused = 0
    for _ in range(20_000):
        room = chance.choice(rooms)
        kind = chance.random()
        if kind < 0.7:
            if room.has_room():
                size = chance.choice([200, 3000, 40_000])
                room.hold(size - MESSAGE_OVERHEAD_BYTES)
                held.append((room, size))
            else:
                refused += 1
        elif kind < 0.95 and held:
            owner, size = held.pop(chance.randrange(len(held)))
            owner.bytes -= size
        else:
            room.settle()
        assert all(max(one.bytes, one.limit) <= one.reserved for one in rooms)
        assert not share.is_reached() or not any(one.limit for one in rooms)
        assert int(share.bytes) == sum(int(one.reserved) for one in rooms)
        # Two parts of the first user, half a part of those who come later, and a message each.
        assert share.bytes < 2 * MAX + MAX // 4 + MAX // 6 + 3 * 110_000
    assert refused > 1000
    for user in share.users.values():
        mine = [one for one in rooms if share.users.get(one.user) is user and one.reserved > 0]
        assert (user.rooms, user.bytes) == (len(mine), sum(int(one.reserved) for one in mine))
    for room in rooms:
        room.end()
        assert not room.has_room()
    assert (share.bytes, share.users) == (0, {})
