"""What waits for the journal: until a group of its records is synced, nobody may hear of them.

Invariant: each that waits is in one of the lists, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.costs import SLICE
from leveret.broker.scheduler.effects import SyncWaiter

if TYPE_CHECKING:
    from leveret.broker.scheduler.scheduler import Dispatcher, Scheduler
    from leveret.broker.scheduler.task import Task
    from leveret.store.journal.journal import Journal


@final
class Resumption(SyncWaiter):
    """Schedules a dispatcher again once a group of the journal is synced."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self.dispatcher: Final = dispatcher

    def synced(self, group: i64) -> None:
        """Have it dispatch."""
        self.dispatcher.schedule()


@final
class Parked(SyncWaiter):
    """Continues a task once a group of the journal is synced."""

    def __init__(self, scheduler: Scheduler, task: Task) -> None:
        super().__init__()
        self._scheduler: Final = scheduler
        self._task: Final = task

    def synced(self, group: i64) -> None:
        """Have it continue in the next round."""
        self._scheduler.wake(self._task)


@final
class Syncs:
    """All who wait for groups of the journal; very many are called a slice at a time."""

    def __init__(self, scheduler: Scheduler, journal: Journal) -> None:
        self._scheduler: Final = scheduler
        self.journal = journal
        #: The group whose sync the reply to the method at hand must wait for; 0 for none.
        self.reply_group: i64 = 0
        self._waiting: list[SyncWaiter] = []
        #: The last group that is synced, and those who are still to be called for it.
        self._group: i64 = 0
        self._late: list[SyncWaiter] = []

    def recorded(self) -> None:
        """Note that the method at hand wrote a record which its reply must wait for."""
        self.reply_group = self.journal.group

    def must_wait(self, group: i64) -> bool:
        """Return whether what depends on the records up to `group` must wait for a sync."""
        journal = self.journal
        return group > journal.durable_group and (group < journal.group or journal.has_records())

    def wait(self, waiter: SyncWaiter, group: i64) -> None:
        """Call `waiter` when `group` is synced."""
        if waiter.waits_for == 0:
            waiter.waits_for = group
            self._waiting.append(waiter)

    def synced(self, group: i64) -> None:
        """Call those that wait for the groups up to `group`; of very many, the rest follows."""
        self.journal.synced(group)
        self._group = group
        if self._late:
            self._late += self._waiting
            self._waiting = []
        else:
            self._late, self._waiting = self._waiting, self._late
        self.call(SLICE)

    def are_late(self) -> bool:
        """Return whether some are still to be called."""
        return len(self._late) > 0

    def call(self, cost: i64) -> None:
        """Call those whose group is synced, until these have spent `cost`."""
        scheduler = self._scheduler
        group = self._group
        late = self._late
        last = scheduler.spent + cost
        place: i64 = 0
        try:
            while place < len(late) and scheduler.spent < last:
                waiter = late[place]
                place += 1
                scheduler.spent += 1
                if waiter.waits_for <= group:
                    waiter.waits_for = 0
                    waiter.synced(group)
                else:
                    self._waiting.append(waiter)
        finally:
            # Nobody is called twice, whatever happened to who was called.
            if place == len(late):
                late.clear()
            else:
                del late[:place]
