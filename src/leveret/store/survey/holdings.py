"""What each queue holds, told by snapshot and journal: the tools' side of a replay.

Unlike a broker's restore it keeps where each message lies and what is gone, and drops no message
that a chunk holds as well: so a chunk that turns out to be damaged can be filled from the journal.

Since a sequence is never used twice, what lives is what was ever told less what is gone, whatever
the order.  Invariant: nothing is journaled, read or written here.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import NEVER
from leveret.message import Message
from leveret.store.records.catalog import Catalog
from leveret.store.records.fields import number, text
from leveret.store.records.ranges import RangeSet
from leveret.store.records.record import FORGOTTEN
from leveret.store.recovery.replay import Replay
from leveret.store.segments.segments import ChunkRef
from leveret.wire.numbered import read_numbered


@final
@mypyc_attr(acyclic=True)
class Held:
    """A message that the journal told: its bytes, its file, and itself where messages are kept."""

    def __init__(self, message: Message | None, size: i64, file_number: i64) -> None:
        self.message: Final = message
        self.size: Final[i64] = size
        self.file_number: Final[i64] = file_number


@final
@mypyc_attr(acyclic=True)
class Place:
    """Where a chunk of a queue lies and which sequences it spans."""

    def __init__(
        self,
        file_number: i64,
        position: i64,
        size: i64,
        first: i64,
        last: i64,
        count: i64,
        persistent: i64,
    ) -> None:
        self.file_number: Final[i64] = file_number
        self.position: Final[i64] = position
        self.size: Final[i64] = size
        self.first: Final[i64] = first
        self.last: Final[i64] = last
        self.count: Final[i64] = count
        self.persistent: Final[i64] = persistent


@final
class Holding:
    """What was told of one queue or stream."""

    def __init__(self, queue_id: i64) -> None:
        self.queue_id: Final[i64] = queue_id
        self.definition: dict[str, object] | None = None
        self.deleted = False
        #: True where its last messages may be lost: nothing was told of it since a damaged place.
        self.unsure = False
        self._stream_id = ""
        self.next_sequence: i64 = 0
        self.first_offset: i64 = 0
        #: From this sequence on the journal told every persistent message.
        self.told_from: i64 = NEVER
        self.messages: dict[i64, Held] = {}
        self.counts: dict[i64, int] = {}
        self.dead = RangeSet()
        #: Its chunks by file and position.
        self.places: dict[tuple[int, int], Place] = {}
        self.offsets: dict[bytes, int] = {}
        #: The highest number of each publisher's messages, and the time of its last one.
        self.publishers: dict[bytes, tuple[int, int]] = {}
        # What a survey of the segments finds.
        self.in_chunks = RangeSet()
        self.chunk_messages: i64 = 0
        self.chunk_bytes: i64 = 0
        self.dead_rows: i64 = 0
        self.lost: i64 = 0

    def sent(self, publisher: bytes, sequence: i64, time_ms: i64) -> None:
        """Learn that a publisher's message of that number was taken."""
        known, last_ms = self.publishers.get(publisher, (0, 0))
        self.publishers[publisher] = (max(known, int(sequence)), max(last_ms, int(time_ms)))

    @property
    def name(self) -> str:
        """The queue's name, empty where no record tells it."""
        return "" if self.definition is None else text(self.definition, "name")

    @property
    def vhost(self) -> str:
        """The queue's vhost, empty where no record tells it."""
        return "" if self.definition is None else text(self.definition, "vhost")

    @property
    def type(self) -> str:
        """The queue's type: what its arguments ask for, or `delayed`; empty if not known."""
        if self.definition is None:
            return ""
        if "delays" in self.definition:
            return "delayed"
        arguments = self.definition.get("arguments")
        kind = arguments.get("x-queue-type") if isinstance(arguments, dict) else None
        return kind if isinstance(kind, str) else "classic"

    @property
    def stream_id(self) -> str:
        """Which of all streams that had its name it is; empty where that is not certain."""
        return "" if self.unsure else self._stream_id

    def identified(self, stream_id: str) -> None:
        """Learn a stream's id, which is certain again where it is told after damage."""
        if stream_id:
            self._stream_id = stream_id
            self.unsure = False

    @property
    def title(self) -> str:
        """What to call the queue where people read it."""
        if self.definition is None:
            return f"the unexplained queue {self.queue_id}"
        return f"{self.name!r} in {self.vhost!r}"

    def keeps_transient(self) -> bool:
        """Tell whether a start brings transient messages back; it does where it is not known."""
        return self.type in ("stream", "delayed", "")

    def is_gone(self, sequence: i64) -> bool:
        """Tell whether a message was acked, purged, moved or trimmed."""
        return sequence < self.first_offset or self.dead.has(sequence)

    def found_in_chunk(self, sequence: i64, size: i64) -> bool:
        """Count a live message of a chunk; False when another chunk had it before."""
        if self.in_chunks.has(sequence):
            return False
        self.in_chunks.add(sequence, sequence)
        self.chunk_messages += 1
        self.chunk_bytes += size
        return True

    def is_held(self, sequence: i64) -> bool:
        """Tell whether journal or chunks have a message."""
        return sequence in self.messages or self.in_chunks.has(sequence)

    def missing_in(self, place: Place) -> int:
        """Return how many messages of a chunk are neither gone nor held.

        Which sequences they have is not known; at most so many are missing.  What the journal would
        have told was transient, or the journal's damage says so.
        """
        count = place.count if self.keeps_transient() else place.persistent
        missing: i64 = 0
        sequence: i64 = max(place.first, self.first_offset)
        last: i64 = min(place.last, self.told_from - 1)
        while sequence <= last:
            if not self.dead.has(sequence) and not self.is_held(sequence):
                missing += 1
            sequence += 1
        return int(min(missing, count))

    def journal_only(self) -> tuple[int, int]:
        """Return how many live messages only the journal has, and their bytes."""
        messages: i64 = 0
        size: i64 = 0
        for sequence, held in self.messages.items():
            if not self.in_chunks.has(sequence) and sequence >= self.first_offset:
                messages += 1
                size += held.size
        return int(messages), int(size)

    def took(self, sequence: i64) -> None:
        """Take note that a sequence was used."""
        self.next_sequence = max(self.next_sequence, sequence + 1)


@final
class Holdings(Replay):
    """All queues by id, and the definitions.

    `keep` tells whether messages are kept; `file_number` is set to the journal file being told.
    """

    def __init__(self, keep: bool) -> None:
        self.catalog = Catalog()
        self.queues: dict[i64, Holding] = {}
        self.counters: dict[str, int] = {}
        self.file_number: i64 = 0
        #: True while nothing more is taken in: what is told only ends what is here.
        self.closed = False
        self._keep = keep

    def of(self, queue_id: i64) -> Holding:
        """Return what is known of a queue, nothing where it is met first."""
        queue = self.queues.get(queue_id)
        if queue is None:
            queue = Holding(queue_id)
            self.queues[queue_id] = queue
        return queue

    def living(self) -> list[Holding]:
        """Return the queues that were not deleted, by id; empty ones that nothing explains not."""
        found: list[Holding] = []
        for queue_id in sorted(self.queues):
            queue = self.queues[queue_id]
            explained = queue.definition is not None or queue.messages or queue.places
            if explained and not queue.deleted:
                found.append(queue)
        return found

    # -- definitions -------------------------------------------------------------------------------

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Take a definition."""
        if self.closed:
            return
        self.catalog.define(kind, definition)
        if kind == "queue":
            queue = self.of(number(definition, "id"))
            queue.definition = definition
            queue.identified(text(definition, "stream_id"))
        elif kind == "stream_id":
            self.of(number(definition, "id")).identified(text(definition, "stream_id"))

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Take out a definition; a vhost goes with its queues."""
        self.catalog.delete(kind, definition)
        if kind == "queue":
            self._drop(self.of(number(definition, "id")))
        elif kind == "publisher":
            name = definition.get("name")
            if isinstance(name, bytes):
                self.of(number(definition, "id")).publishers.pop(name, None)
        elif kind == "vhost":
            vhost = text(definition, "name")
            for queue in self.queues.values():
                if queue.definition is not None and queue.vhost == vhost:
                    self._drop(queue)

    def _drop(self, queue: Holding) -> None:
        queue.deleted = True
        queue.messages.clear()
        queue.counts.clear()

    # -- messages ----------------------------------------------------------------------------------

    def publish(self, message: Message, targets: list[tuple[int, int]]) -> None:
        """Put a message into its queues."""
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
            queue.told_from = min(queue.told_from, sequence)
            if not queue.deleted:
                queue.messages[sequence] = held

    def ack(self, queue_id: i64, first: i64, last: i64) -> None:
        """Take messages out."""
        queue = self.of(queue_id)
        queue.took(last)
        queue.dead.add(first, last)
        messages = queue.messages
        if last - first < len(messages):
            sequence: i64 = first
            while sequence <= last:
                messages.pop(sequence, None)
                sequence += 1
        else:
            for held in [held for held in messages if first <= held <= last]:
                del messages[held]

    def requeue(self, queue_id: i64, sequence: i64, delivery_count: i64) -> None:
        """Set how often a message was delivered."""
        queue = self.of(queue_id)
        if not queue.deleted:
            queue.counts[sequence] = int(delivery_count)

    def purge(self, queue_id: i64, below_sequence: i64) -> None:
        """Take out every message below a sequence."""
        if below_sequence > 0:
            self.ack(queue_id, 0, below_sequence - 1)

    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Let a stream begin later."""
        queue = self.of(queue_id)
        offset = queue.first_offset
        queue.first_offset = max(offset, first_offset)
        messages = queue.messages
        if first_offset - offset < len(messages):
            while offset < first_offset:
                messages.pop(offset, None)
                offset += 1
        else:
            for held in [held for held in messages if held < first_offset]:
                del messages[held]

    def consumer_offset(self, queue_id: i64, consumer: bytes, offset: i64) -> None:
        """Set how far a named consumer has come."""
        if offset == FORGOTTEN:
            self.of(queue_id).offsets.pop(consumer, None)
            gone: dict[str, object] = {"id": int(queue_id), "name": consumer}
            self.catalog.delete("stream_consumer", gone)
        else:
            self.of(queue_id).offsets[consumer] = int(offset)

    def records_lost(self) -> None:
        """Take the end of no queue for certain that nothing more is told of."""
        for queue in self.queues.values():
            queue.unsure = True

    # -- from the snapshot -------------------------------------------------------------------------

    def publisher_sequence(
        self, queue_id: i64, publisher: bytes, sequence: i64, time_ms: i64
    ) -> None:
        """Set the highest number of a named publisher's messages, and the time of the last one."""
        self.of(queue_id).sent(publisher, sequence, time_ms)

    def counter(self, name: str, value: i64) -> None:
        """Take a counter; it never goes back."""
        self.counters[name] = max(self.counters.get(name, 0), int(value))

    def queue(self, queue_id: i64, next_sequence: i64) -> None:
        """Set a queue's next sequence."""
        self.of(queue_id).took(next_sequence - 1)

    def acked(self, queue_id: i64, first: i64, last: i64) -> None:
        """Learn what is gone from a queue's chunks."""
        self.of(queue_id).dead.add(first, last)

    def chunk(self, queue_id: i64, ref: ChunkRef) -> bool:
        """Learn where messages of a queue lie; they are looked at later."""
        if self.closed:
            return False
        queue = self.of(queue_id)
        queue.took(ref.last)
        queue.places[int(ref.file_number), int(ref.position)] = Place(
            ref.file_number,
            ref.position,
            ref.size,
            ref.first,
            ref.last,
            ref.count,
            ref.persistent,
        )
        return False

    def spill(self, queue_id: i64, ref: ChunkRef, gone: RangeSet) -> None:
        """Learn where messages lie that were told before; these stay, for the chunk may be bad."""
        queue = self.of(queue_id)
        for first, last in gone.ranges():
            queue.dead.add(first, last)
        self.chunk(queue_id, ref)

    def chunk_message(
        self,
        queue_id: i64,
        sequence: i64,
        message: Message,
        delivery_count: i64,
        expiry_ms: i64,
        priority: i64,
    ) -> None:
        """Never come here: `chunk` asks for none."""
        raise RuntimeError("no message of a chunk was asked for")
