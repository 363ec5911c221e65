"""What a virtual host asks of its staging queues; the staging room extends it.

A vhost makes a staging queue as it makes any other, and knows neither sinks nor batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from leveret.broker.classic.classic import ClassicQueue
    from leveret.broker.values.arguments import Arguments


@mypyc_attr(allow_interpreted_subclasses=True)
class StagingQueues:
    """The staging queues of one vhost; this base class has none."""

    def check(self, arguments: Arguments) -> None:
        """Check the arguments of a new queue.

        Raises: PreconditionFailed (406) for a new sink whose name holds control characters.
        """

    def equip(self, queue: ClassicQueue) -> None:
        """Make a new queue whose arguments name a sink a staging queue."""

    def drop(self) -> None:
        """Forget all staging queues, because the vhost is deleted."""
