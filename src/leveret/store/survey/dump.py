"""The dump of all records as plain dictionaries, in the order of the files.

It contains all records, intact or damaged, without the conclusions of a survey.  Bytes stay bytes,
and the caller chooses how to print them.

Invariant: a dump only reads, one file of journal or snapshot or one chunk at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from mypy_extensions import i64

from leveret.chunk import NEVER, Chunk, RecordDamaged
from leveret.message import Message
from leveret.store.damage import Damage
from leveret.store.disk import Disk
from leveret.store.format import JOURNAL_DIR, SEGMENTS_DIR, STATE_DIR
from leveret.store.journal.files import journal_number
from leveret.store.journal.scan import JournalScan
from leveret.store.records.publish_session import PublishProgress
from leveret.store.records.ranges import RangeSet
from leveret.store.records.record import (
    ACKED,
    BODY_PART,
    CHECKPOINT,
    CHUNK,
    CLEAN_STOP,
    END,
    FORGOTTEN,
    SNAPSHOT,
    Damaged,
    group_header_bytes,
    is_retained,
    kind_name,
)
from leveret.store.records.returns import acquisitions, failures
from leveret.store.recovery.apply import Applier
from leveret.store.recovery.body_parts import BODY_HEAD_BYTES
from leveret.store.recovery.replay import Replay
from leveret.store.segments.chunk_record import read_chunk_ref
from leveret.store.segments.segments import ChunkRef, segment_number
from leveret.store.segments.walk import SegmentWalk, read_what_can_be
from leveret.store.snapshot import (
    read_acked,
    read_snapshot_head,
    scan_snapshot,
    state_generation,
)
from leveret.store.survey.identity import paths_in
from leveret.wire.buffer import read_i64_le

Fields = dict[str, object]


@final
class _Collector(Replay):
    """Collects the contents of one record."""

    def __init__(self) -> None:
        self.operations: list[Fields] = []

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Add a definition."""
        self.operations.append({"define": kind, "definition": definition})

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Add a delete."""
        self.operations.append({"delete": kind, "definition": definition})

    def publish(self, message: Message, targets: list[tuple[int, int]]) -> None:
        """Add a message and its targets."""
        self.operations.append(
            {"targets": [list(target) for target in targets], **_message_fields(message)}
        )

    def ack(self, queue_id: i64, first: i64, last: i64) -> None:
        """Add an ack."""
        self.operations.append({"queue": int(queue_id), "first": int(first), "last": int(last)})

    def requeue(self, queue_id: i64, sequence: i64, delivery_count: i64) -> None:
        """Add a delivery count."""
        fields: Fields = {"queue": int(queue_id), "sequence": int(sequence)}
        self.operations.append(fields | _count_fields(delivery_count))

    def purge(self, queue_id: i64, below_sequence: i64) -> None:
        """Add a purge."""
        self.operations.append({"queue": int(queue_id), "below": int(below_sequence)})

    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Add a trim."""
        self.operations.append({"queue": int(queue_id), "first_offset": int(first_offset)})

    def consumer_offset(self, queue_id: i64, consumer: bytes, offset: i64) -> None:
        """Add a consumer's offset."""
        self.operations.append(
            {"queue": int(queue_id), "consumer": consumer, "offset": int(offset)}
        )

    def consumer_forgotten(self, queue_id: i64, consumer: bytes) -> None:
        """Add the recorded offset of a forgotten consumer."""
        self.consumer_offset(queue_id, consumer, FORGOTTEN)

    def publisher_sequence(
        self, queue_id: i64, publisher: bytes, sequence: i64, time_ms: i64
    ) -> None:
        """Add a publisher's sequence."""
        fields: Fields = {"queue": int(queue_id), "publisher": publisher, "sequence": int(sequence)}
        self.operations.append(fields | {"time_ms": int(time_ms)})

    def publish_session(self, progress: PublishProgress) -> None:
        """Add the progress of a channel."""
        fields: Fields = {
            "user": progress.user,
            "session": progress.session.hex(),
            "channel": int(progress.channel),
            "since": int(progress.since),
            "through": int(progress.through),
            "gaps": [list(gap) for gap in progress.gaps],
        }
        self.operations.append(fields)

    def counter(self, name: str, value: i64) -> None:
        """Add a counter."""
        self.operations.append({"counter": name, "value": int(value)})

    def queue(self, queue_id: i64, next_sequence: i64) -> None:
        """Add a queue's next sequence."""
        self.operations.append({"queue": int(queue_id), "next_sequence": int(next_sequence)})

    def chunk(self, queue_id: i64, ref: ChunkRef) -> bool:
        """Add the reference to a chunk."""
        self.operations.append(_placed(queue_id, ref))
        return False

    def spill(self, queue_id: i64, ref: ChunkRef, gone: RangeSet) -> None:
        """Add the reference to a chunk of earlier messages, and its removed sequences."""
        ranges = [list(span) for span in gone.ranges()]
        self.operations.append({**_placed(queue_id, ref), "gone": ranges})


@final
class Dump:
    """Yields records as dictionaries, each with `file`, `position` and `kind`.

    A record of several operations has them in `operations`.  Damaged places follow their file's
    records, with the `kind` `damage`.
    """

    def __init__(self, disk: Disk, seed: int) -> None:
        self._disk = disk
        self._seed = seed
        self._collector = _Collector()
        self._applier = Applier(self._collector)

    def state(self) -> Iterator[Fields]:
        """Yield the records of all snapshots.  Raises: StorageFailure."""
        for path in paths_in(self._disk, STATE_DIR):
            generation = state_generation(path.rpartition("/")[2])
            if generation >= 0:
                scan = scan_snapshot(self._read(path), self._seed, path)
                while scan.next():
                    yield self._record(scan, -1)
                yield from _damages(scan.damages)

    def journal(self) -> Iterator[Fields]:
        """Yield the records of the journal, each with its lsn and the time of its group in ms.

        Raises: StorageFailure.
        """
        group: i64 = 0
        for path in paths_in(self._disk, JOURNAL_DIR):
            number = journal_number(path.rpartition("/")[2])
            if number < 0:
                continue
            data = self._read(path)
            if group_header_bytes(data, 0, self._seed, number) > 0:
                group = read_i64_le(data, 8) - 1
            scan = JournalScan(data, self._seed, path, number, group + 1)
            place: i64 = 0
            while scan.next():
                place = place + 1 if scan.group == group else 0
                group = scan.group
                yield self._record(scan, place)
            yield from _damages(scan.damages)
            group = scan.group

    def segments(self) -> Iterator[Fields]:
        """Yield each chunk, followed by each of its messages.  Raises: StorageFailure."""
        for path in paths_in(self._disk, SEGMENTS_DIR):
            number = segment_number(path.rpartition("/")[2])
            if number < 0:
                continue
            walk = SegmentWalk(self._disk, number, [])
            while walk.next():
                if walk.chunk is None:
                    yield from _damages([Damage(path, walk.position, walk.size, walk.what)])
                else:
                    for fields in _chunk(walk.chunk):
                        yield {"file": path, "position": int(walk.position), **fields}

    def _record(self, scan: JournalScan, place: i64) -> Fields:
        """Return one record."""
        fields: Fields = {"file": scan.path, "position": int(scan.start)}
        if place >= 0:
            fields["lsn"] = [int(scan.group), int(place)]
            if scan.time_ms > 0:
                fields["written_ms"] = int(scan.time_ms)
        fields["kind"] = kind_name(scan.kind)
        try:
            operations = self._operations(scan)
        except Damaged as error:
            fields["damaged"] = str(error)
            return fields
        if len(operations) == 1:
            fields.update(operations[0])
        elif operations:
            fields["operations"] = operations
        return fields

    def _operations(self, scan: JournalScan) -> list[Fields]:
        """Return the contents of one record.  Raises: Damaged."""
        kind, data, start, end = scan.kind, scan.data, scan.start, scan.end
        if kind == SNAPSHOT:
            head = read_snapshot_head(data, start)
            return [
                {
                    "generation": int(head.generation),
                    "replay_from_lsn": int(head.replay_from_lsn),
                    "journal_file": int(head.journal_file),
                    "time_ms": int(head.time_ms),
                }
            ]
        if kind == ACKED:
            ranges = [list(span) for span in read_acked(data, start, end)]
            return [{"queue": int(read_i64_le(data, start)), "ranges": ranges}]
        if kind == CHUNK:
            return [_placed(read_i64_le(data, start), read_chunk_ref(data, start + 8))]
        if kind == END:
            return [{"records": int(read_i64_le(data, start))}]
        if kind == CHECKPOINT and end - start >= 8:
            uuid = data[start + 8 : end].hex()
            return [{"generation": int(read_i64_le(data, start)), "uuid": uuid}]
        if kind == CLEAN_STOP and end - start == 8:
            return [{"time_ms": int(read_i64_le(data, start))}]
        self._collector.operations = []
        self._applier.apply(kind, data, start, end)
        if kind == BODY_PART:
            number, offset = read_i64_le(data, start), read_i64_le(data, start + 8)
            size = end - start - BODY_HEAD_BYTES
            return [{"body_number": int(number), "offset": int(offset), "bytes": int(size)}]
        return self._collector.operations

    def _read(self, path: str) -> bytes:
        """Return a whole file, with zeros for unreadable parts."""
        file = self._disk.open(path)
        try:
            return read_what_can_be(file, 0, file.size())
        finally:
            file.close()


def queues_of(fields: Fields) -> list[object]:
    """Return the ids of the queues in a record."""
    found = [fields["queue"]] if "queue" in fields else []
    targets = fields.get("targets")
    if isinstance(targets, list):
        found += [target[0] for target in targets]
    definition = fields.get("definition")
    if isinstance(definition, dict) and "id" in definition:
        found.append(definition["id"])
    operations = fields.get("operations")
    if isinstance(operations, list):
        for operation in operations:
            found += queues_of(operation)
    return found


def _chunk(chunk: Chunk) -> Iterator[Fields]:
    """Yield a chunk's header and its messages."""
    owner = int(chunk.owner)
    yield {
        "kind": "chunk",
        "queue": owner,
        "first": int(chunk.first),
        "last": int(chunk.last),
        "count": int(chunk.count),
        "bytes": int(chunk.size),
        "min_timestamp_ms": int(chunk.min_timestamp),
        "max_timestamp_ms": int(chunk.max_timestamp),
    }
    for index in range(chunk.count):
        row: Fields = {"kind": "message", "queue": owner, "sequence": int(chunk.sequence(index))}
        try:
            row.update(_message_fields(chunk.message(index)))
        except RecordDamaged:
            row["damaged"] = "its digest does not match"
        row.update(_count_fields(chunk.delivery_count(index)))
        row["priority"] = int(chunk.priority(index))
        if chunk.expiry_ms(index) != NEVER:
            row["expiry_ms"] = int(chunk.expiry_ms(index))
        yield row


def _count_fields(count: i64) -> Fields:
    """Return how often a message was returned, or that it is retained after its ack."""
    if is_retained(count):
        return {"retained": True}
    return {"acquired_count": int(acquisitions(count)), "delivery_count": int(failures(count))}


def _message_fields(message: Message) -> Fields:
    """Return the contents of a message."""
    return {
        "exchange": message.address.exchange,
        "routing_key": message.address.routing_key,
        "timestamp_ms": int(message.timestamp_ms),
        "persistent": message.persistent,
        "dead_lettered": message.died,
        "numbered": message.numbered,
        "properties": message.properties,
        "body": message.body,
    }


def _placed(queue_id: i64, ref: ChunkRef) -> Fields:
    """Return the reference to a chunk."""
    return {
        "queue": int(queue_id),
        "segment": int(ref.file_number),
        "at": int(ref.position),
        "bytes": int(ref.size),
        "first": int(ref.first),
        "last": int(ref.last),
        "count": int(ref.count),
    }


def _damages(damages: list[Damage]) -> Iterator[Fields]:
    """Yield damaged places."""
    for damage in damages:
        yield {
            "file": damage.path,
            "position": int(damage.position),
            "kind": "damage",
            "bytes": int(damage.size),
            "what": damage.what,
        }
