"""Consumers of a stream that read under a name: their stored offset, and one of them at a time."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.stream.offsets import STREAM_OFFSETS_MS, StreamOffsets
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import STREAM_OFFSET_NAMES_MAX
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish


@pytest.fixture
def peer(node: Node) -> Peer:
    """A connection that declared the stream `s`."""
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    return peer


def put(node: Node, first: int, last: int) -> None:
    """Publish these numbers, and sync."""
    peer = node.connect()
    peer.send(*[publish(1, "", "s", b"%d" % number) for number in range(first, last + 1)])
    node.sync()


def read(
    node: Node,
    name: str = "app",
    offset: Any = "first",
    prefetch: int = 100,
    arguments: dict[str, Any] | None = None,
) -> Peer:
    """A new connection that consumes under a name, with the tag `c`."""
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=prefetch)
    told = {"x-stream-consumer": name, "x-stream-offset": offset} | (arguments or {})
    reader.call(1, "basic.consume", queue="s", consumer_tag="c", arguments=told)
    return reader


def numbers(reader: Peer) -> list[int]:
    """The bodies that came, as numbers."""
    return [int(body) for body in reader.bodies()]


def ack(reader: Peer, tag: int, *, multiple: bool = False) -> None:
    """Ack a delivery."""
    reader.send(method(1, "basic.ack", delivery_tag=tag, multiple=multiple))


def offsets(node: Node) -> StreamOffsets:
    """The stored offsets of the stream."""
    return node.stream("s").offsets


def restarted(node: Node) -> Node:
    """What a kill now leaves, started again."""
    return Node(RecordingDisk(node.image()), clock=node.clock)


# -- the stored offset -----------------------------------------------------------------------------


def test_a_name_begins_where_it_stopped(node: Node, peer: Peer) -> None:
    put(node, 0, 9)
    reader = read(node)
    assert numbers(reader) == list(range(10))
    ack(reader, 4, multiple=True)
    reader.call(1, "basic.cancel", consumer_tag="c")
    reader.lose()
    assert numbers(read(node)) == list(range(4, 10))
    assert numbers(read(node, "other")) == list(range(10))


def test_a_new_name_keeps_its_start_at_once(node: Node, peer: Peer) -> None:
    """What comes while it is away it gets later, though it never acked anything."""
    put(node, 0, 2)
    read(node, offset="next").lose()
    put(node, 3, 4)
    assert numbers(read(node, offset="next")) == [3, 4]


def test_the_offset_stays_before_the_first_that_is_not_done(node: Node, peer: Peer) -> None:
    put(node, 0, 9)
    reader = read(node)
    assert numbers(reader) == list(range(10))
    for tag in (10, 1, 2, 5, 4):
        ack(reader, tag)
    reader.lose()
    assert offsets(node).stored == {"app": 2}
    reader = read(node)
    assert numbers(reader) == list(range(2, 10))
    ack(reader, 8, multiple=True)
    reader.lose()
    assert offsets(node).stored == {"app": 10}


def test_a_reject_is_done_and_what_is_given_back_comes_again(node: Node, peer: Peer) -> None:
    put(node, 0, 5)
    reader = read(node)
    assert len(numbers(reader)) == 6
    reader.send(method(1, "basic.reject", delivery_tag=1, requeue=False))
    reader.send(method(1, "basic.nack", delivery_tag=3, requeue=True))
    ack(reader, 6, multiple=True)
    assert numbers(reader) == [], "not to this one"
    reader.lose()
    assert numbers(read(node)) == [2, 3, 4, 5]


def test_a_channel_that_ends_gives_back_what_it_held(node: Node, peer: Peer) -> None:
    put(node, 0, 5)
    reader = read(node)
    assert len(numbers(reader)) == 6
    ack(reader, 3, multiple=True)
    reader.call(1, "channel.close")
    assert numbers(read(node)) == [3, 4, 5]


def test_what_is_acked_after_the_cancel_counts(node: Node, peer: Peer) -> None:
    put(node, 0, 5)
    reader = read(node)
    assert len(numbers(reader)) == 6
    reader.call(1, "basic.cancel", consumer_tag="c")
    later = read(node)
    assert numbers(later) == [], "the one before holds messages"
    ack(reader, 5, multiple=True)
    assert numbers(later) == []
    ack(reader, 6)
    assert numbers(later) == []
    put(node, 6, 6)
    assert numbers(later) == [6]


def test_what_a_filter_passes_over_is_done(node: Node, peer: Peer) -> None:
    put(node, 0, 9)
    reader = read(node, arguments={"x-stream-filter-routing-key": "other"})
    assert numbers(reader) == []
    node.tick(STREAM_OFFSETS_MS)
    assert offsets(node).stored == {"app": 10}


def test_a_time_is_looked_for_until_it_is_found(node: Node, peer: Peer) -> None:
    """Only then there is an offset to store: a name that has read nothing asks once more."""
    put(node, 0, 1)
    node.tick(10_000)
    put(node, 2, 3)
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=1)
    arguments = {"x-stream-consumer": "app", "x-stream-offset": "5s"}
    reader.receive(method(1, "basic.consume", queue="s", arguments=arguments))
    assert offsets(node).stored == {}
    node.run()
    reader.expect(1, "basic.consume-ok")
    assert numbers(reader) == [2]
    node.tick(STREAM_OFFSETS_MS)
    reader.lose()
    assert offsets(node).stored == {"app": 2}


def test_an_offset_that_retention_took_begins_at_the_first(node: Node) -> None:
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream", "x-max-age": "60s"})
    put(node, 0, 4)
    reader = read(node, prefetch=3)
    assert numbers(reader) == [0, 1, 2]
    reader.lose()
    node.take_checkpoint()
    put(node, 5, 6)
    node.tick(61_000)
    put(node, 7, 7)
    first = int(node.stream("s").first_offset)
    assert first > 0
    assert numbers(read(node)) == list(range(first, 8))


# -- records ---------------------------------------------------------------------------------------


def test_there_is_one_record_for_many_acks(node: Node, peer: Peer) -> None:
    put(node, 0, 99)
    reader = read(node)
    assert len(numbers(reader)) == 100
    node.sync()
    for tag in range(1, 51):
        ack(reader, tag)
    assert not node.journal.has_records()
    node.tick(STREAM_OFFSETS_MS - 1)
    assert not node.journal.has_records()
    node.tick(1)
    assert node.journal.has_records()
    size = int(node.journal.unsynced_bytes)
    assert size < 100
    assert offsets(node).stored == {"app": 50}
    node.sync()
    node.tick(STREAM_OFFSETS_MS * 2)
    assert not node.journal.has_records(), "nothing has moved"


def test_cancel_ok_says_that_the_offset_is_on_the_disk(node: Node, peer: Peer) -> None:
    put(node, 0, 9)
    reader = read(node)
    assert len(numbers(reader)) == 10
    ack(reader, 7, multiple=True)
    reader.send(method(1, "basic.cancel", consumer_tag="c"))
    assert reader.take() == []
    node.sync()
    reader.expect(1, "basic.cancel-ok")
    assert offsets(restarted(node)).stored == {"app": 7}


def test_a_kill_brings_back_no_more_than_the_last_moment(node: Node, peer: Peer) -> None:
    put(node, 0, 9)
    reader = read(node)
    assert len(numbers(reader)) == 10
    ack(reader, 3, multiple=True)
    node.tick(STREAM_OFFSETS_MS)
    node.sync()
    ack(reader, 8, multiple=True)
    again = restarted(node)
    assert numbers(read(again)) == list(range(3, 10))


@pytest.mark.parametrize("more", [0, 3])
def test_a_checkpoint_holds_the_offsets(node: Node, peer: Peer, more: int) -> None:
    put(node, 0, 9)
    reader = read(node)
    assert len(numbers(reader)) == 10
    ack(reader, 4, multiple=True)
    node.tick(STREAM_OFFSETS_MS)
    offsets(node).set("by hand", 2)
    offsets(node).set("gone", 5)
    node.take_checkpoint()
    offsets(node).forget("gone")
    if more:
        ack(reader, 4 + more, multiple=True)
        node.tick(STREAM_OFFSETS_MS)
    node.sync()
    expected = {"app": 4 + more, "by hand": 2}
    again = restarted(node)
    assert offsets(again).stored == expected
    for _ in range(3):
        # The journal that told them goes; the snapshots go on telling.
        again.take_checkpoint()
    assert offsets(restarted(again)).stored == expected


def test_offsets_go_with_their_stream(node: Node, peer: Peer) -> None:
    put(node, 0, 9)
    reader = read(node)
    assert len(numbers(reader)) == 10
    ack(reader, 5)
    peer.call(1, "queue.delete", queue="s")
    reader.expect(1, "basic.cancel")
    ack(reader, 6)
    reader.call(1, "basic.qos")
    node.tick(STREAM_OFFSETS_MS)
    peer.declare("s", arguments={"x-queue-type": "stream"})
    assert offsets(node).stored == {}
    assert offsets(restarted(node)).stored == {}


def test_an_offset_ahead_of_a_stream_that_lost_its_end_is_no_longer_ahead(
    node: Node, peer: Peer
) -> None:
    put(node, 0, 2)
    stream = node.stream("s")
    stream.core.journal.consumer_offset(stream.queue_id, b"app", 50)
    node.sync()
    assert offsets(restarted(node)).stored == {"app": 3}


# -- one at a time ---------------------------------------------------------------------------------


def test_one_of_a_name_reads_and_the_next_goes_on(node: Node, peer: Peer) -> None:
    first, second, third = (read(node) for _ in range(3))
    put(node, 0, 4)
    assert [numbers(one) for one in (first, second, third)] == [[0, 1, 2, 3, 4], [], []]
    ack(first, 2, multiple=True)
    first.lose()
    assert [numbers(one) for one in (second, third)] == [[2, 3, 4], []]
    ack(second, 3, multiple=True)
    second.lose()
    put(node, 5, 5)
    assert numbers(third) == [5]
    assert len(node.stream("s").consumers) == 1


def test_a_higher_priority_takes_over_when_what_is_out_is_settled(node: Node, peer: Peer) -> None:
    low = read(node, prefetch=3)
    put(node, 0, 9)
    assert numbers(low) == [0, 1, 2]
    high = read(node, arguments={"x-priority": 5})
    ack(low, 1)
    assert (numbers(low), numbers(high)) == ([], [])
    ack(low, 3, multiple=True)
    assert (numbers(low), numbers(high)) == ([], list(range(3, 10)))
    high.lose()
    assert numbers(low) == [3, 4, 5]


def test_groups_and_others_read_by_themselves(node: Node, peer: Peer) -> None:
    named, other = read(node), read(node, "b", offset="next")
    plain = node.connect()
    plain.call(1, "basic.qos", prefetch_count=2)
    plain.call(1, "basic.consume", queue="s")
    put(node, 0, 3)
    assert [numbers(one) for one in (named, other, plain)] == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1]]
    node.take_checkpoint()
    stream = node.stream("s")
    assert (len(stream.consumers), len(stream.readers), len(stream.offsets.groups)) == (3, 1, 2)
    for one in (named, other, plain):
        one.lose()
    assert (len(stream.consumers), len(stream.readers), len(stream.offsets.groups)) == (0, 0, 0)


def test_a_group_reads_chunks_from_the_disk(node: Node, peer: Peer) -> None:
    for first in range(0, 40, 10):
        put(node, first, first + 9)
        node.take_checkpoint()
    reader = read(node, prefetch=7)
    got = numbers(reader)
    for tag in range(1, 41):
        ack(reader, tag)
        got += numbers(reader)
    assert got == list(range(40))


def test_a_stream_in_use_by_a_group_is_in_use(node: Node, peer: Peer) -> None:
    reader = read(node)
    assert peer.declare("s", arguments={"x-queue-type": "stream"}).consumer_count == 1
    peer.send(method(1, "queue.delete", queue="s", if_unused=True))
    assert peer.expect(1, "channel.close").code == 406
    reader.lose()


def test_an_exclusive_consumer_is_alone(node: Node, peer: Peer) -> None:
    alone = node.connect()
    alone.call(1, "basic.qos", prefetch_count=1)
    arguments = {"x-stream-consumer": "app"}
    alone.call(1, "basic.consume", queue="s", exclusive=True, arguments=arguments)
    late = node.connect()
    late.call(1, "basic.qos", prefetch_count=1)
    late.send(method(1, "basic.consume", queue="s", arguments=arguments))
    assert late.expect(1, "channel.close").code == 403
    alone.lose()
    read(node)


# -- what is refused -------------------------------------------------------------------------------


BAD: list[dict[str, Any]] = [
    {"x-stream-consumer": ""},
    {"x-stream-consumer": 5},
    {"x-stream-consumer": "x" * 256},
    {"x-stream-consumer": b"\xff"},
    {"x-stream-consumer": None},
    {"x-stream-consumer": "app", "x-stream-offset": "never"},
    {"x-stream-consumer": "app", "x-stream-filter": 5},
]


@pytest.mark.parametrize("arguments", BAD, ids=repr)
def test_what_is_wrong_leaves_nothing_behind(
    node: Node, peer: Peer, arguments: dict[str, Any]
) -> None:
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=1)
    reader.send(method(1, "basic.consume", queue="s", arguments=arguments))
    assert reader.expect(1, "channel.close").code == 406
    assert (offsets(node).stored, offsets(node).groups) == ({}, {})
    assert not node.stream("s").consumers


def test_a_named_consumer_needs_acks_and_prefetch_too(node: Node, peer: Peer) -> None:
    for prefetch, no_ack, code in ((0, False, 406), (1, True, 540)):
        reader = node.connect()
        reader.call(1, "basic.qos", prefetch_count=prefetch)
        arguments = {"x-stream-consumer": "app"}
        reader.send(method(1, "basic.consume", queue="s", no_ack=no_ack, arguments=arguments))
        assert reader.take()[-1].code == code
    assert (offsets(node).stored, offsets(node).groups) == ({}, {})


def test_a_classic_queue_has_no_names(node: Node) -> None:
    """As with `x-stream-offset`: one consumer may read queues and streams."""
    peer = node.connect()
    peer.declare("q")
    peer.call(1, "basic.consume", queue="q", arguments={"x-stream-consumer": "app"})


def test_so_many_names_at_most(node: Node, peer: Peer) -> None:
    for number in range(STREAM_OFFSET_NAMES_MAX):
        offsets(node).set(str(number), 0)
    with pytest.raises(PreconditionFailed, match="at most"):
        offsets(node).set("one more", 0)
    put(node, 0, 0)
    offsets(node).set("7", 1)
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=1)
    reader.send(method(1, "basic.consume", queue="s", arguments={"x-stream-consumer": "one more"}))
    assert reader.expect(1, "channel.close").code == 406
    assert not node.stream("s").consumers
    read(node, "8")
    offsets(node).forget("9")
    read(node, "one more")


def test_an_operator_moves_only_what_nobody_reads(node: Node, peer: Peer) -> None:
    reader = read(node)
    with pytest.raises(PreconditionFailed, match="in use"):
        offsets(node).set("app", 0)
    with pytest.raises(PreconditionFailed, match="in use"):
        offsets(node).forget("app")
    reader.lose()
    put(node, 0, 4)
    offsets(node).set("app", 3)
    assert numbers(read(node)) == [3, 4]
    with pytest.raises(NotFound):
        offsets(node).forget("nobody")


def test_what_an_operator_set_is_not_moved_by_one_who_left(node: Node, peer: Peer) -> None:
    put(node, 0, 4)
    reader = read(node)
    assert len(numbers(reader)) == 5
    ack(reader, 5, multiple=True)
    reader.lose()
    offsets(node).set("app", 1)
    node.tick(STREAM_OFFSETS_MS)
    assert offsets(node).stored == {"app": 1}
