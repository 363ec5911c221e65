"""Recovery of the broker's state from the disk: first the snapshot, then the journal.

Recovery succeeds from every state that a crash can leave and despite any damaged byte, and reports
the damage.  It does not change intact data: it writes to `quarantine/`, cuts off a tail that has no
intact group and was never durable, and syncs the last journal file, so that the recovered state can
no longer be lost.  A recovery that is interrupted at any point can be repeated.

A bad group is damage if an intact later group declares it durable.  Otherwise it is torn by a
crash.  A damaged snapshot loses nothing, because the previous generation still exists.  If a chunk
or record is damaged, `copies.py` searches for other copies of its messages.  Chunks whose messages
may have copies are verified now, before the copies are removed; other chunks are verified when they
are read.

Recovery runs in slices before the broker listens, with one file in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.chunk import Chunk, ChunkDamaged
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
from leveret.store.recovery.apply import Applier
from leveret.store.recovery.copies import Copies, apply_rows, group_before, may_name_chunk
from leveret.store.recovery.lost_rows import LostRows
from leveret.store.recovery.replay import Replay
from leveret.store.recovery.strays import Strays
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

#: The description of the damage if neither a snapshot nor the journal is complete.
NO_STATE: Final = "no snapshot is intact, and the journal does not go back to the beginning"

#: How many damaged messages of a chunk the report names.
_NAMED_MAX: Final = 20


def journal_tells_all(disk: Disk) -> bool:
    """Return whether the journal still has its first file, so that no snapshot is needed."""
    journal = disk.list(JOURNAL_DIR)
    return journal_name(1) in journal or not (journal or disk.list(SEGMENTS_DIR))


def verified_from(disk: Disk, seed: int, head: SnapshotHead) -> i64:
    """Return the number of the first segment file whose messages may have other copies.

    It is in the snapshot's head, unless the journal has files from before the previous snapshot.
    """
    begin: i64 = head.journal_file
    for name in disk.list(STATE_DIR):
        generation = state_generation(name)
        if 0 <= generation < head.generation:
            file = disk.open(state_path(generation))
            scan = scan_snapshot(file.read(0, file.size()), seed, state_path(generation))
            file.close()
            if scan.next() and scan.kind == SNAPSHOT:
                begin = read_snapshot_head(scan.data, scan.start).journal_file
    for name in disk.list(JOURNAL_DIR):
        if 0 <= journal_number(name) < begin:
            return 0
    return head.newest_segment


@final
class RecoveryReport:
    """The result of a recovery.

    `damages` are new damaged places, and `torn` new torn ones.  `known` are places that an earlier
    start found and that no checkpoint has superseded yet.  `clean_stop` means that the broker had
    stopped cleanly; otherwise every message counts as redelivered.  `head` is the head of the
    snapshot that was used.  `state_whole` is False if neither a snapshot nor the journal was
    complete.
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
        self.last_time_ms: i64 = 0
        self.next_journal_file: i64 = 1
        self.next_generation: i64 = 1
        self.next_segment: i64 = 1
        #: The segment files to which the replayed journal refers.
        self.segments_spilled: set[int] = set()
        self.head = SnapshotHead(0, 1, 1, 0)
        self.segments_used: set[int] = set()
        self.segments_found: set[int] = set()
        self.damages: list[Damage] = []
        self.torn: list[Damage] = []
        self.known: list[Damage] = []

    @property
    def lost_records(self) -> int:
        """The number of records lost by new damage; an unknown number counts as one."""
        return sum(damage.lost for damage in self.damages)

    def journal(self) -> Journal:
        """Return a journal that continues after the recovered one."""
        journal = Journal(self.seed, self.next_group, self.next_journal_file)
        journal.bytes_since_roll = self.journal_bytes
        journal.time_ms = self.last_time_ms
        return journal


def recover(disk: Disk, replay: Replay, new_uuid: bytes, now_ms: i64) -> RecoveryReport:
    """Replay the state on `disk` into `replay`; create a new store in an empty directory.

    Raises: DiskLocked if another process has locked the directory; UnknownFormat if it is not a
    store's, or a later release's; StorageFailure if the disk fails.
    """
    recovery = StoreRecovery(disk, replay, new_uuid, now_ms)
    for _ in recovery.run():
        pass
    return recovery.report


@final
class StoreRecovery:
    """A recovery, done by iterating over `run`; after that, `report` is complete.

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
        #: New damaged places that are not known yet to have been durable.
        self._doubtful: list[Damage] = []
        #: Messages in files with lower numbers have no other copies.
        self._verified_from: i64 = 0
        #: The chunks to examine, with their queue ids, and the damage in examined chunks.
        self._unverified: list[tuple[int, ChunkRef]] = []
        self._lost: list[LostRows] = []
        #: The first group of each journal file with which a snapshot begins.
        self._first_groups: dict[i64, i64] = {}
        #: The chunks to which damaged snapshots refer.
        self._named: list[tuple[int, ChunkRef]] = []
        self._strays: list[tuple[int, ChunkRef]] = []

    def run(self) -> Iterator[None]:
        """Recover; yield after each slice of `SLICE_MESSAGES` records."""
        self._open()
        for _ in self._load_snapshot():
            yield
        for _ in self._replay_journal():
            yield
        for _ in self._mend():
            yield
        for _, ref in self._applier.spilled:
            self.report.segments_spilled.add(int(ref.file_number))
        self._sort_damages()
        self._report_lost(self._durable)
        if not self.report.state_whole:
            self._replay.records_lost()

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
            self._found.append(Damage(FORMAT_PATH, 0, 0, "one of two copies, repaired", 0))
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
                # Temporary files contain only messages that end with the process.
                report.next_segment = max(report.next_segment, left + 1)
                disk.unlink(temporary_path(left))

    # -- snapshot ----------------------------------------------------------------------------------

    def _load_snapshot(self) -> Iterator[None]:
        """Apply the newest intact snapshot.

        Without one, the whole journal is replayed if it still has its first file.  Otherwise the
        intact records of all snapshots and of the whole journal are applied.
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
        if journal_tells_all(self._disk):
            return
        # It is unknown which chunks are live, so their files are retained for a salvage.
        self.report.state_whole = False
        self._keep(Damage(STATE_DIR, 0, 0, NO_STATE), b"")
        for name in names:
            for _ in self._apply_snapshot(self._scan_snapshot(name)):
                yield
        # Groups may be missing before the newest head.
        self._head = SnapshotHead(self._head.generation, 1, 1, 0)

    def _scan_snapshot(self, name: str) -> JournalScan:
        """Return a scan of the snapshot called `name`."""
        path = state_path(state_generation(name))
        return scan_snapshot(self._read(path), self.report.seed, path)

    def _check_snapshot(self, scan: JournalScan) -> Iterator[None]:
        """Read all records of a snapshot without applying them."""
        records: i64 = 0
        known = len(self._named)
        while scan.next():
            records += 1
            if records % SLICE_MESSAGES == 0:
                yield
            if scan.kind == CHUNK:
                ref = read_chunk_ref(scan.data, scan.start + 8)
                self._named.append((int(read_i64_le(scan.data, scan.start)), ref))
            if scan.kind == END and read_i64_le(scan.data, scan.start) != records - 1:
                scan.damages.append(Damage(scan.path, scan.start, 0, "records are missing"))
        if not scan.damages and scan.kind == END:
            del self._named[known:]

    def _note_bad_snapshot(self, scan: JournalScan) -> None:
        """Quarantine a damaged snapshot, which an older one and its journal replace."""
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
                self._first_groups[self._head.journal_file] = self._head.replay_from_lsn
                self.report.generation = self._head.generation
                self.report.head = self._head
                if self.report.state_whole:
                    self._verified_from = verified_from(self._disk, self.report.seed, self._head)
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
            # Another snapshot may contain the record.
            end = found.position + found.size
            damage = Damage(scan.path, found.position, found.size, found.what, 0)
            self._doubt(self._keep(damage, scan.data[found.position : end]))

    def _apply_acked(self, data: bytes, start: i64, end: i64) -> None:
        """Apply the removed sequences of a queue's chunks, and remember them."""
        queue_id = read_i64_le(data, start)
        ranges = self._acked.setdefault(int(queue_id), RangeSet())
        for first, last in read_acked(data, start, end):
            ranges.add(first, last)
            self._replay.acked(queue_id, first, last)

    # -- chunks ------------------------------------------------------------------------------------

    def _apply_chunk(self, data: bytes, at: i64) -> i64:
        """Apply a chunk and, if requested, its live messages; return their number."""
        queue_id = read_i64_le(data, at)
        ref = read_chunk_ref(data, at + 8)
        self.report.segments_used.add(int(ref.file_number))
        self._applier.chunked.setdefault(int(queue_id), RangeSet()).add(ref.first, ref.last)
        state = self._replay.state(queue_id)
        covered = state is not None and state.covered.count(ref.first, ref.last) > 0
        if covered and not self.report.state_whole:
            # Another snapshot refers to the chunk, or to a copy of it.
            return 0
        if self._replay.chunk(queue_id, ref):
            self._examine(queue_id, ref, self._acked.get(int(queue_id)), True)
            return ref.count
        if ref.file_number >= self._verified_from:
            self._unverified.append((int(queue_id), ref))
        # Messages of older chunks have no other copies, so these are examined when they are read.
        return 0

    def _verify(self) -> Iterator[None]:
        """Examine the chunks whose messages may have copies, before the copies are removed."""
        copied = self._copied()
        for queue_id, ref in self._unverified + self._applier.spilled + copied:
            state = self._replay.state(queue_id)
            if state is None or not state.refers_to(ref):
                continue
            gone = state.gone_between(ref.first, ref.last)
            if gone.count(ref.first, ref.last) < ref.last - ref.first + 1:
                self._examine(queue_id, ref, gone, False)
                yield

    def _copied(self) -> list[tuple[int, ChunkRef]]:
        """Return the older chunks with an unused copy to which a snapshot or a record refers."""
        copies: dict[int, RangeSet] = {}
        for queue_id, ref in self._applier.spilled + self._named:
            state = self._replay.state(queue_id)
            if state is not None and not state.refers_to(ref):
                copies.setdefault(queue_id, RangeSet()).add(ref.first, ref.last)
        found: list[tuple[int, ChunkRef]] = []
        for queue_id, ranges in copies.items():
            state = self._replay.state(queue_id)
            for ref in state.chunks.values() if state is not None else ():
                old = ref.file_number < self._verified_from
                if old and ranges.count(ref.first, ref.last) > 0:
                    found.append((queue_id, ref))
        return found

    def _examine(self, queue_id: i64, ref: ChunkRef, gone: RangeSet | None, apply: bool) -> None:
        """Read a chunk and record its damage; restore its live messages if `apply` is true."""
        raw = b""
        try:
            raw = read_chunk_bytes(self._disk, ref)
            chunk = check_chunk(raw, ref, queue_id)
        except (ChunkDamaged, StorageFailure) as error:
            if isinstance(error, StorageFailure) and error.verb != "open":
                raise
            what = f"the chunk {ref.first}-{ref.last} of queue {queue_id}: {error}"
            self._lose(LostRows(queue_id, ref, None, []), what, raw)
            return
        broken = self._broken(queue_id, chunk, gone)
        if broken:
            named = ", ".join([str(sequence) for sequence in broken[:_NAMED_MAX]])
            what = f"of queue {queue_id} the messages {named}"
            self._lose(LostRows(queue_id, ref, chunk, broken), what, raw)
        elif apply:
            apply_rows(self._replay, queue_id, chunk, gone)

    def _lose(self, rows: LostRows, what: str, raw: bytes) -> None:
        """Add the damage of a chunk, whose loss is determined at the end."""
        ref = rows.ref
        count = ref.count if rows.chunk is None else len(rows.broken)
        rows.damage = self._keep(Damage(ref.path, ref.position, ref.size, what, count), raw)
        self._lost.append(rows)

    def _broken(self, queue_id: i64, chunk: Chunk, gone: RangeSet | None) -> list[int]:
        """Return the sequences of damaged messages that a start must restore."""
        return [
            sequence
            for sequence in chunk.damaged()
            if (self._keeps_all(queue_id) or chunk.persistent(chunk.find(sequence)))
            and (gone is None or not gone.has(sequence))
        ]

    def _keeps_all(self, queue_id: i64) -> bool:
        """Return whether transient messages of a queue are also restored."""
        state = self._replay.state(queue_id)
        return state is not None and state.keeps_transient()

    # -- repair ------------------------------------------------------------------------------------

    def _mend(self) -> Iterator[None]:
        """Search for copies of damaged messages, and restore them."""
        places = [
            damage
            for damage in self._found
            if damage.path.startswith(JOURNAL_DIR) and damage.group <= self._durable
        ]
        if not self.report.state_whole or any(may_name_chunk(damage) for damage in places):
            for _ in self._adopt():
                yield
        for _ in self._verify():
            yield
        if not self._lost and not any(damage.records != 0 for damage in places):
            return
        copies = self._copies()
        for owner, ref in self._strays:
            copies.refer(owner, ref)
        for rows in self._lost:
            rows.want(copies)
        for _ in copies.search():
            yield
        copies.unseen.judge(self._replay)
        copies.unseen.settle(places)
        for rows in self._lost:
            rows.damage.records = rows.restore(copies, self._replay)
            yield

    def _copies(self) -> Copies:
        return Copies(self._disk, self.report.seed, self._head.journal_file, self._durable)

    def _adopt(self) -> Iterator[None]:
        """Add stray chunks, to which damaged records referred, to their queues."""
        copies = self._copies()
        for _ in copies.search():
            yield
        whole = self.report.state_whole
        first = self._verified_from if whole else 0
        strays = Strays(self._disk, copies, self._replay, first, not whole)
        for _ in strays.adopt():
            yield
        for damage in strays.damages:
            self._keep(damage, b"")
        if whole:
            self._applier.spilled += strays.found
        else:
            self._unverified += strays.found
        self._strays = strays.found

    # -- journal -----------------------------------------------------------------------------------

    def _replay_journal(self) -> Iterator[None]:
        """Apply all journal files from the snapshot's first one on, and settle the end."""
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
            data = self._read(path)
            if not self.report.state_whole:
                group = group_before(data, self.report.seed, number, group)
                group = self._first_groups.get(number, group + 1) - 1
            scan = JournalScan(data, self.report.seed, path, number, group + 1)
            for _ in self._replay_file(scan):
                yield
            group = scan.group
            self.report.groups += scan.groups
            self.report.journal_bytes += len(scan.data)
            scan.data = b""
            self._durable = max(self._durable, scan.durable)
            self.report.last_time_ms = max(self.report.last_time_ms, scan.time_ms)
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
        """Keep the damaged places of a journal file from `first` on; return the number of all."""
        for damage in scan.damages[first:]:
            end = damage.position + damage.size
            self._doubt(self._keep(damage, scan.data[damage.position : end]))
        return len(scan.damages)

    def _doubt(self, damage: Damage) -> None:
        """Add a damaged place, unless an earlier start has reported its loss."""
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
        """Cut off the garbage that a crash left after the last group, and sync the journal."""
        file = self._disk.open(scan.path)
        if scan.garbage_from >= 0 and scan.group + 1 > self._durable:
            file.truncate(int(scan.garbage_from))
        file.sync()
        file.close()
        self._disk.fsync_dir(JOURNAL_DIR)

    # -- damage ------------------------------------------------------------------------------------

    def _keep(self, damage: Damage, data: bytes) -> Damage:
        """Add damage and quarantine its bytes, as an empty file if they are missing.

        Return the damage, or an already added one at the same position.
        """
        for found in self._found:
            if found.path == damage.path and found.position == damage.position:
                return found
        quarantine_at_start(self._disk, damage, data)
        self._found.append(damage)
        return damage

    def _sort_damages(self) -> None:
        """Separate torn groups from damaged ones, and new damage from known damage."""
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
