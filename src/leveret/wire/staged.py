"""The headers `x-staged-exchange` and `x-staged-routing-key`: the destination of a staged message.

A third header, `x-staged-headers`, records that the publisher sent an empty headers table, which
must stay when the other two are removed.

The headers are read from valid property bytes without decoding the rest, and removed when the
message is published.  Staging itself is implemented in `broker/sinks/staging.py`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.limits import SHORT_STRING_BYTES_MAX
from leveret.names import cleaned_bytes
from leveret.wire.buffer import read_i32_be
from leveret.wire.edit import edit_headers, without_property
from leveret.wire.properties import HEADERS, find_property
from leveret.wire.tables import value_end

STAGED_EXCHANGE: Final = b"x-staged-exchange"
STAGED_ROUTING_KEY: Final = b"x-staged-routing-key"

#: With this header, of any value, an otherwise empty headers table stays in the message.
STAGED_HEADERS: Final = b"x-staged-headers"

#: The sizes of the header names.
_EXCHANGE_SIZE: Final = 17
_ROUTING_KEY_SIZE: Final = 20

_STRING: Final = 0x53


@final
class StagedDestination:
    """The destination of a message: an exchange name, without line ends, and a routing key."""

    def __init__(self, exchange: bytes, routing_key: bytes) -> None:
        self.exchange: Final = exchange
        self.routing_key: Final = routing_key


def read_staged(properties: bytes) -> StagedDestination:
    """Return the destination in the two headers.

    Raises: PreconditionFailed (406) unless both are strings of at most 255 bytes, and for an
    exchange name of line ends only.
    """
    exchange: bytes | None = None
    routing_key: bytes | None = None
    at = find_property(properties, HEADERS)
    if at >= 0:
        end: i64 = at + 4 + i64(read_i32_be(properties, at))
        position: i64 = at + 4
        while position < end:
            size: i64 = properties[position]
            value: i64 = position + 1 + size
            after = value_end(properties, value)
            if size == _EXCHANGE_SIZE and properties[position + 1 : value] == STAGED_EXCHANGE:
                exchange = _text(properties, value, after)
            elif (
                size == _ROUTING_KEY_SIZE and properties[position + 1 : value] == STAGED_ROUTING_KEY
            ):
                routing_key = _text(properties, value, after)
            position = after
    if exchange is None or routing_key is None:
        raise PreconditionFailed(
            "invalid message: a staged message has the headers x-staged-exchange and "
            f"x-staged-routing-key, texts of at most {SHORT_STRING_BYTES_MAX} bytes"
        )
    return StagedDestination(cleaned_bytes(exchange), routing_key)


def _text(data: bytes, place: i64, end: i64) -> bytes | None:
    """Return the text with its type letter at `place`, or None if it cannot be a name."""
    if data[place] != _STRING or end - place - 5 > SHORT_STRING_BYTES_MAX:
        return None
    return data[place + 5 : end]


def without_staged(properties: bytes) -> bytes:
    """Return valid property bytes as they were before the staging headers were added."""
    at = find_property(properties, HEADERS)
    if at < 0 or read_i32_be(properties, at) == 0:
        return properties
    left = edit_headers(properties, [STAGED_EXCHANGE, STAGED_ROUTING_KEY, STAGED_HEADERS], {})
    if read_i32_be(left, at) == 0 and not _stays(properties, at):
        return without_property(left, HEADERS)
    return left


def _stays(properties: bytes, at: i64) -> bool:
    """Return whether the headers table at `at` contains `x-staged-headers`."""
    end: i64 = at + 4 + i64(read_i32_be(properties, at))
    position: i64 = at + 4
    while position < end:
        value: i64 = position + 1 + i64(properties[position])
        if properties[position + 1 : value] == STAGED_HEADERS:
            return True
        position = value_end(properties, value)
    return False
