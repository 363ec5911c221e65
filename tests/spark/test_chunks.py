"""Chunks as Arrow batches: equal to the rows that are built one by one, and what damage costs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType
from xxhash import xxh3_64_digest

from leveret.broker.core import Core
from leveret.broker.stream.stream import Stream
from leveret.chunk import CHUNK_HEADER_BYTES, ChunkBuilder, ChunkDamaged, ChunkLayout
from leveret.client import BasicProperties, Timestamp
from leveret.errors import SyntaxFault
from leveret.message import Address, Message
from leveret.session.channel.delivery_headers import with_delivery_headers
from leveret.spark.columns.chunks import ROWS_PER_DISTINCT, ChunkBatchBuilder, ColumnChunk, Pieces
from leveret.spark.columns.messages import BatchBuilder
from leveret.spark.columns.properties import find_properties
from leveret.spark.columns.schema import KAFKA_HEADERS, OURS, PROPERTIES, ROW
from leveret.spark.transport import Piece
from leveret.store.journal.journal import Journal
from leveret.wire.properties import decode_properties

STREAM = "orders"
COLUMNS = StructType([*OURS.fields, KAFKA_HEADERS])
QUEUE = Stream(Core(Journal()), 9, STREAM, {})


@dataclass(frozen=True)
class Delivery:
    """A message as a consumer gets it: with the broker's own headers."""

    message: Message
    offset: int
    redelivered: bool = False
    properties: BasicProperties = field(init=False)
    raw_properties: bytes = field(init=False)

    def __post_init__(self) -> None:
        raw = with_delivery_headers(QUEUE, self.message, self.offset, 0)
        object.__setattr__(self, "raw_properties", raw)
        object.__setattr__(self, "properties", decode_properties(raw))

    @property
    def body(self) -> bytes:
        return self.message.body

    @property
    def headers(self) -> dict[str, object]:
        return self.properties.headers or {}

    @property
    def exchange(self) -> str:
        return self.message.address.exchange.decode()

    @property
    def routing_key(self) -> str:
        return self.message.address.routing_key.decode()


WORDS = st.text(max_size=12)
#: As they come from the wire: bytes that are not UTF-8 are surrogates (PEP 383).
RAW_WORDS = st.binary(max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        RAW_WORDS,
        st.binary(max_size=5),
        st.integers(0, 2**40).map(Timestamp),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)
HEADERS = st.dictionaries(
    st.one_of(
        WORDS, st.sampled_from(["x-delivery-count", "x-stream-offset", "x-stream-timestamp"])
    ),
    VALUES,
    max_size=4,
)
PROPERTY_SETS = st.builds(
    BasicProperties,
    content_type=st.none() | RAW_WORDS,
    headers=st.none() | HEADERS,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | RAW_WORDS,
    expiration=st.none() | WORDS,
    message_id=st.none() | WORDS,
    timestamp=st.none() | st.integers(0, 2**63 - 1),
    type=st.none() | WORDS,
    app_id=st.none() | RAW_WORDS,
)


def _address(exchange: str, routing_key: str) -> Address:
    return Address(exchange.encode(), routing_key.encode())


@st.composite
def published(draw: st.DrawFn) -> list[Message]:
    """Return messages that share some of their properties and addresses."""
    several = draw(st.lists(PROPERTY_SETS, min_size=1, max_size=4))
    addresses = draw(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4))
    moments = st.one_of(st.integers(0, 2**42), st.integers(0, 2**62))
    count = draw(st.integers(1, 30))
    return [
        Message(
            _address(*draw(st.sampled_from(addresses))),
            draw(st.sampled_from(several)).encode(),
            draw(st.binary(max_size=20)),
            draw(moments),
            True,
        )
        for _ in range(count)
    ]


@st.composite
def schemas(draw: st.DrawFn) -> StructType:
    """Return some of the columns in some order, `properties` with some of its fields."""
    names = draw(st.permutations(COLUMNS.names))
    kept = names[: draw(st.integers(1, len(names)))]
    fields = draw(st.permutations(PROPERTIES.fields))
    some = StructType(fields[: draw(st.integers(1, len(fields)))])
    return StructType(
        [
            StructField(name, some if name == "properties" else COLUMNS[name].dataType)
            for name in kept
        ]
    )


def stored(messages: Sequence[Message], first: int = 0) -> bytes:
    """Return a chunk of messages."""
    builder = ChunkBuilder(9)
    for offset, message in enumerate(messages, first):
        builder.add(offset, message)
    return builder.build()


def read(
    data: Sequence[bytes],
    start: int,
    end: int,
    schema: StructType = ROW,
    rows_per_distinct: int = ROWS_PER_DISTINCT,
    **limits: int,
) -> list[Piece]:
    """Return the pieces of a range."""
    builder = ChunkBatchBuilder(STREAM, schema, rows_per_distinct=rows_per_distinct)
    pieces = Pieces(builder, start, end, **limits)
    found = [piece for chunk in data for piece in pieces.feed(chunk)]
    return [*found, *pieces.flush()]


def rows(pieces: Sequence[Piece]) -> list[dict[str, object]]:
    """Return the rows of pieces, which are as long as they say."""
    for piece in pieces:
        piece.batch.validate(full=True)
        assert piece.batch.num_rows == piece.end - piece.start
    return [row for piece in pieces for row in piece.batch.to_pylist()]


def expected_rows(
    messages: Sequence[Message], start: int, end: int, schema: StructType = ROW
) -> list[dict[str, object]]:
    """Return the rows of a range as the row-wise builder makes them."""
    deliveries = [Delivery(messages[offset], offset) for offset in range(start, end)]
    batch = BatchBuilder(STREAM, schema).build(start, deliveries)
    found = batch.to_pylist()
    assert isinstance(found, list)
    for row, message in zip(found, messages[start:end], strict=True):
        if "raw_properties" in row:
            # A delivery does not tell whether the publisher sent an empty table.
            row["raw_properties"] = message.properties
    return found


@pytest.mark.parametrize("rows_per_distinct", [0, 1_000_000], ids=["samples", "walked"])
@given(published(), schemas(), st.data())
def test_a_chunk_equals_the_rows_built_one_by_one(
    rows_per_distinct: int, messages: list[Message], schema: StructType, data: st.DataObject
) -> None:
    """Whether properties are decoded one distinct one after the other, or of all rows at once."""
    cuts = data.draw(st.sets(st.integers(1, len(messages)), max_size=3)) | {0, len(messages)}
    edges = sorted(cuts)
    stored_chunks = [stored(messages[low:high], low) for low, high in itertools.pairwise(edges)]
    start = data.draw(st.integers(0, len(messages)))
    end = data.draw(st.integers(start, len(messages)))
    pieces = read(stored_chunks, start, end, schema, rows_per_distinct)
    assert rows(pieces) == expected_rows(messages, start, end, schema)
    builder = BatchBuilder(STREAM, schema)
    assert all(piece.batch.schema.equals(builder.schema) for piece in pieces)


@given(
    st.lists(st.tuples(PROPERTY_SETS, WORDS), min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 12)), min_size=1, max_size=5),
    st.integers(1, 8),
)
def test_what_the_rows_of_a_batch_have_in_common_is_not_that_of_the_batch_before(
    kinds: list[tuple[BasicProperties, str]], turns: list[tuple[int, int]], records_max: int
) -> None:
    messages = []
    for kind, count in turns:
        properties, key = kinds[kind % len(kinds)]
        message = Message(Address(b"e", key.encode()), properties.encode(), b"", 1, True)
        messages += [message] * count
    data = [stored([message], offset) for offset, message in enumerate(messages)]
    pieces = read(data, 0, len(messages), records_max=records_max)
    assert rows(pieces) == expected_rows(messages, 0, len(messages))


@given(PROPERTY_SETS, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 255)), max_size=2))
def test_properties_that_are_malformed_are_not_walked_through(
    properties: BasicProperties, changes: list[tuple[int, int]]
) -> None:
    raw = bytearray(properties.encode())
    for place, value in changes:
        if place < len(raw):
            raw[place] = value
    found = find_properties(pa.array([b"\0\0", bytes(raw), b"\0\0"], pa.binary()))
    try:
        decode_properties(bytes(raw))
    except SyntaxFault:
        # What is inside of a table of headers is for who decodes it.
        assert found is None or found.headers()[1].as_py()
    else:
        assert found is not None


def test_text_that_is_not_utf8_is_escaped() -> None:
    message = Message(Address(b"x\xff", b"k\xe9y"), b"\0\0", b"", 1, True)
    [row] = rows(read([stored([message])], 0, 1))
    assert (row["exchange"], row["routing_key"]) == ("x\\xff", "k\\xe9y")


def plain(count: int, size: int = 3) -> list[Message]:
    """Return messages that tell by their bodies where they belong."""
    return [
        Message(Address(b"", b"k"), b"\0\0", b"%06d" % n + b"." * size, n, True)
        for n in range(count)
    ]


def offsets(pieces: Sequence[Piece]) -> list[list[int]]:
    """Return the offsets of each piece."""
    return [piece.batch.column("offset").to_pylist() for piece in pieces]


def test_rows_of_many_chunks_make_one_batch() -> None:
    messages = plain(100)
    data = [stored(messages[at : at + 10], at) for at in range(0, 100, 10)]
    found = offsets(read(data, 3, 97, records_max=35))
    assert found == [list(range(3, 40)), list(range(40, 80)), list(range(80, 97))]
    found = offsets(read(data, 0, 100, records_max=35, bytes_max=9 * 15))
    assert [len(numbers) for numbers in found] == [20] * 5


def test_a_gap_ends_a_piece() -> None:
    messages = plain(30)
    data = [stored(messages[:10]), stored(messages[10:20], 12), stored(messages[20:], 22)]
    pieces = read(data, 0, 100)
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 10), (12, 32)]
    assert offsets(pieces) == [list(range(10)), list(range(12, 32))]
    assert offsets(read(data, 10, 12)) == []


def test_a_chunk_that_comes_again_yields_nothing_again() -> None:
    data = stored(plain(10))
    assert offsets(read([data, data], 0, 20)) == [list(range(10))]


def test_a_harmed_message_is_missing_and_its_neighbours_are_not() -> None:
    messages = plain(9)
    whole = stored(messages)
    chunk = ColumnChunk(whole)
    at = whole.index(b"000004")
    for harmed, flipped in ((4, at), (8, whole.index(b"000008"))):
        broken = bytearray(whole)
        broken[flipped] ^= 1
        pieces = read([bytes(broken)], 0, 9)
        left = [n for n in range(9) if n != harmed]
        assert [row["offset"] for row in rows(pieces)] == left
        assert [row["body"] for row in rows(pieces)] == [messages[n].body for n in left]
    assert chunk.sound is None


def test_a_harmed_chunk_is_missing_and_its_neighbours_are_not() -> None:
    messages = plain(30)
    data = [bytearray(stored(messages[at : at + 10], at)) for at in (0, 10, 20)]
    data[1][CHUNK_HEADER_BYTES + 3] ^= 1
    pieces = read([bytes(chunk) for chunk in data], 0, 30)
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 10), (20, 30)]


def test_forged_figures_raise_nothing_but_damage() -> None:
    """A forged chunk has true digests: its lengths are looked at all the same."""
    data = stored(plain(5))
    layout = ChunkLayout(data)
    chance = random.Random(3)
    taken = 0
    for _ in range(2000):
        forged = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            forged[chance.randrange(8, layout.properties_at)] = chance.randrange(256)
        forged[104:112] = xxh3_64_digest(bytes(forged[CHUNK_HEADER_BYTES : layout.properties_at]))
        forged[120:128] = xxh3_64_digest(bytes(forged[:120]))
        try:
            ColumnChunk(bytes(forged))
        except ChunkDamaged:
            continue
        try:
            for piece in read([bytes(forged)], 0, 2**62):
                piece.batch.validate(full=True)
        except (SyntaxFault, pa.ArrowInvalid):
            continue
        taken += 1
    assert taken > 0
