"""Declaring and deleting queues in a virtual host.

Operations raise the domain's errors with RabbitMQ's texts; the session closes the channel.  What
must survive a crash is written to the journal here, and `turn.reply_group` tells the session what
its reply must wait for.

Invariant: a deleted queue is in no exchange's index.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from leveret.broker.classic.classic import ClassicQueue
from leveret.broker.classic.staging_role import staging_record
from leveret.broker.core.turn import Link
from leveret.broker.queue.consumer import Consumer
from leveret.broker.queue.queue import Queue, queue_record
from leveret.broker.stream.stream import STREAM_ID_FIELD, Stream
from leveret.broker.values.arguments import (
    STAGING_SINK,
    Arguments,
    check_equivalent,
    check_queue_arguments,
    differs,
)
from leveret.broker.vhost.exchanges import VhostExchanges
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.names import Name, check_new
from leveret.store.records.definition import Definition


@mypyc_attr(allow_interpreted_subclasses=True)
class VhostQueues(VhostExchanges):
    """A virtual host as far as queues go."""

    # -- queues -----------------------------------------------------------------------------------

    def declare_queue(
        self,
        link: Link | None,
        name: Name,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        """Declare a queue, or check that it is there and the same.

        Raises: AccessRefused (403) for new `amq.` names; ResourceLocked (405) for another link's
        exclusive queue; PreconditionFailed (406) for a new name with control characters, bad
        arguments or a difference.
        """
        where = self.queue_label(name)
        current = self.queues.get(name)
        if current is not None:
            self._check_same_queue(current, link, durable, exclusive, auto_delete, arguments)
            self._wait_for_definition(current.recorded, current.define_group)
            current.touch()
            return current
        check_new(name, "queue")
        self.staging.check(arguments)
        if name.startswith("amq."):
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        check_queue_arguments(arguments, where)
        return self._new_queue(link, name, durable, exclusive, auto_delete, arguments)

    def declare_named_by_server(
        self,
        link: Link,
        token: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        """Declare a queue with a name of the broker's making: `amq.gen-` and `token`."""
        name = Name(f"amq.gen-{token}")
        check_queue_arguments(arguments, self.queue_label(name))
        return self._new_queue(link, name, durable, exclusive, auto_delete, arguments)

    def _new_queue(
        self,
        link: Link | None,
        name: Name,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        self.metadata.check_queues(name, len(self.queues) + 1)
        arguments = self.metadata.typed(arguments, durable, exclusive, auto_delete)
        return self._create_queue(link, name, durable, exclusive, auto_delete, arguments)

    def import_queue(
        self, name: Name, durable: bool, auto_delete: bool, arguments: Arguments
    ) -> Queue:
        """Make a queue that definitions tell of: any name, whatever the operator's limit is.

        Raises: PreconditionFailed (406) for bad arguments, or one queue too many.
        """
        check_queue_arguments(arguments, self.queue_label(name))
        return self._create_queue(None, name, durable, False, auto_delete, arguments)

    def check_room(self, name: str, count: int) -> None:
        """Check that there may be so many more queues, the first for `name`.

        Raises: PreconditionFailed (406).
        """
        self.metadata.check_queues(name, len(self.queues) + count)
        if len(self.queues) + count > self.queues_max:
            raise PreconditionFailed(f"a vhost has at most {self.queues_max} queues")

    def _create_queue(
        self,
        link: Link | None,
        name: Name,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        if len(self.queues) >= self.queues_max:
            raise PreconditionFailed(f"a vhost has at most {self.queues_max} queues")
        if arguments.get("x-queue-type") in ("stream", "quorum") or STAGING_SINK in arguments:
            self._check_replicated(name, durable, exclusive, auto_delete)
        # One that is not durable is shown and exported like the others.
        queue_id = self.ids.last_queue_id + 1
        record = queue_record(self.name, name, int(queue_id), auto_delete, arguments)
        if STAGING_SINK in arguments:
            owner = None if link is None else link.as_owner
            record.update(staging_record(owner, self.turn.now_ms))
        stream_id = ""
        if arguments.get("x-queue-type") == "stream":
            stream_id = self.ids.stream_ids.new_id()
            record[STREAM_ID_FIELD] = stream_id
        definition = Definition("queue", record)
        queue = self.make_queue(queue_id, name, durable, exclusive, auto_delete, arguments)
        if isinstance(queue, Stream):
            queue.stream_id = stream_id
        if exclusive:
            queue.owner = link
        if isinstance(queue, ClassicQueue) and queue.staging is not None and link is not None:
            queue.staging.owner = link.as_owner
        if queue.recorded:
            self.turn.journal.define_made(definition)
            queue.define_group = self.turn.journal.group
            self.turn.recorded()
        return queue

    def _check_replicated(
        self, name: str, durable: bool, exclusive: bool, auto_delete: bool
    ) -> None:
        """Streams, quorum and staging queues are durable and shared, as in RabbitMQ."""
        where = self.queue_label(name)
        # First, because what is exclusive counts as not durable.
        if exclusive:
            raise PreconditionFailed(f"invalid property 'exclusive-owner' for {where}")
        if not durable:
            raise PreconditionFailed(f"invalid property 'non-durable' for {where}")
        if auto_delete:
            raise PreconditionFailed(f"invalid property 'auto-delete' for {where}")

    def make_queue(
        self,
        queue_id: i64,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        """Put a queue of the right type into the vhost; nothing is journaled or checked."""
        self.ids.used(queue_id)
        queue: Queue
        if arguments.get("x-queue-type") == "stream":
            queue = Stream(self.turn, queue_id, name, arguments)
        else:
            queue = ClassicQueue(
                self.turn, queue_id, name, durable, exclusive, auto_delete, arguments
            )
            if STAGING_SINK in arguments:
                self.staging.equip(queue)
        self.turn.changes += 1
        self.queues[name] = queue
        self.revision += 1
        self._govern_queue(queue)
        return queue

    def _check_same_queue(
        self,
        current: Queue,
        link: Link | None,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> None:
        where = self.queue_label(current.name)
        self._check_owner(current, link)
        if current.exclusive != exclusive:
            raise self._locked(current.name)
        if current.durable != durable:
            raise differs("durable", where, durable, current.durable)
        if current.auto_delete != auto_delete:
            raise differs("auto_delete", where, auto_delete, current.auto_delete)
        check_queue_arguments(arguments, where)
        check_equivalent(current.arguments, self.metadata.typed_as(current, arguments), where)

    def delete_queue(self, link: Link | None, name: Name, if_unused: bool, if_empty: bool) -> i64:
        """Delete a queue; return its waiting messages.  One that is not there gives 0.

        Raises: ResourceLocked (405); PreconditionFailed (406) when in use or not empty, or while a
        committed batch is in it.
        """
        if name not in self.queues:
            self._wait_for_removal()
            return 0
        queue = self.queue(name, link)
        if queue.kept:
            raise PreconditionFailed(f"{self.queue_label(name)} holds a committed batch")
        if if_unused and queue.consumers:
            raise PreconditionFailed(f"{self.queue_label(name)} in use")
        queue.hand_out()
        if if_empty and queue.ready_count() + queue.retry_count() > 0:
            raise PreconditionFailed(f"{self.queue_label(name)} not empty")
        return self.drop_queue(queue)

    def drop_queue(self, queue: Queue) -> i64:
        """Delete `queue` with its bindings; its consumers are told.  Return what waited."""
        if queue.deleted or self.replies.close(queue):
            return 0
        self.turn.changes += 1
        queue.deleted = True
        waiting = queue.ready_count()
        del self.queues[queue.name]
        self.revision += 1
        if queue.recorded:
            # The record stands for the bindings too; replay removes them with the queue.
            self.turn.journal.delete(
                "queue", {"vhost": self.name, "name": queue.name, "id": int(queue.queue_id)}
            )
            self._removed()
        for binding in list(queue.bindings):
            self._remove(binding, False)
        queue.bindings.clear()
        consumers = list(queue.consumers)
        queue.consumers.clear()
        for consumer in consumers:
            queue.detach(consumer)
            self.turn.cancelled.append(consumer)
        if consumers and queue.recorded:
            self.turn.cancelled_group = self.turn.journal.group
        queue.drop()
        if queue.publishers is not None:
            queue.publishers.drop()
        return waiting

    def recorded_queues(self) -> list[Queue]:
        """Return what the journal knows by an id: durable queues, and what exchanges delay."""
        found = [queue for queue in self.queues.values() if queue.recorded]
        for exchange in self.exchanges.values():
            store = exchange.delayed
            if store is not None and store.recorded:
                found.append(store)
        return found

    def dissolve(self) -> None:
        """Let go of all that is in the vhost, because it is deleted; the caller journals that."""
        self.turn.changes += 1
        self.revision += 1
        self.dissolved = True
        for queue in self.queues.values():
            queue.deleted = True
            queue.bindings.clear()
            queue.consumers.clear()
            queue.drop()
            if queue.publishers is not None:
                queue.publishers.drop()
        for exchange in self.exchanges.values():
            exchange.deleted = True
            exchange.drop()
        self.queues.clear()
        self.exchanges.clear()
        self.staging.drop()

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer; an auto-delete queue goes with its last one (behaviour 48)."""
        queue = consumer.queue
        if queue.deleted:
            return
        queue.unsubscribe(consumer)
        if queue.auto_delete and not queue.consumers:
            self.drop_queue(queue)

    def retain_streams(self) -> None:
        """Let each stream drop what its retention no longer keeps."""
        for queue in self.queues.values():
            if isinstance(queue, Stream):
                queue.retain()
