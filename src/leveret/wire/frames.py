"""Writing of frames, and reading of frames from input that is split anywhere.

    octet  short    long   size octets   octet
    +----+---------+------+-------------+------+
    |kind| channel | size |   payload   | 0xCE |
    +----+---------+------+-------------+------+

A `FrameReader` finds whole frames and ignores their meaning; the session decides whether a frame is
allowed.

Invariants: an invalid frame is refused as soon as the 7 bytes of its head have arrived; at most one
frame and the last piece are buffered; a payload is copied only if it arrived in several pieces.

Source: AMQP 0-9-1 section 4.2.3; RabbitMQ's tolerance of `FRAME_OVERHEAD_BYTES` in a frame's size.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i16, i32, i64

from leveret.errors import FrameError
from leveret.limits import FRAME_BYTES_MAX, FRAME_OVERHEAD_BYTES
from leveret.wire.buffer import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from leveret.wire.method import Method
from leveret.wire.tables import patch_length

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE

#: Kind, channel and size.
FRAME_HEAD_BYTES: Final = 7

#: The size from which the rest of a piece, after a completed frame, is not copied.
_LONG_REST_BYTES: Final = 4096

#: Two pieces of a frame are joined at once up to this total size.  Copying so few bytes costs less
#: than reading a piece, and the object overhead of longer pieces is small.
_SMALL_PIECES_BYTES: Final = 1024

#: The first bytes from a client, and a server's answer to anything else (section 4.2.2).
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

#: A heartbeat frame.
HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

#: Class id, weight and body size; the property flags follow.
CONTENT_HEAD_BYTES: Final = 12


# -- writing ---------------------------------------------------------------------------------------


def write_frame_head(w: BytesWriter, kind: i64, channel: i64, size: i64) -> None:
    """Write the 7 bytes before a payload of `size` bytes; `FRAME_END` comes after it."""
    w.append(kind)
    write_i16_be(w, i16(channel))
    write_i32_be(w, i32(size))


def write_method(w: BytesWriter, channel: i64, method: Method) -> None:
    """Write a method frame.

    Raises: ValueError for an invalid field; `w` is then unchanged.
    """
    start: i64 = len(w)
    write_frame_head(w, FRAME_METHOD, channel, 0)
    try:
        method.write(w)
    except ValueError:
        w.truncate(start)
        raise
    patch_length(w, start + 3, i64(len(w)) - start - FRAME_HEAD_BYTES)
    w.append(FRAME_END)


def write_header(
    w: BytesWriter, channel: i64, class_id: i64, body_size: i64, properties: bytes
) -> None:
    """Write a content header frame; `properties` start with their flags."""
    write_frame_head(w, FRAME_HEADER, channel, CONTENT_HEAD_BYTES + len(properties))
    write_i32_be(w, i32(class_id << 16))
    write_i64_be(w, body_size)
    w.write(properties)
    w.append(FRAME_END)


def write_body(w: BytesWriter, channel: i64, body: bytes, frame_max: i64) -> None:
    """Write `body` in as many frames as `frame_max` requires, or none if it is empty.

    `frame_max` counts whole frames; 0 means no limit.
    """
    size: i64 = len(body)
    room: i64 = size if frame_max == 0 else frame_max - FRAME_OVERHEAD_BYTES
    if room >= size:
        if size > 0:
            _write_body_frame(w, channel, body)
        return
    start: i64 = 0
    while start < size:
        end = start + room
        _write_body_frame(w, channel, body[start:end])
        start = end


def _write_body_frame(w: BytesWriter, channel: i64, piece: bytes) -> None:
    """Write one body frame."""
    write_frame_head(w, FRAME_BODY, channel, len(piece))
    w.write(piece)
    w.append(FRAME_END)


def write_heartbeat(w: BytesWriter) -> None:
    """Write a heartbeat frame."""
    w.write(HEARTBEAT)


# -- reading ---------------------------------------------------------------------------------------


def header_class_id(data: bytes, start: i64, end: i64) -> i64:
    """Return the class id of the content header in `data[start:end]`.

    Raises: FrameError (501) if it is too short.
    """
    if end - start < CONTENT_HEAD_BYTES + 2:
        raise FrameError(f"a content header of {end - start} bytes")
    return i64(read_i16_be(data, start)) & 0xFFFF


def header_body_size(data: bytes, start: i64, end: i64) -> i64:
    """Return the body size of the content header in `data[start:end]`.

    Raises: FrameError (501) if it is too short, or the size is 2^63 bytes or more.
    """
    if end - start < CONTENT_HEAD_BYTES + 2:
        raise FrameError(f"a content header of {end - start} bytes")
    size = read_i64_be(data, start + 4)
    if size < 0:
        raise FrameError("a content header announces 2^63 bytes or more")
    return size


class PieceReader:
    """Input that arrives in pieces; `data` is parsed up to `position`.

    Pieces of one frame are collected and joined once, when the frame is complete.  Small pieces are
    joined earlier, because the object of a two-byte piece takes 27 times its size.
    """

    def __init__(self) -> None:
        self.data: bytes = b""
        self.position: i64 = 0
        self._pieces: list[bytes] = []
        self._gathered: i64 = 0
        self._missing: i64 = 0

    def feed(self, piece: bytes) -> None:
        """Add input."""
        if self._missing > 0:
            self._gather(piece)
            self._missing -= len(piece)
            if self._missing <= 0:
                self._join(b"", 0, 0)
        elif self.position >= len(self.data):
            self.data = piece
            self.position = 0
        else:
            self._join(piece, 0, len(piece))

    def _gather(self, piece: bytes) -> None:
        """Store a piece, to be joined later."""
        pieces = self._pieces
        if pieces and len(piece) + len(pieces[-1]) <= _SMALL_PIECES_BYTES:
            pieces[-1] += piece
        else:
            pieces.append(piece)
        self._gathered += len(piece)

    def _join(self, last: bytes, start: i64, end: i64) -> None:
        """Join the unparsed part of `data`, the pieces and `last[start:end]`, with one copy."""
        there = memoryview(self.data)[self.position :]
        self.data = b"".join([there, *self._pieces, memoryview(last)[start:end]])
        self.position = 0
        self._pieces = []
        self._gathered = 0
        self._missing = 0

    def held(self) -> int:
        """Return the number of buffered bytes of an incomplete frame."""
        return int(i64(len(self.data)) - self.position + self._gathered)

    def memory(self) -> i64:
        """Return the memory used by the input, including the parsed part of the last piece."""
        return i64(len(self.data)) + self._gathered

    def trim(self) -> None:
        """Free the parsed input."""
        if self.position > 0:
            self.data = self.data[self.position :]
            self.position = 0

    def forget(self) -> None:
        """Free all input, because it will not be parsed."""
        self.data = b""
        self.position = 0
        self._pieces = []
        self._gathered = 0
        self._missing = 0

    def wait_for(self, missing: i64, there: i64) -> None:
        """Expect `missing` more bytes; if `there` is 0, the next piece needs no joining."""
        self._missing = missing if there > 0 else 0


@final
class FrameReader(PieceReader):
    """Finds frames in pieces of input.

    Call `feed` with a piece, then `next` until it returns False.  After True, `kind` and `channel`
    describe the frame, and its payload is `data[start:end]`.  A session may also parse `data`
    itself from `position` on, and advance `position` over whole frames.

    If a long piece completes a frame that began in earlier pieces, only that frame is joined.  The
    rest of the piece becomes `data`, without a copy, when everything before it is parsed.

    `frame_max` limits a payload (0: no limit) and may be changed between two frames.
    """

    def __init__(self, frame_max: i64 = FRAME_BYTES_MAX) -> None:
        super().__init__()
        self.frame_max: i64 = frame_max
        self.kind: i64 = 0
        self.channel: i64 = 0
        self.start: i64 = 0
        self.end: i64 = 0
        #: The last piece, if `data` lacks its bytes from `_rest_at` on; else empty.
        self._rest: bytes = b""
        self._rest_at: i64 = 0

    def feed(self, piece: bytes) -> None:
        """Add input."""
        missing = self._missing
        if self._rest:
            # The session stopped before the end of the last piece, and no bytes are missing.
            piece = self._rest[self._rest_at :] + piece
            self._rest = b""
        if missing > 0 and i64(len(piece)) - missing >= _LONG_REST_BYTES:
            self._join(piece, 0, missing)
            self._rest = piece
            self._rest_at = missing
        else:
            super().feed(piece)

    def reach_rest(self) -> None:
        """Replace `data` with the rest of the last piece if everything before it is parsed."""
        if self._rest and self.position >= len(self.data):
            self.data = self._rest
            self.position = self._rest_at
            self._rest = b""

    def complete(self) -> bool:
        """Move the next frame's missing bytes from the last piece to `data`; return whether it did.

        Callers that parse `data` without `next` then parse and call again, because a call may
        complete only the frame's head.
        """
        if not self._rest:
            return False
        self.reach_rest()
        if not self._rest:
            return True
        there: i64 = i64(len(self.data)) - self.position
        missing: i64 = FRAME_HEAD_BYTES - there
        if missing <= 0:
            size: i64 = i64(read_i32_be(self.data, self.position + 3)) & 0xFFFF_FFFF
            missing = size + FRAME_OVERHEAD_BYTES - there
        if missing <= 0:
            return False
        self._take_rest(missing)
        return True

    def _take_rest(self, missing: i64) -> None:
        """Move up to `missing` bytes from the last piece to `data`."""
        rest = self._rest
        end = min(self._rest_at + missing, i64(len(rest)))
        self._join(rest, self._rest_at, end)
        if end < len(rest):
            self._rest_at = end
        else:
            self._rest = b""

    def unparsed(self) -> bytes:
        """Return the input that is not parsed yet."""
        return b"".join([self.data[self.position :], *self._pieces, self._rest[self._rest_at :]])

    def held(self) -> int:
        """Return the number of unparsed bytes."""
        rest: i64 = i64(len(self._rest)) - self._rest_at if self._rest else 0
        return super().held() + int(rest)

    def memory(self) -> i64:
        """Return the memory used by the input, including the parsed part of the last piece."""
        return super().memory() + i64(len(self._rest))

    def trim(self) -> None:
        """Free the parsed input."""
        self.reach_rest()
        super().trim()

    def forget(self) -> None:
        """Free all input, because it will not be parsed."""
        super().forget()
        self._rest = b""

    def next(self) -> bool:
        """Read the next frame; return False if it is incomplete.

        Raises: FrameError (501) for an unknown kind, a payload above `frame_max`, a heartbeat with
        a payload, or another octet than `FRAME_END` after the payload.
        """
        if self._missing > 0:
            return False
        while self.complete():
            pass
        data = self.data
        at = self.position
        there: i64 = i64(len(data)) - at
        if there < FRAME_HEAD_BYTES:
            if there == 0:
                # The connection may be idle for long, so free the parsed input.
                self.data = b""
                self.position = 0
            self.wait_for(FRAME_HEAD_BYTES - there, there)
            return False
        kind: i64 = i64(data[at])
        size: i64 = i64(read_i32_be(data, at + 3)) & 0xFFFF_FFFF
        self._check(kind, size)
        if there < size + FRAME_OVERHEAD_BYTES:
            self.wait_for(size + FRAME_OVERHEAD_BYTES - there, there)
            return False
        start = at + FRAME_HEAD_BYTES
        if data[start + size] != FRAME_END:
            raise FrameError(f"a frame ends with octet {data[start + size]}, not {FRAME_END}")
        self.kind = kind
        self.channel = i64(read_i16_be(data, at + 1)) & 0xFFFF
        self.start = start
        self.end = start + size
        self.position = start + size + 1
        return True

    def _check(self, kind: i64, size: i64) -> None:
        """Check the kind and the size in the head of a frame.  Raises: FrameError (501)."""
        if kind < FRAME_METHOD or (kind > FRAME_BODY and kind != FRAME_HEARTBEAT):
            raise FrameError(f"unknown frame type {kind}")
        if size > self.frame_max and self.frame_max != 0:
            raise FrameError(f"a frame of {size} bytes exceeds the negotiated {self.frame_max}")
        if kind == FRAME_HEARTBEAT and size != 0:
            raise FrameError(f"a heartbeat with {size} bytes of payload")
