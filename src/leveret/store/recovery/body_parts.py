"""The bodies that precede their messages in the journal, collected part by part.

A body without one of its parts is dropped at once, so the memory is limited by the bodies that a
broker had in memory at the same time.

Source: `journal/body_ahead.py` writes them.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.records.record import Damaged
from leveret.wire.buffer import read_i64_le

#: The size of the numbers before the bytes of a part, and of a reference to a body.
BODY_HEAD_BYTES: Final = 16


@final
class BodyParts:
    """The parts of all bodies whose messages have not followed yet."""

    def __init__(self) -> None:
        self._parts: dict[i64, list[bytes]] = {}
        self._sizes: dict[i64, i64] = {}

    def add(self, data: bytes, start: i64, end: i64) -> None:
        """Add the part in a record from `start` to `end`, or drop its body.  Raises: Damaged."""
        first: i64 = start + BODY_HEAD_BYTES
        if first > end:
            raise Damaged("a part of a body is too short")
        number = read_i64_le(data, start)
        offset = read_i64_le(data, start + 8)
        if first == end or offset != self._sizes.get(number, 0):
            self._parts.pop(number, None)
            self._sizes.pop(number, None)
            return
        self._parts.setdefault(number, []).append(data[first:end])
        self._sizes[number] = offset + end - first

    def take(self, reference: bytes) -> bytes:
        """Remove and return the body that a message refers to.

        Raises: Damaged if a part of it is missing.
        """
        if len(reference) != BODY_HEAD_BYTES:
            raise Damaged("a message's reference to its body does not have its size")
        number = read_i64_le(reference, 0)
        parts = self._parts.pop(number, None)
        size = self._sizes.pop(number, 0)
        if parts is None or size != read_i64_le(reference, 8):
            raise Damaged("a part of the message's body is missing")
        return b"".join(parts)

    def clear(self) -> None:
        """Drop all bodies, because the broker that received them has ended."""
        self._parts.clear()
        self._sizes.clear()
