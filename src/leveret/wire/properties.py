"""The properties of a message, read one at a time from the bytes of its content header.

`raw` starts with the property flags, as stored in a `Message`.  `decode_properties` returns all
properties.  `skim_properties` checks the bytes on arrival.  On unchecked bytes, the readers raise
only `SyntaxFault`.

Functions that return changed properties are in `edit`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.errors import SyntaxFault
from leveret.wire.basic_properties import (
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    USER_ID,
    BasicProperties,
    check_flags,
    decode_properties,
    skim_properties,
)
from leveret.wire.buffer import read_i16_be, read_i32_be
from leveret.wire.fields import FieldReader
from leveret.wire.tables import read_table

__all__ = [
    "CONTENT_TYPE",
    "CORRELATION_ID",
    "DELIVERY_MODE",
    "EXPIRATION",
    "HEADERS",
    "MESSAGE_ID",
    "NO_PROPERTIES",
    "ONLY_PERSISTENT",
    "PERSISTENT",
    "PRIORITY",
    "REPLY_TO",
    "TIMESTAMP",
    "USER_ID",
    "BasicProperties",
    "check_flags",
    "decode_properties",
    "find_property",
    "property_correlation_id",
    "property_delivery_mode",
    "property_expiration",
    "property_headers",
    "property_message_id",
    "property_place",
    "property_priority",
    "property_reply_to",
    "property_text",
    "property_timestamp",
    "property_user_id",
    "skim_properties",
    "skip_property",
]

#: The delivery mode of a message that survives a restart in a durable queue.
PERSISTENT: Final = 2

#: Encoded properties without any property.
NO_PROPERTIES: Final = b"\x00\x00"

#: Encoded properties with only the delivery mode of a persistent message.
ONLY_PERSISTENT: Final = b"\x10\x00\x02"


def find_property(raw: bytes, flag: i64) -> i64:
    """Return the start of the value of the property with that flag in `raw`, or -1.

    Raises: SyntaxFault (502) if `raw` ends before the value.
    """
    if len(raw) < 2:
        raise _short()
    flags: i64 = i64(read_i16_be(raw, 0)) & 0xFFFF
    if flags & flag == 0:
        return -1
    return property_place(raw, flags, flag)


def property_place(raw: bytes, flags: i64, flag: i64) -> i64:
    """Return the position at which the property with that flag starts or would start."""
    end: i64 = len(raw)
    position: i64 = 2
    before: i64 = 0x8000
    while before > flag:
        if flags & before:
            position = _skip(raw, position, end, before)
        before >>= 1
    return position


def skip_property(raw: bytes, at: i64, flag: i64) -> i64:
    """Return the end of the property with that flag whose value starts at `at`."""
    return _skip(raw, at, len(raw), flag)


def _skip(raw: bytes, position: i64, end: i64, flag: i64) -> i64:
    """Return the position after the value of the property with that flag."""
    if flag == HEADERS:
        if end - position < 4:
            raise _short()
        size: i64 = i64(read_i32_be(raw, position)) & 0xFFFF_FFFF
        return _within(position + 4 + size, end)
    if flag in (DELIVERY_MODE, PRIORITY):
        return _within(position + 1, end)
    if flag == TIMESTAMP:
        return _within(position + 8, end)
    if position >= end:
        raise _short()
    return _within(position + 1 + i64(raw[position]), end)


def _within(position: i64, end: i64) -> i64:
    """Return `position`.  Raises: SyntaxFault (502) if it is beyond `end`."""
    if position > end:
        raise _short()
    return position


def _short() -> SyntaxFault:
    """Return the error for properties that end early."""
    return SyntaxFault("the properties end early")


def property_text(raw: bytes, flag: i64) -> str | None:
    """Return the property with that flag, which must be one of the short strings."""
    position = find_property(raw, flag)
    return None if position < 0 else FieldReader(raw, position, len(raw)).text()


def property_octet(raw: bytes, flag: i64) -> int | None:
    """Return the property with that flag, which must be an octet."""
    position = find_property(raw, flag)
    return None if position < 0 else FieldReader(raw, position, len(raw)).octet()


def property_headers(raw: bytes) -> dict[str, object] | None:
    """Return the headers as a new dict at each call, or None.

    They may have more entries than a publisher may send, because the broker adds entries.

    Raises: SyntaxFault (502).
    """
    position = find_property(raw, HEADERS)
    if position < 0:
        return None
    headers, _ = read_table(raw, position, len(raw), len(raw))
    return headers


def property_delivery_mode(raw: bytes) -> int | None:
    """Return the delivery mode (2: persistent), or None."""
    return property_octet(raw, DELIVERY_MODE)


def property_priority(raw: bytes) -> int | None:
    """Return the priority, 0 to 255, or None."""
    return property_octet(raw, PRIORITY)


def property_correlation_id(raw: bytes) -> str | None:
    """Return the correlation id or None."""
    return property_text(raw, CORRELATION_ID)


def property_reply_to(raw: bytes) -> str | None:
    """Return reply_to or None."""
    return property_text(raw, REPLY_TO)


def property_expiration(raw: bytes) -> str | None:
    """Return the expiration as sent by the publisher (text, milliseconds if valid), or None."""
    return property_text(raw, EXPIRATION)


def property_message_id(raw: bytes) -> str | None:
    """Return the message id or None."""
    return property_text(raw, MESSAGE_ID)


def property_timestamp(raw: bytes) -> int | None:
    """Return the publisher's timestamp in seconds, or None."""
    position = find_property(raw, TIMESTAMP)
    return None if position < 0 else FieldReader(raw, position, len(raw)).timestamp()


def property_user_id(raw: bytes) -> str | None:
    """Return the user id or None."""
    return property_text(raw, USER_ID)
