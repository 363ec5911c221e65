"""The journal's record of a chunk that a deep queue wrote, which comes a group after its messages.

It stands for messages, and for what is gone of them, that other records before it tell of: a
publish, a transaction, a move to another queue.  Of the newest group a crash may keep any part.
Kept without those records, it would do a transaction by half, or lose what was to be moved.

Invariant: what it says follows from groups before its own.
"""

from __future__ import annotations

from typing import Final, final

from leveret.broker.backlog.stored import StoredChunk, StoredChunks
from leveret.broker.queue.queue import Queue
from leveret.store.journal.journal import Journal, LateRecord
from leveret.store.segments.segments import ChunkRef


@final
class SpillRecord(LateRecord):
    """The record of one chunk that is written and synced."""

    def __init__(
        self, queue: Queue, chunks: StoredChunks, stored: StoredChunk, ref: ChunkRef
    ) -> None:
        self.queue: Final = queue
        self.chunks: Final = chunks
        self.stored: Final = stored
        self.ref: Final = ref

    def append_to(self, journal: Journal) -> None:
        """Append the chunk in its present state, unless no message of it is left."""
        queue = self.queue
        if queue.deleted or not self.stored.kept:
            return
        gone = self.chunks.gone.within(self.ref.first, self.ref.last)
        journal.spill(queue.queue_id, self.ref, gone)
