"""The vhost's interface to its staging queues; the staging package implements it.

A vhost creates a staging queue like any other, and depends on neither sinks nor batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.ownership import Owner, owner_fields
from leveret.broker.queue.classic import ClassicQueue

if TYPE_CHECKING:
    from leveret.broker.attributes.arguments import Arguments
    from leveret.broker.core import Core
    from leveret.broker.queue.queue import Queue


@mypyc_attr(allow_interpreted_subclasses=True)
class StagingQueues:
    """The staging queues of one vhost; this base class has none."""

    def check(self, arguments: Arguments) -> None:
        """Check the arguments of a new queue.

        Raises: PreconditionFailed (406) for a new sink with control characters in its name.
        """

    def make(self, core: Core, queue_id: i64, name: str, attributes: QueueAttributes) -> Queue:
        """Return a new queue with a sink in its arguments."""
        return ClassicQueue(core, queue_id, name, attributes)

    def release(self) -> None:
        """Release the staging state of a deleted vhost."""


def staging_record(owner: Owner | None, made_ms: i64) -> dict[str, object]:
    """Return the additional fields in the record of a staging queue."""
    return {**owner_fields(owner), "made_ms": int(made_ms)}
