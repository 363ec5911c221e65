"""The headers that a stream's delivery carries: its offset and the time it was taken.

Source: RabbitMQ's streams over AMQP 0-9-1 (`x-stream-offset`); `x-stream-timestamp` is ours, in
milliseconds since the Unix epoch.  The property bytes are spliced, not decoded.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64

from leveret.wire.buffer import BytesWriter, read_i32_be, write_i32_be, write_i64_be

_OFFSET: Final = b"\x0fx-stream-offsetl"
_TIMESTAMP: Final = b"\x12x-stream-timestampl"
_ADDED_BYTES: Final = len(_OFFSET) + len(_TIMESTAMP) + 16

_CONTENT_TYPE: Final = 0x80
_CONTENT_ENCODING: Final = 0x40
_HEADERS: Final = 0x20


def with_stream_headers(properties: bytes, offset: i64, timestamp_ms: i64) -> bytes:
    """Return legal property bytes with the two headers added at the end of the header table."""
    flags: i64 = properties[0]
    place: i64 = 2
    if flags & _CONTENT_TYPE:
        place += properties[place] + 1
    if flags & _CONTENT_ENCODING:
        place += properties[place] + 1
    w = BytesWriter()
    table: i64 = 0
    if flags & _HEADERS:
        table = i64(read_i32_be(properties, place))
        w.write(properties[:place])
        write_i32_be(w, i32(table + _ADDED_BYTES))
        w.write(properties[place + 4 : place + 4 + table])
        rest: i64 = place + 4 + table
    else:
        high: i64 = flags | _HEADERS
        w.append(int(high))
        w.write(properties[1:place])
        write_i32_be(w, _ADDED_BYTES)
        rest = place
    w.write(_OFFSET)
    write_i64_be(w, offset)
    w.write(_TIMESTAMP)
    write_i64_be(w, timestamp_ms)
    w.write(properties[rest:])
    return w.getvalue()
