"""The state of a queue or stream that results from the records of snapshot and journal.

A broker's start and the tools' survey compute the same state by the rules of this module: which
messages an ack, a purge or a trim removes, which sequence is next, and when a stream's id is
uncertain.  Their classes `RestoredQueue` and `Holding` differ in the stored parts of a message and
of its chunks.

A sequence is never reused.  The live messages are all recorded messages except the removed ones, in
any order of the records.

Invariant: this module does no I/O.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from mypy_extensions import i64, mypyc_attr

from leveret.store.records.fields import text
from leveret.store.records.ranges import RangeSet
from leveret.store.segments.segments import ChunkRef

#: The type of a stored message.
Kept = TypeVar("Kept")


@mypyc_attr(allow_interpreted_subclasses=True)
class KnownQueue:
    """The state of a queue or stream according to its records, without its messages."""

    def __init__(self, queue_id: i64) -> None:
        self.queue_id: i64 = queue_id
        self.definition: dict[str, object] | None = None
        self.deleted = False
        self.next_sequence: i64 = 0
        self.first_offset: i64 = 0
        #: Removed sequences: acked, purged or moved.
        self.dead = RangeSet()
        #: The chunks by file and position, and the sequences from the first to the last of each.
        self.chunks: dict[tuple[int, int], ChunkRef] = {}
        self.covered = RangeSet()
        #: True if its last messages may be lost, because no record of it followed a damaged place.
        self.unsure = False
        self._stream_id = ""

    # -- identity ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The queue's name, or "" if no record contains it."""
        return "" if self.definition is None else text(self.definition, "name")

    @property
    def vhost(self) -> str:
        """The queue's vhost, or "" if no record contains it."""
        return "" if self.definition is None else text(self.definition, "vhost")

    @property
    def type(self) -> str:
        """The queue's type from its arguments, or `delayed`, or "" if unknown."""
        if self.definition is None:
            return ""
        if "delays" in self.definition:
            return "delayed"
        arguments = self.definition.get("arguments")
        kind = arguments.get("x-queue-type") if isinstance(arguments, dict) else None
        return kind if isinstance(kind, str) else "classic"

    @property
    def stream_id(self) -> str:
        """The id that distinguishes streams of the same name, or "" if uncertain."""
        return "" if self.unsure else self._stream_id

    def keeps_transient(self) -> bool:
        """Return whether a start also restores transient messages."""
        return self.type in ("stream", "delayed")

    def identified(self, definition: dict[str, object]) -> None:
        """Set a stream's id.  An id that is recorded after damage is certain."""
        stream_id = text(definition, "stream_id")
        if stream_id:
            self._stream_id = stream_id
            self.unsure = False

    # -- its messages -----------------------------------------------------------------------------

    def took(self, sequence: i64) -> None:
        """Record that a sequence was used."""
        self.next_sequence = max(self.next_sequence, sequence + 1)

    @abstractmethod
    def kept_between(self, first: i64, last: i64) -> list[i64]:
        """Return the sequences from `first` to `last` whose messages are stored here."""

    def is_gone(self, sequence: i64) -> bool:
        """Return whether a message was acked, purged, moved or trimmed."""
        return sequence < self.first_offset or self.dead.has(sequence)

    def gone_between(self, first: i64, last: i64) -> RangeSet:
        """Return the removed sequences from `first` to `last`."""
        gone = RangeSet()
        gone.add(first, min(self.first_offset - 1, last))
        for low, high in self.dead.within(first, last):
            gone.add(low, high)
        return gone

    def unaccounted(self, first: i64, last: i64) -> int:
        """Return how many of these sequences are neither removed, nor stored, nor in a chunk."""
        if self.deleted or last < first:
            return 0
        known = self.gone_between(first, last)
        for low, high in self.covered.within(first, last):
            known.add(low, high)
        for sequence in self.kept_between(first, last):
            known.add(sequence, sequence)
        return int(last - first + 1) - known.count(first, last)

    def add_chunk(self, ref: ChunkRef) -> None:
        """Add a chunk of the queue's messages."""
        self.chunks[int(ref.file_number), int(ref.position)] = ref
        self.covered.add(ref.first, ref.last)

    def refs(self) -> list[ChunkRef]:
        """Return the references to the queue's chunks."""
        return list(self.chunks.values())

    def refers_to(self, ref: ChunkRef) -> bool:
        """Return whether the queue has a chunk at this position."""
        return not self.deleted and (int(ref.file_number), int(ref.position)) in self.chunks

    def lose_chunk(self, ref: ChunkRef) -> None:
        """Remove a damaged chunk."""
        if self.chunks.pop((int(ref.file_number), int(ref.position)), None) is not None:
            self.covered.remove(ref.first, ref.last)


class QueueState(KnownQueue, Generic[Kept]):
    """The state of a queue or stream, with its messages."""

    def __init__(self, queue_id: i64) -> None:
        super().__init__(queue_id)
        self.messages: dict[i64, Kept] = {}
        #: Delivery counts that are in neither the messages nor their chunks.
        self.counts: dict[i64, i64] = {}
        #: The stored offsets of the named consumers of a stream.
        self.offsets: dict[bytes, int] = {}

    def kept_between(self, first: i64, last: i64) -> list[i64]:
        """Return the sequences from `first` to `last` whose messages are stored here."""
        messages = self.messages
        if last - first >= len(messages):
            return [sequence for sequence in messages if first <= sequence <= last]
        found: list[i64] = []
        sequence: i64 = first
        while sequence <= last:
            if sequence in messages:
                found.append(sequence)
            sequence += 1
        return found

    def ack(self, first: i64, last: i64) -> None:
        """Remove messages permanently."""
        self.took(last)
        self.dead.add(first, last)
        if first == last:
            self.messages.pop(first, None)
        else:
            for sequence in self.kept_between(first, last):
                del self.messages[sequence]
        if self.counts:
            self._forget_counts(first, last)

    def purge(self, below_sequence: i64) -> None:
        """Remove every message below a sequence."""
        if below_sequence > 0:
            self.ack(0, below_sequence - 1)

    def trim(self, first_offset: i64) -> None:
        """Raise a stream's first offset to `first_offset`, and remove the messages before it."""
        offset = self.first_offset
        self.first_offset = max(offset, first_offset)
        for sequence in self.kept_between(offset, first_offset - 1):
            del self.messages[sequence]

    def drop(self) -> None:
        """Mark the queue as deleted, and clear its contents."""
        self.deleted = True
        self.messages.clear()
        self.counts.clear()
        self.chunks.clear()
        self.covered = RangeSet()

    def _forget_counts(self, first: i64, last: i64) -> None:
        """Delete the delivery counts of removed messages."""
        counts = self.counts
        if last - first < len(counts):
            sequence: i64 = first
            while sequence <= last:
                counts.pop(sequence, None)
                sequence += 1
        else:
            for held in [held for held in counts if first <= held <= last]:
                del counts[held]
