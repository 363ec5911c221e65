"""The survey of a data directory, which verifies every digest and lists the contents of queues.

    identity    finds the seed of the digests (`identity.py`)
    snapshots   verifies all snapshots, and replays the newest intact one
    journal     verifies all files, and replays those from that snapshot on
    segments    verifies every chunk and its messages, each of which is live, dead or lost
    earlier     replays the previous snapshot and the journal after it, to find data that is missing
                in the newest snapshot although no record removes it
    repair      searches for other copies of damaged messages (`recovery/copies.py`)

A survey follows the rules of recovery, but reports more.  If no snapshot is intact and the journal
does not have its first file, both replay all snapshots and assign every chunk to its owner.  In
that case, even messages that were consumed before the journal's first record are restored from
them.

Invariants: a survey does not change the disk.  It has one journal file, one snapshot or one chunk
in memory at a time.  For messages that are only in the journal it stores the journal file and the
size, and with `keep` also the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.limits import SLICE_MESSAGES
from leveret.store.damage import Damage
from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import (
    FORMAT_PATH,
    JOURNAL_DIR,
    SEGMENTS_DIR,
    STATE_DIR,
    UnknownFormat,
)
from leveret.store.journal.files import journal_number
from leveret.store.journal.scan import JournalScan
from leveret.store.records.record import ACKED, CHUNK, END, SNAPSHOT
from leveret.store.recovery.apply import Applier
from leveret.store.recovery.copies import Copies, group_before, may_name_chunk
from leveret.store.recovery.recovery import NO_STATE, journal_tells_all, verified_from
from leveret.store.recovery.strays import Strays
from leveret.store.segments.chunk_record import read_chunk_ref
from leveret.store.segments.segments import ChunkRef, segment_number
from leveret.store.segments.walk import read_what_can_be
from leveret.store.snapshot import (
    SnapshotHead,
    read_acked,
    read_snapshot_head,
    scan_snapshot,
    state_generation,
)
from leveret.store.survey.file_report import FileReport
from leveret.store.survey.holdings import Holdings
from leveret.store.survey.identity import Identity, identify, paths_in
from leveret.store.survey.omissions import Omissions
from leveret.store.survey.segments import Loss, SegmentSurvey
from leveret.wire.buffer import read_i64_le


@final
class Survey:
    """A survey, done by iterating over `run`; after that, the other attributes are complete.

    `bytes_done` of `bytes_total` bytes are examined.  Damage without loss has 0 `records`.
    """

    def __init__(self, disk: Disk, keep: bool = False, uuid: bytes = b"") -> None:
        self.disk: Final = disk
        self.keep: Final = keep
        self.files: list[FileReport] = []
        self.torn: list[Damage] = []
        self.identity = Identity()
        self.holdings = Holdings(keep)
        self.head = SnapshotHead(0, 1, 1, 0)
        self.state_whole = False
        self.clean_stop = False
        self.bytes_done: i64 = 0
        self.bytes_total: i64 = 0
        self._given = uuid
        self._applier = Applier(self.holdings)
        self._durable: i64 = 0
        #: True after a damaged place in the journal, until the next record is replayed.
        self._records_lost = False
        #: The first group of each journal file with which a snapshot begins.
        self._first_groups: dict[i64, i64] = {}
        #: Messages in files with lower numbers have no other copies.
        self._verified_from: i64 = 0
        #: The intact snapshots, newest first, and the report on the newest one.
        self._whole: list[str] = []
        self._newest: FileReport | None = None
        #: The data of the previous generation that the newest snapshot lacks, or None if they
        #: cannot be compared.
        self._earlier: Omissions | None = None

    @property
    def _seed(self) -> int:
        """The seed of the digests, which must have been found."""
        seed = self.identity.seed
        assert seed is not None
        return seed

    @property
    def damages(self) -> list[Damage]:
        """All damaged places, file by file."""
        return [damage for report in self.files for damage in report.damages]

    @property
    def costly(self) -> bool:
        """Whether any damage lost data."""
        for damage in self.damages:
            if damage.records != 0:
                return True
        return False

    @property
    def lost(self) -> int:
        """The number of lost messages and records; an unknown number counts as one."""
        return sum(damage.lost for damage in self.damages)

    def replay(self) -> Iterator[None]:
        """Replay snapshots and journal, without the segments; yield regularly.

        `run` does this first.

        Raises: as `run`.
        """
        self._identify()
        for folder in (STATE_DIR, JOURNAL_DIR, SEGMENTS_DIR):
            for path in paths_in(self.disk, folder):
                if not path.endswith(".tmp"):
                    self.bytes_total += self._size_of(path)
        if self.identity.seed is not None:
            for _ in self._survey_state():
                yield
            for _ in self._survey_journal():
                yield

    def run(self) -> Iterator[None]:
        """Do the survey; yield regularly.

        Raises: UnknownFormat if the directory is not a store's or has an unknown layout;
        StorageFailure if the disk fails.
        """
        for _ in self.replay():
            yield
        if self.identity.seed is not None and self.state_whole:
            for _ in self._replay_earlier():
                yield
        places = self._places()
        strays: list[tuple[int, ChunkRef]] = []
        untold: set[tuple[int, int]] | None = None if self.state_whole else set()
        if self.identity.seed is not None and (
            not self.state_whole or any(may_name_chunk(damage) for damage in places)
        ):
            for _ in self._adopt(strays, untold):
                yield
        segments = SegmentSurvey(self.disk, self.holdings, untold)
        done = self.bytes_done
        for _ in segments.run():
            self.bytes_done = done + segments.bytes_done
            yield
        for _ in self._mend(segments.losses, places, strays):
            yield
        self.files += segments.files
        self.torn += segments.torn
        self._judge_snapshot()
        self._count_journal()

    # -- format ------------------------------------------------------------------------------------

    def _identify(self) -> None:
        """Find the seed, and report the faults of the format file."""
        names = self.disk.list("")
        if not {FORMAT_PATH, STATE_DIR, JOURNAL_DIR, SEGMENTS_DIR} & set(names):
            raise UnknownFormat("the directory does not contain a store")
        self.identity = identify(self.disk, self._given)
        report = FileReport(FORMAT_PATH, "format", self._size_of(FORMAT_PATH))
        report.needed = True
        for position, fault in self.identity.faults:
            report.damages.append(Damage(FORMAT_PATH, position, 0, fault, 0))
        if self.identity.seed is None:
            what = "no seed matches, so the journal and snapshots cannot be read"
            report.damages.append(Damage(FORMAT_PATH, 0, 0, what))
        self.files.append(report)

    # -- snapshots ---------------------------------------------------------------------------------

    def _survey_state(self) -> Iterator[None]:
        """Examine all snapshots, newest first, and replay the newest intact one."""
        names = paths_in(self.disk, STATE_DIR)
        paths = [path for path in names if state_generation(path.rpartition("/")[2]) >= 0]
        for path in names:
            if path.endswith(".new"):
                what = "a snapshot that its checkpoint did not complete; the one before it counts"
                self.torn.append(Damage(path, 0, self._size_of(path), what, 0))
        for path in reversed(paths):
            scan = self._scan_snapshot(path)
            report = self._report(path, "state", len(scan.data))
            for _ in self._look_at_snapshot(scan, report):
                yield
            if report.damages:
                continue
            self._whole.append(path)
            if not self.state_whole:
                self.state_whole = True
                report.needed = True
                self._newest = report
                for _ in self._replay_snapshot(self._scan_snapshot(path)):
                    yield
        if self.state_whole or journal_tells_all(self.disk):
            self.state_whole = True
            return
        for path in paths:
            for _ in self._replay_snapshot(self._scan_snapshot(path)):
                yield
        # Groups may be missing before the newest head: replay all files of the journal.
        self.head = SnapshotHead(self.head.generation, 1, 1, 0)
        self._miss(STATE_DIR, NO_STATE)

    def _miss(self, folder: str, what: str, records: int | None = None) -> None:
        """Add damage for data that is missing in a folder."""
        report = self._report(folder, folder, 0)
        report.needed = True
        report.damages.append(Damage(folder, 0, 0, what, records))

    def _scan_snapshot(self, path: str) -> JournalScan:
        """Return a scan of a snapshot."""
        return scan_snapshot(self._read(path), self._seed, path)

    def _look_at_snapshot(self, scan: JournalScan, report: FileReport) -> Iterator[None]:
        """Verify all records of a snapshot without replaying them."""
        whole = False
        while scan.next():
            report.records += 1
            if scan.kind == SNAPSHOT:
                head = read_snapshot_head(scan.data, scan.start)
                self._first_groups[head.journal_file] = head.replay_from_lsn
            whole = scan.kind == END and read_i64_le(scan.data, scan.start) == report.records - 1
            if report.records % SLICE_MESSAGES == 0:
                yield
        if not whole and not scan.damages:
            scan.damages.append(Damage(scan.path, len(scan.data), 0, "the end is missing", 0))
        for found in scan.damages:
            what = f"{found.what} of a snapshot"
            report.damages.append(Damage(scan.path, found.position, found.size, what, 0))
        self.bytes_done += len(scan.data)

    def _replay_snapshot(self, scan: JournalScan) -> Iterator[None]:
        """Replay the records of a snapshot, and use its head."""
        replayed: i64 = 0
        while scan.next():
            if scan.kind == SNAPSHOT:
                self.head = read_snapshot_head(scan.data, scan.start)
                if self.state_whole:
                    self._verified_from = verified_from(self.disk, self._seed, self.head)
            else:
                self._replay_snapshot_record(scan, self.holdings, self._applier)
            replayed += 1
            if replayed % SLICE_MESSAGES == 0:
                yield

    def _replay_snapshot_record(
        self, scan: JournalScan, holdings: Holdings, applier: Applier
    ) -> None:
        """Replay a record of a snapshot other than its head."""
        if scan.kind == ACKED:
            queue_id = read_i64_le(scan.data, scan.start)
            for first, last in read_acked(scan.data, scan.start, scan.end):
                holdings.acked(queue_id, first, last)
        elif scan.kind == CHUNK:
            queue_id = read_i64_le(scan.data, scan.start)
            ref = read_chunk_ref(scan.data, scan.start + 8)
            # If no snapshot is intact, another one may refer to the chunk, or to a copy of it.
            if self.state_whole or holdings.of(queue_id).covered.count(ref.first, ref.last) == 0:
                holdings.chunk(queue_id, ref)
        elif scan.kind != END:
            applier.apply_scanned(scan)

    # -- journal -----------------------------------------------------------------------------------

    def _survey_journal(self) -> Iterator[None]:
        """Examine all journal files, and replay those from the snapshot's first one on."""
        reports: list[FileReport] = []
        group: i64 = 0
        begun = False
        for path in paths_in(self.disk, JOURNAL_DIR):
            number = journal_number(path.rpartition("/")[2])
            if number < 0:
                continue
            needed = number >= self.head.journal_file
            if needed and not begun and number > self.head.journal_file:
                group = self.head.replay_from_lsn - 1
            data = self._read(path)
            if not begun or number in self._first_groups:
                group = self._group_before(data, number, group)
            begun = True
            scan = JournalScan(data, self._seed, path, number, group + 1)
            report = self._report(path, "journal", len(data))
            report.needed = needed
            reports.append(report)
            self.holdings.file_number = number
            for _ in self._survey_journal_file(scan, report):
                yield
            group = scan.group
            self._durable = max(self._durable, scan.durable)
        self.clean_stop = self._applier.clean_stop
        self._judge_journal(reports)

    def _group_before(self, data: bytes, number: i64, group: i64) -> i64:
        """Return the group before a file's first group, or `group` if unknown."""
        if number in self._first_groups:
            return self._first_groups[number] - 1
        return max(group, group_before(data, self._seed, number, 0))

    def _survey_journal_file(self, scan: JournalScan, report: FileReport) -> Iterator[None]:
        """Examine one file, and replay it if it is needed."""
        damages: i64 = 0
        while scan.next():
            report.records += 1
            if report.needed:
                if len(scan.damages) > damages:
                    damages = len(scan.damages)
                    self._records_lost = True
                if self._records_lost:
                    self._records_lost = False
                    self.holdings.records_lost()
                self._applier.apply_scanned(scan)
            if report.records % SLICE_MESSAGES == 0:
                yield
        if report.needed and len(scan.damages) > damages:
            self._records_lost = True
        report.groups = scan.groups
        for found in scan.damages:
            if not report.needed:
                found.records = 0
            report.damages.append(found)
        self.bytes_done += len(scan.data)
        scan.data = b""

    def _judge_journal(self, reports: list[FileReport]) -> None:
        """Separate torn places from damaged ones, and report a missing journal."""
        for report in reports:
            self.torn += [damage for damage in report.damages if damage.group > self._durable]
            report.damages = [found for found in report.damages if found.group <= self._durable]
        self._doubt_ends(reports)
        if self.head.generation > 0 and self.state_whole and not _any_needed(reports):
            what = f"file {self.head.journal_file} and all after it are missing"
            self._miss(JOURNAL_DIR, what)

    def _doubt_ends(self, reports: list[FileReport]) -> None:
        """Treat every queue's end as uncertain if the journal's end or the state is incomplete.

        Earlier damage in the journal is handled during the replay.
        """
        lost = self._records_lost and any(report.damages for report in reports if report.needed)
        if lost or not self.state_whole or (self.head.generation > 0 and not _any_needed(reports)):
            self.holdings.records_lost()

    # -- the generation before the newest ----------------------------------------------------------

    def _replay_earlier(self) -> Iterator[None]:
        """Replay the previous snapshot and the journal after it, for comparison.

        If a part of them is damaged or missing, nothing is compared.
        """
        if self._newest is None:
            return
        earlier = Holdings(self.keep)
        applier = Applier(earlier)
        first = SnapshotHead(0, 1, 1, 0)
        if len(self._whole) > 1:
            scan = self._scan_snapshot(self._whole[1])
            while scan.next():
                if scan.kind == SNAPSHOT:
                    first = read_snapshot_head(scan.data, scan.start)
                else:
                    self._replay_snapshot_record(scan, earlier, applier)
        group: i64 = first.replay_from_lsn - 1
        number: i64 = first.journal_file
        for path in self._journal_from(first.journal_file):
            if journal_number(path.rpartition("/")[2]) != number:
                return
            earlier.closed = number >= self.head.journal_file
            earlier.file_number = number
            scan = JournalScan(self._read(path), self._seed, path, number, group + 1)
            while scan.next():
                applier.apply_scanned(scan)
            for damage in scan.damages:
                if damage.group <= self._durable:
                    return
            yield
            group = scan.group
            number += 1
        if number > first.journal_file:
            self._earlier = Omissions(self.disk, earlier, self.holdings)
            if self.keep:
                self._earlier.adopt()

    def _journal_from(self, first: i64) -> list[str]:
        """Return the paths of the journal files from number `first` on, in order."""
        return [
            path
            for path in paths_in(self.disk, JOURNAL_DIR)
            if journal_number(path.rpartition("/")[2]) >= first
        ]

    def _judge_snapshot(self) -> None:
        """Report the omissions of the newest snapshot, and queues without a definition."""
        newest = self._newest
        if newest is not None and self._earlier is not None:
            for what, records in self._earlier.found(self.keep):
                newest.damages.append(Damage(newest.path, 0, 0, what, records))
        if not self.state_whole:
            return
        for queue in self.holdings.living():
            if queue.definition is None:
                self._miss(STATE_DIR, f"{queue.title} has messages but no definition", 1)

    # -- repair ------------------------------------------------------------------------------------

    def _places(self) -> list[Damage]:
        """Return the damaged places in the part of the journal that a start replays."""
        return [
            damage
            for report in self.files
            if report.kind == "journal" and report.needed
            for damage in report.damages
        ]

    def _adopt(
        self, strays: list[tuple[int, ChunkRef]], untold: set[tuple[int, int]] | None
    ) -> Iterator[None]:
        """Add stray chunks, to which damaged records referred, to their queues."""
        copies = self._copies()
        for _ in copies.search():
            yield
        first = self._verified_from if self.state_whole else 0
        search = Strays(self.disk, copies, self.holdings, first, not self.state_whole)
        for _ in search.adopt():
            yield
        strays += search.found
        if untold is not None:
            for damage in search.damages:
                number = segment_number(damage.path.rpartition("/")[2])
                untold.add((number, int(damage.position)))

    def _mend(
        self, losses: list[Loss], places: list[Damage], strays: list[tuple[int, ChunkRef]]
    ) -> Iterator[None]:
        """Search for copies of damaged messages, and count the lost ones."""
        copies = self._copies()
        for owner, ref in strays:
            copies.refer(owner, ref)
        for loss in losses:
            loss.rows.want(copies)
        if self.identity.seed is not None and (
            losses or any(damage.records != 0 for damage in places)
        ):
            for _ in copies.search():
                yield
        copies.unseen.judge(self.holdings)
        copies.unseen.settle(places)
        for queue_id, lost in copies.unseen.lost.items():
            self.holdings.of(queue_id).lost += lost
        for loss in losses:
            loss.settle(copies)

    def _copies(self) -> Copies:
        return Copies(self.disk, self.identity.seed or 0, self.head.journal_file, self._durable)

    def _count_journal(self) -> None:
        """Count the live messages that are only in the journal, by file."""
        reports: dict[i64, FileReport] = {}
        for report in self.files:
            if report.kind == "journal":
                reports[journal_number(report.path.rpartition("/")[2])] = report
        for queue in self.holdings.living():
            for sequence, held in queue.messages.items():
                found = reports.get(held.file_number)
                if found is not None and not queue.in_chunks.has(sequence):
                    found.live += 1
                    found.live_bytes += held.size

    # -- inside ------------------------------------------------------------------------------------

    def _report(self, path: str, kind: str, size: i64) -> FileReport:
        """Add a report on a file, and return it."""
        report = FileReport(path, kind, size)
        self.files.append(report)
        return report

    def _read(self, path: str) -> bytes:
        """Return a whole file, with zeros for unreadable parts."""
        file = self.disk.open(path)
        try:
            return read_what_can_be(file, 0, file.size())
        finally:
            file.close()

    def _size_of(self, path: str) -> i64:
        """Return the size of a file, or 0 if it does not exist."""
        try:
            file = self.disk.open(path)
        except StorageFailure:
            return 0
        size: i64 = file.size()
        file.close()
        return size


def _any_needed(reports: list[FileReport]) -> bool:
    """Return whether any of the files is needed."""
    for report in reports:
        if report.needed:
            return True
    return False
