"""A HareMQ publish whose frame arrives in many pieces, processed on arrival.

A frame may be as long as 64 MiB.  Joining its pieces, verifying its checksum and its text, and
copying the body would each take up to 0.1 s when it is complete.  Therefore each piece is checked,
added to the checksum, and copied to its place on arrival.

The fields may be in any order, but the body must occur once, and only known fields may precede it.
The protobuf package decodes the other fields if they are not in the usual order.

Invariants: the body is in memory once.  The result or error of a frame does not depend on its
division into pieces.
"""

from __future__ import annotations

import codecs
import zlib
from typing import Final, final

from mypy_extensions import i64

from leveret.errors import FrameError
from leveret.haremq.scan import FieldScan
from leveret.limits import HAREMQ_LONG_FIELDS_BYTES_MAX
from leveret.wire.buffer import read_i32_be
from leveret.wire.content.body_buffer import BodyBuffer

#: The error of a long publish with two bodies: only one of them is stored on arrival.
TWO_BODIES: Final = "a long basicPublishRequest has two bodies"

#: The error of a publish with a string that is not UTF-8.
NO_TEXT: Final = "a string of a basicPublishRequest is not UTF-8"

#: The tags of a publish's fields: its body, and the others.
_BODY: Final = 0x22
_OTHERS: Final = (0x0A, 0x12, 0x1A, 0x2A)

_CHECKSUM_BYTES: Final = 4

#: The maximum shift of a length, which is encoded in bytes of seven bits.
_SHIFT_MAX: Final = 28


@final
class LongPublish:
    """One publish; `fields` is its message without the body."""

    def __init__(self, head_bytes: i64, message_bytes: i64, checksum: i64) -> None:
        """`checksum` is the adler32 of the head, which has arrived."""
        self._left: i64 = message_bytes
        self._checksum: i64 = checksum
        self._sum = b""
        #: The number of missing bytes of the body, or -1 before it begins.
        self._body_left: i64 = -1
        self._body: BodyBuffer | None = None
        #: The start of a character that the last piece of the body cut off.
        self._cut = b""
        self.fields = b""
        #: The start of the incomplete field in `fields`, before the body.
        self._field: i64 = 0
        #: The number of bytes received, and the memory reserved for the missing ones.
        self.bytes: i64 = head_bytes
        self.bytes_ahead: i64 = 0

    def is_whole(self) -> bool:
        """Return whether the whole frame has arrived."""
        return len(self._sum) == _CHECKSUM_BYTES

    def body(self) -> bytes:
        """Return the body, which is valid UTF-8.  Call it only once."""
        body = self._body
        return b"" if body is None else body.body()

    def take(self, data: bytes, at: i64) -> i64:
        """Process the publish's part of `data[at:]`; return the position after it.

        Raises: FrameError (501) for a wrong checksum, a body that is not UTF-8, and other fields
        that are too long or unknown.
        """
        end: i64 = min(i64(len(data)), at + self._left)
        if end > at:
            part = data[at:end]
            self._left -= end - at
            self._checksum = i64(zlib.adler32(part, int(self._checksum)))
            self._take_part(part)
        if self._left == 0:
            begin = end
            end = min(i64(len(data)), begin + _CHECKSUM_BYTES - i64(len(self._sum)))
            self._sum += data[begin:end]
            if self.is_whole():
                self._check()
        self.bytes += end - at
        return end

    def _check(self) -> None:
        if self._checksum != i64(read_i32_be(self._sum, 0)) & 0xFFFF_FFFF:
            raise FrameError("a frame's checksum does not match its bytes")
        if self._cut:
            raise FrameError(NO_TEXT)
        if self._body_left != 0:
            raise FrameError("a long basicPublishRequest ends within its body")
        # Refuse an empty second body, too.
        fields = self.fields
        scan = FieldScan()
        at = self._field
        while 0 <= at < len(fields) and i64(fields[at]) in _OTHERS:
            at = scan.take(fields, at, i64(len(fields)), i64(fields[at]))
        if 0 <= at < len(fields) and i64(fields[at]) == _BODY:
            raise FrameError(TWO_BODIES)

    def _take_part(self, part: bytes) -> None:
        if self._body_left < 0:
            part = self._find_body(part)
            if self._body_left < 0:
                return
        size: i64 = min(self._body_left, i64(len(part)))
        if size > 0:
            self._take_body(part[:size])
            self._body_left -= size
        if size < len(part):
            self._add_fields(part[size:])

    def _take_body(self, part: bytes) -> None:
        if self._cut or not part.isascii():
            text = self._cut + part
            try:
                used = codecs.utf_8_decode(text, "strict", False)[1]
            except UnicodeDecodeError:
                raise FrameError(NO_TEXT) from None
            self._cut = text[used:]
        body = self._body
        if body is None:
            body = self._body = BodyBuffer(self._body_left)
        body.write(part)
        self.bytes_ahead = body.ahead()

    def _find_body(self, part: bytes) -> bytes:
        """Search for the start of the body; return the bytes of `part` from there on."""
        known = self.fields + part
        end: i64 = len(known)
        scan = FieldScan()
        at = self._field
        while at < end and at <= HAREMQ_LONG_FIELDS_BYTES_MAX and i64(known[at]) != _BODY:
            tag: i64 = i64(known[at])
            if tag not in _OTHERS:
                raise FrameError("a long basicPublishRequest has an unknown field before its body")
            behind = scan.take(known, at, end, tag)
            if behind < 0:
                break
            at = behind
        self._field = at
        begin: i64 = 0
        if at < end and i64(known[at]) == _BODY:
            _check_fields(at)
            begin = self._find_length(known, at + 1)
        else:
            _check_fields(end)
        if begin == 0:
            self.fields = known
            return b""
        if self._body_left > end - begin + self._left:
            raise FrameError("the body of a basicPublishRequest goes beyond its frame")
        self.fields = known[:at]
        return known[begin:]

    def _find_length(self, known: bytes, at: i64) -> i64:
        """Read the length of the body; return the position after it, or 0 if it is incomplete."""
        size: i64 = 0
        shift: i64 = 0
        while at < len(known):
            byte: i64 = i64(known[at])
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._body_left = size
                return at
            shift += 7
            if shift > _SHIFT_MAX:
                raise FrameError("the body of a basicPublishRequest goes beyond its frame")
        return 0

    def _add_fields(self, more: bytes) -> None:
        _check_fields(i64(len(self.fields)) + i64(len(more)))
        self.fields += more


def _check_fields(size: i64) -> None:
    """Check the size of the fields other than the body.  Raises: FrameError (501)."""
    if size > HAREMQ_LONG_FIELDS_BYTES_MAX:
        raise FrameError(
            f"all of a long basicPublishRequest but its body has up to "
            f"{HAREMQ_LONG_FIELDS_BYTES_MAX} bytes"
        )
