"""The survey of the segments, which finds live, dead and lost chunks and messages.

A chunk to which an existing queue refers is live, except for messages that the queue's records
remove and for transient messages of a queue that is not a stream.  Any other chunk is dead.  If no
snapshot is intact, `untold` are the damaged places that may have contained a chunk.

Invariants: the survey only reads, one chunk at a time.  Losses are determined at the end, after
all chunks and the journal were read, because a message that exists in any of them is not lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import Chunk, ChunkDamaged, RecordDamaged
from leveret.store.damage import Damage
from leveret.store.disk import Disk
from leveret.store.format import SEGMENTS_DIR
from leveret.store.recovery.copies import Copies
from leveret.store.recovery.lost_rows import LostRows
from leveret.store.recovery.strays import UNTOLD
from leveret.store.segments.segments import ChunkRef, check_chunk, segment_number, segment_path
from leveret.store.segments.walk import SegmentWalk
from leveret.store.survey.file_report import FileReport
from leveret.store.survey.holdings import Holding, Holdings
from leveret.store.survey.identity import paths_in


@final
@mypyc_attr(acyclic=True)
class ReferencedChunk:
    """A chunk to which a queue refers."""

    def __init__(self, queue: Holding, ref: ChunkRef) -> None:
        self.queue: Final = queue
        self.ref: Final = ref


@final
class Loss:
    """The damaged messages of a chunk."""

    def __init__(self, holdings: Holdings, rows: LostRows, reason: str, report: FileReport) -> None:
        self.queue: Final = holdings.of(rows.queue_id)
        self._holdings = holdings
        self.rows: Final = rows
        self._reason: Final = reason
        self._report: Final = report

    def settle(self, copies: Copies) -> None:
        """Restore messages found elsewhere; report the damage and how many messages remain lost."""
        queue = self.queue
        lost = self.rows.settle(copies, self._holdings)
        queue.lost += lost
        what = f"{self._named()} of {queue.title}: {self._reason}"
        if lost not in (0, self._count()):
            what = f"{what}; {lost} are lost"
        ref = self.rows.ref
        self._report.damages.append(Damage(self._report.path, ref.position, ref.size, what, lost))

    def _count(self) -> int:
        return int(self.rows.ref.count) if self.rows.chunk is None else len(self.rows.broken)

    def _named(self) -> str:
        broken = self.rows.broken
        if len(broken) == 1:
            return f"message {broken[0]}"
        first, last = (
            (broken[0], broken[-1]) if broken else (self.rows.ref.first, self.rows.ref.last)
        )
        return f"{self._count()} messages from {first} to {last}"


@final
class SegmentSurvey:
    """A survey of all segments, done by iterating over `run`; the caller settles `losses`."""

    def __init__(self, disk: Disk, holdings: Holdings, untold: set[tuple[int, int]] | None) -> None:
        self.files: list[FileReport] = []
        self.torn: list[Damage] = []
        self.losses: list[Loss] = []
        self.bytes_done: i64 = 0
        self._disk = disk
        self._holdings = holdings
        self._untold = untold

    def run(self) -> Iterator[None]:
        """Examine all chunks; yield after each.  Raises: StorageFailure."""
        wanted: dict[i64, dict[i64, ReferencedChunk]] = {}
        for queue in self._holdings.living():
            for ref in queue.chunks.values():
                wanted.setdefault(ref.file_number, {})[ref.position] = ReferencedChunk(queue, ref)
        for path in paths_in(self._disk, SEGMENTS_DIR):
            number: i64 = segment_number(path.rpartition("/")[2])
            if number >= 0:
                for _ in self._survey_file(path, number, wanted.pop(number, {})):
                    yield
        for number in sorted(wanted):
            report = FileReport(segment_path(int(number)), "segments", 0)
            self.files.append(report)
            self._lose_all(wanted[number], "the file is missing", report)

    def _survey_file(
        self, path: str, number: i64, wanted: dict[i64, ReferencedChunk]
    ) -> Iterator[None]:
        """Examine all chunks of one file."""
        walk = SegmentWalk(self._disk, number, [int(position) for position in wanted])
        report = FileReport(path, "segments", walk.bytes)
        self.files.append(report)
        while walk.next():
            one = wanted.pop(walk.position, None)
            chunk = walk.chunk
            if chunk is None:
                self._judge_place(walk, one, report)
            elif one is not None and (same := _as_wanted(chunk, one)) is not None:
                self._survey_chunk(same, one, report)
            elif one is not None:
                self._lose(one, "another chunk is at this position", report)
            else:
                self._survey_dead(chunk, walk.position, report)
            self.bytes_done += walk.size
            yield
        self._lose_all(wanted, "no chunk begins at this position", report)

    def _judge_place(
        self, walk: SegmentWalk, one: ReferencedChunk | None, report: FileReport
    ) -> None:
        """Record a place without an intact chunk as lost, damaged without loss, or torn."""
        if one is not None:
            self._lose(one, walk.what, report)
            return
        untold = self._untold
        number = segment_number(report.path.rpartition("/")[2])
        unknown = untold is not None and (number, int(walk.position)) in untold
        what = f"{walk.what}; {UNTOLD}" if unknown else walk.what
        lost = None if unknown else 0
        damage = Damage(report.path, walk.position, walk.size, what, lost)
        if walk.tail and untold is None:
            self.torn.append(damage)
        else:
            report.damages.append(damage)

    def _survey_chunk(self, chunk: Chunk, one: ReferencedChunk, report: FileReport) -> None:
        """Examine all messages of a chunk to which its queue refers."""
        queue = one.queue
        report.needed = True
        report.chunks += 1
        report.records += chunk.count
        broken: list[int] = []
        for index in range(chunk.count):
            sequence = chunk.sequence(index)
            if not chunk.persistent(index) and not queue.keeps_transient():
                # A start does not restore the message.
                queue.dead.add(sequence, sequence)
            try:
                message = chunk.message(index)
            except RecordDamaged:
                broken.append(int(sequence))
                continue
            if queue.is_gone(sequence):
                queue.dead_rows += 1
                report.dead += 1
            elif queue.found_in_chunk(sequence, message.size):
                report.live += 1
                report.live_bytes += message.size
        if broken:
            rows = LostRows(queue.queue_id, one.ref, chunk, broken)
            self.losses.append(Loss(self._holdings, rows, "the digest does not match", report))

    def _lose_all(
        self, wanted: dict[i64, ReferencedChunk], reason: str, report: FileReport
    ) -> None:
        """Add losses for missing chunks."""
        for position in sorted(wanted):
            self._lose(wanted[position], reason, report)

    def _lose(self, one: ReferencedChunk, reason: str, report: FileReport) -> None:
        """Add a loss for a damaged or missing chunk to which its queue refers."""
        report.needed = True
        rows = LostRows(one.queue.queue_id, one.ref, None, [])
        self.losses.append(Loss(self._holdings, rows, reason, report))

    def _survey_dead(self, chunk: Chunk, position: i64, report: FileReport) -> None:
        """Examine the messages of a chunk to which no queue refers."""
        report.chunks += 1
        report.records += chunk.count
        report.dead += chunk.count
        for index in range(chunk.count):
            try:
                chunk.message(index)
            except RecordDamaged as error:
                what = f"message {error.sequence} of an unreferenced chunk"
                report.damages.append(Damage(report.path, position, chunk.size, what, 0))


def _as_wanted(chunk: Chunk, one: ReferencedChunk) -> Chunk | None:
    """Return a chunk with its owner's sequences, or None if it is not the wanted chunk."""
    try:
        return check_chunk(chunk.data, one.ref, one.queue.queue_id)
    except ChunkDamaged:
        return None
