"""What snapshot and journal hold of one queue, as a start of the broker needs it; see `restore`."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.backlog.window import Returned
from leveret.broker.core.ownership import Owner
from leveret.store.records.ranges import RangeSet
from leveret.store.recovery.queue_state import QueueState
from leveret.store.segments.segments import ChunkRef


@final
class RestoredQueue(QueueState[Returned]):
    """The recorded state of one queue, with the messages as the queue will hold them.

    Messages in chunks are not kept in `messages`.
    """

    def __init__(self, queue_id: i64) -> None:
        super().__init__(queue_id)
        self.redelivered_below: i64 = 0
        self.chunks: list[ChunkRef] = []
        #: The sequences between the first and the last of each chunk.
        self.covered = RangeSet()
        #: When returned messages are due for their next try.
        self.retries: dict[i64, i64] = {}
        #: The owners of the names of consumers, if they are recorded.
        self.offset_owners: dict[bytes, Owner] = {}

    def drop(self) -> None:
        """Forget the contents of the deleted queue."""
        super().drop()
        self.chunks.clear()
        self.covered = RangeSet()

    def in_chunk(self, sequence: i64) -> bool:
        """Return whether a sequence is in the range of a chunk."""
        return self.covered.has(sequence)

    def add_chunk(self, ref: ChunkRef) -> None:
        """Note the place of some of its messages."""
        self.chunks.append(ref)
        self.covered.add(ref.first, ref.last)

    def lose_chunk(self, ref: ChunkRef) -> None:
        """Forget a chunk that is damaged."""
        self.chunks = [kept for kept in self.chunks if kept.first != ref.first]
        self.covered.remove(ref.first, ref.last)

    def hand_over(self, first: i64, last: i64) -> None:
        """Leave messages to the chunk that has them, and keep what the chunk does not hold."""
        for sequence in self.kept_between(first, last):
            returned = self.messages.pop(sequence)
            if returned.count > 0:
                self.counts[sequence] = returned.count

    def is_stream(self) -> bool:
        """Return whether it is known to be a stream."""
        return self.type == "stream"

    def keeps_all(self) -> bool:
        """Return whether messages survive even if not persistent, as `StoredChunks.keeps_all`."""
        return self.type in ("stream", "delayed")
