"""Field tables: every type, both ways, and the limits.

AMQP 0-9-1 section 4.2.5.5 with RabbitMQ's errata; "What real clients rely on": all types come back.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import SyntaxFault
from leveret.limits import TABLE_DEPTH_MAX, TABLE_ENTRIES_MAX
from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import (
    Timestamp,
    read_entries,
    read_table,
    skim_table,
    write_entries,
    write_table,
)
from support.wire.wire_strategies import long, short, spoiled, tables, wire_tables


def written(table: dict[str, object]) -> bytes:
    """Return `table` on the wire."""
    w = BytesWriter()
    write_table(w, table)
    return w.getvalue()


def read(raw: bytes) -> dict[str, object]:
    """Return the table that `raw` is, whole."""
    table, after = read_table(raw, 0, len(raw))
    assert after == len(raw)
    return table


def sized(entries: bytes) -> bytes:
    """Return a table of these entries."""
    return struct.pack(">I", len(entries)) + entries


#: Letter, bytes and value: RabbitMQ's signedness (rabbit_binary_parser).
TYPES = [
    (b"t\x00", False),
    (b"t\x01", True),
    (b"t\x07", True),
    (b"b\x80", -128),
    (b"b\x7f", 127),
    (b"B\xff", 255),
    (b"s\x80\x00", -32_768),
    (b"u\xff\xff", 65_535),
    (b"I\x80\x00\x00\x00", -(2**31)),
    (b"i\xff\xff\xff\xff", 2**32 - 1),
    (b"l\x80" + bytes(7), -(2**63)),
    (b"L\xff" + b"\xff" * 7, -1),
    (b"f\x3f\xc0\x00\x00", 1.5),
    (b"d\xbf\xf8" + bytes(6), -1.5),
    (b"D\x02\x00\x00\x01\x3a", Decimal("3.14")),
    (b"D\x00\xff\xff\xff\xff", Decimal(2**32 - 1)),
    (b"S\x00\x00\x00\x02\xc3\xa9", "é"),
    (b"S\x00\x00\x00\x02\xff\xfe", b"\xff\xfe"),
    (b"x\x00\x00\x00\x02\xc3\xa9", b"\xc3\xa9"),
    (b"A\x00\x00\x00\x03b\x01V", [1, None]),
    (b"A\x00\x00\x00\x00", []),
    (b"T\xff" + b"\xff" * 7, Timestamp(2**64 - 1)),
    (b"F\x00\x00\x00\x04\x01kb\x05", {"k": 5}),
    (b"F\x00\x00\x00\x00", {}),
    (b"V", None),
]


@pytest.mark.parametrize(("raw", "value"), TYPES)
def test_every_type_is_read(raw: bytes, value: object) -> None:
    found = read(sized(short("key") + raw))["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (True, b"t\x01"),
        (2**31 - 1, b"I\x7f\xff\xff\xff"),
        (-(2**31), b"I\x80\x00\x00\x00"),
        (2**31, b"l\x00\x00\x00\x00\x80\x00\x00\x00"),
        (-(2**31) - 1, b"l\xff\xff\xff\xff\x7f\xff\xff\xff"),
        (2**63 - 1, b"l\x7f" + b"\xff" * 7),
        (1.5, b"d\x3f\xf8" + bytes(6)),
        ("é", b"S\x00\x00\x00\x02\xc3\xa9"),
        (b"\x00", b"x\x00\x00\x00\x01\x00"),
        (Decimal("3.14"), b"D\x02\x00\x00\x01\x3a"),
        (Decimal("1E+3"), b"D\x00\x00\x00\x03\xe8"),
        (Decimal("-0"), b"D\x00\x00\x00\x00\x00"),
        (Timestamp(2**64 - 1), b"T" + b"\xff" * 8),
        ([1, "a"], b"A\x00\x00\x00\x0bI\x00\x00\x00\x01S\x00\x00\x00\x01a"),
        ({"k": None}, b"F\x00\x00\x00\x03\x01kV"),
        (None, b"V"),
    ],
)
def test_every_python_type_is_written_as_one_type(value: object, raw: bytes) -> None:
    assert written({"k": value}) == sized(b"\x01k" + raw)


@given(tables)
def test_a_table_comes_back_as_it_was(table: dict[str, object]) -> None:
    raw = written(table)
    assert read(raw) == table
    assert written(read(raw)) == raw
    assert skim_table(raw, 0, len(raw)) == len(raw)


@given(wire_tables, st.binary(max_size=5), st.binary(max_size=5))
def test_tables_of_an_independent_writer_are_read(
    pair: tuple[bytes, object], before: bytes, after: bytes
) -> None:
    raw, table = pair
    data = before + raw + after
    start, end = len(before), len(before) + len(raw)
    assert read_table(data, start, len(data)) == (table, end)
    assert skim_table(data, start, len(data)) == end
    assert read_table(data, start, end) == (table, end)


@given(tables)
def test_entries_without_their_length(table: dict[str, object]) -> None:
    # AMQPLAIN's response.
    w = BytesWriter()
    write_entries(w, table)
    raw = w.getvalue()
    assert sized(raw) == written(table)
    assert read_entries(raw, 0, len(raw)) == table


@given(wire_tables, st.data())
def test_a_table_that_ends_early_is_refused(
    pair: tuple[bytes, object], data: st.DataObject
) -> None:
    raw = pair[0]
    end = data.draw(st.integers(0, len(raw) - 1))
    for taken in (raw[:end], raw):
        with pytest.raises(SyntaxFault):
            skim_table(taken, 0, end)
        with pytest.raises(SyntaxFault):
            read_table(taken, 0, end)


def outcome(call: Callable[[bytes, int, int], object], raw: bytes) -> object:
    """Return where a table ends, or the text of a 502; any other error goes on and fails."""
    try:
        after = call(raw, 0, len(raw))
    except SyntaxFault as error:
        return error.text
    return after[1] if isinstance(after, tuple) else after


@given(spoiled(wire_tables.map(lambda pair: pair[0])) | st.binary(max_size=60))
def test_skimming_takes_what_reading_takes(raw: bytes) -> None:
    assert outcome(skim_table, raw) == outcome(read_table, raw)


@given(spoiled(wire_tables.map(lambda pair: pair[0][4:])) | st.binary(max_size=60))
def test_hostile_entries_raise_nothing_but_502(raw: bytes) -> None:
    assert outcome(read_entries, raw) is not None


def test_of_a_key_that_comes_twice_the_first_counts() -> None:
    assert read(sized(b"\x01kb\x01" + b"\x01kb\x02")) == {"k": 1}


def test_a_key_that_is_not_utf_8_goes_out_as_it_came() -> None:
    raw = sized(short(b"\xff") + b"V")
    assert read(raw) == {"\udcff": None}
    assert written(read(raw)) == raw


def nested(depth: int, letter: bytes) -> bytes:
    """Return a table that is `depth` deep with the arrays or tables in it; the last is empty."""
    inner = b""
    for _ in range(depth - 1):
        inner = (b"\x00" if letter == b"F" else b"") + letter + long(inner)
    return sized(inner if letter == b"F" else b"\x00" + inner)


@pytest.mark.parametrize("letter", [b"F", b"A"])
def test_depth_at_the_limit_and_one_past_it(letter: bytes) -> None:
    raw = nested(TABLE_DEPTH_MAX, letter)
    assert skim_table(raw, 0, len(raw)) == len(raw)
    assert read(raw)
    for depth in (TABLE_DEPTH_MAX + 1, 5_000):
        deep = nested(depth, letter)
        assert "nest deeper than 32" in str(outcome(skim_table, deep))
        assert "nest deeper than 32" in str(outcome(read_table, deep))


def test_written_depth_at_the_limit_and_one_past_it() -> None:
    def table(depth: int) -> dict[str, object]:
        return {"k": 1} if depth == 1 else {"k": table(depth - 1)}

    assert read(written(table(TABLE_DEPTH_MAX))) == table(TABLE_DEPTH_MAX)
    assert read(written({"k": [[{}]]})) == {"k": [[{}]]}
    with pytest.raises(ValueError, match="nest at most 32"):
        written(table(TABLE_DEPTH_MAX + 1))
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nest at most 32"):
        written({"k": endless})


def test_entries_at_the_limit_and_one_past_it() -> None:
    def flat(count: int) -> bytes:
        return sized(b"\x01kV" * count)

    def array(count: int) -> bytes:
        return sized(b"\x01kA" + long(b"V" * (count - 1)))

    def spread(count: int) -> bytes:
        # Two tables in one: all entries count together, the two tables' own too.
        half = (count - 2) // 2
        inner = b"F" + long(b"\x01kV" * half)
        rest = b"F" + long(b"\x01kV" * (count - 2 - half))
        return sized(b"\x01a" + inner + b"\x01b" + rest)

    for shape in (flat, array, spread):
        full, over = shape(TABLE_ENTRIES_MAX), shape(TABLE_ENTRIES_MAX + 1)
        assert skim_table(full, 0, len(full)) == len(full)
        read(full)
        assert "more than 4096 entries" in str(outcome(skim_table, over))
        assert "more than 4096 entries" in str(outcome(read_table, over))


def test_written_entries_at_the_limit_and_one_past_it() -> None:
    full: dict[str, object] = {"k": [None] * (TABLE_ENTRIES_MAX - 1)}
    assert read(written(full)) == full
    with pytest.raises(ValueError, match="at most 4096 entries"):
        written({"k": [None] * TABLE_ENTRIES_MAX})


@pytest.mark.parametrize("letter", [b"S", b"x", b"A", b"F"])
@pytest.mark.parametrize("size", [b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff"])
def test_a_size_beyond_the_bytes_is_refused_before_anything_is_built(
    letter: bytes, size: bytes
) -> None:
    for raw in (sized(b"\x01k" + letter + size), size, size + b"\x01kV"):
        assert outcome(skim_table, raw) == "a field table ends within a value"
        assert outcome(read_table, raw) == "a field table ends within a value"


@pytest.mark.parametrize("letter", [b"\x00", b"U", b"a", b"\xff"])
def test_an_unknown_type_is_refused(letter: bytes) -> None:
    raw = sized(b"\x01k" + letter + bytes(8))
    assert outcome(read_table, raw) == (
        f"a field table has a value of the unknown type {letter[0]}"
    )
    assert outcome(skim_table, raw) == outcome(read_table, raw)


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        1j,
        object(),
        (1, 2),
        {1: 2},
        Timestamp(2**64),
        Timestamp(-1),
        Decimal("-1.5"),
        Decimal(2**32),
        Decimal("1E-256"),
        Decimal("1E+11"),
        Decimal("NaN"),
        Decimal("Infinity"),
        "\ud800",
    ],
)
def test_what_a_table_cannot_hold_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match=r"cannot contain|not a timestamp|64 bits|surrogates"):
        written({"k": value})


def test_a_key_at_the_limit_and_one_past_it() -> None:
    assert read(written({"k" * 255: 1})) == {"k" * 255: 1}
    with pytest.raises(ValueError, match="at most 255 bytes, not 256"):
        written({"k" * 256: 1})


def test_a_decimal_is_exact() -> None:
    value = read(sized(b"\x01kD\xff\xff\xff\xff\xff"))["k"]
    assert isinstance(value, Decimal)
    assert value.as_tuple().exponent == -255
    assert read(written({"k": value})) == {"k": value}


def test_timestamps_equal_their_like_only() -> None:
    assert Timestamp(5) == Timestamp(5)
    assert Timestamp(5) != Timestamp(6)
    assert Timestamp(5) != 5
    assert len({Timestamp(5), Timestamp(5)}) == 1
    assert repr(Timestamp(5)) == "Timestamp(5)"
