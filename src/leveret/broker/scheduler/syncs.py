"""Objects that wait for the journal, so that no effect is visible before its record is synced.

Invariant: each waiter is in one of the lists, once.
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
        """Schedule the dispatcher."""
        self.dispatcher.schedule()


@final
class Parked(SyncWaiter):
    """Continues a task once a group of the journal is synced."""

    def __init__(self, scheduler: Scheduler, task: Task) -> None:
        super().__init__()
        self._scheduler: Final = scheduler
        self._task: Final = task

    def synced(self, group: i64) -> None:
        """Continue the task in the next round."""
        self._scheduler.wake(self._task)


@final
class Syncs:
    """All objects that wait for journal groups."""

    def __init__(self, scheduler: Scheduler, journal: Journal) -> None:
        self._scheduler: Final = scheduler
        self.journal = journal
        #: The group whose sync the reply to the current method must wait for; 0 for none.
        self.reply_group: i64 = 0
        self._waiting: list[SyncWaiter] = []
        #: The last group that is synced, and the waiters that may be called for it.
        self._group: i64 = 0
        self._ready: list[SyncWaiter] = []

    def recorded(self) -> None:
        """Have the reply to the current method wait for the record that the method wrote."""
        self.reply_group = self.journal.group

    def wait_in_reply(self, group: i64) -> None:
        """Have the reply to the current method wait for `group` too."""
        if group > self.journal.durable_group:
            self.reply_group = max(self.reply_group, group)

    def must_wait(self, group: i64) -> bool:
        """Return whether an effect of the records up to `group` must wait for a sync."""
        journal = self.journal
        return group > journal.durable_group and (group < journal.group or journal.has_records())

    def wait(self, waiter: SyncWaiter, group: i64) -> None:
        """Call `waiter` when `group` is synced."""
        if waiter.waits_for == 0:
            waiter.waits_for = group
            self._waiting.append(waiter)

    def synced(self, group: i64) -> None:
        """Call the waiters for the groups up to `group`: a slice now, the rest in later rounds."""
        self.journal.synced(group)
        self._group = group
        if self._ready:
            self._ready += self._waiting
            self._waiting = []
        else:
            self._ready, self._waiting = self._waiting, self._ready
        self.call(SLICE)

    def waiters(self, most: int) -> list[SyncWaiter]:
        """Return the first `most` objects that wait for a sync."""
        return self._waiting[:most]

    def has_ready(self) -> bool:
        """Return whether waiters are still to be called for a synced group."""
        return len(self._ready) > 0

    def call(self, cost: i64) -> None:
        """Call the waiters whose group is synced, until they have spent `cost`."""
        scheduler = self._scheduler
        group = self._group
        ready = self._ready
        stop_at = scheduler.spent + cost
        place: i64 = 0
        try:
            while place < len(ready) and scheduler.spent < stop_at:
                waiter = ready[place]
                place += 1
                scheduler.spent += 1
                if waiter.waits_for <= group:
                    waiter.waits_for = 0
                    waiter.synced(group)
                else:
                    self._waiting.append(waiter)
        finally:
            # Even if a waiter raised an exception, none is called twice.
            if place == len(ready):
                ready.clear()
            else:
                del ready[:place]
