"""Recognition of whole publishes in input bytes, and decoding of their arguments.

A method frame, a header frame and at most one body frame, all of one channel, are recognised by a
dozen bytes.  Other input is left to the frame-by-frame path, which decodes it or reports its error.

Source: AMQP 0-9-1, basic.publish, and section 4.2.6 for the frames of a content.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import SyntaxFault
from leveret.wire.buffer import read_i32_be, read_i64_be
from leveret.wire.frames import (
    CONTENT_HEAD_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD_BYTES,
    FRAME_HEADER,
    FRAME_METHOD,
)
from leveret.wire.methods.basic import BasicPublish
from leveret.wire.methods.ids import BASIC, BASIC_PUBLISH

#: The bytes around a payload: type, channel and size before it, the end octet after it.
_AROUND: Final = 8

#: A lower bound for the size of a publish.
_SHORTEST: Final = 32


@final
class PublishShape:
    """Finds publishes; if `find` returns True, the attributes are positions in the data.

    The method's arguments are from `arguments` to `arguments_end`, the property bytes from
    `properties` to `properties_end`, and the body from `body` to `body_end`.  `after` is the start
    of the next frame.
    """

    def __init__(self, payload_bytes_max: i64, body_bytes_max: i64) -> None:
        self.payload_bytes_max: i64 = payload_bytes_max
        self.body_bytes_max: i64 = body_bytes_max
        self.channel: i64 = 0
        self.arguments: i64 = 0
        self.arguments_end: i64 = 0
        self.properties: i64 = 0
        self.properties_end: i64 = 0
        self.body: i64 = 0
        self.body_end: i64 = 0
        self.after: i64 = 0

    def find(self, data: bytes, size: i64, position: i64) -> bool:
        """Return whether a whole publish begins at `position` in the `size` bytes of `data`."""
        if size - position < _SHORTEST:
            return False
        # A frame's type, its channel and the first byte of its size.
        head: i64 = i64(read_i32_be(data, position))
        if head >> 24 != FRAME_METHOD:
            return False
        if read_i32_be(data, position + FRAME_HEAD_BYTES) != BASIC_PUBLISH:
            return False
        channel: i64 = head >> 8 & 0xFFFF
        length: i64 = i64(read_i32_be(data, position + 3))
        header: i64 = position + _AROUND + length
        if length < 4 or length > self.payload_bytes_max:
            return False
        if size - header < _AROUND + CONTENT_HEAD_BYTES + 2:
            return False
        if _before(data, header) != FRAME_END << 24 | FRAME_HEADER << 16 | channel:
            return False
        header_length: i64 = i64(read_i32_be(data, header + 3))
        body: i64 = header + _AROUND + header_length
        if (
            header_length < CONTENT_HEAD_BYTES + 2
            or header_length > self.payload_bytes_max
            or body > size
            or read_i32_be(data, header + FRAME_HEAD_BYTES) != BASIC << 16
        ):
            return False
        self.channel = channel
        self.arguments = position + FRAME_HEAD_BYTES + 4
        self.arguments_end = header - 1
        self.properties = header + FRAME_HEAD_BYTES + CONTENT_HEAD_BYTES
        self.properties_end = body - 1
        return self._find_body(data, size, body, read_i64_be(data, header + 11))

    def _find_body(self, data: bytes, size: i64, start: i64, length: i64) -> bool:
        """Return whether the single body frame begins at `start`, or no body was announced."""
        if length == 0:
            self.body = start
            self.body_end = start
            self.after = start
            return data[start - 1] == FRAME_END
        if length < 0 or length > self.payload_bytes_max or length > self.body_bytes_max:
            return False
        after: i64 = start + _AROUND + length
        if (
            after > size
            or _before(data, start) != FRAME_END << 24 | FRAME_BODY << 16 | self.channel
            or i64(read_i32_be(data, start + 3)) != length
            or data[after - 1] != FRAME_END
        ):
            return False
        self.body = start + FRAME_HEAD_BYTES
        self.body_end = after - 1
        self.after = after
        return True


def is_equal(data: bytes, start: i64, end: i64, known: bytes) -> bool:
    """Return whether `data[start:end]` equals `known`, without making a slice."""
    size: i64 = end - start
    if size != len(known):
        return False
    at: i64 = 0
    if size >= 8:
        while at + 8 < size:
            if read_i64_be(data, start + at) != read_i64_be(known, at):
                return False
            at += 8
        # The last eight bytes may overlap those before.
        return read_i64_be(data, end - 8) == read_i64_be(known, size - 8)
    while at < size:
        if data[start + at] != known[at]:
            return False
        at += 1
    return True


def _before(data: bytes, start: i64) -> i64:
    """Return the end octet before the frame at `start`, its type and its channel as one number."""
    return i64(read_i32_be(data, start - 1)) & 0xFFFF_FFFF


#: The flags after the routing key.
MANDATORY: Final = 1
IMMEDIATE: Final = 2


def publish_arguments(raw: bytes) -> tuple[bytes, bytes, i64]:
    """Decode the arguments of a basic.publish, which follow the method's ids.

    Return the exchange name and the routing key, as raw bytes, and the flags.

    Raises: SyntaxFault (502) for a wrong length.
    """
    size: i64 = len(raw)
    # A reserved short comes first.
    exchange_end: i64 = 3 + raw[2] if size > 2 else 0
    if size < 5 or exchange_end + 2 > size:
        raise _bad_arguments("the arguments of basic.publish end early")
    key_end: i64 = exchange_end + 1 + raw[exchange_end]
    if key_end + 1 != size:
        raise _bad_arguments("the arguments of basic.publish have the wrong length")
    flags: i64 = raw[key_end]
    return raw[3:exchange_end], raw[exchange_end + 1 : key_end], flags


def _bad_arguments(text: str) -> SyntaxFault:
    return SyntaxFault(text, BasicPublish.CLASS_ID, BasicPublish.METHOD_ID)
