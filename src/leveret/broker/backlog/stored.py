"""Which messages of a queue lie in stored chunks, and which of those are gone.

It knows which messages must survive, not which of them wait: a message of a stored chunk may wait
in memory, be unacked, or wait only on disk (`pages.py`).

Invariants: the chunks are in the order of their sequences and do not overlap; `gone` contains the
sequences in their ranges that the queue has forgotten or that never lay in them; a chunk without
messages is forgotten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import Chunk
from leveret.store.records.ranges import RangeSet
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import Spill


@final
@mypyc_attr(acyclic=True)
class StoredChunk:
    """One chunk; `live` of its messages are not gone."""

    def __init__(self, ref: ChunkRef, live: i64) -> None:
        self.ref: ChunkRef = ref
        #: Its first sequence when it was added, which stays when it is copied without some.
        self.key: Final[i64] = ref.first
        self.live: i64 = live
        #: False once no message of it is left.
        self.kept = True
        #: True for a chunk of an earlier start: what was not persistent in it is gone.
        self.restored = False
        #: True where all that waited between its ends is in it, persistent or not.
        self.whole = False
        #: False until its bytes are where the reference says.
        self.written = True
        #: True to keep it though no message of it may be left.
        self.pinned = False


@final
class StoredChunks:
    """The chunks of one queue."""

    def __init__(self, spill: Spill) -> None:
        #: True where the queue's messages outlive a restart whether persistent or not.
        self.keeps_all = False
        self.items: list[StoredChunk] = []
        self.gone = RangeSet()
        #: The last sequence that lies in a chunk; 0 when none does.
        self.through: i64 = 0
        self._firsts: list[int] = []
        self._spill = spill
        #: Where a sequence was found last: acks mostly come in order.
        self._place: i64 = 0

    def outlives(self, chunk: Chunk, index: i64) -> bool:
        """Return whether a message of a chunk outlives a restart."""
        return self.keeps_all or chunk.persistent(index)

    def add(self, ref: ChunkRef, live: i64) -> StoredChunk:
        """Add a chunk; `live` of its messages are not gone."""
        stored = StoredChunk(ref, live)
        self._spill.use.lives(ref, live)
        place = bisect_left(self._firsts, int(ref.first))
        self._firsts.insert(place, int(ref.first))
        self.items.insert(place, stored)
        self.through = max(self.through, ref.last)
        return stored

    def skip(self, first: i64, last: i64) -> None:
        """Mark the sequences from `first` to `last` as absent from the chunk around them."""
        self.gone.add(first, last)

    def find(self, sequence: i64) -> StoredChunk | None:
        """Return the chunk in whose range a sequence lies, or None."""
        items = self.items
        place = self._place
        if place < len(items):
            stored = items[place]
            if stored.ref.first <= sequence <= stored.ref.last:
                return stored
        place = bisect_right(self._firsts, int(sequence)) - 1
        if place < 0:
            return None
        stored = items[place]
        if sequence > stored.ref.last:
            return None
        self._place = place
        return stored

    def next_from(self, sequence: i64) -> StoredChunk | None:
        """Return the first chunk that ends at a sequence or later, or None."""
        place = max(bisect_right(self._firsts, int(sequence)) - 1, 0)
        items = self.items
        while place < len(items):
            if items[place].ref.last >= sequence:
                return items[place]
            place += 1
        return None

    def holds(self, sequence: i64) -> bool:
        """Return whether a chunk has a message of that sequence that is not gone."""
        return self.find(sequence) is not None and not self.gone.has(sequence)

    def forget(self, sequence: i64) -> None:
        """Mark a message as gone, if a chunk has it."""
        stored = self.find(sequence)
        if stored is None or self.gone.has(sequence):
            return
        stored.live -= 1
        self._spill.use.lives(stored.ref, -1)
        if stored.live <= 0 and not stored.pinned:
            self.remove(stored)
        else:
            self.gone.add(sequence, sequence)

    def forget_count(self, stored: StoredChunk, count: i64) -> None:
        """Count `count` messages of a chunk as gone; their sequences are in `gone` already."""
        stored.live -= count
        self._spill.use.lives(stored.ref, -count)
        if stored.live <= 0 and not stored.pinned:
            self.remove(stored)

    def replace(self, stored: StoredChunk, ref: ChunkRef) -> None:
        """Replace a chunk by its copy without the messages that were gone."""
        use = self._spill.use
        old = stored.ref
        use.lives(old, -stored.live)
        use.lives(ref, stored.live)
        place = bisect_left(self._firsts, int(old.first))
        self._firsts[place] = int(ref.first)
        stored.ref = ref
        self.gone.remove(old.first, ref.first - 1)
        self.gone.remove(ref.last + 1, old.last)
        self._spill.release(old)

    def unpin(self, stored: StoredChunk) -> bool:
        """Keep a chunk only while it has messages; return whether it is kept now."""
        stored.pinned = False
        if stored.live <= 0:
            self.remove(stored)
        return stored.kept

    def remove(self, stored: StoredChunk) -> None:
        """Forget a chunk without messages."""
        if not stored.kept:
            return
        stored.kept = False
        ref = stored.ref
        self._spill.use.lives(ref, -stored.live)
        stored.live = 0
        place = bisect_left(self._firsts, int(ref.first))
        del self._firsts[place]
        del self.items[place]
        self.gone.remove(ref.first, ref.last)
        self._spill.release(ref)
        if not self.items:
            self.through = 0

    def clear(self) -> None:
        """Forget all chunks."""
        for stored in self.items:
            stored.kept = False
            self._spill.use.lives(stored.ref, -stored.live)
            stored.live = 0
            self._spill.release(stored.ref)
        self.items = []
        self._firsts = []
        self.gone = RangeSet()
        self.through = 0

    def parts(self, first: i64, last: i64) -> bool:
        """Return whether a chunk lies between two sequences."""
        place = bisect_right(self._firsts, int(first))
        return place < len(self._firsts) and self._firsts[place] < last
