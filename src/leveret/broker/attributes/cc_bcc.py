"""The headers CC and BCC: additional routing keys of a message (behaviour 23: CC and BCC).

A message is routed by its routing key and by all of these keys, once to each queue.  CC stays in
the headers.  On a publish, BCC moves from the headers to the message's address, which clients never
receive.  Dead letters and delayed messages are routed by it again.

A dead letter of a queue with a dead-letter routing key is routed only by that key, now and later.
Its address contains a mark for this, and CC in its headers only records the original publish.

If CC or BCC occurs twice, the first counts.  The property bytes are searched, not decoded.

Source: RabbitMQ's sender-selected distribution.  RabbitMQ skips values in such an array that are
not strings.  This broker refuses them, because a copy that is never delivered is a mistake.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.limits import COPY_KEYS_MAX, SHORT_STRING_BYTES_MAX
from leveret.message import Address, Message
from leveret.wire.buffer import read_i32_be
from leveret.wire.edit import edit_headers
from leveret.wire.properties import HEADERS, find_property
from leveret.wire.tables import value_end

CC: Final = b"CC"
BCC: Final = b"BCC"

#: The names as encoded in a table.
_CC_ENTRY: Final = b"\x02CC"
_BCC_ENTRY: Final = b"\x03BCC"

#: Stored in an address instead of BCC when CC in the headers must not route: a CC of the type void,
#: which cannot be published.
CC_VOID: Final = b"\x02CCV"

#: The flag of the headers, in the first byte of properties.
_HEADERS: Final = 0x20

_ARRAY: Final = 0x41
_STRING: Final = 0x53

#: RabbitMQ's names for the types of table values, as in its error.
_NAMES: Final = {
    "A": "array",
    "B": "unsignedbyte",
    "D": "decimal",
    "F": "table",
    "I": "signedint",
    "L": "unsignedlong",
    "S": "longstr",
    "T": "timestamp",
    "V": "void",
    "b": "byte",
    "d": "double",
    "f": "float",
    "i": "unsignedint",
    "l": "long",
    "s": "short",
    "t": "bool",
    "u": "unsignedshort",
    "x": "binary",
}


def copy_keys(properties: bytes) -> list[str]:
    """Return the routing keys in the headers CC and BCC of valid property bytes.

    Raises: PreconditionFailed (406) for anything but arrays of strings of at most 255 bytes, and
    for too many keys.
    """
    keys = taken_keys(properties)
    if len(keys) > COPY_KEYS_MAX:
        raise PreconditionFailed(
            f"invalid message: CC and BCC have {len(keys)} routing keys, more than "
            f"{COPY_KEYS_MAX}; publish it once for each part of the list"
        )
    return keys


def taken_keys(properties: bytes) -> list[str]:
    """Return the keys of a stored message.  Earlier releases accepted more of them."""
    return _keys_in(properties, _headers(properties))


def _headers(properties: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the positions of each header in valid property bytes: its start, value and end."""
    at = find_property(properties, HEADERS)
    return _entries(properties, at + 4, at + 4 + i64(read_i32_be(properties, at)) if at >= 0 else 0)


def _entries(table: bytes, position: i64, end: i64) -> Iterator[tuple[int, int, int]]:
    """Yield the positions of each entry of a table from `position` to `end`."""
    while position < end:
        value: i64 = position + 1 + i64(table[position])
        after = value_end(table, value)
        yield int(position), int(value), int(after)
        position = after


def _keys_in(table: bytes, entries: Iterator[tuple[int, int, int]]) -> list[str]:
    """Return the routing keys in the entries of a table."""
    keys: list[str] = []
    read: list[bytes] = []
    for position, value, _ in entries:
        name = table[position + 1 : value]
        if name in (CC, BCC) and name not in read:
            read.append(name)
            _read_keys(table, value, name, keys)
    return keys


def has_copies(properties: bytes) -> bool:
    """Return whether the bytes contain the name CC or BCC, so that the headers may have it."""
    if not properties or properties[0] & _HEADERS == 0:
        return False
    # `in` tries the bytes as a number first, which fails and takes twice as long as `find`.
    return properties.find(_CC_ENTRY) >= 0 or properties.find(_BCC_ENTRY) >= 0


def carbon_copies(message: Message) -> list[str]:
    """Return the keys in the CC of a published message; skip values that are not strings."""
    keys: list[str] = []
    properties = message.properties
    if message.address.blind == CC_VOID or not has_copies(properties):
        return keys
    for position, value, after in _headers(properties):
        if properties[position + 1 : value] == CC:
            if properties[value] == _ARRAY:
                _read_texts(properties, value + 5, after, keys)
            break
    return keys


def _read_texts(data: bytes, position: i64, end: i64, keys: list[str]) -> None:
    """Append the strings among the values from `position` to `end` to `keys`."""
    while position < end:
        after = value_end(data, position)
        if data[position] == _STRING:
            with contextlib.suppress(UnicodeDecodeError):
                keys.append(data[position + 5 : after].decode("utf-8"))
        position = after


def blind_copies(address: Address) -> list[str]:
    """Return the keys in the BCC of a published message."""
    if address.blind_bytes == 0 or address.blind == CC_VOID:
        return []
    return _keys_in(address.blind, _entries(address.blind, 0, address.blind_bytes))


def blind_entries(properties: bytes) -> bytes:
    """Return the BCC headers of valid property bytes as entries of a table, for an address."""
    found = b""
    for position, value, after in _headers(properties):
        if properties[position + 1 : value] == BCC:
            found += properties[position:after]
    return found


def blinded(message: Message) -> Message:
    """Return the message with BCC in its address; earlier releases left it in the headers."""
    blind = blind_entries(message.properties)
    if not blind:
        return message
    address = message.address
    return message.copied(
        Address(address.exchange, address.routing_key, blind, address.letters_left),
        without_bcc(message.properties),
        message.timestamp_ms,
        message.numbered,
    )


def without_bcc(properties: bytes) -> bytes:
    """Return valid property bytes without the header BCC."""
    return edit_headers(properties, [BCC], {})


def _read_keys(data: bytes, place: i64, name: bytes, keys: list[str]) -> None:
    """Append the keys of the array with its type at `place` to `keys`."""
    if data[place] != _ARRAY:
        raise _unacceptable(name, data[place])
    end = value_end(data, place)
    position: i64 = place + 5
    while position < end:
        if data[position] != _STRING:
            raise _unacceptable(name, data[position])
        size: i64 = i64(read_i32_be(data, position + 1))
        if size > SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(
                f"invalid message: a routing key in {name.decode()} has {size} bytes, more than "
                f"{SHORT_STRING_BYTES_MAX}"
            )
        start: i64 = position + 5
        try:
            keys.append(data[start : start + size].decode("utf-8"))
        except UnicodeDecodeError:
            raise PreconditionFailed(
                f"invalid message: a routing key in {name.decode()} is not UTF-8"
            ) from None
        position = start + size


def _unacceptable(name: bytes, kind: int) -> PreconditionFailed:
    """Return the error for a value that is not of the type of a routing key."""
    return PreconditionFailed(
        f'invalid message: {{unacceptable_type_in_header,"{name.decode()}",'
        f"{_NAMES.get(chr(kind), 'unknown')}}}"
    )
