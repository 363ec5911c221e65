"""Bad frames end the connection that sent them, without a word, and no other."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.limits import HAREMQ_FRAME_BYTES_MAX, HAREMQ_REQUEST_BYTES_MAX
from leveret.session.states import HALT_SYNC
from support.node.core import Node
from support.wire.hare import HarePeer, frame, frame_of
from support.wire.raw_codec import publish

#: Messages of one output.
PUSHED = 400

#: The begin of a publish that is as long as one may be.
_NAME = b"hare_mq.basicPublishRequest\0"
LONGEST_PUBLISH = (
    HAREMQ_FRAME_BYTES_MAX.to_bytes(4, "big")
    + len(_NAME).to_bytes(4, "big")
    + _NAME
    # `rid`, `cid`, `exchange_name`, and a body of 60,000,000 bytes.
    + b"\x0a\x01r\x12\x02c1\x1a\x01x\x22\x80\x8e\xce\x1c"
)

GOOD = frame("openChannelRequest", rid="r2", cid="other")

BAD = {
    "no length": bytes(4),
    "a length of 9": (9).to_bytes(4, "big"),
    "a length above 64 MiB": (HAREMQ_FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
    "a long declare": frame("declareQueueRequest", rid="r", cid="c", queue_name="q" * 140_000),
    "a length of 2 GB": (2**31 - 1).to_bytes(4, "big"),
    "a negative length": b"\xff\xff\xff\xff",
    "a name beyond its frame": GOOD[:4] + b"\x00\x00\x10\x00" + GOOD[8:],
    "a name of a megabyte": LONGEST_PUBLISH[:4] + (1 << 20).to_bytes(4, "big"),
    "a negative name": GOOD[:4] + b"\xff\xff\xff\xff" + GOOD[8:],
    "a wrong checksum": GOOD[:-1] + bytes((GOOD[-1] ^ 0xFF,)),
    "a changed byte": GOOD[:40] + bytes((GOOD[40] ^ 0x01,)) + GOOD[41:],
    "a name that no type has": frame_of("basicGetRequest\n", b""),
    "a name of 129 bytes": frame_of("a" * 120, b""),
    "an unknown type that is no message": frame_of("basicGetRequest", b"\xff"),
    "a message of AMQP": b"AMQP\x00\x00\x09\x01",
    "a request of HTTP": b"GET / HTTP/1.1\r\nHost: leveret\r\n\r\n",
    "no message": frame_of("openChannelRequest", b"\xff\xff\xff"),
    "a string that is not UTF-8": frame_of("openChannelRequest", b"\x0a\x01r\x12\x01\xff"),
    "a rid that is not UTF-8": frame_of("basicPublishRequest", b"\x0a\x01\xff\x12\x02c1"),
    "a body that is not UTF-8": frame_of(
        "basicPublishRequest", b"\x0a\x01r\x12\x02c1\x1a\x01x\x22\x01\xff"
    ),
    "an exchange that is not UTF-8": frame_of(
        "basicPublishRequest", b"\x0a\x01r\x12\x02c1\x1a\x01\xff"
    ),
    "a queue that is not UTF-8": frame_of("basicAckRequest", b"\x0a\x01r\x12\x02c1\x1a\x01\xff"),
}


@pytest.fixture
def node() -> Node:
    """A broker on an empty disk in memory."""
    return Node()


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["byte by byte", "whole"])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_frame_ends_its_connection_alone(node: Node, bad: bytes, size: int) -> None:
    other = HarePeer(node)
    assert other.open()
    assert other.exchange("x", 2)
    assert other.queue("q")
    assert other.bind("x", "q")
    hostile = HarePeer(node, other.shared)
    assert hostile.open()
    assert hostile.consume("q")
    assert other.publish("x", "given back", id="id")
    assert len(hostile.pushes()) == 1
    heard = len(hostile.inbox.got)
    # What came before it in the same bytes is answered.
    data = GOOD + bad + GOOD
    for start in range(0, len(data), size):
        if hostile.is_open():
            hostile.send(data[start : start + size])
    assert not hostile.is_open()
    assert [got.message.rid for got in hostile.inbox.got[heard:]] == ["r2"]
    assert other.consume("q")
    assert other.bodies() == ["given back"]
    assert node.core.memory.assembling_bytes == 0


@pytest.mark.parametrize("end", ["refused", "forced", "lost"])
def test_a_connection_that_ended_holds_no_part_of_a_frame(node: Node, end: str) -> None:
    """It is booked no more, and 64 MB of each such connection could stay."""
    peer = HarePeer(node)
    assert peer.open()
    peer.send(LONGEST_PUBLISH + bytes(100_000))
    peer.send(bytes(100_000))
    held = len(LONGEST_PUBLISH) + 200_000
    assert node.core.memory.assembling_bytes == peer.connection.input_bytes_held() == held
    if end == "refused":
        peer.connection.assembling_bytes_max = held
        peer.send(b"x")
    elif end == "forced":
        peer.connection.force("the operator closes it")
        node.run()
    else:
        peer.vanish()
    assert not peer.is_open()
    assert node.core.memory.assembling_bytes == 0
    assert peer.connection.input_bytes_held() == 0


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_frames_in_pieces_are_answered_as_whole_ones(node: Node, size: int) -> None:
    peer = HarePeer(node)
    data = b"".join(
        [
            frame("openChannelRequest", rid="0", cid="c1"),
            frame("declareQueueRequest", rid="1", cid="c1", queue_name="q"),
            frame(
                "basicPublishRequest",
                rid="2",
                cid="c1",
                body="text",
                properties={"routing_key": "q"},
            ),
            frame("basicConsumeRequest", rid="3", cid="c1", consumer_tag="t", queue_name="q"),
        ]
    )
    for start in range(0, len(data), size):
        peer.send(data[start : start + size])
    assert [(got.message.rid, got.ok) for got in peer.inbox.got] == [
        (str(number), True) for number in range(4)
    ]
    assert peer.bodies() == ["text"]


@pytest.mark.parametrize("size", [1, 7, 500, 5_000])
@pytest.mark.parametrize("begun", [0, 20], ids=["between frames", "within one"])
def test_what_comes_while_a_connection_is_halted_is_joined_once(
    node: Node, size: int, begun: int
) -> None:
    """To put each piece behind what is there copies 256 KiB for a byte."""
    peer = HarePeer(node)
    reader = peer.connection.reader
    data = frame("openChannelRequest", rid="r" * 900, cid="c1") * 10
    peer.send(data[:begun])
    held = reader.data
    peer.connection.halt(HALT_SYNC)
    for start in range(begun, len(data), size):
        peer.send(data[start : start + size])
        assert reader.data is held
        assert reader.held() == min(start + size, len(data)) <= reader.memory()
    peer.connection.resume(HALT_SYNC)
    node.run()
    assert [got.message.cid for got in peer.inbox.got] == ["c1"] * 10
    assert reader.held() == 0


@pytest.mark.parametrize("rest", [1, 500, 3_000])
def test_a_frame_whose_rest_comes_after_a_halt_is_taken(node: Node, rest: int) -> None:
    peer = HarePeer(node)
    data = frame("openChannelRequest", rid="r" * 900, cid="c1") * 4
    peer.send(data[:100])
    for begin in range(100, len(data) - rest, 200):
        peer.connection.halt(HALT_SYNC)
        peer.send(data[begin : min(begin + 100, len(data) - rest)])
        peer.connection.resume(HALT_SYNC)
        node.run()
        peer.send(data[begin + 100 : min(begin + 200, len(data) - rest)])
    peer.send(data[-rest:])
    assert [got.message.cid for got in peer.inbox.got] == ["c1"] * 4


def test_a_frame_that_never_ends_is_counted_until_its_connection_goes(node: Node) -> None:
    peer = HarePeer(node)
    peer.open()
    whole = frame("basicPublishRequest", rid="r", cid="c1", body="x" * 100_000)
    peer.send(whole[:60_000])
    assert node.core.memory.assembling_bytes == 60_000
    peer.send(whole[60_000:])
    assert node.core.memory.assembling_bytes == 0
    peer.send(whole[:60_000])
    peer.lose()
    assert node.core.memory.assembling_bytes == 0


def test_a_frame_is_not_begun_without_memory_for_it() -> None:
    node = Node(memory_bytes_max=100_000)
    peer, other = HarePeer(node), HarePeer(node)
    assert other.open()
    peer.send(LONGEST_PUBLISH + bytes(150_000))
    assert peer.is_open()
    assert node.broker.blocked
    peer.send(bytes(150_000))
    assert not peer.is_open()
    assert other.call("basicQueryRequest").name == "basicQueryResponse"
    assert not node.broker.blocked


@pytest.mark.parametrize(
    "behind",
    [
        b"\x2a\x02\x0a\x05",
        b"\x2a\x03\x0a\x01\xff",
        b"\x22\x01b",
        b"\x22\x01b\x0a\x01r",
        b"\x22\x00",
        b"\x0a\x01r\x22\x00\x12\x01c",
    ],
)
def test_a_long_publish_with_other_fields_ends_its_connection(node: Node, behind: bytes) -> None:
    """Cut, no text, or a second body."""
    peer = HarePeer(node)
    assert peer.open()
    size = HAREMQ_REQUEST_BYTES_MAX
    body = b"\x22" + bytes((size % 128 | 128, size // 128 % 128 | 128, size // 16_384))
    data = frame_of("basicPublishRequest", body + b"b" * size + behind)
    for start in range(0, len(data), 65_536):
        assert peer.is_open()
        peer.send(data[start : start + 65_536])
    assert not peer.is_open()
    assert node.core.memory.assembling_bytes == 0


def long_body(size: int) -> bytes:
    """A body as a field of a message."""
    head = bytes((size % 128 | 128, size // 128 % 128 | 128, size // 16_384))
    return b"\x22" + head + ("\u00e9" * (size // 2)).encode() + b"b" * (size % 2)


FIELDS = {
    "rid": b"\x0a\x01r",
    "cid": b"\x12\x02c1",
    "another cid": b"\x12\x02c2",
    "exchange": b"\x1a\x00",
    "properties": b"\x2a\x03\x1a\x01q",
    "a mode of two bytes": b"\x2a\x06\x10\xac\x02\x1a\x01q",
    "an unknown field": b"\x9a\x06\x01x",
    "no text": b"\x1a\x01\xff",
    "a field that is cut": b"\x2a\x7f",
    "a body": b"\x22\x01b",
}


def outcome(data: bytes, cuts: list[int]) -> tuple[Any, ...]:
    """What comes of bytes that a client sends in pieces."""
    node = Node()
    peer = HarePeer(node)
    assert peer.open()
    assert peer.queue("q")
    logged: list[tuple[str, str]] = []
    for start, end in pairwise([0, *cuts, len(data)]):
        if peer.is_open():
            peer.send(data[start:end])
        logged += peer.connection.log
        peer.connection.log.clear()
    answers = [(got.message.rid, got.message.cid, got.ok) for got in peer.inbox.got]
    amqp = node.connect()
    queue = node.classic("q")
    bodies = [amqp.call_get("q", no_ack=True).body for _ in range(queue.ready_count())]
    return peer.is_open(), logged, answers, bodies


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_comes_of_a_frame_does_not_depend_on_its_pieces(draw: st.DataObject) -> None:
    usual = ["rid", "cid", "exchange", "properties"]
    names = st.permutations(usual) | st.lists(st.sampled_from(sorted(FIELDS)), max_size=6)
    fields = [FIELDS[name] for name in draw.draw(names)]
    size = draw.draw(st.sampled_from([130_000, HAREMQ_REQUEST_BYTES_MAX, 140_000, 250_000]))
    at = draw.draw(st.integers(0, len(fields)))
    message = b"".join([*fields[:at], long_body(size), *fields[at:]])
    data = frame_of("basicPublishRequest", message) + GOOD
    ends = st.integers(1, 200) | st.integers(len(data) - 200, len(data) - 1)
    cuts = draw.draw(st.lists(ends | st.integers(1, len(data) - 1), max_size=8, unique=True))
    assert outcome(data, sorted(cuts)) == outcome(data, [])


@pytest.mark.parametrize("at", range(5))
def test_a_long_publish_is_taken_in_any_order_of_its_fields(at: int) -> None:
    fields = [FIELDS[name] for name in ("properties", "exchange", "cid", "rid")]
    body = long_body(140_001)
    data = frame_of("basicPublishRequest", b"".join([*fields[:at], body, *fields[at:]]))
    is_open, logged, answers, bodies = outcome(data, [100_000])
    assert (is_open, logged, answers[-1]) == (True, [], ("r", "c1", True))
    assert bodies == [body[4:]]


def test_a_long_publish_comes_to_its_queue_and_holds_its_body_once(node: Node) -> None:
    peer = HarePeer(node)
    assert peer.open()
    assert peer.queue("q")
    body = "\u00e9" * 5_000_000
    properties = {"id": "i", "delivery_mode": 1, "routing_key": "q"}
    data = frame("basicPublishRequest", rid="r", cid="c1", body=body, properties=properties)
    pieces = [data[start : start + 65_536] for start in range(0, len(data), 65_536)]
    del data
    gc.collect()
    tracemalloc.start()
    for piece in pieces:
        peer.send(piece)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Most of it is still to come when the whole is made, beside its first quarter.
    assert most < 1.4 * len(body.encode())
    amqp = node.connect()
    assert amqp.call_get("q").body == body.encode()
    # What is too long is refused by what the operator allows.
    peer.connection.settings.message_bytes_max = 1_000_000
    for piece in pieces:
        peer.send(piece)
    assert [got.ok for got in peer.inbox.got[-2:]] == [True, False]
    assert peer.is_open()


@pytest.mark.parametrize("name", ["openChannelRequest", "basicPublishRequest", "basicAckRequest"])
def test_unusual_messages_are_taken_as_protobuf_takes_them(node: Node, name: str) -> None:
    peer = HarePeer(node)
    assert peer.open()
    # Out of order, twice (the last one counts), and with a field that nobody knows.
    message = b"\x12\x02c0\x12\x02c1\x0a\x01a\x0a\x01b\x9a\x06\x01x"
    peer.send(frame_of(name, message))
    got = peer.inbox.got[-1].message
    assert (got.rid, got.cid) == ("b", "c1")


def test_automatic_acks_of_what_was_pushed_are_counted(node: Node) -> None:
    """They are done when the push was handed to the socket, all of one output at once."""
    hare = HarePeer(node)
    assert hare.open()
    assert hare.queue("q")
    assert hare.consume("q", auto_ack=True)
    assert hare.pushes() == []
    publisher = node.connect()
    publisher.receive(publish(1, "", "q", b"m") * PUSHED)
    node.settle()
    queue = node.classic("q")
    assert queue.unacked_count == PUSHED
    before = int(node.core.scheduler.spent)
    hare.flush()
    assert queue.unacked_count == 0
    assert int(node.core.scheduler.spent) - before >= PUSHED // 4
    assert len(hare.pushes()) == PUSHED
