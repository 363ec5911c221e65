"""From what a stop left on disk to the broker's state: first the snapshot, then the journal.

Recovery succeeds from every state that a crash can leave and despite any damaged byte, and its
report says what was found.  It does not change intact data: it writes to `quarantine/`, cuts off a
tail in which no group is intact and that was never durable, and syncs the last journal file, so
that the recovered state cannot be lost any more.  A recovery that is interrupted at any point is
therefore simply repeated.

A bad group is damage if an intact later group calls it durable; otherwise a crash tore it.  A
damaged snapshot loses nothing, and a damaged chunk nothing that was chunked since the previous
generation, because that generation and its journal still exist.

It runs before the broker listens, but in slices; it holds one file in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.chunk import Chunk, ChunkDamaged, RecordDamaged
from leveret.limits import SLICE_MESSAGES
from leveret.store.damage import Damage, quarantine_at_start
from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import (
    FORMAT_PATH,
    JOURNAL_DIR,
    SEGMENTS_DIR,
    STATE_DIR,
    check_directory,
    open_format,
)
from leveret.store.journal.files import journal_name, journal_number, journal_path
from leveret.store.journal.journal import Journal
from leveret.store.journal.scan import JournalScan
from leveret.store.records.ranges import RangeSet
from leveret.store.records.record import ACKED, CHUNK, END, SNAPSHOT
from leveret.store.recovery.apply import Applier, SpillCheck
from leveret.store.recovery.replay import Replay
from leveret.store.segments.chunk_record import read_chunk_ref
from leveret.store.segments.segments import (
    ChunkRef,
    check_chunk,
    read_chunk_bytes,
    segment_number,
    temporary_number,
    temporary_path,
)
from leveret.store.snapshot import (
    SnapshotHead,
    read_acked,
    read_snapshot_head,
    scan_snapshot,
    state_generation,
    state_path,
)
from leveret.wire.buffer import read_i64_le

LOCK_PATH: Final = "lock"


@final
class RecoveryReport:
    """The result of a recovery.

    `damages` are the places that are new to this start, torn ones apart in `torn`; `known` are
    those that an earlier start found too and that no checkpoint has superseded yet.  `clean_stop`
    means that the broker had stopped cleanly: otherwise every message counts as redelivered.
    `head` is that of the snapshot that was used; `state_whole` is False if none was intact.
    """

    def __init__(self) -> None:
        self.uuid = b""
        self.seed = 0
        self.created = False
        self.clean_stop = False
        self.generation: i64 = 0
        self.state_whole = True
        self.groups: i64 = 0
        self.records: i64 = 0
        self.journal_bytes: i64 = 0
        self.next_group: i64 = 1
        self.next_journal_file: i64 = 1
        self.next_generation: i64 = 1
        self.next_segment: i64 = 1
        #: The segment files that the replayed journal names.
        self.segments_spilled: set[int] = set()
        self.head = SnapshotHead(0, 1, 1, 0)
        self.segments_used: set[int] = set()
        self.segments_found: set[int] = set()
        self.damages: list[Damage] = []
        self.torn: list[Damage] = []
        self.known: list[Damage] = []

    @property
    def lost_records(self) -> int:
        """The number of records that new damage lost; an unknown number counts as one."""
        return sum(damage.lost for damage in self.damages)

    def journal(self) -> Journal:
        """Return a journal that continues where the recovered one ended."""
        journal = Journal(self.seed, self.next_group, self.next_journal_file)
        journal.bytes_since_roll = self.journal_bytes
        return journal


def recover(disk: Disk, replay: Replay, new_uuid: bytes, now_ms: i64) -> RecoveryReport:
    """Replay the state on `disk` into `replay`; create a new store in an empty directory.

    Raises: DiskLocked: another process has locked the directory.  UnknownFormat: it is not a
    store's, or a later release's.  StorageFailure: the disk failed.
    """
    recovery = Recovery(disk, replay, new_uuid, now_ms)
    for _ in recovery.run():
        pass
    return recovery.report


@final
class Recovery:
    """One recovery: step through `run`; `report` is complete after the last step.

    `bytes_read` and `records_replayed` show its progress.
    """

    def __init__(self, disk: Disk, replay: Replay, new_uuid: bytes, now_ms: i64) -> None:
        self.report = RecoveryReport()
        self.bytes_read: i64 = 0
        self.records_replayed: i64 = 0
        self._disk = disk
        self._replay = replay
        self._new_uuid = new_uuid
        self._now_ms: i64 = now_ms
        self._applier = Applier(replay)
        self._found: list[Damage] = []
        self._acked: dict[int, RangeSet] = {}
        self._head = SnapshotHead(0, 1, 1, 0)
        self._durable: i64 = 0
        self._chunk_lost = False
        #: New damaged places, until it is known whether their contents were durable.
        self._doubtful: list[Damage] = []
        #: The damaged chunks that the journal names, by file and position.
        self._spills_lost: set[tuple[int, int]] = set()
        self._applier.spills = Spills(self)

    def run(self) -> Iterator[None]:
        """Recover; yield after each slice of `SLICE_MESSAGES` records."""
        self._open()
        for _ in self._load_snapshot():
            yield
        if self._chunk_lost:
            self._head = self._earlier_head()
        for _ in self._replay_journal():
            yield
        if self._spills_lost and not self._chunk_lost:
            # An older part of the journal may have the damaged chunk's messages: replay all of it.
            self._head = self._earlier_head()
            report = self.report
            report.groups = 0
            report.records = 0
            report.journal_bytes = 0
            for _ in self._replay_journal():
                yield
        self._sort_damages()
        self._report_lost(self._durable)

    # -- format and folders ------------------------------------------------------------------------

    def _open(self) -> None:
        """Lock the directory, read or create its format file, and choose the next file numbers."""
        disk = self._disk
        report = self.report
        check_directory(disk)
        disk.lock(LOCK_PATH)
        report.created = FORMAT_PATH not in disk.list("")
        format_ = open_format(disk, self._new_uuid, self._now_ms)
        report.uuid = format_.uuid
        report.seed = format_.seed
        if format_.damaged:
            self._found.append(Damage(FORMAT_PATH, 0, 0, "one of two copies, put right", 0))
        for name in disk.list(STATE_DIR):
            generation = state_generation(name.removesuffix(".new"))
            report.next_generation = max(report.next_generation, generation + 1)
        for name in disk.list(SEGMENTS_DIR):
            number = segment_number(name)
            if number >= 0:
                report.next_segment = max(report.next_segment, number + 1)
                report.segments_found.add(number)
            left = temporary_number(name)
            if left >= 0:
                # The messages in it were not persistent and end with their process.
                report.next_segment = max(report.next_segment, left + 1)
                disk.unlink(temporary_path(left))

    # -- snapshot ----------------------------------------------------------------------------------

    def _load_snapshot(self) -> Iterator[None]:
        """Apply the newest intact snapshot.

        Without one the whole journal is replayed, if it exists from the first file on; otherwise
        the intact records of the newest snapshot are applied.
        """
        names = [name for name in self._disk.list(STATE_DIR) if state_generation(name) >= 0]
        for name in reversed(names):
            scan = self._scan_snapshot(name)
            for _ in self._check_snapshot(scan):
                yield
            if not scan.damages and scan.kind == END:
                for _ in self._apply_snapshot(self._scan_snapshot(name)):
                    yield
                return
            self._note_bad_snapshot(scan)
        journal = self._disk.list(JOURNAL_DIR)
        if (names or journal or self.report.segments_found) and journal_name(1) not in journal:
            # Nobody knows now what the chunks hold: their files stay, for a salvage.
            self.report.state_whole = False
        if names and not self.report.state_whole:
            for _ in self._apply_snapshot(self._scan_snapshot(names[-1])):
                yield

    def _earlier_head(self) -> SnapshotHead:
        """Return where the journal must be replayed from because a chunk is damaged.

        The journal of the previous generation still exists and holds everything that went to chunks
        since.  Replaying more than needed changes nothing.
        """
        for name in reversed(self._disk.list(STATE_DIR)):
            if 0 <= state_generation(name) < self._head.generation:
                scan = self._scan_snapshot(name)
                if scan.next() and scan.kind == SNAPSHOT:
                    return read_snapshot_head(scan.data, scan.start)
        if journal_name(1) in self._disk.list(JOURNAL_DIR):
            return SnapshotHead(0, 1, 1, 0)
        return self._head

    def _scan_snapshot(self, name: str) -> JournalScan:
        """Return a scan over the snapshot called `name`."""
        path = state_path(state_generation(name))
        return scan_snapshot(self._read(path), self.report.seed, path)

    def _check_snapshot(self, scan: JournalScan) -> Iterator[None]:
        """Read all records of a snapshot without applying them."""
        records: i64 = 0
        while scan.next():
            records += 1
            if records % SLICE_MESSAGES == 0:
                yield
            if scan.kind == END and read_i64_le(scan.data, scan.start) != records - 1:
                scan.damages.append(Damage(scan.path, scan.start, 0, "not all records"))

    def _note_bad_snapshot(self, scan: JournalScan) -> None:
        """Quarantine a copy of a damaged snapshot; an older one and its journal replace it."""
        what = "a snapshot without its end"
        if scan.damages:
            what = f"a snapshot with {len(scan.damages)} bad places, the first {scan.damages[0]}"
        self._keep(Damage(scan.path, 0, len(scan.data), what, 0), scan.data)

    def _apply_snapshot(self, scan: JournalScan) -> Iterator[None]:
        """Apply the records of a snapshot."""
        applied: i64 = 0
        while scan.next():
            if scan.kind == SNAPSHOT:
                self._head = read_snapshot_head(scan.data, scan.start)
                self.report.generation = self._head.generation
                self.report.head = self._head
            elif scan.kind == ACKED:
                self._apply_acked(scan.data, scan.start, scan.end)
            elif scan.kind == CHUNK:
                applied += self._apply_chunk(scan.data, scan.start)
            elif scan.kind != END:
                self._apply(scan)
            applied += 1
            if applied >= SLICE_MESSAGES:
                applied = 0
                yield
        self._acked = {}
        for found in scan.damages:
            end = found.position + found.size
            damage = Damage(scan.path, found.position, found.size, found.what, found.records)
            self._doubt(self._keep(damage, scan.data[found.position : end]))

    def _apply_acked(self, data: bytes, start: i64, end: i64) -> None:
        """Apply the sequences that are gone from a queue's chunks, and remember them."""
        queue_id = read_i64_le(data, start)
        ranges = self._acked.setdefault(int(queue_id), RangeSet())
        for first, last in read_acked(data, start, end):
            ranges.add(first, last)
            self._replay.acked(queue_id, first, last)

    # -- chunks ------------------------------------------------------------------------------------

    def _apply_chunk(self, data: bytes, at: i64) -> i64:
        """Apply a chunk and, if requested, its live messages; return how many."""
        queue_id = read_i64_le(data, at)
        ref = read_chunk_ref(data, at + 8)
        self.report.segments_used.add(int(ref.file_number))
        chunked = self._applier.chunked.setdefault(int(queue_id), RangeSet())
        wanted = self._replay.chunk(queue_id, ref)
        old = ref.file_number < self._head.newest_segment
        if not wanted and (old or not self._replay.verifies(queue_id)):
            # If nothing else has its messages, the chunk is examined when it is read.
            chunked.add(ref.first, ref.last)
            return 0
        chunk = self._read_chunk(queue_id, ref)
        if chunk is None:
            self._lose_chunk(queue_id, ref)
            return 0
        if not wanted and not self._broken(queue_id, chunk, self._acked.get(int(queue_id))):
            chunked.add(ref.first, ref.last)
            return ref.count
        self._apply_chunk_messages(queue_id, ref, chunk, chunked)
        return ref.count

    def _read_chunk(self, queue_id: i64, ref: ChunkRef) -> Chunk | None:
        """Return a chunk, or None if it is damaged or missing, which is noted."""
        raw = b""
        try:
            raw = read_chunk_bytes(self._disk, ref)
            return check_chunk(raw, ref, queue_id)
        except (ChunkDamaged, StorageFailure) as error:
            if isinstance(error, StorageFailure) and error.verb != "open":
                raise
            what = f"the chunk {ref.first}-{ref.last} of queue {queue_id}: {error}"
            self._keep(Damage(ref.path, ref.position, ref.size, what, ref.count), raw)
            return None

    def spill_is_whole(self, queue_id: i64, ref: ChunkRef, gone: RangeSet) -> bool:
        """Examine a chunk that the journal names; damage is noted once."""
        place = (int(ref.file_number), int(ref.position))
        if place in self._spills_lost:
            return False
        chunked = self._applier.chunked.get(int(queue_id))
        if chunked is not None and chunked.count(ref.first, ref.last) > 0:
            return True
        chunk = self._read_chunk(queue_id, ref)
        broken = self._broken(queue_id, chunk, gone) if chunk is not None else []
        if chunk is not None and not broken:
            self.report.segments_spilled.add(place[0])
            return True
        self._spills_lost.add(place)
        if chunk is not None:
            self._keep_lost(queue_id, ref, chunk, [str(sequence) for sequence in broken])
            self._apply_rows(queue_id, chunk, gone, RangeSet())
        return False

    def _apply_chunk_messages(
        self, queue_id: i64, ref: ChunkRef, chunk: Chunk, chunked: RangeSet
    ) -> None:
        """Apply the live messages of a chunk; damaged ones are quarantined.

        All sequences of the chunk except for damaged ones count as `chunked`: those between them
        are gone.
        """
        lost = self._apply_rows(queue_id, chunk, self._acked.get(int(queue_id)), chunked)
        if lost:
            self._lose_chunk(queue_id, ref)
            self._keep_lost(queue_id, ref, chunk, lost)

    def _apply_rows(
        self, queue_id: i64, chunk: Chunk, acked: RangeSet | None, chunked: RangeSet
    ) -> list[str]:
        """Apply the live messages of a chunk; return the sequences of the damaged ones."""
        first: i64 = chunk.first
        lost: list[str] = []
        all_kept = self._replay.keeps_all(queue_id)
        for index in range(chunk.count):
            sequence = chunk.sequence(index)
            if acked is not None and acked.has(sequence):
                continue
            if not all_kept and not chunk.persistent(index):
                continue
            try:
                message = chunk.message(index)
            except RecordDamaged:
                lost.append(str(sequence))
                chunked.add(first, sequence - 1)
                first = sequence + 1
                continue
            self._replay.chunk_message(queue_id, sequence, message, chunk.delivery_count(index))
        chunked.add(first, chunk.last)
        return lost

    def _keep_lost(self, queue_id: i64, ref: ChunkRef, chunk: Chunk, lost: list[str]) -> None:
        """Note damaged messages of a chunk."""
        what = f"of queue {queue_id} the messages {', '.join(lost[:20])}"
        self._keep(Damage(ref.path, ref.position, ref.size, what, len(lost)), chunk.data)

    def _broken(self, queue_id: i64, chunk: Chunk, gone: RangeSet | None) -> list[int]:
        """Return the sequences of damaged messages that are not gone and were to be restored."""
        broken = chunk.damaged()
        if not broken:
            return broken
        all_kept = self._replay.keeps_all(queue_id)
        return [
            sequence
            for sequence in broken
            if (all_kept or chunk.persistent(chunk.find(sequence)))
            and (gone is None or not gone.has(sequence))
        ]

    def _lose_chunk(self, queue_id: i64, ref: ChunkRef) -> None:
        """Make the broker write the messages again, from those that the journal still has."""
        self._chunk_lost = True
        self._replay.chunk_lost(queue_id, ref)

    # -- journal -----------------------------------------------------------------------------------

    def _replay_journal(self) -> Iterator[None]:
        """Apply all journal files from the snapshot's on, and prepare the journal's end."""
        numbers: list[int] = []
        for name in self._disk.list(JOURNAL_DIR):
            number = journal_number(name)
            self.report.next_journal_file = max(self.report.next_journal_file, number + 1)
            if number >= self._head.journal_file:
                numbers.append(number)
        group = self._head.replay_from_lsn - 1
        scan: JournalScan | None = None
        for number in numbers:
            path = journal_path(number)
            scan = JournalScan(self._read(path), self.report.seed, path, number, group + 1)
            for _ in self._replay_file(scan):
                yield
            group = scan.group
            self.report.groups += scan.groups
            self.report.journal_bytes += len(scan.data)
            scan.data = b""
            self._durable = max(self._durable, scan.durable)
        self.report.next_group = group + 1
        self.report.clean_stop = self._applier.clean_stop
        if scan is not None:
            self._settle_end(scan)

    def _replay_file(self, scan: JournalScan) -> Iterator[None]:
        """Apply the records of one journal file."""
        records: i64 = 0
        kept: i64 = 0
        while scan.next():
            if len(scan.damages) > kept:
                kept = self._keep_found(scan, kept)
            if self._doubtful:
                self._report_lost(scan.durable)
            self._apply(scan)
            records += 1
            if records % SLICE_MESSAGES == 0:
                yield
        self.report.records += records
        self._keep_found(scan, kept)

    def _keep_found(self, scan: JournalScan, first: i64) -> i64:
        """Keep the damaged places of a journal file from one on; return their number."""
        for damage in scan.damages[first:]:
            end = damage.position + damage.size
            self._doubt(self._keep(damage, scan.data[damage.position : end]))
        return len(scan.damages)

    def _doubt(self, damage: Damage) -> None:
        """Note a damaged place, unless an earlier start did, which has reported the loss."""
        if not damage.known:
            self._doubtful.append(damage)

    def _report_lost(self, durable: i64) -> None:
        """Report the damaged places whose groups are now known to have been durable."""
        waiting = [damage for damage in self._doubtful if damage.group > durable]
        if len(waiting) < len(self._doubtful):
            self._doubtful = waiting
            self._replay.records_lost()

    def _apply(self, scan: JournalScan) -> None:
        """Apply one record."""
        self.records_replayed += 1
        self._applier.apply_scanned(scan)

    def _settle_end(self, scan: JournalScan) -> None:
        """Cut off what a crash left after the last intact group, and sync what was applied."""
        file = self._disk.open(scan.path)
        if scan.garbage_from >= 0 and scan.group + 1 > self._durable:
            file.truncate(int(scan.garbage_from))
        file.sync()
        file.close()
        self._disk.fsync_dir(JOURNAL_DIR)

    # -- damage ------------------------------------------------------------------------------------

    def _keep(self, damage: Damage, data: bytes) -> Damage:
        """Note damage and keep a copy of its bytes; an empty file stands for missing ones.

        Return the damage as it was first noted.
        """
        for found in self._found:
            if found.path == damage.path and found.position == damage.position:
                return found
        quarantine_at_start(self._disk, damage, data)
        self._found.append(damage)
        return damage

    def _sort_damages(self) -> None:
        """Separate torn groups from damaged ones, and new damage from damage reported before."""
        for damage in self._found:
            damage.torn = damage.group > self._durable
            if damage.known:
                self.report.known.append(damage)
            elif damage.torn:
                self.report.torn.append(damage)
            else:
                self.report.damages.append(damage)
                self.report.clean_stop = False

    def _read(self, path: str) -> bytes:
        """Return the whole file `path`."""
        file = self._disk.open(path)
        try:
            data = file.read(0, file.size())
        finally:
            file.close()
        self.bytes_read += len(data)
        return data


@final
class Spills(SpillCheck):
    """Lets the recovery examine the chunks that the journal names."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery

    def whole(self, queue_id: i64, ref: ChunkRef, gone: RangeSet) -> bool:
        """Return whether the chunk is where it should be, and intact; `gone` is gone from it."""
        return self._recovery.spill_is_whole(queue_id, ref, gone)
