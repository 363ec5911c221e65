"""Fast decoding of whole deliveries of one consumer, in one step.

A dozen bytes identify the three frames of a delivery.  Any other delivery, for example an
incomplete delivery or one with several body frames, is left to the frame-by-frame path, which
decodes it or reports its error.

Most messages of a consumer have the same address, so the bytes of the consumer tag, exchange and
routing key are decoded only if they differ from those of the last delivery.

Invariant: the reader advances over whole deliveries only.  This module is compiled.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.client.acks import Acks
from leveret.client.message import Message, MessageOrigin, Receiver
from leveret.errors import AmqpError
from leveret.limits import CLIENT_MESSAGE_OVERHEAD_BYTES
from leveret.wire.buffer import read_i16_be, read_i32_be, read_i64_be
from leveret.wire.frames import (
    CONTENT_HEAD_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD_BYTES,
    FRAME_HEADER,
    FRAME_METHOD,
    FrameReader,
)
from leveret.wire.methods import decode_method
from leveret.wire.methods.basic import BasicDeliver
from leveret.wire.methods.ids import BASIC, BASIC_DELIVER

#: The frame bytes around a payload: type, channel and size before it, the end octet after it.
_AROUND: Final = 8

#: The minimum size of a delivery, without a body.
_SHORTEST: Final = 46

#: The start of the consumer tag: after the frame header, the method's ids and the tag's length.
_IDS_END: Final = FRAME_HEAD_BYTES + 5

#: The bytes after the consumer tag: delivery tag and redelivered.
_FIXED: Final = 9


@final
class Intake:
    """Reads deliveries of one connection; `size` is the last batch's size with overhead."""

    def __init__(self) -> None:
        self.size: i64 = 0
        self._origin: MessageOrigin = MessageOrigin("", "", "")
        #: The bytes of the last consumer tag, and of the last exchange and routing key.
        self._consumer: bytes = b""
        self._address: bytes = b""
        # Positions set by `_find`: after the consumer tag; the end of the method; the start and
        # end of properties and body; and after the whole delivery.
        self._fixed: i64 = 0
        self._method_end: i64 = 0
        self._properties: i64 = 0
        self._properties_end: i64 = 0
        self._body: i64 = 0
        self._body_end: i64 = 0
        self._after: i64 = 0

    def channel(self, reader: FrameReader) -> int:
        """Return the channel of the next delivery, or 0 if no whole delivery comes next."""
        reader.reach_rest()
        data = reader.data
        at = reader.position
        if not self._find(data, len(data), at, reader.frame_max):
            return 0
        return int(i64(read_i16_be(data, at + 1)) & 0xFFFF)

    def take(self, reader: FrameReader, owner: Receiver, acks: Acks, base: i64) -> list[Message]:
        """Return the next deliveries of one consumer, or an empty list if the next is malformed.

        The messages' delivery tags are the broker's plus `base`.
        """
        messages: list[Message] = []
        data = reader.data
        length: i64 = len(data)
        at = reader.position
        channel = read_i16_be(data, at + 1)
        size: i64 = 0
        while self._find(data, length, at, reader.frame_max):
            if read_i16_be(data, at + 1) != channel:
                break
            consumer = data[at + _IDS_END : self._fixed]
            if consumer != self._consumer and messages:
                break
            address = data[self._fixed + _FIXED : self._method_end]
            known = consumer == self._consumer and address == self._address
            if not known and not self._meet(data, at, consumer, address):
                break
            tag = base + read_i64_be(data, self._fixed)
            raw = data[self._properties : self._properties_end]
            body = data[self._body : self._body_end]
            redelivered = data[self._fixed + 8] & 1 != 0
            messages.append(Message(owner, self._origin, tag, redelivered, raw, body, acks))
            acks.newest = tag
            size += self._body_end - self._body + CLIENT_MESSAGE_OVERHEAD_BYTES
            at = self._after
            reader.position = at
        self.size = size
        return messages

    def _meet(self, data: bytes, at: i64, consumer: bytes, address: bytes) -> bool:
        """Decode a new consumer tag and address; return False if they are malformed."""
        try:
            method = decode_method(data, at + FRAME_HEAD_BYTES, self._method_end)
        except AmqpError:
            return False
        if not isinstance(method, BasicDeliver):
            return False
        self._origin = MessageOrigin(method.consumer_tag, method.exchange, method.routing_key)
        self._consumer = consumer
        self._address = address
        return True

    def _find(self, data: bytes, length: i64, at: i64, frame_max: i64) -> bool:
        """Return whether `data`, of `length` bytes, contains a whole delivery at `at`."""
        if length - at < _SHORTEST or data[at] != FRAME_METHOD:
            return False
        if read_i32_be(data, at + FRAME_HEAD_BYTES) != BASIC_DELIVER:
            return False
        size: i64 = i64(read_i32_be(data, at + 3))
        header: i64 = at + _AROUND + size
        fixed: i64 = at + _IDS_END + data[at + _IDS_END - 1]
        if (
            size < 0
            or (size > frame_max and frame_max != 0)
            or length - header < _AROUND + CONTENT_HEAD_BYTES + 2
            or fixed + _FIXED > header - 1
            or data[header - 1] != FRAME_END
            or data[header] != FRAME_HEADER
            or read_i16_be(data, header + 1) != read_i16_be(data, at + 1)
            or read_i32_be(data, header + FRAME_HEAD_BYTES) != BASIC << 16
        ):
            return False
        size = i64(read_i32_be(data, header + 3))
        body: i64 = header + _AROUND + size
        if (
            size < CONTENT_HEAD_BYTES + 2
            or (size > frame_max and frame_max != 0)
            or body > length
            or data[body - 1] != FRAME_END
        ):
            return False
        self._fixed = fixed
        self._method_end = header - 1
        self._properties = header + FRAME_HEAD_BYTES + CONTENT_HEAD_BYTES
        self._properties_end = body - 1
        return self._find_body(data, length, body, read_i64_be(data, header + 11), frame_max)

    def _find_body(self, data: bytes, length: i64, at: i64, size: i64, frame_max: i64) -> bool:
        """Return whether the whole body is in one frame at `at`, or the message has no body."""
        self._body = at
        self._body_end = at
        self._after = at
        if size == 0:
            return True
        after: i64 = at + _AROUND + size
        if size < 0 or (size > frame_max and frame_max != 0) or size > length or after > length:
            return False
        if (
            data[at] != FRAME_BODY
            or read_i16_be(data, at + 1) != read_i16_be(data, self._properties - 18)
            or i64(read_i32_be(data, at + 3)) != size
            or data[after - 1] != FRAME_END
        ):
            return False
        self._body = at + FRAME_HEAD_BYTES
        self._body_end = after - 1
        self._after = after
        return True
