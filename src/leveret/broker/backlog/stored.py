"""The stored chunks of a queue, and which of their messages are gone.

`StoredChunks` tracks the messages that must survive, not whether they are waiting.  A message of a
stored chunk may be waiting in memory, unacked, or waiting only on disk (`pages.py`).

Invariants: the chunks are in the order of their sequences and do not overlap; `gone` contains the
sequences in their ranges that the queue has forgotten or that the chunks never contained; a chunk
without messages is forgotten.

A very deep queue has tens of thousands of chunks.  Adding or removing a chunk then takes some
microseconds, because it moves the later ones in a list.  A caller that forgets many chunks adds
this to its cost (`moved_cost`).
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
    """One chunk; `live` is the number of its messages that are not gone."""

    def __init__(self, ref: ChunkRef, live: i64) -> None:
        self.ref: ChunkRef = ref
        #: Its first sequence when it was added.  It stays the same when a copy without the messages
        #: that are gone replaces the chunk.
        self.key: Final[i64] = ref.first
        self.live: i64 = live
        #: False once the chunk is forgotten.
        self.kept = True
        #: True for a chunk from before a restart, which has lost its transient messages.
        self.restored = False
        #: True if it contains all messages that were waiting in its range, persistent or not.
        self.whole = False
        #: False until its bytes are written at the place in the reference.
        self.written = True
        #: True to keep it even without messages.
        self.pinned = False


def _forget(spill: Spill, stored: StoredChunk) -> None:
    """Free the file space of a chunk that its queue has forgotten."""
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
        #: The place found last, because the next search is mostly near it.
        self._found: i64 = 0
        self.gone = RangeSet()
        #: The last sequence in a chunk, or 0 without chunks.
        self.through: i64 = 0
        self._spill = spill

    def moved_cost(self) -> i64:
        """Return the cost of removing a chunk from the list."""
        return len(self.items) // PLACES_MOVED_PER_COST

    def outlives(self, chunk: Chunk, index: i64) -> bool:
        """Return whether a message of a chunk survives a restart."""
        return self.keeps_all or chunk.persistent(index)

    def add(self, ref: ChunkRef, live: i64) -> StoredChunk:
        """Add a chunk; `live` is the number of its messages that are not gone."""
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
        """Return whether a chunk contains the message of a sequence, which is not gone."""
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
        # The copy spans no more sequences, so its place in the list stays the same.
        stored.ref = ref
        self.gone.remove(old.first, ref.first - 1)
        self.gone.remove(ref.last + 1, old.last)
        self._spill.release(old)

    def unpin(self, stored: StoredChunk) -> bool:
        """Keep a chunk only while it has messages; return whether it is still kept."""
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
        """Return whether the bytes of a chunk are at the place in its reference."""
        return stored.written and int(stored.ref.file_number) not in self._spill.checkpointed

    def are_durable(self) -> bool:
        """Return whether the bytes of all chunks are at the places in their references."""
        return all(self.is_durable(stored) for stored in self.items)

    def are_complete(self) -> bool:
        """Return whether no message of the chunks is gone."""
        return all(stored.live == stored.ref.count for stored in self.items)

    def give_away(self) -> list[ChunkRef]:
        """Forget all chunks and return their references in order, for another owner."""
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
        """Forget all chunks because the queue is deleted.  If there are many, start a task."""
        core.scheduler.start(self._free(self._detach()))

    def _free(self, chunks: list[StoredChunk]) -> Iterator[int]:
        while chunks:
            _forget(self._spill, chunks.pop())
            yield 1

    def _detach(self) -> list[StoredChunk]:
        """Detach and return all chunks; the caller forgets each of them."""
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

    It replaces earlier records of messages and of their removal: a publish, a transaction, a move
    to another queue.  After a crash, any part of the newest group may be on disk.  If this record
    were on disk without the earlier ones, recovery would apply half a transaction, or lose a
    message that was being moved.  So this record depends only on groups before its own.
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
