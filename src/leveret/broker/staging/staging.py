"""Staging queues: messages that wait until their batch is committed or dropped.

A queue with `x-staging-sink` and `x-staging-batch` belongs to one batch of one sink.  What a client
publishes to it says in its headers where it is to go; it is kept, persistent or not, and nobody
consumes it.  It is for who declared it alone: who else has rights to its name neither stages in it
nor looks at it, binds it, or lets go of it.  A commit decides about all queues of a batch
(`commit.py`); then the messages go on to their exchanges (`release.py`), and the queue goes.  One
that is never committed is deleted by whom declared it, by the commit of a later batch of its sink,
or by its `x-expires`, which counts from its last publish.

It is nobody's traffic: listings, exports, policies and events pass it over (`Queue.hidden`), and
`list_sinks` shows it to operators.  Its messages count as memory like any others.

Nothing that a policy says means anything to such a queue, and neither does a message's expiration
before it goes on: a batch is whole or not at all.

Invariants: what comes in otherwise than by `StagingQueue.stage`, whose caller has looked at the
headers and the permissions, is refused; once a commit is looked at nothing more comes in.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.classic.waiting import WaitingQueue
from leveret.broker.core.core import Core
from leveret.broker.core.ownership import Owner, is_free_for, recorded_owner
from leveret.broker.queue.consumer import Consumer
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.target import (
    DROP,
    RECORDS_NONE,
    RECORDS_PERSISTENT,
    REFUSE,
    TAKE,
    Target,
)
from leveret.broker.staging.release import Release
from leveret.broker.staging.sinks import Sinks
from leveret.broker.values.arguments import (
    STAGING_BATCH,
    STAGING_DESTINATION,
    STAGING_SINK,
    int_argument,
)
from leveret.broker.values.queue_attributes import QueueAttributes
from leveret.broker.vhost.staging_queues import staging_record
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.limits import BODY_APART_BYTES
from leveret.message import Message


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
        self.sink: Final = str(arguments[STAGING_SINK])
        self.destination: Final = destination if isinstance(destination, str) else ""
        self.batch: Final[i64] = int_argument(arguments, STAGING_BATCH)
        #: Who declared it.  An earlier release did not say who: the queue is then for whoever its
        #: name lets in.
        self.staged_by: Owner | None = None
        #: When it was declared; this and who did it are in its definition.
        self.made_ms: i64 = core.now_ms
        #: True while `stage` adds a message; any other publish is refused.
        self.admits = False
        #: True while a commit is looked at.
        self.sealed = False
        #: The group of the journal that holds what came last.
        self.group: i64 = 0
        #: Once the batch is committed.
        self.release: Release | None = None
        self.hidden = True
        self.target = StagingTarget(self, sinks)
        self.configure(arguments)

    def configure(self, merged: dict[str, object]) -> None:
        """Take the queue's own arguments: no policy means anything to it."""
        super().configure(self.arguments)

    def declared_by(self, by: Owner | None) -> None:
        """Note that the queue belongs to `by`."""
        self.staged_by = by

    def is_part_of(self, sink: str, destination: str, batch: i64) -> bool:
        """Tell whether it belongs to that batch of that sink."""
        return (self.sink, self.destination, self.batch) == (sink, destination, batch)

    # -- what comes in ----------------------------------------------------------------------------

    def stage(self, message: Message, by: Owner | None) -> i64:
        """Put a message into the queue; return what `Vhost.publish` does.

        Its headers were looked at, and whether its publisher may write where it is to go.
        """
        self.admits = True
        outcome = self._home.publish(message, [self.target], by)
        self.admits = False
        return outcome

    # -- what goes on -----------------------------------------------------------------------------

    def dispatch(self, limit: i64) -> bool:
        """Release up to `limit` messages once the batch is committed."""
        release = self.release
        return release is not None and release.dispatch(self, limit)

    def purge(self) -> i64:
        """Drop the waiting messages.  Raises: PreconditionFailed (406) once they are committed."""
        self.check_free()
        return super().purge()

    def drop(self) -> None:
        """Forget the queue: it is deleted."""
        self._sinks.staged.remove(self.sink, self.destination, self)
        super().drop()
        # They know each other.
        self.release = None

    # -- who may do what --------------------------------------------------------------------------

    def attach(self, consumer: Consumer, where: str) -> None:
        """Raises: AccessRefused (403): nobody consumes what is staged."""
        self.check_consumed()

    def check_consumed(self) -> None:
        """Raises: AccessRefused (403): nobody consumes what is staged."""
        raise AccessRefused(f"staging queue '{self.name}' is not consumed")

    def check_user(self, by: Owner | None) -> None:
        """Check that it is `by` who stages here.

        Raises: AccessRefused (403): it is the part of a batch that is another's.
        """
        if not is_free_for(self.staged_by, by):
            raise AccessRefused(
                f"staging queue '{self.name}' belongs to another user, who alone stages in "
                "it and commits or deletes it"
            )

    def check_free(self) -> None:
        """Raises: PreconditionFailed (406) for a queue whose batch is committed."""
        if self.release is not None:
            raise PreconditionFailed(
                f"batch {self.batch} of sink '{self.sink}' is committed and on its way out of "
                f"queue '{self.name}'"
            )

    # -- records ----------------------------------------------------------------------------------

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the queue as its journal record holds it."""
        return super().definition(vhost) | staging_record(self.staged_by, self.made_ms)

    def restore_definition(self, record: dict[str, object]) -> None:
        """Restore owner and time from a record; older records have neither."""
        self.staged_by = recorded_owner(record)
        made_ms = record.get("made_ms")
        if isinstance(made_ms, int):
            self.made_ms = made_ms


@final
class StagingTarget(Target):
    """The target of one staging queue: it takes what is staged, and nothing else."""

    def __init__(self, queue: StagingQueue, sinks: Sinks) -> None:
        records_from = RECORDS_PERSISTENT if queue.recorded else RECORDS_NONE
        super().__init__(queue.core, queue.name, queue.queue_id, records_from)
        self.queue: Final = queue
        self._sinks: Final = sinks
        self.has_rules = True
        self.look_at_admission()

    def admit(self, message: Message) -> i64:
        """Judge a message: TAKE, REFUSE, or DROP what belongs to a batch that is committed."""
        queue = self.queue
        if not queue.admits:
            return REFUSE
        if self._sinks.drops(queue.sink, queue.destination, queue.batch, queue.staged_by):
            self.deduplicated += 1
            return DROP
        if queue.sealed or not self.is_in_quota(message):
            return REFUSE
        queue.group = self.core.journal.group
        queue.touch()
        return TAKE

    def publish(self, message: Message) -> i64:
        """Put `message` at the tail, whatever its expiration says; return its sequence."""
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


def staging_of(queue: Queue | None) -> StagingQueue | None:
    """Return a staging queue as what it is; None for any other queue, or for none."""
    return queue if isinstance(queue, StagingQueue) else None
