"""The search for other copies of damaged messages in a data directory.

This module decides which messages are recoverable, for a start, for a read by a running broker, for
`leveret store check` and for `leveret store salvage`.  It searches for copies of a message in

    the journal   all files that still exist, including those before the newest snapshot
    chunks        all to which a snapshot or a journal record refers, because the previous snapshot
                  may refer to the chunk from which a compaction made another one

`want` adds sequences to search for, and `search` reads all files once.  Then `copies` returns the
messages found, and `missing` the number of lost ones.  The same pass determines the losses in each
damaged place of the journal (`unseen.py`).

Invariants: the search only reads, and a copy is used only if its digest matches.  Unreferenced
chunks are not used, because a crash may have left them, and their sequences may have been reused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import NEVER, Chunk, ChunkDamaged, RecordDamaged
from leveret.limits import SLICE_MESSAGES
from leveret.message import Message
from leveret.store.damage import Damage
from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import JOURNAL_DIR, STATE_DIR
from leveret.store.journal.files import journal_number, journal_path
from leveret.store.journal.scan import JournalScan
from leveret.store.records.ranges import RangeSet
from leveret.store.records.record import (
    CHUNK,
    QUEUE,
    RECORD_HEADER_BYTES,
    SNAPSHOT,
    SPILL,
    group_header_bytes,
)
from leveret.store.recovery.apply import Applier
from leveret.store.recovery.body_parts import BodyParts
from leveret.store.recovery.replay import Replay
from leveret.store.recovery.unseen import Unseen
from leveret.store.segments.chunk_record import CHUNK_REF_BYTES, read_chunk_ref
from leveret.store.segments.segments import ChunkRef, check_chunk
from leveret.store.segments.walk import read_what_can_be
from leveret.store.snapshot import (
    read_snapshot_head,
    scan_snapshot,
    state_generation,
    state_path,
)
from leveret.wire.buffer import read_i64_le
from leveret.wire.properties import property_expiration

#: The minimum size of a journal record that refers to a chunk.
_SPILL_BYTES_MIN: Final = RECORD_HEADER_BYTES + 8 + CHUNK_REF_BYTES


@final
@mypyc_attr(acyclic=True)
class Copy:
    """A copy of a message; `count` is -1 if it is from the journal, which stores no row."""

    def __init__(self, message: Message, count: i64, expiry_ms: i64, priority: i64) -> None:
        self.message: Final = message
        self.count: Final[i64] = count
        self.expiry_ms: Final[i64] = expiry_ms
        self.priority: Final[i64] = priority


#: A chunk's owner, file, position, size, first and last sequence.
ChunkPlace = tuple[int, int, int, int, int, int]


@final
class Copies(Replay):
    """A search for copies.

    It also determines the losses by damage in journal files from `needed_file` on, up to the group
    `durable`.
    """

    def __init__(self, disk: Disk, seed: int, needed_file: i64 = 0, durable: i64 = 0) -> None:
        self.unseen = Unseen()
        #: The sequences that the records remove, and the chunks that they refer to, by queue.
        self.gone: dict[int, RangeSet] = {}
        self.referenced: dict[int, dict[tuple[int, int], ChunkRef]] = {}
        self._disk = disk
        self._seed = seed
        self._needed_file: i64 = needed_file
        self._durable: i64 = durable
        self._wanted: dict[int, RangeSet] = {}
        self._found: dict[int, dict[i64, Copy]] = {}
        #: For each queue, the sequence from which an undamaged journal has every recorded message.
        self._journaled_from: dict[int, i64] = {}
        self._whole = True
        #: The chunks to which damaged journal records seem to refer.
        self.spills_hit: list[ChunkPlace] = []
        #: The first group of each journal file with which a snapshot begins.
        self._first_groups: dict[i64, i64] = {}
        #: The parts of bodies, whose messages may be in the next file.
        self._bodies = BodyParts()

    def want(self, queue_id: i64, first: i64, last: i64) -> None:
        """Search for the messages of a queue between two sequences."""
        self._wanted.setdefault(int(queue_id), RangeSet()).add(first, last)

    def copies(self, queue_id: i64) -> dict[i64, Copy]:
        """Return the copies of a queue's messages, by sequence."""
        return self._found.setdefault(int(queue_id), {})

    def missing(self, queue_id: i64, first: i64, last: i64, gone: RangeSet | None) -> int:
        """Return how many messages between two sequences are neither removed nor found.

        Messages that are not in an undamaged part of the journal were transient, and do not count.
        """
        last = min(last, self._journaled_until(queue_id) - 1)
        if last < first:
            return 0
        known = RangeSet()
        if gone is not None:
            for low, high in gone.within(first, last):
                known.add(low, high)
        for sequence in self.copies(queue_id):
            if first <= sequence <= last:
                known.add(sequence, sequence)
        return int(last - first + 1) - known.count(first, last)

    def _journaled_until(self, queue_id: i64) -> i64:
        return self._journaled_from.get(int(queue_id), NEVER) if self._whole else NEVER

    def search(self) -> Iterator[None]:
        """Search all snapshots, the journal, and the chunks that these refer to; yield often."""
        for name in self._disk.list(STATE_DIR):
            if state_generation(name) >= 0:
                for _ in self._search_snapshot(state_path(state_generation(name))):
                    yield
        group: i64 = 0
        for name in self._disk.list(JOURNAL_DIR):
            number = journal_number(name)
            if number >= 0:
                data = self._read(journal_path(number))
                group = self._group_before(data, number, group)
                scan = JournalScan(data, self._seed, journal_path(number), number, group + 1)
                for _ in self._search_journal(scan, number):
                    yield
                group = scan.group
        for queue_id in list(self._wanted):
            for _ in self._search_chunks(queue_id):
                yield

    # -- records -----------------------------------------------------------------------------------

    def _search_snapshot(self, path: str) -> Iterator[None]:
        scan = scan_snapshot(self._read(path), self._seed, path)
        records: i64 = 0
        while scan.next():
            data = scan.data
            start: i64 = scan.start
            if scan.kind == CHUNK:
                self.refer(read_i64_le(data, start), read_chunk_ref(data, start + 8))
            elif scan.kind == QUEUE:
                self.unseen.begins(read_i64_le(data, start), read_i64_le(data, start + 8))
            elif scan.kind == SNAPSHOT:
                head = read_snapshot_head(data, start)
                self._first_groups[head.journal_file] = head.replay_from_lsn
            records += 1
            if records % SLICE_MESSAGES == 0:
                yield

    def _search_journal(self, scan: JournalScan, number: i64) -> Iterator[None]:
        applier = Applier(self, self._bodies)
        damages = 0
        records: i64 = 0
        while scan.next():
            if len(scan.damages) > damages:
                damages = self._note_damage(scan, damages, number)
            applier.apply_scanned(scan)
            records += 1
            if records % SLICE_MESSAGES == 0:
                yield
        self._note_damage(scan, damages, number)

    def _note_damage(self, scan: JournalScan, known: int, number: i64) -> int:
        """Record new damage; return the number of damaged places known in the file."""
        for damage in scan.damages[known:]:
            if damage.records != 0:
                self._whole = False
                if number >= self._needed_file and damage.group <= self._durable:
                    self.unseen.damaged(damage, scan.data)
                    if may_name_chunk(damage):
                        self.spills_hit.append(_place_in(damage, scan.data))
        return len(scan.damages)

    def _group_before(self, data: bytes, number: i64, group: i64) -> i64:
        """Return the group before a journal file's first group, given the last group so far."""
        if number in self._first_groups:
            return self._first_groups[number] - 1
        return group_before(data, self._seed, number, group)

    def refer(self, queue_id: i64, ref: ChunkRef) -> None:
        """Add a chunk to which a record refers."""
        of_queue = self.referenced.setdefault(int(queue_id), {})
        of_queue[int(ref.file_number), int(ref.position)] = ref

    def _read(self, path: str) -> bytes:
        """Return a file with zeros for unreadable parts, or b"" if a checkpoint has removed it."""
        try:
            file = self._disk.open(path)
        except StorageFailure:
            return b""
        try:
            return read_what_can_be(file, 0, file.size())
        finally:
            file.close()

    # -- chunks ------------------------------------------------------------------------------------

    def _search_chunks(self, queue_id: int) -> Iterator[None]:
        """Search the chunks for wanted messages that the journal does not have."""
        wanted = self._wanted[queue_id]
        found = self.copies(queue_id)
        for ref in self.referenced.get(queue_id, {}).values():
            sought = wanted.count(ref.first, ref.last)
            if sought == 0:
                continue
            chunk = readable_chunk(self._disk, queue_id, ref)
            for index in range(0 if chunk is None else int(chunk.count)):
                assert chunk is not None
                sequence = chunk.sequence(index)
                if sequence not in found and wanted.has(sequence):
                    copy = row_of(chunk, index)
                    if copy is not None:
                        found[sequence] = copy
            yield

    # -- the replay --------------------------------------------------------------------------------

    def publish(self, message: Message, targets: list[tuple[int, int]]) -> None:
        """Store a message if it is wanted."""
        for queue_id, sequence in targets:
            self.unseen.named(queue_id, sequence)
            if sequence < self._journaled_from.get(queue_id, NEVER):
                self._journaled_from[queue_id] = sequence
            wanted = self._wanted.get(queue_id)
            if wanted is not None and wanted.has(sequence):
                self.copies(queue_id)[sequence] = Copy(message, -1, NEVER, 0)

    def spill(self, queue_id: i64, ref: ChunkRef, gone: RangeSet) -> None:
        """Add a chunk, and its removed messages."""
        self.refer(queue_id, ref)
        for first, last in gone.ranges():
            self.ack(queue_id, first, last)

    def ack(self, queue_id: i64, first: i64, last: i64) -> None:
        """Add removed messages."""
        self.gone.setdefault(int(queue_id), RangeSet()).add(first, last)

    def purge(self, queue_id: i64, below_sequence: i64) -> None:
        """Add removed messages."""
        self.ack(queue_id, 0, below_sequence - 1)

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Do nothing."""

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Do nothing."""

    def requeue(self, queue_id: i64, sequence: i64, delivery_count: i64) -> None:
        """Do nothing, because the replay of the state has recorded the count."""

    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Do nothing, because the replay of the state has recorded the offset."""

    def queue(self, queue_id: i64, next_sequence: i64) -> None:
        """Do nothing."""

    def chunk(self, queue_id: i64, ref: ChunkRef) -> bool:
        """Do nothing, because only snapshots have these records."""
        return False


def may_name_chunk(damage: Damage) -> bool:
    """Return whether a damaged journal record may have referred to a chunk."""
    return damage.records == 1 and damage.kind == SPILL and damage.size >= _SPILL_BYTES_MIN


def place_of(queue_id: i64, ref: ChunkRef) -> ChunkPlace:
    """Return the numbers that identify a chunk."""
    return (
        int(queue_id),
        int(ref.file_number),
        int(ref.position),
        int(ref.size),
        int(ref.first),
        int(ref.last),
    )


def _place_in(damage: Damage, data: bytes) -> ChunkPlace:
    """Return the numbers of a chunk from a damaged record, some of which may be wrong."""
    start: i64 = damage.position + RECORD_HEADER_BYTES
    return place_of(read_i64_le(data, start), read_chunk_ref(data, start + 8))


def expiry_of(message: Message) -> i64:
    """Return the time at which a message expires by its `expiration`, in ms, or NEVER."""
    text = property_expiration(message.properties)
    if text is None or not text.isdecimal():
        return NEVER
    return message.timestamp_ms + int(text)


def group_before(data: bytes, seed: int, number: i64, group: i64) -> i64:
    """Return the group before a journal file's first group, given the last group so far."""
    if group == 0 and number > 1 and group_header_bytes(data, 0, seed, number) > 0:
        return read_i64_le(data, 8) - 1
    return group


def readable_chunk(disk: Disk, queue_id: i64, ref: ChunkRef) -> Chunk | None:
    """Return a chunk of a queue, or None if its columns are damaged or it is another chunk."""
    try:
        file = disk.open(ref.path)
    except StorageFailure:
        return None
    try:
        return check_chunk(read_what_can_be(file, ref.position, ref.size), ref, queue_id)
    except (ChunkDamaged, StorageFailure):
        return None
    finally:
        file.close()


def row_of(chunk: Chunk, index: i64) -> Copy | None:
    """Return a message of a chunk, or None if it is damaged."""
    try:
        message = chunk.message(index)
    except RecordDamaged:
        return None
    count = chunk.delivery_count(index)
    return Copy(message, count, chunk.expiry_ms(index), chunk.priority(index))


def apply_rows(replay: Replay, queue_id: i64, chunk: Chunk, gone: RangeSet | None) -> None:
    """Restore the intact messages of a chunk that are not removed.

    Transient messages are restored only if the queue keeps them.
    """
    state = replay.state(queue_id)
    keeps_all = state is not None and state.keeps_transient()
    for index in range(chunk.count):
        sequence = chunk.sequence(index)
        if (gone is not None and gone.has(sequence)) or not (keeps_all or chunk.persistent(index)):
            continue
        copy = row_of(chunk, index)
        if copy is not None:
            replay.chunk_message(queue_id, sequence, copy.message, copy.count)
