"""Properties of class basic: whole, skimmed and one by one (AMQP 0-9-1 section 4.2.6.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import SyntaxFault
from leveret.wire import basic_properties
from leveret.wire import properties as single
from leveret.wire.edit import edit_headers
from leveret.wire.properties import (
    NO_PROPERTIES,
    BasicProperties,
    decode_properties,
    find_property,
    skim_properties,
)
from leveret.wire.spec import PROPERTIES
from support.wire.wire_strategies import (
    properties_of,
    short,
    some_properties,
    spoiled,
    tables,
    wire_tables,
)

NAMES = [field.name for field in PROPERTIES]
READERS: dict[str, Callable[[bytes], object]] = {
    "headers": single.property_headers,
    "delivery_mode": single.property_delivery_mode,
    "priority": single.property_priority,
    "correlation_id": single.property_correlation_id,
    "reply_to": single.property_reply_to,
    "expiration": single.property_expiration,
    "message_id": single.property_message_id,
    "timestamp": single.property_timestamp,
    "user_id": single.property_user_id,
}


encoded = some_properties.map(lambda fields: properties_of(fields).encode())
#: Properties with headers of every type on the wire.
with_wire_headers = wire_tables.map(lambda pair: b"\x30\x00" + pair[0] + b"\x02")


@given(some_properties)
def test_properties_come_back_as_they_were(fields: dict[str, object]) -> None:
    properties = properties_of(fields)
    again = decode_properties(properties.encode())
    assert again == properties
    for name in NAMES:
        assert getattr(again, name) == fields.get(name)


@given(some_properties, st.binary(max_size=5), st.binary(max_size=5))
def test_skimming_tells_the_delivery_mode(
    fields: dict[str, object], before: bytes, after: bytes
) -> None:
    raw = properties_of(fields).encode()
    data = before + raw + after
    end = len(before) + len(raw)
    assert skim_properties(data, len(before), end) == fields.get("delivery_mode", 0)


def outcome(call: Callable[[bytes], object], raw: bytes) -> bool:
    """Tell whether the bytes are taken; any error but a 502 goes on and fails the test."""
    try:
        call(raw)
    except SyntaxFault:
        return False
    return True


@given(spoiled(encoded | with_wire_headers) | st.binary(max_size=40))
def test_skimming_takes_what_decoding_takes(raw: bytes) -> None:
    taken = outcome(decode_properties, raw)
    assert outcome(lambda raw: skim_properties(raw, 0, len(raw)), raw) is taken
    if taken:
        assert outcome(lambda raw: skim_properties(raw + bytes(9), 0, len(raw)), raw)


@given(encoded | with_wire_headers)
def test_single_properties_are_what_decoding_finds(raw: bytes) -> None:
    whole = decode_properties(raw)
    for name, reader in READERS.items():
        assert reader(raw) == getattr(whole, name)
    for index, field in enumerate(PROPERTIES):
        flag = 0x8000 >> index
        if field.kind == "shortstr":
            assert single.property_text(raw, flag) == getattr(whole, field.name)
        assert (find_property(raw, flag) < 0) is (getattr(whole, field.name) is None)


@given(spoiled(encoded | with_wire_headers) | st.binary(max_size=40))
def test_single_readers_raise_nothing_but_502_on_hostile_bytes(raw: bytes) -> None:
    for reader in READERS.values():
        outcome(reader, raw)


@given(encoded, st.data())
def test_properties_that_end_early_or_go_on_are_refused(raw: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(raw) - 1))
    for spoilt in (raw[:end], raw + b"\x00"):
        assert outcome(decode_properties, spoilt) is False
        with pytest.raises(SyntaxFault):
            skim_properties(spoilt, 0, len(spoilt))


@pytest.mark.parametrize("flags", [b"\x00\x01", b"\x00\x02", b"\x10\x03"])
def test_flags_that_stand_for_no_property_are_refused(flags: bytes) -> None:
    # RabbitMQ ignores bits 1 and 0; a client would take bit 0 for more flags and read other
    # properties from the same bytes, so none of it is passed on.
    raw = flags + (b"\x02" if flags[0] else b"")
    assert outcome(decode_properties, raw) is False
    with pytest.raises(SyntaxFault, match="property flags"):
        skim_properties(raw, 0, len(raw))


@pytest.mark.parametrize(
    "raw", [b"", b"\x80", b"\x80\x80\x05abc", b"\x20\x80\0\0\0\1", b"\x10\x80"]
)
def test_a_property_behind_the_end_is_not_found_but_502(raw: bytes) -> None:
    with pytest.raises(SyntaxFault):
        find_property(raw, single.MESSAGE_ID)


def test_flags_are_those_of_the_specification() -> None:
    for index, field in enumerate(PROPERTIES):
        assert getattr(basic_properties, field.name.upper()) == 0x8000 >> index
    raw = BasicProperties(content_type="a", delivery_mode=2, cluster_id="c").encode()
    assert raw == b"\x90\x04" + short("a") + b"\x02" + short("c")
    assert BasicProperties().encode() == NO_PROPERTIES


def test_raw_bytes_in_a_correlation_id_survive() -> None:
    # RabbitMQ does not look into properties; some clients put a binary UUID there.
    raw = b"\x04\x00" + short(b"\xff\x00\x80")
    found = decode_properties(raw)
    assert found.correlation_id == "\udcff\x00\udc80"
    assert found.encode() == raw
    assert single.property_correlation_id(raw) == found.correlation_id


@pytest.mark.parametrize(
    ("legal", "beyond"),
    [
        (BasicProperties(priority=255), BasicProperties(priority=256)),
        (BasicProperties(delivery_mode=0), BasicProperties(delivery_mode=-1)),
        (BasicProperties(timestamp=2**64 - 1), BasicProperties(timestamp=2**64)),
        (BasicProperties(message_id="m" * 255), BasicProperties(message_id="m" * 256)),
        (BasicProperties(headers={"k": 2**63 - 1}), BasicProperties(headers={"k": 2**63})),
    ],
)
def test_what_does_not_fit_is_not_written(legal: BasicProperties, beyond: BasicProperties) -> None:
    assert decode_properties(legal.encode()) == legal
    with pytest.raises(ValueError, match=r"not an octet|not a timestamp|at most 255|64 bits"):
        beyond.encode()


@given(encoded, tables)
def test_headers_are_added_and_the_rest_is_left(raw: bytes, more: dict[str, object]) -> None:
    before, after = decode_properties(raw), decode_properties(edit_headers(raw, [], more))
    # Of a name that comes twice the first counts.
    assert (after.headers or {}) == {**more, **(before.headers or {})}
    after.headers = before.headers
    assert after == before


@given(wire_tables)
def test_headers_that_are_there_keep_their_types(pair: tuple[bytes, object]) -> None:
    # "Header values of all types come back as they were sent", also beside added ones.
    raw = b"\x30\x00" + pair[0] + b"\x02"
    added = edit_headers(raw, [], {"x-stream-offset": 7})
    assert pair[0][4:] in added
    assert added.endswith(short("x-stream-offset") + b"I\x00\x00\x00\x07" + b"\x02")


def test_properties_show_what_is_there() -> None:
    shown = repr(BasicProperties(delivery_mode=2, type="t"))
    assert shown == "BasicProperties(delivery_mode=2, type='t')"
    assert BasicProperties(type="t") != BasicProperties(app_id="t")
    assert BasicProperties() != b"\x00\x00"
    assert BasicProperties(headers={"a": 1, "b": 2}) == BasicProperties(headers={"b": 2, "a": 1})
    assert len({BasicProperties(), BasicProperties()}) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", "high"),
        ("timestamp", 1.5),
        ("expiration", 5),
        ("headers", [("a", 1)]),
        ("message_id", b"1"),
    ],
)
def test_a_property_of_a_wrong_type_is_named(name: str, value: Any) -> None:
    fields: Any = {name: value}
    with pytest.raises(TypeError, match=f"^property {name} must be an? "):
        BasicProperties(**fields)


def test_a_property_that_there_is_not_is_named() -> None:
    fields: Any = {"prioritty": 1}
    with pytest.raises(TypeError, match="there is no property prioritty"):
        BasicProperties(**fields)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        (BasicProperties(priority=300), "property priority: 300 is not an octet"),
        (BasicProperties(message_id="m" * 256), "property message_id: a short string holds"),
        (BasicProperties(timestamp=-1), "property timestamp: -1 is not a timestamp"),
        (BasicProperties(headers={"a": {"b": 1j}}), "property headers: a: b: .* complex"),
        (BasicProperties(headers={"n": 2**63}), "property headers: n: .*64 bits"),
    ],
)
def test_a_property_that_cannot_be_written_is_named(properties: BasicProperties, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}"):
        properties.encode()
