"""Rows as batches: many messages in the body of one publish (`leveret.wire.content.message_batch`).

The rows of a task are staged in this way if they all go to one place and the broker need not
examine any of them.  The broker stores each batch as one chunk.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.limits import (
    BATCH_BYTES_MIN,
    BATCH_MESSAGES_MIN,
    CHUNK_BYTES_MAX,
    CHUNK_RECORDS_MAX,
)
from leveret.spark.write.rows import Distinct, RawProperties, RowProperties

#: The bytes per row of the two columns of sizes, and the bytes of a batch before these columns.
_SIZES_BYTES: Final = 8
_HEAD_BYTES: Final = 8

#: The flags of properties that the broker examines, in the first byte (priority, reply_to,
#: expiration) and the second (user_id); and the flag of headers.
_LOOKED_AT: Final = 0x0B
_LOOKED_AT_LOW: Final = 0x10
_HEADERS: Final = 0x20

#: Parts of the names of headers that the broker examines: CC, BCC and `x-publishing-id`.
_LOOKED_AT_NAMES: Final = (b"CC", b"x-publishing-id")


class RowBatches:
    """The rows of one Arrow batch, to be cut into batches of messages."""

    def __init__(
        self,
        bodies: pa.Array,
        offsets: Any,
        said: Distinct[RowProperties] | Distinct[RawProperties],
        properties_bytes_max: int,
    ) -> None:
        self._bodies = bodies
        self._offsets = offsets
        self._encoded = [properties.encode({}) for properties in said.values]
        self._rows = said.rows
        sizes = np.array([len(encoded) for encoded in self._encoded], np.int64)
        count = len(offsets) - 1
        self._property_sizes = np.full(count, sizes[0]) if said.rows is None else sizes[said.rows]
        self._body_sizes = np.diff(offsets)
        ends = np.cumsum(self._property_sizes + self._body_sizes + _SIZES_BYTES)
        self._ends = np.concatenate(([0], ends))
        # A row with properties that fit into no frame is refused where it is published alone.
        fits = int(sizes.max(initial=0)) <= properties_bytes_max
        self._plain = fits and all(map(_is_plain, self._encoded))

    def end(self, start: int) -> int:
        """Return the end of the batch that begins at the row `start`; `start` if there is none."""
        if not self._plain:
            return start
        most = self._ends[start] + CHUNK_BYTES_MAX - _HEAD_BYTES
        end = int(np.searchsorted(self._ends, most, side="right")) - 1
        end = min(end, start + CHUNK_RECORDS_MAX)
        size = self._ends[end] - self._ends[start]
        is_small = end - start < BATCH_MESSAGES_MIN and size < BATCH_BYTES_MIN
        return start if is_small else end

    def body(self, start: int, end: int) -> bytes:
        """Return the body of the publish with some rows."""
        count = end - start
        if self._rows is None:
            properties = self._encoded[0] * count
        else:
            properties = b"".join([self._encoded[row] for row in self._rows[start:end].tolist()])
        first, last = int(self._offsets[start]), int(self._offsets[end])
        data = b"" if first == last else self._bodies.buffers()[2].slice(first, last - first)
        sizes = (self._property_sizes[start:end], self._body_sizes[start:end])
        columns = [column.astype("<u4").tobytes() for column in sizes]
        head = count.to_bytes(4, "little") + len(properties).to_bytes(4, "little")
        return b"".join([head, *columns, properties, data])


def _is_plain(encoded: bytes) -> bool:
    """Return whether the broker need not examine a message with these properties."""
    if encoded[0] & _LOOKED_AT or encoded[1] & _LOOKED_AT_LOW:
        return False
    return not encoded[0] & _HEADERS or not any(name in encoded for name in _LOOKED_AT_NAMES)
