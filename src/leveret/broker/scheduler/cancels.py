"""Consumers whose queue was deleted: who notifies them, when, and how many at a time.

Invariant: none is notified before the deletion is durable.
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
        """Tell the client that its consumer was cancelled."""


@final
class CancelledConsumers(SyncWaiter):
    """Consumers whose queue was deleted, until the deletion is durable.

    The connection that deleted the queue notifies them right after its reply; otherwise they are
    notified when the sync is done.
    """

    def __init__(self, scheduler: Scheduler, consumers: list[Cancellable]) -> None:
        super().__init__()
        self._scheduler: Final = scheduler
        self._consumers = consumers

    def synced(self, group: i64) -> None:
        """Notify the consumers, unless that was done."""
        self.notify()

    def notify(self) -> None:
        """Notify each consumer, once."""
        consumers = self._consumers
        if consumers:
            self._consumers = []
            self._scheduler.start(self._notify(consumers))

    def _notify(self, consumers: list[Cancellable]) -> Iterator[int]:
        for consumer in consumers:
            # The end of one that reads many partitions counts its own beside this.
            consumer.cancel()
            yield 1
        # Most are known to nobody else any more.
        self._scheduler.memory.free(consumers)


@final
class Cancels:
    """Consumers whose queue was deleted in the batch at hand."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Final = scheduler
        self._consumers: list[Cancellable] = []
        #: The group with the last record of such a deletion; 0 for none.
        self._group: i64 = 0

    def add(self, consumers: Sequence[Cancellable], group: i64) -> None:
        """Notify consumers of a queue when `group`, which has the record of its end, is synced."""
        self._consumers.extend(consumers)
        self._group = max(self._group, group)

    def are_due(self, group: i64) -> bool:
        """Return whether there are any, and a sync of `group` suffices for all of them."""
        return len(self._consumers) > 0 and self._group <= group

    def take(self) -> CancelledConsumers:
        """Return them for the caller to notify, and clear the list."""
        taken = CancelledConsumers(self._scheduler, self._consumers)
        self._consumers = []
        self._group = 0
        return taken

    def notify(self) -> None:
        """Notify them now, or when the deletion is durable."""
        if not self._consumers:
            return
        group = self._group
        taken = self.take()
        syncs = self._scheduler.syncs
        if syncs.must_wait(group):
            syncs.wait(taken, group)
        else:
            taken.notify()
