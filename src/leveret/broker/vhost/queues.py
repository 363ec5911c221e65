"""Declaring and deleting queues in a virtual host.

Operations raise the domain's errors with RabbitMQ's texts; the session closes the channel.  What
must survive a crash is written to the journal here, and `turn.reply_group` tells the session what
its reply must wait for.

Invariant: a deleted queue is in no exchange's index.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.classic.classic import ClassicQueue
from leveret.broker.classic.staging_role import staging_record
from leveret.broker.core.turn import Link
from leveret.broker.queue.consumer import Consumer, Source
from leveret.broker.queue.queue import Queue, queue_record
from leveret.broker.stream.stream import STREAM_ID_FIELD, Stream
from leveret.broker.values.arguments import (
    STAGING_SINK,
    Arguments,
    check_equivalent,
    check_queue_arguments,
    differs,
)
from leveret.broker.vhost.exchanges import Exchanges
from leveret.broker.vhost.exclusive import check_link, existing_queue, locked
from leveret.broker.vhost.metadata import Metadata
from leveret.broker.vhost.policies import Policies
from leveret.broker.vhost.replies import Replies
from leveret.broker.vhost.staging_queues import StagingQueues
from leveret.broker.vhost.state import VhostState
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.limits import QUEUES_PER_VHOST_MAX
from leveret.names import Name, check_new
from leveret.store.records.definition import Definition


@final
class Queues:
    """The queues of one vhost."""

    def __init__(
        self,
        vhost: VhostState,
        metadata: Metadata,
        policies: Policies,
        exchanges: Exchanges,
        staging: StagingQueues,
        by_name: dict[str, Queue],
    ) -> None:
        self._vhost: Final = vhost
        self._turn: Final = vhost.turn
        self._metadata: Final = metadata
        self._policies: Final = policies
        self._exchanges: Final = exchanges
        self._staging: Final = staging
        self.by_name: Final = by_name
        #: The addresses of direct reply-to; nobody declares the queues behind them.
        self.replies: Final = Replies()
        self.count_max: i64 = QUEUES_PER_VHOST_MAX

    def existing(self, name: Name, link: Link | None) -> Queue:
        """Return a queue that `link` may use.

        Raises: NotFound (404); ResourceLocked (405) for another link's exclusive queue;
        AccessRefused (403) for another user's staging queue.
        """
        return existing_queue(self._vhost, self.by_name, name, link)

    def declare(
        self,
        link: Link | None,
        name: Name,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        """Declare a queue, or check that the one of this name is equivalent.

        Raises: AccessRefused (403) for new `amq.` names; ResourceLocked (405) for another link's
        exclusive queue; PreconditionFailed (406) for a new name with control characters, bad
        arguments or a difference.
        """
        where = self._vhost.queue_label(name)
        current = self.by_name.get(name)
        if current is not None:
            self._check_same(current, link, durable, exclusive, auto_delete, arguments)
            self._vhost.wait_for_definition(current.recorded, current.define_group)
            current.touch()
            return current
        check_new(name, "queue")
        self._staging.check(arguments)
        if name.startswith("amq."):
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        check_queue_arguments(arguments, where)
        return self._new(link, name, durable, exclusive, auto_delete, arguments)

    def declare_named_by_server(
        self,
        link: Link,
        token: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        """Declare a queue whose name the broker makes: `amq.gen-` and `token`."""
        name = Name(f"amq.gen-{token}")
        check_queue_arguments(arguments, self._vhost.queue_label(name))
        return self._new(link, name, durable, exclusive, auto_delete, arguments)

    def _new(
        self,
        link: Link | None,
        name: Name,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        self._metadata.check_queues(name, len(self.by_name) + 1)
        arguments = self._metadata.typed(arguments, durable, exclusive, auto_delete)
        return self._create(link, name, durable, exclusive, auto_delete, arguments)

    def create(self, name: Name, durable: bool, auto_delete: bool, arguments: Arguments) -> Queue:
        """Create a queue of imported definitions: any name, whatever the operator's limit is.

        Raises: PreconditionFailed (406) for bad arguments, or one queue too many.
        """
        check_queue_arguments(arguments, self._vhost.queue_label(name))
        return self._create(None, name, durable, False, auto_delete, arguments)

    def check_room(self, name: str, count: int) -> None:
        """Check that the vhost may have `count` more queues, `name` among them.

        Raises: PreconditionFailed (406).
        """
        self._metadata.check_queues(name, len(self.by_name) + count)
        if len(self.by_name) + count > self.count_max:
            raise PreconditionFailed(f"a vhost has at most {self.count_max} queues")

    def _create(
        self,
        link: Link | None,
        name: Name,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        if len(self.by_name) >= self.count_max:
            raise PreconditionFailed(f"a vhost has at most {self.count_max} queues")
        if arguments.get("x-queue-type") in ("stream", "quorum") or STAGING_SINK in arguments:
            self._check_replicated(name, durable, exclusive, auto_delete)
        # One that is not durable is shown and exported like the others.
        queue_id = self._vhost.ids.last_queue_id + 1
        record = queue_record(self._vhost.name, name, int(queue_id), auto_delete, arguments)
        if STAGING_SINK in arguments:
            owner = None if link is None else link.as_owner
            record.update(staging_record(owner, self._turn.now_ms))
        stream_id = ""
        if arguments.get("x-queue-type") == "stream":
            stream_id = self._vhost.ids.stream_ids.new_id()
            record[STREAM_ID_FIELD] = stream_id
        definition = Definition("queue", record)
        queue = self.make(queue_id, name, durable, exclusive, auto_delete, arguments)
        if isinstance(queue, Stream):
            queue.stream_id = stream_id
        if exclusive:
            queue.owner = link
        if isinstance(queue, ClassicQueue) and queue.staging is not None and link is not None:
            queue.staging.owner = link.as_owner
        if queue.recorded:
            self._turn.journal.define_made(definition)
            queue.define_group = self._turn.journal.group
            self._turn.recorded()
        return queue

    def _check_replicated(
        self, name: str, durable: bool, exclusive: bool, auto_delete: bool
    ) -> None:
        """Check that a stream, quorum or staging queue is durable and shared, as in RabbitMQ."""
        where = self._vhost.queue_label(name)
        # First, because what is exclusive counts as not durable.
        if exclusive:
            raise PreconditionFailed(f"invalid property 'exclusive-owner' for {where}")
        if not durable:
            raise PreconditionFailed(f"invalid property 'non-durable' for {where}")
        if auto_delete:
            raise PreconditionFailed(f"invalid property 'auto-delete' for {where}")

    def make(
        self,
        queue_id: i64,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        """Add a queue of the right type to the vhost, without checks and without a record."""
        self._vhost.ids.used(queue_id)
        queue: Queue
        if arguments.get("x-queue-type") == "stream":
            queue = Stream(self._turn, queue_id, name, arguments)
        else:
            queue = ClassicQueue(
                self._turn, queue_id, name, durable, exclusive, auto_delete, arguments
            )
            if STAGING_SINK in arguments:
                self._staging.equip(queue)
        queue.vhost = self._vhost
        self._turn.changes += 1
        self.by_name[name] = queue
        self._vhost.revision += 1
        self._policies.govern_queue(queue)
        return queue

    def _check_same(
        self,
        current: Queue,
        link: Link | None,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> None:
        where = self._vhost.queue_label(current.name)
        check_link(self._vhost, current, link)
        if current.exclusive != exclusive:
            raise locked(self._vhost, current.name)
        if current.durable != durable:
            raise differs("durable", where, durable, current.durable)
        if current.auto_delete != auto_delete:
            raise differs("auto_delete", where, auto_delete, current.auto_delete)
        check_queue_arguments(arguments, where)
        check_equivalent(current.arguments, self._metadata.typed_as(current, arguments), where)

    def delete(self, link: Link | None, name: Name, if_unused: bool, if_empty: bool) -> i64:
        """Delete a queue; return how many messages waited, 0 if it does not exist.

        Raises: ResourceLocked (405); PreconditionFailed (406) when in use or not empty, or while a
        committed batch is in it.
        """
        if name not in self.by_name:
            self._vhost.wait_for_removal()
            return 0
        queue = self.existing(name, link)
        if queue.kept:
            raise PreconditionFailed(f"{self._vhost.queue_label(name)} holds a committed batch")
        if if_unused and queue.consumers:
            raise PreconditionFailed(f"{self._vhost.queue_label(name)} in use")
        queue.hand_out()
        if if_empty and queue.ready_count() + queue.retry_count() > 0:
            raise PreconditionFailed(f"{self._vhost.queue_label(name)} not empty")
        return self.drop(queue)

    def drop(self, queue: Queue) -> i64:
        """Delete `queue` and its bindings, cancel its consumers; return the waiting messages."""
        if queue.deleted or self.replies.close(queue):
            return 0
        self._turn.changes += 1
        queue.deleted = True
        waiting = queue.ready_count()
        del self.by_name[queue.name]
        self._vhost.revision += 1
        if queue.recorded:
            # The record stands for the bindings too; replay removes them with the queue.
            self._turn.journal.delete(
                "queue", {"vhost": self._vhost.name, "name": queue.name, "id": int(queue.queue_id)}
            )
            self._vhost.removed()
        self._exchanges.unbind_queue(queue)
        consumers = list(queue.consumers)
        queue.consumers.clear()
        for consumer in consumers:
            queue.detach(consumer)
            self._turn.cancelled.append(consumer)
        if consumers and queue.recorded:
            self._turn.cancelled_group = self._turn.journal.group
        queue.drop()
        if queue.publishers is not None:
            queue.publishers.drop()
        return waiting

    def clear(self) -> None:
        """Release all queues, because the vhost is deleted."""
        for queue in self.by_name.values():
            queue.deleted = True
            queue.consumers.clear()
            queue.drop()
            if queue.publishers is not None:
                queue.publishers.drop()
        self.by_name.clear()

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer; delete an auto-delete queue with its last one (behaviour 48)."""
        queue = consumer.queue
        if queue.deleted:
            return
        queue.unsubscribe(consumer)
        self.end_unused(queue)

    def end_unused(self, source: Source) -> None:
        """Delete an auto-delete queue that has no consumer any more."""
        if (
            isinstance(source, Queue)
            and source.auto_delete
            and not source.deleted
            and not source.consumers
        ):
            self.drop(source)

    def retain_streams(self) -> None:
        """Apply the retention of each stream."""
        for queue in self.by_name.values():
            if isinstance(queue, Stream):
                queue.retain()
