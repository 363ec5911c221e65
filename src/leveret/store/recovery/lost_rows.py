"""The damaged messages of a chunk, and their restoration from copies.

The caller marks the messages as wanted, searches for copies, and restores them; those without a
copy are lost.

Invariant: a start, a survey and a salvage compute the same messages and losses here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.chunk import Chunk
from leveret.store.damage import Damage
from leveret.store.records.ranges import RangeSet
from leveret.store.recovery.copies import Copies, Copy, apply_rows
from leveret.store.recovery.queue_state import KnownQueue
from leveret.store.recovery.replay import Replay
from leveret.store.segments.segments import ChunkRef


@final
class LostRows:
    """The `broken` messages of a chunk, or all of them if the chunk is unreadable (None)."""

    def __init__(
        self, queue_id: i64, ref: ChunkRef, chunk: Chunk | None, broken: list[int]
    ) -> None:
        self.queue_id: Final[i64] = queue_id
        self.ref: Final = ref
        self.chunk: Final = chunk
        self.broken: Final = broken
        self.damage = Damage(ref.path, ref.position, ref.size, "")

    def want(self, copies: Copies) -> None:
        """Mark the messages as wanted."""
        if self.chunk is None:
            copies.want(self.queue_id, self.ref.first, self.ref.last)
        for sequence in self.broken:
            copies.want(self.queue_id, sequence, sequence)

    def found(self, copies: Copies, state: KnownQueue | None) -> Iterator[tuple[i64, Copy]]:
        """Yield the live messages found elsewhere, in order."""
        ref = self.ref
        gone = RangeSet() if state is None else state.gone_between(ref.first, ref.last)
        keeps_all = state is not None and state.keeps_transient()
        found = copies.copies(self.queue_id)
        for sequence in sorted(found) if self.chunk is None else self.broken:
            copy = found.get(sequence)
            if copy is None or not ref.first <= sequence <= ref.last or gone.has(sequence):
                continue
            if keeps_all or copy.message.persistent:
                yield sequence, copy

    def lost(self, copies: Copies, state: KnownQueue | None) -> int:
        """Return how many of the messages are neither removed nor found elsewhere."""
        ref = self.ref
        gone = RangeSet() if state is None else state.gone_between(ref.first, ref.last)
        if self.chunk is None:
            keeps_all = state is not None and state.keeps_transient()
            most = ref.count if keeps_all else ref.persistent
            return min(copies.missing(self.queue_id, ref.first, ref.last, gone), int(most))
        found = copies.copies(self.queue_id)
        lost = 0
        for sequence in self.broken:
            if i64(sequence) not in found and not gone.has(sequence):
                lost += 1
        return lost

    def restore(self, copies: Copies, replay: Replay) -> int:
        """Replace the chunk by its remaining messages, and return how many are lost."""
        queue_id = self.queue_id
        state = replay.state(queue_id)
        if state is None or state.deleted:
            return 0
        lost = self.lost(copies, state)
        found = list(self.found(copies, state))
        replay.chunk_lost(queue_id, self.ref)
        if self.chunk is not None:
            gone = state.gone_between(self.ref.first, self.ref.last)
            apply_rows(replay, queue_id, self.chunk, gone)
        for sequence, copy in found:
            replay.chunk_message(queue_id, sequence, copy.message, max(copy.count, 0))
        return lost

    def settle(self, copies: Copies, replay: Replay) -> int:
        """Keep the chunk and add messages found elsewhere; return how many are lost."""
        state = replay.state(self.queue_id)
        for sequence, copy in self.found(copies, state):
            replay.chunk_message(self.queue_id, sequence, copy.message, max(copy.count, 0))
        return self.lost(copies, state)
