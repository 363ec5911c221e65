"""Publisher deduplication: headers by which a Leveret broker recognises a repeated message.

`x-publisher` identifies the connection across reconnects, and `x-publishing-id` counts its
publishes.  They are written into the property bytes without decoding; this module is compiled.

Properties with an `x-publishing-id` set by the application are left unchanged.  If the application
republishes a received message, a number written by this client is replaced.

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

#: The prefix of this client's publisher names; the rest is unique.
PUBLISHER_PREFIX: Final = "leveret-client."

_PUBLISHER: Final = b"\x0bx-publisherS"
_PUBLISHING_ID: Final = b"x-publishing-id"
_PREFIX: Final = PUBLISHER_PREFIX.encode()

#: The table type octet of a signed 64-bit integer.
_LONG: Final = b"l"


@final
class Numbering:
    """Numbers the publishes of one connection, identified by `publisher`."""

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

        Most publishers repeat their properties, so bytes equal to the previous ones are not parsed
        again.
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
        """Prepare the bytes before and after the number."""
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
    """Return whether property bytes contain a number written by this client library."""
    at = raw.find(_PUBLISHER)
    return at >= 0 and raw[at + len(_PUBLISHER) + 4 :].startswith(_PREFIX)


def without_number(raw: bytes, properties: BasicProperties) -> BasicProperties:
    """Return decoded properties without the headers written by this client.

    Otherwise an application that republishes a message with its received properties would send an
    apparent duplicate.
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
