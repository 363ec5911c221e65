"""pamqp, an independent codec, as the oracle: it reads what we write, and we read what it writes.

Where the two differ, on purpose:

- pamqp writes an integer in a table in the least type that holds it, a float as `f`, and sorts
  keys; we write `I` or `l`, `d`, and keep the order.  So tables are compared by what they mean.
- pamqp reads timestamps as datetimes, and one beyond 2106 as milliseconds; ours are seconds.
- pamqp writes bytes of type `x` from bytearray and reads them as such.
- pamqp reads a decimal as unsigned and writes it as signed; we do both unsigned, as RabbitMQ does.
- pamqp checks names against the specification's patterns; RabbitMQ and we do not.
- pamqp does not write an empty string as a property and ignores what follows the properties.
- pamqp has nothing but "0" in the reserved text of channel.open and open-ok, where ours is empty or
  of publish sessions.
- pamqp does not know class access.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pamqp.base
import pamqp.body
import pamqp.commands
import pamqp.decode
import pamqp.encode
import pamqp.frame
import pamqp.header
import pamqp.heartbeat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.wire import methods
from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import (
    FrameReader,
    write_body,
    write_header,
    write_heartbeat,
    write_method,
)
from leveret.wire.method import Method, payload
from leveret.wire.methods import decode_method
from leveret.wire.properties import BasicProperties, decode_properties
from leveret.wire.spec import METHODS, PROPERTIES
from leveret.wire.tables import Timestamp, read_table, write_table
from support.wire.wire_strategies import I64, KINDS

#: pamqp warns of recover-async, which 0-9-1 has and advises against.
pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")

SHARED = sorted(name for name, spec in METHODS.items() if spec.class_name != "access")
#: Text that every pattern of the specification allows.
names = st.text("abcXYZ019-_.:@#,/", max_size=127)
seconds = st.integers(0, 2**32 - 1)
#: Values that both codecs write: floats are such as 32 bits hold.
scalars: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(*I64),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.text(max_size=10),
    st.binary(max_size=10),
    seconds.map(Timestamp),
    st.builds(lambda n, scale: Decimal((0, (n,), -scale)), st.integers(0, 9), st.integers(0, 20)),
)
values: st.SearchStrategy[object] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
tables: st.SearchStrategy[dict[str, object]] = st.dictionaries(names, values, max_size=4)
kinds: dict[str, st.SearchStrategy[object]] = {
    **KINDS,
    "shortstr": names,
    "longstr": st.text(max_size=20).map(str.encode),
    "table": tables,
}

#: The methods of whose reserved text pamqp knows one value only.
RESERVED = {"channel.open", "channel.open-ok"}


def theirs(value: Any) -> Any:
    """Return a value of ours as pamqp has it."""
    match value:
        case bytes():
            return bytearray(value)
        case Timestamp():
            return dt.datetime.fromtimestamp(value.seconds, tz=dt.UTC)
        case dict():
            return {key: theirs(item) for key, item in value.items()}
        case list():
            return [theirs(item) for item in value]
    return value


@st.composite
def pairs(draw: st.DrawFn, name: str) -> tuple[Method, pamqp.base.Frame]:
    """Return the same method in both codecs: their arguments stand in the same order."""
    spec = METHODS[name]
    key = spec.class_id << 16 | spec.method_id
    other: pamqp.base.Frame = pamqp.commands.INDEX_MAPPING[key]()
    arguments = {}
    assert len(other.__slots__) == len(spec.fields)
    for slot, field in zip(other.__slots__, spec.fields, strict=True):
        if field.reserved or name in RESERVED:
            continue
        value = draw(kinds[field.kind])
        arguments[field.name] = value
        text = value.decode() if isinstance(value, bytes) else value
        setattr(other, slot, theirs(value) if field.kind == "table" else text)
    return getattr(methods, spec.class_word)(**arguments), other


def meant(frame: pamqp.base.Frame, name: str) -> list[object]:
    """Return the arguments of a method of theirs without the reserved ones."""
    fields = zip(frame.__slots__, METHODS[name].fields, strict=True)
    if name in RESERVED:
        return []
    return [getattr(frame, slot) for slot, field in fields if not field.reserved]


@pytest.mark.parametrize("name", SHARED)
@given(data=st.data())
def test_methods_are_the_same_in_both(name: str, data: st.DataObject) -> None:
    ours, other = data.draw(pairs(name))
    w = BytesWriter()
    write_method(w, 7, ours)
    size, channel, found = pamqp.frame.unmarshal(w.getvalue())
    assert (size, channel) == (len(w.getvalue()), 7)
    assert isinstance(found, pamqp.base.Frame)
    assert type(found) is type(other)
    assert meant(found, name) == meant(other, name)
    raw = pamqp.frame.marshal(other, 7)
    reader = FrameReader()
    reader.feed(raw)
    assert reader.next()
    again = decode_method(reader.data, reader.start, reader.end)
    assert type(again) is type(ours)
    if name in RESERVED:
        return
    for field in ours.FIELDS:
        assert getattr(again, field) == getattr(ours, field)
    if "table" not in {field.kind for field in METHODS[name].fields}:
        assert w.getvalue() == raw


@given(tables)
def test_tables_mean_the_same_in_both(table: dict[str, object]) -> None:
    w = BytesWriter()
    write_table(w, table)
    raw = w.getvalue()
    assert pamqp.decode.field_table(raw) == (len(raw), theirs(table))
    other = pamqp.encode.field_table(theirs(table))
    assert read_table(other, 0, len(other)) == (table, len(other))


@given(
    st.fixed_dictionaries(
        {}, optional={field.name: kinds[field.kind] for field in PROPERTIES[:-1]}
    ),
    seconds,
    st.integers(0, 2**63 - 1),
)
def test_content_headers_mean_the_same_in_both(
    fields: dict[str, Any], timestamp: int, size: int
) -> None:
    # cluster_id, the last property, must be empty for pamqp.
    if "timestamp" in fields:
        fields["timestamp"] = timestamp
    fields = {name: value for name, value in fields.items() if value != ""}
    ours = BasicProperties(**fields)
    other = pamqp.commands.Basic.Properties()
    for slot, field in zip(other.__slots__, PROPERTIES, strict=True):
        value = fields.get(field.name)
        if field.name == "timestamp" and value is not None:
            value = Timestamp(value)
        setattr(other, slot, theirs(value))
    w = BytesWriter()
    write_header(w, 3, 60, size, ours.encode())
    _, channel, found = pamqp.frame.unmarshal(w.getvalue())
    assert isinstance(found, pamqp.header.ContentHeader)
    assert (channel, found.body_size) == (3, size)
    for slot in other.__slots__:
        # An absent cluster_id is "" or None there.
        assert (getattr(found.properties, slot) or None) == (getattr(other, slot) or None)
    assert decode_properties(other.marshal()) == ours


@given(st.binary(min_size=1, max_size=50), st.integers(0, 65_535))
def test_bodies_and_heartbeats_are_the_same_in_both(body: bytes, channel: int) -> None:
    w = BytesWriter()
    write_body(w, channel, body, 0)
    assert w.getvalue() == pamqp.frame.marshal(pamqp.body.ContentBody(body), channel)
    w = BytesWriter()
    write_heartbeat(w)
    assert w.getvalue() == pamqp.frame.marshal(pamqp.heartbeat.Heartbeat(), 0)


def test_both_know_the_same_methods() -> None:
    ours = {METHODS[name].class_id << 16 | METHODS[name].method_id for name in SHARED}
    assert ours == set(pamqp.commands.INDEX_MAPPING)


@pytest.mark.parametrize("name", SHARED)
def test_both_know_the_same_replies(name: str) -> None:
    spec = METHODS[name]
    other: Any = pamqp.commands.INDEX_MAPPING[spec.class_id << 16 | spec.method_id]
    replies = [METHODS[reply].class_word for reply in spec.replies]
    assert [reply.replace(".", "") for reply in other.valid_responses] == replies


def test_a_payload_of_ours_is_a_frame_of_theirs_less_eight_bytes() -> None:
    method = methods.BasicAck(5, True)
    assert pamqp.frame.marshal(pamqp.commands.Basic.Ack(5, True), 1)[7:-1] == payload(method)
