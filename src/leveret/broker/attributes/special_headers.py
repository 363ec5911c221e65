"""Detects headers of a message that are special to the broker.

The property bytes are scanned once, and not decoded; the modules for each header read its value
(`copies`, `publishers`).

Invariant: a present header is never missed.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.wire.buffer import read_i32_be
from leveret.wire.properties import HEADERS, find_property
from leveret.wire.tables import value_end

#: There may be a CC or BCC; there may be an `x-publishing-id`.
COPIES: Final = 1
NUMBERED: Final = 2

_FIRST_OF_CC: Final = 0x43
_FIRST_OF_BCC: Final = 0x42
_FIRST_OF_NUMBER: Final = 0x78

#: The length of `x-publishing-id`, which no other special header has.
_NUMBER_SIZE: Final = 15


def special_headers(properties: bytes) -> i64:
    """Return which special headers may be present; others are certainly absent.

    `properties` are valid and have headers.
    """
    at = find_property(properties, HEADERS)
    position: i64 = at + 4
    end: i64 = position + i64(read_i32_be(properties, at))
    found: i64 = 0
    while position < end:
        size: i64 = properties[position]
        first: i64 = properties[position + 1]
        if size <= 3 and first in (_FIRST_OF_CC, _FIRST_OF_BCC):
            found |= COPIES
        elif size == _NUMBER_SIZE and first == _FIRST_OF_NUMBER:
            found |= NUMBERED
        position = value_end(properties, position + 1 + size)
    return found
