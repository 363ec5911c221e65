"""A chunk: messages of one queue or stream as columns, for the store and for Spark.

This module only encodes and decodes chunks; the store manages their places and lifetimes.

All integers are little-endian.  Every array and area begins at a multiple of 8 and is padded with
zeros to a multiple of 8, so that numpy and Arrow can read it in place.  `n` is the number of
messages, and `a` is the number of addresses.

Header, 128 bytes:

      0  8    magic "LVchunk3"
      8  u64  owner: the id of the queue or stream
     16  u64  first sequence (a stream's offset)      24  u64  last sequence
     32  i64  least timestamp, ms                     40  i64  greatest timestamp
     48  i64  least expiry, ms                        56  i64  greatest expiry
     64  u32  n                                       68  u32  a
     72  u64  bytes of the addresses                  80  u64  bytes of the properties
     88  u64  bytes of the bodies                     96  u64  bytes of the whole chunk
    104  8    digest of the bytes from 128 to the properties
    112  8    digest of the bytes from the properties to the end
    120  8    digest of bytes 0-119

Arrays from 128 on, one after the other:

    i64[n]  sequence minus the first    u32[n]  bytes of properties
    i64[n]  timestamp, ms               u32[n]  bytes of body
    i64[n]  expiry, ms; NEVER = none    u32[n]  index of its address
    8[n]    digest of properties and    u32[n]  delivery count
            body, seeded with the       u16[n]  flags, see below
            first number of its row     u32[a]  end of each address in the addresses

Flags: 1 = persistent, 2 = dead-lettered by a broker, 4 = a trail follows the properties (only in
the chunks of queues, see `wire/trail.py`); bits 8-15 = priority.

Because the first array is relative, a new header is enough to give a chunk another owner and other
sequences (`placed`).  In chunks of earlier releases, "LVchunk2", the first array has the sequences
themselves.

Areas: the addresses (each exchange and routing key as AMQP short strings), the properties (content
headers from their flags on), the bodies.

A reader checks one digest for all properties and bodies.  Only if it does not match, the digest of
each message shows the damaged messages.

Invariants: a digest is the 8 bytes of `xxh3_64_digest`.  A damaged header or array makes the whole
chunk unreadable; damaged properties or a damaged body make only that message unreadable.  Hostile
bytes raise only `ChunkDamaged` or `RecordDamaged`.  Memory is never allocated for an unchecked
length.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i32, i64
from xxhash import xxh3_64, xxh3_64_digest

from leveret.limits import CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX
from leveret.message import Address, Message
from leveret.wire.buffer import (
    BytesWriter,
    read_i16_le,
    read_i32_le,
    read_i64_le,
    write_i32_le,
    write_i64_le,
)
from leveret.wire.content.message_batch import MessageBatch
from leveret.wire.trail import TRAIL_FIXED_BYTES, has_trail, trail_place, trailed, with_trail

#: The prefix of both magics, and the magics of chunks with relative and with absolute sequences.
CHUNK_MARK: Final = b"LVchunk"
_RELATIVE: Final = b"LVchunk3"
_ABSOLUTE: Final = b"LVchunk2"

CHUNK_HEADER_BYTES: Final = 128

#: The expiry of a message that does not expire.
NEVER: Final = 0x7FFF_FFFF_FFFF_FFFF

#: The size of a message's entries in the arrays.
ROW_BYTES: Final = 50

#: The largest average size of bodies that are joined before they are written and digested.
_JOINED_BODY_BYTES_MAX: Final = 1024


#: The placeholder for a lost message.
_LOST: Final = Message(Address(b"", b""), b"\0\0", b"", 0, True)


class ChunkDamaged(Exception):
    """The header or an array of a chunk is damaged, so none of its messages can be read."""


class RecordDamaged(Exception):
    """A message of a chunk is damaged; the other messages are not affected."""

    def __init__(self, index: int, sequence: int) -> None:
        super().__init__(f"record {index}, sequence {sequence}, does not check")
        self.index = index
        self.sequence = sequence


@final
class ChunkBuilder:
    """Collects messages of one owner in ascending sequence, and builds a chunk of them.

    With `keeps_all`, as for streams, transient messages count as persistent.  With `trails`, the
    chunk also contains broker-internal data of messages, and must not be sent to clients.
    """

    def __init__(self, owner: i64, keeps_all: bool = False, trails: bool = False) -> None:
        self.owner: Final[i64] = owner
        self._keeps_all = keeps_all
        self._trails = trails
        self.count: i64 = 0
        self.first: i64 = 0
        self.last: i64 = -1
        self.min_timestamp: i64 = NEVER
        self.max_timestamp: i64 = 0
        #: The earliest expiry of a single message.
        self.min_expiry: i64 = NEVER
        self._max_expiry: i64 = 0
        #: The number of persistent messages, their size, and the size of their bodies.
        self.persistent: i64 = 0
        self.persistent_bytes: i64 = 0
        self.persistent_bodies: i64 = 0
        #: The greatest delivery count.
        self.count_max: i64 = 0
        self._sequences = BytesWriter()
        self._timestamps = BytesWriter()
        self._expiries = BytesWriter()
        self._digests = BytesWriter()
        self._property_sizes = BytesWriter()
        self._body_sizes = BytesWriter()
        self._address_indexes = BytesWriter()
        self._delivery_counts = BytesWriter()
        self._flags = BytesWriter()
        self._address_ends = BytesWriter()
        self._addresses = BytesWriter()
        self._properties = BytesWriter()
        self._holes = False
        self._bodies: list[bytes] = []
        self._body_bytes: i64 = 0
        self._known: dict[bytes, int] = {}

    def add(
        self,
        sequence: i64,
        message: Message,
        delivery_count: i64 = 0,
        expiry_ms: i64 = NEVER,
        priority: i64 = 0,
    ) -> None:
        """Add a message with a higher sequence than all earlier messages."""
        if self.count > 0 and sequence <= self.last:
            raise ValueError("a chunk's sequences ascend")
        if self.count == 0:
            self.first = sequence
        self.last = sequence
        self.count += 1
        self.min_timestamp = min(self.min_timestamp, message.timestamp_ms)
        self.max_timestamp = max(self.max_timestamp, message.timestamp_ms)
        self.min_expiry = min(self.min_expiry, expiry_ms)
        self._max_expiry = max(self._max_expiry, expiry_ms)
        write_i64_le(self._sequences, sequence - self.first)
        write_i64_le(self._timestamps, message.timestamp_ms)
        write_i64_le(self._expiries, expiry_ms)
        properties = message.properties
        flags: i64 = (1 if message.persistent else 0) | (2 if message.died else 0)
        if self._trails and has_trail(message.address):
            properties = with_trail(message)
            flags |= 4
        self._digests.write(_record_digest(sequence - self.first, properties, message.body))
        write_i32_le(self._property_sizes, i32(len(properties)))
        write_i32_le(self._body_sizes, i32(len(message.body)))
        write_i32_le(self._address_indexes, i32(self._address(message.address.wire)))
        write_i32_le(self._delivery_counts, i32(delivery_count))
        self.count_max = max(self.count_max, delivery_count)
        if message.persistent or self._keeps_all:
            self.persistent += 1
            self.persistent_bytes += message.size
            self.persistent_bodies += len(message.body)
        self._flags.append(int(flags))
        self._flags.append(int(priority & 255))
        self._properties.write(properties)
        self._bodies.append(message.body)
        self._body_bytes += len(message.body)

    def add_batch(
        self, first: i64, address: Address, timestamp_ms: i64, batch: MessageBatch
    ) -> None:
        """Add the messages of a batch, which do not expire, from the sequence `first` on.

        They must be the only messages of the chunk; they count as persistent.
        """
        if self.count > 0:
            raise ValueError("a batch is a chunk of its own")
        count = batch.count
        self.first, self.last, self.count = first, first + count - 1, count
        self.min_timestamp = self.max_timestamp = timestamp_ms
        self._max_expiry = NEVER
        property_end: i64 = 0
        body_end: i64 = 0
        for index in range(count):
            properties_at, body_at = property_end, body_end
            property_end += i64(read_i32_le(batch.property_sizes, 4 * index))
            body_end += i64(read_i32_le(batch.body_sizes, 4 * index))
            properties = batch.properties[properties_at:property_end]
            body = batch.bodies[body_at:body_end]
            write_i64_le(self._sequences, index)
            write_i64_le(self._timestamps, timestamp_ms)
            write_i64_le(self._expiries, NEVER)
            self._digests.write(_record_digest(index, properties, body))
        number = int(count)
        self._property_sizes.write(batch.property_sizes)
        self._body_sizes.write(batch.body_sizes)
        self._address(address.wire)
        self._address_indexes.write(bytes(4 * number))
        self._delivery_counts.write(bytes(4 * number))
        self._flags.write(b"\1\0" * number)
        self._properties.write(batch.properties)
        self._bodies.append(batch.bodies)
        self._body_bytes = len(batch.bodies)
        self.persistent = count
        self.persistent_bodies = len(batch.bodies)
        self.persistent_bytes = len(batch.properties) + len(batch.bodies)

    def add_lost(self, sequence: i64) -> None:
        """Add a placeholder for a lost message, with a deliberately wrong digest."""
        before = self._digests.getvalue()
        self.add(sequence, _LOST)
        digest = self._digests.getvalue()[len(before) :]
        self._digests = BytesWriter()
        self._digests.write(before)
        self._digests.write(bytes([byte ^ 0xFF for byte in digest]))
        self._holes = True

    @property
    def size(self) -> int:
        """The approximate size of the chunk in bytes."""
        return int(
            CHUNK_HEADER_BYTES
            + self.count * ROW_BYTES
            + len(self._addresses)
            + len(self._properties)
            + self._body_bytes
        )

    @property
    def full(self) -> bool:
        """Whether the chunk has reached its maximum size or number of messages."""
        return self.count >= CHUNK_RECORDS_MAX or self.size >= CHUNK_BYTES_MAX

    def build(self) -> bytes:
        """Return the encoded chunk."""
        return b"".join(self.parts())

    def parts(self) -> list[bytes]:
        """Return the encoded chunk in parts; large bodies are not copied."""
        if self.count == 0:
            raise ValueError("a chunk has at least one message")
        arrays = BytesWriter()
        for column in (
            self._sequences,
            self._timestamps,
            self._expiries,
            self._digests,
            self._property_sizes,
            self._body_sizes,
            self._address_indexes,
            self._delivery_counts,
            self._flags,
            self._address_ends,
            self._addresses,
        ):
            _write_padded(arrays, column.getvalue())
        index = arrays.getvalue()
        properties = BytesWriter()
        _write_padded(properties, self._properties.getvalue())
        contents = [properties.getvalue()]
        if self._body_bytes <= _JOINED_BODY_BYTES_MAX * self.count:
            contents.append(b"".join(self._bodies))
        else:
            contents.extend(self._bodies)
        contents.append(bytes(int(-self._body_bytes & 7)))
        hasher = xxh3_64()
        for content in contents:
            hasher.update(content)
        digest = hasher.digest()
        if self._holes:
            # Make the common digest wrong, too.
            digest = bytes([byte ^ 0xFF for byte in digest])
        head = self._header(index, len(properties), digest)
        return [part for part in [head, index, *contents] if part]

    def _header(self, index: bytes, properties: i64, digest: bytes) -> bytes:
        """Return the header for `index`, which contains the arrays and the addresses.

        `properties` is the padded size of the properties.  `digest` is the digest of all bytes from
        the properties on.
        """
        bodies = self._body_bytes
        writer = BytesWriter()
        writer.write(_RELATIVE)
        write_i64_le(writer, self.owner)
        write_i64_le(writer, self.first)
        write_i64_le(writer, self.last)
        write_i64_le(writer, self.min_timestamp)
        write_i64_le(writer, self.max_timestamp)
        write_i64_le(writer, self.min_expiry)
        write_i64_le(writer, self._max_expiry)
        write_i32_le(writer, i32(self.count))
        write_i32_le(writer, i32(len(self._known)))
        write_i64_le(writer, len(self._addresses))
        write_i64_le(writer, len(self._properties))
        write_i64_le(writer, bodies)
        write_i64_le(writer, CHUNK_HEADER_BYTES + len(index) + properties + _padded(bodies))
        writer.write(xxh3_64_digest(index))
        writer.write(digest)
        head = writer.getvalue()
        return head + xxh3_64_digest(head)

    def _address(self, wire: bytes) -> int:
        """Return the index of an address; add a new address."""
        index = self._known.get(wire)
        if index is None:
            index = len(self._known)
            self._known[wire] = index
            self._addresses.write(wire)
            write_i32_le(self._address_ends, i32(len(self._addresses)))
        return index


def is_chunk_head(head: bytes) -> bool:
    """Return whether `head` is an intact header of a chunk."""
    return (
        len(head) == CHUNK_HEADER_BYTES
        and head[:8] in (_RELATIVE, _ABSOLUTE)
        and xxh3_64_digest(head[:120]) == head[120:]
    )


def chunk_size(head: bytes) -> i64:
    """Return the size of the chunk that begins with `head`.  Raises: ChunkDamaged."""
    if not is_chunk_head(head):
        raise ChunkDamaged("not a chunk, or its header is damaged")
    return read_i64_le(head, 96)


def placed(data: bytes, owner: i64, first: i64) -> bytes:
    """Return a chunk, or its beginning, with another owner and `first` as its first sequence.

    Raises: ChunkDamaged if its header is damaged, or from an earlier release.
    """
    head = data[:CHUNK_HEADER_BYTES]
    if not is_chunk_head(head) or not head.startswith(_RELATIVE):
        raise ChunkDamaged("not a chunk, or its header is damaged")
    writer = BytesWriter()
    writer.write(_RELATIVE)
    write_i64_le(writer, owner)
    write_i64_le(writer, first)
    write_i64_le(writer, first + read_i64_le(head, 24) - read_i64_le(head, 16))
    writer.write(head[32:120])
    changed = writer.getvalue()
    return changed + xxh3_64_digest(changed) + data[CHUNK_HEADER_BYTES:]


class ChunkLayout:
    """The header and the offsets of the parts of a chunk; messages are not checked.

    Raises: ChunkDamaged if the header or an array is damaged.
    """

    def __init__(self, data: bytes) -> None:
        if not is_chunk_head(data[:CHUNK_HEADER_BYTES]):
            raise ChunkDamaged("not a chunk, or its header is damaged")
        self.data: Final = data
        self.owner: Final[i64] = read_i64_le(data, 8)
        self.first: Final[i64] = read_i64_le(data, 16)
        self.last: Final[i64] = read_i64_le(data, 24)
        #: The sequence that the numbers in the first array are relative to.
        self.base: Final[i64] = self.first if data.startswith(_RELATIVE) else 0
        self.min_timestamp: Final[i64] = read_i64_le(data, 32)
        self.max_timestamp: Final[i64] = read_i64_le(data, 40)
        self.min_expiry: Final[i64] = read_i64_le(data, 48)
        self.max_expiry: Final[i64] = read_i64_le(data, 56)
        self.count: Final[i64] = i64(read_i32_le(data, 64))
        self.address_count: Final[i64] = i64(read_i32_le(data, 68))
        self.address_bytes: Final[i64] = read_i64_le(data, 72)
        self.property_bytes: Final[i64] = read_i64_le(data, 80)
        self.body_bytes: Final[i64] = read_i64_le(data, 88)
        self.size: Final[i64] = read_i64_le(data, 96)
        for figure in (
            self.count,
            self.address_count,
            self.address_bytes,
            self.property_bytes,
            self.body_bytes,
        ):
            if figure < 0 or figure > len(data):
                raise ChunkDamaged("a chunk's header contains impossible numbers")
        #: The start of the arrays with four bytes per entry: properties, body, address, count.
        self.sizes_at: Final[i64] = CHUNK_HEADER_BYTES + 32 * self.count
        self.flags_at: Final[i64] = self.sizes_at + 4 * _padded(4 * self.count)
        self.ends_at: Final[i64] = self.flags_at + _padded(2 * self.count)
        self.addresses_at: Final[i64] = self.ends_at + _padded(4 * self.address_count)
        self.properties_at: Final[i64] = self.addresses_at + _padded(self.address_bytes)
        self.bodies_at: Final[i64] = self.properties_at + _padded(self.property_bytes)
        if self.size != self.bodies_at + _padded(self.body_bytes) or self.size > len(data):
            raise ChunkDamaged("a chunk is shorter or longer than its parts")
        index = data[CHUNK_HEADER_BYTES : self.properties_at]
        if xxh3_64_digest(index) != data[104:112]:
            raise ChunkDamaged("a chunk's arrays are damaged")

    def is_intact(self) -> bool:
        """Return whether properties and bodies match their common digest."""
        contents = memoryview(self.data)[self.properties_at : self.size]
        return xxh3_64_digest(contents) == self.data[112:120]

    def read_addresses(self) -> list[Address]:
        """Return the addresses.  Raises: ChunkDamaged."""
        found: list[Address] = []
        total = self.address_bytes
        start: i64 = 0
        for index in range(self.address_count):
            end = i64(read_i32_le(self.data, self.ends_at + 4 * index))
            if end < start + 2 or end > total:
                raise ChunkDamaged("a chunk's addresses exceed their area")
            at = self.addresses_at + start
            key: i64 = at + 1 + self.data[at]
            if key >= self.addresses_at + end or key + 1 + self.data[key] != (
                self.addresses_at + end
            ):
                raise ChunkDamaged("a chunk's address is not a pair of short strings")
            found.append(
                Address(self.data[at + 1 : key], self.data[key + 1 : self.addresses_at + end])
            )
            start = end
        return found


@final
class Chunk(ChunkLayout):
    """A chunk whose messages are read one by one.

    Raises: ChunkDamaged if its header or its arrays are damaged.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        #: Whether all messages are intact; None until the common digest is checked.
        self._intact: bool | None = None
        self._property_ends = self._sums(self.sizes_at, self.property_bytes)
        self._body_ends = self._sums(self.sizes_at + _padded(4 * self.count), self.body_bytes)
        self._addresses = self.read_addresses()

    def sequence(self, index: i64) -> i64:
        """Return the sequence of message `index`."""
        return self.base + read_i64_le(self.data, CHUNK_HEADER_BYTES + 8 * self._checked(index))

    def timestamp_ms(self, index: i64) -> i64:
        """Return the time when message `index` was received, in ms since the epoch."""
        at: i64 = CHUNK_HEADER_BYTES + 8 * self.count
        return read_i64_le(self.data, at + 8 * self._checked(index))

    def expiry_ms(self, index: i64) -> i64:
        """Return the time when message `index` expires, in ms since the epoch, or `NEVER`."""
        return read_i64_le(self.data, self._expiries_at() + 8 * self._checked(index))

    def delivery_count(self, index: i64) -> i64:
        """Return the number of deliveries of message `index` before it was stored."""
        at = self.sizes_at + 3 * _padded(4 * self.count)
        return i64(read_i32_le(self.data, at + 4 * self._checked(index)))

    def priority(self, index: i64) -> i64:
        """Return the priority of message `index`, 0 to 255."""
        return (i64(read_i16_le(self.data, self.flags_at + 2 * self._checked(index))) >> 8) & 255

    def address(self, index: i64) -> Address:
        """Return the exchange and the routing key of message `index`.  Raises: RecordDamaged."""
        at = self.sizes_at + 2 * _padded(4 * self.count)
        number = i64(read_i32_le(self.data, at + 4 * self._checked(index)))
        if number < 0 or number >= len(self._addresses):
            raise RecordDamaged(index, self.sequence(index))
        return self._addresses[number]

    def message(self, index: i64) -> Message:
        """Return message `index`.

        Raises: RecordDamaged if its bytes do not match its digest.
        """
        data = self.data
        properties = self.properties_at + (self._property_ends[index - 1] if index > 0 else 0)
        body = self.bodies_at + (self._body_ends[index - 1] if index > 0 else 0)
        property_bytes = data[properties : self.properties_at + self._property_ends[index]]
        body_bytes = data[body : self.bodies_at + self._body_ends[index]]
        sequence = self.sequence(index)
        if not self._all_check():
            at: i64 = self._expiries_at() + 8 * self.count + 8 * index
            digest = _record_digest(sequence - self.base, property_bytes, body_bytes)
            if digest != data[at : at + 8]:
                raise RecordDamaged(index, sequence)
        flags: i64 = i64(read_i16_le(data, self.flags_at + 2 * index))
        address = self.address(index)
        if flags & 4:
            place = trail_place(property_bytes)
            if place < 0:
                raise RecordDamaged(index, sequence)
            address = trailed(address, property_bytes, place)
            property_bytes = property_bytes[:place]
        return Message(
            address,
            property_bytes,
            body_bytes,
            self.timestamp_ms(index),
            flags & 1 == 1,
            flags & 2 == 2,
        )

    def damaged(self) -> list[int]:
        """Return the sequences of the damaged messages."""
        if self._all_check():
            return []
        return [int(self.sequence(at)) for at in range(self.count) if not self._checks(at)]

    def with_messages(self, found: dict[i64, Message]) -> bytes:
        """Return the encoded chunk with the given messages written over damaged ones."""
        data = bytearray(self.data)
        for sequence, message in found.items():
            index = self.find(sequence)
            flags: i64 = i64(read_i16_le(self.data, self.flags_at + 2 * index))
            properties = with_trail(message) if flags & 4 else message.properties
            at: i64 = self.properties_at + (self._property_ends[index - 1] if index > 0 else 0)
            body: i64 = self.bodies_at + (self._body_ends[index - 1] if index > 0 else 0)
            if (
                at + len(properties) == self.properties_at + self._property_ends[index]
                and body + len(message.body) == self.bodies_at + self._body_ends[index]
            ):
                data[at : at + len(properties)] = properties
                data[body : body + len(message.body)] = message.body
        # Rewrite the padding, which may be damaged, too.
        for end, area in (
            (self.properties_at + self.property_bytes, self.bodies_at),
            (self.bodies_at + self.body_bytes, self.size),
        ):
            data[end:area] = bytes(int(area - end))
        return bytes(data)

    def _all_check(self) -> bool:
        """Return whether all messages match their common digest, which is checked once."""
        if self._intact is None:
            self._intact = self.is_intact()
        return self._intact

    def _checks(self, index: i64) -> bool:
        """Return whether the bytes of message `index` match its digest."""
        data = self.data
        properties = self.properties_at + (self._property_ends[index - 1] if index > 0 else 0)
        body = self.bodies_at + (self._body_ends[index - 1] if index > 0 else 0)
        at: i64 = self._expiries_at() + 8 * self.count + 8 * index
        digest = _record_digest(
            self.sequence(index) - self.base,
            data[properties : self.properties_at + self._property_ends[index]],
            data[body : self.bodies_at + self._body_ends[index]],
        )
        return digest == data[at : at + 8]

    def sizes(self, index: i64) -> tuple[int, int]:
        """Return the sizes of properties and body of message `index`, as counted in its `size`."""
        self._checked(index)
        properties = self._property_ends[index] - (self._property_ends[index - 1] if index else 0)
        if read_i16_le(self.data, self.flags_at + 2 * index) & 4:
            properties -= TRAIL_FIXED_BYTES
        body = self._body_ends[index] - (self._body_ends[index - 1] if index else 0)
        return properties, body

    def persistent(self, index: i64) -> bool:
        """Return whether message `index` is persistent."""
        return read_i16_le(self.data, self.flags_at + 2 * self._checked(index)) & 1 == 1

    def find(self, sequence: i64) -> i64:
        """Return the index of the first message with this or a higher sequence."""
        low: i64 = 0
        high: i64 = self.count
        while low < high:
            middle: i64 = (low + high) >> 1
            if self.sequence(middle) < sequence:
                low = middle + 1
            else:
                high = middle
        return low

    def _checked(self, index: i64) -> i64:
        """Return `index` if the chunk has a message with it.  Raises: IndexError."""
        if index < 0 or index >= self.count:
            raise IndexError("a chunk has no such message")
        return index

    def _expiries_at(self) -> i64:
        """Return the offset of the expiries."""
        return CHUNK_HEADER_BYTES + 16 * self.count

    def _sums(self, at: i64, total: i64) -> list[int]:
        """Return the running sums of the sizes at `at`, whose sum must be `total`.

        Raises: ChunkDamaged.
        """
        sums: list[int] = []
        end: i64 = 0
        for index in range(self.count):
            size = i64(read_i32_le(self.data, at + 4 * index))
            end += size
            if size < 0 or end > total:
                raise ChunkDamaged("a chunk's lengths exceed its bytes")
            sums.append(int(end))
        if end != total:
            raise ChunkDamaged("a chunk's lengths do not add up")
        return sums


def _record_digest(number: i64, properties: bytes, body: bytes) -> bytes:
    """Return the digest of a message, seeded with its number in the first array."""
    if len(body) < 1024:
        return xxh3_64_digest(properties + body, int(number & NEVER))
    hasher = xxh3_64(properties, int(number & NEVER))
    hasher.update(body)
    return hasher.digest()


def _padded(size: i64) -> i64:
    """Return `size` rounded up to a multiple of 8."""
    return (size + 7) & -8


def _write_padded(writer: BytesWriter, data: bytes) -> None:
    """Append `data` and zeros up to a multiple of 8."""
    writer.write(data)
    for _ in range(-len(data) & 7):
        writer.append(0)
