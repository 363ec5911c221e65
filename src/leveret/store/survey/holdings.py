"""The contents of each queue according to a snapshot and the journal, for the offline tools.

Unlike the replay of a broker, this one stores the journal file of every message and the removed
sequences, and also stores messages of the journal that are in a chunk.  If such a chunk is damaged,
its messages can be taken from the journal.

`queue_state.py` applies records to a queue, both for a start and for the tools, so that a survey
predicts the result of a start.

Invariant: this module does no I/O.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.message import Message
from leveret.store.records.catalog import Catalog
from leveret.store.records.fields import number, text
from leveret.store.records.ranges import RangeSet
from leveret.store.recovery.queue_state import KnownQueue, QueueState
from leveret.store.recovery.replay import Replay
from leveret.store.segments.segments import ChunkRef
from leveret.wire.numbered import read_numbered


@final
@mypyc_attr(acyclic=True)
class Held:
    """A message's size and journal file (-1 for a copy), and the message itself if it is kept."""

    def __init__(self, message: Message | None, size: i64, file_number: i64) -> None:
        self.message: Final = message
        self.size: Final[i64] = size
        self.file_number: Final[i64] = file_number


@final
class Holding(QueueState[Held]):
    """The state of a queue or stream from its records, and from a survey of the segments.

    A message in a chunk remains in `messages`, because the chunk may be damaged.
    """

    def __init__(self, queue_id: i64) -> None:
        super().__init__(queue_id)
        #: The highest message number of each publisher, and the time of its last message.
        self.publishers: dict[bytes, tuple[int, int]] = {}
        # The results of surveying the segments.
        self.in_chunks = RangeSet()
        self.chunk_messages: i64 = 0
        self.chunk_bytes: i64 = 0
        self.dead_rows: i64 = 0
        self.lost: i64 = 0

    def sent(self, publisher: bytes, sequence: i64, time_ms: i64) -> None:
        """Record the number and the time of a publisher's message."""
        known, last_ms = self.publishers.get(publisher, (0, 0))
        self.publishers[publisher] = (max(known, int(sequence)), max(last_ms, int(time_ms)))

    @property
    def title(self) -> str:
        """The queue's name in descriptions."""
        if self.definition is None:
            return f"the unexplained queue {self.queue_id}"
        return f"{self.name!r} in {self.vhost!r}"

    def found_in_chunk(self, sequence: i64, size: i64) -> bool:
        """Count a live message of a chunk; return False if another chunk already had it."""
        if self.in_chunks.has(sequence):
            return False
        self.in_chunks.add(sequence, sequence)
        self.chunk_messages += 1
        self.chunk_bytes += size
        return True

    def is_held(self, sequence: i64) -> bool:
        """Return whether the journal or a chunk has a message."""
        return sequence in self.messages or self.in_chunks.has(sequence)

    def journal_only(self) -> tuple[int, int]:
        """Return how many live messages only the journal has, and their bytes."""
        messages: i64 = 0
        size: i64 = 0
        for sequence, held in self.messages.items():
            if not self.in_chunks.has(sequence) and not self.is_gone(sequence):
                messages += 1
                size += held.size
        return int(messages), int(size)


@final
class Holdings(Replay):
    """All queues by id, and the definitions.

    `keep` is true if messages are kept.  `file_number` is the journal file being replayed.
    """

    def __init__(self, keep: bool) -> None:
        self.catalog = Catalog()
        self.queues: dict[i64, Holding] = {}
        self.counters: dict[str, int] = {}
        self.file_number: i64 = 0
        #: True while records must not add data, but only remove existing messages.
        self.closed = False
        self._keep = keep

    def of(self, queue_id: i64) -> Holding:
        """Return the state of a queue, which is created if unknown."""
        queue = self.queues.get(queue_id)
        if queue is None:
            queue = Holding(queue_id)
            self.queues[queue_id] = queue
        return queue

    def living(self) -> list[Holding]:
        """Return the existing queues by id, except empty ones without a definition."""
        found: list[Holding] = []
        for queue_id in sorted(self.queues):
            queue = self.queues[queue_id]
            explained = queue.definition is not None or queue.messages or queue.chunks
            if explained and not queue.deleted:
                found.append(queue)
        return found

    # -- definitions -------------------------------------------------------------------------------

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Add a definition."""
        if self.closed:
            return
        self.catalog.define(kind, definition)
        if kind == "queue":
            queue = self.of(number(definition, "id"))
            queue.definition = definition
            queue.identified(definition)
        elif kind == "stream_id":
            self.of(number(definition, "id")).identified(definition)

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Delete a definition; a vhost is deleted with its queues."""
        self.catalog.delete(kind, definition)
        if kind == "queue":
            self.of(number(definition, "id")).drop()
        elif kind == "publisher":
            name = definition.get("name")
            if isinstance(name, bytes):
                self.of(number(definition, "id")).publishers.pop(name, None)
        elif kind == "vhost":
            vhost = text(definition, "name")
            for queue in self.queues.values():
                if queue.definition is not None and queue.vhost == vhost:
                    queue.drop()

    # -- messages ----------------------------------------------------------------------------------

    def publish(self, message: Message, targets: list[tuple[int, int]]) -> None:
        """Add a message to its queues."""
        if self.closed:
            return
        held = Held(message if self._keep else None, message.size, self.file_number)
        numbered = read_numbered(message.properties) if message.numbered else None
        for queue_id, sequence in targets:
            queue = self.of(queue_id)
            queue.took(sequence)
            queue.unsure = False
            if numbered is not None:
                queue.sent(numbered.publisher, numbered.number, message.timestamp_ms)
            if not queue.deleted:
                queue.messages[sequence] = held

    def ack(self, queue_id: i64, first: i64, last: i64) -> None:
        """Remove messages."""
        self.of(queue_id).ack(first, last)

    def requeue(self, queue_id: i64, sequence: i64, delivery_count: i64) -> None:
        """Set a message's delivery count."""
        queue = self.of(queue_id)
        if not queue.deleted:
            queue.counts[sequence] = delivery_count

    def purge(self, queue_id: i64, below_sequence: i64) -> None:
        """Remove every message below a sequence."""
        self.of(queue_id).purge(below_sequence)

    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Set the first offset of a stream."""
        self.of(queue_id).trim(first_offset)

    def consumer_offset(self, queue_id: i64, consumer: bytes, offset: i64) -> None:
        """Set the offset of a named consumer."""
        self.of(queue_id).offsets[consumer] = int(offset)

    def consumer_forgotten(self, queue_id: i64, consumer: bytes) -> None:
        """Remove a named consumer and its owner."""
        self.of(queue_id).offsets.pop(consumer, None)
        gone: dict[str, object] = {"id": int(queue_id), "name": consumer}
        self.catalog.delete("stream_consumer", gone)

    def records_lost(self) -> None:
        """Treat every queue's end as uncertain until another record of it is replayed."""
        for queue in self.queues.values():
            queue.unsure = True

    # -- from the snapshot -------------------------------------------------------------------------

    def publisher_sequence(
        self, queue_id: i64, publisher: bytes, sequence: i64, time_ms: i64
    ) -> None:
        """Set the highest number of a named publisher's messages, and the time of the last one."""
        self.of(queue_id).sent(publisher, sequence, time_ms)

    def counter(self, name: str, value: i64) -> None:
        """Set a counter, which never decreases."""
        self.counters[name] = max(self.counters.get(name, 0), int(value))

    def queue(self, queue_id: i64, next_sequence: i64) -> None:
        """Set a queue's next sequence."""
        self.of(queue_id).took(next_sequence - 1)

    def acked(self, queue_id: i64, first: i64, last: i64) -> None:
        """Add removed sequences of a queue's chunks."""
        self.of(queue_id).dead.add(first, last)

    def chunk(self, queue_id: i64, ref: ChunkRef) -> bool:
        """Add a chunk of a queue, whose messages are examined later."""
        if self.closed:
            return False
        queue = self.of(queue_id)
        queue.took(ref.last)
        if not queue.deleted:
            queue.add_chunk(ref)
        return False

    def spill(self, queue_id: i64, ref: ChunkRef, gone: RangeSet) -> None:
        """Add a chunk of earlier messages, which remain because the chunk may be damaged."""
        queue = self.of(queue_id)
        for first, last in gone.ranges():
            queue.dead.add(first, last)
        self.chunk(queue_id, ref)

    # -- repair ------------------------------------------------------------------------------------

    def state(self, queue_id: i64) -> KnownQueue | None:
        """Return the known state of a queue."""
        return self.queues.get(queue_id)

    def queue_ids(self) -> list[int]:
        """Return the ids of all queues in the records."""
        return [int(queue_id) for queue_id in self.queues]

    def chunk_message(
        self, queue_id: i64, sequence: i64, message: Message, delivery_count: i64
    ) -> None:
        """Add a copy of a damaged message that was found elsewhere."""
        queue = self.of(queue_id)
        queue.took(sequence)
        queue.messages[sequence] = Held(message if self._keep else None, message.size, -1)
        if delivery_count > 0 and sequence not in queue.counts:
            queue.counts[sequence] = delivery_count
