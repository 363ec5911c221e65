"""Restores the broker's state from snapshot and journal, as it was before the stop.

The store replays records one by one (`Replay`).  They are collected by id, and then `finish` builds
the queues.  So the order of records does not matter: a snapshot may already contain a queue that
replaced another of the same name, and the records of the old queue are replayed afterwards.

Invariants: this module journals only data missing from old or damaged directories (a name for
messages without a queue record, a stream's id) and the end of unfinished operations (the deletion
of a vhost), so that the next start finds the same state.  A message is dropped only because of a
record; messages without a queue record are put into a separate queue.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.backlog.window import RequeuedMessage
from leveret.broker.broker import Broker
from leveret.broker.delayed.delayed import DelayedMessages
from leveret.broker.exchanges.types import make_exchange
from leveret.broker.ownership import recorded_owner
from leveret.broker.policies.policy import restored_policy
from leveret.broker.publishers.publishers import Publishers
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.quota import give_queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.recovery.chunks import restore_chunks
from leveret.broker.recovery.deduplication import LearnedKeys
from leveret.broker.recovery.queue import RestoredQueue
from leveret.broker.recovery.sinks import LearnedSinks
from leveret.broker.recovery.stream import restore_stream
from leveret.broker.recovery.users import USER_KINDS, define_user, delete_user
from leveret.broker.sinks.staging import staging_of
from leveret.broker.stream.stream import STREAM_ID_FIELD, Stream
from leveret.broker.vhost.metadata import DISSOLVING
from leveret.message import Message
from leveret.store.records.catalog import BATCH_START, Catalog
from leveret.store.records.fields import number, raw, table, text
from leveret.store.records.publish_session import PublishProgress
from leveret.store.records.ranges import RangeSet
from leveret.store.recovery.queue_state import KnownQueue
from leveret.store.recovery.replay import Replay
from leveret.store.segments.segments import ChunkRef
from leveret.wire.numbered import read_numbered

#: The name of a queue for messages without a queue record is this prefix and the original queue's
#: id.
ORPHANS: Final = "leveret.recovered."

POLICY_KINDS: Final = ("policy", "operator_policy")
PARAMETER_KINDS: Final = ("parameter", "global_parameter")

#: In older journals, the deletion of a vhost has no queue id, and applies to every queue.
_ANY_ID: Final[i64] = 1 << 62

#: The kinds of records with the owners of names that clients chose.
OWNED_KINDS: Final = ("publisher", "stream_consumer")


@final
class Restore(Replay):
    """Collects the replayed records; `finish` applies them to the broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.queues: dict[i64, RestoredQueue] = {}
        #: Bindings, each of which is deleted with its source or its destination.
        self.bindings = Catalog()
        self.keys = LearnedKeys()
        self.publishers: dict[i64, Publishers] = {}
        self.sinks = LearnedSinks()
        #: Vhosts with an unfinished deletion.
        self._dissolving: dict[str, None] = {}
        self.orphaned: list[str] = []
        #: The number of restored messages of durable queues.
        self.restored: i64 = 0

    def _queue(self, queue_id: i64) -> RestoredQueue:
        queue = self.queues.get(queue_id)
        if queue is None:
            queue = RestoredQueue(queue_id)
            self.queues[queue_id] = queue
        return queue

    # -- definitions ------------------------------------------------------------------------------

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Add a definition."""
        if kind == "vhost":
            name = text(definition, "name")
            self.broker.restore_vhost(name).metadata.restore(definition)
            if definition.get(DISSOLVING) is True:
                # `finish` completes the deletion.
                self._dissolving[name] = None
        elif kind == "exchange":
            _define_exchange(self.broker, definition)
        elif kind == "queue":
            queue_id: i64 = number(definition, "id")
            queue = self._queue(queue_id)
            queue.definition = definition
            queue.identified(definition)
            self.keys.queue_defined(queue_id, table(definition, "arguments"))
        elif kind == STREAM_ID_FIELD:
            self._queue(number(definition, "id")).identified(definition)
        elif kind == "binding":
            self.bindings.define(kind, definition)
        elif kind in USER_KINDS:
            define_user(self.broker.users, kind, definition)
        elif kind in POLICY_KINDS:
            vhost = self.broker.restore_vhost(text(definition, "vhost"))
            operator = kind == "operator_policy"
            vhost.policies.restore(restored_policy(definition, operator))
            self.keys.policy_defined(table(definition, "definition"))
        elif kind in PARAMETER_KINDS:
            self.broker.parameters.restore(kind, definition, True)
        elif kind == "sink":
            self.sinks.define(definition)
        elif kind == BATCH_START:
            self.sinks.begin(definition)
        elif kind == "deduplication":
            at: i64 = number(definition, "id")
            self.keys.window_defined(at, definition.get("header"), definition.get("keys"))
            self.keys.queued_defined(at, definition.get("header"), definition.get("queued"))
        elif kind == "retry":
            queue = self._queue(number(definition, "id"))
            queue.retries[number(definition, "sequence")] = number(definition, "due_ms")
        elif kind == "redelivered":
            queue = self._queue(number(definition, "id"))
            queue.redelivered_below = max(queue.redelivered_below, number(definition, "below"))
        elif kind == "levels":
            self._queue(number(definition, "id")).has_levels = True
        elif kind in OWNED_KINDS:
            self._owned(kind, definition)

    def _owned(self, kind: str, definition: dict[str, object]) -> None:
        """Record the owner of a name in a queue or a stream."""
        queue_id: i64 = number(definition, "id")
        name = raw(definition, "name")
        owner = recorded_owner(definition)
        if owner is None:
            return
        if kind == "publisher":
            self._publishers(queue_id).recorded_owners[name] = owner
        else:
            self._queue(queue_id).offset_owners[name] = owner

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Delete a definition and the bindings that depend on it."""
        name = text(definition, "name") if "name" in definition else ""
        if kind == "vhost":
            recorded = "last_queue_id" in definition
            self._delete_vhost(name, number(definition, "last_queue_id") if recorded else _ANY_ID)
        elif kind in USER_KINDS:
            delete_user(self.broker.users, kind, definition)
        elif kind == "exchange":
            vhost = self.broker.restore_vhost(text(definition, "vhost"))
            vhost.exchanges.restore_deleted(name)
            self.bindings.delete(kind, definition)
        elif kind == "queue":
            self._queue(number(definition, "id")).drop()
            self.bindings.delete(kind, definition)
        elif kind == "binding":
            self.bindings.delete(kind, definition)
        elif kind in POLICY_KINDS:
            vhost = self.broker.restore_vhost(text(definition, "vhost"))
            vhost.policies.restore_cleared(name, kind == "operator_policy")
        elif kind in PARAMETER_KINDS:
            self.broker.parameters.restore(kind, definition, False)
        elif kind == "sink":
            self.sinks.delete(definition)
        elif kind == BATCH_START:
            self.sinks.end(definition)
        elif kind == "publisher":
            self._publishers(number(definition, "id")).forget(raw(definition, "name"))

    def _delete_vhost(self, name: str, last_queue_id: i64 = _ANY_ID) -> None:
        """Delete a vhost with everything in it, but only queues with ids up to `last_queue_id`.

        A snapshot may contain objects that were created again while it was taken.  Objects
        identified by name are defined again by later records; queues are not, so newer ones stay.
        """
        self._dissolving.pop(name, None)
        vhost = self.broker.vhosts.pop(name, None)
        if vhost is not None:
            vhost.account.end()
        self.broker.users.forget_vhost(name)
        self.broker.parameters.forget_vhost(name)
        self.sinks.forget_vhost(name)
        for queue_id, queue in self.queues.items():
            known = queue.definition is not None and queue.vhost == name
            if known and queue_id <= last_queue_id:
                queue.drop()
        self.bindings.delete("vhost", {"name": name})

    def counter(self, name: str, value: i64) -> None:
        """Set the last queue id, or the last user number."""
        if name == "queue_id":
            self.broker.ids.used(value)
        elif name == "user_number":
            self.broker.users.used(value)

    # -- messages ---------------------------------------------------------------------------------

    def publish(self, message: Message, targets: list[tuple[int, int]]) -> None:
        """Put a message into its queues."""
        self.keys.published(message, targets)
        if message.numbered:
            self._learn(message, targets)
        for queue_id, sequence in targets:
            queue = self._queue(queue_id)
            queue.unsure = False
            queue.took(sequence)
            if not queue.deleted and not queue.is_gone(sequence):
                queue.messages[sequence] = RequeuedMessage(sequence, message, 0)

    def _learn(self, message: Message, targets: list[tuple[int, int]]) -> None:
        """Record the publishing id of a message with publisher deduplication."""
        numbered = read_numbered(message.properties)
        if numbered is not None:
            for queue_id, _ in targets:
                self.publisher_sequence(
                    queue_id, numbered.publisher, numbered.number, message.timestamp_ms
                )

    def publisher_sequence(
        self, queue_id: i64, publisher: bytes, sequence: i64, time_ms: i64
    ) -> None:
        """Set the highest publishing id of a publisher."""
        self._publishers(queue_id).learn(publisher, sequence, time_ms)

    def _publishers(self, queue_id: i64) -> Publishers:
        """Return the known publishers of a queue."""
        publishers = self.publishers.get(queue_id)
        if publishers is None:
            publishers = self.publishers[queue_id] = Publishers(self.broker.core)
        return publishers

    def ack(self, queue_id: i64, first: i64, last: i64) -> None:
        """Remove messages permanently."""
        self._queue(queue_id).ack(first, last)

    def requeue(self, queue_id: i64, sequence: i64, delivery_count: i64) -> None:
        """Set the delivery count of a message."""
        queue = self._queue(queue_id)
        returned = queue.messages.get(sequence)
        if returned is not None:
            returned.count = delivery_count
        elif not queue.deleted and queue.covered.has(sequence):
            queue.counts[sequence] = delivery_count

    def purge(self, queue_id: i64, below_sequence: i64) -> None:
        """Remove all messages below a sequence."""
        self._queue(queue_id).purge(below_sequence)

    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Set the first offset of a stream."""
        self._queue(queue_id).trim(first_offset)

    def consumer_offset(self, queue_id: i64, consumer: bytes, offset: i64) -> None:
        """Set the stored offset of a named consumer."""
        self._queue(queue_id).offsets[consumer] = int(offset)

    def consumer_forgotten(self, queue_id: i64, consumer: bytes) -> None:
        """Remove a named consumer and its owner."""
        queue = self._queue(queue_id)
        queue.offsets.pop(consumer, None)
        queue.offset_owners.pop(consumer, None)

    def publish_session(self, progress: PublishProgress) -> None:
        """Set the progress of a channel's publishes."""
        self.broker.publish_sessions.restore(progress)

    def records_lost(self) -> None:
        """Mark all queues as uncertain, because damage may have destroyed some of their records."""
        for queue in self.queues.values():
            queue.unsure = True

    # -- from the snapshot ------------------------------------------------------------------------

    def queue(self, queue_id: i64, next_sequence: i64) -> None:
        """Set the next sequence of a queue."""
        self._queue(queue_id).took(next_sequence - 1)

    def acked(self, queue_id: i64, first: i64, last: i64) -> None:
        """Record the removed messages of a queue's chunks, for the next checkpoint."""
        self._queue(queue_id).dead.add(first, last)

    def chunk(self, queue_id: i64, ref: ChunkRef) -> bool:
        """Record a chunk; its messages are loaded by `finish`, or later on demand."""
        queue = self._queue(queue_id)
        # The chunk may have been added after the queue's next sequence was written.
        queue.took(ref.last)
        queue.add_chunk(ref)
        return False

    def state(self, queue_id: i64) -> KnownQueue | None:
        """Return the known state of a queue."""
        return self.queues.get(queue_id)

    def queue_ids(self) -> list[int]:
        """Return the ids of all queues in records."""
        return [int(queue_id) for queue_id in self.queues]

    def chunk_lost(self, queue_id: i64, ref: ChunkRef) -> None:
        """Drop a damaged chunk, whose remaining messages must be written again."""
        self._queue(queue_id).lose_chunk(ref)

    def spill(self, queue_id: i64, ref: ChunkRef, gone: RangeSet) -> None:
        """Record that messages are in a chunk and need not be in memory."""
        queue = self._queue(queue_id)
        if queue.deleted or queue.covered.count(ref.first, ref.last) > 0:
            return
        queue.hand_over(ref.first, ref.last)
        queue.took(ref.last)
        queue.dead.remove(ref.first, ref.last)
        for first, last in gone.ranges():
            queue.dead.add(first, last)
        queue.add_chunk(ref)

    def chunk_message(
        self, queue_id: i64, sequence: i64, message: Message, delivery_count: i64
    ) -> None:
        """Put a live message of a chunk into its queue."""
        queue = self._queue(queue_id)
        queue.took(sequence)
        count = queue.counts.pop(sequence, delivery_count)
        queue.messages[sequence] = RequeuedMessage(sequence, message, count)

    # -- completion --------------------------------------------------------------------------------

    def finish(self, unclean: bool) -> None:
        """Build queues and bindings; after an unclean stop, mark every message as redelivered."""
        for name in list(self._dissolving):
            # All contents of the vhost are known only now, because records come in any order.
            self._delete_vhost(name)
            self.broker.core.journal.delete("vhost", {"name": name})
        for queue_id in sorted(self.queues):
            self.broker.ids.used(queue_id)
            # Free the data read for earlier queues before the next one is built.
            queue = self.queues.pop(queue_id)
            if queue.deleted:
                continue
            if queue.definition is None:
                if not queue.messages and not queue.chunks:
                    continue
                self._explain(queue)
            self._build(queue, unclean)
        self.sinks.finish(self.broker)
        self.broker.publish_sessions.restored()
        for definition in self.bindings.take_all_of("binding"):
            self._bind(definition)
        for vhost in self.broker.vhosts.values():
            vhost.policies.govern_exchanges()
            for exchange in vhost.exchanges.by_name.values():
                vhost.exchanges.equip(exchange)
        self.broker.parameters.apply_defaults()
        self.broker.users.restore_quotas()

    def _explain(self, queue: RestoredQueue) -> None:
        """Give a queue without a record a name, so that none of its messages are lost."""
        name = f"{ORPHANS}{queue.queue_id}"
        vhost = self.broker.restore_vhost("/")
        queue.definition = {
            "vhost": vhost.name,
            "name": name,
            "id": int(queue.queue_id),
            "auto_delete": False,
            "arguments": {},
        }
        self.broker.core.journal.define("queue", queue.definition)
        self.orphaned.append(name)

    def _build(self, restored: RestoredQueue, unclean: bool) -> None:
        definition = restored.definition
        assert definition is not None
        vhost = self.broker.restore_vhost(text(definition, "vhost"))
        queue: Queue
        if "delays" in definition:
            exchange = vhost.exchanges.by_name.get(text(definition, "delays"))
            if exchange is None or exchange.delayed is not None:
                # One record deletes both, so a store without its exchange is a sign of damage.
                self._explain(restored)
                self._build(restored, unclean)
                return
            store = vhost.exchanges.restore_delayed(exchange, restored.queue_id)
            store.pages.restore_definition(definition, restored.next_sequence)
            queue = store
        else:
            queue = vhost.queues.make(
                restored.queue_id,
                text(definition, "name"),
                QueueAttributes(
                    True,
                    auto_delete=definition.get("auto_delete") is True,
                    arguments=table(definition, "arguments"),
                ),
            )
        give_queue(queue, recorded_owner(definition))
        staging = staging_of(queue)
        if staging is not None:
            staging.restore_definition(definition)
        publishers = self.publishers.pop(restored.queue_id, None)
        queue.target.publishers = publishers
        if publishers is not None:
            publishers.restored()
        if restored.has_levels and isinstance(queue, WaitingQueue):
            queue.restore_levels()
        if isinstance(queue, (WaitingQueue, DelayedMessages)):
            restore_chunks(
                queue, restored.refs(), restored.dead, restored.messages, restored.counts
            )
        messages = [restored.messages[sequence] for sequence in sorted(restored.messages)]
        self.restored += len(messages)
        if isinstance(queue, Stream):
            restore_stream(
                queue, restored.refs(), messages, restored.first_offset, restored.next_sequence
            )
            queue.offsets.restore(restored.offsets, restored.offset_owners)
            queue.stream_id = restored.stream_id
            if not queue.stream_id:
                self._identify(queue)
        elif isinstance(queue, (WaitingQueue, DelayedMessages)):
            queue.restore(messages, max(restored.next_sequence, 1), unclean)
            self.restored += queue.ready_count() - len(messages)
            if isinstance(queue, WaitingQueue):
                queue.redelivered_below = max(queue.redelivered_below, restored.redelivered_below)
            if isinstance(queue, ClassicQueue):
                queue.restore_retries(restored.retries)
                self._give_keys(queue)

    def _give_keys(self, queue: ClassicQueue) -> None:
        """Restore a queue's deduplication keys."""
        window = queue.deduplication()
        if window is not None:
            self.keys.give(queue.queue_id, window)
        if queue.queued_keys is not None:
            self.keys.give_queued(queue, queue.queued_keys)

    def _identify(self, stream: Stream) -> None:
        """Give a stream a new id and journal it, because it has none or its id is uncertain.

        If the last messages of the stream may be lost, their offsets may be reused, so readers must
        not take it for the same stream.
        """
        stream.stream_id = self.broker.ids.stream_ids.new_id()
        record: dict[str, object] = {
            "id": int(stream.queue_id),
            STREAM_ID_FIELD: stream.stream_id,
        }
        # A record of its own, because the definition may contain values that are no longer
        # accepted.
        self.broker.core.journal.define(STREAM_ID_FIELD, record)

    def _bind(self, definition: dict[str, object]) -> None:
        """Restore a binding if its source and its destination still exist."""
        vhost = self.broker.restore_vhost(text(definition, "vhost"))
        source = vhost.exchanges.by_name.get(text(definition, "source"))
        to_queue = text(definition, "destination_type") == "queue"
        destination = text(definition, "destination")
        there = destination in (vhost.queues.by_name if to_queue else vhost.exchanges.by_name)
        if source is not None and there:
            vhost.exchanges.restore_binding(
                source,
                destination,
                to_queue,
                text(definition, "routing_key"),
                table(definition, "arguments"),
                recorded_owner(definition),
            )


def _define_exchange(broker: Broker, definition: dict[str, object]) -> None:
    """Restore an exchange."""
    vhost = broker.restore_vhost(text(definition, "vhost"))
    name = text(definition, "name")
    vhost.exchanges.add(
        make_exchange(
            name,
            text(definition, "type"),
            True,
            definition.get("auto_delete") is True,
            definition.get("internal") is True,
            table(definition, "arguments"),
        )
    )
