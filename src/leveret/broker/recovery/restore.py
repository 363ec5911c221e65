"""Putting the broker back into the state before its stop, from snapshot and journal.

The store tells records one by one (`Replay`); they are gathered by id, and `finish` builds the
queues.  Gathering first is what makes the order harmless: a snapshot may already hold a queue that
replaced one of the same name whose records are replayed once more.

Invariants: nothing is journaled here but what old or damaged directories lack (a name for messages
that nothing explains, a stream's id), so that it is the same at the next start; no message is
dropped but by a record that says so: messages of a queue that no record explains are put into a
queue of their own.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.backlog.source import Returned
from leveret.broker.classic.chunked import ChunkedQueue
from leveret.broker.classic.classic import ClassicQueue
from leveret.broker.core.ownership import recorded_owner
from leveret.broker.node.broker import Broker
from leveret.broker.policy.policy import restored_policy
from leveret.broker.queue.publishers import Publishers
from leveret.broker.queue.queue import Queue
from leveret.broker.recovery.chunks import restore_chunks
from leveret.broker.recovery.deduplication import LearnedKeys
from leveret.broker.recovery.queue import RestoredQueue
from leveret.broker.recovery.sinks import LearnedSinks
from leveret.broker.recovery.stream import restore_stream
from leveret.broker.recovery.users import USER_KINDS, define_user, delete_user
from leveret.broker.staging.staging import staging_of
from leveret.broker.stream.stream import STREAM_ID_FIELD, Stream
from leveret.broker.topology.exchanges import make_exchange
from leveret.message import Message
from leveret.store.records.catalog import Catalog
from leveret.store.records.fields import number, raw, table, text
from leveret.store.records.ranges import RangeSet
from leveret.store.records.record import FORGOTTEN
from leveret.store.recovery.replay import Replay
from leveret.store.segments.segments import ChunkRef
from leveret.wire.numbered import read_numbered

#: Where messages go whose queue no record explains: this and the queue's id.
ORPHANS: Final = "leveret.recovered."

POLICY_KINDS: Final = ("policy", "operator_policy")
PARAMETER_KINDS: Final = ("parameter", "global_parameter")

#: Records that tell whose a name is that clients use.
OWNED_KINDS: Final = ("publisher", "stream_consumer")


@final
class Restore(Replay):
    """Takes what the store tells; `finish` puts it into the broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.queues: dict[i64, RestoredQueue] = {}
        #: Bindings, which go with either of their ends.
        self.bindings = Catalog()
        self.keys = LearnedKeys()
        self.publishers: dict[i64, Publishers] = {}
        self.sinks = LearnedSinks()
        self.orphaned: list[str] = []
        #: Messages of durable queues that were put back.
        self.restored: i64 = 0
        #: Queues of which the journal has told nothing since a part of it was found damaged.
        self.unsure: dict[i64, None] = {}

    def _queue(self, queue_id: i64) -> RestoredQueue:
        queue = self.queues.get(queue_id)
        if queue is None:
            queue = RestoredQueue(queue_id)
            self.queues[queue_id] = queue
        return queue

    # -- definitions ------------------------------------------------------------------------------

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Take a definition."""
        if kind == "vhost":
            self.broker.restore_vhost(text(definition, "name")).metadata.restore(definition)
        elif kind == "exchange":
            self._define_exchange(definition)
        elif kind == "queue":
            queue_id: i64 = number(definition, "id")
            self._queue(queue_id).definition = definition
            self._identified(queue_id, definition)
            self.keys.queue_defined(queue_id, table(definition, "arguments"))
        elif kind == STREAM_ID_FIELD:
            self._identified(number(definition, "id"), definition)
        elif kind == "binding":
            self.bindings.define(kind, definition)
        elif kind in USER_KINDS:
            define_user(self.broker.users, kind, definition)
        elif kind in POLICY_KINDS:
            vhost = self.broker.restore_vhost(text(definition, "vhost"))
            operator = kind == "operator_policy"
            vhost.policies.restore(restored_policy(definition, operator), operator)
            self.keys.policy_defined(table(definition, "definition"))
        elif kind in PARAMETER_KINDS:
            self.broker.parameters.restore(kind, definition, True)
        elif kind == "sink":
            self.sinks.define(definition)
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
        elif kind in OWNED_KINDS:
            self._owned(kind, definition)

    def _owned(self, kind: str, definition: dict[str, object]) -> None:
        """Learn whose a name is that a queue or a stream knows."""
        queue_id: i64 = number(definition, "id")
        name = raw(definition, "name")
        owner = recorded_owner(definition)
        if owner is None:
            return
        if kind == "publisher":
            self._publishers(queue_id).learn_owner(name, owner)
        else:
            self._queue(queue_id).offset_owners[name] = owner

    def _identified(self, queue_id: i64, definition: dict[str, object]) -> None:
        """Learn a stream's id, which is certain again where it is told after damage."""
        stream_id = text(definition, STREAM_ID_FIELD)
        if stream_id:
            self._queue(queue_id).stream_id = stream_id
            self.unsure.pop(queue_id, None)

    def _define_exchange(self, definition: dict[str, object]) -> None:
        vhost = self.broker.restore_vhost(text(definition, "vhost"))
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

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Take out a definition, with the bindings that hang on it."""
        name = text(definition, "name") if "name" in definition else ""
        if kind == "vhost":
            self._delete_vhost(name)
        elif kind in USER_KINDS:
            delete_user(self.broker.users, kind, definition)
        elif kind == "exchange":
            vhost = self.broker.restore_vhost(text(definition, "vhost"))
            vhost.exchanges.by_name.pop(name, None)
            self.bindings.delete(kind, definition)
        elif kind == "queue":
            queue = self._queue(number(definition, "id"))
            queue.deleted = True
            queue.forget()
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
        elif kind == "publisher":
            self._publishers(number(definition, "id")).forget(raw(definition, "name"))

    def _delete_vhost(self, name: str) -> None:
        """Take out a vhost with all that is in it.

        Every queue of it that was told of is one of before: ids are used once, and a snapshot holds
        none that came after the records which are replayed over it began.
        """
        self.broker.vhosts.pop(name, None)
        self.broker.users.forget_vhost(name)
        self.broker.parameters.forget_vhost(name)
        self.sinks.forget_vhost(name)
        for queue in self.queues.values():
            definition = queue.definition
            if definition is not None and text(definition, "vhost") == name:
                queue.deleted = True
                queue.forget()
        self.bindings.delete("vhost", {"name": name})

    def counter(self, name: str, value: i64) -> None:
        """Take a counter: of queues' ids, or of users' numbers."""
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
            if self.unsure:
                self.unsure.pop(queue_id, None)
            queue.next_sequence = max(queue.next_sequence, sequence + 1)
            if not queue.deleted and sequence >= queue.first_offset:
                queue.messages[sequence] = Returned(sequence, message, 0)

    def _learn(self, message: Message, targets: list[tuple[int, int]]) -> None:
        """Count a message of a publisher that numbers them."""
        numbered = read_numbered(message.properties)
        if numbered is not None:
            for queue_id, _ in targets:
                self.publisher_sequence(
                    queue_id, numbered.publisher, numbered.number, message.timestamp_ms
                )

    def publisher_sequence(
        self, queue_id: i64, publisher: bytes, sequence: i64, time_ms: i64
    ) -> None:
        """Learn how far a publisher has come."""
        self._publishers(queue_id).learn(publisher, sequence, time_ms)

    def _publishers(self, queue_id: i64) -> Publishers:
        """Return the publishers of a queue, as far as they are known."""
        publishers = self.publishers.get(queue_id)
        if publishers is None:
            publishers = self.publishers[queue_id] = Publishers(self.broker.turn)
        return publishers

    def ack(self, queue_id: i64, first: i64, last: i64) -> None:
        """Take messages out for good."""
        queue = self._queue(queue_id)
        queue.next_sequence = max(queue.next_sequence, last + 1)
        messages = queue.messages
        if last - first < len(messages):
            sequence: i64 = first
            while sequence <= last:
                messages.pop(sequence, None)
                sequence += 1
        else:
            for held in [held for held in messages if first <= held <= last]:
                del messages[held]
        queue.dead.add(first, last)
        if queue.counts:
            queue.forget_counts(first, last)

    def requeue(self, queue_id: i64, sequence: i64, delivery_count: i64) -> None:
        """Set how often a message was handed out."""
        queue = self._queue(queue_id)
        returned = queue.messages.get(sequence)
        if returned is not None:
            returned.count = delivery_count
        elif not queue.deleted and queue.in_chunk(sequence):
            queue.counts[sequence] = delivery_count

    def purge(self, queue_id: i64, below_sequence: i64) -> None:
        """Take out all messages below a sequence."""
        if below_sequence > 0:
            self.ack(queue_id, 0, below_sequence - 1)

    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Let a stream begin later."""
        queue = self._queue(queue_id)
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
        """Set how far a named consumer has come, or forget it."""
        queue = self._queue(queue_id)
        offsets = queue.offsets
        if offset == FORGOTTEN:
            offsets.pop(consumer, None)
            queue.offset_owners.pop(consumer, None)
        else:
            offsets[consumer] = int(offset)

    def records_lost(self) -> None:
        """Hear that the journal is damaged here: what was told of any queue may not be its last."""
        self.unsure = dict.fromkeys(self.queues)

    # -- from the snapshot ------------------------------------------------------------------------

    def queue(self, queue_id: i64, next_sequence: i64) -> None:
        """Set the next sequence of a queue."""
        queue = self._queue(queue_id)
        queue.next_sequence = max(queue.next_sequence, next_sequence)

    def acked(self, queue_id: i64, first: i64, last: i64) -> None:
        """Remember what is gone from a queue's chunks, for the next checkpoint."""
        self._queue(queue_id).dead.add(first, last)

    def chunk(self, queue_id: i64, ref: ChunkRef) -> bool:
        """Learn of a chunk; a queue wants its messages now, a stream reads them when asked."""
        self._queue(queue_id).add_chunk(ref)
        return False

    def verifies(self, queue_id: i64) -> bool:
        """Have the chunks of streams looked at when they are read."""
        return not self._queue(queue_id).is_stream()

    def keeps_all(self, queue_id: i64) -> bool:
        """Have messages back that are not persistent, of streams and delayed exchanges."""
        return self._queue(queue_id).keeps_all()

    def chunk_lost(self, queue_id: i64, ref: ChunkRef) -> None:
        """Do not keep the damaged chunk: what is left of it is to be written again."""
        queue = self._queue(queue_id)
        queue.chunks = [kept for kept in queue.chunks if kept.first != ref.first]
        queue.covered.remove(ref.first, ref.last)

    def spill(self, queue_id: i64, ref: ChunkRef, gone: RangeSet) -> None:
        """Learn that messages lie in a chunk: they need not be in memory."""
        queue = self._queue(queue_id)
        if queue.deleted or queue.covered.count(ref.first, ref.last) > 0:
            return
        messages = queue.messages
        if ref.last - ref.first < 4 * len(messages):
            sequence = ref.first
            while sequence <= ref.last:
                queue.hand_over(messages.pop(sequence, None))
                sequence += 1
        else:
            for held in [held for held in messages if ref.first <= held <= ref.last]:
                queue.hand_over(messages.pop(held))
        queue.next_sequence = max(queue.next_sequence, ref.last + 1)
        queue.dead.remove(ref.first, ref.last)
        for first, last in gone.ranges():
            queue.dead.add(first, last)
        queue.add_chunk(ref)

    def chunk_message(
        self,
        queue_id: i64,
        sequence: i64,
        message: Message,
        delivery_count: i64,
        expiry_ms: i64,
        priority: i64,
    ) -> None:
        """Put a live message of a chunk into its queue."""
        queue = self._queue(queue_id)
        queue.next_sequence = max(queue.next_sequence, sequence + 1)
        queue.messages[sequence] = Returned(sequence, message, delivery_count)

    # -- the end ----------------------------------------------------------------------------------

    def finish(self, unclean: bool) -> None:
        """Build queues and bindings; after an unclean stop every message counts as redelivered."""
        for queue_id in sorted(self.queues):
            self.broker.ids.used(queue_id)
            queue = self.queues[queue_id]
            if queue.deleted:
                continue
            if queue.definition is None:
                if not queue.messages and not queue.chunks:
                    continue
                self._explain(queue)
            self._build(queue, unclean)
        self.sinks.finish(self.broker)
        for _, definition in self.bindings.all_of("binding"):
            self._bind(definition)
        for vhost in self.broker.vhosts.values():
            vhost.policies.govern_exchanges()
            for exchange in vhost.exchanges.by_name.values():
                vhost.delays.equip(exchange)

    def _explain(self, queue: RestoredQueue) -> None:
        """Give a queue that no record explains a name, so that nothing of it is lost."""
        name = f"{ORPHANS}{queue.queue_id}"
        vhost = self.broker.restore_vhost("/")
        queue.definition = {
            "vhost": vhost.name,
            "name": name,
            "id": int(queue.queue_id),
            "auto_delete": False,
            "arguments": {},
        }
        self.broker.turn.journal.define("queue", queue.definition)
        self.orphaned.append(name)

    def _build(self, restored: RestoredQueue, unclean: bool) -> None:
        definition = restored.definition
        assert definition is not None
        vhost = self.broker.restore_vhost(text(definition, "vhost"))
        queue: Queue
        if "delays" in definition:
            exchange = vhost.exchanges.by_name.get(text(definition, "delays"))
            if exchange is None or exchange.delayed is not None:
                # Only damage parts a store from its exchange: their deletes are one record.
                self._explain(restored)
                self._build(restored, unclean)
                return
            queue = vhost.delays.restore(exchange, restored.queue_id)
        else:
            queue = vhost.queues.make(
                restored.queue_id,
                text(definition, "name"),
                True,
                False,
                definition.get("auto_delete") is True,
                table(definition, "arguments"),
            )
        staging = staging_of(queue)
        if staging is not None:
            staging.restore(definition)
        queue.publishers = self.publishers.pop(restored.queue_id, None)
        if queue.publishers is not None:
            queue.publishers.restored()
        if isinstance(queue, ChunkedQueue):
            restore_chunks(
                queue, restored.chunks, restored.dead, restored.messages, restored.counts
            )
        messages = [restored.messages[sequence] for sequence in sorted(restored.messages)]
        self.restored += len(messages)
        if isinstance(queue, Stream):
            restore_stream(
                queue, restored.chunks, messages, restored.first_offset, restored.next_sequence
            )
            queue.offsets.restore(restored.offsets, restored.offset_owners)
            queue.stream_id = restored.stream_id
            if not queue.stream_id or restored.queue_id in self.unsure:
                self._identify(queue)
        elif isinstance(queue, ChunkedQueue):
            queue.restore(messages, max(restored.next_sequence, 1), unclean)
            if isinstance(queue, ClassicQueue):
                self.restored += queue.ready_count() - len(messages)
                queue.redelivered_below = max(queue.redelivered_below, restored.redelivered_below)
                queue.restore_retries(restored.retries)
                if queue.deduplication is not None:
                    self.keys.give(queue.queue_id, queue.deduplication)
                if queue.queued_keys is not None:
                    self.keys.give_queued(queue, queue.queued_keys)

    def _identify(self, stream: Stream) -> None:
        """Give a stream an id of its own, and journal it: it has none yet, or not for certain.

        Of one whose last messages may be lost the offsets may be given out again, so that it is not
        the stream any more that somebody has read from.
        """
        stream.stream_id = self.broker.ids.stream_ids.new_id()
        record: dict[str, object] = {
            "id": int(stream.queue_id),
            STREAM_ID_FIELD: stream.stream_id,
        }
        # Apart from the definition, which may hold what is not taken any more.
        self.broker.turn.journal.define(STREAM_ID_FIELD, record)

    def _bind(self, definition: dict[str, object]) -> None:
        """Put a binding back whose ends are there (their deletes were replayed before)."""
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
            )
