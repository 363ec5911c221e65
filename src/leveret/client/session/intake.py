"""Whole deliveries taken out of a connection's input in one step: a batch of one consumer.

The three frames of a delivery are recognised by looking at a dozen bytes.  What does not have
exactly that shape, such as a body of several frames or one that has not come whole, is left to the
path frame by frame, which takes it or tells what is wrong with it.

Consumers mostly get what came one way: the tag, exchange and routing key of the last delivery are
compared as bytes and decoded only when they differ.

Invariant: the reader is moved over whole deliveries only.  This module is compiled.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.client.message import Message, Origin, Receiver
from leveret.client.session.acks import Acks
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

#: The bytes around a payload: type, channel and size before it, the end octet behind it.
_AROUND: Final = 8

#: No delivery is shorter: its three shortest frames without a body.
_SHORTEST: Final = 46

#: Where the consumer tag begins: behind the head of the frame, the method's ids and its size.
_IDS_END: Final = FRAME_HEAD_BYTES + 5

#: Behind the consumer tag: delivery tag and redelivered.
_FIXED: Final = 9


@final
class Intake:
    """Takes deliveries of one connection; `size` is what the last batch counts as waiting."""

    def __init__(self) -> None:
        self.size: i64 = 0
        self._origin: Origin = Origin("", "", "")
        #: The bytes of its consumer tag, and of its exchange and routing key.
        self._consumer: bytes = b""
        self._address: bytes = b""
        # Positions in the input that `_find` has found: behind the consumer tag, at the end of the
        # method, of properties and body, and behind it all.
        self._fixed: i64 = 0
        self._method_end: i64 = 0
        self._properties: i64 = 0
        self._properties_end: i64 = 0
        self._body: i64 = 0
        self._body_end: i64 = 0
        self._after: i64 = 0

    def channel(self, reader: FrameReader) -> int:
        """Return the channel of the whole delivery that comes next; 0 when none does."""
        reader.reach_rest()
        data = reader.data
        at = reader.position
        if not self._find(data, len(data), at, reader.frame_max):
            return 0
        return int(i64(read_i16_be(data, at + 1)) & 0xFFFF)

    def take(self, reader: FrameReader, owner: Receiver, acks: Acks, base: i64) -> list[Message]:
        """Return the deliveries that come next, of one consumer; none for one that is malformed.

        Their tags are `base` above the broker's.
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
        """Decode where a delivery comes from, unlike the last one; False when it is malformed."""
        try:
            method = decode_method(data, at + FRAME_HEAD_BYTES, self._method_end)
        except AmqpError:
            return False
        if not isinstance(method, BasicDeliver):
            return False
        self._origin = Origin(method.consumer_tag, method.exchange, method.routing_key)
        self._consumer = consumer
        self._address = address
        return True

    def _find(self, data: bytes, length: i64, at: i64, frame_max: i64) -> bool:
        """Tell whether a whole delivery lies at `at` of `data`, which is `length` long."""
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
        """Tell whether the one body frame lies at `at`, or no body was announced."""
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
