"""Long operations, which run in slices so that other work is done in between.

A long operation is a generator: a plain loop with a `yield` in it.  Each `yield` returns the cost
of the work since the previous one, in the unit of `Scheduler.spent`.

A `yield` is allowed only where state and journal agree.  Each record is applied as a whole, and no
record is missing at a `yield`, so that a crash at any of them leaves a consistent state.  The
collection being iterated may have changed when the generator continues, so it takes the next item
out of a table or looks it up again.

Invariant: a started task runs to its end, even when the connection that requested it is lost.  Only
a request of the HTTP API may close its generator early.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from leveret.errors import AmqpError

if TYPE_CHECKING:
    from leveret.broker.scheduler.scheduler import Scheduler

#: Yielded to poll: continue in the next round, to check the condition again.
WAIT: Final = -1

#: Yielded to wait until the journal group that the reply must wait for is synced.
SYNC: Final = -2

_NOTHING: Final[tuple[int, ...]] = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class EndWaiter:
    """An object outside the core that waits for the end of a task."""

    @abstractmethod
    def work_ended(self) -> None:
        """Continue, because the task is over."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Task:
    """An operation in progress; `Scheduler.start` creates and begins it."""

    def __init__(self, scheduler: Scheduler, operation: Iterator[int]) -> None:
        #: Whether the first slice is done, and whether the task is over.
        self.began = False
        self.over = False
        self._scheduler: Final = scheduler
        #: The generator, or an empty iterator once the task is over.
        self.operation = operation
        self._waiters: list[EndWaiter] = []
        #: The last journal group that the reply must wait for, from all slices so far.
        self.group: i64 = scheduler.syncs.reply_group
        #: True while the task waits for a sync, and is not in `Scheduler.tasks`.
        self.parked = False

    def tell(self, waiter: EndWaiter) -> None:
        """Notify `waiter` when the task is over, at once if it is already."""
        if self.over:
            waiter.work_ended()
        else:
            self._waiters.append(waiter)

    def step(self, cost: i64) -> bool:
        """Continue until it has spent about `cost`; return whether work is left."""
        scheduler = self._scheduler
        scheduler.changes += 1
        scheduler.syncs.reply_group = self.group
        self.parked = False
        try:
            left = self._continue(scheduler.spent + cost)
        except AmqpError as error:
            if not self.keeps(error):
                raise
            left = False
        self.began = True
        self.group = scheduler.syncs.reply_group
        if self.parked:
            scheduler.park(self)
        return left

    def _continue(self, stop_at: i64) -> bool:
        """Continue until `stop_at` is spent; return whether work is left."""
        scheduler = self._scheduler
        for yielded in self.operation:
            cost: i64 = yielded
            if cost > 0:
                scheduler.spent += cost
            if cost < 0 or scheduler.spent >= stop_at:
                self.parked = cost == SYNC
                return True
        return False

    def keeps(self, error: AmqpError) -> bool:
        """Keep an error that ended the operation and return True, or return False to raise it."""
        return False

    def ended(self) -> None:
        """Release the operation, and notify the waiters."""
        self.over = True
        # The generator may reference the task.
        self.operation = iter(_NOTHING)
        waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            waiter.work_ended()


def after(task: Task | None) -> Iterator[int]:
    """Within an operation, wait for the end of a task, if there is one."""
    while task is not None and not task.over:
        yield WAIT
