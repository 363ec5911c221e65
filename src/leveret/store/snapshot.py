"""The state snapshot, which a checkpoint writes so that the older journal can be removed.

    state/<generation>       16 digits; `<generation>.new` while it is written

A snapshot is a group as in `record.py`, with the generation as its number and its file number.  The
seed is the store's seed with all bits below the sign inverted, so that no part of a snapshot is
valid in a journal.  It has the journal's records define, requeue (a delivery count), trim, consumer
offset, publisher sequence and publish session, and these:

    snapshot    first: u64 generation | u64 replay_from_lsn, a group's number | u64 number of the
                journal file in which that group is the first | i64 time in ms | u64 first number
                that a segment file of the previous generation's journal can have
    counter     string name | u64 value
    queue       u64 queue | u64 next sequence
    acked       u64 queue | n times (u64 first, u64 last)
    chunk       u64 queue | u64 file | u64 position | u64 size | u64 first sequence | u64 last |
                u64 count | i64 least timestamp | i64 greatest timestamp | u64 persistent ones |
                u64 their bytes | u64 bytes of their bodies | i64 least expiry | u64 greatest
                delivery count
    end         last: u64 number of records before it

All of a queue's acked ranges come before its chunks.

Invariants: a snapshot is complete if every record matches its digest and the end record exists.  It
gets its final name after the sync.  It is consistent after all journal groups from
`replay_from_lsn` on are applied to it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i32, i64

from leveret.store.format import STATE_DIR
from leveret.store.journal.scan import JournalScan
from leveret.store.records.definition import write_definition
from leveret.store.records.publish_session import PublishProgress, write_progress
from leveret.store.records.record import (
    ACKED,
    CHUNK,
    CONSUMER_OFFSET,
    COUNTER,
    DEFINE,
    END,
    PUBLISH_SESSION,
    PUBLISHER_SEQUENCE,
    QUEUE,
    REQUEUE,
    SEED_MASK,
    SNAPSHOT,
    TRIM,
    encode_group_header,
    encode_record,
    write_string,
)
from leveret.store.segments.chunk_record import write_chunk_ref
from leveret.store.segments.segments import ChunkRef
from leveret.wire.buffer import BytesWriter, read_i64_le, write_i32_le, write_i64_le

_RANGES_PER_RECORD_MAX: Final = 4096

#: The fields that identify a definition in errors.
_NAMES: Final = ("vhost", "user", "component", "name", "id", "source", "destination")


def state_path(generation: int) -> str:
    """Return the path of the snapshot `generation`."""
    return f"{STATE_DIR}/{generation:016d}"


def state_generation(name: str) -> int:
    """Return the generation of the snapshot called `name`, or -1 if it is not one."""
    return int(name) if len(name) == 16 and name.isdecimal() else -1


def snapshot_seed(seed: int) -> int:
    """Return the seed for snapshots of a store with `seed`."""
    return seed ^ SEED_MASK


def scan_snapshot(data: bytes, seed: int, path: str) -> JournalScan:
    """Return a scan of the snapshot at `path`, with its bytes in `data` and the store's seed."""
    generation = state_generation(path.rpartition("/")[2])
    return JournalScan(data, snapshot_seed(seed), path, generation, generation)


def read_acked(data: bytes, start: i64, end: i64) -> list[tuple[int, int]]:
    """Return the ranges of removed sequences that follow the queue's id in a record."""
    return [
        (int(read_i64_le(data, at)), int(read_i64_le(data, at + 8)))
        for at in range(start + 8, end - 15, 16)
    ]


@final
class SnapshotHead:
    """The contents of a snapshot's first record."""

    def __init__(
        self,
        generation: i64,
        replay_from_lsn: i64,
        journal_file: i64,
        time_ms: i64,
        newest_segment: i64 = 0,
    ) -> None:
        self.generation: Final[i64] = generation
        self.replay_from_lsn: Final[i64] = replay_from_lsn
        self.journal_file: Final[i64] = journal_file
        self.time_ms: Final[i64] = time_ms
        #: All contents of segment files with lower numbers are also in the remaining journal before
        #: this snapshot.
        self.newest_segment: Final[i64] = newest_segment


def read_snapshot_head(data: bytes, position: i64) -> SnapshotHead:
    """Return the contents of the first record, which is at `position`."""
    return SnapshotHead(
        read_i64_le(data, position),
        read_i64_le(data, position + 8),
        read_i64_le(data, position + 16),
        read_i64_le(data, position + 24),
        read_i64_le(data, position + 32),
    )


@final
class SnapshotWriter:
    """Encodes a snapshot's records; `take` returns the new ones, so that few are in memory."""

    def __init__(self, seed: int, head: SnapshotHead) -> None:
        self.head: Final = head
        self._seed = snapshot_seed(seed)
        self._record_seed: int = self._seed ^ int(head.generation)
        self._out = BytesWriter()
        self._records: i64 = 0
        self._size: i64 = 0
        writer = BytesWriter()
        write_i64_le(writer, head.generation)
        write_i64_le(writer, head.replay_from_lsn)
        write_i64_le(writer, head.journal_file)
        write_i64_le(writer, head.time_ms)
        write_i64_le(writer, head.newest_segment)
        self._add(SNAPSHOT, writer)

    def counter(self, name: str, value: i64) -> None:
        """Add a counter."""
        writer = BytesWriter()
        write_string(writer, name.encode())
        write_i64_le(writer, value)
        self._add(COUNTER, writer)

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Add a definition.

        Raises: ValueError if it cannot be written; the text names it.
        """
        writer = BytesWriter()
        try:
            write_definition(writer, kind, definition)
        except Exception as error:
            named = {name: definition[name] for name in _NAMES if name in definition}
            raise ValueError(f"the {kind} {named} cannot be written: {error}") from error
        self._add(DEFINE, writer)

    def queue(self, queue_id: i64, next_sequence: i64) -> None:
        """Add a queue's next sequence."""
        writer = BytesWriter()
        write_i64_le(writer, queue_id)
        write_i64_le(writer, next_sequence)
        self._add(QUEUE, writer)

    def acked(self, queue_id: i64, ranges: list[tuple[int, int]]) -> None:
        """Add ranges of sequences that were removed from a queue's chunks."""
        for start in range(0, len(ranges), _RANGES_PER_RECORD_MAX):
            writer = BytesWriter()
            write_i64_le(writer, queue_id)
            for first, last in ranges[start : start + _RANGES_PER_RECORD_MAX]:
                write_i64_le(writer, first)
                write_i64_le(writer, last)
            self._add(ACKED, writer)

    def chunk(self, queue_id: i64, ref: ChunkRef) -> None:
        """Add a chunk of a queue."""
        writer = BytesWriter()
        write_i64_le(writer, queue_id)
        write_chunk_ref(writer, ref)
        self._add(CHUNK, writer)

    def delivery_count(self, queue_id: i64, sequence: i64, count: i64) -> None:
        """Add the delivery count of a message in an older chunk."""
        writer = BytesWriter()
        write_i64_le(writer, queue_id)
        write_i64_le(writer, sequence)
        write_i32_le(writer, i32(count))
        self._add(REQUEUE, writer)

    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Add the first offset of a stream."""
        writer = BytesWriter()
        write_i64_le(writer, queue_id)
        write_i64_le(writer, first_offset)
        self._add(TRIM, writer)

    def consumer_offset(self, queue_id: i64, consumer: bytes, offset: i64) -> None:
        """Add the stored offset of a named consumer of a stream."""
        self._add_named(CONSUMER_OFFSET, queue_id, consumer, offset)

    def publisher_sequence(
        self, queue_id: i64, publisher: bytes, sequence: i64, time_ms: i64
    ) -> None:
        """Add the highest number of a named publisher's messages, and the time of the last one."""
        writer = BytesWriter()
        write_i64_le(writer, queue_id)
        write_string(writer, publisher)
        write_i64_le(writer, sequence)
        write_i64_le(writer, time_ms)
        self._add(PUBLISHER_SEQUENCE, writer)

    def publish_session(self, progress: PublishProgress) -> None:
        """Add the progress of the publishes on a client's channel."""
        writer = BytesWriter()
        write_progress(writer, progress)
        self._add(PUBLISH_SESSION, writer)

    def end(self) -> bytes:
        """Add the last record, and return the group header, which precedes all records."""
        writer = BytesWriter()
        write_i64_le(writer, self._records)
        self._add(END, writer)
        generation = self.head.generation
        return encode_group_header(
            self._seed, int(generation), generation, self._size, 0, self._records
        )

    @property
    def waiting(self) -> int:
        """The number of bytes that `take` returns now."""
        return len(self._out)

    def take(self) -> bytes:
        """Return the records added since the last call."""
        data = self._out.getvalue()
        self._out = BytesWriter()
        return data

    def _add_named(self, kind: i64, queue_id: i64, name: bytes, value: i64) -> None:
        """Add a record of a name and a number in a queue."""
        writer = BytesWriter()
        write_i64_le(writer, queue_id)
        write_string(writer, name)
        write_i64_le(writer, value)
        self._add(kind, writer)

    def _add(self, kind: i64, payload: BytesWriter) -> None:
        """Add a record."""
        record = encode_record(int(kind), payload.getvalue(), self._record_seed)
        self._out.write(record)
        self._records += 1
        self._size += len(record)
