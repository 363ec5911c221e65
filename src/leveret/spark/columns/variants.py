"""Encoding of header tables as Spark's `variant`, which preserves the types of their entries.

Booleans, decimals, strings, bytes, timestamps, arrays, tables and missing values have the same type
in a variant.  Spark reads integers as 64-bit integers, and both floating-point types as doubles.
Strings that are not UTF-8 are bytes.  As in the other columns, bytes of a name that are not UTF-8
are escaped, and a time beyond the year 9999 is null.

Source: "Variant Binary Encoding", in the specification of Parquet.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from leveret.client import Timestamp
from leveret.spark.columns.texts import SECONDS_MAX, escaped

#: The basic types, in the low bits of a value's first byte.
_SHORT_STRING: Final = 1
_OBJECT: Final = 2
_ARRAY: Final = 3

#: The types of primitive values.
_NULL: Final = 0
_TRUE: Final = 1
_FALSE: Final = 2
_DOUBLE: Final = 7
_TIMESTAMP: Final = 12
_BINARY: Final = 15
_STRING: Final = 16

#: Integers (type, bytes) and decimals (type, bytes, maximum digits), from the smallest.
_INTEGERS: Final = ((3, 1), (4, 2), (5, 4), (6, 8))
_DECIMALS: Final = ((8, 4, 9), (9, 8, 18), (10, 16, 38))

#: The version of the metadata, and the greatest length of a short string.
_VERSION: Final = 1
_SHORT_MAX: Final = 63

#: From this number of elements on, their count takes four bytes instead of one.
_LARGE_FROM: Final = 256


def variant_of(table: Mapping[str, object]) -> tuple[bytes, bytes]:
    """Encode a table; return the value and its metadata."""
    encoder = _Encoder()
    value = encoder.value(table)
    return value, encoder.metadata()


class _Encoder:
    """Encodes one value, and numbers the names in it."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}

    def metadata(self) -> bytes:
        """Return the encoded dictionary of names."""
        names = [name.encode() for name in self._names]
        width = _width(max(len(names), sum(map(len, names))))
        head = bytes([_VERSION | (width - 1) << 6]) + len(names).to_bytes(width, "little")
        return head + _joined(names, width)

    def value(self, value: object) -> bytes:
        """Encode a value."""
        if isinstance(value, Mapping):
            return self._object(value)
        if isinstance(value, list):
            return self._array(value)
        return _scalar(value)

    def _object(self, table: Mapping[str, object]) -> bytes:
        fields: dict[str, object] = {}
        for name, value in table.items():
            fields.setdefault(escaped(name), value)
        # Spark looks names up in the order of Java's strings.
        names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
        values = [self.value(fields[name]) for name in names]
        ids = [self._names.setdefault(name, len(self._names)) for name in names]
        id_width = _width(max(ids, default=0))
        width = _width(sum(map(len, values)))
        large = len(values) >= _LARGE_FROM
        head = _OBJECT | (width - 1) << 2 | (id_width - 1) << 4 | large << 6
        numbers = b"".join(number.to_bytes(id_width, "little") for number in ids)
        return bytes([head]) + _count(values) + numbers + _joined(values, width)

    def _array(self, elements: list[object]) -> bytes:
        values = [self.value(one) for one in elements]
        width = _width(sum(map(len, values)))
        head = _ARRAY | (width - 1) << 2 | (len(values) >= _LARGE_FROM) << 4
        return bytes([head]) + _count(values) + _joined(values, width)


def _count(values: Sequence[bytes]) -> bytes:
    return len(values).to_bytes(1 if len(values) < _LARGE_FROM else 4, "little")


def _joined(values: Sequence[bytes], width: int) -> bytes:
    """Return values, preceded by the offset of each value and of the end."""
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    return b"".join(offset.to_bytes(width, "little") for offset in offsets) + b"".join(values)


def _width(most: int) -> int:
    """Return the number of bytes that store a number up to `most`."""
    return max(1, (most.bit_length() + 7) // 8)


def _scalar(value: object) -> bytes:
    """Encode a value that is neither table nor array."""
    if isinstance(value, bool):
        return _primitive(_TRUE if value else _FALSE)
    if isinstance(value, int):
        bits = 1 + (value if value >= 0 else ~value).bit_length()
        kind, width = next((kind, width) for kind, width in _INTEGERS if bits <= 8 * width)
        return _primitive(kind, value.to_bytes(width, "little", signed=True))
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogateescape")
        if len(text) <= _SHORT_MAX:
            return bytes([_SHORT_STRING | len(text) << 2]) + text
        return _sized(_STRING, text)
    if isinstance(value, bytes):
        return _sized(_BINARY, value)
    if isinstance(value, float):
        return _primitive(_DOUBLE, struct.pack("<d", value))
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, Timestamp) and value.seconds <= SECONDS_MAX:
        return _primitive(_TIMESTAMP, struct.pack("<q", value.seconds * 1_000_000))
    return _primitive(_NULL)


def _decimal(value: Decimal) -> bytes:
    """Encode a decimal, or a double if it has more digits than Spark supports."""
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    for kind, width, precision in _DECIMALS:
        if max(len(digits), scale) <= precision:
            number = int("".join(map(str, digits)))
            return _primitive(kind, bytes([scale]) + number.to_bytes(width, "little", signed=True))
    return _primitive(_DOUBLE, struct.pack("<d", value))


def _primitive(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind << 2]) + data


def _sized(kind: int, data: bytes) -> bytes:
    return _primitive(kind, len(data).to_bytes(4, "little") + data)
