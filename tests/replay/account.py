"""What the journal says, group by group, read from the trace of a recorded disk.

It is the yardstick of the replayer: whatever checkpoints, chunks, pages and retirement did to the
files, what a recovery finds must be what the journal's records amount to.  So this reads the
groups as they were written, from the first one on, and knows nothing of snapshots and segments.
That the records are right is judged by what the clients were told (`ledger.py`).

Invariant: one record is one `Change`; after a crash it happened or it did not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from leveret.message import Message
from leveret.store.disks.recording import Operation
from leveret.store.format import JOURNAL_DIR
from leveret.store.journal.files import journal_number
from leveret.store.journal.scan import JournalScan
from leveret.store.records.ranges import RangeSet
from leveret.store.records.record import FORGOTTEN, GROUP_HEADER_BYTES, GROUP_MAGIC
from leveret.store.recovery.apply import Applier
from leveret.store.recovery.replay import Replay
from leveret.store.segments.segments import ChunkRef
from leveret.wire.buffer import read_i64_le
from leveret.wire.numbered import read_numbered

#: A queue's id and a sequence or an offset.
Key = tuple[int, int]

#: What must not change of a message.
Content = tuple[bytes, bytes, bytes, bytes, int, bool, bool]

#: What makes a definition unique: its kind and names.
Identity = tuple[str, ...]

#: Definitions that say nothing a client could ask for.
PASSED_BY = ("start", "redelivered", "deduplication")

#: The fields that make a definition of a kind unique.
_NAMED_BY = {
    "queue": ("id",),
    "exchange": ("vhost", "name"),
    "binding": ("vhost", "source", "destination_type", "destination", "routing_key", "arguments"),
    "policy": ("vhost", "name"),
    "operator_policy": ("vhost", "name"),
    "permission": ("user", "vhost"),
    "topic_permission": ("user", "vhost", "exchange"),
    "user_limits": ("user",),
    "parameter": ("vhost", "component", "name"),
    "sink": ("vhost", "name"),
    "publisher": ("id", "name"),
    "stream_consumer": ("id", "name"),
}


def content(message: Message) -> Content:
    """Return what must not change of a message."""
    address = message.address
    return (
        address.exchange,
        address.routing_key,
        message.properties,
        message.body,
        int(message.timestamp_ms),
        message.persistent,
        message.died,
    )


def identity(kind: str, definition: dict[str, object]) -> Identity:
    """Return what makes a definition unique."""
    fields = _NAMED_BY.get(kind, ("name",))
    return (kind, *(_in_words(definition.get(name)) for name in fields))


def offset_identity(queue_id: int, name: bytes = b"") -> Identity:
    """Return what stands for the offset of a named consumer."""
    return ("consumer_offset", str(queue_id), name.decode())


def _in_words(value: object) -> str:
    if isinstance(value, dict):
        return repr(sorted(value.items()))
    return str(value)


def in_words(definition: dict[str, object]) -> str:
    """Return a definition as text that compares; of a sink its batch, for what is left changes."""
    if "batch" in definition and "queues" in definition:
        return f"batch {definition['batch']}"
    return repr(sorted((name, _in_words(value)) for name, value in definition.items()))


def staged_in(definition: dict[str, object]) -> set[int]:
    """Return the ids of the staging queues that a decision names."""
    listed = definition["queues"]
    assert isinstance(listed, list)
    return {int(one) for one in listed}


@dataclass
class Change:
    """What one record says, as calls in their order."""

    calls: list[tuple[str, object]] = field(default_factory=list)
    adds: dict[Key, Content] = field(default_factory=dict)
    #: Ranges of sequences that are gone, by queue.
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    counts: dict[Key, int] = field(default_factory=dict)
    #: Queues that are gone, vhosts that are gone by their queues.
    queues_gone: set[int] = field(default_factory=set)
    #: Chunks that were spilled.
    spills: int = 0
    #: Publishers of messages that are added, with the numbers that they gave them.
    numbers: dict[Key, tuple[bytes, int]] = field(default_factory=dict)

    def removes(self, key: Key) -> bool:
        """Tell whether the record takes a message away, were it there."""
        queue_id, sequence = key
        return queue_id in self.queues_gone or any(
            queue_id == of and first <= sequence <= last for of, first, last in self.ranges
        )


@dataclass
class Holding:
    """What there is: messages with their counts, and definitions."""

    messages: dict[Key, tuple[Content, int]] = field(default_factory=dict)
    definitions: dict[Identity, str] = field(default_factory=dict)
    #: Vhost and name of each queue.
    queues: dict[int, tuple[str, str]] = field(default_factory=dict)
    #: The highest number of each publisher in each queue.
    publishers: dict[tuple[int, bytes], int] = field(default_factory=dict)
    #: Staging queues of batches that are committed.
    decided: set[int] = field(default_factory=set)
    #: All staging queues.
    staging: set[int] = field(default_factory=set)

    def copy(self) -> Holding:
        """Return what there is now."""
        return Holding(
            dict(self.messages),
            dict(self.definitions),
            dict(self.queues),
            dict(self.publishers),
            set(self.decided),
            set(self.staging),
        )

    def queue_ids(self, name: str) -> list[int]:
        """Return the ids of the queues of a name."""
        return [number for number, (_, called) in self.queues.items() if called == name]

    def bodies(self, queue: str) -> dict[bytes, int]:
        """Return the bodies in a queue, each with how often it is there."""
        ids = set(self.queue_ids(queue))
        found: dict[bytes, int] = {}
        for (queue_id, _), (kept, _) in self.messages.items():
            if queue_id in ids:
                found[kept[3]] = found.get(kept[3], 0) + 1
        return found

    def take(self, change: Change) -> None:
        """Go on by one record."""
        for key, kept in change.adds.items():
            self.messages[key] = (kept, 0)
        for (queue_id, _), (publisher, number) in change.numbers.items():
            place = (queue_id, publisher)
            self.publishers[place] = max(number, self.publishers.get(place, -1))
        for name, value in change.calls:
            getattr(self, f"_{name}")(value, change)
        for queue_id, first, last in change.ranges:
            if last - first < len(self.messages):
                for sequence in range(first, last + 1):
                    self.messages.pop((queue_id, sequence), None)
            else:
                gone = [key for key in self.messages if change.removes(key)]
                for key in gone:
                    del self.messages[key]
        for key, count in change.counts.items():
            if key in self.messages:
                self.messages[key] = (self.messages[key][0], count)

    def _define(self, value: tuple[str, dict[str, object]], _change: Change) -> None:
        kind, definition = value
        self.definitions[identity(kind, definition)] = in_words(definition)
        if kind == "sink":
            self.decided.update(staged_in(definition))
        if kind == "queue":
            place = (str(definition.get("vhost")), str(definition.get("name")))
            self.queues[int(str(definition["id"]))] = place
            arguments = definition.get("arguments")
            if isinstance(arguments, dict) and "x-staging-sink" in arguments:
                self.staging.add(int(str(definition["id"])))

    def _delete(self, value: tuple[str, dict[str, object]], change: Change) -> None:
        kind, definition = value
        self.definitions.pop(identity(kind, definition), None)
        vhost, name = str(definition.get("vhost", "")), str(definition.get("name", ""))
        if kind == "queue":
            self._drop_queue(int(str(definition["id"])), change)
            self._unbind(vhost, name, "queue")
        elif kind == "exchange":
            self._unbind(vhost, name, "exchange")
        elif kind == "vhost":
            for queue_id in [number for number, place in self.queues.items() if place[0] == name]:
                self._drop_queue(queue_id, change)
            self._forget("vhost", name)
        elif kind == "user":
            self._forget("user", name)

    def _offset(self, value: tuple[int, bytes, int], _change: Change) -> None:
        """Take how far a named consumer has come, as if it were a definition."""
        queue_id, name, offset = value
        if offset == FORGOTTEN or queue_id not in self.queues:
            self.definitions.pop(offset_identity(queue_id, name), None)
        else:
            self.definitions[offset_identity(queue_id, name)] = str(offset)

    def _drop_queue(self, queue_id: int, change: Change) -> None:
        change.queues_gone.add(queue_id)
        self.queues.pop(queue_id, None)
        for kind in ("consumer_offset", "publisher", "stream_consumer"):
            for one in [one for one in self.definitions if one[:2] == (kind, str(queue_id))]:
                del self.definitions[one]
        self.definitions.pop(("queue", str(queue_id)), None)
        for key in [key for key in self.messages if key[0] == queue_id]:
            del self.messages[key]
        for place in [place for place in self.publishers if place[0] == queue_id]:
            del self.publishers[place]

    def _unbind(self, vhost: str, name: str, kind: str) -> None:
        for one in [one for one in self.definitions if one[0] == "binding" and one[1] == vhost]:
            as_source = kind == "exchange" and one[2] == name
            if as_source or (one[3], one[4]) == (kind, name):
                del self.definitions[one]

    def _forget(self, field_name: str, name: str) -> None:
        """Forget what is of a vhost or of a user."""
        for one in list(self.definitions):
            fields = _NAMED_BY.get(one[0], ("name",))
            if field_name in fields and one[1 + fields.index(field_name)] == name:
                del self.definitions[one]


class Notes(Replay):
    """Writes down what one record says."""

    def __init__(self) -> None:
        self.change = Change()

    def define(self, kind: str, definition: dict[str, object]) -> None:
        if kind not in PASSED_BY:
            self.change.calls.append(("define", (kind, definition)))

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        self.change.calls.append(("delete", (kind, definition)))

    def publish(self, message: Message, targets: list[tuple[int, int]]) -> None:
        kept = content(message)
        numbered = read_numbered(message.properties) if message.numbered else None
        for queue_id, sequence in targets:
            key = (int(queue_id), int(sequence))
            self.change.adds[key] = kept
            if numbered is not None:
                self.change.numbers[key] = (numbered.publisher, int(numbered.number))

    def ack(self, queue_id: int, first: int, last: int) -> None:
        self.change.ranges.append((int(queue_id), int(first), int(last)))

    def requeue(self, queue_id: int, sequence: int, delivery_count: int) -> None:
        self.change.counts[int(queue_id), int(sequence)] = int(delivery_count)

    def purge(self, queue_id: int, below_sequence: int) -> None:
        self.change.ranges.append((int(queue_id), 0, int(below_sequence) - 1))

    def trim(self, queue_id: int, first_offset: int) -> None:
        self.change.ranges.append((int(queue_id), 0, int(first_offset) - 1))

    def consumer_offset(self, queue_id: int, consumer: bytes, offset: int) -> None:
        self.change.calls.append(("offset", (int(queue_id), consumer, int(offset))))

    def consumer_forgotten(self, queue_id: int, consumer: bytes) -> None:
        self.consumer_offset(queue_id, consumer, FORGOTTEN)

    def spill(self, queue_id: int, ref: ChunkRef, gone: RangeSet) -> None:
        """Count it: what lies in the chunk was told before."""
        self.change.spills += 1

    def queue(self, queue_id: int, next_sequence: int) -> None:
        raise AssertionError("a journal holds no queue's next sequence")

    def chunk(self, _queue_id: int, _ref: ChunkRef) -> bool:
        return False

    def chunk_message(self, *_: object) -> None:
        raise AssertionError("no chunk was asked for")


@dataclass
class Entry:
    """One group: `index` is the number of the operation that wrote it, counted from 1."""

    index: int
    number: int
    changes: list[Change]
    after: Holding


class Account:
    """The groups that a trace wrote, over what there was at its start."""

    def __init__(self, trace: Iterable[Operation], seed: int, start: Holding) -> None:
        self.start = start
        self.entries: list[Entry] = []
        holding = start.copy()
        for index, operation in enumerate(trace, 1):
            if operation.verb != "write" or not operation.path.startswith(f"{JOURNAL_DIR}/"):
                continue
            if (
                not operation.data.startswith(GROUP_MAGIC)
                or len(operation.data) < GROUP_HEADER_BYTES
            ):
                continue
            changes = read_group(operation, seed)
            for change in changes:
                holding.take(change)
            number = int(read_i64_le(operation.data, 8))
            self.entries.append(Entry(index, number, changes, holding.copy()))

    def contents(self) -> set[Content]:
        """Return all messages that there ever were."""
        found = {kept for kept, _ in self.start.messages.values()}
        for entry in self.entries:
            for change in entry.changes:
                found.update(change.adds.values())
        return found

    def sure(self, durable: int) -> Holding:
        """Return what there is by the groups up to `durable`."""
        found = self.start
        for entry in self.entries:
            if entry.number <= durable:
                found = entry.after
        return found

    def under_way(self, durable: int, operations: int) -> list[Entry]:
        """Return the groups that were written by then, and not known to be durable."""
        return [one for one in self.entries if one.number > durable and one.index <= operations]


def read_group(operation: Operation, seed: int) -> list[Change]:
    """Return the changes of the group that an operation wrote; of one cut short, those in it."""
    data = operation.data
    number = int(read_i64_le(data, 8))
    name = operation.path.rpartition("/")[2]
    scan = JournalScan(data, seed, operation.path, journal_number(name), number)
    notes = Notes()
    applier = Applier(notes)
    changes: list[Change] = []
    while scan.next():
        notes.change = Change()
        applier.apply(scan.kind, data, scan.start, scan.end)
        changes.append(notes.change)
    if GROUP_HEADER_BYTES + int(read_i64_le(data, 16)) == len(data):
        assert not scan.damages, f"group {number} was written damaged: {scan.damages[0]}"
    return changes
