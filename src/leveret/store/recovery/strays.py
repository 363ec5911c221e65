"""The search for stray chunks, to which no record refers because the record that did is damaged.

It is done only if a journal record that referred to a chunk is damaged, or if all snapshots are,
because the chunk's messages may then have no other copies.

Invariants: the search only reads.  Messages that an intact record removes are not restored.  If a
snapshot is intact, a chunk is used only if it matches the rest of a damaged record.  Messages of
other chunks may have been consumed, or a crash may have left the chunks before they were recorded,
so that their sequences were reused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.chunk import NEVER, Chunk
from leveret.store.damage import Damage
from leveret.store.disk import Disk
from leveret.store.format import SEGMENTS_DIR
from leveret.store.records.ranges import RangeSet
from leveret.store.recovery.copies import Copies, apply_rows, row_of
from leveret.store.recovery.replay import Replay
from leveret.store.segments.segments import ChunkRef, segment_number, segment_path
from leveret.store.segments.walk import SegmentWalk

#: A damaged record refers to a chunk if this many of the numbers that identify the chunk match.
_MATCHING_MIN: Final = 3

#: The description of a damaged place to which no snapshot and no record refers.
UNTOLD: Final = "no snapshot says what was here"


@final
class Strays:
    """A search in the segment files from `first_file` on, after `copies` has searched the records.

    `everything` is true if no snapshot is intact.  The search then includes chunks of queues whose
    definitions are lost.
    """

    def __init__(
        self, disk: Disk, copies: Copies, replay: Replay, first_file: i64, everything: bool
    ) -> None:
        self.found: list[tuple[int, ChunkRef]] = []
        #: Damaged places that may have contained a chunk.
        self.damages: list[Damage] = []
        self._disk = disk
        self._copies: Final = copies
        self._replay: Final = replay
        self._first_file: i64 = first_file
        self._everything = everything

    def adopt(self) -> Iterator[None]:
        """Add stray chunks to their queues; yield after each examined chunk."""
        for name in self._disk.list(SEGMENTS_DIR):
            number = segment_number(name)
            if number < 0 or number < self._first_file:
                continue
            walk = SegmentWalk(self._disk, number, [])
            while walk.next():
                chunk = walk.chunk
                if chunk is not None and self._is_stray(chunk, number, walk.position):
                    self._adopt(chunk, _ref_of(chunk, number, walk.position))
                elif chunk is None and self._everything:
                    self._note_damage(walk, number)
                yield

    def _note_damage(self, walk: SegmentWalk, number: int) -> None:
        """Add a damaged place, unless a record refers to it."""
        for refs in self._copies.referenced.values():
            if (number, int(walk.position)) in refs:
                return
        what = f"{walk.what}; {UNTOLD}"
        self.damages.append(Damage(segment_path(number), walk.position, walk.size, what))

    def _is_stray(self, chunk: Chunk, number: i64, position: i64) -> bool:
        owner = int(chunk.owner)
        if (int(number), int(position)) in self._copies.referenced.get(owner, {}):
            return False
        state = self._replay.state(owner)
        if state is None:
            return self._everything
        return not state.deleted and (self._everything or self._was_named(chunk, number, position))

    def _was_named(self, chunk: Chunk, number: i64, position: i64) -> bool:
        """Return whether a damaged journal record referred to a chunk."""
        figures = (chunk.owner, number, position, chunk.size, chunk.first, chunk.last)
        place = [int(figure) for figure in figures]
        for hit in self._copies.spills_hit:
            if sum(1 for a, b in zip(hit, place, strict=True) if a == b) >= _MATCHING_MIN:
                return True
        return False

    def _adopt(self, chunk: Chunk, ref: ChunkRef) -> None:
        owner = chunk.owner
        self.found.append((int(owner), ref))
        gone = RangeSet()
        for low, high in self._copies.gone.get(int(owner), gone).within(ref.first, ref.last):
            gone.add(low, high)
        state = self._replay.state(owner)
        if state is not None:
            for low, high in state.gone_between(ref.first, ref.last).ranges():
                gone.add(low, high)
        if gone.count(ref.first, ref.last) == ref.last - ref.first + 1:
            return
        size = int(ref.last - ref.first + 1)
        if state is None or state.unaccounted(ref.first, ref.last) == size - state.gone_between(
            ref.first, ref.last
        ).count(ref.first, ref.last):
            for low, high in gone.ranges():
                self._replay.acked(owner, low, high)
            if self._replay.chunk(owner, ref):
                apply_rows(self._replay, owner, chunk, gone)
            return
        for index in range(chunk.count):
            # The chunk's other messages are in another chunk or in the journal.
            sequence = chunk.sequence(index)
            copy = row_of(chunk, index)
            if copy is None or gone.has(sequence) or state.unaccounted(sequence, sequence) == 0:
                continue
            if copy.message.persistent or state.keeps_transient():
                self._replay.chunk_message(owner, sequence, copy.message, copy.count)


def _ref_of(chunk: Chunk, number: i64, position: i64) -> ChunkRef:
    """Return the reference to a chunk found at a position."""
    persistent = 0
    persistent_bytes = 0
    bodies = 0
    count_max: i64 = 0
    for index in range(chunk.count):
        count_max = max(count_max, chunk.delivery_count(index))
        if chunk.persistent(index):
            properties, body = chunk.sizes(index)
            persistent += 1
            persistent_bytes += properties + body
            bodies += body
    return ChunkRef(
        number,
        position,
        chunk.size,
        chunk.first,
        chunk.last,
        chunk.count,
        chunk.min_timestamp,
        chunk.max_timestamp,
        persistent,
        persistent_bytes,
        bodies,
        chunk.min_expiry if chunk.count > 0 else NEVER,
        count_max,
    )
