"""The checkpoint: live data of the older journal moves to chunks, so that the journal stays short.

    begin     the journal rolls: the next group begins a new file, where replay will start
    gather    the broker passes definitions, queues and their live messages in slices while
              it continues to work; chunks and the snapshot's records are written meanwhile
    wait      until every record appended so far is durable: the snapshot may hold an effect (a
              message that was moved, a transaction's ack) whose other half is in the journal only
    commit    the snapshot is synced and renamed; from then on recovery uses it
    retire    the generation before the previous one is removed, with its journal and segments

This is the part without I/O; `files.py` does the work that it requests.  Only one checkpoint runs
at a time, on the event loop's thread.

Invariants: an interrupted checkpoint has no effect.  The previous generation, its journal and its
segments stay until the next commit, so that a damaged snapshot loses nothing.  A checkpoint that
raised is not continued: its data is incomplete, and its commit would replace complete data.  No
other checkpoint begins after it either, because queues refer to chunks that may never be written;
the broker stops, and the next start recovers from the previous generation.  At most about
`CHECKPOINT_BYTES_HELD_MAX` plus one message wait to be written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import NEVER, ChunkBuilder
from leveret.limits import SLICE_MESSAGES
from leveret.message import Message
from leveret.store.journal.journal import Journal
from leveret.store.records.publish_session import PublishProgress
from leveret.store.recovery.recovery import RecoveryReport
from leveret.store.segments.segments import ChunkRef, SegmentNumbers, chunk_ref
from leveret.store.segments.spill import SEGMENT_FILE_BYTES, Spill
from leveret.store.snapshot import SnapshotHead, SnapshotWriter

#: Bytes of chunks and records that a checkpoint collects before they are written.
CHECKPOINT_BYTES_HELD_MAX: Final = 4 * 1024 * 1024


_GATHERING: Final = 0
_SPILLING: Final = 1
_WAITING: Final = 2
_COMMITTING: Final = 3
_DONE: Final = 4
_FAILED: Final = 5

#: The cost of a definition (some 8 µs) beyond that of a message (some 2 µs), in items.
_MORE_FOR_DEFINITION: Final = 3


@final
class SegmentWrite:
    """Parts to be appended to one segment file."""

    def __init__(self, file_number: i64) -> None:
        self.file_number: Final[i64] = file_number
        self.parts: list[bytes] = []


@final
class CheckpointWork:
    """The next work for the disk: chunks and records to write, or the commit with its clean-up.

    `header` is empty except for the commit, which also removes all snapshots but this and the
    previous one, journal files below `journal_file_kept`, and `segments_dropped`.
    """

    def __init__(self, head: SnapshotHead, segments: list[SegmentWrite], records: bytes) -> None:
        self.head: Final = head
        self.segments: Final = segments
        self.records = records
        self.header = b""
        self.previous_generation: i64 = 0
        self.journal_file_kept: i64 = 0
        self.segments_dropped: list[int] = []

    @property
    def size(self) -> int:
        """The number of bytes to write."""
        size = len(self.records)
        for write in self.segments:
            for part in write.parts:
                size += len(part)
        return size


@final
class NewChunk:
    """A chunk that a checkpoint wrote of the messages with these sequences."""

    def __init__(self, queue_id: i64, ref: ChunkRef, sequences: list[int]) -> None:
        self.queue_id: Final[i64] = queue_id
        self.ref: Final = ref
        self.sequences: Final = sequences


@final
class CheckpointOutput:
    """The destination of the broker's state.  Offsets of streams are sequences here.

    For each queue the calls come in this order, without calls for another queue between them:
    `define` of the queue itself, `queue`, `acked`, `keep`, `message`, `delivery_count`.
    """

    def __init__(self, seed: int, head: SnapshotHead, numbers: SegmentNumbers) -> None:
        self.head: Final = head
        self.segments_used: set[int] = set()
        self._numbers = numbers
        self._snapshot = SnapshotWriter(seed, head)
        # With it the store can be read even if the file `format` is lost.
        self._snapshot.counter("seed", seed)
        self._builder: ChunkBuilder | None = None
        self._queue_id: i64 = -1
        #: True if the messages belong to a queue, false if to a stream, which others read.
        self._trails = False
        self._defined_trails = False
        self._writes: list[SegmentWrite] = []
        self._held: i64 = 0
        self._file_number: i64 = -1
        self._position: i64 = 0
        #: The chunks that were closed: their owners, positions and sequences.
        self.new_refs: list[NewChunk] = []
        #: Definitions so far, each of which takes longer than a message.
        self.definitions: i64 = 0
        self._sequences: list[int] = []

    @property
    def full(self) -> bool:
        """Return whether a source should pause because enough data waits to be written."""
        return self._held + self._snapshot.waiting >= CHECKPOINT_BYTES_HELD_MAX

    def counter(self, name: str, value: i64) -> None:
        """Add a counter that never decreases."""
        self._snapshot.counter(name, value)

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Add a definition, in the format of `Journal.define`."""
        self.definitions += 1
        self._close_chunk()
        if kind == "queue":
            arguments = definition.get("arguments")
            stream = isinstance(arguments, dict) and arguments.get("x-queue-type") == "stream"
            self._defined_trails = not stream
        self._snapshot.define(kind, definition)

    def queue(self, queue_id: i64, next_sequence: i64) -> None:
        """Begin a queue or stream, whose next message gets `next_sequence` or a higher sequence."""
        self._close_chunk()
        self._queue_id = queue_id
        self._trails = self._defined_trails
        self._defined_trails = False
        self._snapshot.queue(queue_id, next_sequence)

    def acked(self, queue_id: i64, ranges: list[tuple[int, int]]) -> None:
        """Add sequences that are gone from the chunks passed to `keep` next."""
        self._check(queue_id)
        self._snapshot.acked(queue_id, ranges)

    def keep(self, queue_id: i64, ref: ChunkRef) -> None:
        """Keep a chunk of an earlier checkpoint; chunks that are not kept are dropped."""
        self._check(queue_id)
        self.segments_used.add(int(ref.file_number))
        self._snapshot.chunk(queue_id, ref)

    def message(
        self,
        queue_id: i64,
        sequence: i64,
        message: Message,
        delivery_count: i64 = 0,
        expiry_ms: i64 = NEVER,
        priority: i64 = 0,
    ) -> None:
        """Add a live message that is in no kept chunk; sequences ascend."""
        self._check(queue_id)
        builder = self._builder
        if builder is None:
            builder = ChunkBuilder(queue_id, False, self._trails)
            self._builder = builder
        builder.add(sequence, message, delivery_count, expiry_ms, priority)
        self._sequences.append(int(sequence))
        self._held += message.size
        if builder.full:
            self._close_chunk()

    def delivery_count(self, queue_id: i64, sequence: i64, count: i64) -> None:
        """Add the number of deliveries of a message in a kept chunk, if it was requeued since."""
        self._check(queue_id)
        self._snapshot.delivery_count(queue_id, sequence, count)

    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Add the first offset of a stream."""
        self._snapshot.trim(queue_id, first_offset)

    def consumer_offset(self, queue_id: i64, consumer: bytes, offset: i64) -> None:
        """Add the stored offset of a named consumer of a stream."""
        self._snapshot.consumer_offset(queue_id, consumer, offset)

    def publisher_sequence(
        self, queue_id: i64, publisher: bytes, sequence: i64, time_ms: i64
    ) -> None:
        """Add the highest number of a publisher's messages, and the time of the last one.

        It follows the chunks, because messages in chunks are not replayed.
        """
        self._snapshot.publisher_sequence(queue_id, publisher, sequence, time_ms)

    def publish_session(self, progress: PublishProgress) -> None:
        """Add the progress of the publishes on a client's channel, before the queues."""
        self._snapshot.publish_session(progress)

    def take(self) -> CheckpointWork:
        """Return the data that waits to be written."""
        writes, self._writes = self._writes, []
        self._held = 0
        return CheckpointWork(self.head, writes, self._snapshot.take())

    def end(self) -> CheckpointWork:
        """Return the rest of the data, with the header that completes the snapshot."""
        self._close_chunk()
        header = self._snapshot.end()
        work = self.take()
        work.header = header
        return work

    def close_chunk(self) -> None:
        """Close the open chunk: all messages of its queue were added."""
        self._close_chunk()

    def _check(self, queue_id: i64) -> None:
        """Refuse data of a queue other than the one that was begun."""
        if queue_id != self._queue_id:
            raise ValueError("a queue's state must be added in one go, after `queue`")

    def _close_chunk(self) -> None:
        """Assign a position in a segment to the open chunk."""
        builder = self._builder
        if builder is None:
            return
        self._builder = None
        if self._file_number < 0 or self._position >= SEGMENT_FILE_BYTES:
            self._file_number = self._numbers.take()
            self._position = 0
            self.segments_used.add(int(self._file_number))
        parts = builder.parts()
        size: i64 = 0
        for part in parts:
            size += len(part)
        ref = chunk_ref(builder, self._file_number, self._position, size)
        self._position += size
        self._snapshot.chunk(builder.owner, ref)
        self.new_refs.append(NewChunk(builder.owner, ref, self._sequences))
        self._sequences = []
        if not self._writes or self._writes[-1].file_number != self._file_number:
            self._writes.append(SegmentWrite(self._file_number))
        self._writes[-1].parts.extend(parts)


@mypyc_attr(allow_interpreted_subclasses=True)
class CheckpointSource(ABC):
    """The state of the broker, passed to the checkpoint part by part; the broker implements it.

    The contract:

    1. `begin` is called once, at a boundary between two operations.  Everything that is journaled
       before it and was not in the group being filled will not be replayed and must be handed over.
       Everything journaled afterwards is replayed over the snapshot, whether the snapshot includes
       it or not; so the broker continues to work meanwhile, and its state may change.
    2. `hand_over` passes the state to `out`, and yields now and then the number of items passed;
       some of them are passed before the broker continues, fewer if `out.full`.
    3. Counters come first, then definitions except for queues and bindings, then each queue as a
       whole (its definition, then the rest in the order that `CheckpointOutput` requires; messages
       of a long queue in several parts), then the bindings.
    4. A queue that was created after `begin` is left out: the journal has all of it.  One that is
       deleted meanwhile is not continued.
    5. Of a queue with persistent messages, every live message (waiting, delivered but not acked,
       in an open transaction) with a sequence below the queue's next one at `begin` is in a kept
       chunk or is handed over by `message`, in ascending order.  Newer messages are left out, and
       so are those that are gone by the time they would be passed.
    6. `chunked` reports where a chunk of handed-over messages is, after those that are handed over
       at once; no chunk holds messages of two such parts.  The next checkpoint must keep it while
       any message in it is live.  Those of its sequences that are gone by now count as the queue's
       acked ones from then on.
    7. A chunk that is spilled (`spill.py`) between two parts is handed over by `keep`, or its
       record is in the journal: the commit waits for both.
    8. An exception in any call ends the checkpoint: no call of this object follows.
    """

    @abstractmethod
    def begin(self, group: i64) -> None:
        """Record the boundary; `group` is the first group that will be replayed."""

    @abstractmethod
    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        """Pass the state to `out`; yield the number of items since the last yield."""

    @abstractmethod
    def chunked(self, chunk: NewChunk) -> None:
        """Record the place of a chunk of a queue's messages."""


@final
class Checkpoint:
    """One checkpoint, driven by its owner.

    Call `step`, and let the disk do the work that it returns (`CheckpointFiles.run`) before the
    next call.  If it returns None, either `done` is True or the checkpoint waits: until some
    spilled data is written, at its end until all of it is, and then until the journal's
    `durable_group` has reached `barrier`.
    """

    def __init__(
        self,
        journal: Journal,
        source: CheckpointSource,
        output: CheckpointOutput,
        store: CheckpointStore,
    ) -> None:
        self._journal = journal
        self._source = source
        self._output = output
        #: The iterator over the remaining state.
        self._left: Final = source.hand_over(output)
        self._store = store
        self._state: i64 = _GATHERING
        self._spilled: i64 = 0
        self.barrier: i64 = 0

    @property
    def done(self) -> bool:
        """Return whether the commit and the clean-up are done."""
        return self._state == _DONE

    def step(self) -> CheckpointWork | None:
        """Continue; return the work for the disk before the next step.

        Raises: the source's exceptions; then the checkpoint never takes effect, and none begins
        after it.  RuntimeError: it raised before.
        """
        if self._state == _FAILED:
            raise RuntimeError("a failed checkpoint cannot be continued")
        try:
            return self._step()
        except BaseException:
            self._state = _FAILED
            self._store.failed = True
            raise

    def _step(self) -> CheckpointWork | None:
        """Continue by one step."""
        # The work of the step before is done.
        self._store.spill.checkpointed.clear()
        if self._state == _GATHERING:
            if self._store.spill.overfull:
                # Spilled data must be written before more is spilled.
                return None
            return self._gather()
        if self._state == _SPILLING:
            if self._store.spill.completed < self._spilled:
                return None
            self.barrier = self._journal.last_group
            self._state = _WAITING
        if self._state == _WAITING:
            if self._journal.durable_group < self.barrier:
                return None
            self._state = _COMMITTING
            return self._store.commit_work(self._output)
        if self._state == _COMMITTING:
            self._state = _DONE
            self._store.committed(self._output)
        return None

    def _gather(self) -> CheckpointWork:
        """Let the source pass one slice."""
        output = self._output
        more = False
        handed: i64 = -_MORE_FOR_DEFINITION * output.definitions
        for items in self._left:
            handed += items
            count = handed + _MORE_FOR_DEFINITION * output.definitions
            if count >= SLICE_MESSAGES or output.full or self._store.spill.overfull:
                more = True
                break
            # The chunk must be complete before anything else happens to its messages.
        output.close_chunk()
        if not more:
            self._spilled = self._store.spill.submitted
            self._state = _SPILLING
        chunks, output.new_refs = output.new_refs, []
        for chunk in chunks:
            self._store.spill.use.wrote(chunk.ref)
            self._store.spill.checkpointed.add(int(chunk.ref.file_number))
            self._source.chunked(chunk)
        return output.take()


@final
class CheckpointStore:
    """The state that one checkpoint leaves for the next: numbers, and which files are needed."""

    def __init__(self, report: RecoveryReport) -> None:
        self._seed = report.seed
        self._uuid = report.uuid
        self._generation: i64 = report.next_generation
        self._numbers = SegmentNumbers(report.next_segment)
        #: The file for chunks that do not belong to a checkpoint.
        self.spill = Spill(self._numbers)
        self._previous = report.head
        #: The files that the previous snapshot and the journal after it need.
        self._previous_segments: set[int] = report.segments_used | report.segments_spilled
        #: No file that was created since the last checkpoint began has a lower number.
        self._newest_segment: i64 = report.head.newest_segment
        #: The files to remove once nothing needs them; it is unknown which of them a lost snapshot
        #: referred to.
        self._all_segments: set[int] = set()
        if report.state_whole:
            self._all_segments |= report.segments_found
        #: True once a checkpoint raised: the queues' references to their chunks may then be wrong.
        self.failed = False

    def begin(self, journal: Journal, source: CheckpointSource, now_ms: i64) -> Checkpoint:
        """Begin a checkpoint: the journal rolls now.

        Raises: RuntimeError: an earlier checkpoint failed.
        """
        if self.failed:
            raise RuntimeError("no checkpoint begins after a failed one")
        # Set until the source has begun, too.
        self.failed = True
        replay_from = journal.roll()
        self._previous_segments |= self.spill.take_files()
        head = SnapshotHead(
            self._generation,
            replay_from,
            journal.next_file_number,
            now_ms,
            self._newest_segment,
        )
        self._newest_segment = self._numbers.next
        journal.checkpoint(self._generation, self._uuid)
        self._generation += 1
        source.begin(replay_from)
        self.failed = False
        return Checkpoint(journal, source, CheckpointOutput(self._seed, head, self._numbers), self)

    def commit_work(self, output: CheckpointOutput) -> CheckpointWork:
        """Return the work that commits a checkpoint and removes files that are no longer needed."""
        work = output.end()
        work.previous_generation = self._previous.generation
        work.journal_file_kept = self._previous.journal_file
        kept = output.segments_used | self._previous_segments
        self._all_segments |= self._previous_segments
        work.segments_dropped = sorted(self._all_segments - kept)
        self.spill.use.removed(work.segments_dropped)
        return work

    def committed(self, output: CheckpointOutput) -> None:
        """Record that a checkpoint is committed."""
        self._all_segments &= output.segments_used | self._previous_segments
        self._all_segments |= output.segments_used
        self._previous = output.head
        self._previous_segments = output.segments_used
