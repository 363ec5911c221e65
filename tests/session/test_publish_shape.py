"""Publishing gives the same result however its bytes come.

What lies whole in the input is taken in one step, what comes in pieces frame by frame; nobody can
tell the two apart.  Input that comes octet by octet is never whole, so it shows the second way.
Sources: AMQP 0-9-1 sections 2.3.5 and 4.2.6; behaviours 7 (bad frames), 9 (content order), 10
(empty bodies), 17 (immediate), 18 (missing exchange) and 20 (large bodies).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leveret.names import Name
from leveret.session.settings import SessionSettings
from leveret.session.states import CLOSED
from leveret.wire.buffer import COMPILED
from leveret.wire.content.output import OUTPUT_APART_BYTES
from support.node.core import Node, Peer
from support.wire.raw_codec import BODY, HEADER, content, frame, header, method, properties, publish

FRAME_MAX = 4096
MESSAGE_MAX = 20_000

#: What a close may say of bytes that are wrong; 541 would be an error of the broker's own.
CLOSE_CODES = {403, 404, 405, 406, 501, 502, 503, 504, 505, 530, 540}


class Result(NamedTuple):
    """What a stream of publishes led to."""

    messages: list[tuple[str, bytes, bytes, bool]]
    replies: list[tuple[int, str, dict[str, Any], bytes, bytes]]
    confirmed: int
    state: int
    log: list[tuple[str, str]]


def a_node() -> Node:
    """A broker with small limits, and queues behind a fanout and a headers exchange."""
    node = Node(settings=SessionSettings("test", message_bytes_max=MESSAGE_MAX))
    peer = node.connect()
    for queue in ("q", "r"):
        peer.call(1, "queue.declare", queue=queue)
    peer.call(1, "queue.bind", queue="q", exchange="amq.fanout")
    match = {"x-match": "all", "a": 1}
    peer.call(1, "queue.bind", queue="r", exchange="amq.headers", arguments=match)
    return node


def publisher(node: Node, *, confirm: bool = True) -> Peer:
    """A connection with a small frame_max and the channels 1 and 2."""
    peer = node.dial()
    peer.login(frame_max=FRAME_MAX)
    for channel in (1, 2):
        peer.call(channel, "channel.open")
        if confirm:
            peer.call(channel, "confirm.select")
    return peer


def result(pieces: list[bytes], *, confirm: bool = True) -> Result:
    """Feed the pieces to a new broker and tell what came of them."""
    node = a_node()
    peer = publisher(node, confirm=confirm)
    for piece in pieces:
        peer.send(piece)
    heard = peer.take()
    confirms = [got.delivery_tag for got in heard if got.name == "basic.ack"]
    replies = [
        (got.channel, got.name, got.fields, got.properties, got.body)
        for got in heard
        if got.name != "basic.ack"
    ]
    messages = []
    for name in ("q", "r"):
        queue = node.vhost.queues.existing(Name(name), None)
        while (message := queue.get(True)) is not None:  # type: ignore[attr-defined]
            place = f"{name}: {message.address.wire!r}"
            messages.append((place, message.properties, message.body, message.persistent))
    return Result(
        messages, replies, max(confirms, default=0), peer.connection.state, peer.connection.log
    )


def octets(data: bytes) -> list[bytes]:
    """The data octet by octet."""
    return [data[place : place + 1] for place in range(len(data))]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data cut at some places."""
    cuts = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(cuts)]


bodies = st.binary(max_size=40) | st.sampled_from(
    [bytes(size) for size in (FRAME_MAX - 9, FRAME_MAX - 8, FRAME_MAX - 7, FRAME_MAX + 1)]
)
props = st.fixed_dictionaries(
    {},
    optional={
        "delivery_mode": st.sampled_from([1, 2]),
        "headers": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from([1, 2, "x"])),
        "content_type": st.text(max_size=5),
        "timestamp": st.integers(0, 2**40),
        "cluster_id": st.just("c"),
    },
)


@st.composite
def one_publish(draw: st.DrawFn) -> bytes:
    """A legal publish, to an exchange that may not be there."""
    exchange = draw(st.sampled_from(["", "", "amq.fanout", "amq.headers", "amq.topic", "nowhere"]))
    head = method(
        draw(st.sampled_from([1, 1, 2])), "basic.publish", exchange=exchange,
        routing_key=draw(st.sampled_from(["q", "r", "none"])), mandatory=draw(st.booleans()),
    )  # fmt: skip
    channel = head[2]
    raw = properties(**draw(props))
    return head + content(channel, draw(bodies), raw, piece=draw(st.sampled_from([7, 4088])))


streams = st.lists(
    st.one_of(
        one_publish(),
        one_publish(),
        one_publish(),
        st.just(method(1, "basic.qos")),
        st.just(method(2, "queue.declare", queue="q", passive=True)),
        st.just(frame(8, 0, b"")),
    ),
    max_size=6,
).map(b"".join)


@settings(max_examples=60 if COMPILED else 20)
@given(streams, st.lists(st.integers(0, 2**20), max_size=6), st.booleans())
def test_a_stream_of_publishes_may_be_cut_anywhere(
    data: bytes, places: list[int], confirm: bool
) -> None:
    whole = result([data], confirm=confirm)
    assert result(cut(data, places), confirm=confirm) == whole
    assert result(octets(data), confirm=confirm) == whole


@settings(max_examples=100 if COMPILED else 30)
@given(
    streams,
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_bytes_that_are_wrong_lead_to_the_same_close_however_they_come(
    data: bytes, changes: list[tuple[int, int]]
) -> None:
    wrong = bytearray(data + publish(1, "", "q", b"end"))
    for place, value in changes:
        wrong[place % len(wrong)] = value
    whole = result([bytes(wrong)])
    assert result(octets(bytes(wrong))) == whole
    for _, name, fields, _, _ in whole.replies:
        if name.endswith(".close"):
            assert fields["code"] in CLOSE_CODES, fields
    assert not [text for _, text in whole.log if "internal error" in text]


@settings(max_examples=60 if COMPILED else 20)
@given(st.binary(max_size=60), streams)
def test_any_bytes_end_one_connection_at_most(data: bytes, before: bytes) -> None:
    node = a_node()
    peer, neighbour = publisher(node), publisher(node)
    peer.send(before + data)
    neighbour.send(publish(1, "", "r", b"mine"))
    assert neighbour.expect(1, "basic.ack").delivery_tag == 1
    assert not [text for _, text in peer.connection.log if "internal error" in text]


@pytest.mark.parametrize("size", range(FRAME_MAX - 10, FRAME_MAX + 3))
def test_body_frames_around_frame_max(size: int) -> None:
    """A payload up to `frame_max` is tolerated, as RabbitMQ does (behaviour 7: bad frames)."""
    data = publish(1, "", "q", b"") * 2
    data += method(1, "basic.publish", routing_key="q") + content(1, bytes(size), piece=size)
    whole = result([data])
    assert result(octets(data)) == whole
    if size <= FRAME_MAX:
        assert [len(body) for _, _, body, _ in whole.messages] == [0, 0, size]
    else:
        assert whole.replies[-1][2]["code"] == 501


@pytest.mark.parametrize("size", range(FRAME_MAX - 3, FRAME_MAX + 3))
def test_header_frames_around_frame_max(size: int) -> None:
    """Behaviour 7 (bad frames)."""
    raw = properties(headers={"a": "x" * (size - 12 - 2 - 4 - 2 - 5)})
    assert len(header(1, 0, raw)) == size + 8
    data = method(1, "basic.publish", routing_key="q") + header(1, 0, raw)
    whole = result([data])
    assert result(octets(data)) == whole
    assert len(whole.messages) == (size <= FRAME_MAX)
    if size > FRAME_MAX:
        assert whole.replies[-1][2]["code"] == 501


@pytest.mark.parametrize("size", [MESSAGE_MAX - 1, MESSAGE_MAX, MESSAGE_MAX + 1])
def test_bodies_around_the_largest_message(size: int) -> None:
    """Behaviour 20 (large bodies)."""
    data = method(1, "basic.publish", routing_key="q") + content(1, bytes(size), piece=4000)
    whole = result([data])
    assert result(cut(data, list(range(0, len(data), 100)))) == whole
    if size <= MESSAGE_MAX:
        assert [body for _, _, body, _ in whole.messages] == [bytes(size)]
    else:
        assert whole.replies[0][2]["code"] == 406


HEAD = method(1, "basic.publish", routing_key="q")
WRONG = {
    "immediate": (publish(1, "", "q", b"x", immediate=True), 540),
    "no exchange": (publish(1, "nowhere", "q", b"x"), 404),
    "no channel": (publish(7, "", "q", b"x"), 504),
    "channel 0": (publish(0, "", "q", b"x"), 504),
    "header of another class": (HEAD + header(1, 1, class_id=50), 505),
    "method instead of a header": (HEAD + method(1, "basic.qos"), 505),
    "method instead of a body": (HEAD + header(1, 1) + method(1, "basic.qos"), 505),
    "body instead of a header": (HEAD + frame(BODY, 1, b"x"), 505),
    "body beyond its size": (HEAD + header(1, 1) + frame(BODY, 1, b"xy"), 505),
    "body where none was announced": (HEAD + header(1, 0) + frame(BODY, 1, b"x"), 505),
    "header that ends early": (HEAD + frame(HEADER, 1, bytes(5)), 502),
    "properties that end early": (HEAD + header(1, 0, b"\x80\0"), 502),
    "negative size": (HEAD + header(1, 2**64 - 1), 406),
    "bad end": (HEAD + header(1, 1) + frame(BODY, 1, b"x", b"\0"), 501),
    "name that is not UTF-8": (
        method(1, "basic.publish", routing_key=b"\xff") + content(1, b"x"), 501,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_told_the_same_way(kind: str) -> None:
    """The close names basic.publish where the channel is known.

    Sources: behaviours 7 (bad frames), 9 (content order), 17 (immediate), 18 (missing exchange) and
    20 (large bodies).
    """
    wrong, code = WRONG[kind]
    for before in (b"", publish(1, "", "q", b"good"), method(1, "queue.declare", queue="q")):
        whole = result([before + wrong])
        assert result(octets(before + wrong)) == whole
        closed = whole.replies[-1]
        assert closed[2]["code"] == code
        if kind not in {"channel 0", "no channel", "bad end"} and "method" not in kind:
            assert (closed[2]["class_id"], closed[2]["method_id"]) == (60, 40)


def test_a_body_of_no_octets_may_come_in_empty_frames() -> None:
    """Behaviour 10 (empty bodies) asks for none; empty frames between others are harmless."""
    data = HEAD + header(1, 2) + b"".join(frame(BODY, 1, piece) for piece in (b"", b"a", b"", b"b"))
    assert result([data]) == result(octets(data))
    assert result([data]).messages[0][2] == b"ab"


def test_publishes_of_two_channels_may_interleave() -> None:
    """Frames of content belong to their channel (AMQP 0-9-1 section 4.2.6)."""
    one = [HEAD, header(1, 2), frame(BODY, 1, b"1"), frame(BODY, 1, b"1")]
    two = [method(2, "basic.publish", routing_key="q"), header(2, 1), frame(BODY, 2, b"2")]
    data = one[0] + two[0] + one[1] + two[1] + one[2] + two[2] + one[3]
    assert [body for _, _, body, _ in result([data]).messages] == [b"2", b"11"]
    assert result(octets(data)) == result([data])


APART = [OUTPUT_APART_BYTES - 1, OUTPUT_APART_BYTES, OUTPUT_APART_BYTES + 1, 300_001]


@pytest.mark.parametrize("size", [*APART, FRAME_MAX - 8, FRAME_MAX - 7, 2 * (FRAME_MAX - 8)])
@pytest.mark.parametrize("frame_max", [FRAME_MAX, 131_072])
def test_large_bodies_are_split_at_the_consumer_s_frame_max(size: int, frame_max: int) -> None:
    """AMQP 0-9-1 section 2.3.5.2: no frame is larger than negotiated."""
    node = Node()
    taker = node.dial()
    taker.login(frame_max=frame_max)
    taker.call(1, "channel.open")
    taker.call(1, "queue.declare", queue="q")
    taker.call(1, "basic.consume", queue="q", no_ack=True)
    body = bytes(place % 251 for place in range(size))
    before = len(taker.sent_by_broker)
    node.connect().send(publish(1, "", "q", body))
    assert taker.bodies() == [body]
    data, frames = taker.sent_by_broker[before:], []
    while data:
        end = 8 + int.from_bytes(data[3:7])
        frames.append(end)
        data = data[end:]
    assert max(frames) <= frame_max
    assert len(frames) == 2 + -(-size // (frame_max - 8))


@example(b"")
@given(st.binary(max_size=300))
def test_what_is_returned_is_what_was_sent(body: bytes) -> None:
    """Behaviour 24 (return before confirm)."""
    node = a_node()
    peer = publisher(node)
    peer.send(publish(1, "amq.topic", "none", body, mandatory=True, message_id="m"))
    returned = peer.expect(1, "basic.return")
    assert (returned.body, returned.properties) == (body, properties(message_id="m"))
    assert peer.expect(1, "basic.ack").delivery_tag == 1
    assert peer.connection.state != CLOSED
