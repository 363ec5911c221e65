"""The pending output frames of one connection, in the order of writing.

Short payloads are copied into a buffer.  A long body is not copied, but referenced between two
buffers.

Invariant: `take` returns all output written before the call, once; `parts_bytes` is the size of the
parts outside of `writer`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i16, i32, i64

from leveret.limits import CONTENT_BYTES_PER_COST
from leveret.wire.buffer import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from leveret.wire.frames import (
    CONTENT_HEAD_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_METHOD,
)
from leveret.wire.methods.ids import BASIC, BASIC_DELIVER

#: The size up to which a buffer is reused after a flush; a larger buffer is freed once a second.
_OUTPUT_BYTES_KEPT: Final = 16_384

#: The size from which a body is passed to the transport by itself, without a copy to the buffer.
OUTPUT_APART_BYTES: Final = 8192

#: The size of the fields of basic.deliver after its consumer tag: delivery tag and redelivered.
_DELIVER_FIXED: Final = 9


def content_cost(properties: bytes, body: bytes) -> i64:
    """Return the extra cost of copying a message's content into the output.

    A long body is not copied.
    """
    size: i64 = len(properties)
    if len(body) < OUTPUT_APART_BYTES:
        size += len(body)
    return size // CONTENT_BYTES_PER_COST


def deliver_prefix(consumer_tag: str) -> bytes:
    """Return the start of every basic.deliver to a consumer: ids and consumer tag."""
    raw = consumer_tag.encode("utf-8")
    w = BytesWriter()
    write_i32_be(w, i32(BASIC_DELIVER))
    w.append(len(raw))
    w.write(raw)
    return w.getvalue()


@final
class FrameOutput:
    """Pending output; `body_bytes_max` is the longest payload of a body frame."""

    def __init__(self, body_bytes_max: i64) -> None:
        self.body_bytes_max: i64 = body_bytes_max
        self.writer = BytesWriter()
        #: The size of the parts before `writer`.
        self.parts_bytes: i64 = 0
        self._parts: list[bytes | memoryview] = []
        #: The largest size of `writer` since `trim`, for which its memory stays allocated.
        self._longest: i64 = 0

    def write_delivery(
        self,
        channel: i64,
        prefix: bytes,
        tag: i64,
        redelivered: bool,
        address: bytes,
        properties: bytes,
        body: bytes,
    ) -> None:
        """Write a basic.deliver and its content.

        `prefix` is the result of `deliver_prefix`; `address` is the exchange and the routing key,
        each as a short string.
        """
        w = self.writer
        w.append(FRAME_METHOD)
        write_i16_be(w, i16(channel))
        write_i32_be(w, i32(len(prefix) + len(address) + _DELIVER_FIXED))
        w.write(prefix)
        write_i64_be(w, tag)
        w.append(1 if redelivered else 0)
        w.write(address)
        w.append(FRAME_END)
        self.write_content(channel, properties, body)

    def write_content(self, channel: i64, properties: bytes, body: bytes) -> None:
        """Write the header frame and the body frames of a message of class basic."""
        w = self.writer
        size: i64 = len(body)
        w.append(FRAME_HEADER)
        write_i16_be(w, i16(channel))
        write_i32_be(w, i32(len(properties) + CONTENT_HEAD_BYTES))
        write_i32_be(w, BASIC << 16)
        write_i64_be(w, size)
        w.write(properties)
        w.append(FRAME_END)
        if size == 0:
            return
        piece_max: i64 = self.body_bytes_max
        if size <= piece_max and size < OUTPUT_APART_BYTES:
            w.append(FRAME_BODY)
            write_i16_be(w, i16(channel))
            write_i32_be(w, i32(size))
            w.write(body)
            w.append(FRAME_END)
            return
        start: i64 = 0
        while start < size:
            end: i64 = min(start + piece_max, size)
            w.append(FRAME_BODY)
            write_i16_be(w, i16(channel))
            write_i32_be(w, i32(end - start))
            self.write_apart(body, start, end)
            w.append(FRAME_END)
            start = end

    def write_apart(self, body: bytes | memoryview, start: i64, end: i64) -> None:
        """Append `body[start:end]` without copying it."""
        before = self.writer.getvalue()
        self.writer.truncate(0)
        self._parts.append(before)
        whole = start == 0 and end == len(body)
        self._parts.append(body if whole else memoryview(body)[start:end])
        self.parts_bytes += len(before) + end - start

    def take(self) -> list[bytes | memoryview]:
        """Return and clear the bytes to send, in order; the list may be empty."""
        parts = self._parts
        size: i64 = len(self.writer)
        if size > 0:
            self._longest = max(self._longest, size)
            parts.append(self.writer.getvalue())
            self.writer.truncate(0)
        if parts:
            self._parts = []
            self.parts_bytes = 0
        return parts

    def trim(self) -> None:
        """Free the memory of large output; this may replace `writer`."""
        if self._longest > _OUTPUT_BYTES_KEPT and len(self.writer) == 0:
            self.writer = BytesWriter()
            self._longest = 0
