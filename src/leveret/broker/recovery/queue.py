"""What snapshot and journal told of one queue, gathered until all of it is known; see `restore`."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.backlog.source import Returned
from leveret.broker.core.ownership import Owner
from leveret.store.records.ranges import RangeSet
from leveret.store.segments.segments import ChunkRef


@final
class RestoredQueue:
    """What was told of one queue."""

    def __init__(self, queue_id: i64) -> None:
        self.queue_id: i64 = queue_id
        self.definition: dict[str, object] | None = None
        self.messages: dict[i64, Returned] = {}
        self.next_sequence: i64 = 0
        self.first_offset: i64 = 0
        self.redelivered_below: i64 = 0
        self.chunks: list[ChunkRef] = []
        #: The sequences between the first and the last of each chunk.
        self.covered = RangeSet()
        self.dead = RangeSet()
        #: How often messages in chunks came back, where the chunks do not say it.
        self.counts: dict[i64, i64] = {}
        #: Until when messages that came back wait for their next try.
        self.retries: dict[i64, i64] = {}
        #: How far the named consumers of a stream have come.
        self.offsets: dict[bytes, int] = {}
        #: Whose these names are, where that was told.
        self.offset_owners: dict[bytes, Owner] = {}
        #: Which of all streams of its name it is; empty where nothing told it.
        self.stream_id = ""
        self.deleted = False

    def forget(self) -> None:
        """Forget what was in it: it was deleted."""
        self.messages.clear()
        self.chunks.clear()
        self.covered = RangeSet()
        self.counts.clear()

    def in_chunk(self, sequence: i64) -> bool:
        """Tell whether a sequence lies in the range of a chunk."""
        return self.covered.has(sequence)

    def add_chunk(self, ref: ChunkRef) -> None:
        """Learn where some of its messages lie."""
        self.chunks.append(ref)
        self.covered.add(ref.first, ref.last)

    def hand_over(self, returned: Returned | None) -> None:
        """Know of a message that lies in a chunk what its chunk does not say."""
        if returned is not None and returned.count > 0:
            self.counts[returned.sequence] = returned.count

    def is_stream(self) -> bool:
        """Tell whether it is a stream, as far as is known."""
        definition = self.definition
        if definition is None:
            return False
        arguments = definition.get("arguments")
        return isinstance(arguments, dict) and arguments.get("x-queue-type") == "stream"

    def keeps_all(self) -> bool:
        """Tell whether its messages survive, persistent or not: as `Queue.keeps_all`."""
        return self.is_stream() or (self.definition is not None and "delays" in self.definition)

    def forget_counts(self, first: i64, last: i64) -> None:
        """Forget how often messages came back that are gone."""
        if last - first < len(self.counts):
            sequence: i64 = first
            while sequence <= last:
                self.counts.pop(sequence, None)
                sequence += 1
        else:
            for held in [held for held in self.counts if first <= held <= last]:
                del self.counts[held]
