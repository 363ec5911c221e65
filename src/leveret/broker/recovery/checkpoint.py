"""Writes the broker's state for a checkpoint: its definitions, queues and live messages.

The broker continues to work between two items.  The journal from the boundary on is replayed over
the snapshot, so the state may change while it is written.  Live messages that were journaled before
the boundary must be in a chunk.

Invariant: a message is written to a chunk once; later checkpoints keep the chunk while any message
in it is live.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.expiration import own_expiry
from leveret.broker.backlog.window import RequeuedMessage, WindowPart, sequence_of
from leveret.broker.broker import Broker
from leveret.broker.delayed.delayed import ChunkedQueue, DelayedMessages
from leveret.broker.publishers.publishers import publisher_record
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.deduplication import KEYS_PER_RECORD
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.recovery.compaction import Compaction
from leveret.broker.sinks.area import area_of
from leveret.broker.stream.offsets import consumer_record
from leveret.broker.stream.stream import Stream
from leveret.broker.vhost.vhost import Vhost
from leveret.limits import SLICE_MESSAGES
from leveret.store.checkpoint.checkpoint import CheckpointOutput, CheckpointSource, NewChunk
from leveret.store.records.catalog import BATCH_START
from leveret.store.records.levels import STRICT, stored_level

#: Work that counts as one item, in addition to a message: ranges of removed messages, lookups of
#: messages in chunks, deduplication keys, and messages of a run, which is sorted at once.
_RANGES_PER_ITEM: Final = 2
_LOOKS_PER_ITEM: Final = 2
_KEYS_PER_ITEM: Final = 16
_SORTED_PER_ITEM: Final = 4
_RUN: Final = SLICE_MESSAGES // 2


@final
class BrokerCheckpoint(CheckpointSource):
    """The source of one checkpoint."""

    def __init__(self, broker: Broker, compaction: Compaction | None = None) -> None:
        self.broker = broker
        #: Notified of the existing chunks.
        self.compaction = compaction
        #: The group at the boundary, and the queues that were written.
        self.group: i64 = -1
        self.queues: dict[i64, Queue] = {}

    def begin(self, group: i64) -> None:
        """Record the boundary in each durable queue: the group, and the queue's next sequence.

        This is not sliced, because the boundary is one moment.  So it must be little work for each
        queue.
        """
        self.group = group
        for vhost in self.broker.all_vhosts():
            for queue in vhost.queues.by_name.values():
                self._note(queue)
            for exchange in vhost.exchanges.by_name.values():
                if exchange.delayed is not None:
                    self._note(exchange.delayed)

    def _note(self, queue: Queue) -> None:
        if queue.recorded:
            queue.boundary = queue.next_number()
            queue.boundary_group = self.group

    def chunked(self, chunk: NewChunk) -> None:
        """Add a new chunk to the queue of its messages."""
        queue = self.queues[chunk.queue_id]
        if isinstance(queue, (WaitingQueue, DelayedMessages)) and not queue.deleted:
            _take_in(queue, chunk)

    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        """Write the state; yield the number of items since the last yield."""
        out.counter("queue_id", self.broker.ids.last_queue_id)
        out.counter("user_number", self.broker.users.last_number)
        vhosts = self.broker.all_vhosts()
        for kind, record in _definitions(self.broker, vhosts):
            out.define(kind, record)
            yield 1
        for session in self.broker.publish_sessions.all():
            for progress in list(session.channels.values()):
                if progress.through() > 0:
                    out.publish_session(progress.record())
            yield 1
        for vhost in vhosts:
            for queue in _queues(vhost):
                if queue.boundary_group == self.group and not queue.deleted:
                    yield from self._hand_over_queue(out, vhost, queue)
        for kind, record in _bindings_and_sinks(vhosts):
            out.define(kind, record)
            yield 1

    def _hand_over_queue(self, out: CheckpointOutput, vhost: Vhost, queue: Queue) -> Iterator[int]:
        self.queues[queue.queue_id] = queue
        out.define("queue", queue.definition(vhost.name))
        if isinstance(queue, WaitingQueue) and queue.redelivered_below > 0:
            out.define("redelivered", queue.redelivered_definition())
        if isinstance(queue, WaitingQueue) and queue.levels == STRICT:
            out.define("levels", queue.levels_definition())
        if isinstance(queue, (WaitingQueue, DelayedMessages)):
            yield 1
            yield from self._hand_over_messages(out, queue)
        elif isinstance(queue, Stream):
            yield 1
            yield from self._hand_over_stream(out, queue)
        publishers = queue.target.publishers
        if publishers is not None and not queue.deleted:
            # After the chunks, because messages in chunks are not replayed.
            for name, known in list(publishers.by_name.items()):
                out.publisher_sequence(queue.queue_id, name, known.number, known.time_ms)
                if known.owner is not None:
                    record = publisher_record(queue.queue_id, name, known.owner)
                    out.define("publisher", record)
                yield 1

    def _hand_over_messages(self, out: CheckpointOutput, queue: ChunkedQueue) -> Iterator[int]:
        queue_id = queue.queue_id
        out.queue(queue_id, queue.next_number())
        while not queue.deleted and queue.settle_pages(queue.boundary):
            yield 1
        yield from self._hand_over_chunks(out, queue)
        runs: list[list[RequeuedMessage]] = []
        yield from _sorted_runs(queue, runs)
        yield from _hand_over_counts(out, queue, runs)
        yield from _hand_over_keys(out, queue)
        yield from _hand_over_unstored(out, queue, runs)
        if not queue.deleted:
            out.close_chunk()

    def _hand_over_chunks(self, out: CheckpointOutput, queue: ChunkedQueue) -> Iterator[int]:
        """Write each chunk, after its removed messages; the list of chunks may change between."""
        queue_id = queue.queue_id
        stored = queue.stored
        last: i64 = -1
        while not queue.deleted:
            chunk = stored.behind(last)
            if chunk is None:
                return
            last = chunk.ref.last
            if chunk.ref.temporary:
                yield 1
                continue
            gone = stored.gone.within(chunk.ref.first, last)
            if gone:
                out.acked(queue_id, gone)
            out.keep(queue_id, chunk.ref)
            if self.compaction is not None:
                self.compaction.note_chunk(queue, chunk)
            yield 1 + len(gone) // _RANGES_PER_ITEM

    def _hand_over_stream(self, out: CheckpointOutput, stream: Stream) -> Iterator[int]:
        # All messages published so far get a place in a file.  The commit of the checkpoint waits
        # until they are written.
        stream.settle()
        queue_id = stream.queue_id
        out.queue(queue_id, stream.next_offset)
        out.trim(queue_id, stream.first_offset)
        for name, stored in list(stream.offsets.stored.items()):
            out.consumer_offset(queue_id, name.encode(), stored)
            owner = stream.offsets.owners.get(name)
            if owner is not None:
                out.define("stream_consumer", consumer_record(queue_id, name, owner))
            yield 1
        for block in list(stream.blocks):
            if stream.deleted:
                return
            ref = block.ref
            if ref is not None and not stream.gone(block):
                out.keep(queue_id, ref)
                if self.compaction is not None:
                    self.compaction.note_block(stream, block)
                yield 1


def _take_in(queue: ChunkedQueue, chunk: NewChunk) -> None:
    """Add a new chunk to a queue, which may have removed some of its messages in the meantime."""
    stored = queue.stored
    stored.add(chunk.ref, len(chunk.sequences))
    after: i64 = chunk.ref.first
    for sequence in chunk.sequences:
        stored.gone.add(after, sequence - 1)
        after = sequence + 1
    for sequence in chunk.sequences:
        if not queue.holds(sequence):
            stored.forget(sequence)


def _sorted_runs(queue: ChunkedQueue, runs: list[list[RequeuedMessage]]) -> Iterator[int]:
    """Put the live messages in memory into `runs`, each sorted by sequence.

    A client may have millions of unacked messages, which are in the order of their deliveries.
    """
    windows: list[WindowPart] = []
    for part in queue.live_parts(windows):
        for start in range(0, len(part), _RUN):
            run = [
                item
                for item in part[start : start + _RUN]
                if item is not None and item.message.persistent
            ]
            if run:
                run.sort(key=sequence_of)
                runs.append(run)
            yield min(_RUN, len(part) - start) // _SORTED_PER_ITEM
    for window in windows:
        for start in range(0, len(window.items), _RUN):
            run = window.persistent(start, start + _RUN)
            if run:
                runs.append(run)
            yield min(_RUN, len(window.items) - start) // _SORTED_PER_ITEM


def _hand_over_counts(
    out: CheckpointOutput, queue: ChunkedQueue, runs: list[list[RequeuedMessage]]
) -> Iterator[int]:
    """Write the delivery counts of messages in chunks."""
    queue_id = queue.queue_id
    stored = queue.stored
    looked = 0
    for run in runs:
        for item in run:
            looked += 1
            if item.count > 0 and stored.find(item.sequence) is not None:
                if queue.deleted:
                    return
                out.delivery_count(queue_id, item.sequence, item.count)
                yield 1
            elif looked % _LOOKS_PER_ITEM == 0:
                yield 1
    on_disk = queue.counts_on_disk() if isinstance(queue, WaitingQueue) else {}
    for sequence in list(on_disk):
        count = on_disk.get(sequence)
        if queue.deleted:
            return
        if count is not None:
            out.delivery_count(queue_id, sequence, count)
        yield 1


def _hand_over_keys(out: CheckpointOutput, queue: ChunkedQueue) -> Iterator[int]:
    """Write a queue's deduplication keys, and the times at which returned messages are due.

    This follows the chunks, whose publishes are not replayed, so that their keys are included.
    """
    if not isinstance(queue, ClassicQueue):
        return
    window = queue.deduplication()
    if window is not None:
        for keys in window.definitions(queue.queue_id):
            out.define("deduplication", keys)
            yield 1 + KEYS_PER_RECORD // _KEYS_PER_ITEM
    if queue.retries is not None:
        for retry in queue.retries.definitions():
            out.define("retry", retry)
            yield 1
    if queue.queued_keys is not None:
        for keys in queue.queued_keys.definitions(queue.queue_id):
            out.define("deduplication", keys)
            yield 1 + KEYS_PER_RECORD // _KEYS_PER_ITEM


def _hand_over_unstored(
    out: CheckpointOutput, queue: ChunkedQueue, runs: list[list[RequeuedMessage]]
) -> Iterator[int]:
    """Write the messages below the boundary that are in no chunk."""
    queue_id = queue.queue_id
    boundary = queue.boundary
    stored = queue.stored
    # Messages from before the queue had levels have one level.
    levels: i64 = queue.levels if isinstance(queue, WaitingQueue) else 0
    last: i64 = 0
    looked = 0
    for item in runs[0] if len(runs) == 1 else merge(*runs, key=sequence_of):
        if queue.deleted or item.sequence >= boundary:
            return
        sequence = item.sequence
        looked += 1
        if not queue.holds(sequence) or stored.find(sequence) is not None:
            if looked % _LOOKS_PER_ITEM == 0:
                yield 1
            continue
        if stored.parts(last, sequence):
            out.close_chunk()
        last = sequence
        message = item.message
        level = stored_level(message, levels)
        out.message(queue_id, sequence, message, item.count, own_expiry(message), level)
        yield 1


def _queues(vhost: Vhost) -> list[Queue]:
    """Return the queues of a vhost, and the stores of its delayed exchanges."""
    stores = [exchange.delayed for exchange in vhost.exchanges.by_name.values()]
    return [*vhost.queues.by_name.values(), *[store for store in stores if store is not None]]


def _definitions(broker: Broker, vhosts: list[Vhost]) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the kind and record of each definition, except queues and their dependents."""
    for vhost in vhosts:
        yield "vhost", vhost.metadata.record()
        for policy in list(vhost.policies.by_name.values()):
            yield "policy", policy.record(vhost.name)
        for policy in list(vhost.policies.operator_by_name.values()):
            yield "operator_policy", policy.record(vhost.name)
    users = broker.users
    for user in list(users.by_name.values()):
        yield "user", user.definition()
    for (name, vhost_name), permission in list(users.permissions.items()):
        yield "permission", permission.definition(name, vhost_name)
    for (name, vhost_name), of_user in list(users.topic_permissions.items()):
        for exchange_name, topic_permission in list(of_user.items()):
            record = topic_permission.definition(name, vhost_name, exchange_name)
            yield "topic_permission", record
    for name, limits in list(users.limits.items()):
        yield "user_limits", {"user": name, "limits": dict(limits)}
    yield from broker.parameters.records()
    for vhost in vhosts:
        for exchange in list(vhost.exchanges.by_name.values()):
            if exchange.durable and exchange.name and not exchange.name.startswith("amq."):
                yield "exchange", exchange.definition(vhost.name)


def _bindings_and_sinks(vhosts: list[Vhost]) -> Iterator[tuple[str, dict[str, object]]]:
    for vhost in vhosts:
        for exchange in list(vhost.exchanges.by_name.values()):
            for binding in list(exchange.bindings.values()):
                if binding.durable and not binding.has_ended():
                    yield "binding", binding.definition(vhost.name)
        for decision in area_of(vhost).definitions():
            yield "sink", decision
        for start in area_of(vhost).batch_starts():
            yield BATCH_START, start
