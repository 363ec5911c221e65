"""The messages of a queue that are in stored chunks, and those of them that are gone.

This tracks the messages that must survive, and not whether they wait: a message of a stored chunk
may wait in memory, be unacked, or wait only on disk (`pages.py`).

Invariants: the chunks are in the order of their sequences and do not overlap; `gone` contains the
sequences in their ranges that the queue has forgotten or that never were in them; a chunk without
messages is forgotten.

A very deep queue has tens of thousands of chunks.  Adding or removing one moves those behind it in
a list, which then takes some microseconds; a caller that forgets many of them counts that
(`moved_cost`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.consumers.consumer import Source
from leveret.broker.core import Core
from leveret.broker.scheduler.costs import PLACES_MOVED_PER_COST
from leveret.chunk import Chunk, ChunkBuilder
from leveret.store.journal.journal import Journal, LateRecord
from leveret.store.records.ranges import RangeSet
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import Spill, SpillOwner


@final
@mypyc_attr(acyclic=True)
class StoredChunk:
    """One chunk; `live` of its messages are not gone."""

    def __init__(self, ref: ChunkRef, live: i64) -> None:
        self.ref: ChunkRef = ref
        #: Its first sequence when it was added; it stays when a copy without some messages replaces
        #: it.
        self.key: Final[i64] = ref.first
        self.live: i64 = live
        #: False once it has no messages left.
        self.kept = True
        #: True for a chunk from before a restart: its transient messages are gone.
        self.restored = False
        #: True if it contains all messages that waited between its ends, persistent or not.
        self.whole = False
        #: False until its bytes are where the reference points.
        self.written = True
        #: True to keep it even without messages.
        self.pinned = False


def _forget(spill: Spill, stored: StoredChunk) -> None:
    """Free the space in its file of a chunk that its queue has forgotten."""
    stored.kept = False
    spill.use.lives(stored.ref, -stored.live)
    stored.live = 0
    spill.release(stored.ref)


@final
class StoredChunks:
    """The chunks of one queue."""

    def __init__(self, spill: Spill) -> None:
        #: True if all of the queue's messages survive a restart, persistent or not.
        self.keeps_all = False
        #: The chunks in the order of their sequences.
        self.items: list[StoredChunk] = []
        #: The place found last: the next search is mostly near it.
        self._found: i64 = 0
        self.gone = RangeSet()
        #: The last sequence in a chunk; 0 without chunks.
        self.through: i64 = 0
        self._spill = spill

    def moved_cost(self) -> i64:
        """Return the cost of closing the gap of a removed chunk in the list."""
        return len(self.items) // PLACES_MOVED_PER_COST

    def outlives(self, chunk: Chunk, index: i64) -> bool:
        """Return whether a message of a chunk survives a restart."""
        return self.keeps_all or chunk.persistent(index)

    def add(self, ref: ChunkRef, live: i64) -> StoredChunk:
        """Add a chunk; `live` of its messages are not gone."""
        stored = StoredChunk(ref, live)
        self._spill.use.lives(ref, live)
        self.items.insert(self._behind(ref.first), stored)
        self.through = max(self.through, ref.last)
        return stored

    def write(self, builder: ChunkBuilder, page: SpillOwner, temporary: bool) -> StoredChunk:
        """Write a page's messages to a segment file; `page.spilled` is called afterwards."""
        count = builder.count
        stored = self.add(self._spill.add(builder, page, temporary), count)
        stored.written = False
        return stored

    def written(self, queue: Source, stored: StoredChunk | None, ref: ChunkRef) -> bool:
        """Mark a chunk as written, and journal its place; return whether it is still kept."""
        if queue.deleted or stored is None or not stored.kept:
            return False
        stored.written = True
        if not self.unpin(stored):
            return False
        if not ref.temporary:
            queue.core.journal.later(SpillRecord(queue, self, stored, ref))
        return True

    def find(self, sequence: i64) -> StoredChunk | None:
        """Return the chunk whose range contains a sequence, or None."""
        stored = self.next_from(sequence)
        return stored if stored is not None and stored.ref.first <= sequence else None

    def next_from(self, sequence: i64) -> StoredChunk | None:
        """Return the first chunk that ends at a sequence or later, or None."""
        place = self._behind(sequence)
        if place > 0 and self.items[place - 1].ref.last >= sequence:
            return self.items[place - 1]
        return self.items[place] if place < len(self.items) else None

    def behind(self, sequence: i64) -> StoredChunk | None:
        """Return the first chunk that begins after a sequence, or None."""
        place = self._behind(sequence)
        return self.items[place] if place < len(self.items) else None

    def _behind(self, sequence: i64) -> i64:
        """Return the place of the first chunk that begins after a sequence."""
        items = self.items
        high: i64 = len(items)
        place = self._found
        if 0 < place < high and items[place - 1].ref.first <= sequence < items[place].ref.first:
            return place
        low: i64 = 0
        while low < high:
            middle: i64 = (low + high) >> 1
            if items[middle].ref.first <= sequence:
                low = middle + 1
            else:
                high = middle
        self._found = low
        return low

    def holds(self, sequence: i64) -> bool:
        """Return whether a chunk has a message of that sequence that is not gone."""
        return self.find(sequence) is not None and not self.gone.has(sequence)

    def forget(self, sequence: i64) -> None:
        """Mark a message as gone, if a chunk has it."""
        stored = self.find(sequence)
        if stored is not None and not self.gone.has(sequence):
            self.gone.add(sequence, sequence)
            self.forget_count(stored, 1)

    def forget_count(self, stored: StoredChunk, count: i64) -> None:
        """Count `count` messages of a chunk as gone; their sequences are already in `gone`."""
        stored.live -= count
        self._spill.use.lives(stored.ref, -count)
        if stored.live <= 0 and not stored.pinned:
            self.remove(stored)

    def replace(self, stored: StoredChunk, ref: ChunkRef) -> None:
        """Replace a chunk by its copy without the messages that are gone."""
        use = self._spill.use
        old = stored.ref
        use.lives(old, -stored.live)
        use.lives(ref, stored.live)
        # It stays in its place, because its copy spans no more sequences.
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
        _forget(self._spill, stored)
        del self.items[self._behind(stored.ref.first) - 1]
        self.gone.remove(stored.ref.first, stored.ref.last)
        if not self.items:
            self.through = 0

    def is_durable(self, stored: StoredChunk) -> bool:
        """Return whether the bytes of a chunk are where its reference points."""
        return stored.written and int(stored.ref.file_number) not in self._spill.checkpointed

    def are_durable(self) -> bool:
        """Return whether the bytes of all chunks are where their references point."""
        return all(self.is_durable(stored) for stored in self.items)

    def are_written(self) -> bool:
        """Return whether all chunks that queues wrote are written."""
        return all(stored.written for stored in self.items)

    def are_complete(self) -> bool:
        """Return whether no message of the chunks is gone."""
        return all(stored.live == stored.ref.count for stored in self.items)

    def give_away(self) -> list[ChunkRef]:
        """Forget all chunks, which get another owner, and return them in their order."""
        chunks = self._detach()
        for stored in chunks:
            stored.kept = False
            self._spill.use.lives(stored.ref, -stored.live)
        return [stored.ref for stored in chunks]

    def clear(self) -> None:
        """Forget all chunks."""
        for stored in self._detach():
            _forget(self._spill, stored)

    def free(self, core: Core) -> None:
        """Forget all chunks, because the queue is deleted; a task does it if there are many."""
        core.scheduler.start(self._free(self._detach()))

    def _free(self, chunks: list[StoredChunk]) -> Iterator[int]:
        while chunks:
            _forget(self._spill, chunks.pop())
            yield 1

    def _detach(self) -> list[StoredChunk]:
        """Detach all chunks; the caller forgets each of them."""
        chunks = self.items
        self.items = []
        self.gone = RangeSet()
        self.through = 0
        return chunks

    def parts(self, first: i64, last: i64) -> bool:
        """Return whether a chunk begins between two sequences."""
        stored = self.behind(first)
        return stored is not None and stored.ref.first < last


@final
class SpillRecord(LateRecord):
    """The record of a written and synced chunk, one group after its messages.

    It stands for messages, and for their removal, that earlier records describe: a publish, a
    transaction, a move to another queue.  A crash may keep any part of the newest group.  If it
    kept this record without those, it would apply half a transaction, or lose a message that was to
    be moved.  So this record depends only on groups before its own.
    """

    def __init__(
        self, queue: Source, chunks: StoredChunks, stored: StoredChunk, ref: ChunkRef
    ) -> None:
        self.queue: Final = queue
        self.chunks: Final = chunks
        self.stored: Final = stored
        self.ref: Final = ref

    def append_to(self, journal: Journal) -> None:
        """Append the chunk in its present state, unless it has no messages left."""
        queue = self.queue
        if queue.deleted or not self.stored.kept:
            return
        gone = self.chunks.gone.within(self.ref.first, self.ref.last)
        journal.spill(queue.queue_id, self.ref, gone)
