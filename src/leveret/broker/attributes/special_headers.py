"""Detection of headers that are special to the broker.

The property bytes are scanned once, and not decoded.  Other modules read the values of the headers
(`cc_bcc`, `publishers`).

Invariant: a present header is never missed.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.wire.buffer import read_i32_be
from leveret.wire.properties import HEADERS, find_property
from leveret.wire.tables import value_end

#: CC or BCC may be present; `x-publishing-id` may be present.
COPIES: Final = 1
NUMBERED: Final = 2

_FIRST_OF_CC: Final = 0x43
_FIRST_OF_BCC: Final = 0x42
_FIRST_OF_NUMBER: Final = 0x78

#: The length of `x-publishing-id`, which no other special header has.
_NUMBER_SIZE: Final = 15


def special_headers(properties: bytes) -> i64:
    """Return the special headers that may be present, as a set of bits.

    `properties` must be valid and have headers.
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
