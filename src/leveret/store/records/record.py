"""The layout of records and groups of records in journal files and state snapshots.

Integers on disk are little-endian; AMQP values (property bytes, field tables) are encoded as on the
wire.  A digest is the 8 bytes of `xxh3_64_digest`.

Group, written by one call and made durable by one sync (64 bytes, then its records):

     0  8    magic "LVgroup2"
     8  u64  group number: one more than the group before it, over all files
    16  u64  bytes of the records that follow
    24  u64  the newest group known to be durable when this one was sealed
    32  u32  number of records
    36  u32  zero
    40  u64  zero, for the epoch of a leader
    48  i64  time in ms when it was sealed, never before the previous group's
    56  8    digest of bytes 0-55, seeded with (store's seed XOR file number)

The header with the magic "LVgroup1" is older and has 48 bytes: its digest is at 40.

Record (13 bytes, then its payload):

     0  8    digest of everything after it, seeded with (store's seed XOR group number; for
             snapshots see `snapshot.py`)
     8  u32  size of the payload
    12  u8   kind
    13       payload

After its last group, a journal file may have zeros up to its end (`store/journal/files.py`).

Because of the seeds, the digest of a group or record does not match if it is at the wrong place, or
from another store or a message's body.  A record's lsn is its group's number and its index in the
group.  Stored lsns always refer to a group's first record, so they are group numbers.

Payloads by kind (`string` = u8 length and bytes; `table` = AMQP field table):

    define, delete       string kind | table | n times (string name | table); see `definition.py`
    publish              u32 n | n times (u64 queue, u64 sequence) | message
    move                 u32 n | n times (u64 queue, u64 sequence) | u64 from queue, u64 from
                         sequence | message
    ack                  n times (u64 queue, u64 first, u64 last)
    requeue              u64 queue | u64 sequence | u32 delivery count; 2^31 - 1 = acked, and
                         retained for a rewind
    purge                u64 queue | u64 below sequence
    trim                 u64 queue | u64 first remaining offset
    tx                   any of the others, each as u32 size | u8 kind | payload
    consumer offset      u64 queue | string consumer | u64 offset; 2^64 - 1 = forgotten
    publisher sequence   u64 queue | string publisher | u64 the highest of its messages' numbers |
                         i64 time in ms of its last one
    checkpoint           u64 generation | 16 bytes uuid, or none
    spill                u64 queue | reference to a chunk (`chunk_record.py`) | n times (u64 first,
                         u64 last): its sequences that are already removed
    clean stop           i64 time in ms
    publish session      string user | string session | i64 channel | i64 since | i64 through |
                         n times (u8 kind, i64 first, i64 last); see `publish_session.py`
    body part            u64 body | u64 offset | bytes of a large body that precedes its message;
                         without bytes, the body is dropped
    publish in parts     as publish, with u64 body | u64 size in place of the message's body

    message              i64 timestamp in ms | u8 flags (1 = persistent, 2 = dead-lettered, 4 = its
                         publisher's number counts for deduplication, 8 = a trail follows the
                         properties, see `wire/trail.py`) | string exchange |
                         string routing key | u32 size | properties | body, up to the end

A state snapshot is also a group; kinds from 32 on exist only in snapshots (`snapshot.py`).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i32, i64
from xxhash import xxh3_64, xxh3_64_digest

from leveret.message import Address, Message
from leveret.wire.buffer import (
    BytesWriter,
    read_i32_le,
    read_i64_le,
    write_i32_le,
    write_i64_le,
)
from leveret.wire.trail import has_trail, trail_place, trailed, with_trail

#: The maximum number of addresses in the cache, which is cleared when it is full.
ADDRESSES_KNOWN_MAX: Final = 4096


DEFINE: Final = 1
DELETE: Final = 2
PUBLISH: Final = 3
ACK: Final = 4
REQUEUE: Final = 5
MOVE: Final = 6
PURGE: Final = 7
TX: Final = 8
TRIM: Final = 9
CONSUMER_OFFSET: Final = 10
PUBLISHER_SEQUENCE: Final = 11
CHECKPOINT: Final = 12
CLEAN_STOP: Final = 13
SPILL: Final = 14
PUBLISH_SESSION: Final = 15
BODY_PART: Final = 16
PUBLISH_IN_PARTS: Final = 17

SNAPSHOT: Final = 32
COUNTER: Final = 33
QUEUE: Final = 34
ACKED: Final = 35
CHUNK: Final = 36
END: Final = 63

_NAMES: Final = {
    DEFINE: "define",
    DELETE: "delete",
    PUBLISH: "publish",
    ACK: "ack",
    REQUEUE: "requeue",
    MOVE: "move",
    PURGE: "purge",
    TX: "tx",
    TRIM: "trim",
    CONSUMER_OFFSET: "consumer_offset",
    PUBLISHER_SEQUENCE: "publisher_sequence",
    CHECKPOINT: "checkpoint",
    CLEAN_STOP: "clean_stop",
    SPILL: "spill",
    PUBLISH_SESSION: "publish_session",
    BODY_PART: "body_part",
    PUBLISH_IN_PARTS: "publish_in_parts",
    SNAPSHOT: "snapshot",
    COUNTER: "counter",
    QUEUE: "queue",
    ACKED: "acked",
    CHUNK: "chunk",
    END: "end",
}

GROUP_MAGIC: Final = b"LVgroup2"
OLD_GROUP_MAGIC: Final = b"LVgroup1"
#: The bytes with which both magics begin.
ANY_GROUP_MAGIC: Final = b"LVgroup"
GROUP_HEADER_BYTES: Final = 64
OLD_GROUP_HEADER_BYTES: Final = 48
RECORD_HEADER_BYTES: Final = 13
#: The bytes before a payload that its digest covers, which also precede an operation's payload in a
#: transaction.
RECORD_HEAD_BYTES: Final = 5
DIGEST_BYTES: Final = 8

#: A payload's size must fit a signed 32-bit number.
RECORD_BYTES_MAX: Final = 0x7FFF_FFFF

#: The offset that marks a consumer as forgotten.
FORGOTTEN: Final = -1

#: The delivery count of a message that is acked and retained for a rewind, which is the greatest in
#: a record.  Brokers that do not support rewinds deliver the message again.
RETAINED_COUNT: Final = 0x7FFF_FFFF

#: Keeps a seed within the range of a signed 64-bit number.
SEED_MASK: Final = 0x7FFF_FFFF_FFFF_FFFF


class Damaged(Exception):
    """Bytes of the store are damaged; recovery counts them and continues."""


def is_retained(delivery_count: i64) -> bool:
    """Return whether a delivery count marks a message as acked and retained for a rewind."""
    return delivery_count == RETAINED_COUNT


def is_kind(kind: i64) -> bool:
    """Return whether a kind of record exists."""
    return DEFINE <= kind <= PUBLISH_IN_PARTS or SNAPSHOT <= kind <= CHUNK or kind == END


def kind_name(kind: i64) -> str:
    """Return the name of a kind of record."""
    return _NAMES.get(int(kind), f"kind {kind}")


def encode_group_header(
    seed: int,
    file_number: i64,
    number: i64,
    size: i64,
    durable: i64,
    records: i64,
    time_ms: i64 = 0,
) -> bytes:
    """Return the header of a group whose records take `size` bytes."""
    writer = BytesWriter()
    writer.write(GROUP_MAGIC)
    write_i64_le(writer, number)
    write_i64_le(writer, size)
    write_i64_le(writer, durable)
    write_i64_le(writer, records)
    write_i64_le(writer, 0)
    write_i64_le(writer, time_ms)
    head = writer.getvalue()
    return head + xxh3_64_digest(head, seed ^ int(file_number))


def group_header_bytes(data: bytes, position: i64, seed: int, file_number: i64) -> i64:
    """Return the size of the complete, intact group header of that file at `position`, or 0."""
    magic = data[position : position + len(GROUP_MAGIC)]
    if magic not in (GROUP_MAGIC, OLD_GROUP_MAGIC):
        return 0
    end: i64 = position + OLD_GROUP_HEADER_BYTES
    if magic == GROUP_MAGIC:
        end = position + GROUP_HEADER_BYTES
    head = data[position : end - DIGEST_BYTES]
    if xxh3_64_digest(head, seed ^ int(file_number)) != data[end - DIGEST_BYTES : end]:
        return 0
    return end - position


def is_record(data: bytes, position: i64, end: i64, seed: int) -> bool:
    """Return whether a complete, intact record is at `position` and ends by `end`."""
    if position + RECORD_HEADER_BYTES > end:
        return False
    size = i64(read_i32_le(data, position + DIGEST_BYTES))
    if size < 0 or position + RECORD_HEADER_BYTES + size > end:
        return False
    rest = data[position + DIGEST_BYTES : position + RECORD_HEADER_BYTES + size]
    return xxh3_64_digest(rest, seed) == data[position : position + DIGEST_BYTES]


def repaired_size(data: bytes, position: i64, end: i64, seed: int) -> i64:
    """Return the size with which a record is intact, if one of its four bytes changed, or -1.

    The positions of all following records depend on a size, so trying the thousand other values of
    its four bytes is worth it.  A digest of 64 bits does not match by chance.
    """
    if position + RECORD_HEADER_BYTES > end:
        return -1
    stored: i64 = i64(read_i32_le(data, position + DIGEST_BYTES)) & 0xFFFF_FFFF
    digest = data[position : position + DIGEST_BYTES]
    kind = data[position + 12 : position + RECORD_HEADER_BYTES]
    first: i64 = position + RECORD_HEADER_BYTES
    for shift in range(0, 32, 8):
        kept: i64 = stored & ~(i64(0xFF) << shift)
        for value in range(256):
            size: i64 = kept | (i64(value) << shift)
            if size > RECORD_BYTES_MAX or first + size > end:
                continue
            writer = BytesWriter()
            write_i32_le(writer, i32(size))
            writer.write(kind)
            hasher = xxh3_64(writer.getvalue(), seed)
            hasher.update(data[first : first + size])
            if hasher.digest() == digest:
                return size
    return -1


def encode_record(kind: int, payload: bytes, seed: int) -> bytes:
    """Return a complete record."""
    writer = BytesWriter()
    write_i32_le(writer, len(payload))
    writer.append(kind)
    writer.write(payload)
    rest = writer.getvalue()
    return xxh3_64_digest(rest, seed) + rest


def write_message(writer: BytesWriter, message: Message) -> None:
    """Append a message without its body, which the caller appends."""
    write_i64_le(writer, message.timestamp_ms)
    writer.append(
        (1 if message.persistent else 0)
        | (2 if message.died else 0)
        | (4 if message.numbered else 0)
        | (8 if has_trail(message.address) else 0)
    )
    writer.write(message.address.wire)
    properties = with_trail(message)
    write_i32_le(writer, len(properties))
    writer.write(properties)


@final
class AddressCache:
    """A cache of the addresses read so far, which messages share.

    Most messages of a journal have one of few addresses, and an object for each message would take
    200 bytes.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Address] = {}

    def address(self, data: bytes, exchange: i64, routing_key: i64, end: i64) -> Address:
        """Return the address with an exchange and a routing key at these positions."""
        wire = data[exchange - 1 : end]
        address = self._known.get(wire)
        if address is None:
            address = Address(data[exchange : routing_key - 1], data[routing_key:end])
            if len(self._known) >= ADDRESSES_KNOWN_MAX:
                self._known.clear()
            self._known[wire] = address
        return address


def read_message(data: bytes, position: i64, end: i64, addresses: AddressCache) -> Message:
    """Return the message from `position` to `end`.

    Raises: Damaged if its lengths do not fit.
    """
    timestamp_ms = read_i64_le(data, position)
    flags: i64 = data[position + 8]
    exchange: i64 = position + 10
    routing_key: i64 = exchange + data[exchange - 1] + 1
    if routing_key > end:
        raise Damaged("a message's exchange exceeds its record")
    sizes: i64 = routing_key + data[routing_key - 1]
    properties: i64 = sizes + 4
    if properties > end:
        raise Damaged("a message's routing key exceeds its record")
    body: i64 = properties + i64(read_i32_le(data, sizes))
    if body < properties or body > end:
        raise Damaged("a message's properties exceed its record")
    address = addresses.address(data, exchange, routing_key, sizes)
    kept = data[properties:body]
    if flags & 8:
        place = trail_place(kept)
        if place < 0:
            raise Damaged("a message's trail exceeds its properties")
        address = trailed(address, kept, place)
        kept = kept[:place]
    return Message(
        address,
        kept,
        data[body:end],
        timestamp_ms,
        flags & 1 == 1,
        flags & 2 == 2,
        flags & 4 == 4,
    )


def write_string(writer: BytesWriter, text: bytes) -> None:
    """Append the length of `text`, which is at most 255 bytes, and `text` itself."""
    if len(text) > 255:
        raise ValueError("a stored name has at most 255 bytes")
    writer.append(len(text))
    writer.write(text)
