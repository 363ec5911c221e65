"""Frames: writing them, and finding them in a stream of bytes that comes in any pieces.

    octet  short    long   size octets   octet
    +----+---------+------+-------------+------+
    |kind| channel | size |   payload   | 0xCE |
    +----+---------+------+-------------+------+

A `FrameReader` finds whole frames and knows nothing of what they mean; whether a frame may come now
is the session's matter.  Invariants: a frame that is refused is refused as soon as its 7 bytes of
head are there; what is held back is at most one frame and the piece that came last; a payload is
never copied by the reader, only pointed at, unless it came in several pieces.

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

#: What is behind the end of a frame in the same piece, and worth not to be copied.
_LONG_REST_BYTES: Final = 4096

#: Two pieces of a frame that are put together at once: to copy so few bytes costs less than the
#: read of a piece, and what the objects of longer ones take beside their bytes is little.
_SMALL_PIECES_BYTES: Final = 1024

#: What a client sends first, and what a server answers to anything else (section 4.2.2).
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

#: A whole heartbeat frame.
HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

#: Class id, weight and body size: the property flags come next.
CONTENT_HEAD_BYTES: Final = 12


# -- writing ---------------------------------------------------------------------------------------


def write_frame_head(w: BytesWriter, kind: i64, channel: i64, size: i64) -> None:
    """Write the 7 bytes before a payload of `size` bytes; `FRAME_END` comes after it."""
    w.append(kind)
    write_i16_be(w, i16(channel))
    write_i32_be(w, i32(size))


def write_method(w: BytesWriter, channel: i64, method: Method) -> None:
    """Write a method frame.

    Raises: ValueError for a field that cannot be written; then `w` is as it was.
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
    """Write `body` in as many frames as `frame_max` asks for: none when it is empty.

    `frame_max` counts whole frames; 0 is no limit.
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

    Raises: FrameError (501) when it is too short to be one.
    """
    if end - start < CONTENT_HEAD_BYTES + 2:
        raise FrameError(f"a content header of {end - start} bytes")
    return i64(read_i16_be(data, start)) & 0xFFFF


def header_body_size(data: bytes, start: i64, end: i64) -> i64:
    """Return the body size of the content header in `data[start:end]`.

    Raises: FrameError (501) when it is too short to be one, or says 2^63 bytes or more.
    """
    if end - start < CONTENT_HEAD_BYTES + 2:
        raise FrameError(f"a content header of {end - start} bytes")
    size = read_i64_be(data, start + 4)
    if size < 0:
        raise FrameError("a content header announces 2^63 bytes or more")
    return size


class PieceReader:
    """Input that comes in pieces: `data` from `position` on is what no frame was made of yet.

    Pieces of one frame are gathered and joined once, when the frame is whole.  Small ones are put
    together before, because the object of a piece of two bytes takes 27 times what it holds.
    """

    def __init__(self) -> None:
        self.data: bytes = b""
        self.position: i64 = 0
        self._pieces: list[bytes] = []
        self._gathered: i64 = 0
        self._missing: i64 = 0

    def feed(self, piece: bytes) -> None:
        """Take more input."""
        if self._missing > 0:
            self._gather(piece)
            self._missing -= len(piece)
            if self._missing <= 0:
                self._join()
        elif self.position >= len(self.data):
            self.data = piece
            self.position = 0
        else:
            self.data = self.data[self.position :] + piece
            self.position = 0

    def _gather(self, piece: bytes) -> None:
        """Put a piece behind the others, which are joined later."""
        pieces = self._pieces
        if pieces and len(piece) + len(pieces[-1]) <= _SMALL_PIECES_BYTES:
            pieces[-1] += piece
        else:
            pieces.append(piece)
        self._gathered += len(piece)

    def _join(self) -> None:
        """Put what is left and the pieces together."""
        self.data = self.data[self.position :] + b"".join(self._pieces)
        self.position = 0
        self._pieces = []
        self._gathered = 0
        self._missing = 0

    def held(self) -> int:
        """Return how many bytes wait for more."""
        return int(i64(len(self.data)) - self.position + self._gathered)

    def memory(self) -> i64:
        """Return the memory of the input: what was parsed of the last piece is there still."""
        return i64(len(self.data)) + self._gathered

    def trim(self) -> None:
        """Let go of what was parsed."""
        if self.position > 0:
            self.data = self.data[self.position :]
            self.position = 0

    def forget(self) -> None:
        """Let go of all input: none of it is parsed any more."""
        self.data = b""
        self.position = 0
        self._pieces = []
        self._gathered = 0
        self._missing = 0

    def wait_for(self, missing: i64, there: i64) -> None:
        """Note how much is missing; with nothing there the next piece can stand for itself."""
        self._missing = missing if there > 0 else 0


@final
class FrameReader(PieceReader):
    """Finds frames in pieces of input.

    `feed` a piece, then call `next` until it is False; while it is True, `kind` and `channel` tell
    the frame and its payload is `data[start:end]`.  A session may also parse `data` itself from
    `position` on and move `position` over whole frames.

    Where a long piece ends a frame that others began, only that frame is joined.  The rest of the
    piece becomes `data` uncopied when all before it is parsed.

    `frame_max` bounds a payload (0: no limit) and may be changed between two frames.
    """

    def __init__(self, frame_max: i64 = FRAME_BYTES_MAX) -> None:
        super().__init__()
        self.frame_max: i64 = frame_max
        self.kind: i64 = 0
        self.channel: i64 = 0
        self.start: i64 = 0
        self.end: i64 = 0
        #: The piece that came last, of which `data` has nothing from `_rest_at` on; or nothing.
        self._rest: bytes = b""
        self._rest_at: i64 = 0

    def feed(self, piece: bytes) -> None:
        """Take more input."""
        missing = self._missing
        if self._rest:
            # It was not parsed to its end: the session stopped before, and nothing is missing.
            piece = self._rest[self._rest_at :] + piece
            self._rest = b""
        if missing > 0 and i64(len(piece)) - missing >= _LONG_REST_BYTES:
            self._pieces.append(piece[:missing])
            self._join()
            self._rest = piece
            self._rest_at = missing
        else:
            super().feed(piece)

    def reach_rest(self) -> None:
        """Have `data` hold what is not parsed of the last piece, when nothing is before that."""
        if self._rest and self.position >= len(self.data):
            self.data = self._rest
            self.position = self._rest_at
            self._rest = b""

    def complete(self) -> bool:
        """Add to `data` what the next frame misses, of the last piece; return whether it did.

        Whoever parses `data` without `next` goes on then: it was the frame's head, or its payload.
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
        """Add to `data` what it misses of a frame, as far as the last piece has it."""
        rest = self._rest
        end = min(self._rest_at + missing, i64(len(rest)))
        self.data = self.data[self.position :] + rest[self._rest_at : end]
        self.position = 0
        if end < len(rest):
            self._rest_at = end
        else:
            self._rest = b""

    def unparsed(self) -> bytes:
        """Return the input that no frame was made of yet."""
        return b"".join([self.data[self.position :], *self._pieces, self._rest[self._rest_at :]])

    def held(self) -> int:
        """Return how many bytes wait to be parsed, or for more."""
        rest: i64 = i64(len(self._rest)) - self._rest_at if self._rest else 0
        return super().held() + int(rest)

    def memory(self) -> i64:
        """Return the memory of the input: what was parsed of the last piece is there still."""
        return super().memory() + i64(len(self._rest))

    def trim(self) -> None:
        """Let go of what was parsed."""
        self.reach_rest()
        super().trim()

    def forget(self) -> None:
        """Let go of all input: none of it is parsed any more."""
        super().forget()
        self._rest = b""

    def next(self) -> bool:
        """Move to the next frame if it is whole.

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
                # A connection may be idle for long: it keeps nothing of what it has parsed.
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
        """Refuse a frame by its head."""
        if kind < FRAME_METHOD or (kind > FRAME_BODY and kind != FRAME_HEARTBEAT):
            raise FrameError(f"unknown frame type {kind}")
        if size > self.frame_max and self.frame_max != 0:
            raise FrameError(f"a frame of {size} bytes exceeds the negotiated {self.frame_max}")
        if kind == FRAME_HEARTBEAT and size != 0:
            raise FrameError(f"a heartbeat with {size} bytes of payload")
