"""CC, BCC and expiration read from property bytes, against what the decoded properties say."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leveret.broker.attributes.cc_bcc import (
    blind_copies,
    blind_entries,
    carbon_copies,
    copy_keys,
    without_bcc,
)
from leveret.broker.attributes.expiration import check_expiration, expiration_ms
from leveret.broker.attributes.special_headers import COPIES, NUMBERED, special_headers
from leveret.errors import PreconditionFailed
from leveret.limits import EXPIRATION_MS_MAX
from leveret.message import Address, Message
from leveret.wire.properties import (
    NO_PROPERTIES,
    BasicProperties,
    decode_properties,
    property_headers,
)
from support.wire.wire_strategies import tables

short = st.text(max_size=60)
keys = st.lists(short, max_size=5)
copies = st.fixed_dictionaries({}, optional={"CC": keys, "BCC": keys})


@given(tables, copies, st.booleans())
def test_the_keys_of_both_headers_are_found(
    more: dict[str, object], named: dict[str, object], first: bool
) -> None:
    others = {key: value for key, value in more.items() if key not in ("CC", "BCC")}
    headers = {**named, **others} if first else {**others, **named}
    raw = BasicProperties(headers=headers, message_id="m", content_type="t").encode()
    found = copy_keys(raw)
    assert sorted(found) == sorted(key for listed in named.values() for key in listed)  # type: ignore[attr-defined]
    assert special_headers(raw) & COPIES or not named
    left = decode_properties(without_bcc(raw))
    whole = decode_properties(raw)
    assert whole.headers is not None
    assert left.headers == {key: value for key, value in whole.headers.items() if key != "BCC"}
    left.headers = whole.headers
    assert left == whole


@pytest.mark.parametrize("raw", [NO_PROPERTIES, BasicProperties(app_id="CC").encode()])
def test_without_headers_there_are_no_copies(raw: bytes) -> None:
    assert copy_keys(raw) == []
    assert without_bcc(raw) == raw


@pytest.mark.parametrize("text", ["k" * 255, "é" * 127])
def test_the_longest_key_of_a_copy_and_one_longer(text: str) -> None:
    assert copy_keys(BasicProperties(headers={"CC": [text]}).encode()) == [text]
    with pytest.raises(PreconditionFailed, match="more than 255"):
        copy_keys(BasicProperties(headers={"CC": [text + "éé"]}).encode())


def test_a_key_that_is_no_text_is_refused() -> None:
    raw = b"\x20\x00\x00\x00\x00\x0e\x02CCA\x00\x00\x00\x06S\x00\x00\x00\x01\xff"
    with pytest.raises(PreconditionFailed, match="not UTF-8"):
        copy_keys(raw)


@pytest.mark.parametrize(
    ("headers", "may"),
    [
        ({"CC": []}, COPIES),
        ({"a": 1, "BCC": []}, COPIES),
        ({"a": {"CC": []}, "CCC-1": 2, "cc": 3, "": 4}, 0),
        ({"task": "CC", "Content": "x"}, 0),
        ({"x-publishing-id": 1}, NUMBERED),
        ({"x-publishing-id": 1, "b": {}, "BCC": []}, NUMBERED | COPIES),
        ({"x-publisher": "p", "a": {"x-publishing-id": 1}, "y-publishing-id": 1}, 0),
    ],
)
def test_special_headers_are_told_apart(headers: dict[str, object], may: int) -> None:
    assert special_headers(BasicProperties(headers=headers).encode()) == may


@given(st.one_of(st.text(max_size=30), st.from_regex(r"[+-]?\d{1,14}", fullmatch=True)))
@example("+0")
@example("-0")
@example("²")
@example("\u0661")
@example("1_000")
@example(str(EXPIRATION_MS_MAX))
@example(str(EXPIRATION_MS_MAX + 1))
def test_an_expiration_is_a_whole_number(text: str) -> None:
    raw = BasicProperties(expiration=text).encode()
    legal = re.fullmatch(r"[+-]?[0-9]+", text) is not None and 0 <= int(text) <= EXPIRATION_MS_MAX
    assert expiration_ms(raw) == (int(text) if legal else -1)
    if legal:
        check_expiration(raw)
    else:
        with pytest.raises(PreconditionFailed, match="invalid expiration"):
            check_expiration(raw)


def test_without_an_expiration_there_is_nothing_to_check() -> None:
    assert expiration_ms(NO_PROPERTIES) == -1
    check_expiration(NO_PROPERTIES)


@pytest.mark.parametrize("name", [b"CC", b"BCC"])
def test_of_a_header_given_twice_the_first_counts(name: bytes) -> None:
    """As in RabbitMQ 4.3; the second is not even judged."""
    entry = bytes([len(name)]) + name
    first = entry + b"A\x00\x00\x00\x06S\x00\x00\x00\x01a"
    for second in (entry + b"A\x00\x00\x00\x06S\x00\x00\x00\x01b", entry + b"I\x00\x00\x00\x01"):
        size = len(first + second).to_bytes(4)
        raw = b"\x20\x00" + size + first + second
        assert copy_keys(raw) == ["a"]
        blind = blind_entries(raw)
        assert blind_copies(Address(b"", b"", blind)) == (["a"] if name == b"BCC" else [])
        assert property_headers(without_bcc(raw)) == ({} if blind else property_headers(raw))
        message = Message(Address(b"", b""), raw, b"", 0, False)
        assert carbon_copies(message) == ([] if name == b"BCC" else ["a"])
