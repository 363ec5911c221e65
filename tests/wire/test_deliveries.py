"""Deliveries as columns: the same messages as the frames hold, however the input is cut."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import ContentTooLarge, SyntaxFault, UnexpectedFrame
from leveret.limits import CLIENT_MESSAGE_BYTES_MAX
from leveret.wire.buffer import BytesWriter
from leveret.wire.content.deliveries import (
    NO_OFFSET,
    NO_TIMESTAMP,
    DeliveryColumns,
    DeliveryScanner,
)
from leveret.wire.frames import (
    FRAME_BODY,
    FRAME_END,
    HEARTBEAT,
    FrameReader,
    write_body,
    write_frame_head,
    write_header,
    write_method,
)
from leveret.wire.method import Method
from leveret.wire.methods.basic import BasicConsumeOk, BasicDeliver
from leveret.wire.properties import BasicProperties, decode_properties

CHANNEL = 5


@dataclass(frozen=True)
class Sent:
    """A message as a broker delivers it from a stream."""

    body: bytes = b""
    exchange: str = ""
    routing_key: str = ""
    offset: int | None = 0
    timestamp: int | None = None
    headers: dict[str, object] = field(default_factory=dict)
    message_id: str | None = None
    redelivered: bool = False

    @property
    def properties(self) -> BasicProperties:
        headers = dict(self.headers)
        if self.offset is not None:
            headers["x-stream-offset"] = self.offset
        if self.timestamp is not None:
            headers["x-stream-timestamp"] = self.timestamp
        return BasicProperties(
            content_type="text/plain", headers=headers or None, message_id=self.message_id
        )

    def frames(self, tag: int, frame_max: int = 4096, channel: int = CHANNEL) -> bytes:
        deliver = BasicDeliver(
            consumer_tag="c",
            delivery_tag=tag,
            redelivered=self.redelivered,
            exchange=self.exchange,
            routing_key=self.routing_key,
        )
        return framed(deliver, self.properties, self.body, frame_max, channel)


def framed(
    method: Method, properties: BasicProperties, body: bytes, frame_max: int, channel: int
) -> bytes:
    w = BytesWriter()
    write_method(w, channel, method)
    write_header(w, channel, 60, len(body), properties.encode())
    write_body(w, channel, body, frame_max)
    return w.getvalue()


def method_frame(method: Method, channel: int = CHANNEL) -> bytes:
    w = BytesWriter()
    write_method(w, channel, method)
    return w.getvalue()


def other_frames(reader: FrameReader) -> list[bytes]:
    """Return the frames that the reader has, whole."""
    found = []
    while reader.next():
        found.append(reader.data[reader.start - 7 : reader.end + 1])
    return found


def scanned(
    pieces: list[bytes], with_properties: bool = True
) -> tuple[list[DeliveryColumns], list[bytes]]:
    """Return the columns after each piece and the frames that were left to the session."""
    scanner = DeliveryScanner(CHANNEL, with_properties)
    reader = FrameReader()
    columns = []
    others: list[bytes] = []
    for piece in pieces:
        reader.feed(piece)
        while True:
            scanner.take(reader)
            if not reader.next():
                break
            others.append(reader.data[reader.start - 7 : reader.end + 1])
        columns.append(scanner.columns())
    return columns, others


def texts(found: tuple[bytes, bytes]) -> list[bytes]:
    data, ends = found
    places = struct.unpack(f"<{len(ends) // 4}i", ends)
    return [data[a:b] for a, b in pairwise(places)]


def rows(several: list[DeliveryColumns]) -> list[Sent]:
    """Return columns as the messages that they hold."""
    found = []
    for one in several:
        offsets = struct.unpack(f"<{one.count}q", one.offsets)
        timestamps = struct.unpack(f"<{one.count}q", one.timestamps)
        properties = [decode_properties(raw) for raw in texts(one.properties)]
        for place, body in enumerate(texts(one.bodies)):
            headers = dict(properties[place].headers or {})
            headers.pop("x-stream-offset", None)
            headers.pop("x-stream-timestamp", None)
            offset, timestamp = offsets[place], timestamps[place]
            found.append(
                Sent(
                    body,
                    texts(one.exchanges)[place].decode(),
                    texts(one.routing_keys)[place].decode(),
                    None if offset == NO_OFFSET else offset,
                    None if timestamp == NO_TIMESTAMP else timestamp,
                    headers,
                    properties[place].message_id,
                    one.redelivered[place] == 1,
                )
            )
    return found


NAMES = st.text(max_size=10)
VALUES: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
HEADERS = st.dictionaries(NAMES.filter(lambda n: not n.startswith("x-stream")), VALUES, max_size=4)
SENT = st.builds(
    Sent,
    st.binary(max_size=300),
    NAMES,
    NAMES,
    st.none() | st.integers(0, 2**62),
    st.none() | st.integers(0, 2**62),
    HEADERS,
    st.none() | NAMES,
    st.booleans(),
)
OTHERS = st.lists(
    st.sampled_from([HEARTBEAT, method_frame(BasicConsumeOk(consumer_tag="c"), 7)]), max_size=2
)


@given(st.lists(st.tuples(SENT, OTHERS), max_size=6), st.integers(9, 400), st.data())
def test_columns_hold_what_the_frames_hold(
    messages: list[tuple[Sent, list[bytes]]], frame_max: int, data: st.DataObject
) -> None:
    wire = b"".join(
        b"".join(others) + sent.frames(tag, frame_max)
        for tag, (sent, others) in enumerate(messages, 1)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=6)))
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    columns, others = scanned(pieces)
    assert rows(columns) == [sent for sent, _ in messages]
    assert others == [frame for _, several in messages for frame in several]


@pytest.mark.parametrize("piece_bytes", [4103, 5000, 10_007, 65_536])
@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_input_may_come_in_long_pieces(piece_bytes: int, frame_max: int) -> None:
    """The rest of a piece behind the frame that it ends is not looked at before that is taken."""
    messages = [Sent(b"x" * (n * 379 % 9000), "e", f"k{n}", n, 1000 + n) for n in range(150)]
    wire = b"".join(HEARTBEAT + sent.frames(n, frame_max) for n, sent in enumerate(messages, 1))
    pieces = [wire[at : at + piece_bytes] for at in range(0, len(wire), piece_bytes)]
    columns, others = scanned(pieces)
    assert rows(columns) == messages
    assert others == [HEARTBEAT] * len(messages)


def test_input_may_come_byte_by_byte() -> None:
    messages = [Sent(b"x" * n, "e", f"k{n}", n, 1000 + n) for n in range(5)]
    wire = b"".join(sent.frames(tag, 10) for tag, sent in enumerate(messages, 1))
    columns, _ = scanned([wire[place : place + 1] for place in range(len(wire))])
    assert rows(columns) == messages


def test_frames_of_other_channels_may_come_between_those_of_a_message() -> None:
    sent = Sent(b"hello" * 9, offset=3)
    wire = sent.frames(1, 16)
    reader = FrameReader()
    reader.feed(wire)
    own = other_frames(reader)
    beside = HEARTBEAT + Sent(b"other", offset=9).frames(1, channel=6)
    columns, others = scanned([beside + beside.join(own)])
    assert rows(columns) == [sent]
    assert b"".join(others) == beside * len(own)


def test_a_row_is_whole_or_not_there() -> None:
    first, second = Sent(b"one", offset=0), Sent(b"second", "x", "key", offset=1)
    wire = first.frames(1) + second.frames(2)
    scanner = DeliveryScanner(CHANNEL, True)
    reader = FrameReader()
    reader.feed(wire[:-3])
    scanner.take(reader)
    assert (scanner.count, scanner.body_bytes, scanner.delivery_tag) == (1, 3, 1)
    assert scanner.last_offset == 0
    assert rows([scanner.columns()]) == [first]
    assert scanner.count == 0
    reader.next()
    reader.feed(wire[-3:])
    scanner.take(reader)
    assert (scanner.count, scanner.body_bytes, scanner.delivery_tag) == (1, 6, 2)
    assert rows([scanner.columns()]) == [second]


def test_properties_are_kept_on_request_only() -> None:
    columns, _ = scanned([Sent(b"x", offset=1).frames(1)], with_properties=False)
    assert (columns[0].properties[0], columns[0].count) == (b"", 1)
    assert texts(columns[0].bodies) == [b"x"]


def test_what_publishers_sent_alike_is_alike() -> None:
    far = 2**40  # so that it is written in 8 bytes, as brokers do
    several = [Sent(b"x", offset=far + n, timestamp=far, headers={"a": 1}) for n in range(3)]
    wire = b"".join(sent.frames(tag) for tag, sent in enumerate(several, 1))
    columns, _ = scanned([wire])
    assert len(set(texts(columns[0].properties))) == 1


def test_the_brokers_offset_is_the_last_of_two() -> None:
    """It stands behind that of a publisher, which a broker may have left in its place."""
    for own in ("text", 7, None, {"a": 1}):
        w = BytesWriter()
        write_method(w, CHANNEL, BasicDeliver(consumer_tag="c", delivery_tag=1))
        raw = BasicProperties(headers={"x-stream-offset": own}).encode()
        entry = b"\x0fx-stream-offsetl" + struct.pack(">q", 9)
        size = struct.unpack_from(">I", raw, 2)[0] + len(entry)
        write_header(w, CHANNEL, 60, 0, raw[:2] + struct.pack(">I", size) + raw[6:] + entry)
        columns, _ = scanned([w.getvalue()])
        assert columns[0].offsets == struct.pack("<q", 9)
        assert decode_properties(texts(columns[0].properties)[0]).headers == {
            "x-stream-offset": own
        }


@pytest.mark.parametrize("value", [-1, -(2**62), "5", None, 1.5])
def test_what_is_no_offset_is_none(value: object) -> None:
    sent = Sent(headers={"x-stream-offset": value}, offset=None)
    columns, _ = scanned([sent.frames(1)])
    assert columns[0].offsets == struct.pack("<q", NO_OFFSET)


# -- what is wrong ---------------------------------------------------------------------------------


def deliver_frame(payload: bytes) -> bytes:
    w = BytesWriter()
    write_frame_head(w, 1, CHANNEL, len(payload))
    w.write(payload)
    w.append(FRAME_END)
    return w.getvalue()


def test_a_delivery_that_ends_early_is_refused() -> None:
    deliver = BasicDeliver(consumer_tag="c", delivery_tag=1, exchange="e", routing_key="k")
    payload = method_frame(deliver)[7:-1]
    scanned([deliver_frame(payload)])
    for wrong in (*(payload[:size] for size in range(4, len(payload))), payload + b"x"):
        with pytest.raises(SyntaxFault):
            scanned([deliver_frame(wrong)])


def test_a_header_that_ends_early_is_refused() -> None:
    for raw in (b"\x80\x00", b"\x80\x00\x05ab", b"\x20\x00\x00", b"\x20\x00\x00\x00\x00\x09\x01a"):
        w = BytesWriter()
        write_method(w, CHANNEL, BasicDeliver(consumer_tag="c", delivery_tag=1))
        write_header(w, CHANNEL, 60, 0, raw)
        with pytest.raises(SyntaxFault):
            scanned([w.getvalue()])


def test_content_out_of_turn_is_refused() -> None:
    deliver = method_frame(BasicDeliver(consumer_tag="c", delivery_tag=1))
    w = BytesWriter()
    write_frame_head(w, FRAME_BODY, CHANNEL, 1)
    w.write(b"x\xce")
    for wrong in (w.getvalue(), deliver):
        with pytest.raises(UnexpectedFrame):
            scanned([deliver + wrong])
    whole = Sent(b"abc", offset=0).frames(1)
    with pytest.raises(UnexpectedFrame):
        scanned([whole[: whole.rindex(b"abc") - 7] + w.getvalue() + whole])


def test_a_body_that_is_too_large_or_larger_than_announced_is_refused() -> None:
    deliver = method_frame(BasicDeliver(consumer_tag="c", delivery_tag=1))
    w = BytesWriter()
    write_header(w, CHANNEL, 60, CLIENT_MESSAGE_BYTES_MAX + 1, b"\x00\x00")
    with pytest.raises(ContentTooLarge):
        scanned([deliver + w.getvalue()])
    w = BytesWriter()
    write_header(w, CHANNEL, 60, 2, b"\x00\x00")
    write_body(w, CHANNEL, b"abc", 0)
    with pytest.raises(UnexpectedFrame, match="more body than announced"):
        scanned([deliver + w.getvalue()])
