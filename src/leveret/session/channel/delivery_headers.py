"""The headers that a queue adds to its deliveries.

A delivery from a stream gets the message's offset and the time of its publish, and from a partition
of a super stream also the partition's name.  A delivery from a quorum queue, or from a queue with a
delivery limit, gets the number of requeues of the message, and of those after a failed delivery.

Source: RabbitMQ's `x-stream-offset`, `x-acquired-count` and `x-delivery-count`.
`x-stream-timestamp`, in milliseconds since the Unix epoch, and `x-stream-name` are Leveret's own.
The property bytes are spliced, not decoded.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.consumers.consumer import Source
from leveret.message import Message
from leveret.store.records.returns import acquisitions, failures
from leveret.wire.buffer import BytesWriter, write_i64_be
from leveret.wire.edit import edit_headers

#: Names of entries, each followed by the type letter of a 64-bit integer.
_OFFSET: Final = b"\x0fx-stream-offsetl"
_TIMESTAMP: Final = b"\x12x-stream-timestampl"
_ACQUIRED: Final = b"\x10x-acquired-countl"
_FAILED: Final = b"\x10x-delivery-countl"

_NAMES_OF_STREAMS: Final = [b"x-stream-offset", b"x-stream-timestamp"]
_NAMES_OF_PARTITIONS: Final = [*_NAMES_OF_STREAMS, b"x-stream-name"]
_NAMES_OF_COUNTS: Final = [b"x-acquired-count", b"x-delivery-count"]


def with_delivery_headers(queue: Source, message: Message, sequence: i64, count: i64) -> bytes:
    """Return the property bytes of a delivery; `count` encodes how often it was requeued."""
    w = BytesWriter()
    if queue.has_offsets:
        w.write(_OFFSET)
        write_i64_be(w, sequence)
        w.write(_TIMESTAMP)
        write_i64_be(w, message.timestamp_ms)
        entry = queue.own_entry()
        if entry:
            w.write(entry)
            return edit_headers(message.properties, _NAMES_OF_PARTITIONS, {}, w.getvalue())
        return edit_headers(message.properties, _NAMES_OF_STREAMS, {}, w.getvalue())
    if count > 0:
        w.write(_ACQUIRED)
        write_i64_be(w, acquisitions(count))
        if failures(count) > 0:
            w.write(_FAILED)
            write_i64_be(w, failures(count))
        return edit_headers(message.properties, _NAMES_OF_COUNTS, {}, w.getvalue())
    return message.properties
