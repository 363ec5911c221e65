"""The end of the journal, where records are gathered in memory until they are written and synced.

All durable changes are appended here in one order: definitions, messages, acks.  A record is
appended synchronously, and is durable when `durable_group` has reached the value that `group` had
at that moment.  `seal` returns the gathered records as a `JournalGroup`.  `files.py` writes and
syncs it, which the caller reports by `synced`.  Until then, records are gathered in the next group.
There is no timer.

This module does no I/O and reads no clock.  `record.py` defines the layout of the bytes.

Invariants: records are in the order of the calls, except for acks, which are gathered and appended
at the end of the group, or when there are many.  No later record depends on an ack, because a
sequence is never reused.  A body of `BODY_APART_BYTES` or more is never copied.  A record never
spans two groups.  The journal refers to a body that it has in parts (`body_ahead.py`) at most once.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final, cast, final

from mypy_extensions import i32, i64, mypyc_attr, u8
from xxhash import xxh3_64, xxh3_64_digest

from leveret.limits import BODY_APART_BYTES, JOURNAL_FILE_BYTES
from leveret.message import Message
from leveret.store.records.definition import Definition, write_definition
from leveret.store.records.publish_session import PublishProgress, write_progress
from leveret.store.records.record import (
    ACK,
    BODY_PART,
    CHECKPOINT,
    CLEAN_STOP,
    CONSUMER_OFFSET,
    DEFINE,
    DELETE,
    DIGEST_BYTES,
    FORGOTTEN,
    GROUP_HEADER_BYTES,
    MOVE,
    PUBLISH,
    PUBLISH_IN_PARTS,
    PUBLISH_SESSION,
    PURGE,
    RECORD_BYTES_MAX,
    RECORD_HEAD_BYTES,
    REQUEUE,
    RETAINED_COUNT,
    SPILL,
    TRIM,
    TX,
    encode_group_header,
    write_message,
    write_string,
)
from leveret.store.segments.chunk_record import write_chunk_ref
from leveret.store.segments.segments import ChunkRef
from leveret.wire.buffer import BytesWriter, write_i32_le, write_i64_le

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.store.journal.body_ahead import BodyAhead

#: The maximum number of ranges of acks in a record, which limits the loss if it is damaged.
ACK_RANGES_PER_RECORD_MAX: Final = 512


#: From this size on, hashing a body in place is cheaper than copying it after its record's head.
_HASH_APART_BYTES: Final = 1024

#: The payload of a publish record begins with the number of targets, which is written last.
_PUBLISH_START: Final = RECORD_HEAD_BYTES + 4

_ACK_RANGE_BYTES: Final = 24

#: The bits below the group in a body's number, for the bodies that begin in one group.
_BODY_BITS: Final[i64] = 16

#: References that compiled code can use without a look-up.  Their parameter for the seed is an
#: object, because compiled code stores an `int` unboxed, and would box it for each record.
_digest: Final = cast("Callable[[bytes, object], bytes]", xxh3_64_digest)
_hasher: Final = cast("Callable[[bytes, object], xxh3_64]", xxh3_64)


@final
class JournalGroup:
    """A group of records that is written and synced together.

    `parts` are the bytes in order, header first, and `size` is their total size.  `number` is the
    group's number and `file_number` its journal file's.
    """

    def __init__(self, number: i64, file_number: i64, records: i64, parts: list[bytes]) -> None:
        size: i64 = 0
        for part in parts:
            size += len(part)
        self.number: Final[i64] = number
        self.file_number: Final[i64] = file_number
        self.records: Final[i64] = records
        self.parts: Final = parts
        self.size: Final[i64] = size

    @property
    def data(self) -> bytes:
        """The parts joined, for tests and tools; this copies them."""
        return b"".join(self.parts)


@mypyc_attr(allow_interpreted_subclasses=True)
class LateRecord:
    """A record that the journal appends later; see `Journal.later` and `Journal.at_end`."""

    @abstractmethod
    def append_to(self, journal: Journal) -> None:
        """Append the record."""


@final
class Journal:
    """The open end of the journal.

    `group` is the number of the group being filled, `durable_group` the number of the newest synced
    group, `unsynced_bytes` the number of bytes appended but not synced, `time_ms` the time of the
    next group, `file_number` the file of the last sealed group, `bytes_since_roll` the number of
    bytes sealed since the last checkpoint began, and `rolls` the number of checkpoints begun.
    `bodies_open` is the number of bodies that are being written ahead of their messages, and
    `ahead` a complete one, whose message follows.
    """

    def __init__(self, seed: int = 0, group: i64 = 1, file_number: i64 = 1) -> None:
        self.group: i64 = group
        self.durable_group: i64 = group - 1
        self.unsynced_bytes: i64 = 0
        self.time_ms: i64 = 0
        self.file_number: i64 = file_number
        self.bytes_since_roll: i64 = 0
        self.rolls: i64 = 0
        self.bodies_open: i64 = 0
        self.ahead: BodyAhead | None = None
        self._body_number: i64 = 0
        #: Whether the group being filled refers to a body, and the groups that `roll` sealed early.
        self._refers = False
        self._early: list[JournalGroup] = []
        #: The size from which the next group begins a new file.
        self.file_bytes_max: i64 = JOURNAL_FILE_BYTES
        self._seed = seed
        self._record_seed: object = seed ^ int(group)
        self._file_bytes: i64 = 0
        self._rolling = False
        self._records: i64 = 0
        self._size: i64 = 0
        self._parts: list[bytes] = []
        self._out = BytesWriter()
        self._sealed: list[JournalGroup] = []
        #: The records to append to the next group.
        self._late: list[LateRecord] = []
        #: The records to append after all others of this group.
        self._last: list[LateRecord] = []
        self._publish = _scratch(_PUBLISH_START)
        self._targets: i64 = 0
        self._other = _scratch(RECORD_HEAD_BYTES)
        self._ack_queue: i64 = -1
        self._ack_first: i64 = 0
        self._ack_last: i64 = 0
        self._acks = _scratch(RECORD_HEAD_BYTES)
        self._in_tx = False
        self._tx = _scratch(RECORD_HEAD_BYTES)
        self._tx_parts: list[bytes] = []
        self._tx_size: i64 = 0

    # -- messages ----------------------------------------------------------------------------------

    def target(self, queue_id: i64, sequence: i64) -> None:
        """Add a target queue of the next published message, with the message's sequence in it."""
        writer = self._publish
        write_i64_le(writer, queue_id)
        write_i64_le(writer, sequence)
        self._targets += 1

    def publish(self, message: Message) -> None:
        """Append a message for all targets added since the last message."""
        writer = self._publish
        count = self._targets
        writer[5] = u8(count & 0xFF)
        writer[6] = u8((count >> 8) & 0xFF)
        writer[7] = u8((count >> 16) & 0xFF)
        writer[8] = u8((count >> 24) & 0xFF)
        self._targets = 0
        write_message(writer, message)
        self._append_message(PUBLISH, message.body)

    def move(self, queue_id: i64, sequence: i64, message: Message) -> None:
        """Append the ack of a message and its publish to the added targets, as one record.

        The record contains the changed message, because replay cannot look up the original, which
        a checkpoint may have omitted.
        """
        writer = self._publish
        count = self._targets
        writer[5] = u8(count & 0xFF)
        writer[6] = u8((count >> 8) & 0xFF)
        writer[7] = u8((count >> 16) & 0xFF)
        writer[8] = u8((count >> 24) & 0xFF)
        self._targets = 0
        write_i64_le(writer, queue_id)
        write_i64_le(writer, sequence)
        write_message(writer, message)
        self._append_message(MOVE, message.body)

    def new_body(self) -> i64:
        """Return the number of a body to append in parts; no other body of the store has it."""
        self._body_number = max(self._body_number + 1, self.group << _BODY_BITS)
        return self._body_number

    def body_part(self, number: i64, offset: i64, piece: bytes) -> None:
        """Append a part of a body; an empty one drops the body."""
        writer = self._other
        write_i64_le(writer, number)
        write_i64_le(writer, offset)
        self._append(writer, RECORD_HEAD_BYTES, BODY_PART, piece)

    def ack(self, queue_id: i64, first: i64, last: i64) -> None:
        """Append that the messages `first` to `last` of a queue are removed; runs are merged."""
        if queue_id == self._ack_queue and first == self._ack_last + 1:
            self._ack_last = last
        else:
            self._start_ack_run(queue_id, first, last)

    def retain(self, queue_id: i64, sequence: i64) -> None:
        """Append that a message is acked, but that its queue retains it for a rewind."""
        self.requeue(queue_id, sequence, RETAINED_COUNT)

    def requeue(self, queue_id: i64, sequence: i64, delivery_count: i64) -> None:
        """Append that a message was requeued, with its delivery count."""
        writer = self._other
        write_i64_le(writer, queue_id)
        write_i64_le(writer, sequence)
        write_i32_le(writer, i32(delivery_count))
        self._append(writer, RECORD_HEAD_BYTES, REQUEUE, b"")

    def purge(self, queue_id: i64, below_sequence: i64) -> None:
        """Append that every message of a queue below a sequence is removed.

        This includes unacked messages.  If they must stay, append acks of the others instead.
        """
        writer = self._other
        write_i64_le(writer, queue_id)
        write_i64_le(writer, below_sequence)
        self._append(writer, RECORD_HEAD_BYTES, PURGE, b"")

    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Append that `first_offset` is now the first offset of a stream."""
        writer = self._other
        write_i64_le(writer, queue_id)
        write_i64_le(writer, first_offset)
        self._append(writer, RECORD_HEAD_BYTES, TRIM, b"")

    def consumer_offset(self, queue_id: i64, consumer: bytes, offset: i64) -> None:
        """Append the offset of a named consumer of a stream."""
        self._append_named(CONSUMER_OFFSET, queue_id, consumer, offset)

    def forget_consumer(self, queue_id: i64, consumer: bytes) -> None:
        """Append that a stream forgets the offset of a named consumer."""
        self._append_named(CONSUMER_OFFSET, queue_id, consumer, FORGOTTEN)

    def spill(self, queue_id: i64, ref: ChunkRef, gone: list[tuple[int, int]]) -> None:
        """Append a reference to a durable chunk of a queue, whose sequences `gone` are removed."""
        writer = _scratch(RECORD_HEAD_BYTES)
        write_i64_le(writer, queue_id)
        write_chunk_ref(writer, ref)
        for first, last in gone:
            write_i64_le(writer, first)
            write_i64_le(writer, last)
        self._flush_acks()
        self._append(writer, RECORD_HEAD_BYTES, SPILL, b"")

    def later(self, record: LateRecord) -> None:
        """Append `record` to a group after those of all records appended so far.

        A crash may leave any part of the newest group, but the groups before it are then durable.
        """
        if self.has_records():
            self._late.append(record)
        else:
            record.append_to(self)

    def at_end(self, record: LateRecord) -> None:
        """Append `record` at the end of the next sealed group."""
        self._last.append(record)

    def publish_session(self, progress: PublishProgress) -> None:
        """Append the progress of the publishes on a client's channel."""
        writer = _scratch(RECORD_HEAD_BYTES)
        write_progress(writer, progress)
        self._append(writer, RECORD_HEAD_BYTES, PUBLISH_SESSION, b"")

    # -- definitions and marks ---------------------------------------------------------------------

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Append a definition: a vhost, exchange, queue, binding, user, permission or policy.

        Call this before changing the state.  If that is impossible, create a `Definition` first,
        and append it by `define_made`.

        Raises: PreconditionFailed (406) if a value cannot be stored; nothing is appended.
        """
        self.define_made(Definition(kind, definition))

    def define_made(self, definition: Definition) -> None:
        """Append a valid definition."""
        writer = _scratch(RECORD_HEAD_BYTES)
        writer.write(definition.payload)
        self._append(writer, RECORD_HEAD_BYTES, DEFINE, b"")

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Append the deletion of a definition, with at least the fields that identify it."""
        writer = _scratch(RECORD_HEAD_BYTES)
        write_definition(writer, kind, definition)
        self._append(writer, RECORD_HEAD_BYTES, DELETE, b"")

    def checkpoint(self, generation: i64, uuid: bytes = b"") -> None:
        """Append that the checkpoint `generation` began.

        With the store's `uuid`, this generation of the journal can be read without `format`.
        """
        write_i64_le(self._other, generation)
        self._other.write(uuid)
        self._append(self._other, RECORD_HEAD_BYTES, CHECKPOINT, b"")

    def clean_stop(self, time_ms: i64) -> None:
        """Append that the broker stopped cleanly; valid only as the journal's last record."""
        self._flush_acks()
        self._append_last()
        write_i64_le(self._other, time_ms)
        self._append(self._other, RECORD_HEAD_BYTES, CLEAN_STOP, b"")

    def begin_tx(self) -> None:
        """Combine all records up to `end_tx` in one, so that a crash leaves all of them or none."""
        if self._in_tx:
            raise RuntimeError("a transaction's record is open already")
        self._close_ack_run()
        self._in_tx = True

    def end_tx(self) -> None:
        """Append the transaction's record; a transaction without operations writes nothing."""
        if not self._in_tx:
            raise RuntimeError("no transaction's record is open")
        self._in_tx = False
        writer = self._tx
        if self._tx_size == 0:
            return
        self._tx_size = 0
        if not self._tx_parts and len(writer) < BODY_APART_BYTES:
            self._append(writer, RECORD_HEAD_BYTES, TX, b"")
            return
        if len(writer) > 0:
            self._tx_parts.append(writer.getvalue())
        parts, self._tx_parts = self._tx_parts, []
        self._tx = _scratch(RECORD_HEAD_BYTES)
        self._append_parts(TX, parts)

    # -- groups ------------------------------------------------------------------------------------

    @property
    def in_tx(self) -> bool:
        """Whether a transaction is open."""
        return self._in_tx

    def has_records(self) -> bool:
        """Return whether the group has records."""
        return self._records > 0 or self._ack_queue >= 0 or len(self._acks) > RECORD_HEAD_BYTES

    @property
    def last_group(self) -> i64:
        """The group that contains the last appended record, including late records."""
        if self._late:
            return self.group + 1
        return self.group if self.has_records() else self.group - 1

    def seal(self) -> JournalGroup | None:
        """Return the next group to write, and begin another one; return None without records."""
        if self._early:
            return self._early.pop(0)
        return self._seal()

    def _seal(self) -> JournalGroup | None:
        """Begin the next group; return the gathered records, or None if there are none."""
        if self._in_tx:
            raise RuntimeError("a transaction's record is open")
        self._flush_acks()
        if self._records == 0:
            return None
        if self._last:
            self._append_last()
        if self._rolling or self._file_bytes >= self.file_bytes_max:
            self._rolling = False
            self.file_number += 1
            self._file_bytes = 0
        header = encode_group_header(
            self._seed,
            self.file_number,
            self.group,
            self._size,
            self.durable_group,
            self._records,
            time_ms=self.time_ms,
        )
        parts = [header]
        parts.extend(self._parts)
        if len(self._out) > 0:
            parts.append(self._out.getvalue())
        group = JournalGroup(self.group, self.file_number, self._records, parts)
        self._sealed.append(group)
        self.unsynced_bytes += GROUP_HEADER_BYTES
        self._file_bytes += group.size
        self.bytes_since_roll += group.size
        self._begin_group()
        late, self._late = self._late, []
        for record in late:
            record.append_to(self)
        return group

    def synced(self, number: i64) -> None:
        """Mark all groups up to `number` as durable."""
        while self._sealed and self._sealed[0].number <= number:
            self.unsynced_bytes -= self._sealed.pop(0).size
        if self._sealed and number >= self._sealed[0].number:
            raise RuntimeError("groups become durable in order")
        if number >= self.group:
            raise RuntimeError("a group that is not sealed cannot be durable")
        self.durable_group = max(self.durable_group, number)

    def roll(self) -> i64:
        """Make the next group begin a new file; return the group's number, where replay starts.

        Append a record before any other call, because `has_records` must be True.
        """
        if self._refers:
            # Replay would find the reference to a body, but not its parts in earlier groups.
            group = self._seal()
            if group is not None:
                self._early.append(group)
        self._rolling = self._file_bytes > 0
        self.rolls += 1
        self.bytes_since_roll = 0
        return self.group

    @property
    def next_file_number(self) -> int:
        """The number of the file of the next group, if it is sealed now."""
        full = self._rolling or self._file_bytes >= self.file_bytes_max
        return int(self.file_number) + 1 if full else int(self.file_number)

    # -- inside ------------------------------------------------------------------------------------

    def _append_last(self) -> None:
        """Append the records of `at_end`."""
        last, self._last = self._last, []
        for record in last:
            record.append_to(self)

    def _begin_group(self) -> None:
        """Start an empty group after the sealed one."""
        self.group += 1
        self._refers = False
        self._record_seed = self._seed ^ int(self.group)
        self._records = 0
        self._size = 0
        self._parts = []
        self._out = BytesWriter()

    def _append_message(self, kind: i64, body: bytes) -> None:
        """Frame the message in `_publish`; a small body is copied after its head."""
        writer = self._publish
        if len(body) < _HASH_APART_BYTES:
            writer.write(body)
            body = b""
        elif kind == PUBLISH and self._refer(body):
            kind = PUBLISH_IN_PARTS
            body = b""
        self._append(writer, _PUBLISH_START, kind, body)

    def _refer(self, body: bytes) -> bool:
        """Write a reference to the parts of a body, if they are in the journal, and return True."""
        ahead = self.ahead
        if ahead is None or ahead.body is not body or self._in_tx:
            return False
        self.ahead = None
        self._refers = True
        ahead.referred = True
        write_i64_le(self._publish, ahead.number)
        write_i64_le(self._publish, len(body))
        return True

    def _append(self, writer: BytesWriter, start: i64, kind: i64, body: bytes) -> None:
        """Frame the payload in `writer`, followed by `body`, as one record; empty `writer`.

        The first bytes of `writer`, up to `start`, are reserved for the record's head.
        """
        size: i64 = len(writer) - RECORD_HEAD_BYTES + len(body)
        if size > RECORD_BYTES_MAX:
            writer.truncate(start)
            raise ValueError("a record of the journal is too large")
        writer[0] = u8(size & 0xFF)
        writer[1] = u8((size >> 8) & 0xFF)
        writer[2] = u8((size >> 16) & 0xFF)
        writer[3] = u8(size >> 24)
        writer[4] = u8(kind)
        head = writer.getvalue()
        writer.truncate(start)
        if self._in_tx:
            self._append_to_tx(head, body)
            return
        if len(body) == 0:
            self._out.write(_digest(head, self._record_seed))
            self._out.write(head)
        else:
            hasher = _hasher(head, self._record_seed)
            hasher.update(body)
            self._out.write(hasher.digest())
            self._out.write(head)
            self._append_body(body)
        self._count(DIGEST_BYTES + RECORD_HEAD_BYTES + size)

    def _append_body(self, body: bytes) -> None:
        """Append a body, without copying it if it is large."""
        if len(body) < BODY_APART_BYTES:
            self._out.write(body)
            return
        if len(self._out) > 0:
            self._parts.append(self._out.getvalue())
            self._out = BytesWriter()
        self._parts.append(body)

    def _append_parts(self, kind: i64, parts: list[bytes]) -> None:
        """Frame a payload of several parts, the first with space for the record's head."""
        size: i64 = -RECORD_HEAD_BYTES
        for part in parts:
            size += len(part)
        if size > RECORD_BYTES_MAX:
            raise ValueError("a record of the journal is too large")
        head = BytesWriter()
        write_i32_le(head, i32(size))
        head.append(int(kind))
        parts[0] = head.getvalue() + parts[0][RECORD_HEAD_BYTES:]
        hasher = _hasher(b"", self._record_seed)
        for part in parts:
            hasher.update(part)
        self._out.write(hasher.digest())
        for part in parts:
            self._append_body(part)
        self._count(DIGEST_BYTES + RECORD_HEAD_BYTES + size)

    def _append_to_tx(self, head: bytes, body: bytes) -> None:
        """Append an operation, which is a record without a digest, to the open transaction."""
        self._tx.write(head)
        self._tx_size += len(head) + len(body)
        if len(body) < BODY_APART_BYTES:
            self._tx.write(body)
            if len(self._tx) < BODY_APART_BYTES:
                return
            # A single growing buffer would be copied repeatedly.
            body = b""
        self._tx_parts.append(self._tx.getvalue())
        if len(body) > 0:
            self._tx_parts.append(body)
        self._tx = BytesWriter()

    def _count(self, size: i64) -> None:
        """Count one record of `size` bytes."""
        self._records += 1
        self._size += size
        self.unsynced_bytes += size

    def _append_named(self, kind: i64, queue_id: i64, name: bytes, value: i64) -> None:
        """Append a record of a name and a number in a queue."""
        writer = _scratch(RECORD_HEAD_BYTES)
        write_i64_le(writer, queue_id)
        write_string(writer, name)
        write_i64_le(writer, value)
        self._append(writer, RECORD_HEAD_BYTES, kind, b"")

    def _start_ack_run(self, queue_id: i64, first: i64, last: i64) -> None:
        """Begin a run of acks; in a transaction, append each range as an operation."""
        if self._in_tx:
            writer = self._other
            write_i64_le(writer, queue_id)
            write_i64_le(writer, first)
            write_i64_le(writer, last)
            self._append(writer, RECORD_HEAD_BYTES, ACK, b"")
            return
        self._close_ack_run()
        self._ack_queue = queue_id
        self._ack_first = first
        self._ack_last = last

    def _close_ack_run(self) -> None:
        """Add the open run of acks to the pending ones; append these if they are many."""
        if self._ack_queue < 0:
            return
        writer = self._acks
        write_i64_le(writer, self._ack_queue)
        write_i64_le(writer, self._ack_first)
        write_i64_le(writer, self._ack_last)
        self._ack_queue = -1
        if len(writer) >= RECORD_HEAD_BYTES + ACK_RANGES_PER_RECORD_MAX * _ACK_RANGE_BYTES:
            self._append(writer, RECORD_HEAD_BYTES, ACK, b"")

    def _flush_acks(self) -> None:
        """Append all pending acks."""
        self._close_ack_run()
        if len(self._acks) > RECORD_HEAD_BYTES:
            self._append(self._acks, RECORD_HEAD_BYTES, ACK, b"")


def _scratch(start: i64) -> BytesWriter:
    """Return a writer whose first `start` bytes are reserved."""
    writer = BytesWriter()
    for _ in range(start):
        writer.append(0)
    return writer
