"""The frames of HareMQ's own programs are read and written byte for byte, and bad ones refused."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.json_format import MessageToDict
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st

from leveret import haremq
from leveret.errors import FrameError
from leveret.haremq.body_text import BodyText
from leveret.haremq.fields import (
    AckFields,
    PublishFields,
    identity_of,
    push_around,
    push_prefix,
    write_common,
    write_push,
    write_query,
)
from leveret.haremq.frames import (
    ACK,
    HARE_MQ,
    LONG_PUBLISH,
    OPEN_CHANNEL,
    PUBLISH,
    REQUESTS,
    UNKNOWN,
    HareFrameReader,
    joined_checksum,
)
from leveret.haremq.protobuf_codec import DESCRIPTORS, ProtobufCodec
from leveret.haremq.requests import Ack, Publish
from leveret.limits import (
    HAREMQ_FRAME_BYTES_MAX,
    HAREMQ_FRAME_BYTES_MIN,
    HAREMQ_LONG_FIELDS_BYTES_MAX,
    HAREMQ_REQUEST_BYTES_MAX,
)
from leveret.wire.buffer import BytesWriter
from support.wire.hare import classes, frame, frame_of, make

DATA: dict[str, Any] = json.loads(Path(__file__).with_name("frames.json").read_text())
VECTORS: list[dict[str, Any]] = DATA["vectors"]
SHORT = {vector["type"]: vector["type"].removeprefix("hare_mq.") for vector in VECTORS}
REQUEST_VECTORS = [vector for vector in VECTORS if vector["dir"] == "c2s"]
ANSWER_VECTORS = [vector for vector in VECTORS if vector["dir"] == "s2c"]
CODEC = ProtobufCodec()


def name_of(vector: dict[str, Any]) -> str:
    return str(SHORT[vector["type"]])


def read_all(data: bytes, size: int) -> list[tuple[str, bytes]]:
    """Return the frames that come in pieces of a size."""
    reader = HareFrameReader()
    found = []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while reader.next():
            found.append((REQUESTS[int(reader.kind)], reader.data[reader.start : reader.end]))
    assert reader.held() == 0
    return found


# -- what HareMQ's programs wrote ------------------------------------------------------------------


@pytest.mark.parametrize("vector", REQUEST_VECTORS, ids=name_of)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_requests_are_read(vector: dict[str, Any], size: int) -> None:
    data = bytes.fromhex(vector["frame_hex"])
    expected = (name_of(vector), bytes.fromhex(vector["payload_hex"]))
    assert read_all(data + data, size) == [expected, expected]


@pytest.mark.parametrize("vector", REQUEST_VECTORS, ids=name_of)
def test_requests_are_decoded(vector: dict[str, Any]) -> None:
    kinds = {name: kind for kind, name in REQUESTS.items()}
    request = CODEC.decode(kinds[name_of(vector)], bytes.fromhex(vector["payload_hex"]))
    fields = vector["fields"]
    assert request.identity == identity_of(fields["rid"].encode(), fields["cid"].encode())
    for field, value in fields.items():
        if field == "properties":
            assert isinstance(request, Publish)
            found: Any = {
                "id": request.message_id.decode(),
                "delivery_mode": request.delivery_mode,
                "routing_key": request.routing_key.decode(),
            }
        else:
            found = getattr(request, field)
            found = found.decode() if isinstance(found, bytes) else found
        assert found == value, field


@pytest.mark.parametrize("vector", ANSWER_VECTORS, ids=name_of)
def test_answers_are_written(vector: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        name: value.encode() if isinstance(value, str) else value
        for name, value in vector["fields"].items()
    }
    w = BytesWriter()
    if name_of(vector) == "basicCommonResponse":
        write_common(w, HARE_MQ, identity_of(fields["rid"], fields["cid"]), fields["ok"])
    elif name_of(vector) == "basicQueryResponse":
        write_query(w, HARE_MQ, identity_of(fields["rid"], fields["cid"]), fields["body"])
    else:
        properties = fields["properties"]
        write_push(
            w,
            HARE_MQ,
            push_prefix(fields["cid"], fields["consumer_tag"]),
            fields["body"],
            properties["id"].encode(),
            properties["delivery_mode"],
            properties["routing_key"].encode(),
        )
    assert w.getvalue().hex() == vector["frame_hex"]


@pytest.mark.parametrize("vector", VECTORS, ids=name_of)
def test_the_tests_own_client_writes_the_same(vector: dict[str, Any]) -> None:
    assert frame(name_of(vector), **vector["fields"]).hex() == vector["frame_hex"]


def test_the_descriptors_are_those_of_the_proto_file_and_of_haremq(tmp_path: Path) -> None:
    folder = Path(haremq.__file__).parent
    made = tmp_path / "made"
    asked = ["protoc", f"-I{folder}", f"--descriptor_set_out={made}", "haremq.proto"]
    assert protoc.main(asked) == 0
    read = descriptor_pb2.FileDescriptorSet.FromString
    assert read(made.read_bytes()) == read((folder / DESCRIPTORS).read_bytes())
    for name, fields in DATA["schema"].items():
        if name != "Message":
            # That one is of HareMQ's own files, and in no frame.
            described = classes()[name].DESCRIPTOR.fields
            assert {one.name: one.number for one in described} == {
                field: there["number"] for field, there in fields.items()
            }


# -- the messages that are read without protobuf's package -----------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


def of_publish(data: bytes, fields: PublishFields) -> list[Any]:
    spans = [
        (fields.rid, fields.rid_end),
        (fields.cid, fields.cid_end),
        (fields.exchange, fields.exchange_end),
        (fields.body, fields.body_end),
        (fields.id, fields.id_end),
        (fields.routing_key, fields.routing_key_end),
    ]
    return [data[start:end] for start, end in spans] + [fields.delivery_mode]


def decoded_publish(message: bytes) -> list[Any]:
    one = CODEC.decode(PUBLISH, message)
    assert isinstance(one, Publish)
    rid_cid = [one.rid, one.cid]
    return [
        *rid_cid, one.exchange_name, one.body, one.message_id, one.routing_key, one.delivery_mode
    ]  # fmt: skip


@given(TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, st.integers(0, 2**31 - 1))
def test_a_publish_is_read_as_protobuf_reads_it(
    rid: str, cid: str, exchange: str, body: str, id: str, key: str, mode: int
) -> None:
    properties = {"id": id, "delivery_mode": mode, "routing_key": key}
    message = classes()["basicPublishRequest"](
        rid=rid, cid=cid, exchange_name=exchange, body=body, properties=properties
    ).SerializeToString()
    data = b"before" + message + b"behind"
    fields = PublishFields()
    assert fields.find(data, 6, 6 + len(message)) == (mode < 0x80)
    if mode < 0x80:
        assert of_publish(data, fields) == decoded_publish(message)


@given(st.binary(max_size=64))
def test_bytes_are_read_as_protobuf_reads_them_or_left_to_it(data: bytes) -> None:
    publish = PublishFields()
    if publish.find(data, 0, len(data)):
        found = of_publish(data, publish)
        texts = [one.isascii() for one in found[:-1]]
        if all(texts):
            assert found == decoded_publish(data)
    ack = AckFields()
    if ack.find(data, 0, len(data)):
        spans = [
            (ack.rid, ack.rid_end), (ack.cid, ack.cid_end),
            (ack.queue, ack.queue_end), (ack.id, ack.id_end),
        ]  # fmt: skip
        parts = [data[start:end] for start, end in spans]
        if all(part.isascii() for part in parts):
            one = CODEC.decode(ACK, data)
            assert isinstance(one, Ack)
            assert parts == [one.rid, one.cid, one.queue_name, one.message_id]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\x12\x01c\x0a\x01r", id="out of order"),
        pytest.param(b"\x0a\x01r\x0a\x01s", id="twice"),
        pytest.param(b"\x0a\x01r\x32\x01x", id="an unknown field"),
        pytest.param(b"\x08\x01", id="another wire type"),
        pytest.param(b"\x0a\x05r", id="too short"),
        pytest.param(b"\x0a\xff\xff\xff\xff\xff\xff\x01r", id="a length of 64 bits"),
        pytest.param(b"\x0a", id="no length"),
        pytest.param(b"\x2a\x02\x0a\x09", id="properties that are too short"),
        pytest.param(b"\x2a\x03\x10\x80\x01", id="a long number"),
    ],
)
def test_other_shapes_are_left_to_protobuf(message: bytes) -> None:
    assert not PublishFields().find(message, 0, len(message))


@given(TEXT, TEXT, TEXT, TEXT, TEXT)
def test_a_push_is_written_as_protobuf_writes_it(
    cid: str, tag: str, body: str, id: str, key: str
) -> None:
    w = BytesWriter()
    write_push(
        w,
        HARE_MQ,
        push_prefix(cid.encode(), tag.encode()),
        body.encode(),
        id.encode(),
        2,
        key.encode(),
    )
    properties = {"id": id, "delivery_mode": 2, "routing_key": key}
    message: dict[str, Any] = {"cid": cid, "consumer_tag": tag, "body": body}
    assert w.getvalue() == frame("basicConsumeResponse", **message, properties=properties)


# -- bad frames ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=3),
            st.sampled_from(["\u00e9", "\u20ac", "\U0001f407", "a"]).map(str.encode),
            st.sampled_from(
                [b"a" * 16_383, b"a" * 16_384, b"\xe2\x82", b"\xf0\x9f", b"\xed\xa0\x80"]
            ),
        ),
        max_size=12,
    )
)
def test_a_long_body_becomes_the_text_that_a_short_one_does(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    text = BodyText(body)
    while not text.is_over():
        assert text.advance() > 0
    found = b"".join(text.parts())
    assert found == body.decode("utf-8", "replace").encode()
    assert text.garbled == (found != body)
    assert (text.bytes, text.checksum) == (len(found), zlib.adler32(found))
    properties = {"id": "i", "delivery_mode": 2, "routing_key": "k"}
    ids = {"cid": "c", "consumer_tag": "t"}
    expected = frame("basicConsumeResponse", **ids, body=found.decode(), properties=properties)
    if found:
        first, last = push_around(HARE_MQ, push_prefix(b"c", b"t"), text, b"i", 2, b"k")
        assert first + found + last == expected


@given(st.binary(), st.binary())
def test_sums_of_two_texts_make_that_of_both(first: bytes, second: bytes) -> None:
    one, two = zlib.adler32(first), zlib.adler32(second)
    assert joined_checksum(one, two, len(second)) == zlib.adler32(first + second)


def refused(data: bytes) -> str:
    """Return why a reader refuses bytes, which it must whole and byte by byte."""
    texts = []
    for size in (len(data), 1):
        with pytest.raises(FrameError) as caught:
            read_all(data, size)
        texts.append(caught.value.text)
    assert texts[0] == texts[1]
    return texts[0]


GOOD = frame("openChannelRequest", rid="r", cid="c")


@pytest.mark.parametrize(
    "length",
    [0, HAREMQ_FRAME_BYTES_MIN - 1, HAREMQ_FRAME_BYTES_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1],
)
def test_a_length_that_cannot_be_is_refused_at_once(length: int) -> None:
    assert "announces" in refused(length.to_bytes(4, "big"))


@pytest.mark.parametrize("length", [HAREMQ_FRAME_BYTES_MIN, HAREMQ_FRAME_BYTES_MAX])
def test_the_least_and_the_most_length_are_waited_for(length: int) -> None:
    reader = HareFrameReader()
    reader.feed(length.to_bytes(4, "big") + (2).to_bytes(4, "big"))
    assert not reader.next()


@pytest.mark.parametrize("beyond", [0, 1, HAREMQ_FRAME_BYTES_MAX - HAREMQ_REQUEST_BYTES_MAX])
@pytest.mark.parametrize("name", ["declareQueueRequest", "basicAckRequest", "noRequest"])
def test_a_long_request_is_refused_by_its_name(name: str, beyond: int) -> None:
    raw = f"hare_mq.{name}".encode() + b"\0"
    length = HAREMQ_REQUEST_BYTES_MAX + beyond
    reader = HareFrameReader()
    reader.feed(length.to_bytes(4, "big") + len(raw).to_bytes(4, "big") + raw[:-1])
    assert not reader.next()
    reader.feed(raw[-1:])
    if beyond == 0:
        assert not reader.next()
    else:
        with pytest.raises(
            FrameError, match=f"all but publishes have up to {HAREMQ_REQUEST_BYTES_MAX}"
        ):
            reader.next()


#: A body of more bytes than one read has, which any piece may cut within a character.
LONG_BODY = "ab\u00e9\U0001f407" * 30_000


def read_long(data: bytes, size: int) -> list[Any]:
    """Return what is read of a long publish that comes in pieces, and of what follows it."""
    reader = HareFrameReader()
    found: list[Any] = []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while reader.next():
            fields = PublishFields()
            if reader.kind == LONG_PUBLISH:
                long = reader.take_long()
                assert fields.find(long.fields, 0, len(long.fields))
                values = of_publish(long.fields, fields)
                assert values[3] == b""
                found += [*values[:3], long.body(), *values[4:]]
            else:
                found.append(REQUESTS[int(reader.kind)])
        assert reader.held() <= reader.memory()
    assert reader.held() == 0
    return found


@pytest.mark.parametrize("size", [977, 10_000, 65_536, 260_000])
def test_a_long_publish_is_read_piece_by_piece(size: int) -> None:
    properties = {"id": "i" * 255, "delivery_mode": 2, "routing_key": "k"}
    fields: dict[str, Any] = {"rid": "r" * 1024, "cid": "c", "exchange_name": "x"}
    long = frame("basicPublishRequest", **fields, body=LONG_BODY, properties=properties)
    assert len(long) > HAREMQ_REQUEST_BYTES_MAX
    message = make("basicPublishRequest", **fields, body=LONG_BODY, properties=properties)
    expected = decoded_publish(message.SerializeToString())
    found = read_long(GOOD + long + GOOD + long + GOOD, size)
    kind = REQUESTS[OPEN_CHANNEL]
    assert found == [kind, *expected, kind, *expected, kind]


def test_a_long_publish_needs_nothing_but_a_body() -> None:
    long = frame("basicPublishRequest", body="b" * 2 * HAREMQ_REQUEST_BYTES_MAX)
    assert read_long(long, 10_000)[3] == b"b" * 2 * HAREMQ_REQUEST_BYTES_MAX


_BODY = b"\x22\x80\x80\x10" + b"b" * (1 << 18)

LONG_AND_BAD = {
    "an unknown field first": (b"\x9a\x06\x01x" + _BODY, None, "unknown field"),
    "no body": (b"\x0a\x01r\x2a\x80\x80\x10" + bytes(1 << 18), None, "its body has up to"),
    "a body beyond its frame": (b"\x22\x80\x80\x20" + bytes(1 << 18), None, "beyond its frame"),
    "a body of 2^35 bytes": (b"\x22\x80\x80\x80\x80\x80" + bytes(1 << 18), None, "beyond"),
    "long fields behind it": (_BODY + b"\x2a\xff\x7f" + bytes(16_383), None, "its body has up to"),
    "a long field before it": (b"\x0a\xff\x7f" + bytes(16_383) + _BODY, None, "its body has up to"),
    "no text": (_BODY.replace(b"b", b"\xff"), None, "not UTF-8"),
    "half a character at its end": (_BODY[:-1] + b"\xc3", None, "not UTF-8"),
    "a wrong checksum": (_BODY, bytes(4), "checksum"),
}


@pytest.mark.parametrize(("message", "checksum", "why"), LONG_AND_BAD.values(), ids=LONG_AND_BAD)
def test_a_long_publish_that_is_not_so_is_refused(
    message: bytes, checksum: bytes | None, why: str
) -> None:
    data = frame_of("basicPublishRequest", message)
    if checksum is not None:
        data = data[:-4] + checksum
    for size in (10_000, len(data)):
        with pytest.raises(FrameError, match=why):
            read_long(data, size)


@pytest.mark.parametrize("rest", range(-8, 9))
@pytest.mark.parametrize("before", [True, False], ids=["before", "behind"])
def test_fields_of_the_most_bytes_are_taken_at_every_cut(rest: int, before: bool) -> None:
    """The limit is that of the fields alone, wherever the head of the body is cut."""
    size = HAREMQ_LONG_FIELDS_BYTES_MAX - 3 + rest
    name = b"\x1a" + bytes((size % 128 | 128, size // 128)) + b"x" * size
    message = name + _BODY if before else _BODY + name
    data = frame_of("basicPublishRequest", message)
    head = data.index(_BODY[:4])
    for cut in range(head - 12, head + 12):
        reader = HareFrameReader()
        pieces = (data[:cut], data[cut : cut + 1], data[cut + 1 :])
        if rest > 0:
            with pytest.raises(FrameError, match="its body has up to"):
                read_pieces(reader, pieces)
        else:
            assert read_pieces(reader, pieces)


def read_pieces(reader: HareFrameReader, pieces: Iterable[bytes]) -> bool:
    """Feed pieces of a frame; return whether it was found."""
    found = False
    for piece in pieces:
        reader.feed(piece)
        found = reader.next()
    return found


@pytest.mark.parametrize("size", [0, 1, 2**31, 2**32 - 1, len(GOOD)])
def test_a_name_that_does_not_fit_is_refused(size: int) -> None:
    assert "name" in refused(GOOD[:4] + size.to_bytes(4, "big") + GOOD[8:])


def test_a_wrong_checksum_is_refused() -> None:
    assert "checksum" in refused(GOOD[:-1] + bytes((GOOD[-1] ^ 1,)))


@pytest.mark.parametrize("name", ["openChannel", "basicCommonResponse"])
def test_an_unknown_type_is_found_with_its_name(name: str) -> None:
    reader = HareFrameReader()
    reader.feed(GOOD + frame_of(name, b"message"))
    assert reader.next()
    assert reader.next()
    assert (reader.kind, reader.name.decode()) == (UNKNOWN, f"hare_mq.{name}")
    assert reader.data[reader.start : reader.end] == b"message"


@pytest.mark.parametrize(
    ("name", "why"),
    [("x" * 119, ""), ("x" * 120, "more than 128"), ("x y", "can have"), ("\n", "can have")],
    ids=["the longest", "one byte longer", "a space", "a line feed"],
)
def test_a_name_that_cannot_be_is_refused(name: str, why: str) -> None:
    data = frame_of(name, b"")
    if why:
        assert why in refused(data)
    else:
        reader = HareFrameReader()
        reader.feed(data)
        assert reader.next()


def test_a_name_without_its_nul_is_refused() -> None:
    raw = b"hare_mq.openChannelRequestX"
    covered = len(raw).to_bytes(4, "big") + raw
    checksum = zlib.adler32(covered).to_bytes(4, "big")
    assert "NUL" in refused((len(covered) + 4).to_bytes(4, "big") + covered + checksum)


@pytest.mark.parametrize("kind", sorted(REQUESTS))
@pytest.mark.parametrize("message", [b"\xff", b"\x0a\x05r", b"\x0a\x01\xff"])
def test_what_is_no_message_is_refused(kind: int, message: bytes) -> None:
    with pytest.raises(FrameError):
        CODEC.decode(kind, message)


def test_the_session_that_was_recorded_is_read() -> None:
    for event in DATA["session"]["events"]:
        if event["dir"] == "c2s":
            names = [one["type"].removeprefix("hare_mq.") for one in event["frames"]]
            read = read_all(bytes.fromhex(event["segment_hex"]), 1 << 20)
            assert [name for name, _ in read] == names
            for (name, message), one in zip(read, event["frames"], strict=True):
                found = MessageToDict(
                    classes()[name].FromString(message), preserving_proto_field_name=True
                )
                assert found["rid"] == one["fields"]["rid"]
