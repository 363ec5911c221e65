"""Numbers of publishes: the headers by which a Leveret broker knows a message that is sent again.

`x-publisher` names the connection for as long as it is recovered, and `x-publishing-id` counts its
publishes.  They are written into the property bytes; nothing is decoded for it, and this module is
compiled.

Properties that have an `x-publishing-id` of the application stay as they are: it numbers its own.
A number that this client gave a message, which is published again, is overwritten.

Invariant: numbers increase in the order in which publishes are written, over all channels.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i32, i64

from leveret.wire.buffer import BytesWriter, read_i32_be, write_i32_be, write_i64_be
from leveret.wire.edit import edit_headers
from leveret.wire.properties import (
    HEADERS,
    NO_PROPERTIES,
    BasicProperties,
    find_property,
    property_place,
)

#: Publishers' names of this client begin so; what follows nobody else has.
PUBLISHER_PREFIX: Final = "leveret-client."

_PUBLISHER: Final = b"\x0bx-publisherS"
_PUBLISHING_ID: Final = b"x-publishing-id"
_PREFIX: Final = PUBLISHER_PREFIX.encode()

#: The octet that says in a table: a signed number of 64 bits.
_LONG: Final = b"l"


@final
class Numbering:
    """Numbers the publishes of one connection that `publisher` names."""

    def __init__(self, publisher: str) -> None:
        self.publisher: Final = publisher
        #: The number of the last publish.
        self.last: i64 = 0
        name = publisher.encode()
        size = len(name).to_bytes(4, "big")
        self._entries = _PUBLISHER + size + name + b"\x0f" + _PUBLISHING_ID + _LONG
        self._raw = b""
        self._before = b""
        self._after = b""
        self._is_numbered = False
        self._split(NO_PROPERTIES)

    def next(self, raw: bytes) -> bytes:
        """Return property bytes with the next number."""
        self.last += 1
        return self.numbered(raw, self.last)

    def numbered(self, raw: bytes, number: i64) -> bytes:
        """Return property bytes with a number.

        Publishers mostly repeat themselves: properties like the last ones are not looked at again.
        """
        if raw != self._raw:
            self._split(raw)
        if self._is_numbered:
            return raw
        w = BytesWriter()
        w.write(self._before)
        write_i64_be(w, number)
        w.write(self._after)
        return w.getvalue()

    def _split(self, raw: bytes) -> None:
        """Find where the number goes, and write what stands before it."""
        self._raw = raw
        if _is_of_client(raw):
            raw = edit_headers(raw, [b"x-publisher", _PUBLISHING_ID], {})
        self._is_numbered = _PUBLISHING_ID in raw
        flags: i64 = raw[0] << 8 | raw[1]
        at = find_property(raw, HEADERS)
        old = b""
        if at < 0:
            at = property_place(raw, flags, HEADERS)
            end = at
        else:
            end = at + 4 + (i64(read_i32_be(raw, at)) & 0xFFFF_FFFF)
            old = raw[at + 4 : end]
        flags |= HEADERS
        w = BytesWriter()
        w.append(flags >> 8)
        w.append(flags & 0xFF)
        w.write(raw[2:at])
        write_i32_be(w, i32(len(old) + len(self._entries) + 8))
        w.write(old)
        w.write(self._entries)
        self._before = w.getvalue()
        self._after = raw[end:]


def _is_of_client(raw: bytes) -> bool:
    """Tell whether property bytes have the number that a connection of this client gave."""
    at = raw.find(_PUBLISHER)
    return at >= 0 and raw[at + len(_PUBLISHER) + 4 :].startswith(_PREFIX)


def without_number(raw: bytes, properties: BasicProperties) -> BasicProperties:
    """Return decoded properties without the headers that this client has written.

    A program that publishes a message again with the properties that it came with would otherwise
    send what looks like a repeat.
    """
    headers = properties.headers
    if headers is None or _PREFIX not in raw:
        return properties
    if not str(headers.get("x-publisher", "")).startswith(PUBLISHER_PREFIX):
        return properties
    kept = {
        name: v for name, v in headers.items() if name not in {"x-publisher", "x-publishing-id"}
    }
    properties.headers = kept or None
    return properties
