"""Frames in any pieces.

Sources: AMQP 0-9-1 section 4.2.3, behaviours 7 (bad frames), 8 (heartbeats) and 10 (empty bodies).
"""

from __future__ import annotations

import gc
import itertools
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import FrameError
from leveret.haremq.frames import HareFrameReader, HareFrameWriter
from leveret.limits import FRAME_BYTES_MIN
from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    HEARTBEAT,
    PROTOCOL_HEADER,
    FrameReader,
    header_body_size,
    header_class_id,
    write_body,
    write_header,
    write_heartbeat,
    write_method,
)
from leveret.wire.method import Method, payload
from leveret.wire.methods import BasicPublish, QueueDeclare, decode_method
from support.wire.wire_strategies import any_method, properties_of, some_properties, spoiled

_PUBLISH = BytesWriter()
HareFrameWriter("basicPublishRequest").write(_PUBLISH, bytes(100_000))
LONG_PUBLISH = _PUBLISH.getvalue()


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int, bytes]]]:
    """Return a stream of frames and what is in it."""
    w = BytesWriter()
    frames = []
    for _ in range(draw(st.integers(1, 4))):
        channel = draw(st.sampled_from((0, 1, 2047, 65_535)))
        kind = draw(st.sampled_from((FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT)))
        if kind == FRAME_METHOD:
            method = draw(any_method)
            write_method(w, channel, method)
            frames.append((kind, channel, payload(method)))
        elif kind == FRAME_HEADER:
            properties = properties_of(draw(some_properties)).encode()
            size = draw(st.integers(0, 2**63 - 1))
            write_header(w, channel, 60, size, properties)
            head = b"\x00\x3c\x00\x00" + size.to_bytes(8, "big")
            frames.append((kind, channel, head + properties))
        elif kind == FRAME_BODY:
            body = draw(st.binary(min_size=1, max_size=50))
            write_body(w, channel, body, 0)
            frames.append((kind, channel, body))
        else:
            write_heartbeat(w)
            frames.append((kind, 0, b""))
    return w.getvalue(), frames


def drain(reader: FrameReader) -> list[tuple[int, int, bytes]]:
    """Return the frames that are whole."""
    found = []
    while reader.next():
        found.append((reader.kind, reader.channel, reader.data[reader.start : reader.end]))
    return found


def frame(kind: int, channel: int, body: bytes, end: int = 0xCE) -> bytes:
    """Return a frame."""
    return (
        bytes((kind,))
        + channel.to_bytes(2, "big")
        + len(body).to_bytes(4, "big")
        + body
        + (bytes((end,)))
    )


@given(streams(), st.data())
def test_frames_are_found_in_any_pieces(
    stream: tuple[bytes, list[tuple[int, int, bytes]]], data: st.DataObject
) -> None:
    raw, frames = stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    whole, pieces, single = FrameReader(), FrameReader(), FrameReader()
    whole.feed(raw)
    assert drain(whole) == frames
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        pieces.feed(raw[start:end])
        found += drain(pieces)
    assert found == frames
    found = []
    for index in range(len(raw)):
        single.feed(raw[index : index + 1])
        found += drain(single)
    assert found == frames
    assert whole.held() == pieces.held() == single.held() == 0


def test_a_large_frame_in_single_bytes_is_joined_once() -> None:
    body = bytes(range(256)) * 512
    w = BytesWriter()
    write_body(w, 1, body, 0)
    raw = w.getvalue()
    reader = FrameReader()
    for index in range(len(raw) - 1):
        reader.feed(raw[index : index + 1])
        assert not reader.next()
        # Joined for the head and then no more until the last byte.
        assert len(reader.data) <= 7
    assert reader.held() == len(raw) - 1
    reader.feed(raw[-1:] + HEARTBEAT)
    assert drain(reader) == [(FRAME_BODY, 1, body), (FRAME_HEARTBEAT, 0, b"")]


@pytest.mark.parametrize("sizes", [[1], [2], [700], [2, 900], [2, 1100]], ids=str)
def test_small_pieces_of_a_frame_take_little_more_than_they_hold(sizes: list[int]) -> None:
    """Each was an object of its own: of two bytes 27 times what was counted."""
    w = BytesWriter()
    write_body(w, 1, random.Random(1).randbytes(100_000), 0)
    whole = w.getvalue()
    for reader in (FrameReader(), HareFrameReader()):
        data = whole if isinstance(reader, FrameReader) else LONG_PUBLISH
        gc.collect()
        tracemalloc.start()
        at = 0
        for size in itertools.cycle(sizes):
            if at + size >= len(data):
                break
            reader.feed(data[at : at + size])
            at += size
            assert not reader.next()
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert reader.held() == reader.memory() == at
        assert taken < 1.25 * at + 1_000
        reader.feed(data[at:])
        assert reader.next()
        assert reader.data == data


@pytest.mark.parametrize("begun", [0, 4, 60])
def test_small_pieces_that_are_held_take_little_more_than_they_hold(begun: int) -> None:
    data = LONG_PUBLISH * 2
    reader = HareFrameReader()
    reader.feed(data[:begun])
    assert not reader.next()
    gc.collect()
    tracemalloc.start()
    for at in range(begun, len(data), 2):
        reader.hold(data[at : at + 2])
        assert len(reader.data) <= begun
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert reader.held() == reader.memory() == len(data)
    assert taken < 1.25 * len(data) + 1_000
    reader.take_held()
    assert (reader.next(), reader.next(), reader.next()) == (True, True, False)


def test_a_piece_that_meets_nothing_is_not_copied() -> None:
    reader = FrameReader()
    for _ in range(2):
        piece = bytes(bytearray(HEARTBEAT))
        reader.feed(piece)
        assert reader.data is piece
        assert drain(reader) == [(FRAME_HEARTBEAT, 0, b"")]


LONG = b"".join(
    frame(FRAME_BODY, number, bytes([number]) * (number * 977 % 9000)) for number in range(1, 40)
)
LONG_FRAMES = [
    (FRAME_BODY, number, bytes([number]) * (number * 977 % 9000)) for number in range(1, 40)
]


@given(st.lists(st.integers(0, 3) | st.integers(4000, 30_000), max_size=60), st.booleans())
def test_long_pieces_give_the_same_frames(sizes: list[int], trims: bool) -> None:
    reader = FrameReader()
    found = []
    at = parsed = 0
    for size in [*sizes, len(LONG)]:
        reader.feed(LONG[at : at + size])
        at = min(at + size, len(LONG))
        while reader.next():
            payload = reader.data[reader.start : reader.end]
            found.append((reader.kind, reader.channel, payload))
            parsed += len(payload) + 8
            assert reader.unparsed() == LONG[parsed:at]
            assert reader.memory() >= reader.held() == at - parsed
        if trims:
            reader.trim()
        assert reader.unparsed() == LONG[parsed:at]
        assert reader.held() == at - parsed
    assert found == LONG_FRAMES


@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 3)), max_size=60))
def test_a_session_that_stops_between_two_frames_loses_none(steps: list[tuple[int, int]]) -> None:
    reader = FrameReader()
    found = []
    at = 0
    for size, most in [*steps, (len(LONG), 1000)]:
        reader.feed(LONG[at : at + size])
        at += size
        for _ in range(most):
            if not reader.next():
                break
            found.append((reader.kind, reader.channel, reader.data[reader.start : reader.end]))
    assert found == LONG_FRAMES


@pytest.mark.parametrize("begun", [1, 6, 7, 8, 500, 1007])
def test_what_is_behind_a_frame_in_a_long_piece_is_not_copied(begun: int) -> None:
    first = frame(FRAME_BODY, 1, bytes(1000))
    reader = FrameReader()
    reader.feed(first[:begun])
    assert not reader.next()
    piece = first[begun:] + HEARTBEAT * 1000
    reader.feed(piece)
    assert reader.next()
    assert len(reader.data) == len(first)
    reader.reach_rest()
    assert reader.data is piece
    assert len(drain(reader)) == 1000
    assert reader.held() == reader.memory() == 0


def test_what_is_forgotten_is_forgotten_whole() -> None:
    reader = FrameReader()
    reader.feed(HEARTBEAT[:3])
    assert not reader.next()
    reader.feed(HEARTBEAT[3:] + HEARTBEAT * 1000)
    assert reader.held() == 1001 * len(HEARTBEAT)
    reader.forget()
    assert reader.held() == reader.memory() == 0
    assert not reader.next()
    reader.feed(HEARTBEAT)
    assert drain(reader) == [(FRAME_HEARTBEAT, 0, b"")]


def test_a_session_may_move_over_frames_itself() -> None:
    reader = FrameReader()
    reader.feed(HEARTBEAT * 3 + HEARTBEAT[:3])
    assert reader.data[reader.position :].startswith(HEARTBEAT)
    reader.position += 2 * len(HEARTBEAT)
    assert drain(reader) == [(FRAME_HEARTBEAT, 0, b"")]
    reader.feed(HEARTBEAT[3:])
    assert drain(reader) == [(FRAME_HEARTBEAT, 0, b"")]
    # Without `next` in between, what is left and the next piece are put together as well.
    reader.feed(HEARTBEAT[:5])
    reader.feed(HEARTBEAT[5:])
    assert reader.data == HEARTBEAT
    assert drain(reader) == [(FRAME_HEARTBEAT, 0, b"")]


@pytest.mark.parametrize("frame_max", [FRAME_BYTES_MIN, 131_072])
def test_a_frame_at_the_limit_and_one_past_it(frame_max: int) -> None:
    # Behaviour 7 (bad frames), with RabbitMQ's 8 bytes of tolerance: a payload may have frame_max
    # bytes.
    reader = FrameReader(frame_max)
    reader.feed(frame(FRAME_BODY, 1, bytes(frame_max)))
    assert len(drain(reader)) == 1
    head = frame(FRAME_BODY, 1, bytes(frame_max + 1))[:7]
    reader.feed(head[:6])
    assert not reader.next()
    reader.feed(head[6:])
    with pytest.raises(FrameError, match=f"{frame_max + 1} bytes exceeds .* {frame_max}"):
        reader.next()


def test_the_limit_may_be_lifted_between_frames() -> None:
    # Small frames before authentication, the negotiated ones after.
    reader = FrameReader(16)
    reader.feed(frame(FRAME_BODY, 1, bytes(16)) + frame(FRAME_BODY, 1, bytes(17)))
    assert reader.next()
    reader.frame_max = 17
    assert reader.next()
    reader.frame_max = 0
    reader.feed(b"\x03\x00\x01\x7f\xff\xff\xff")
    assert not reader.next()


@pytest.mark.parametrize("kind", [0, 4, 5, 6, 7, 9, 65, 255])
def test_an_unknown_frame_type_is_501_by_its_head(kind: int) -> None:
    reader = FrameReader()
    reader.feed(frame(kind, 0, b"abc")[:7])
    with pytest.raises(FrameError, match=f"unknown frame type {kind}"):
        reader.next()


@pytest.mark.parametrize("end", [0, 0xCD, 0xCF])
def test_a_wrong_end_octet_is_501(end: int) -> None:
    reader = FrameReader()
    reader.feed(frame(FRAME_METHOD, 1, b"abcd", end))
    with pytest.raises(FrameError, match=f"ends with octet {end}, not 206"):
        reader.next()
    # It stays refused: nothing behind it is ever read.
    with pytest.raises(FrameError):
        reader.next()


def test_a_heartbeat_carries_nothing() -> None:
    reader = FrameReader()
    reader.feed(frame(FRAME_HEARTBEAT, 0, b"x"))
    with pytest.raises(FrameError, match="heartbeat with 1 bytes"):
        reader.next()


def test_a_heartbeat_on_a_channel_is_the_session_s_matter() -> None:
    # Behaviour 8 (heartbeats): 505 there.
    reader = FrameReader()
    reader.feed(frame(FRAME_HEARTBEAT, 7, b""))
    assert drain(reader) == [(FRAME_HEARTBEAT, 7, b"")]


@given(spoiled(streams().map(lambda pair: pair[0])) | st.binary(max_size=60))
def test_hostile_streams_raise_nothing_but_501_whole_or_byte_by_byte(raw: bytes) -> None:
    results = []
    for size in (len(raw) or 1, 1):
        reader = FrameReader(FRAME_BYTES_MIN)
        found: list[object] = []
        try:
            for index in range(0, len(raw), size):
                reader.feed(raw[index : index + size])
                found += drain(reader)
        except FrameError as error:
            found.append(error.text)
        results.append(found)
    # Whole, frames before a bad one are lost with the piece: compare the ends.
    if results[0] and isinstance(results[0][-1], str):
        assert results[1][-1] == results[0][-1]
    else:
        assert results[0] == results[1]


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 8176, 8177, 100_000])
def test_a_body_is_split_at_the_negotiated_frame_max(size: int) -> None:
    # Behaviour 10 (empty bodies): no body frame for an empty body.
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    w = BytesWriter()
    write_body(w, 5, body, FRAME_BYTES_MIN)
    reader = FrameReader(FRAME_BYTES_MIN - 8)
    reader.feed(w.getvalue())
    frames = drain(reader)
    assert b"".join(piece for _, _, piece in frames) == body
    assert len(frames) == -(-size // (FRAME_BYTES_MIN - 8))
    assert {(kind, channel) for kind, channel, _ in frames} <= {(FRAME_BODY, 5)}
    w = BytesWriter()
    write_body(w, 5, body, 0)
    assert len(w.getvalue()) == (size + 8 if size else 0)


@given(any_method, st.integers(0, 65_535))
def test_a_method_frame_is_its_payload_and_eight_bytes(method: Method, channel: int) -> None:
    w = BytesWriter()
    w.write(b"before")
    write_method(w, channel, method)
    assert w.getvalue() == b"before" + frame(FRAME_METHOD, channel, payload(method))


def test_a_method_that_cannot_be_written_leaves_no_trace() -> None:
    w = BytesWriter()
    write_heartbeat(w)
    with pytest.raises(ValueError, match="cannot contain: object"):
        write_method(w, 1, QueueDeclare("q", arguments={"fine": 1, "not": object()}))
    with pytest.raises(ValueError, match="at most 255 bytes"):
        write_method(w, 1, BasicPublish(routing_key="k" * 256))
    assert w.getvalue() == HEARTBEAT
    write_method(w, 1, QueueDeclare("q"))
    raw = w.getvalue()
    assert decode_method(raw, 15, len(raw) - 1) == QueueDeclare("q")


def test_a_content_header_is_read() -> None:
    w = BytesWriter()
    write_header(w, 1, 60, 2**40, b"\x00\x00")
    raw = w.getvalue()
    assert raw == frame(
        FRAME_HEADER, 1, b"\x00\x3c\x00\x00" + (2**40).to_bytes(8, "big") + bytes(2)
    )
    assert header_class_id(raw, 7, len(raw) - 1) == 60
    assert header_body_size(raw, 7, len(raw) - 1) == 2**40


@pytest.mark.parametrize("read", [header_class_id, header_body_size])
def test_a_short_content_header_is_501(read: object) -> None:
    raw = b"\x00\x3c" + bytes(12)
    assert read(raw, 0, 14) in {60, 0}  # type: ignore[operator]
    with pytest.raises(FrameError, match="content header of 13 bytes"):
        read(raw, 0, 13)  # type: ignore[operator]


def test_a_body_of_2_to_the_63_bytes_is_501() -> None:
    raw = b"\x00\x3c\x00\x00" + b"\x80" + bytes(9)
    with pytest.raises(FrameError, match="2\\^63"):
        header_body_size(raw, 0, len(raw))


def test_the_protocol_header_is_that_of_0_9_1() -> None:
    assert PROTOCOL_HEADER == b"AMQP\x00\x00\x09\x01"
