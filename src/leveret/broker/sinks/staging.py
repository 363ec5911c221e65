"""Staging queues: messages that wait until their batch is committed or dropped.

A queue with `x-staging-sink` and `x-staging-batch` belongs to one batch of one sink.  Headers of a
staged message name its exchange and routing key, unless the queue's arguments give them for all its
messages.  A staged message is stored, persistent or not, and cannot be consumed.  Only the user who
declared the queue can use it: other users with permissions for its name cannot stage in it, read
it, bind it, or delete it.  A commit covers all queues of a batch (`commit.py`); then the messages
move to their exchanges (`release.py`) or to their one queue (`heir.py`), and the staging queue is
deleted.  A queue that is never committed is deleted by its user, by the commit of a later batch of
its sink, or by its `x-expires`, which counts from its last publish.

It is not regular traffic: listings, exports, policies and events leave it out (`Queue.hidden`), and
`list_sinks` shows it to operators.  Its messages count as memory like any others.

Policies do not apply to such a queue, and neither does a message's expiration before its release: a
batch is complete or not published at all.

Invariants: only `StagingQueue.stage` and `write_batch` add messages, and their callers have checked
the properties and the permissions; once a commit is being checked, no more messages are accepted.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import (
    STAGING_BATCH,
    STAGING_DESTINATION,
    STAGING_EXCHANGE,
    STAGING_ROUTING_KEY,
    STAGING_SINK,
    int_argument,
)
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.attributes.special_headers import COPIES, special_headers
from leveret.broker.backlog.fifo_pages import FifoPages
from leveret.broker.backlog.page import Page
from leveret.broker.consumers.consumer import QueueConsumer
from leveret.broker.core import Core
from leveret.broker.ownership import Owner, is_free_for, recorded_owner
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.target import (
    DROP,
    RECORDS_NONE,
    RECORDS_PERSISTENT,
    REFUSE,
    TAKE,
    Target,
)
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.scheduler.costs import MESSAGES_PER_COST
from leveret.broker.scheduler.effects import Hold
from leveret.broker.sinks.release import Release
from leveret.broker.sinks.sinks import Sinks
from leveret.broker.vhost.staging_queues import staging_record
from leveret.broker.vhost.vhost import Vhost
from leveret.chunk import ChunkBuilder
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.limits import BODY_APART_BYTES
from leveret.message import Address, Message
from leveret.names import cleaned
from leveret.store.journal.journal import Journal, LateRecord
from leveret.store.segments.segments import ChunkRef
from leveret.wire.content.message_batch import MessageBatch
from leveret.wire.properties import HEADERS, find_property
from leveret.wire.staged import StagedDestination, read_staged

#: The flags, in the first byte of properties, of a priority and of an expiration.
JUDGED: Final = 0x09

#: The field of `is_plain` in a queue's record.
_PLAIN: Final = "plain"


@final
class StagingQueue(WaitingQueue):
    """The part of a sink's batch that waits in one queue until the batch is committed."""

    def __init__(
        self,
        vhost: Vhost,
        sinks: Sinks,
        core: Core,
        queue_id: i64,
        name: str,
        attributes: QueueAttributes,
    ) -> None:
        super().__init__(core, queue_id, name, attributes)
        self._home: Final = vhost
        self._sinks: Final = sinks
        arguments = attributes.arguments
        destination = arguments.get(STAGING_DESTINATION)
        #: The destination of all its messages; None if each message's headers name one.
        self.address: Final = _address_of(arguments)
        #: True while no message has additional keys, a priority, an expiration or a number;
        #: recorded once this is no longer so.
        self.is_plain = True
        self.sink: Final = str(arguments[STAGING_SINK])
        self.destination: Final = destination if isinstance(destination, str) else ""
        self.batch: Final[i64] = int_argument(arguments, STAGING_BATCH)
        #: The user who declared it.  None if an earlier release recorded the queue, which is then
        #: open to any user with permissions for its name.
        self.staged_by: Owner | None = None
        #: When it was declared; this and the user are in its definition.
        self.made_ms: i64 = core.now_ms
        #: True while `stage` adds a message; any other publish is refused.
        self.admits = False
        #: True while a commit is being checked.
        self.sealed = False
        #: The journal group with the latest message.
        self.group: i64 = 0
        #: The batches whose chunk is not in the journal yet.
        self.unrecorded: i64 = 0
        #: Set once the batch is committed.
        self.release: Release | None = None
        self.hidden = True
        self.target = StagingTarget(self)
        self.configure(arguments)

    def configure(self, merged: dict[str, object]) -> None:
        """Apply only the queue's own arguments, because policies do not apply to it."""
        super().configure(self.arguments)

    def declared_by(self, by: Owner | None) -> None:
        """Make `by` the owner of the queue."""
        self.staged_by = by

    def is_part_of(self, sink: str, destination: str, batch: i64) -> bool:
        """Return whether it belongs to that batch of that sink."""
        return (self.sink, self.destination, self.batch) == (sink, destination, batch)

    # -- staging -----------------------------------------------------------------------------------

    def stage(self, message: Message, by: Owner | None) -> i64:
        """Put a message into the queue; return the outcome of `Vhost.publish`.

        The caller has checked its headers, and the publisher's permission for its exchange.
        """
        if self.address is not None and self.is_plain and not _is_plain(message):
            self.is_plain = False
            self.core.journal.define("queue", self.definition(self._home.name))
        self.admits = True
        outcome = self._home.publish(message, [self.target], by)
        self.admits = False
        return outcome

    def drops(self, count: i64) -> bool:
        """Return whether its batch is committed, so that `count` more messages are dropped."""
        if not self._sinks.drops(self.sink, self.destination, self.batch, self.staged_by):
            return False
        self.target.deduplicated += count
        return True

    def admit_batch(self, batch: MessageBatch) -> i64:
        """Check the messages of one publish: TAKE, REFUSE, or DROP if they are committed."""
        if self.drops(batch.count):
            return DROP
        share = self.target.share
        if self.sealed or (share is not None and not share.admits(batch.count, batch.size)):
            return REFUSE
        self.touch()
        return TAKE

    def write_batch(self, batch: MessageBatch) -> Hold:
        """Put the messages of an admitted batch into the queue as one chunk.

        They are not examined when they enter a queue.  Return what their confirm waits for.
        """
        assert self.address is not None
        pages = self.backlog()
        assert isinstance(pages, FifoPages)
        builder = ChunkBuilder(self.queue_id)
        builder.add_batch(pages.end_tail(), self.address, self.core.now_ms, batch)
        page = StagedPage(pages, self, builder.first, builder.last)
        self.unrecorded += 1
        pages.write_behind(builder, page)
        self.core.scheduler.spent += batch.count // MESSAGES_PER_COST
        self.target.published += batch.count
        if self.target.share is not None:
            self.target.share.note()
        return page.publish

    def destination_of(self, properties: bytes) -> StagedDestination:
        """Return the destination of a message when it is released.

        Raises: PreconditionFailed (406) if neither its headers nor the queue's arguments name a
        destination.
        """
        address = self.address
        if address is None:
            return read_staged(properties)
        return StagedDestination(address.exchange, address.routing_key)

    # -- releasing ---------------------------------------------------------------------------------

    def dispatch(self, limit: i64) -> bool:
        """Release up to `limit` messages once the batch is committed."""
        release = self.release
        return release is not None and release.dispatch(self, limit)

    def evict(self) -> bool:
        """Move messages from memory to disk; return whether another call is needed."""
        if super().evict():
            return True
        pages = self.backlog()
        assert isinstance(pages, FifoPages)
        pages.leave()
        return False

    def purge(self) -> i64:
        """Drop the waiting messages.  Raises: PreconditionFailed (406) once they are committed."""
        self.check_free()
        return super().purge()

    def drop(self) -> None:
        """Remove the queue, because it is deleted."""
        self._sinks.staged.remove(self.sink, self.destination, self)
        super().drop()
        # The two refer to each other.
        self.release = None

    # -- permissions -------------------------------------------------------------------------------

    def attach(self, consumer: QueueConsumer, where: str) -> None:
        """Raises: AccessRefused (403): a staging queue cannot be consumed."""
        self.check_consumed()

    def check_consumed(self) -> None:
        """Raises: AccessRefused (403): a staging queue cannot be consumed."""
        raise AccessRefused(f"staging queue '{self.name}' cannot be consumed")

    def check_user(self, by: Owner | None) -> None:
        """Check that `by` is the user who stages here.

        Raises: AccessRefused (403) if the queue belongs to another user.
        """
        if not is_free_for(self.staged_by, by):
            raise AccessRefused(
                f"staging queue '{self.name}' belongs to another user; only that user can "
                "stage in it, commit it or delete it"
            )

    def check_free(self) -> None:
        """Raises: PreconditionFailed (406) for a queue whose batch is committed."""
        if self.release is not None:
            raise PreconditionFailed(
                f"batch {self.batch} of sink '{self.sink}' is committed and being released from "
                f"queue '{self.name}'"
            )

    # -- records ----------------------------------------------------------------------------------

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the journal record of the queue."""
        own = staging_record(self.staged_by, self.made_ms)
        return super().definition(vhost) | own | ({} if self.is_plain else {_PLAIN: False})

    def restore_definition(self, record: dict[str, object]) -> None:
        """Restore the queue's own fields from a record; older records have none of them."""
        self.staged_by = recorded_owner(record)
        self.is_plain = record.get(_PLAIN) is not False
        made_ms = record.get("made_ms")
        if isinstance(made_ms, int):
            self.made_ms = made_ms


@final
class StagedPage(Page):
    """A page that arrived as one batch; its publish is held until its chunk is recorded."""

    def __init__(self, pages: FifoPages, queue: StagingQueue, first: i64, last: i64) -> None:
        super().__init__(pages, first, last)
        #: Ends with the record of the chunk.
        self.publish: Final = Hold()
        self.queue: Final = queue

    def spilled(self, ref: ChunkRef) -> None:
        """Settle the publish once the record of the chunk is appended."""
        super().spilled(ref)
        self.queue.core.journal.later(StagedPageRecord(self))


@final
class StagedPageRecord(LateRecord):
    """Follows the record of a staged page's chunk, and is empty."""

    def __init__(self, page: StagedPage) -> None:
        self.page: Final = page

    def append_to(self, journal: Journal) -> None:
        """Have the publish, and a commit of the queue, wait for the sync of the chunk's record."""
        self.page.queue.group = journal.last_group
        self.page.queue.unrecorded -= 1
        self.page.publish.end()


@final
class StagingTarget(Target):
    """The target of one staging queue: it accepts only staged messages."""

    def __init__(self, queue: StagingQueue) -> None:
        records_from = RECORDS_PERSISTENT if queue.recorded else RECORDS_NONE
        super().__init__(queue.core, queue.name, queue.queue_id, records_from)
        self.queue: Final = queue
        self.has_rules = True
        self.look_at_admission()

    def admit(self, message: Message) -> i64:
        """Check a message: TAKE, REFUSE, or DROP it if its batch is already committed."""
        queue = self.queue
        if not queue.admits:
            return REFUSE
        if queue.drops(1):
            return DROP
        if queue.sealed or not self.is_in_quota(message):
            return REFUSE
        queue.group = self.core.journal.group
        queue.touch()
        return TAKE

    def publish(self, message: Message) -> i64:
        """Put `message` at the tail, ignoring its expiration; return its sequence."""
        self.published += 1
        size = message.size
        core = self.core
        core.memory.hold(size)
        queue = self.queue
        queue.schedule()
        sequence = queue.ready.append(message)
        if (sequence & core.memory.window_mask) == 0 or size >= BODY_APART_BYTES:
            queue.bound_window()
            if self.share is not None:
                self.share.note()
        return sequence


def _address_of(arguments: dict[str, object]) -> Address | None:
    """Return the exchange and the routing key in the arguments of a staging queue, if given."""
    exchange, routing_key = arguments.get(STAGING_EXCHANGE), arguments.get(STAGING_ROUTING_KEY)
    if not isinstance(exchange, str) or not isinstance(routing_key, str):
        return None
    return Address(
        cleaned(exchange).encode("utf-8", "surrogateescape"),
        routing_key.encode("utf-8", "surrogateescape"),
    )


def _is_plain(message: Message) -> bool:
    """Return whether a message need not be examined when it enters a queue."""
    properties = message.properties
    if message.numbered or message.address.blind_bytes > 0 or properties[0] & JUDGED:
        return False
    return find_property(properties, HEADERS) < 0 or not special_headers(properties) & COPIES


def staging_of(queue: Queue | None) -> StagingQueue | None:
    """Return a staging queue with its type; None for any other queue, or for None."""
    return queue if isinstance(queue, StagingQueue) else None
