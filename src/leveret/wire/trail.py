"""The trail of a message: broker-internal data of its address, stored after the properties.

    properties | i32 letters_left | entries of the header BCC | u32 size of the last two

Integers are little-endian, like all data that is only on disk.  Few messages have a trail; a flag
of the record or of the chunk's row marks them.  Streams do not store trails, so readers outside the
broker never see them.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64

from leveret.message import ALL_LETTERS, Address, Message
from leveret.wire.buffer import BytesWriter, read_i32_le, write_i32_le

#: The bytes of `letters_left` and of the size, which do not count as part of a message.
TRAIL_FIXED_BYTES: Final = 8


def has_trail(address: Address) -> bool:
    """Return whether an address contains more than an exchange and a routing key."""
    return address.letters_left != ALL_LETTERS or address.blind_bytes > 0


def with_trail(message: Message) -> bytes:
    """Return a message's properties as stored, with its trail if it has one."""
    address = message.address
    if not has_trail(address):
        return message.properties
    writer = BytesWriter()
    writer.write(message.properties)
    write_i32_le(writer, i32(address.letters_left))
    writer.write(address.blind)
    write_i32_le(writer, i32(address.blind_bytes + TRAIL_FIXED_BYTES - 4))
    return writer.getvalue()


def trail_place(stored: bytes) -> i64:
    """Return the start of the trail in stored properties with one, or -1 if it is malformed."""
    size: i64 = len(stored)
    if size < TRAIL_FIXED_BYTES + 2:
        return -1
    place: i64 = size - 4 - i64(read_i32_le(stored, size - 4))
    return place if 2 <= place <= size - TRAIL_FIXED_BYTES else -1


def trailed(address: Address, stored: bytes, place: i64) -> Address:
    """Return an address with the data of the trail at `place`."""
    return Address(
        address.exchange,
        address.routing_key,
        stored[place + 4 : len(stored) - 4],
        i64(read_i32_le(stored, place)),
    )
