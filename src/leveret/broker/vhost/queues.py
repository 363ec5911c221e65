"""Declares and deletes queues in a virtual host.

Operations raise the domain's errors with RabbitMQ's texts; the session closes the channel.  Durable
changes are journaled here, and `Syncs.reply_group` is the group that the session's reply must wait
for.

Invariant: a deleted queue is in no exchange's index.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import (
    MAX_PRIORITY,
    STAGING_SINK,
    check_equivalent,
    check_queue_arguments,
    differs,
)
from leveret.broker.attributes.message_events import EVENT_STREAM
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.consumers.consumer import QueueConsumer, Source
from leveret.broker.ownership import Owner, owner_fields
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.queue import Queue, queue_identity, queue_record
from leveret.broker.queue.quota import count_no_more, count_queue, give_queue
from leveret.broker.scheduler.accounts import QUEUE_BYTES, STAGED_BYTES, table_bytes
from leveret.broker.scheduler.costs import PASSED_PER_COST, QUEUE_DELETED
from leveret.broker.scheduler.link import Link
from leveret.broker.stream.stream import STREAM_ID_FIELD, Stream
from leveret.broker.vhost.replies import Replies
from leveret.broker.vhost.staging_queues import staging_record
from leveret.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from leveret.large_dict import LargeDict
from leveret.limits import QUEUES_PER_VHOST_MAX
from leveret.names import Name, check_new
from leveret.store.records.definition import Definition

if TYPE_CHECKING:
    from leveret.broker.vhost.vhost import Vhost


@final
class Queues:
    """The queues of one vhost."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost: Final = vhost
        self._core: Final = vhost.core
        self.by_name: Final[LargeDict[str, Queue]] = LargeDict()
        self._streams: Final[dict[Stream, None]] = {}
        #: The addresses of direct reply-to; their queues are never declared.
        self.replies: Final = Replies()
        self.count_max: i64 = QUEUES_PER_VHOST_MAX

    def existing(self, name: Name, link: Link | None) -> Queue:
        """Return a queue that `link` may use.

        Raises: NotFound (404); ResourceLocked (405) for another link's exclusive queue;
        AccessRefused (403) for another user's staging queue.
        """
        queue = self.by_name.get(name)
        if queue is None:
            raise NotFound(f"no {self._vhost.queue_label(name)}")
        self._check_link(queue, link)
        return queue

    def _check_link(self, queue: Queue, link: Link | None) -> None:
        """Check that `link` may use a queue.

        Raises: ResourceLocked (405); AccessRefused (403) for another user's staging queue.
        """
        if queue.owner is not None and queue.owner is not link:
            raise self._locked(queue.name)
        if queue.hidden and link is not None:
            queue.check_user(link.as_owner)

    def _locked(self, name: str) -> ResourceLocked:
        """Return the error for another link's queue."""
        return ResourceLocked(
            f"cannot obtain exclusive access to locked {self._vhost.queue_label(name)}. It could "
            "be originally declared on another connection or the exclusive property value does not "
            "match that of the original declaration."
        )

    def declare(
        self,
        link: Link | None,
        name: Name,
        attributes: QueueAttributes,
        by: Owner | None = None,
    ) -> Queue:
        """Declare a queue, or check that the one of this name is equivalent.

        A new queue counts for the user of `link`, or for `by` if there is no connection.

        Raises: AccessRefused (403) for new `amq.` names; ResourceLocked (405) for another link's
        exclusive queue; PreconditionFailed (406) for a new name with control characters, bad
        arguments or a difference.
        """
        where = self._vhost.queue_label(name)
        current = self.by_name.get(name)
        if current is not None:
            self._check_same(current, link, attributes)
            # Another connection may have just created it.
            self._core.syncs.wait_in_reply(current.define_group)
            current.touch()
            self._core.counts.queues_declared += 1
            return current
        check_new(name, "queue")
        self._vhost.staging.check(attributes.arguments)
        if name.startswith("amq."):
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        check_queue_arguments(attributes.arguments, where)
        return self._new(link, name, attributes, by)

    def declare_named_by_server(self, link: Link, token: str, attributes: QueueAttributes) -> Queue:
        """Declare a queue with a generated name: `amq.gen-` and `token`."""
        name = Name(f"amq.gen-{token}")
        check_queue_arguments(attributes.arguments, self._vhost.queue_label(name))
        return self._new(link, name, attributes, None)

    def _new(
        self, link: Link | None, name: Name, attributes: QueueAttributes, by: Owner | None
    ) -> Queue:
        owner = by if link is None else link.as_owner
        try:
            self.check_room(name, 1, owner)
            typed = self._vhost.metadata.typed(attributes)
            if typed is not attributes:
                check_queue_arguments(typed.arguments, self._vhost.queue_label(name))
            queue = self._create(link, name, typed, owner)
            self._core.counts.queues_declared += 1
            return queue
        finally:
            self._core.quotas.forget_unused(self._core.quotas.of(owner))

    def create(self, name: Name, attributes: QueueAttributes) -> Queue:
        """Create a queue from imported definitions, with any name and regardless of user limits.

        Raises: PreconditionFailed (406) for bad arguments, or too many queues.
        """
        check_queue_arguments(attributes.arguments, self._vhost.queue_label(name))
        self._check_count(1)
        return self._create(None, name, attributes, None)

    def check_room(self, name: str, count: int, by: Owner | None) -> None:
        """Check that the vhost and `by` may have `count` more queues, `name` among them.

        Raises: PreconditionFailed (406).
        """
        self._vhost.limits.check_queues(name, len(self.by_name) + count)
        use = self._core.quotas.of(by)
        if use is not None:
            use.check_queues(name, count)
        self._check_count(count)

    def _check_count(self, count: int) -> None:
        if len(self.by_name) + count > self.count_max:
            raise PreconditionFailed(f"a vhost has at most {self.count_max} queues")

    def _create(
        self, link: Link | None, name: Name, attributes: QueueAttributes, owner: Owner | None
    ) -> Queue:
        arguments = attributes.arguments
        if arguments.get("x-queue-type") in ("stream", "quorum") or STAGING_SINK in arguments:
            self._check_replicated(name, attributes)
        self._vhost.check_definition(_bytes_of(name, attributes))
        queue, definition = self.prepare(name, attributes, owner)
        if attributes.exclusive:
            queue.owner = link
        if link is not None:
            queue.declared_by(owner)
        self.enter(queue, definition, owner)
        self._vhost.policies.govern_queue(queue)
        return queue

    def prepare(
        self, name: Name, attributes: QueueAttributes, owner: Owner | None
    ) -> tuple[Queue, Definition]:
        """Return a queue that is ready to be added, with its record; no memory is booked for it.

        Raises: PreconditionFailed (406) for arguments that cannot be stored.
        """
        arguments = attributes.arguments
        # A transient queue has a record too, because listings and exports use it.
        queue_id = self._vhost.ids.last_queue_id + 1
        record = queue_record(self._vhost.name, name, int(queue_id), attributes)
        record.update(owner_fields(owner))
        if STAGING_SINK in arguments:
            record.update(staging_record(owner, self._core.now_ms))
        if arguments.get("x-queue-type") == "stream":
            record[STREAM_ID_FIELD] = self._vhost.ids.stream_ids.new_id()
        definition = Definition("queue", record)
        queue = self._built(queue_id, name, attributes)
        if isinstance(queue, Stream):
            queue.stream_id = str(record[STREAM_ID_FIELD])
        return queue, definition

    def enter(self, queue: Queue, definition: Definition, owner: Owner | None) -> None:
        """Add a prepared queue, and journal it; the caller applies its policies.

        The caller has checked that its name is free and that there is room for it.
        """
        self._add(queue)
        give_queue(queue, owner)
        # Time may have passed since the queue was prepared.
        queue.touch()
        self._core.counts.queues_created += 1
        if queue.recorded:
            self._core.journal.define_made(definition)
            queue.define_group = self._core.journal.group
            self._core.syncs.recorded()

    def _check_replicated(self, name: str, attributes: QueueAttributes) -> None:
        """Check that a stream, quorum or staging queue is durable and shared, as in RabbitMQ."""
        where = self._vhost.queue_label(name)
        for is_invalid, what in (
            # Checked first, because an exclusive queue counts as not durable.
            (attributes.exclusive, "exclusive-owner"),
            (not attributes.durable, "non-durable"),
            (attributes.auto_delete, "auto-delete"),
        ):
            if is_invalid:
                raise PreconditionFailed(f"invalid property '{what}' for {where}")

    def make(self, queue_id: i64, name: str, attributes: QueueAttributes) -> Queue:
        """Add a queue of the right type to the vhost, without checks and without a record."""
        queue = self._built(queue_id, name, attributes)
        self._add(queue)
        self._vhost.policies.govern_queue(queue)
        return queue

    def _built(self, queue_id: i64, name: str, attributes: QueueAttributes) -> Queue:
        """Return a queue of the right type."""
        self._vhost.ids.used(queue_id)
        queue: Queue
        if attributes.arguments.get("x-queue-type") == "stream":
            queue = Stream(self._core, queue_id, name, attributes.arguments)
        elif STAGING_SINK in attributes.arguments:
            queue = self._vhost.staging.make(self._core, queue_id, name, attributes)
        else:
            queue = ClassicQueue(self._core, queue_id, name, attributes)
        queue.booked = _bytes_of(name, attributes)
        return queue

    def _add(self, queue: Queue) -> None:
        """Add a queue to the vhost."""
        queue.vhost = self._vhost
        self._core.scheduler.changes += 1
        self._vhost.account.book(queue.booked)
        self.by_name[queue.name] = queue
        if queue.name != EVENT_STREAM:
            count_queue(queue, self._vhost.use)
        if isinstance(queue, Stream):
            self._streams[queue] = None
        self._vhost.revision += 1

    def _check_same(self, current: Queue, link: Link | None, attributes: QueueAttributes) -> None:
        where = self._vhost.queue_label(current.name)
        self._check_link(current, link)
        if current.exclusive != attributes.exclusive:
            raise self._locked(current.name)
        if current.durable != attributes.durable:
            raise differs("durable", where, attributes.durable, current.durable)
        if current.auto_delete != attributes.auto_delete:
            raise differs("auto_delete", where, attributes.auto_delete, current.auto_delete)
        received = dict(attributes.arguments)
        if current.kind == "quorum":
            received.pop(MAX_PRIORITY, None)
        check_queue_arguments(received, where)
        wanted = self._vhost.metadata.typed_as(current, attributes.arguments)
        check_equivalent(current.arguments, wanted, where)

    def delete(self, link: Link | None, name: Name, if_unused: bool, if_empty: bool) -> i64:
        """Delete a queue; return the number of its waiting messages, or 0 if it does not exist.

        Raises: ResourceLocked (405); PreconditionFailed (406) if it is in use, not empty, or part
        of a committed batch.
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
        """Delete a queue with its bindings and consumers; return the number of waiting messages."""
        if queue.deleted or self.replies.close(queue):
            return 0
        self._core.scheduler.changes += 1
        if self._delete(queue):
            self._vhost.removed()
        if queue.owner is not None:
            queue.owner.lose_exclusive(queue.queue_id)
        waiting = queue.ready_count()
        self._vhost.account.book(-queue.booked)
        queue.booked = 0
        del self.by_name[queue.name]
        self._vhost.revision += 1
        self._vhost.exchanges.unbind_queue(queue)
        consumers = queue.consumers
        self._core.scheduler.spent += QUEUE_DELETED + len(consumers) // PASSED_PER_COST
        if consumers:
            # The consumers leave the queue now, and a task notifies them (`scheduler/cancels.py`).
            group = self._core.journal.group if queue.recorded else 0
            self._core.scheduler.cancels.add(consumers, group)
            consumers.clear()
        _end(queue)
        return waiting

    def _delete(self, queue: Queue) -> bool:
        """Mark a queue as deleted, and journal that if it has a record; return whether it has one.

        The bindings need no records of their own, because replay removes them with the queue.
        """
        queue.mark_deleted()
        self._core.counts.queues_deleted += 1
        if isinstance(queue, Stream):
            del self._streams[queue]
        if queue.recorded:
            self._core.journal.delete("queue", queue_identity(self._vhost.name, queue))
        return queue.recorded

    def release(self) -> Iterator[int]:
        """Release the queues of the deleted vhost, whose connections are closed."""
        while len(self.by_name) > 0:
            queue = self.by_name.popitem()[1]
            cost = 2 * QUEUE_DELETED + len(queue.consumers)
            self._delete(queue)
            self._vhost.exchanges.forget_queue(queue)
            queue.consumers.clear()
            _end(queue)
            yield cost

    def unsubscribe(self, consumer: QueueConsumer) -> None:
        """Remove a consumer; delete its queue if it was the last (behaviour 48: auto-delete)."""
        queue = consumer.queue
        if queue.deleted:
            return
        queue.unsubscribe(consumer)
        self.end_unused(queue)

    def end_unused(self, source: Source) -> None:
        """Delete an auto-delete queue that has no more consumers."""
        if (
            isinstance(source, Queue)
            and source.auto_delete
            and not source.deleted
            and not source.consumers
        ):
            self.drop(source)

    def streams(self) -> list[Stream]:
        """Return all streams."""
        return list(self._streams)


def _end(queue: Queue) -> None:
    """Free everything that a deleted queue has in memory."""
    queue.drop()
    count_no_more(queue)
    queue.target.drop_publishers()
    queue.untie()


def _bytes_of(name: str, attributes: QueueAttributes) -> i64:
    """Return the memory of a queue, without its messages."""
    size = QUEUE_BYTES + i64(sys.getsizeof(name)) + table_bytes(attributes.arguments)
    return size + STAGED_BYTES if STAGING_SINK in attributes.arguments else size
