"""The end of a closing handshake is found in bytes that nobody can parse (section 1.4.2.5)."""

from __future__ import annotations

import pytest

from leveret.wire.closing import CLOSE_FOUND, CLOSE_OK_FOUND, NOTHING_FOUND, CloseScanner
from support.wire.raw_codec import frame, method

GARBAGE = b"\x01\x00\x00\x00\x00\xff what is no frame at all"


@pytest.mark.parametrize(
    ("end", "found"),
    [
        (method(0, "connection.close-ok"), CLOSE_OK_FOUND),
        (method(0, "connection.close", code=200, text="Goodbye"), CLOSE_FOUND),
    ],
    ids=["close-ok", "close"],
)
def test_an_end_is_found_when_it_is_whole(end: bytes, found: int) -> None:
    assert CloseScanner().scan(GARBAGE + end) == found
    pieces = CloseScanner()
    for octet in GARBAGE + end[:-1]:
        assert pieces.scan(bytes([octet])) == NOTHING_FOUND
    assert pieces.scan(end[-1:]) == found


@pytest.mark.parametrize(
    "data",
    [GARBAGE, method(1, "channel.close-ok"), frame(3, 0, b"\x00\x0a\x00\x32 in a body")],
    ids=["garbage", "another method", "a body"],
)
def test_nothing_else_is_taken_for_one(data: bytes) -> None:
    scanner = CloseScanner()
    assert [scanner.scan(data) for _ in range(50)] == [NOTHING_FOUND] * 50
