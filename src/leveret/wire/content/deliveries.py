"""Deliveries of a stream as columns, for bulk readers that store messages in columns anyway.

A `DeliveryScanner` reads the deliveries of one channel from a connection's input, before the
session does.  For each it stores the offset and the time from the broker's headers, the exchange,
the routing key and the body, and on request the properties.  All other frames (replies, closes,
heartbeats, other channels) are left to the session.

    offsets      8 bytes each, little-endian; NO_OFFSET if none was sent
    timestamps   8 bytes each, milliseconds since 1970; NO_TIMESTAMP if none was sent
    redelivered  1 byte each
    texts        bodies, exchanges, routing keys, properties: the concatenated bytes, and their
                 boundaries: a leading 0, then the end of each, 4 bytes each

In the properties, the broker's offset and time are set to 0, so that messages published with equal
properties have equal properties here.

Invariants: a row is complete in all columns or absent from all; input may be split anywhere;
content frames are accepted only after the method that announces them (505 otherwise).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i32, i64

from leveret.errors import ContentTooLarge, SyntaxFault, UnexpectedFrame
from leveret.limits import CLIENT_MESSAGE_BYTES_MAX, FRAME_OVERHEAD_BYTES
from leveret.wire.basic_properties import HEADERS
from leveret.wire.buffer import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i32_le,
    write_i64_be,
    write_i64_le,
)
from leveret.wire.frames import (
    CONTENT_HEAD_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD_BYTES,
    FRAME_HEADER,
    FRAME_METHOD,
    FrameReader,
    header_body_size,
)
from leveret.wire.methods.ids import BASIC_DELIVER
from leveret.wire.tables import skim_table, value_end

STREAM_OFFSET: Final = b"x-stream-offset"
STREAM_TIMESTAMP: Final = b"x-stream-timestamp"

#: Used when the broker sent no integer.
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1

#: The type letter `l` of a signed 64-bit integer, as sent by Leveret and RabbitMQ.
_LONG_LONG: Final = 108

_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000

# The next frame that a scanner expects on its channel.
_METHOD_NEXT: Final = 0
_HEADER_NEXT: Final = 1
_BODY_NEXT: Final = 2


@final
class Texts:
    """Concatenated byte strings; the last may be unfinished."""

    def __init__(self) -> None:
        self.data: BytesWriter = BytesWriter()
        self.ends: BytesWriter = BytesWriter()
        self.end: i64 = 0
        write_i32_le(self.ends, 0)

    def finish(self) -> None:
        """End the current string."""
        self.end = len(self.data)
        write_i32_le(self.ends, i32(self.end))

    def take(self) -> tuple[bytes, bytes]:
        """Return and clear the finished strings and their ends."""
        data = self.data.getvalue()
        ends = self.ends.getvalue()
        self.data = BytesWriter()
        self.data.write(data[self.end :])
        taken = data[: self.end]
        self.ends = BytesWriter()
        write_i32_le(self.ends, 0)
        self.end = 0
        return taken, ends


@final
class DeliveryColumns:
    """The rows collected by a scanner; the module's docstring describes their layout."""

    def __init__(self, count: int, scanner: DeliveryScanner) -> None:
        self.count: Final = count
        self.offsets: Final = scanner.offsets.getvalue()
        self.timestamps: Final = scanner.timestamps.getvalue()
        self.redelivered: Final = scanner.redelivered.getvalue()
        self.bodies: Final = scanner.bodies.take()
        self.exchanges: Final = scanner.exchanges.take()
        self.routing_keys: Final = scanner.routing_keys.take()
        #: Empty unless the scanner was created with properties.
        self.properties: Final = scanner.properties.take()


@final
class DeliveryScanner:
    """Collects the deliveries of one channel.

    `count` is the number of complete deliveries not taken yet, and `body_bytes` the size of their
    bodies.  `delivery_tag` and `last_offset` belong to the last complete delivery.
    """

    def __init__(self, channel: i64, with_properties: bool) -> None:
        self.channel: Final[i64] = channel
        self.count: i64 = 0
        self.body_bytes: i64 = 0
        self.delivery_tag: i64 = 0
        self.last_offset: i64 = NO_OFFSET
        self.offsets: BytesWriter = BytesWriter()
        self.timestamps: BytesWriter = BytesWriter()
        self.redelivered: BytesWriter = BytesWriter()
        self.bodies: Final = Texts()
        self.exchanges: Final = Texts()
        self.routing_keys: Final = Texts()
        self.properties: Final = Texts()
        self._with_properties: Final = with_properties
        self._expects: i64 = _METHOD_NEXT
        self._left: i64 = 0
        self._tag: i64 = 0
        self._redelivered: i64 = 0
        self._offset: i64 = NO_OFFSET
        self._timestamp: i64 = NO_TIMESTAMP

    def columns(self) -> DeliveryColumns:
        """Return and clear the complete deliveries so far."""
        columns = DeliveryColumns(int(self.count), self)
        self.count = 0
        self.body_bytes = 0
        self.offsets = BytesWriter()
        self.timestamps = BytesWriter()
        self.redelivered = BytesWriter()
        return columns

    def take(self, reader: FrameReader) -> None:
        """Read the deliveries at the reader's position, and advance it.

        Stop before the first frame that is incomplete or not part of a delivery.  The session
        handles that frame and its errors.

        Raises: UnexpectedFrame (505); SyntaxFault (502); ContentTooLarge (311).
        """
        self._take_from(reader)
        while reader.complete():
            self._take_from(reader)

    def _take_from(self, reader: FrameReader) -> None:
        """Read the frames of deliveries that are complete in the reader's data."""
        data = reader.data
        size: i64 = len(data)
        at = reader.position
        while at + FRAME_OVERHEAD_BYTES <= size:
            payload: i64 = i64(read_i32_be(data, at + 3)) & 0xFFFF_FFFF
            start = at + FRAME_HEAD_BYTES
            end = start + payload
            if end >= size or i64(data[end]) != FRAME_END:
                break
            if payload > reader.frame_max and reader.frame_max != 0:
                break
            if i64(read_i16_be(data, at + 1)) & 0xFFFF != self.channel:
                break
            kind = i64(data[at])
            if self._expects == _METHOD_NEXT:
                if kind != FRAME_METHOD or payload < 4 or read_i32_be(data, start) != BASIC_DELIVER:
                    break
                reader.position = at = end + 1
                self._method(data, start, end)
                continue
            reader.position = at = end + 1
            if self._expects == _HEADER_NEXT and kind == FRAME_HEADER:
                self._header(data, start, end)
            elif self._expects == _BODY_NEXT and kind == FRAME_BODY:
                self._body(data, start, end)
            else:
                raise UnexpectedFrame("a delivery without its content")

    def _method(self, data: bytes, start: i64, end: i64) -> None:
        """Read basic.deliver."""
        if end - start < 15:
            raise _short()
        tag = start + 5 + i64(data[start + 4])
        if tag + 10 > end:
            raise _short()
        exchange = tag + 10
        key = exchange + i64(data[exchange - 1]) + 1
        if key > end or key + i64(data[key - 1]) != end:
            raise _short()
        self._tag = read_i64_be(data, tag)
        self._redelivered = i64(data[tag + 8]) & 1
        self.exchanges.data.write(data[exchange : key - 1])
        self.routing_keys.data.write(data[key:end])
        self._expects = _HEADER_NEXT

    def _header(self, data: bytes, start: i64, end: i64) -> None:
        """Read a content header."""
        size = header_body_size(data, start, end)
        if size > CLIENT_MESSAGE_BYTES_MAX:
            raise ContentTooLarge(f"a body of {size} bytes; {CLIENT_MESSAGE_BYTES_MAX} are allowed")
        self._offset = NO_OFFSET
        self._timestamp = NO_TIMESTAMP
        raw = start + CONTENT_HEAD_BYTES
        self._find(data, raw, end)
        self._left = size
        self._expects = _BODY_NEXT
        if size == 0:
            self._finish()

    def _find(self, data: bytes, raw: i64, end: i64) -> None:
        """Read offset and time from the properties, and store the properties without them."""
        flags: i64 = i64(read_i16_be(data, raw)) & 0xFFFF
        at = raw + 2
        if flags & _CONTENT_TYPE:
            at = _after_short_string(data, at, end)
        if flags & _CONTENT_ENCODING:
            at = _after_short_string(data, at, end)
        copied = raw
        if flags & HEADERS:
            if at + 4 > end:
                raise _short()
            after = skim_table(data, at, end)
            at += 4
            while at < after:
                name = at + 1
                length = i64(data[at])
                letter = name + length
                at = value_end(data, letter)
                if length == 15 and data[name:letter] == STREAM_OFFSET:
                    self._offset = _integer(data, letter)
                elif length == 18 and data[name:letter] == STREAM_TIMESTAMP:
                    self._timestamp = _integer(data, letter)
                else:
                    continue
                if self._with_properties and i64(data[letter]) == _LONG_LONG:
                    self.properties.data.write(data[copied : letter + 1])
                    write_i64_be(self.properties.data, 0)
                    copied = at
        if self._with_properties:
            self.properties.data.write(data[copied:end])

    def _body(self, data: bytes, start: i64, end: i64) -> None:
        """Read a body frame."""
        self._left -= end - start
        if self._left < 0:
            raise UnexpectedFrame(f"more body than announced on channel {self.channel}")
        self.bodies.data.write(data[start:end])
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        """Add the complete delivery as a row."""
        self._expects = _METHOD_NEXT
        self.body_bytes += i64(len(self.bodies.data)) - self.bodies.end
        self.bodies.finish()
        self.exchanges.finish()
        self.routing_keys.finish()
        if self._with_properties:
            self.properties.finish()
        write_i64_le(self.offsets, self._offset)
        write_i64_le(self.timestamps, self._timestamp)
        self.redelivered.append(self._redelivered)
        self.delivery_tag = self._tag
        self.last_offset = self._offset
        self.count += 1


def _integer(data: bytes, letter: i64) -> i64:
    """Return the value at a type letter if it is a non-negative integer, else -1."""
    kind = i64(data[letter])
    at = letter + 1
    if kind == _LONG_LONG or kind == 0x4C:  # noqa: PLR1714  a set is slower when compiled; L
        return max(read_i64_be(data, at), -1)
    if kind == 0x49:  # I
        return max(i64(read_i32_be(data, at)), -1)
    if kind == 0x69:  # i
        return i64(read_i32_be(data, at)) & 0xFFFF_FFFF
    if kind == 0x73:  # s
        return max(i64(read_i16_be(data, at)), -1)
    if kind == 0x75:  # u
        return i64(read_i16_be(data, at)) & 0xFFFF
    if kind == 0x62:  # b
        return max((i64(data[at]) ^ 0x80) - 0x80, -1)
    return i64(data[at]) if kind == 0x42 else -1  # B


def _after_short_string(data: bytes, at: i64, end: i64) -> i64:
    """Return the end of a short string.  Raises: SyntaxFault (502)."""
    if at >= end or at + 1 + i64(data[at]) > end:
        raise _short()
    return at + 1 + i64(data[at])


def _short() -> SyntaxFault:
    """Return the error for a truncated delivery."""
    return SyntaxFault("a delivery ends early")
