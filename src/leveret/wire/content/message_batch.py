"""A batch: messages with one destination as columns, in the body of one publish.

    u32 number of messages n | u32 bytes of all properties
    u32[n] bytes of each message's properties | u32[n] bytes of each body
    the properties (content headers from their flags on) | the bodies

All integers are little-endian.  A publish to a staging queue is a batch if its properties are
`BATCH_PROPERTIES`: a table of headers with `x-staged-batch` alone.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.limits import (
    BATCH_BYTES_MIN,
    BATCH_MESSAGES_MIN,
    CHUNK_BYTES_MAX,
    CHUNK_RECORDS_MAX,
)
from leveret.wire.buffer import read_i32_le
from leveret.wire.properties import skim_properties

#: The header of a batch.  A message that is published alone never has it.
_NAME: Final = b"x-staged-batch"

_TABLE: Final = bytes([len(_NAME)]) + _NAME + b"t\x01"
BATCH_PROPERTIES: Final = b"\x20\x00" + len(_TABLE).to_bytes(4) + _TABLE

_HEAD_BYTES: Final = 8
_SIZES_BYTES: Final = 8

#: The properties with two bytes of flags and nothing else.
_LEAST_PROPERTIES: Final = 2


@final
class MessageBatch:
    """The messages of one body.  Raises: PreconditionFailed (406); SyntaxFault (502)."""

    def __init__(self, data: bytes) -> None:
        size: i64 = len(data)
        self.count: Final[i64] = i64(read_i32_le(data, 0)) if size >= _HEAD_BYTES else 0
        if self.count > CHUNK_RECORDS_MAX or size > CHUNK_BYTES_MAX:
            raise PreconditionFailed("invalid batch: it is larger than a chunk may be")
        if self.count < 1 or (self.count < BATCH_MESSAGES_MIN and size < BATCH_BYTES_MIN):
            raise PreconditionFailed(
                f"invalid batch: it has fewer than {BATCH_MESSAGES_MIN} messages and fewer than "
                f"{BATCH_BYTES_MIN} bytes; publish its messages one by one"
            )
        at: i64 = _HEAD_BYTES + _SIZES_BYTES * self.count
        end: i64 = at + i64(read_i32_le(data, 4))
        if not at <= end <= size:
            raise _malformed()
        middle: i64 = _HEAD_BYTES + 4 * self.count
        #: The sizes, four bytes each.
        self.property_sizes: Final = data[_HEAD_BYTES:middle]
        self.body_sizes: Final = data[middle:at]
        self.properties: Final = data[at:end]
        self.bodies: Final = data[end:]
        #: The bytes of the messages.
        self.size: Final[i64] = size - at
        if not self._adds_up(self.property_sizes, len(self.properties), _LEAST_PROPERTIES):
            raise _malformed()
        if not self._adds_up(self.body_sizes, len(self.bodies), 0):
            raise _malformed()
        #: The different properties of its messages; they are legal.
        self.distinct: Final = self._distinct()

    def _adds_up(self, sizes: bytes, total: i64, least: i64) -> bool:
        """Return whether sizes of at least `least` add up to `total`."""
        added: i64 = 0
        for index in range(self.count):
            size = i64(read_i32_le(sizes, 4 * index))
            if size < least or size > total:
                return False
            added += size
        return added == total

    def _distinct(self) -> list[bytes]:
        """Return the different properties.  Raises: SyntaxFault (502)."""
        sizes, count = self.property_sizes, int(self.count)
        first = self.properties[: i64(read_i32_le(sizes, 0))]
        found = {first: None}
        if sizes != sizes[:4] * count or self.properties != first * count:
            start: i64 = 0
            for index in range(self.count):
                end: i64 = start + i64(read_i32_le(sizes, 4 * index))
                found[self.properties[start:end]] = None
                start = end
        for properties in found:
            skim_properties(properties, 0, len(properties))
        return list(found)


def _malformed() -> PreconditionFailed:
    return PreconditionFailed("invalid batch: its sizes do not match its length")
