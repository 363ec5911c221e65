"""Counting of a broker's output without decoding it, for the reading side of a load test.

A `Scanner` counts deliveries, returns and confirms in pieces of input, records the last delivery
tag, and collects all other methods in a list.  It decodes no messages and checks no protocol state.
At about 50 ns per delivery, it does not distort the measurement of a broker.

Invariants: a publish counts as settled once, regardless of the order of confirms and of `multiple`;
input may be split anywhere.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import FrameError
from leveret.wire.buffer import BytesWriter, read_i32_be, read_i64_be, write_i64_be
from leveret.wire.frames import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_METHOD,
    FrameReader,
    header_body_size,
    write_frame_head,
)
from leveret.wire.methods.ids import BASIC_ACK, BASIC_DELIVER, BASIC_NACK, BASIC_RETURN

_ACK_IDS: Final = b"\x00\x3c\x00\x50"

#: The size of a payload with ids, delivery tag and bits.
_ACK_BYTES: Final = 13

#: Each power of two has 2**_STEP_BITS buckets, which gives an error of at most 3 %.
_STEP_BITS: Final = 5
_STEPS: Final = 1 << _STEP_BITS
_BUCKETS: Final = 64 * _STEPS


@final
class Latencies:
    """A histogram of latencies in ns, with buckets that grow with the latency."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.least: i64 = 0
        self.most: i64 = 0
        self._buckets: list[i64] = [0] * _BUCKETS

    def add(self, latency_ns: i64) -> None:
        """Count a latency; a negative latency (clocks of two machines) counts as 0."""
        value: i64 = max(latency_ns, 0)
        if self.count == 0 or value < self.least:
            self.least = value
        self.most = max(self.most, value)
        self.count += 1
        exponent: i64 = 0
        step = value
        while step >= 2 * _STEPS:
            step >>= 1
            exponent += 1
        self._buckets[exponent * _STEPS + step] += 1

    def quantile(self, share: float) -> int:
        """Return the quantile `share` (0 to 1) of the latencies, or 0 without latencies."""
        rank: i64 = i64(share * float(self.count))
        seen: i64 = 0
        place: i64 = 0
        while place < _BUCKETS:
            seen += self._buckets[place]
            if seen > rank:
                return int(min(self._top(place), self.most))
            place += 1
        return int(self.most)

    def _top(self, place: i64) -> i64:
        """Return the upper bound of a bucket."""
        if place < 2 * _STEPS:
            return place
        exponent = place // _STEPS - 1
        step = place - exponent * _STEPS
        return ((step + 1) << exponent) - 1


@final
class Scanner:
    """Counts the input of a connection that uses only one channel."""

    def __init__(self, frame_max: i64, latencies: Latencies | None) -> None:
        self._reader: Final = FrameReader(frame_max)
        #: If latencies are measured, bodies begin with the sender's time (ns, 8 bytes).
        self._latencies: Final = latencies
        self.delivered: i64 = 0
        self.delivered_bytes: i64 = 0
        self.delivery_tag: i64 = 0
        self.returned: i64 = 0
        self.nacked: i64 = 0
        #: Payloads of all methods except deliveries, returns and confirms: (channel, payload).
        self.others: list[tuple[int, bytes]] = []
        #: All publishes up to this number are settled, and above it those in `_early`.
        self._settled_to: i64 = 0
        self._early: set[i64] = set()
        self._delivering = False
        self._body_starts = False

    @property
    def settled(self) -> int:
        """The number of publishes that were acked or nacked."""
        return int(self._settled_to) + len(self._early)

    def scan(self, piece: bytes, now_ns: i64) -> None:
        """Add input and count its complete frames.  Raises: FrameError (501)."""
        reader = self._reader
        reader.feed(piece)
        while reader.next():
            kind = reader.kind
            if kind == FRAME_BODY:
                if self._body_starts:
                    self._body_starts = False
                    self._timed(now_ns)
            elif kind == FRAME_HEADER:
                if self._delivering:
                    size = header_body_size(reader.data, reader.start, reader.end)
                    self.delivered_bytes += size
                    self._body_starts = self._latencies is not None and size >= 8
            elif kind == FRAME_METHOD:
                self._method()

    def _timed(self, now_ns: i64) -> None:
        """Count the latency of a message by its first body frame, which is current."""
        reader = self._reader
        if self._latencies is not None and reader.end - reader.start >= 8:
            self._latencies.add(now_ns - read_i64_be(reader.data, reader.start))

    def _method(self) -> None:
        """Handle a method."""
        reader = self._reader
        start = reader.start
        end = reader.end
        data = reader.data
        ids: i64 = i64(read_i32_be(data, start)) if end - start >= 4 else 0
        if ids == BASIC_DELIVER:
            tag_at = start + 5 + data[start + 4]
            if tag_at + 8 > end:
                raise FrameError("a basic.deliver that ends early")
            self.delivered += 1
            self.delivery_tag = read_i64_be(data, tag_at)
            self._delivering = True
            return
        self._delivering = False
        if ids in {BASIC_ACK, BASIC_NACK} and end - start == _ACK_BYTES:
            multiple = data[end - 1] & 1 != 0
            before = self.settled
            self._settle(read_i64_be(data, start + 4), multiple)
            if ids == BASIC_NACK:
                self.nacked += self.settled - before
        elif ids == BASIC_RETURN:
            self.returned += 1
        else:
            self.others.append((int(reader.channel), data[start:end]))

    def _settle(self, tag: i64, multiple: bool) -> None:
        """Handle a confirm; most arrive in order, so `_early` is usually empty."""
        if multiple and tag > self._settled_to:
            self._settled_to = tag
            if self._early:
                self._early = {early for early in self._early if early > tag}
        elif tag == self._settled_to + 1:
            self._settled_to = tag
        elif tag > self._settled_to:
            self._early.add(tag)
        while self._early and self._settled_to + 1 in self._early:
            self._settled_to += 1
            self._early.remove(self._settled_to)


def write_acks(channel: i64, first: i64, last: i64, every: i64) -> bytes:
    """Return the acks of the deliveries `first` to `last`, one for each `every` deliveries.

    If `every` is above 1, acks have `multiple` set and their tags are divisible by `every`; a
    later call acks the rest.
    """
    w = BytesWriter()
    tag: i64 = (first + every - 1) // every * every
    while tag <= last:
        write_frame_head(w, FRAME_METHOD, channel, _ACK_BYTES)
        w.write(_ACK_IDS)
        write_i64_be(w, tag)
        w.append(1 if every > 1 else 0)
        w.append(FRAME_END)
        tag += every
    return w.getvalue()
