"""Columnar chunks: round trips, columns that numpy reads in place, and what damage costs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.chunk import (
    CHUNK_HEADER_BYTES,
    NEVER,
    Chunk,
    ChunkBuilder,
    ChunkDamaged,
    ChunkLayout,
    RecordDamaged,
)
from leveret.limits import CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX
from leveret.message import Address, Message
from support.store.store_model import content

ROWS = st.lists(
    st.tuples(
        st.integers(1, 1000),  # step to the next sequence
        st.binary(max_size=20),  # exchange
        st.binary(max_size=255),  # routing key
        st.binary(min_size=2, max_size=40),  # properties
        st.one_of(st.binary(max_size=60), st.just(b"L" * 1500)),  # body
        st.integers(0, 2**62),  # timestamp
        st.booleans(),
        st.integers(0, 2**31 - 1),  # delivery count
        st.one_of(st.just(NEVER), st.integers(0, 2**62)),  # expiry
        st.integers(0, 255),  # priority
    ),
    min_size=1,
    max_size=12,
)


def small_chunk(count: int = 5, owner: int = 7) -> tuple[bytes, list[Message]]:
    """Return a chunk of messages with sequences 10, 12, 14 …, and the messages."""
    builder = ChunkBuilder(owner)
    messages = []
    for index in range(count):
        kept = Message(
            Address(b"x", b"key.%d" % (index % 2)),
            b"\x10\x00\x02",
            b"body %d" % index * (index + 1),
            1000 + index,
            index % 2 == 0,
        )
        builder.add(10 + 2 * index, kept, index, 5000 - index, index)
        messages.append(kept)
    return builder.build(), messages


@given(ROWS)
def test_what_goes_into_a_chunk_comes_out_of_it(rows: list[tuple]) -> None:  # type: ignore[type-arg]
    builder = ChunkBuilder(3)
    expected = []
    sequence = 0
    for (
        step,
        exchange,
        key,
        properties,
        body,
        timestamp,
        persistent,
        count,
        expiry,
        priority,
    ) in rows:
        sequence += step
        kept = Message(Address(exchange, key), properties, body, timestamp, persistent)
        builder.add(sequence, kept, count, expiry, priority)
        expected.append((sequence, content(kept), count, expiry, priority))
    data = builder.build()
    chunk = Chunk(data)
    assert data == b"".join(builder.parts())
    assert len(data) == chunk.size
    assert len(data) % 8 == 0
    assert (chunk.owner, chunk.count) == (3, len(rows))
    assert (chunk.first, chunk.last) == (expected[0][0], expected[-1][0])
    assert chunk.min_timestamp == min(row[5] for row in rows)
    assert chunk.max_timestamp == max(row[5] for row in rows)
    assert chunk.min_expiry == min(row[8] for row in rows)
    assert chunk.max_expiry == max(row[8] for row in rows)
    found = [
        (
            chunk.sequence(i),
            content(chunk.message(i)),
            chunk.delivery_count(i),
            chunk.expiry_ms(i),
            chunk.priority(i),
        )
        for i in range(int(chunk.count))
    ]
    assert found == expected
    for index, (number, *_) in enumerate(expected):
        assert chunk.find(number) == index
        assert chunk.find(number + 1) == index + 1


def test_numpy_reads_the_columns_in_place() -> None:
    """The offsets that the module draws are a promise to Spark's reader."""
    numpy = pytest.importorskip("numpy")
    data, messages = small_chunk(5)
    n = 5
    at = CHUNK_HEADER_BYTES

    def column(kind: str, width: int) -> list[int]:
        nonlocal at
        values = numpy.frombuffer(data, dtype=kind, count=n, offset=at).tolist()
        assert at % 8 == 0
        at += (n * width + 7) & -8
        return list(values)

    assert column("<i8", 8) == [0, 2, 4, 6, 8]
    assert column("<i8", 8) == [1000, 1001, 1002, 1003, 1004]
    assert column("<i8", 8) == [5000, 4999, 4998, 4997, 4996]
    column("<u8", 8)
    property_bytes = column("<u4", 4)
    body_bytes = column("<u4", 4)
    assert property_bytes == [3] * 5
    assert body_bytes == [len(kept.body) for kept in messages]
    assert column("<u4", 4) == [0, 1, 0, 1, 0]
    assert column("<u4", 4) == [0, 1, 2, 3, 4]
    assert column("<u2", 2) == [1, 0x100, 0x201, 0x300, 0x401]
    assert numpy.frombuffer(data, "<u4", 2, at).tolist() == [8, 16]
    assert data[at + 8 : at + 24] == b"\x01x\x05key.0\x01x\x05key.1"
    chunk = Chunk(data)
    assert chunk.properties_at == at + 24
    assert chunk.bodies_at == at + 24 + 16
    assert data[chunk.bodies_at :].rstrip(b"\0") == b"".join(kept.body for kept in messages)


def test_every_flipped_bit_is_noticed_and_costs_a_record_or_the_chunk() -> None:
    data, messages = small_chunk(3)
    expected = [content(kept) for kept in messages]
    areas = Chunk(data)
    records_lost = 0
    for position in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            try:
                chunk = Chunk(bytes(broken))
            except ChunkDamaged:
                assert position < areas.properties_at
                continue
            assert position >= areas.properties_at
            assert not chunk.is_intact()
            lost = []
            for index in range(3):
                try:
                    found = chunk.message(index)
                except RecordDamaged as damaged:
                    lost.append((damaged.index, damaged.sequence))
                else:
                    assert content(found) == expected[index]
            assert lost in ([], [(0, 10)], [(1, 12)], [(2, 14)])
            records_lost += len(lost)
            if not lost:  # zeros up to a multiple of 8 belong to nobody
                assert data[position] == 0
    assert records_lost == 8 * sum(len(kept.body) + len(kept.properties) for kept in messages)


def test_one_digest_tells_that_all_messages_are_true() -> None:
    from xxhash import xxh3_64_digest

    for count, size in ((1, 0), (3, 5), (40, 1024), (2, 9001)):
        builder = ChunkBuilder(1)
        for sequence in range(count):
            builder.add(sequence, Message(Address(b"", b"q"), b"\0\0", b"x" * size, 1, True))
        data = builder.build()
        layout = ChunkLayout(data + b"what follows is not its own")
        assert layout.is_intact()
        assert data[112:120] == xxh3_64_digest(data[layout.properties_at :])
        assert [kept.wire for kept in layout.read_addresses()] == [b"\0\x01q"]


def test_a_chunk_cut_anywhere_is_refused() -> None:
    data, _ = small_chunk(2)
    for size in range(len(data)):
        with pytest.raises(ChunkDamaged):
            Chunk(data[:size])


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_hostile_bytes_raise_nothing_but_damage(noise: bytes) -> None:
    with pytest.raises(ChunkDamaged):
        Chunk(noise)
    for magic in (b"LVchunk2", b"LVchunk3"):
        with pytest.raises(ChunkDamaged):
            Chunk(magic + noise)


def test_figures_that_check_but_do_not_fit_are_refused() -> None:
    """A forged chunk has true digests: its lengths are looked at all the same."""
    from xxhash import xxh3_64_digest

    data, _ = small_chunk(3)
    chunk = Chunk(data)
    chance = random.Random(5)
    for _ in range(2000):
        forged = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            forged[chance.randrange(8, chunk.properties_at)] = chance.randrange(256)
        forged[104:112] = xxh3_64_digest(bytes(forged[CHUNK_HEADER_BYTES : chunk.properties_at]))
        forged[120:128] = xxh3_64_digest(bytes(forged[:120]))
        try:
            read = Chunk(bytes(forged))
            for index in range(int(read.count)):
                try:
                    read.message(index)
                except RecordDamaged:
                    continue
        except ChunkDamaged:
            continue


def test_a_chunk_is_full_by_records_or_by_bytes() -> None:
    builder = ChunkBuilder(1)
    tiny = Message(Address(b"", b"q"), b"\0\0", b"", 1, True)
    for sequence in range(CHUNK_RECORDS_MAX):
        assert not builder.full
        builder.add(sequence, tiny)
    assert builder.full
    builder = ChunkBuilder(1)
    builder.add(0, Message(Address(b"", b"q"), b"\0\0", b"x" * CHUNK_BYTES_MAX, 1, True))
    assert builder.full
    assert Chunk(builder.build()).message(0).body == b"x" * CHUNK_BYTES_MAX


def test_parts_hold_the_bodies_themselves() -> None:
    builder = ChunkBuilder(1)
    body = b"x" * 100_000
    builder.add(0, Message(Address(b"", b"q"), b"\0\0", body, 1, True))
    assert any(part is body for part in builder.parts())


def test_misuse_is_refused() -> None:
    builder = ChunkBuilder(1)
    with pytest.raises(ValueError, match="at least one"):
        builder.build()
    kept = Message(Address(b"", b"q"), b"\0\0", b"", 1, True)
    builder.add(5, kept)
    with pytest.raises(ValueError, match="ascend"):
        builder.add(5, kept)
    chunk = Chunk(builder.build())
    for index in (-1, 1):
        with pytest.raises(IndexError):
            chunk.sequence(index)
        with pytest.raises(IndexError):
            chunk.message(index)
