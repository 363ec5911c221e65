"""Finds length-delimited fields in a protobuf message."""

from __future__ import annotations

from mypy_extensions import i64


class FieldScan:
    """Scans a message with ordered fields; `first` and `last` delimit the last field found."""

    def __init__(self) -> None:
        self.first: i64 = 0
        self.last: i64 = 0

    def take(self, data: bytes, at: i64, end: i64, tag: i64) -> i64:
        """Find the value of the field at `at` if it has this tag, otherwise an empty range.

        Return the position after it, or -1 if it is malformed.
        """
        self.first = self.last = at
        if at >= end or i64(data[at]) != tag:
            return at
        at += 1
        size: i64 = 0
        shift: i64 = 0
        while True:
            if at >= end or shift > 28:
                return -1
            byte: i64 = i64(data[at])
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if size > end - at:
            return -1
        self.first = at
        self.last = at + size
        return at + size
