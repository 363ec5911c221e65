"""Salvage, which writes all data found by a survey to a new, complete directory.

The new directory is like that of a broker after its first checkpoint: format, one snapshot,
segments, and a journal without further records.  It is a new store with its own uuid, so no data of
the old one is mistaken for a part of it.  All files are synced at the end.

Messages of unknown queues are written to a separate queue in the vhost `/`, as after a start.  The
survey reports losses.  Deduplication keys that no checkpoint contains are not written.

Invariants: the source is only read.  A message is written only if its digest matches.  Each queue
keeps its order.  Memory is limited by the data that is only in the journal.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.chunk import Chunk, RecordDamaged
from leveret.message import Message
from leveret.store.checkpoint.checkpoint import (
    CheckpointOutput,
    CheckpointSource,
    CheckpointStore,
    NewChunk,
)
from leveret.store.checkpoint.files import CheckpointFiles
from leveret.store.disk import Disk
from leveret.store.format import FORMAT_PATH, open_format
from leveret.store.journal.files import JournalFiles
from leveret.store.journal.journal import Journal
from leveret.store.records.fields import number
from leveret.store.records.levels import STRICT, stored_level
from leveret.store.recovery.copies import expiry_of, readable_chunk
from leveret.store.recovery.recovery import RecoveryReport
from leveret.store.segments.segments import ChunkRef
from leveret.store.survey.holdings import Holding
from leveret.store.survey.survey import Survey

#: The name of a queue for messages of an unknown queue, followed by the unknown queue's id.
ORPHANS: Final = "leveret.recovered."

#: Kinds of definitions that are written together with their queue.
_OF_QUEUES: Final = ("redelivered", "levels", "deduplication", "retry")


@final
class Row:
    """A live message to write."""

    def __init__(
        self, sequence: i64, message: Message, count: i64, expiry_ms: i64, priority: i64
    ) -> None:
        self.sequence: Final[i64] = sequence
        self.message: Final = message
        self.count: Final[i64] = count
        self.expiry_ms: Final[i64] = expiry_ms
        self.priority: Final[i64] = priority


@final
class Salvage(CheckpointSource):
    """The state found by a survey with `keep`.  `orphans` are the names of added queues.

    `messages` and `bytes` count the passed messages.
    """

    def __init__(self, survey: Survey) -> None:
        self.orphans: list[str] = []
        self.messages: i64 = 0
        self.bytes: i64 = 0
        self._survey = survey
        self._own: dict[i64, list[tuple[str, dict[str, object]]]] = {}

    def begin(self, group: i64) -> None:
        """Do nothing, because the state does not change."""

    def chunked(self, chunk: NewChunk) -> None:
        """Do nothing, because there is no later checkpoint."""

    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        """Pass the whole state; yield after each item."""
        holdings = self._survey.holdings
        highest = holdings.counters.get("queue_id", 0)
        for queue_id in holdings.queues:
            highest = max(highest, int(queue_id))
        out.counter("queue_id", highest)
        out.counter("user_number", holdings.counters.get("user_number", 0))
        own = ("queue", "binding", *_OF_QUEUES, "stream_id")
        for kind, definition in holdings.catalog.others_than(*own):
            out.define(kind, definition)
            yield 1
        for kind, definition in holdings.catalog.all_of(*_OF_QUEUES):
            own_of = self._own.setdefault(number(definition, "id"), [])
            own_of.append((kind, definition))
        for queue in holdings.living():
            yield from self._hand_over_queue(out, queue)
        for kind, definition in holdings.catalog.all_of("binding"):
            out.define(kind, definition)
            yield 1

    def _hand_over_queue(self, out: CheckpointOutput, queue: Holding) -> Iterator[int]:
        queue_id = queue.queue_id
        out.define("queue", self._definition(queue))
        own = self._own.get(queue_id, [])
        for kind, definition in own:
            out.define(kind, definition)
        out.queue(queue_id, queue.next_sequence)
        stream = queue.type == "stream"
        if stream:
            out.trim(queue_id, queue.first_offset)
        for consumer, offset in queue.offsets.items():
            out.consumer_offset(queue_id, consumer, offset)
        for publisher, (sequence, time_ms) in queue.publishers.items():
            out.publisher_sequence(queue_id, publisher, sequence, time_ms)
        last: i64 = -1
        strict = any(kind == "levels" for kind, _ in own)
        for row in rows_of(self._survey.disk, queue, STRICT if strict else _levels(queue)):
            if stream and last >= 0 and row.sequence != last + 1:
                # A chunk of a stream must not have gaps between its offsets.
                out.close_chunk()
            last = row.sequence
            message = row.message
            out.message(queue_id, last, message, row.count, row.expiry_ms, row.priority)
            self.messages += 1
            self.bytes += message.size
            yield 1
        out.close_chunk()

    def _definition(self, queue: Holding) -> dict[str, object]:
        """Return a queue's definition, or a new one for a queue without a definition."""
        if queue.definition is not None:
            definition = {**queue.definition, "stream_id": queue.stream_id}
            if not queue.stream_id:
                # Offsets may be reused, so the stream gets another id at its first start.
                del definition["stream_id"]
            return definition
        name = f"{ORPHANS}{queue.queue_id}"
        self.orphans.append(name)
        return {
            "vhost": "/",
            "name": name,
            "id": int(queue.queue_id),
            "auto_delete": False,
            "arguments": {},
        }


@final
class _Cursor:
    """The position in one chunk's rows."""

    def __init__(self, chunk: Chunk, queue: Holding) -> None:
        self.chunk: Final = chunk
        self._queue: Final = queue
        self._index: i64 = -1
        self.message: Message | None = None

    def next(self) -> i64:
        """Move to the next live, intact row; return its sequence, or -1 at the end."""
        while self._index + 1 < self.chunk.count:
            self._index += 1
            sequence = self.chunk.sequence(self._index)
            if self._queue.is_gone(sequence):
                continue
            try:
                self.message = self.chunk.message(self._index)
            except RecordDamaged:
                continue
            return sequence
        return -1

    def row(self, sequence: i64) -> Row:
        """Return the current row."""
        assert self.message is not None
        count: i64 = self._queue.counts.get(sequence, -1)
        if count < 0:
            count = self.chunk.delivery_count(self._index)
        expiry_ms = self.chunk.expiry_ms(self._index)
        return Row(sequence, self.message, count, expiry_ms, self.chunk.priority(self._index))


def rows_of(disk: Disk, queue: Holding, levels: i64) -> Iterator[Row]:
    """Yield the live messages of a queue in order, each once, from chunks and journal.

    `levels` are the queue's levels as in `levels.py`.
    """
    places = sorted(queue.chunks.values(), key=_first_of, reverse=True)
    waiting = sorted(queue.messages, reverse=True)
    cursors: dict[int, _Cursor] = {}
    heap: list[tuple[int, int]] = []
    done: i64 = -1
    while heap or places or waiting:
        while places and (
            (not heap and not waiting)
            or (heap and heap[0][0] >= places[-1].first)
            or (waiting and waiting[-1] >= places[-1].first)
        ):
            _open(disk, queue, places.pop(), cursors, heap)
        if waiting and (not heap or waiting[-1] <= heap[0][0]):
            sequence = waiting.pop()
            held = queue.messages[sequence]
            if sequence > done and not queue.is_gone(sequence) and held.message is not None:
                done = sequence
                count = queue.counts.get(sequence, 0)
                message = held.message
                level = stored_level(message, levels)
                yield Row(sequence, message, count, expiry_of(message), level)
        elif heap:
            found, slot = heapq.heappop(heap)
            if found > done:
                done = found
                yield cursors[slot].row(found)
            _push(cursors, heap, slot)


def _open(
    disk: Disk,
    queue: Holding,
    place: ChunkRef,
    cursors: dict[int, _Cursor],
    heap: list[tuple[int, int]],
) -> None:
    """Open a chunk if it is readable; the survey has reported unreadable ones."""
    chunk = readable_chunk(disk, queue.queue_id, place)
    if chunk is not None:
        slot = max(cursors, default=-1) + 1
        cursors[slot] = _Cursor(chunk, queue)
        _push(cursors, heap, slot)


def _push(cursors: dict[int, _Cursor], heap: list[tuple[int, int]], slot: int) -> None:
    """Add the next row of a chunk to the heap, or release a chunk without further rows."""
    sequence = cursors[slot].next()
    if sequence >= 0:
        heapq.heappush(heap, (int(sequence), slot))
    else:
        del cursors[slot]


def _levels(queue: Holding) -> i64:
    """Return the highest level of a queue with priorities, or 0 for other queues."""
    arguments = None if queue.definition is None else queue.definition.get("arguments")
    most = arguments.get("x-max-priority") if isinstance(arguments, dict) else None
    return most if isinstance(most, int) else 0


def _first_of(place: ChunkRef) -> int:
    return int(place.first)


def write_salvage(disk: Disk, salvage: Salvage, uuid: bytes, now_ms: i64) -> Iterator[None]:
    """Write the state of a salvage to a new directory; yield regularly.

    The format file gets its name last, because no broker accepts a directory without it.

    Raises: UnknownFormat if the directory is not empty; StorageFailure if the disk fails.
    """
    format_ = open_format(disk, uuid, now_ms)
    disk.rename(FORMAT_PATH, f"{FORMAT_PATH}.new")
    report = RecoveryReport()
    report.uuid = format_.uuid
    report.seed = format_.seed
    journal = Journal(report.seed)
    files = JournalFiles(disk)
    writer = CheckpointFiles(disk)
    checkpoint = CheckpointStore(report).begin(journal, salvage, now_ms)
    while not checkpoint.done:
        work = checkpoint.step()
        if work is not None:
            writer.run(work)
            yield
            continue
        group = journal.seal()
        if group is not None:
            files.write(group)
            journal.synced(group.number)
    files.close()
    disk.rename(f"{FORMAT_PATH}.new", FORMAT_PATH)
    disk.fsync_dir("")
