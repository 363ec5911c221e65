"""Changing properties as bytes: the rest stays as it was sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.wire.edit import edit_headers, with_text, without_property
from leveret.wire.properties import (
    EXPIRATION,
    HEADERS,
    REPLY_TO,
    decode_properties,
    skim_properties,
)
from support.wire.wire_strategies import properties_of, some_properties

NAMES = st.sampled_from(["CC", "BCC", "x-death", "a", ""])


HEADER_TABLES = st.dictionaries(NAMES, st.integers(0, 9) | st.text(max_size=3))


@given(some_properties, HEADER_TABLES | st.none(), st.lists(NAMES, max_size=3), HEADER_TABLES)
def test_headers_go_and_come(
    fields: dict[str, object],
    headers: dict[str, object] | None,
    drop: list[str],
    more: dict[str, object],
) -> None:
    sent = properties_of(fields | {"headers": headers})
    raw = sent.encode()
    edited = edit_headers(raw, [name.encode() for name in drop], more)
    skim_properties(edited, 0, len(edited))
    kept = {k: v for k, v in (decode_properties(raw).headers or {}).items() if k not in drop}
    got = decode_properties(edited)
    # Of a name that comes twice the first counts: who adds one drops it.
    assert (got.headers or {}) == more | kept
    got.headers = sent.headers = None
    assert got.encode() == sent.encode()


def test_a_kept_header_keeps_its_type() -> None:
    """An 8-bit integer does not become a 32-bit one."""
    entry = b"\x01ab\x07"
    raw = b"\x20\x00" + (len(entry) + 4).to_bytes(4, "big") + entry + b"\x01ct\x01"
    assert edit_headers(raw, [b"c"], {}) == b"\x20\x00\x00\x00\x00\x04" + entry


@pytest.mark.parametrize("more", [{}, {"far": 1}, {"other": "far"}])
def test_a_long_table_keeps_what_is_not_dropped(more: dict[str, object]) -> None:
    headers: dict[str, object] = {f"name-{number}": number for number in range(100)}
    raw = properties_of({"headers": headers | more}).encode()
    edited = decode_properties(edit_headers(raw, [b"far", b"gone"], {"last": 1}))
    kept = {name: value for name, value in more.items() if name != "far"}
    assert list((edited.headers or {}).items()) == [*headers.items(), *kept.items(), ("last", 1)]


@given(some_properties, st.sampled_from([HEADERS, EXPIRATION, REPLY_TO]))
def test_a_property_goes(fields: dict[str, object], flag: int) -> None:
    sent = properties_of(fields)
    raw = without_property(sent.encode(), flag)
    name = {HEADERS: "headers", EXPIRATION: "expiration", REPLY_TO: "reply_to"}[flag]
    setattr(sent, name, None)
    assert raw == sent.encode()


@given(some_properties, st.text(max_size=20))
def test_a_text_is_set(fields: dict[str, object], text: str) -> None:
    sent = properties_of(fields)
    raw = with_text(sent.encode(), REPLY_TO, text)
    sent.reply_to = text
    assert raw == sent.encode()
