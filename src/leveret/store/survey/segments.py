"""The survey of the segments: which chunks and messages live, are dead, or are lost.

A chunk that a living queue refers to lives, but for what its queue says is gone and for transient
messages of a queue that is no stream; any other is dead.  Where no whole snapshot says what is
referred to (`adopt`), every chunk is given to its owner.

Invariants: it only reads, one chunk at a time.  A loss is judged at the end, when all chunks and
the journal were looked at: what any of them still has is not lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import Chunk, RecordDamaged
from leveret.store.damage import Damage
from leveret.store.disk import Disk
from leveret.store.format import SEGMENTS_DIR
from leveret.store.segments.segments import segment_number, segment_path
from leveret.store.segments.walk import SegmentWalk
from leveret.store.survey.file_report import FileReport
from leveret.store.survey.holdings import Holding, Holdings, Place
from leveret.store.survey.identity import paths_in


@final
@mypyc_attr(acyclic=True)
class Wanted:
    """A chunk that a queue refers to."""

    def __init__(self, queue: Holding, place: Place) -> None:
        self.queue: Final = queue
        self.place: Final = place


@final
class Loss:
    """A message, or the messages of a chunk, that cannot be read where they should be."""

    def __init__(self, queue: Holding, place: Place, reason: str, report: FileReport) -> None:
        self.queue: Final = queue
        self.place: Final = place
        self._reason: Final = reason
        self._report: Final = report

    def missing(self) -> int:
        """Return the number of lost messages, as far as it is known."""
        return self.queue.missing_in(self.place)

    def settle(self) -> None:
        """Note the damage and its final cost."""
        place = self.place
        lost = self.missing()
        self.queue.lost += lost
        what = f"message {place.first}"
        if place.count != 1:
            what = f"{place.count} messages from {place.first} to {place.last}"
        what = f"{what} of {self.queue.title}: {self._reason}"
        if lost == 0:
            what = f"{what}; nothing is lost"
        elif lost != place.count:
            what = f"{what}; {lost} are lost"
        self._report.damages.append(
            Damage(self._report.path, place.position, place.size, what, lost)
        )


@final
class SegmentSurvey:
    """One survey; `run` is taken step by step, `settle` ends it."""

    def __init__(self, disk: Disk, holdings: Holdings, adopt: bool) -> None:
        self.files: list[FileReport] = []
        self.torn: list[Damage] = []
        self.losses: list[Loss] = []
        self.bytes_done: i64 = 0
        self._disk = disk
        self._holdings = holdings
        self._adopting = adopt

    def run(self) -> Iterator[None]:
        """Examine all chunks; yield after each.  Raises: StorageFailure."""
        wanted: dict[i64, dict[i64, Wanted]] = {}
        for queue in self._holdings.living():
            for place in queue.places.values():
                wanted.setdefault(place.file_number, {})[place.position] = Wanted(queue, place)
        for path in paths_in(self._disk, SEGMENTS_DIR):
            number: i64 = segment_number(path.rpartition("/")[2])
            if number >= 0:
                for _ in self._survey_file(path, number, wanted.pop(number, {})):
                    yield
        for number in sorted(wanted):
            report = FileReport(segment_path(int(number)), "segments", 0)
            self.files.append(report)
            self._lose_all(wanted[number], "the file is missing", report)

    def settle(self) -> None:
        """Judge what is lost."""
        for loss in self.losses:
            loss.settle()

    def _survey_file(self, path: str, number: i64, wanted: dict[i64, Wanted]) -> Iterator[None]:
        """Examine all chunks of one file."""
        walk = SegmentWalk(self._disk, number, [int(position) for position in wanted])
        report = FileReport(path, "segments", walk.bytes)
        self.files.append(report)
        while walk.next():
            one = wanted.pop(walk.position, None)
            chunk = walk.chunk
            if chunk is None:
                self._judge_place(walk, one, report)
            elif one is not None and _is_same(chunk, one):
                self._survey_chunk(chunk, walk.position, one.queue, report)
            elif one is not None:
                self._lose(one, "another chunk lies here", report)
            elif self._adopting and not self._holdings.of(chunk.owner).deleted:
                self._adopt(chunk, number, walk.position, report)
            else:
                self._survey_dead(chunk, walk.position, report)
            self.bytes_done += walk.size
            yield
        self._lose_all(wanted, "no chunk begins here", report)

    def _judge_place(self, walk: SegmentWalk, one: Wanted | None, report: FileReport) -> None:
        """Note a place without an intact chunk: lost, harmless damage, or torn."""
        if one is not None:
            self._lose(one, walk.what, report)
            return
        what = f"{walk.what}; none is missed"
        if self._adopting:
            what = f"{walk.what}; no snapshot tells what was here"
        lost = None if self._adopting else 0
        damage = Damage(report.path, walk.position, walk.size, what, lost)
        if walk.tail and not self._adopting:
            self.torn.append(damage)
        else:
            report.damages.append(damage)

    def _survey_chunk(
        self, chunk: Chunk, position: i64, queue: Holding, report: FileReport
    ) -> None:
        """Examine all messages of a chunk that its queue refers to."""
        report.needed = True
        report.chunks += 1
        report.records += chunk.count
        for index in range(chunk.count):
            sequence = chunk.sequence(index)
            try:
                message = chunk.message(index)
            except RecordDamaged:
                size = chunk.size
                place = Place(0, position, size, sequence, sequence, 1, 1)
                self.losses.append(Loss(queue, place, "it does not check", report))
                continue
            if not message.persistent and not queue.keeps_transient():
                # No start restores it.
                queue.dead.add(sequence, sequence)
            if queue.is_gone(sequence):
                queue.dead_rows += 1
                report.dead += 1
            elif queue.found_in_chunk(sequence, message.size):
                report.live += 1
                report.live_bytes += message.size

    def _lose_all(self, wanted: dict[i64, Wanted], reason: str, report: FileReport) -> None:
        """Note missing chunks."""
        for position in sorted(wanted):
            self._lose(wanted[position], reason, report)

    def _lose(self, one: Wanted, reason: str, report: FileReport) -> None:
        """Note a damaged or missing chunk that its queue refers to."""
        report.needed = True
        self.losses.append(Loss(one.queue, one.place, reason, report))

    def _adopt(self, chunk: Chunk, number: i64, position: i64, report: FileReport) -> None:
        """Give a chunk to its owner."""
        queue = self._holdings.of(chunk.owner)
        count = chunk.count
        place = Place(number, position, chunk.size, chunk.first, chunk.last, count, count)
        queue.places[int(number), int(position)] = place
        queue.took(chunk.last)
        self._survey_chunk(chunk, position, queue, report)

    def _survey_dead(self, chunk: Chunk, position: i64, report: FileReport) -> None:
        """Examine the messages of a chunk that no queue refers to."""
        report.chunks += 1
        report.records += chunk.count
        report.dead += chunk.count
        for index in range(chunk.count):
            try:
                chunk.message(index)
            except RecordDamaged as error:
                what = f"message {error.sequence} of a chunk that nobody refers to"
                report.damages.append(Damage(report.path, position, chunk.size, what, 0))


def _is_same(chunk: Chunk, one: Wanted) -> bool:
    """Return whether a chunk is the wanted one."""
    place = one.place
    return (
        chunk.owner == one.queue.queue_id
        and chunk.first == place.first
        and chunk.last == place.last
    )
