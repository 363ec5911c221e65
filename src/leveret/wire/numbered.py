"""The headers `x-publisher` and `x-publishing-id`, used for publisher deduplication.

They are read from valid property bytes without decoding the rest.  For the meaning of the number,
see `broker/publishers/publishers.py`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.limits import SHORT_STRING_BYTES_MAX
from leveret.wire.buffer import read_i32_be
from leveret.wire.properties import HEADERS, find_property
from leveret.wire.tables import read_number, value_end

PUBLISHER: Final = b"x-publisher"
PUBLISHING_ID: Final = b"x-publishing-id"

#: The sizes of the header names.
_PUBLISHER_SIZE: Final = 11
_PUBLISHING_ID_SIZE: Final = 15

_STRING: Final = 0x53


@final
class Numbered:
    """The publisher of a message, and the publisher's number of the message."""

    def __init__(self, publisher: bytes, number: i64) -> None:
        self.publisher: Final = publisher
        self.number: Final[i64] = number


def read_numbered(properties: bytes) -> Numbered | None:
    """Return the two headers of valid property bytes, or None without `x-publishing-id`.

    Raises: PreconditionFailed (406) for an invalid number, or for a missing publisher.
    """
    at = find_property(properties, HEADERS)
    if at < 0:
        return None
    end: i64 = at + 4 + i64(read_i32_be(properties, at))
    position: i64 = at + 4
    publisher = b""
    number: i64 = -1
    numbered = False
    while position < end:
        size: i64 = properties[position]
        value: i64 = position + 1 + size
        after = value_end(properties, value)
        if size == _PUBLISHING_ID_SIZE and properties[position + 1 : value] == PUBLISHING_ID:
            numbered = True
            number = read_number(properties, value)
        elif size == _PUBLISHER_SIZE and properties[position + 1 : value] == PUBLISHER:
            publisher = properties[value + 5 : after] if properties[value] == _STRING else b""
        position = after
    if not numbered:
        return None
    if number < 0:
        raise PreconditionFailed("invalid message: x-publishing-id is an integer from 0 to 2^63-1")
    if not 0 < len(publisher) <= SHORT_STRING_BYTES_MAX:
        raise PreconditionFailed(
            "invalid message: a message with x-publishing-id has its x-publisher, a text of 1 to "
            f"{SHORT_STRING_BYTES_MAX} bytes"
        )
    return Numbered(publisher, number)
