"""Decodes records, checks their bounds, and applies them to a `Replay`."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.message import Message
from leveret.store.damage import Damage
from leveret.store.journal.scan import JournalScan
from leveret.store.records.catalog import START
from leveret.store.records.definition import read_definition
from leveret.store.records.publish_session import read_progress
from leveret.store.records.ranges import RangeSet
from leveret.store.records.record import (
    ACK,
    BODY_PART,
    CHECKPOINT,
    CLEAN_STOP,
    CONSUMER_OFFSET,
    COUNTER,
    DEFINE,
    DELETE,
    FORGOTTEN,
    MOVE,
    PUBLISH,
    PUBLISH_IN_PARTS,
    PUBLISH_SESSION,
    PUBLISHER_SEQUENCE,
    PURGE,
    QUEUE,
    RECORD_HEAD_BYTES,
    RECORD_HEADER_BYTES,
    REQUEUE,
    SPILL,
    TRIM,
    TX,
    AddressCache,
    Damaged,
    read_message,
)
from leveret.store.recovery.body_parts import BodyParts
from leveret.store.recovery.replay import Replay
from leveret.store.segments.chunk_record import CHUNK_REF_BYTES, read_chunk_ref
from leveret.store.segments.segments import ChunkRef
from leveret.wire.buffer import read_i32_le, read_i64_le


@final
class Applier:
    """Applies records to a replay.  `chunked` are the sequences in chunks, by queue.

    `bodies` has the parts of bodies in earlier records, if another object applied these.
    """

    def __init__(self, replay: Replay, bodies: BodyParts | None = None) -> None:
        self._replay = replay
        self._bodies = BodyParts() if bodies is None else bodies
        self._addresses = AddressCache()
        self.chunked: dict[int, RangeSet] = {}
        self.clean_stop = False
        #: The last group with an intact record that is invalid.
        self._damaged_in: i64 = -1
        #: The chunks that journal records refer to, with their queue ids.
        self.spilled: list[tuple[int, ChunkRef]] = []

    def apply_scanned(self, scan: JournalScan) -> None:
        """Apply the current record of a scan; if it is damaged, add it to the scan's damages.

        A publish session's record is applied only if its group has no damage.
        """
        if scan.kind == PUBLISH_SESSION and self._has_damage(scan):
            return
        try:
            self.apply(scan.kind, scan.data, scan.start, scan.end)
        except Damaged as error:
            what = f"a record of kind {scan.kind}: {error}"
            position = scan.start - RECORD_HEADER_BYTES
            size = scan.end - position
            damage = Damage(scan.path, position, size, what, 1, _lost_in(scan), scan.kind)
            scan.damages.append(damage)
            self._damaged_in = scan.group

    def _has_damage(self, scan: JournalScan) -> bool:
        """Return whether damage was found in the current group of a scan."""
        damages = scan.damages
        return self._damaged_in == scan.group or (bool(damages) and damages[-1].group == scan.group)

    def apply(self, kind: i64, data: bytes, start: i64, end: i64) -> None:
        """Apply the record of `kind` whose payload is from `start` to `end`.

        Raises: Damaged if the payload is invalid for its kind; nothing is applied.
        """
        self.clean_stop = kind == CLEAN_STOP
        if kind == PUBLISH:
            self._publish(data, start, end)
        elif kind == ACK:
            _whole(start, end, 24)
            for at in range(start, end, 24):
                self._replay.ack(
                    read_i64_le(data, at), read_i64_le(data, at + 8), read_i64_le(data, at + 16)
                )
        elif kind == REQUEUE:
            _exact(start, end, 20)
            self._replay.requeue(
                read_i64_le(data, start),
                read_i64_le(data, start + 8),
                i64(read_i32_le(data, start + 16)),
            )
        elif kind == TX:
            self._tx(data, start, end)
        elif kind == MOVE:
            self._move(data, start, end)
        else:
            self._apply_rare(kind, data, start, end)

    def _apply_rare(self, kind: i64, data: bytes, start: i64, end: i64) -> None:
        """Apply a record of an infrequent kind."""
        replay = self._replay
        if kind in (DEFINE, DELETE):
            what, definition = read_definition(data, start, end)
            if kind == DEFINE:
                if what == START:
                    self._bodies.clear()
                replay.define(what, definition)
            else:
                replay.delete(what, definition)
        elif kind in (PURGE, TRIM, QUEUE):
            _exact(start, end, 16)
            queue_id = read_i64_le(data, start)
            value = read_i64_le(data, start + 8)
            if kind == PURGE:
                replay.purge(queue_id, value)
            elif kind == TRIM:
                replay.trim(queue_id, value)
            else:
                replay.queue(queue_id, value)
        elif kind == BODY_PART:
            self._bodies.add(data, start, end)
        elif kind == PUBLISH_IN_PARTS:
            self._publish_in_parts(data, start, end)
        elif kind == SPILL:
            self._spill(data, start, end)
        elif kind == CONSUMER_OFFSET:
            queue_id, name, value = _named(data, start, end)
            if value == FORGOTTEN:
                replay.consumer_forgotten(queue_id, name)
            else:
                replay.consumer_offset(queue_id, name, value)
        elif kind == PUBLISHER_SEQUENCE:
            queue_id, name, value = _named(data, start, end - 8)
            replay.publisher_sequence(queue_id, name, value, read_i64_le(data, end - 8))
        elif kind == PUBLISH_SESSION:
            replay.publish_session(read_progress(data, start, end))
        elif kind == COUNTER:
            after: i64 = _string_end(data, start, end, 8)
            replay.counter(_text(data[start + 1 : after]), read_i64_le(data, after))
        elif kind not in (CHECKPOINT, CLEAN_STOP):
            raise Damaged(f"a record of the unknown kind {kind}")

    def _publish(self, data: bytes, start: i64, end: i64) -> None:
        """Apply a publish to the targets whose chunks do not contain the message."""
        targets, at = self._targets(data, start, end)
        message = self._message(data, at, end)
        if targets:
            self._replay.publish(message, targets)

    def _publish_in_parts(self, data: bytes, start: i64, end: i64) -> None:
        """Apply a publish whose body precedes it, as `_publish`."""
        targets, at = self._targets(data, start, end)
        found = self._message(data, at, end)
        message = Message(
            found.address,
            found.properties,
            self._bodies.take(found.body),
            found.timestamp_ms,
            found.persistent,
            found.died,
            found.numbered,
        )
        if targets:
            self._replay.publish(message, targets)

    def _move(self, data: bytes, start: i64, end: i64) -> None:
        """Apply a move: publish the message to its new queues, then ack it in the old one."""
        targets, at = self._targets(data, start, end)
        message = self._message(data, at + 16, end)
        if targets:
            self._replay.publish(message, targets)
        sequence = read_i64_le(data, at + 8)
        self._replay.ack(read_i64_le(data, at), sequence, sequence)

    def _spill(self, data: bytes, start: i64, end: i64) -> None:
        """Apply the reference to a chunk of earlier messages, even if the chunk is damaged."""
        ranges_at: i64 = start + 8 + CHUNK_REF_BYTES
        if end < ranges_at or (end - ranges_at) % 16:
            raise Damaged("a record does not have the size of its kind")
        queue_id = read_i64_le(data, start)
        ref = read_chunk_ref(data, start + 8)
        gone = RangeSet()
        for at in range(ranges_at, end, 16):
            gone.add(read_i64_le(data, at), read_i64_le(data, at + 8))
        self.chunked.setdefault(int(queue_id), RangeSet()).add(ref.first, ref.last)
        self.spilled.append((int(queue_id), ref))
        self._replay.spill(queue_id, ref, gone)

    def _tx(self, data: bytes, start: i64, end: i64) -> None:
        """Apply all operations of a transaction, after checking the bounds of all of them."""
        at = start
        while at < end:
            at = _operation_end(data, at, end)
        at = start
        while at < end:
            after = _operation_end(data, at, end)
            self.apply(i64(data[at + 4]), data, at + RECORD_HEAD_BYTES, after)
            at = after

    def _targets(self, data: bytes, start: i64, end: i64) -> tuple[list[tuple[int, int]], i64]:
        """Return the targets that are in no chunk, and the position after them."""
        if start + 4 > end:
            raise Damaged("a publish ends before its targets")
        count = i64(read_i32_le(data, start))
        at: i64 = start + 4
        if count < 0 or at + 16 * count > end:
            raise Damaged("a publish ends before its targets")
        targets: list[tuple[int, int]] = []
        for _ in range(count):
            queue_id = read_i64_le(data, at)
            sequence = read_i64_le(data, at + 8)
            at += 16
            chunked = self.chunked.get(int(queue_id)) if self.chunked else None
            if chunked is None or not chunked.has(sequence):
                targets.append((int(queue_id), int(sequence)))
        return targets, at

    def _message(self, data: bytes, at: i64, end: i64) -> Message:
        """Return the message from `at` to `end`."""
        if at + 15 > end:
            raise Damaged("a publish ends before its message")
        return read_message(data, at, end, self._addresses)


def _lost_in(scan: JournalScan) -> i64:
    """Return the group whose damage makes the current record invalid.

    A message in parts was lost with one of its parts, in a group that may have been durable even
    if the record's own group was not.
    """
    if scan.kind != PUBLISH_IN_PARTS:
        return scan.group
    return min([damage.group for damage in scan.damages if damage.records != 0] + [scan.group])


def _operation_end(data: bytes, at: i64, end: i64) -> i64:
    """Return the end of a transaction's operation that begins at `at`."""
    if at + RECORD_HEAD_BYTES > end:
        raise Damaged("a transaction ends inside an operation")
    size = i64(read_i32_le(data, at))
    if size < 0 or at + RECORD_HEAD_BYTES + size > end:
        raise Damaged("a transaction ends inside an operation")
    return at + RECORD_HEAD_BYTES + size


def _string_end(data: bytes, start: i64, end: i64, after: i64) -> i64:
    """Return the end of the string at `start`, which must be `after` bytes before `end`."""
    if start >= end or start + 1 + i64(data[start]) + after != end:
        raise Damaged("a name exceeds its record")
    return start + 1 + i64(data[start])


def _named(data: bytes, start: i64, end: i64) -> tuple[i64, bytes, i64]:
    """Return the queue, the name and the number in a record with these fields."""
    if start + 8 >= end:
        raise Damaged("a record is too short")
    after: i64 = _string_end(data, start + 8, end, 8)
    return read_i64_le(data, start), data[start + 9 : after], read_i64_le(data, after)


def _text(raw: bytes) -> str:
    """Decode a name.  Raises: Damaged."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Damaged("a name is not text") from error


def _exact(start: i64, end: i64, size: i64) -> None:
    """Raise `Damaged` if a payload does not have the size of its kind."""
    if end - start != size:
        raise Damaged("a record does not have the size of its kind")


def _whole(start: i64, end: i64, size: i64) -> None:
    """Raise `Damaged` if a payload does not consist of entries of `size` bytes."""
    if end == start or (end - start) % size:
        raise Damaged("a record does not consist of whole entries")
