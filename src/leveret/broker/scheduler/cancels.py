"""Notifies the consumers of deleted queues, in slices, after the deletion is durable.

Invariant: no consumer is notified before the deletion is durable.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.scheduler.effects import SyncWaiter

if TYPE_CHECKING:
    from leveret.broker.scheduler.scheduler import Scheduler


@mypyc_attr(allow_interpreted_subclasses=True)
class Cancellable:
    """A consumer that the broker can cancel."""

    @abstractmethod
    def cancel(self) -> None:
        """Notify the client that its consumer was cancelled."""


@final
class CancelledConsumers(SyncWaiter):
    """Consumers of a deleted queue, until the deletion is durable.

    The connection that deleted the queue notifies them right after its reply; otherwise they are
    notified when the sync is done.
    """

    def __init__(self, scheduler: Scheduler, consumers: list[Cancellable]) -> None:
        super().__init__()
        self._scheduler: Final = scheduler
        self._consumers = consumers

    def synced(self, group: i64) -> None:
        """Notify the consumers, unless they have been notified."""
        self.notify()

    def notify(self) -> None:
        """Notify each consumer, once."""
        consumers = self._consumers
        if consumers:
            self._consumers = []
            self._scheduler.start(self._notify(consumers))

    def _notify(self, consumers: list[Cancellable]) -> Iterator[int]:
        for consumer in consumers:
            # A consumer of many partitions adds the cost of its end itself.
            consumer.cancel()
            yield 1
        # Most of these consumers have no other reference.
        self._scheduler.memory.free(consumers)


@final
class Cancels:
    """Consumers of queues that were deleted in the current batch."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Final = scheduler
        self._consumers: list[Cancellable] = []
        #: The group with the last record of these deletions; 0 for none.
        self._group: i64 = 0

    def add(self, consumers: Sequence[Cancellable], group: i64) -> None:
        """Notify a queue's consumers when `group`, with the record of its deletion, is synced."""
        self._consumers.extend(consumers)
        self._group = max(self._group, group)

    def are_due(self, group: i64) -> bool:
        """Return whether consumers wait, and a sync of `group` is enough for all of them."""
        return len(self._consumers) > 0 and self._group <= group

    def take(self) -> CancelledConsumers:
        """Return the consumers for the caller to notify, and clear the list."""
        taken = CancelledConsumers(self._scheduler, self._consumers)
        self._consumers = []
        self._group = 0
        return taken

    def notify(self) -> None:
        """Notify the consumers now, or when the deletion is durable."""
        if not self._consumers:
            return
        group = self._group
        taken = self.take()
        syncs = self._scheduler.syncs
        if syncs.must_wait(group):
            syncs.wait(taken, group)
        else:
            taken.notify()
