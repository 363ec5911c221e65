"""Long operations of the core, which share the processor with all others.

An operation that may take long is a generator: a plain loop with a `yield` in it.  Each `yield`
gives what was done since the one before, in the unit of `Scheduler.spent` (about a microsecond of
compiled code).  The scheduler does a slice of it, lets others have their turn, and continues it.

A `yield` stands only where the state and the journal agree: between two of them a change is
recorded and applied as a whole, so that a crash at any of them leaves a state that the broker may
be in.  What is iterated may have changed when the generator continues: it takes the next item out
of a table or looks it up again.  A generator that is closed early leaves nothing half done.

Invariant: a task that was started ends, also when the connection that wanted it is lost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from leveret.errors import AmqpError

if TYPE_CHECKING:
    from leveret.broker.scheduler.scheduler import Scheduler

#: What an operation yields that cannot continue before something else has happened: the scheduler
#: comes back to it in the next round.
WAIT: Final = -1

#: What an operation yields that continues once the group which its reply waits for is synced.
SYNC: Final = -2

_NOTHING: Final[tuple[int, ...]] = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class EndWaiter:
    """Something outside of the core that waits for the end of a task."""

    @abstractmethod
    def work_ended(self) -> None:
        """Continue: the task is over."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Task:
    """An operation under way; `Scheduler.start` makes and begins it."""

    def __init__(self, scheduler: Scheduler, operation: Iterator[int]) -> None:
        #: Whether it had its first slice, and whether it has ended.
        self.began = False
        self.over = False
        self._scheduler: Final = scheduler
        #: The generator; nothing is left of it once it is over.
        self.operation = operation
        self._waiters: list[EndWaiter] = []
        #: The group of the journal that what depends on the operation must wait for: each slice
        #: continues with that of the slice before.
        self.group: i64 = scheduler.syncs.reply_group
        #: True while it waits for a sync, and is in no list of tasks.
        self.parked = False

    def tell(self, waiter: EndWaiter) -> None:
        """Tell `waiter` when it is over, at once where it is."""
        if self.over:
            waiter.work_ended()
        else:
            self._waiters.append(waiter)

    def step(self, cost: i64) -> bool:
        """Continue until it has spent about `cost`; return whether anything is left."""
        scheduler = self._scheduler
        scheduler.changes += 1
        scheduler.syncs.reply_group = self.group
        self.parked = False
        try:
            left = self._continue(scheduler.spent + cost)
        except AmqpError as error:
            self.fail(error)
            left = False
        self.began = True
        self.group = scheduler.syncs.reply_group
        if self.parked:
            scheduler.park(self)
        return left

    def _continue(self, last: i64) -> bool:
        """Continue until `last` is spent; return whether anything is left."""
        scheduler = self._scheduler
        for yielded in self.operation:
            cost: i64 = yielded
            if cost > 0:
                scheduler.spent += cost
            if cost < 0 or scheduler.spent >= last:
                self.parked = cost == SYNC
                return True
        return False

    def fail(self, error: AmqpError) -> None:
        """Take an error that ended the operation: raise it, or keep it for who asked for it."""
        raise error

    def ended(self) -> None:
        """Let go of the operation, and tell those who wait."""
        self.over = True
        # A generator keeps what it refers to, and that may refer to the task.
        self.operation = iter(_NOTHING)
        waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            waiter.work_ended()


def after(task: Task | None) -> Iterator[int]:
    """Within an operation, wait for the end of a task, if there is one."""
    while task is not None and not task.over:
        yield WAIT
