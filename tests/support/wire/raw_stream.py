"""Assembles methods with their content from a stream of bytes, for raw clients of any kind.

Like `raw_codec`, which does the decoding, it shares no code with Leveret, and it refuses input that
a broker must not send: a method in the middle of content, content of another channel, bytes beyond
the announced size.
"""

from __future__ import annotations

import struct

from support.wire.raw import Method
from support.wire.raw_codec import (
    BODY,
    FRAME_END,
    HEADER,
    HEARTBEAT,
    METHOD,
    NAMES,
    SHAPES,
    WITH_CONTENT,
    Reader,
    decode_fields,
)


class Inbox:
    """The input of one connection; heartbeats are only counted, in `heartbeats`.

    `frame_bytes_seen_max` is the size of the largest frame, including its overhead.
    """

    def __init__(self) -> None:
        self.heartbeats = 0
        self.frame_bytes_seen_max = 0
        self._input = b""
        self._content: Method | None = None
        #: The parts of the body, joined once: concatenation would copy a large one for each frame.
        self._body: list[bytes] = []
        self._left = 0

    def feed(self, data: bytes) -> list[Method]:
        """Take received bytes; return the methods that are complete now."""
        buffer = self._input + data
        at = 0
        whole: list[Method] = []
        while len(buffer) - at >= 7:
            kind, channel, size = struct.unpack_from(">BHI", buffer, at)
            end = at + 7 + size
            if len(buffer) <= end:
                break
            assert buffer[end : end + 1] == FRAME_END
            got = self._frame(kind, channel, buffer[at + 7 : end])
            if got is not None:
                whole.append(got)
            self.frame_bytes_seen_max = max(self.frame_bytes_seen_max, size + 8)
            at = end + 1
        self._input = buffer[at:]
        return whole

    def _frame(self, kind: int, channel: int, payload: bytes) -> Method | None:
        if kind == HEARTBEAT:
            assert (channel, payload) == (0, b"")
            self.heartbeats += 1
            return None
        if kind == METHOD:
            assert self._content is None, "a method in the middle of content"
            name = NAMES[struct.unpack(">HH", payload[:4])]
            fields = decode_fields(SHAPES[name].fields, Reader(payload[4:]))
            got = Method(channel, name, fields)
            if name not in WITH_CONTENT:
                return got
            self._content, self._left = got, -1
            return None
        return self._piece(kind, channel, payload)

    def _piece(self, kind: int, channel: int, payload: bytes) -> Method | None:
        got = self._content
        assert got is not None, "content without a method"
        assert got.channel == channel
        if kind == HEADER:
            assert self._left == -1, "a second header"
            class_id, weight, self._left = struct.unpack(">HHQ", payload[:12])
            assert (class_id, weight) == (60, 0)
            got.properties = payload[12:]
        else:
            assert kind == BODY
            assert 0 < len(payload) <= self._left
            self._body.append(payload)
            self._left -= len(payload)
        if self._left != 0:
            return None
        self._content = None
        got.body = b"".join(self._body)
        self._body.clear()
        return got
