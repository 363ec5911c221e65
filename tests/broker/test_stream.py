"""The stream: offsets, who sees what and when, retention, and blocks that lie in files.

Sources: RabbitMQ's streams over AMQP 0-9-1; behaviours 46 (bad arguments) and 57 (basic.get).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.stream.stream import Stream
from leveret.limits import CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from leveret.wire.tables import Timestamp
from support.node.core import Node, Peer
from support.wire.raw import Method
from support.wire.raw_codec import Typed, decode_properties, method, publish

STREAM = {"x-queue-type": "stream"}

Steps = list[tuple[str, int]]


@pytest.fixture
def peer(node: Node) -> Peer:
    """A connection whose channel 1 declared the stream `s` and takes 1000 messages at once."""
    return declared(node)


def declared(node: Node, **arguments: Any) -> Peer:
    """A connection that declared the stream `s` with such arguments."""
    peer = node.connect()
    told = {name.replace("_", "-"): value for name, value in arguments.items()}
    peer.declare("s", arguments=STREAM | told)
    peer.call(1, "basic.qos", prefetch_count=1000)
    return peer


def stream(node: Node) -> Stream:
    """The stream `s`."""
    queue = node.vhost.queues.existing(Name("s"), None)
    assert isinstance(queue, Stream)
    return queue


def put(peer: Peer, *bodies: bytes) -> None:
    """Publish to the stream and sync."""
    peer.send(*[publish(1, "", "s", body) for body in bodies])
    peer.node.sync()


def consume(node: Node, offset: Any = "first", prefetch: int = 1000) -> Peer:
    """A new connection that consumes the stream from `offset`."""
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=prefetch)
    at = {} if offset is None else {"x-stream-offset": offset}
    reader.call(1, "basic.consume", queue="s", arguments=at)
    return reader


def numbers(reader: Peer) -> list[int]:
    """The bodies that came, as numbers."""
    return [int(body) for body in reader.bodies()]


def store(node: Node) -> None:
    """Have all blocks written to a file, as when they are full, and let go of their memory."""
    stream(node).settle()
    node.sync()
    for block in list(node.core.stream_cache.blocks):
        node.core.stream_cache.drop(block)


# -- who sees what ---------------------------------------------------------------------------------


def test_only_synced_offsets_are_seen(node: Node, peer: Peer) -> None:
    reader = consume(node)
    peer.send(publish(1, "", "s", b"0"))
    node.begin_sync()
    peer.send(publish(1, "", "s", b"1"))
    node.write()
    assert reader.take() == []
    assert stream(node).ready_count() == 0
    node.end_sync()
    assert numbers(reader) == [0]
    node.sync()
    assert numbers(reader) == [1]


def test_what_is_not_persistent_is_kept_too(node: Node, peer: Peer) -> None:
    peer.call(1, "confirm.select")
    peer.send(publish(1, "", "s", b"0", delivery_mode=1))
    assert peer.take() == []
    node.sync()
    peer.expect(1, "basic.ack")
    again = Node(RecordingDisk(node.image()))
    assert numbers(consume(again)) == [0]


def test_each_reader_reads_all_and_removes_nothing(node: Node, peer: Peer) -> None:
    put(peer, *[b"%d" % number for number in range(10)])
    for _ in range(2):
        reader = consume(node)
        assert numbers(reader) == list(range(10))
        reader.send(method(1, "basic.ack", delivery_tag=10, multiple=True))
    assert stream(node).ready_count() == 10


def test_a_delivery_carries_its_offset_and_time(node: Node, peer: Peer) -> None:
    peer.send(publish(1, "", "s", b"0", headers={"mine": 1}, message_id="m"))
    node.tick(5)
    put(peer, b"1")
    first, second = consume(node).take()
    start = node.clock.wall_ms() - 5
    assert decode_properties(first.properties) == {
        "headers": {"mine": 1, "x-stream-offset": 0, "x-stream-timestamp": start},
        "message_id": "m",
    }
    assert decode_properties(second.properties) == {
        "headers": {"x-stream-offset": 1, "x-stream-timestamp": start + 5}
    }


shorts = st.text(max_size=20).filter(lambda text: len(text.encode()) <= 255)


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("content_type", "content_encoding", "reply_to"), shorts)
        | {
            "headers": st.dictionaries(shorts, st.integers(-9, 9) | shorts, max_size=3),
            "priority": st.integers(0, 255),
            "timestamp": st.integers(0, 2**63),
        },
    )
)
def test_any_properties_come_back_with_the_two_headers(values: dict[str, Any]) -> None:
    node = Node()
    peer = declared(node)
    peer.send(publish(1, "", "s", b"x", **values))
    node.sync()
    got = decode_properties(consume(node).take()[0].properties)
    headers = got.pop("headers")
    assert (headers.pop("x-stream-offset"), "x-stream-timestamp" in headers) == (0, True)
    del headers["x-stream-timestamp"]
    assert headers == values.pop("headers", {})
    assert got == values


# -- where a reader starts -------------------------------------------------------------------------


def test_first_last_next_and_a_number(node: Node, peer: Peer) -> None:
    """Without the argument a reader starts at next."""
    put(peer, *[b"%d" % number for number in range(10)])
    starts = {"first": 0, "last": 9, "next": 10, None: 10, 4: 4, 9: 9, 10: 10}
    readers = {at: consume(node, at) for at in starts}
    late = consume(node, 12)
    put(peer, b"10", b"11")
    for at, start in starts.items():
        assert numbers(readers[at]) == list(range(start, 12)), at
    assert late.take() == []
    put(peer, b"12")
    assert numbers(late) == [12]


@pytest.mark.parametrize("at", ["first", "last", "next", 0, Typed("T", 0), "1h"])
def test_an_empty_stream_may_be_read_from_anywhere(node: Node, peer: Peer, at: Any) -> None:
    reader = consume(node, at)
    put(peer, b"0")
    assert numbers(reader) == [0]


def test_a_timestamp_and_an_interval(node: Node, peer: Peer) -> None:
    """AMQP's timestamps count seconds, the broker's times milliseconds."""
    for number in range(10):
        put(peer, b"%d" % number)
        node.tick(10_000)
    now = node.clock.wall_ms() // 1000
    starts = {0: 0, now - 100: 0, now - 99: 1, now - 50: 5, now - 10: 9, now - 9: 10, now + 99: 10}
    for seconds, start in starts.items():
        reader = consume(node, Typed("T", seconds))
        assert numbers(reader) == list(range(start, 10)), now - seconds
    intervals = {"1D": 0, "100s": 0, "1m": 4, "30s": 7, "9s": 10, "0s": 10}
    for text, start in intervals.items():
        assert numbers(consume(node, text)) == list(range(start, 10)), text


BAD = ["", "s", "tomorrow", "-1s", "1w", "1.5h", True, 1.5, None, b"first", ["first"], {}]


@pytest.mark.parametrize("at", BAD, ids=repr)
def test_an_offset_that_is_none_is_refused(node: Node, peer: Peer, at: Any) -> None:
    """Behaviour 46 (bad arguments)."""
    arguments = {"x-stream-offset": at}
    peer.send(method(1, "basic.consume", queue="s", arguments=arguments))
    closed = peer.expect(1, "channel.close")
    where = "queue 's' in vhost '/'"
    assert closed.code == 406
    assert closed.text == f"PRECONDITION_FAILED - invalid arg 'x-stream-offset' for {where}"


HUGE = [
    2**63 - 1,
    Typed("L", 2**64 - 1),
    Typed("T", 2**64 - 1),
    Typed("T", 2**62),
    "9" * 30 + "s",
    "9" * 18 + "Y",
]


@pytest.mark.parametrize("at", HUGE, ids=repr)
def test_an_offset_far_away_does_no_harm(node: Node, peer: Peer, at: Any) -> None:
    put(peer, b"0")
    peer.send(method(1, "basic.consume", queue="s", arguments={"x-stream-offset": at}))
    assert peer.take()[0].name in {"basic.consume-ok", "channel.close"}
    assert not [text for _, text in peer.connection.log if "internal error" in text]


def test_what_a_reader_must_bring(node: Node, peer: Peer) -> None:
    """Acks and a prefetch; basic.get is for other queues (behaviour 57: basic.get)."""
    for name, values, code in (
        ("basic.consume", {"queue": "s", "no_ack": True}, 540),
        ("basic.get", {"queue": "s"}, 540),
        ("queue.purge", {"queue": "s"}, 540),
    ):
        other = node.connect()
        other.call(1, "basic.qos", prefetch_count=1)
        other.send(method(1, name, **values))
        assert other.take()[-1].code == code, name
    other = node.connect()
    other.send(method(1, "basic.consume", queue="s"))
    assert other.expect(1, "channel.close").code == 406


def test_a_prefetch_of_the_channel_is_enough(node: Node, peer: Peer) -> None:
    """As in RabbitMQ 4.3, which takes it for the consumer's; here all of the channel share it."""
    put(peer, *[b"%d" % number for number in range(10)])
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=3, **{"global": True})
    reader.call(1, "basic.consume", queue="s", arguments={"x-stream-offset": "first"})
    assert numbers(reader) == [0, 1, 2]
    reader.send(method(1, "basic.ack", delivery_tag=2, multiple=True))
    assert numbers(reader) == [3, 4]


@pytest.mark.parametrize("bad", ["durable", "exclusive", "auto_delete"])
def test_a_stream_is_durable_and_shared(node: Node, bad: str) -> None:
    peer = node.connect()
    flags = {"durable": True, bad: bad != "durable"}
    peer.send(method(1, "queue.declare", queue="s", arguments=STREAM, **flags))
    assert peer.expect(1, "channel.close").code == 406


# -- credit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settle",
    [("basic.ack", {}), ("basic.nack", {"requeue": True}), ("basic.reject", {"requeue": False})],
    ids=lambda settle: settle[0],
)
def test_settling_is_credit(node: Node, peer: Peer, settle: tuple[str, dict[str, Any]]) -> None:
    """Whatever the consumer says of a message, it goes on: a stream takes nothing back."""
    put(peer, *[b"%d" % number for number in range(10)])
    reader = consume(node, prefetch=3)
    assert numbers(reader) == [0, 1, 2]
    name, values = settle
    reader.send(method(1, name, delivery_tag=2, **values))
    assert numbers(reader) == [3]
    reader.send(method(1, "basic.ack", delivery_tag=4, multiple=True))
    assert numbers(reader) == [4, 5, 6]


def test_readers_go_on_by_themselves(node: Node, peer: Peer) -> None:
    put(peer, *[b"%d" % number for number in range(10)])
    slow, fast = consume(node, prefetch=1), consume(node)
    assert (numbers(slow), numbers(fast)) == ([0], list(range(10)))
    fast.lose()
    slow.send(method(1, "basic.ack", delivery_tag=1))
    assert numbers(slow) == [1]


def test_a_cancelled_reader_gets_no_more(node: Node, peer: Peer) -> None:
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=10)
    tag = reader.call(1, "basic.consume", queue="s").consumer_tag
    reader.call(1, "basic.cancel", consumer_tag=tag)
    put(peer, b"0")
    assert reader.take() == []
    assert not stream(node).readers


def test_deleting_a_stream_ends_its_readers_and_frees_its_memory(node: Node, peer: Peer) -> None:
    put(peer, b"0", b"1")
    reader = consume(node)
    peer.send(publish(1, "", "s", b"2"), method(1, "queue.delete", queue="s"))
    node.sync()
    assert reader.names() == ["basic.deliver", "basic.deliver", "basic.cancel"]
    assert (node.core.memory.held_bytes, node.core.memory.held_messages) == (0, 0)
    reader.send(method(1, "basic.ack", delivery_tag=2, multiple=True))
    reader.call(1, "basic.qos")


# -- blocks (those in files: `test_stream_files.py`) -----------------------------------------------


@pytest.mark.in_memory
def test_blocks_end_at_the_bytes_of_a_chunk(node: Node, peer: Peer) -> None:
    body = bytes(CHUNK_BYTES_MAX // 4)
    put(peer, *[body] * 10)
    assert [int(block.count) for block in stream(node).blocks] == [3, 3, 3, 1]
    put(peer, bytes(CHUNK_BYTES_MAX + 1), b"")
    assert [int(block.count) for block in stream(node).blocks] == [3, 3, 3, 1, 1, 1]
    reader = consume(node)
    assert [len(got) for got in reader.bodies()] == [len(body)] * 10 + [CHUNK_BYTES_MAX + 1, 0]


@pytest.mark.in_memory
def test_blocks_end_at_the_records_of_a_chunk(node: Node, peer: Peer) -> None:
    put(peer, *[b""] * (CHUNK_RECORDS_MAX + 1))
    assert [int(block.count) for block in stream(node).blocks] == [CHUNK_RECORDS_MAX, 1]
    first = [int(block.first) for block in stream(node).blocks]
    assert first == [0, CHUNK_RECORDS_MAX]


# -- retention -------------------------------------------------------------------------------------

QUARTER = CHUNK_BYTES_MAX // 4


def kept(node: Node) -> list[int]:
    """The offsets that a new reader gets."""
    got = [decode_properties(one.properties)["headers"] for one in consume(node).take()]
    return [headers["x-stream-offset"] for headers in got]


@pytest.mark.in_memory
def test_bytes_over_the_maximum_go_by_whole_blocks(node: Node) -> None:
    peer = declared(node, x_max_length_bytes=CHUNK_BYTES_MAX)
    for _ in range(5):
        put(peer, bytes(QUARTER))
    assert kept(node) == [3, 4]
    put(peer, *[bytes(QUARTER)] * 20)
    assert kept(node) == [24]
    assert stream(node).ready_bytes() <= CHUNK_BYTES_MAX


@pytest.mark.in_memory
def test_nothing_goes_before_it_was_seen(node: Node) -> None:
    """Retention takes synced offsets only."""
    peer = declared(node, x_max_length_bytes=0)
    peer.send(*[publish(1, "", "s", bytes(QUARTER)) for _ in range(9)])
    assert len(stream(node).blocks) == 3
    node.sync()
    assert len(stream(node).blocks) == 1


@pytest.mark.in_memory
def test_what_is_too_old_goes_by_whole_blocks(node: Node) -> None:
    peer = declared(node, x_max_age="10s")
    put(peer, *[bytes(QUARTER)] * 3)
    node.tick(6000)
    put(peer, *[bytes(QUARTER)] * 3)
    node.tick(5000)
    assert kept(node) == [3, 4, 5]
    node.tick(100_000)
    # The last block stays: it is still written to.
    assert kept(node) == [3, 4, 5]


@pytest.mark.in_memory
def test_where_a_reader_starts_after_retention(node: Node) -> None:
    peer = declared(node, x_max_length_bytes=CHUNK_BYTES_MAX)
    put(peer, *[bytes(QUARTER)] * 10)
    assert kept(node) == [9]
    for at in ("first", 0, 8, Typed("T", 0), "1Y"):
        got: list[Method] = consume(node, at).take()
        assert decode_properties(got[0].properties)["headers"]["x-stream-offset"] == 9, at
    assert consume(node, "next").take() == []


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "in a file"])
def test_a_reader_whose_block_went_goes_on_at_what_is_left(node: Node, stored: bool) -> None:
    peer = declared(node, x_max_length_bytes=CHUNK_BYTES_MAX)
    put(peer, *[bytes(QUARTER)] * 3)
    reader = consume(node, prefetch=1)
    assert len(reader.take()) == 1
    if stored:
        store(node)
    put(peer, *[bytes(QUARTER)] * 9)
    assert stream(node).first_offset > 2
    reader.send(method(1, "basic.ack", delivery_tag=1))
    (got,) = reader.take()
    offset = decode_properties(got.properties)["headers"]["x-stream-offset"]
    assert offset == stream(node).first_offset


def test_a_reader_whose_block_went_waits_for_the_sync_of_what_is_left(node: Node) -> None:
    peer = declared(node, x_max_length_bytes=CHUNK_BYTES_MAX)
    put(peer, *[bytes(QUARTER)] * 3)
    reader = consume(node, prefetch=1)
    assert len(reader.take()) == 1
    peer.send(publish(1, "", "s", bytes(3 * QUARTER)))
    node.tick()
    assert stream(node).first_offset == stream(node).visible_end == 3
    reader.send(method(1, "basic.ack", delivery_tag=1))
    assert reader.take() == []
    node.sync()
    assert len(reader.take()) == 1


def test_a_block_that_went_while_it_was_read_holds_no_memory(node: Node) -> None:
    peer = declared(node, x_max_length_bytes=CHUNK_BYTES_MAX)
    put(peer, *[bytes(QUARTER)] * 3)
    store(node)
    block = stream(node).blocks[0]
    stream(node).want(block)
    (wanted,) = node.core.take_wanted()
    put(peer, *[bytes(QUARTER)] * 9)
    held = node.core.memory.held_bytes
    wanted.arrived(b"")
    assert node.core.memory.held_bytes == held


def test_what_is_gone_is_gone_after_a_restart(node: Node) -> None:
    peer = declared(node, x_max_length_bytes=CHUNK_BYTES_MAX)
    put(peer, *[bytes(QUARTER)] * 10)
    node.sync()
    before = kept(node)
    again = Node(RecordingDisk(node.image()))
    assert kept(again) == before
    assert stream(again).next_number() == 10


stream_steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["sync", "store", "read"]), st.integers(0, 9)),
    ),
    max_size=30,
)


def offsets(reader: Peer) -> list[int]:
    """The offsets that came since the last look."""
    headers = [decode_properties(one.properties)["headers"] for one in reader.take()]
    return [one["x-stream-offset"] for one in headers]


@settings(max_examples=60)
@given(st.sampled_from([None, 0, 3 * CHUNK_BYTES_MAX]), stream_steps)
def test_readers_miss_nothing_but_what_went(bytes_max: int | None, steps: Steps) -> None:
    """Offsets come in order, each once, and only retention leaves gaps."""
    node = Node()
    peer = declared(node, **({} if bytes_max is None else {"x_max_length_bytes": bytes_max}))
    queue = stream(node)
    readers: list[tuple[Peer, list[int]]] = []
    for step, number in [*steps, ("sync", 0), *[("ack", 4)] * 100]:
        if step == "publish":
            peer.send(*[publish(1, "", "s", bytes(QUARTER + 1))] * number)
        elif step == "sync":
            node.sync()
        elif step == "read":
            readers.append((consume(node, "first", prefetch=number % 3 + 1), []))
        elif step == "store":
            queue.settle()
            node.core.stream_cache.bytes_max = number * QUARTER
        for reader, got in readers:
            if step == "ack" and got:
                reader.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
            for offset in offsets(reader):
                assert offset < queue.visible_end
                gap = bool(got) and offset != got[-1] + 1
                assert not gap or (bytes_max is not None and offset > got[-1])
                got.append(offset)
    for _, got in readers:
        assert not queue.visible_end or got[-1] == queue.visible_end - 1


def test_the_timestamp_type_is_the_one_of_the_wire() -> None:
    """A number is an offset, a timestamp a time: both are numbers on the wire."""
    queue = stream_of_ten()
    assert queue.start_offset(5, "") == 5
    assert queue.start_offset(Timestamp(5), "") == 0


def stream_of_ten() -> Stream:
    """A stream of ten messages in a broker of its own."""
    node = Node()
    put(declared(node), *[b"x"] * 10)
    return stream(node)
