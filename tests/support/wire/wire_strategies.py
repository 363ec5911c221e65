"""Hypothesis strategies for values on the wire, and a second writer of field tables.

The writer uses only `struct`: it shares no line with the codec that it is compared with, and it
writes every type letter, unlike the codec.
"""

from __future__ import annotations

import struct
from decimal import Decimal

from hypothesis import strategies as st

from leveret.wire import methods
from leveret.wire.method import Method
from leveret.wire.properties import BasicProperties
from leveret.wire.spec import METHODS, PROPERTIES, Field
from leveret.wire.tables import Timestamp

U64 = 2**64 - 1
I64 = (-(2**63), 2**63 - 1)

shortstrs = st.text(max_size=63)
unbroken = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=63)
timestamps = st.integers(0, U64).map(Timestamp)
decimals = st.builds(
    lambda number, scale: Decimal((0, tuple(map(int, str(number))), -scale)),
    st.integers(0, 2**32 - 1),
    st.integers(0, 255),
)
scalars: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(*I64),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20),
    timestamps,
    decimals,
)
values: st.SearchStrategy[object] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(shortstrs, inner, max_size=4),
    max_leaves=12,
)
tables: st.SearchStrategy[dict[str, object]] = st.dictionaries(shortstrs, values, max_size=5)

#: The possible values of each kind of field.
KINDS: dict[str, st.SearchStrategy[object]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 0xFF),
    "short": st.integers(0, 0xFFFF),
    "long": st.integers(0, 0xFFFF_FFFF),
    "longlong": st.integers(*I64),
    "timestamp": st.integers(0, U64),
    "shortstr": shortstrs,
    "longstr": st.binary(max_size=40),
    "table": tables,
}


def named(fields: tuple[Field, ...]) -> dict[str, st.SearchStrategy[object]]:
    """Return a strategy for each field with a value."""
    return {field.name: KINDS[field.kind] for field in fields if not field.reserved}


def methods_of(name: str) -> st.SearchStrategy[Method]:
    """Return a strategy for the method of that name."""
    spec = METHODS[name]
    # Line ends are stripped from names when a method is decoded.
    names = dict.fromkeys(spec.names, unbroken)
    return st.fixed_dictionaries({**named(spec.fields), **names}).map(
        lambda fields: getattr(methods, spec.class_word)(**fields)
    )


any_method: st.SearchStrategy[Method] = st.sampled_from(sorted(METHODS)).flatmap(methods_of)
#: Some of the 14 properties.
some_properties: st.SearchStrategy[dict[str, object]] = st.fixed_dictionaries(
    {}, optional=named(PROPERTIES)
)


def properties_of(fields: dict[str, object]) -> BasicProperties:
    """Return properties with these fields."""
    return BasicProperties(**fields)  # type: ignore[arg-type]


def short(text: str | bytes) -> bytes:
    """Return a short string."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(">B", len(raw)) + raw


def long(raw: bytes) -> bytes:
    """Return a long string."""
    return struct.pack(">I", len(raw)) + raw


def packed(
    letter: str, form: str, numbers: st.SearchStrategy[object]
) -> st.SearchStrategy[tuple[bytes, object]]:
    """Return values of one fixed-size type, as bytes with their letter and as Python values."""
    return numbers.map(lambda number: (letter.encode() + struct.pack(form, number), number))


def floats(width: int) -> st.SearchStrategy[object]:
    """Return floats that fit into `width` bits."""
    return st.floats(width=width, allow_nan=False)  # type: ignore[arg-type]


def array_of(items: list[tuple[bytes, object]]) -> tuple[bytes, object]:
    """Return an array of wire values."""
    return b"A" + long(b"".join(raw for raw, _ in items)), [value for _, value in items]


def table_of(entries: list[tuple[str, tuple[bytes, object]]]) -> tuple[bytes, object]:
    """Return a table of wire values; for a repeated key the first value counts."""
    raw = b"".join(short(key) + value for key, (value, _) in entries)
    return b"F" + long(raw), {key: value for key, (_, value) in reversed(entries)}


wire_scalars: st.SearchStrategy[tuple[bytes, object]] = st.one_of(
    packed("t", ">?", st.booleans()),
    packed("b", ">b", st.integers(-(2**7), 2**7 - 1)),
    packed("B", ">B", st.integers(0, 2**8 - 1)),
    packed("s", ">h", st.integers(-(2**15), 2**15 - 1)),
    packed("u", ">H", st.integers(0, 2**16 - 1)),
    packed("I", ">i", st.integers(-(2**31), 2**31 - 1)),
    packed("i", ">I", st.integers(0, 2**32 - 1)),
    packed("l", ">q", st.integers(*I64)),
    packed("L", ">q", st.integers(*I64)),
    packed("f", ">f", floats(32)),
    packed("d", ">d", floats(64)),
    st.integers(0, U64).map(lambda n: (b"T" + struct.pack(">Q", n), Timestamp(n))),
    st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1)).map(
        lambda d: (b"D" + struct.pack(">BI", *d), Decimal(f"{d[1]}E-{d[0]}"))
    ),
    st.text(max_size=20).map(lambda text: (b"S" + long(text.encode()), text)),
    st.binary(max_size=20).map(lambda raw: (b"x" + long(raw), raw)),
    st.just((b"V", None)),
)
wire_values: st.SearchStrategy[tuple[bytes, object]] = st.recursive(
    wire_scalars,
    lambda inner: (
        st.lists(inner, max_size=4).map(array_of)
        | st.lists(st.tuples(shortstrs, inner), max_size=4).map(table_of)
    ),
    max_leaves=12,
)
#: Whole tables of every type, without the letter: their bytes and their value.
wire_tables: st.SearchStrategy[tuple[bytes, object]] = (
    st.lists(st.tuples(shortstrs, wire_values), max_size=6)
    .map(table_of)
    .map(lambda pair: (pair[0][1:], pair[1]))
)


@st.composite
def spoiled(draw: st.DrawFn, legal: st.SearchStrategy[bytes]) -> bytes:
    """Return legal bytes after at most four small mutations."""
    raw = bytearray(draw(legal))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(raw)))
        accident = draw(st.sampled_from(("change", "insert", "cut", "end", "grow")))
        if accident == "insert":
            raw[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif accident == "cut":
            del raw[at : at + draw(st.integers(1, 4))]
        elif accident == "end":
            del raw[at:]
        elif accident == "grow":
            raw += draw(st.binary(max_size=4))
        elif at < len(raw):
            raw[at] = draw(st.integers(0, 255) | st.sampled_from(b"tbBsuIilLfdDSxAFTV\xff\x00"))
    return bytes(raw)
