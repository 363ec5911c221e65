"""Deep queues: pages that are cut, written, read and dropped, in every order.

`node.hold_spill` and `node.hold_reads` hold the disk back, so that what a thread does at any time
happens where a test says so.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.policies.policy import make_policy
from leveret.broker.queue.browse import BrowseFilter, browse
from leveret.broker.queue.classic import ClassicQueue
from leveret.limits import PAGES_AHEAD_BYTES
from leveret.store.disks.recording import RecordingDisk
from leveret.store.segments.segments import segment_path
from support.node.core import Node, Peer, all_waiting
from support.node.paged import exact, got, no_chance
from support.wire.raw_codec import method, publish

#: Enough small messages for several pages of a node with `window_bytes=0`.
MANY = 30


def deep(**values: bool) -> tuple[Node, Peer]:
    """A node whose pages hold a few messages, and a client of it."""
    node = Node(window_bytes=0)
    return node, node.connect(**values)


def fill(peer: Peer, count: int = MANY, start: int = 0, **properties: Any) -> None:
    """Publish messages whose bodies are their numbers."""
    values = {"delivery_mode": 2} | properties
    for number in range(start, start + count):
        peer.send(publish(1, "", "q", b"%d" % number, **values))


def bodies(queue: ClassicQueue) -> list[int]:
    """What waits, in its order."""
    return [int(item.message.body) for item in all_waiting(queue)]


def again(node: Node, *, crash: bool = False) -> tuple[Node, Peer]:
    """Start again, after a stop in order or after a crash that lost what was not synced."""
    image = node.crashed(no_chance)[0] if crash else node.stop()
    node = Node(RecordingDisk(image), window_bytes=0, clock=node.clock)
    return node, node.connect()


def temporary_files(node: Node) -> list[str]:
    """The files of chunks that go with the process."""
    return [name for name in node.image().files if name.endswith(".tmp")]


# -- a chunk that is cut and not written yet -------------------------------------------------------


def test_unwritten_pages_are_consumed_and_gone() -> None:
    node, peer = deep()
    peer.declare("q")
    node.hold_spill = True
    fill(peer)
    assert got(peer) == list(range(MANY))
    while node.write_batch():
        exact(node)
    node.sync()
    exact(node)
    assert node.classic("q").stored.items == []
    node, peer = again(node, crash=True)
    assert got(peer) == []


@pytest.mark.parametrize("crash", [False, True])
def test_acks_before_and_behind_the_chunk_are_both_known(crash: bool) -> None:
    node, peer = deep()
    peer.declare("q")
    node.hold_spill = True
    fill(peer)
    tags = [peer.call_get("q").delivery_tag for _ in range(12)]
    for tag in tags[1:6]:
        peer.send(method(1, "basic.ack", delivery_tag=tag))
    node.write_spilled()
    for tag in tags[6:11]:
        peer.send(method(1, "basic.ack", delivery_tag=tag))
    node.sync()
    exact(node)
    node, peer = again(node, crash=crash)
    assert got(peer) == [0, *range(11, MANY)]
    exact(node)


def test_purge_and_delete_of_unwritten_pages() -> None:
    node, peer = deep()
    peer.declare("q")
    node.hold_spill = True
    fill(peer)
    assert peer.call(1, "queue.purge", queue="q").message_count == MANY
    exact(node)
    fill(peer, 5, 100)
    node.write_spilled()
    exact(node)
    node.sync()
    node, peer = again(node, crash=True)
    assert got(peer) == [100, 101, 102, 103, 104]
    node.hold_spill = True
    fill(peer)
    peer.call(1, "queue.delete", queue="q")
    exact(node)
    node.write_spilled()
    node.sync()
    exact(node)
    node, peer = again(node, crash=True)
    assert "q" not in node.vhost.queues.by_name


def test_count_of_a_message_that_came_back_before_its_chunk_was_written() -> None:
    node, peer = deep()
    peer.declare("q", arguments={"x-delivery-limit": 3})
    node.hold_spill = True
    fill(peer)
    for _ in range(2):
        got_one = peer.call_get("q")
        peer.send(method(1, "basic.nack", delivery_tag=got_one.delivery_tag, requeue=True))
    node.write_spilled()
    node.sync()
    node, peer = again(node, crash=True)
    first = node.classic("q").ready.returns.at(1)
    if first is None:
        assert int(peer.call_get("q").body) == 0
        assert node.classic("q").taken_count == 2
    else:
        assert first.count == 2


def test_an_acked_message_that_is_kept_stays_acked() -> None:
    node, peer = deep()
    peer.declare("q", arguments={"x-retain-acked-bytes": 100_000})
    node.hold_spill = True
    fill(peer)
    assert [int(peer.call_get("q", no_ack=True).body) for _ in range(4)] == [0, 1, 2, 3]
    node.write_spilled()
    node.sync()
    exact(node)
    node, peer = again(node, crash=True)
    queue = node.classic("q")
    assert bodies(queue) == list(range(4, MANY))
    rewinding = queue.rewind(0)
    assert rewinding is not None
    assert rewinding.count == 4
    assert got(peer) == list(range(MANY))


# -- messages that die out of the middle -----------------------------------------------------------


def at_least_once(peer: Peer) -> None:
    """Declare a queue whose dead letters wait, for nobody takes them."""
    arguments = {"x-dead-letter-exchange": "nowhere", "x-dead-letter-strategy": "at-least-once"}
    peer.declare("q", arguments=arguments | {"x-overflow": "reject-publish"})


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_message_that_dies_in_the_tail_is_no_row_of_the_chunk_around_it(checkpoint: bool) -> None:
    node, peer = deep()
    at_least_once(peer)
    node.core.memory.page_bytes = 100_000
    fill(peer, 3)
    fill(peer, 1, 50, expiration="10")
    fill(peer, 3, 3)
    node.tick(20)
    queue = node.classic("q")
    assert [item.sequence for item in queue.out.values()] == [4]
    node.core.memory.page_bytes = 200
    fill(peer, 4, 6)
    node.sync()
    assert queue.stored.find(4) is None
    if checkpoint:
        node.take_checkpoint()
        node.take_checkpoint()
    node = Node(RecordingDisk(node.crashed(no_chance)[0]), window_bytes=0)
    assert {int(item.message.body) for item in all_waiting(node.classic("q"))} == {*range(10), 50}


def test_a_message_that_dies_in_an_unwritten_page_does_not_come_back_with_it() -> None:
    node, peer = deep()
    at_least_once(peer)
    node.hold_spill = True
    fill(peer, 10)
    fill(peer, 1, 50, expiration="10")
    fill(peer, MANY, 10)
    node.tick(20)
    queue = node.classic("q")
    assert [item.sequence for item in queue.out.values()] == [11]
    node.write_spilled()
    node.sync()
    assert queue.ready.look(11) is None
    assert got(peer) == list(range(10 + MANY))
    peer.call(1, "exchange.declare", exchange="nowhere", type="fanout")
    peer.declare("dead")
    peer.call(1, "queue.bind", queue="dead", exchange="nowhere")
    node.tick(60_000)
    assert got(peer, "dead") == [50]
    exact(node)
    assert queue.stored.items == []


def test_a_purge_leaves_what_is_dying() -> None:
    node, peer = deep()
    at_least_once(peer)
    node.hold_spill = True
    fill(peer, 10)
    fill(peer, 1, 50, expiration="10")
    fill(peer, MANY, 10)
    node.tick(20)
    node.write_spilled()
    peer.call(1, "queue.purge", queue="q")
    node.sync()
    node = Node(RecordingDisk(node.crashed(no_chance)[0]), window_bytes=0)
    assert [int(item.message.body) for item in all_waiting(node.classic("q"))] == [50]


def test_transient_messages_between_do_not_count_for_a_checkpoints_chunk() -> None:
    node = Node()
    peer = node.connect()
    peer.declare("q")
    for number in range(10):
        fill(peer, 1, number, delivery_mode=2 if number % 2 else 1)
    node.take_checkpoint()
    tags = [peer.call_get("q").delivery_tag for _ in range(10)]
    for tag in tags[0::2]:
        peer.send(method(1, "basic.ack", delivery_tag=tag))
    for _ in range(3):
        node.take_checkpoint()
    node, peer = again(node, crash=True)
    assert got(peer) == [1, 3, 5, 7, 9]


# -- expiry ----------------------------------------------------------------------------------------


def test_what_expired_on_the_disk_is_not_got() -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer, 10)
    fill(peer, MANY, 10, expiration="50")
    fill(peer, 2, 90)
    node, peer = again(node)
    node.clock.advance(100)
    assert got(peer) == [*range(10), 90, 91]
    exact(node)


@pytest.mark.parametrize("dead_letters", [False, True])
def test_a_deep_queue_expires_as_a_whole(dead_letters: bool) -> None:
    node, peer = deep()
    arguments: dict[str, object] = {"x-message-ttl": 1000}
    if dead_letters:
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    peer.declare("dead")
    peer.declare("q", arguments=arguments)
    fill(peer, 3 * MANY)
    node.tick(2000)
    exact(node)
    assert node.classic("q").ready_count() == 0
    assert got(peer, "dead") == (list(range(3 * MANY)) if dead_letters else [])
    node.sync()
    assert node.classic("q").stored.items == []
    node, peer = again(node, crash=True)
    assert got(peer) == []


def test_a_ttl_that_a_policy_brings_finds_what_lies_on_the_disk() -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer)
    node.clock.advance(500)
    node.now()
    fill(peer, MANY, 100)
    node.vhost.policies.set(make_policy("p", "^q$", {"message-ttl": 1000}))
    node.tick(600)
    assert bodies(node.classic("q")) == list(range(100, 100 + MANY))
    exact(node)


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hold", [False, True])
def test_drop_head_reaches_through_pages(hold: bool) -> None:
    node, peer = deep()
    peer.declare("dead")
    peer.declare("q", arguments={
        "x-max-length": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
    })  # fmt: skip
    node.hold_spill = hold
    fill(peer, 3 * MANY)
    exact(node)
    node.write_spilled()
    node.sync()
    exact(node)
    node, peer = again(node, crash=True)
    assert got(peer) == list(range(3 * MANY - 20, 3 * MANY))
    assert got(peer, "dead") == list(range(3 * MANY - 20))


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_deep_queue_refuses_what_has_no_room(overflow: str) -> None:
    node, peer = deep()
    peer.declare("dead")
    peer.declare("q", arguments={
        "x-max-length": 20, "x-overflow": overflow,
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
    })  # fmt: skip
    fill(peer, MANY)
    exact(node)
    assert bodies(node.classic("q")) == list(range(20))
    assert got(peer, "dead") == (list(range(20, MANY)) if overflow.endswith("dlx") else [])


def test_a_limit_that_a_policy_brings_shrinks_a_deep_queue() -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer, 3 * MANY)
    node, peer = again(node)
    node.vhost.policies.set(make_policy("p", "^q$", {"max-length": 7}))
    node.run()
    exact(node)
    assert got(peer) == list(range(3 * MANY - 7, 3 * MANY))


# -- consuming -------------------------------------------------------------------------------------


def test_a_consumer_waits_for_pages_that_are_on_their_way() -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer)
    node, peer = again(node)
    node.hold_reads = True
    peer.call(1, "basic.qos", prefetch_count=4)
    peer.send(method(1, "basic.consume", queue="q", consumer_tag="c"))
    seen: list[int] = []
    for _ in range(10 * MANY):
        node.read_wanted()
        node.run()
        deliveries = [one for one in peer.take() if one.name == "basic.deliver"]
        assert len(deliveries) <= 4
        for one in deliveries:
            seen.append(int(one.body))
            peer.send(method(1, "basic.ack", delivery_tag=one.delivery_tag))
        exact(node)
        if len(seen) == MANY:
            break
    assert seen == list(range(MANY))


@pytest.mark.parametrize("name", ["queue.purge", "queue.delete"])
def test_a_page_that_arrives_too_late_brings_nothing(name: str) -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer)
    node, peer = again(node)
    node.hold_reads = True
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    assert node.wanted
    peer.take()
    peer.send(method(1, name, queue="q"))
    node.sync()
    node.read_wanted()
    node.run()
    exact(node)
    assert [one.name for one in peer.take() if one.name == "basic.deliver"] == []


def test_what_came_back_precedes_its_page_after_a_restart() -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer)
    tags = [peer.call_get("q").delivery_tag for _ in range(15)]
    for tag in (tags[3], tags[9], tags[14]):
        peer.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
    assert bodies(node.classic("q")) == [3, 9, *range(14, MANY)]
    exact(node)
    node.sync()
    node.take_checkpoint()
    node, peer = again(node, crash=True)
    assert got(peer) == list(range(MANY))


def test_only_the_active_consumer_gets_what_comes_from_the_disk() -> None:
    node, peer = deep()
    peer.declare("q", arguments={"x-single-active-consumer": True})
    fill(peer)
    node, peer = again(node)
    for tag in ("a", "b"):
        peer.send(method(1, "basic.consume", queue="q", consumer_tag=tag, no_ack=True))
    heard = [one for one in peer.take() if one.name == "basic.deliver"]
    assert [int(one.body) for one in heard] == list(range(MANY))
    assert {one.consumer_tag for one in heard} == {"a"}


# -- files -----------------------------------------------------------------------------------------


def test_files_of_transient_messages_go_when_nothing_needs_them() -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer, delivery_mode=1)
    assert temporary_files(node)
    assert got(peer) == list(range(MANY))
    node.write_spilled()
    assert temporary_files(node) == []
    node.hold_spill = True
    fill(peer, delivery_mode=1)
    peer.call(1, "queue.purge", queue="q")
    assert node.spill.take_unused() == []
    node.write_spilled()
    assert temporary_files(node) == []
    exact(node)


def test_transient_and_persistent_messages_share_a_chunk_until_the_stop() -> None:
    node, peer = deep()
    peer.declare("q")
    for number in range(2 * MANY):
        fill(peer, 1, number, delivery_mode=2 if number % 3 else 1)
    assert bodies(node.classic("q")) == list(range(2 * MANY))
    kept = [number for number in range(2 * MANY) if number % 3]
    for crash in (False, True):
        node, peer = again(node, crash=crash)
        exact(node)
        assert bodies(node.classic("q")) == kept
    assert got(peer) == kept


# -- damage ----------------------------------------------------------------------------------------


def harmed(node: Node, place: float) -> RecordingDisk:
    """The directory after a stop with one byte changed in a chunk of the middle of its queue."""
    refs = [stored.ref for stored in node.classic("q").stored.items]
    ref = refs[len(refs) // 2]
    for _ in range(2):
        # No journal has them any more.
        node.take_checkpoint()
    image = node.stop()
    path = segment_path(int(ref.file_number))
    data = bytearray(image.files[path])
    data[int(int(ref.position) + int(ref.size) * place)] ^= 0x40
    image.files[path] = bytes(data)
    return RecordingDisk(image)


@pytest.mark.parametrize("place", [0.05, 0.98])
def test_a_damaged_page_costs_itself_and_no_more(place: float) -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer, 3 * MANY)
    got_first = [int(peer.call_get("q", no_ack=True).body) for _ in range(5)]
    node.sync()
    node = Node(harmed(node, place), window_bytes=0)
    peer = node.connect()
    before = node.classic("q").ready_count()
    rest = got(peer)
    lost = [one for damaged in node.core.damaged for one in [int(damaged.records)]]
    assert rest == sorted(rest)
    assert len(set(rest)) == len(rest)
    assert before - len(rest) == sum(lost) > 0
    assert len(rest) + sum(lost) == 3 * MANY - len(got_first)
    exact(node)
    assert node.classic("q").stored.items == []


def test_a_file_that_is_gone_costs_its_pages_only() -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer)
    node.sync()
    node.take_checkpoint()
    fill(peer, MANY, 100)
    node.sync()
    first = node.classic("q").stored.items[0].ref
    image = node.stop()
    node = Node(RecordingDisk(image), window_bytes=0)
    peer = node.connect()
    node.disk.unlink(segment_path(int(first.file_number)))
    rest = got(peer)
    assert rest[-MANY:] == list(range(100, 100 + MANY))
    assert sum(int(one.records) for one in node.core.damaged) == 2 * MANY - len(rest)
    exact(node)


def test_a_look_does_not_count_damage_twice() -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer, 3 * MANY)
    node.sync()
    node = Node(harmed(node, 0.98), window_bytes=0)
    peer = node.connect()
    for _ in range(3):
        seen = bodies(node.classic("q"))
    lost = 3 * MANY - len(seen)
    assert got(peer) == seen
    assert sum(int(one.records) for one in node.core.damaged) == lost > 0


# -- browsing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 7, 55, -1, -40, 1000])
def test_browsing_a_deep_queue_begins_where_it_is_asked_to(position: int) -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer, 2 * MANY)
    assert [int(peer.call_get("q", no_ack=True).body) for _ in range(3)] == [0, 1, 2]
    queue = node.classic("q")
    found: list[int] = []
    after: int | None = None
    while True:
        page = browse(queue, BrowseFilter(position), after, 7)
        found += [int(item.message.body) for item in page.items]
        after = page.after
        if after is None:
            break
    assert found == list(range(3, 2 * MANY))[position:]
    exact(node)


def test_a_consumer_browses_what_lies_on_the_disk() -> None:
    node, peer = deep()
    peer.declare("q")
    fill(peer, 2 * MANY)
    peer.call(1, "basic.consume", queue="q", consumer_tag="b", arguments={"x-browse": True})
    heard = [int(one.body) for one in peer.take() if one.name == "basic.deliver"]
    assert heard == list(range(2 * MANY))
    exact(node)
    assert got(peer) == heard


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 2}], ids=["plain", "priorities"])
def test_large_messages_are_read_ahead_by_bytes(arguments: dict[str, object]) -> None:
    """A page may be one message of the largest size: of such ones the next is read, no more."""
    node, peer = deep()
    peer.declare("q", arguments=arguments)
    for number in range(5):
        peer.send(publish(1, "", "q", bytes([number]) * PAGES_AHEAD_BYTES, delivery_mode=2))
    node.write_spilled()
    node.sync()
    assert peer.call_get("q").body[:1] == b"\0"
    node.run()
    # One is unacked and the next is at hand; three lie on the disk.
    assert 2 * PAGES_AHEAD_BYTES < node.core.memory.held_bytes < 3 * PAGES_AHEAD_BYTES
