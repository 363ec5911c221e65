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

Invariants: what comes in otherwise than by `Staging.publish`, whose caller has looked at the
headers and the permissions, is refused; once a commit is looked at nothing more comes in.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.classic.classic import ClassicQueue
from leveret.broker.classic.staging_role import StagingRole, staging_record
from leveret.broker.core.ownership import Owner, is_free_for, recorded_owner
from leveret.broker.queue.queue import DROP, REFUSE, TAKE, Queue
from leveret.broker.staging.release import Release
from leveret.broker.staging.sinks import Sinks
from leveret.broker.values.arguments import (
    STAGING_BATCH,
    STAGING_DESTINATION,
    STAGING_SINK,
    int_argument,
)
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.message import Message


@final
class Staging(StagingRole):
    """The role of a staging queue: the part of a sink's batch that waits in it."""

    def __init__(self, vhost: Vhost, sinks: Sinks, queue: ClassicQueue) -> None:
        super().__init__()
        self._vhost = vhost
        self._sinks = sinks
        self.queue = queue
        arguments = queue.arguments
        destination = arguments.get(STAGING_DESTINATION)
        self.sink: Final = str(arguments[STAGING_SINK])
        self.destination: Final = destination if isinstance(destination, str) else ""
        self.batch: Final[i64] = int_argument(arguments, STAGING_BATCH)
        #: When it was declared; this and its owner are in its definition.
        self.made_ms: i64 = queue.turn.now_ms
        #: True while `publish` adds a message; any other publish is refused.
        self.admits = False
        #: True while a commit is looked at.
        self.sealed = False
        #: The group of the journal that holds what came last.
        self.group: i64 = 0
        #: Once the batch is committed.
        self.release: Release | None = None

    def publish(self, message: Message, by: Owner | None) -> i64:
        """Put a message into the queue; return what `Vhost.publish` does.

        Its headers were looked at, and whether its publisher may write where it is to go.
        """
        self.admits = True
        outcome = self._vhost.publish(message, [self.queue], by)
        self.admits = False
        return outcome

    def admit(self) -> i64:
        """Judge a message: TAKE, REFUSE, or DROP what belongs to a batch that is committed."""
        queue = self.queue
        if not self.admits:
            return REFUSE
        if self._sinks.drops(self.sink, self.destination, self.batch, self.owner):
            queue.deduplicated += 1
            return DROP
        if self.sealed:
            return REFUSE
        self.group = queue.turn.journal.group
        queue.touch()
        return TAKE

    def dispatch(self, limit: i64) -> bool:
        """Release up to `limit` messages once the batch is committed."""
        release = self.release
        return release is not None and release.dispatch(self.queue, limit)

    def definition(self) -> dict[str, object]:
        """Return who declared it and when, as the record of its queue holds it."""
        return staging_record(self.owner, self.made_ms)

    def restore(self, record: dict[str, object]) -> None:
        """Restore owner and time from a record; older records have neither."""
        self.owner = recorded_owner(record)
        made_ms = record.get("made_ms")
        if isinstance(made_ms, int):
            self.made_ms = made_ms

    def is_part_of(self, sink: str, destination: str, batch: i64) -> bool:
        """Tell whether it belongs to that batch of that sink."""
        return (self.sink, self.destination, self.batch) == (sink, destination, batch)

    def refuse_consumer(self) -> None:
        """Raises: AccessRefused (403): nobody consumes what is staged."""
        raise AccessRefused(f"staging queue '{self.queue.name}' is not consumed")

    def check_user(self, by: Owner | None) -> None:
        """Check that it is `by` who stages here.

        Raises: AccessRefused (403): it is the part of a batch that is another's.
        """
        if not is_free_for(self.owner, by):
            raise AccessRefused(
                f"staging queue '{self.queue.name}' belongs to another user, who alone stages in "
                "it and commits or deletes it"
            )

    def check_free(self) -> None:
        """Raises: PreconditionFailed (406) for a queue whose batch is committed."""
        if self.release is not None:
            raise PreconditionFailed(
                f"batch {self.batch} of sink '{self.sink}' is committed and on its way out of "
                f"queue '{self.queue.name}'"
            )

    def drop(self) -> None:
        """Forget the queue: it is deleted."""
        self._sinks.delist(self.sink, self.queue)


def staging_of(queue: Queue | None) -> Staging | None:
    """Return the role of a staging queue; None for any other queue, or for none."""
    role = queue.staging if isinstance(queue, ClassicQueue) else None
    return role if isinstance(role, Staging) else None
