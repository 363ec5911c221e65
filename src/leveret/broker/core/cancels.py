"""Consumers whose queue was deleted: who notifies them, when, and how many at a time."""

from __future__ import annotations

from abc import abstractmethod
from typing import final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.effects import SyncWaiter
from leveret.broker.core.work import WorkAccount
from leveret.broker.scheduler.task import Work


@mypyc_attr(allow_interpreted_subclasses=True)
class Cancellable:
    """A consumer that the broker can cancel."""

    @abstractmethod
    def cancel(self) -> None:
        """Tell the client that its consumer was cancelled."""


@final
class Cancels(SyncWaiter):
    """Consumers whose queue was deleted, until the deletion is durable.

    The connection that deleted the queue notifies them right after its reply; otherwise they are
    notified when the sync is done.
    """

    def __init__(self, account: WorkAccount, cancelled: list[Cancellable]) -> None:
        super().__init__()
        self._account = account
        self.cancelled = cancelled

    def synced(self, group: i64) -> None:
        """Notify the consumers, unless that was done."""
        self.notify()

    def notify(self) -> None:
        """Notify each consumer, once; many of them slice after slice."""
        cancelled = self.cancelled
        if cancelled:
            self.cancelled = []
            self._account.begin(CancelWork(self._account, cancelled))


@final
class CancelWork(Work):
    """Notifies consumers that they were cancelled."""

    def __init__(self, account: WorkAccount, cancelled: list[Cancellable]) -> None:
        self._account = account
        self._cancelled = cancelled
        self._place: i64 = 0

    def step(self, steps: i64) -> bool:
        """Notify some of them."""
        account = self._account
        cancelled = self._cancelled
        last = account.steps + steps
        while self._place < len(cancelled) and account.steps < last:
            # The end of one that reads many partitions counts its own beside this.
            account.steps += 1
            cancelled[self._place].cancel()
            self._place += 1
        return self._place < len(cancelled)

    def ended(self) -> None:
        """Let go of them, in slices too: most are known to nobody else any more."""
        self._account.free(self._cancelled)
