"""A queue whose waiting messages checkpoints write to chunks: what lies where, and what is dead.

A message is handed over to a chunk once in its life.  It may leave its queue at any time, before
the chunk is synced and after; `dead` says which of the sequences in the chunks are gone, for the
next start has the chunks and not the journal before them.

Invariants: `chunks` are in the order of their sequences and do not overlap; below `chunked_through`
every sequence is in a chunk that is kept, or gone.
"""

from __future__ import annotations

from bisect import bisect_left

from mypy_extensions import i64, mypyc_attr

from leveret.broker.queue import Queue
from leveret.broker.source import Returned
from leveret.broker.turn import Turn
from leveret.message import Message
from leveret.store.ranges import RangeSet
from leveret.store.segments import ChunkRef


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkedQueue(Queue):
    """The base of the queues that keep what waits in memory and, stored, in chunks."""

    def __init__(
        self,
        turn: Turn,
        queue_id: i64,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> None:
        super().__init__(turn, queue_id, name, durable, exclusive, auto_delete, arguments)
        #: Chunks that checkpoints wrote of this queue, how far they reach, and what is gone of it.
        self.chunks: list[ChunkRef] = []
        self.chunked_through: i64 = 0
        self.dead = RangeSet()

    def live(self) -> list[Returned]:
        """Return the messages that are journaled and there, in the order of sequences."""
        raise RuntimeError("a chunked queue knows its messages")

    def holds(self, sequence: i64) -> bool:
        """Tell whether a message that `live` named is there still."""
        raise RuntimeError("a chunked queue knows its messages")

    def buried(self, sequence: i64, message: Message, recorded: bool) -> None:
        """Forget a message that was moved; `recorded` tells that the journal knows it left."""
        raise RuntimeError("a chunked queue lets go of its messages")

    def restore(self, returned: list[Returned], next_sequence: i64, unclean: bool) -> None:
        """Start with what the journal held, in the order of the sequences."""
        raise RuntimeError("a chunked queue takes its messages back")

    def restore_chunks(self, chunks: list[ChunkRef], dead: RangeSet) -> None:
        """Start with what earlier checkpoints wrote."""
        if chunks:
            self.chunks = chunks
            self.chunked_through = chunks[-1].last
            self.dead = dead

    def keep_chunks(self, live: list[int]) -> None:
        """Forget the chunks of which nothing is among the live sequences."""
        kept: list[ChunkRef] = []
        for ref in self.chunks:
            place = bisect_left(live, int(ref.first))
            if place < len(live) and live[place] <= ref.last:
                kept.append(ref)
        self.chunks = kept
        self.dead.remove_below(kept[0].first if kept else self.chunked_through + 1)

    def chunked(self, ref: ChunkRef) -> None:
        """Know a new chunk; what went meanwhile is dead in it."""
        first = ref.first
        last = ref.last
        gone: i64 = first
        if last - first < 4 * ref.count:
            sequences = [place for place in range(int(first), int(last) + 1) if self.holds(place)]
        else:
            # Sparse: what there is is looked at, not every number between.
            sequences = [
                int(item.sequence) for item in self.live() if first <= item.sequence <= last
            ]
        for sequence in sequences:
            self.dead.add(gone, sequence - 1)
            gone = sequence + 1
        self.dead.add(gone, last)
        self.chunks.append(ref)
        self.chunked_through = max(self.chunked_through, ref.last)
