"""The checkpoint, which moves live data of the older journal to chunks to keep the journal short.

    begin     the journal rolls: the next group begins a new file, where replay will start
    gather    the broker passes definitions, queues and their live messages in slices, while it
              continues to work and chunks and the snapshot's records are written
    wait      until every record appended so far is durable, because the snapshot may contain one
              part of a change (a moved message, a transaction's ack) whose other part is only in
              the journal
    commit    the snapshot is synced and renamed; from then on recovery uses it
    retire    the generation before the previous one is removed, with its journal and segments

This module does no I/O; `files.py` does the work that it requests.  Only one checkpoint runs at a
time, on the event loop's thread.

Invariants: an interrupted checkpoint has no effect.  The previous generation, its journal and its
segments remain until the next commit, so that a damaged snapshot loses nothing.  A checkpoint that
raised is not continued, because its data is incomplete and its commit would replace complete data.
No other checkpoint begins after it, because queues refer to chunks that may never be written.  The
broker stops, and the next start recovers from the previous generation.  At most about
`CHECKPOINT_BYTES_HELD_MAX` plus one message are in memory to be written.
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

#: The number of bytes of chunks and records that a checkpoint collects before they are written.
CHECKPOINT_BYTES_HELD_MAX: Final = 4 * 1024 * 1024


_GATHERING: Final = 0
_SPILLING: Final = 1
_WAITING: Final = 2
_COMMITTING: Final = 3
_DONE: Final = 4
_FAILED: Final = 5

#: The additional cost of a definition (some 8 µs) over a message (some 2 µs), in messages.
_MORE_FOR_DEFINITION: Final = 3


@final
class SegmentWrite:
    """Parts to append to one segment file."""

    def __init__(self, file_number: i64) -> None:
        self.file_number: Final[i64] = file_number
        self.parts: list[bytes] = []


@final
class CheckpointWork:
    """Chunks and records to write to disk, and at the end the commit with its clean-up.

    `header` is empty except for the commit.  The clean-up removes all snapshots except this and the
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
    """A new chunk of a checkpoint, with the messages of these sequences."""

    def __init__(self, queue_id: i64, ref: ChunkRef, sequences: list[int]) -> None:
        self.queue_id: Final[i64] = queue_id
        self.ref: Final = ref
        self.sequences: Final = sequences


@final
class CheckpointOutput:
    """Receives the broker's state.  Offsets of streams are called sequences here.

    For each queue the calls are in this order, without calls for another queue between them:
    `define` of the queue itself, `queue`, `acked`, `keep`, `message`, `delivery_count`.
    """

    def __init__(self, seed: int, head: SnapshotHead, numbers: SegmentNumbers) -> None:
        self.head: Final = head
        self.segments_used: set[int] = set()
        self._numbers = numbers
        self._snapshot = SnapshotWriter(seed, head)
        # With the seed, the store can be read even if the file `format` is lost.
        self._snapshot.counter("seed", seed)
        self._builder: ChunkBuilder | None = None
        self._queue_id: i64 = -1
        #: True if the messages belong to a queue, and false if they belong to a stream, whose
        #: chunks clients read.
        self._trails = False
        self._defined_trails = False
        self._writes: list[SegmentWrite] = []
        self._held: i64 = 0
        self._file_number: i64 = -1
        self._position: i64 = 0
        #: The closed chunks: their owners, positions and sequences.
        self.new_refs: list[NewChunk] = []
        #: The number of definitions so far, each of which takes longer than a message.
        self.definitions: i64 = 0
        self._sequences: list[int] = []

    @property
    def full(self) -> bool:
        """Whether the source should pause because there is enough data to write."""
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
        """Begin a queue or stream, whose later messages have sequences from `next_sequence` on."""
        self._close_chunk()
        self._queue_id = queue_id
        self._trails = self._defined_trails
        self._defined_trails = False
        self._snapshot.queue(queue_id, next_sequence)

    def acked(self, queue_id: i64, ranges: list[tuple[int, int]]) -> None:
        """Add sequences that are removed from the chunks passed to `keep` next."""
        self._check(queue_id)
        self._snapshot.acked(queue_id, ranges)

    def keep(self, queue_id: i64, ref: ChunkRef) -> None:
        """Keep a chunk of an earlier checkpoint.  Chunks that are not kept are dropped."""
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
        """Add a live message that is in no kept chunk, in ascending order of sequences."""
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
        """Add the delivery count of a message in a kept chunk, if it was requeued since."""
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

        The numbers follow the chunks, because messages in chunks are not replayed.
        """
        self._snapshot.publisher_sequence(queue_id, publisher, sequence, time_ms)

    def publish_session(self, progress: PublishProgress) -> None:
        """Add the progress of the publishes on a client's channel, before the queues."""
        self._snapshot.publish_session(progress)

    def take(self) -> CheckpointWork:
        """Return the data collected since the last call."""
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
        """Close the open chunk, if any."""
        self._close_chunk()

    def _check(self, queue_id: i64) -> None:
        """Refuse data of another queue than the current one."""
        if queue_id != self._queue_id:
            raise ValueError("a queue's state must be added in one go, after `queue`")

    def _close_chunk(self) -> None:
        """Assign a position in a segment to the open chunk, if any."""
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
    """The interface by which a broker passes its state to a checkpoint, part by part.

    The contract:

    1. `begin` is called once, at a boundary between two operations.  Data journaled before it,
       except in the group being filled, will not be replayed and must be passed.  Data journaled
       afterwards is replayed over the snapshot, whether the snapshot includes it or not.  So the
       broker continues to work during the checkpoint, and its state may change.
    2. `hand_over` passes the state to `out`, and regularly yields the number of items passed.  Some
       items are passed before the broker continues, fewer if `out.full`.
    3. The order is: counters, then definitions except for queues and bindings, then each queue as a
       whole (its definition, then the rest in the order that `CheckpointOutput` requires; messages
       of a long queue in several parts), then the bindings.
    4. A queue that is created after `begin` is omitted, because the journal has all of it.  A queue
       that is deleted during the checkpoint is not continued.
    5. In a queue with persistent messages, every live message (ready, delivered but not acked, or
       in an open transaction) below the queue's next sequence at `begin` is in a kept chunk, or is
       passed by `message` in ascending order.  Newer messages are omitted, and so are messages that
       are removed before they would be passed.
    6. `chunked` reports the position of a chunk of passed messages, after all messages of one part
       are passed.  No chunk contains messages of two parts.  The next checkpoint must keep the
       chunk while any message in it is live.  Its sequences that are removed by now then count as
       acked sequences of the queue.
    7. A chunk that is spilled (`spill.py`) between two parts is passed by `keep`, or its record is
       in the journal.  The commit waits for both.
    8. An exception in any call ends the checkpoint, and no further call of this object follows.
    """

    @abstractmethod
    def begin(self, group: i64) -> None:
        """Record the boundary; `group` is the first group that will be replayed."""

    @abstractmethod
    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        """Pass the state to `out`; yield the number of items passed since the last yield."""

    @abstractmethod
    def chunked(self, chunk: NewChunk) -> None:
        """Record the position of a new chunk."""


@final
class Checkpoint:
    """A checkpoint, which the caller drives by `step`.

    The caller does the work that `step` returns (`CheckpointFiles.run`) before the next call.  If
    `step` returns None, either `done` is True or the checkpoint waits.  It waits until some spilled
    data is written, at the end until all of it is, and then until the journal's `durable_group` has
    reached `barrier`.
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
        #: The rest of large work.
        self._slices: Iterator[CheckpointWork] = iter(())
        self._state: i64 = _GATHERING
        self._spilled: i64 = 0
        self.barrier: i64 = 0

    @property
    def done(self) -> bool:
        """Whether the commit and the clean-up are done."""
        return self._state == _DONE

    def step(self) -> CheckpointWork | None:
        """Continue, and return the work to do before the next step.

        Raises: the source's exceptions, after which the checkpoint never takes effect and no other
        one can begin; RuntimeError if an earlier step raised.
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
        for work in self._slices:
            return work
        # The previous step's work is done.
        self._store.spill.checkpointed.clear()
        if self._state == _GATHERING:
            if self._store.spill.overfull:
                # Wait until spilled data is written before more is spilled.
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
        """Make the source pass one slice of its state."""
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
        work = output.take()
        if work.size > 2 * CHECKPOINT_BYTES_HELD_MAX:
            self._slices = _in_slices(work)
            return next(self._slices)
        return work


def _in_slices(work: CheckpointWork) -> Iterator[CheckpointWork]:
    """Yield parts of large work, between which the journal is written.

    Confirms do not wait until a whole large message is written.
    """
    writes: list[SegmentWrite] = []
    room: i64 = CHECKPOINT_BYTES_HELD_MAX
    for write in work.segments:
        for part in write.parts:
            done: i64 = 0
            while done < len(part):
                if not writes or writes[-1].file_number != write.file_number:
                    writes.append(SegmentWrite(write.file_number))
                size = min(len(part) - done, room)
                writes[-1].parts.append(part[done : done + size])
                done += size
                room -= size
                if room == 0:
                    yield CheckpointWork(work.head, writes, b"")
                    writes = []
                    room = CHECKPOINT_BYTES_HELD_MAX
    yield CheckpointWork(work.head, writes, work.records)


@final
class CheckpointStore:
    """The state between checkpoints: the next numbers, and the files that are needed."""

    def __init__(self, report: RecoveryReport) -> None:
        self._seed = report.seed
        self._uuid = report.uuid
        self._generation: i64 = report.next_generation
        self._numbers = SegmentNumbers(report.next_segment)
        #: The chunks that do not belong to a checkpoint.
        self.spill = Spill(self._numbers)
        self._previous = report.head
        #: The files that the previous snapshot and the journal after it need.
        self._previous_segments: set[int] = report.segments_used | report.segments_spilled
        #: The lowest number of files that were created since the last checkpoint began.
        self._newest_segment: i64 = report.head.newest_segment
        #: The files to remove when they are no longer needed.  It is empty after all snapshots were
        #: lost, because it is unknown to which files they referred.
        self._all_segments: set[int] = set()
        if report.state_whole:
            self._all_segments |= report.segments_found
        #: True after a checkpoint raised, because queues may have wrong references to chunks.
        self.failed = False

    def begin(self, journal: Journal, source: CheckpointSource, now_ms: i64) -> Checkpoint:
        """Roll the journal, and begin a checkpoint.

        Raises: RuntimeError if an earlier checkpoint failed.
        """
        if self.failed:
            raise RuntimeError("no checkpoint begins after a failed one")
        # If the source's `begin` raises, this remains set.
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
        """Record a committed checkpoint."""
        self._all_segments &= output.segments_used | self._previous_segments
        self._all_segments |= output.segments_used
        self._previous = output.head
        self._previous_segments = output.segments_used
