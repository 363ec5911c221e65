"""The acks of one channel, combined into one frame when they follow the order of delivery.

A `basic.ack` with `multiple` acks everything up to its tag, so it can replace several acks only if
no lower tag is unacked.  An out-of-order ack is written separately and remembered, so that later
acks can be combined again once the gap is closed.

The frame contains the last buffered tag, because RabbitMQ refuses a tag that is already settled.

Invariants: all deliveries up to `_settled` are settled, and above it only those in `_early`;
`is_due` is True only while the buffered acks are about to be written.  This module is compiled.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.wire.buffer import BytesWriter, write_i32_be, write_i64_be
from leveret.wire.frames import FRAME_END, FRAME_METHOD, write_frame_head

#: The maximum number of out-of-order acks while an older delivery is unacked.  Beyond it, the older
#: delivery is assumed to stay unacked, and acks on the channel are no longer combined.
CLIENT_EARLY_ACKS_MAX: Final = 65_536


#: Class and method of basic.ack (60.80).
_BASIC_ACK: Final = 0x003C0050

#: The payload size: class and method ids, a tag and a bit.
_ACK_BYTES: Final = 13

#: The frame size of a combined ack.
ACK_FRAME_BYTES: Final = _ACK_BYTES + 8


@final
class Acks:
    """The acks of a channel.

    The channel's delivery tags are the broker's plus `base`.  `newest` is the tag of the last
    delivery received.
    """

    def __init__(self, channel: i64, base: i64) -> None:
        self.newest: i64 = base
        #: Whether the next ack may join the buffered acks, because their frame is due anyway.
        self.is_due = False
        self._channel: Final[i64] = channel
        self._base: Final[i64] = base
        self._gathers = False
        self._settled: i64 = base
        self._early: set[int] = set()
        #: The number of buffered acks, and the last of them.
        self._count: i64 = 0
        self._last: i64 = base

    @property
    def is_newest(self) -> bool:
        """Whether the newest delivery is settled, possibly by a buffered ack."""
        return self._settled >= self.newest

    def gather(self, gathers: bool) -> None:
        """Start or stop combining acks."""
        self._gathers = gathers
        if not gathers:
            self.is_due = False

    def joins(self, delivery_tag: i64) -> bool:
        """Buffer an ack if others are about to be written and it is the next in order.

        The ack of the newest delivery never joins, because the application may then be idle for a
        long time.
        """
        if (
            not self.is_due
            or delivery_tag != self._settled + 1
            or delivery_tag >= self.newest
            or not self._gathers
        ):
            return False
        self._add(delivery_tag)
        return True

    def takes(self, delivery_tag: i64) -> bool:
        """Buffer an ack if it is the next in order; the caller must then schedule the output."""
        if not self._gathers or delivery_tag != self._settled + 1 or delivery_tag > self.newest:
            return False
        self._add(delivery_tag)
        return True

    def _add(self, delivery_tag: i64) -> None:
        self._count += 1
        self._last = delivery_tag
        self._settled = delivery_tag
        if self._early:
            self._close_gap()

    def _close_gap(self) -> None:
        """Advance over tags that were settled early."""
        while self._settled + 1 in self._early:
            self._settled += 1
            self._early.remove(self._settled)

    def settle(self, delivery_tag: i64, multiple: bool) -> None:
        """Record deliveries settled by a separate frame; tag 0 means all."""
        if multiple:
            upper = delivery_tag if delivery_tag > 0 else self.newest
            if upper > self._settled:
                self._settled = upper
                self._early = {tag for tag in self._early if tag > upper}
        elif delivery_tag > self._settled:
            self._early.add(delivery_tag)
            if len(self._early) > CLIENT_EARLY_ACKS_MAX:
                self._early.clear()
                self.gather(False)
        self._close_gap()

    def write(self, w: BytesWriter) -> None:
        """Write the buffered acks as one frame and clear them."""
        self.is_due = False
        if self._count == 0:
            return
        write_frame_head(w, FRAME_METHOD, self._channel, _ACK_BYTES)
        write_i32_be(w, _BASIC_ACK)
        write_i64_be(w, self._last - self._base)
        w.append(1 if self._count > 1 else 0)
        w.append(FRAME_END)
        self._count = 0
