"""A small broker state for the store's tests, built by a replay of records, with comparisons.

It follows only the rules in `leveret.store.recovery.replay`, so that it also shows that they
suffice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from leveret.limits import SLICE_MESSAGES
from leveret.message import Address, Message
from leveret.store.checkpoint.checkpoint import (
    CheckpointOutput,
    CheckpointSource,
    CheckpointStore,
    NewChunk,
)
from leveret.store.checkpoint.files import CheckpointFiles
from leveret.store.disk import Disk
from leveret.store.journal.files import JournalFiles
from leveret.store.journal.journal import Journal
from leveret.store.records.ranges import RangeSet
from leveret.store.recovery.queue_state import KnownQueue
from leveret.store.recovery.recovery import RecoveryReport, recover
from leveret.store.recovery.replay import Replay
from leveret.store.segments.segments import ChunkRef

UUID = bytes(range(16))
NOW = 1_700_000_000_000


def message(body: bytes, exchange: bytes = b"logs", routing_key: bytes = b"a.b") -> Message:
    """Return a persistent message."""
    return Message(Address(exchange, routing_key), b"\x10\x00\x02", body, NOW, True)


@dataclass
class Queue:
    """A queue as the tests see it: live messages and counts by sequence."""

    name: str
    next_sequence: int = 0
    live: dict[int, Message] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    refs: list[ChunkRef] = field(default_factory=list)
    acked: RangeSet = field(default_factory=RangeSet)
    dead: RangeSet = field(default_factory=RangeSet)
    chunked_below: int = 0
    first_offset: int = 0

    def drop(self, sequence: int) -> None:
        """Remove a message."""
        self.live.pop(sequence, None)
        self.counts.pop(sequence, None)
        if sequence < self.chunked_below:
            self.acked.add(sequence, sequence)


class Known(KnownQueue):
    """A queue as known to the tests' replay."""

    def __init__(self, queue_id: int, queue: Queue) -> None:
        super().__init__(queue_id)
        self.definition = {"name": queue.name, "arguments": {"x-queue-type": "stream"}}
        self.next_sequence = queue.next_sequence
        for ranges in (queue.acked, queue.dead):
            for first, last in ranges.ranges():
                self.dead.add(first, last)
        self.live = queue.live
        for ref in queue.refs:
            self.add_chunk(ref)

    def kept_between(self, first: int, last: int) -> list[int]:
        return [sequence for sequence in self.live if first <= sequence <= last]


class State(Replay):
    """Queues by id, fed by a replay or by hand."""

    def __init__(self) -> None:
        self.queues: dict[int, Queue] = {}
        self.orphans: dict[int, int] = {}
        self.counters: dict[str, int] = {}
        self.offsets: dict[tuple[int, bytes], int] = {}
        self.definitions: dict[tuple[str, str], dict[str, object]] = {}

    def define(self, kind: str, definition: dict[str, object]) -> None:
        if kind != "queue":
            self.definitions[kind, str(definition["name"])] = definition
            return
        queue_id, name = int(str(definition["id"])), str(definition["name"])
        if queue_id in self.queues:
            return
        same = [number for number, queue in self.queues.items() if queue.name == name]
        if any(number > queue_id for number in same):
            return
        for number in same:
            del self.queues[number]
        self.queues[queue_id] = Queue(name)

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        if kind == "queue":
            self.queues.pop(int(str(definition["id"])), None)
            self.orphans.pop(int(str(definition["id"])), None)
        else:
            self.definitions.pop((kind, str(definition["name"])), None)

    def publish(self, message: Message, targets: list[tuple[int, int]]) -> None:
        for queue_id, sequence in targets:
            queue = self.queues.get(queue_id)
            if queue is None:
                self.orphans[queue_id] = self.orphans.get(queue_id, 0) + 1
                continue
            queue.live[sequence] = message
            queue.next_sequence = max(queue.next_sequence, sequence + 1)

    def ack(self, queue_id: int, first: int, last: int) -> None:
        queue = self.queues.get(queue_id)
        if queue is None:
            return
        queue.dead.add(first, last)
        for sequence in range(first, last + 1):
            queue.drop(sequence)
        queue.next_sequence = max(queue.next_sequence, last + 1)

    def requeue(self, queue_id: int, sequence: int, delivery_count: int) -> None:
        queue = self.queues.get(queue_id)
        if queue is not None and sequence in queue.live:
            queue.counts[sequence] = delivery_count

    def purge(self, queue_id: int, below_sequence: int) -> None:
        queue = self.queues.get(queue_id)
        if queue is None:
            return
        queue.dead.add(0, below_sequence - 1)
        for sequence in [number for number in queue.live if number < below_sequence]:
            queue.drop(sequence)
        queue.next_sequence = max(queue.next_sequence, below_sequence)

    def trim(self, queue_id: int, first_offset: int) -> None:
        if queue_id in self.queues:
            self.queues[queue_id].first_offset = first_offset

    def consumer_offset(self, queue_id: int, consumer: bytes, offset: int) -> None:
        self.offsets[queue_id, b"c" + consumer] = offset

    def publisher_sequence(
        self, queue_id: int, publisher: bytes, sequence: int, time_ms: int
    ) -> None:
        assert time_ms == sequence + 1
        self.offsets[queue_id, b"p" + publisher] = sequence

    def counter(self, name: str, value: int) -> None:
        self.counters[name] = max(self.counters.get(name, 0), value)

    def queue(self, queue_id: int, next_sequence: int) -> None:
        queue = self.queues[queue_id]
        queue.next_sequence = max(queue.next_sequence, next_sequence)

    def acked(self, queue_id: int, first: int, last: int) -> None:
        self.queues[queue_id].acked.add(first, last)

    def chunk(self, queue_id: int, ref: ChunkRef) -> bool:
        if queue_id not in self.queues:
            return False
        self.queues[queue_id].refs.append(ref)
        self.queues[queue_id].chunked_below = int(ref.last) + 1
        return True

    def state(self, queue_id: int) -> KnownQueue | None:
        queue = self.queues.get(queue_id)
        return None if queue is None else Known(queue_id, queue)

    def queue_ids(self) -> list[int]:
        return list(self.queues)

    def chunk_lost(self, queue_id: int, ref: ChunkRef) -> None:
        queue = self.queues[queue_id]
        queue.refs = [kept for kept in queue.refs if kept.first < ref.first]
        queue.chunked_below = int(queue.refs[-1].last) + 1 if queue.refs else 0

    def chunk_message(
        self, queue_id: int, sequence: int, message: Message, delivery_count: int
    ) -> None:
        queue = self.queues[queue_id]
        queue.live[sequence] = message
        if delivery_count:
            queue.counts[sequence] = delivery_count

    def spill(self, queue_id: int, ref: ChunkRef, gone: RangeSet) -> None:
        raise AssertionError(f"nothing is spilled here: {queue_id} {ref} {gone}")

    # -- comparing ---------------------------------------------------------------------------------

    def seen(self) -> dict[int, tuple[str, int, list[tuple[int, object, int]]]]:
        """Return the relevant state of the queues in comparable form."""
        return {
            queue_id: (
                queue.name,
                queue.first_offset,
                [(n, content(queue.live[n]), queue.counts.get(n, 0)) for n in sorted(queue.live)],
            )
            for queue_id, queue in sorted(self.queues.items())
        }


def content(kept: Message) -> tuple[bytes, bytes, bytes, bytes, int, bool]:
    """Return the parts of a message that must not change."""
    return (
        kept.address.exchange,
        kept.address.routing_key,
        kept.properties,
        kept.body,
        int(kept.timestamp_ms),
        kept.persistent,
    )


class Told(Replay):
    """Records the calls of a replay."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def define(self, kind: str, definition: dict[str, object]) -> None:
        self.calls.append(("define", kind, definition))

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        self.calls.append(("delete", kind, definition))

    def publish(self, message: Message, targets: list[tuple[int, int]]) -> None:
        self.calls.append(("publish", content(message), targets))

    def ack(self, queue_id: int, first: int, last: int) -> None:
        self.calls.append(("ack", queue_id, first, last))

    def requeue(self, queue_id: int, sequence: int, delivery_count: int) -> None:
        self.calls.append(("requeue", queue_id, sequence, delivery_count))

    def purge(self, queue_id: int, below_sequence: int) -> None:
        self.calls.append(("purge", queue_id, below_sequence))

    def trim(self, queue_id: int, first_offset: int) -> None:
        self.calls.append(("trim", queue_id, first_offset))

    def consumer_offset(self, queue_id: int, consumer: bytes, offset: int) -> None:
        self.calls.append(("consumer_offset", queue_id, consumer, offset))

    def consumer_forgotten(self, queue_id: int, consumer: bytes) -> None:
        self.calls.append(("consumer_forgotten", queue_id, consumer))

    def publisher_sequence(
        self, queue_id: int, publisher: bytes, sequence: int, time_ms: int
    ) -> None:
        self.calls.append(("publisher_sequence", queue_id, publisher, sequence, time_ms))

    def queue(self, queue_id: int, next_sequence: int) -> None:
        self.calls.append(("queue", queue_id, next_sequence))

    def chunk(self, _queue_id: int, _ref: ChunkRef) -> bool:
        return False

    def chunk_message(self, *_: object) -> None:
        raise AssertionError("no chunk was asked for")

    def spill(self, queue_id: int, ref: ChunkRef, gone: RangeSet) -> None:
        self.calls.append(("spill", queue_id, ref.first, ref.last, list(gone.ranges())))


class Source(CheckpointSource):
    """A checkpoint source of a state, with one queue or a number of messages per step."""

    def __init__(self, state: State, slice_messages: int = 1_000_000) -> None:
        self.state = state
        self.slice_messages = slice_messages
        self.bounds: dict[int, int] = {}
        self.todo: list[int] = []
        self.open_queue = -1
        self.messages: list[int] = []
        self.steps = 0

    def begin(self, _group: int) -> None:
        self.bounds = {number: q.next_sequence for number, q in self.state.queues.items()}
        self.todo = sorted(self.bounds)

    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        while self._step(out):
            yield SLICE_MESSAGES

    def _step(self, out: CheckpointOutput) -> bool:
        self.steps += 1
        if self.steps == 1:
            for name, value in self.state.counters.items():
                out.counter(name, value)
            for (kind, _), definition in self.state.definitions.items():
                out.define(kind, definition)
            for (queue_id, who), value in self.state.offsets.items():
                if who[:1] == b"c":
                    out.consumer_offset(queue_id, who[1:], value)
                else:
                    out.publisher_sequence(queue_id, who[1:], value, value + 1)
        if not self.messages:
            self.finish(out)
            if not self.todo:
                return False
            self.start(self.todo.pop(0), out)
        self._hand_over_some(out)
        return True

    def start(self, queue_id: int, out: CheckpointOutput) -> None:
        """Begin a queue: its definition, its acks, its older chunks."""
        queue = self.state.queues.get(queue_id)
        if queue is None:
            return
        self.open_queue = queue_id
        out.define("queue", {"id": queue_id, "name": queue.name})
        out.queue(queue_id, queue.next_sequence)
        out.trim(queue_id, queue.first_offset)
        queue.refs = [
            ref for ref in queue.refs if any(ref.first <= n <= ref.last for n in queue.live)
        ]
        if queue.refs:
            queue.acked.remove(0, queue.refs[0].first - 1)
        out.acked(queue_id, list(queue.acked.ranges()))
        for ref in queue.refs:
            out.keep(queue_id, ref)
        below = self.bounds[queue_id]
        self.messages = [n for n in sorted(queue.live) if queue.chunked_below <= n < below]

    def _hand_over_some(self, out: CheckpointOutput) -> None:
        """Write the next live messages."""
        now, self.messages = (
            self.messages[: self.slice_messages],
            self.messages[self.slice_messages :],
        )
        queue = self.state.queues.get(self.open_queue)
        if queue is None:
            return
        for sequence in now:
            if sequence in queue.live:
                count = queue.counts.get(sequence, 0)
                out.message(self.open_queue, sequence, queue.live[sequence], count)

    def finish(self, out: CheckpointOutput) -> None:
        """End the queue: the counts of messages in its older chunks."""
        queue = self.state.queues.get(self.open_queue)
        if queue is not None:
            for sequence, count in queue.counts.items():
                if any(ref.first <= sequence <= ref.last for ref in queue.refs):
                    out.delivery_count(self.open_queue, sequence, count)
        self.open_queue = -1

    def chunked(self, chunk: NewChunk) -> None:
        ref = chunk.ref
        queue = self.state.queues.get(chunk.queue_id)
        if queue is None:
            return
        queue.refs.append(ref)
        for sequence in range(max(queue.chunked_below, int(ref.first)), int(ref.last) + 1):
            if sequence not in queue.live:
                queue.acked.add(sequence, sequence)
        queue.chunked_below = int(ref.last) + 1


class Store:
    """A state with its journal and disk; operations apply to both, as in a broker."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.state = State()
        self.report: RecoveryReport = recover(disk, self.state, UUID, NOW)
        self.journal: Journal = self.report.journal()
        self.files = JournalFiles(disk)
        self.checkpoints = CheckpointStore(self.report)
        self.checkpoint_files = CheckpointFiles(disk)

    def define_queue(self, queue_id: int, name: str) -> None:
        self.journal.define("queue", {"id": queue_id, "name": name})
        self.state.define("queue", {"id": queue_id, "name": name})

    def delete_queue(self, queue_id: int) -> None:
        self.journal.delete("queue", {"id": queue_id})
        self.state.delete("queue", {"id": queue_id})

    def publish(self, sent: Message, *queue_ids: int) -> list[tuple[int, int]]:
        """Publish to queues; return the targets."""
        targets = [(number, self.state.queues[number].next_sequence) for number in queue_ids]
        for queue_id, sequence in targets:
            self.journal.target(queue_id, sequence)
        self.journal.publish(sent)
        self.state.publish(sent, targets)
        return targets

    def ack(self, queue_id: int, first: int, last: int) -> None:
        self.journal.ack(queue_id, first, last)
        self.state.ack(queue_id, first, last)

    def requeue(self, queue_id: int, sequence: int, count: int) -> None:
        self.journal.requeue(queue_id, sequence, count)
        self.state.requeue(queue_id, sequence, count)

    def purge(self, queue_id: int) -> None:
        below = self.state.queues[queue_id].next_sequence
        self.journal.purge(queue_id, below)
        self.state.purge(queue_id, below)

    def move(self, queue_id: int, sequence: int, to: int) -> None:
        """Move a message to another queue, as dead-lettering does."""
        moved = self.state.queues[queue_id].live[sequence]
        target = (to, self.state.queues[to].next_sequence)
        self.journal.target(*target)
        self.journal.move(queue_id, sequence, moved)
        self.state.publish(moved, [target])
        self.state.ack(queue_id, sequence, sequence)

    def sync(self) -> None:
        """Make everything so far durable."""
        last = self.journal.group
        while (group := self.journal.seal()) is not None:
            self.files.write(group)
            self.journal.synced(group.number)
            if group.number >= last:
                return

    def checkpoint(self, slice_messages: int = 1_000_000) -> None:
        """Take a whole checkpoint, syncing whenever it waits for a sync."""
        source = Source(self.state, slice_messages)
        checkpoint = self.checkpoints.begin(self.journal, source, NOW)
        while not checkpoint.done:
            work = checkpoint.step()
            if work is not None:
                self.checkpoint_files.run(work)
            else:
                self.sync()
