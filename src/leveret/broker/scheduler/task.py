"""Long operations of the core, which share the processor with all others.

An operation that may take long is a generator: a plain loop with a `yield` in it.  Each `yield`
gives what was done since the one before, in the unit of `Turn.steps` (about a microsecond of
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
from typing import Final

from mypy_extensions import i64, mypyc_attr

#: What an operation yields that cannot continue before something else has happened: the scheduler
#: comes back to it in the next round.
WAIT: Final = -1

#: What an operation yields that continues once the group which its reply waits for is synced.
SYNC: Final = -2

_NOTHING: Final[tuple[int, ...]] = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class Spending:
    """What the core has done since the start."""

    def __init__(self) -> None:
        #: How many changes of the state that clients share began, published messages apart, which
        #: their connections count.  Who changes it counts before the first step: so one who meets
        #: an exception that nobody expected knows whether anything may be half done.
        self.changes: i64 = 0
        #: Steps of work since the start: what requests cost, in a unit that is the same on every
        #: machine.
        self.steps: i64 = 0
        #: The group whose sync the reply to the method at hand must wait for; 0 for none.
        self.reply_group: i64 = 0

    @abstractmethod
    def park(self, task: Task) -> None:
        """Continue a task once the group that its reply waits for is synced."""


@mypyc_attr(allow_interpreted_subclasses=True)
class EndWaiter:
    """Something outside of the core that waits for the end of a task."""

    @abstractmethod
    def work_ended(self) -> None:
        """Continue: the task is over."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Task:
    """An operation under way; `Turn.start` makes and begins it."""

    def __init__(self, turn: Spending, operation: Iterator[int]) -> None:
        self.over = False
        self._turn = turn
        self._waiters: list[EndWaiter] = []
        #: The generator; nothing is left of it once it is over.
        self.operation = operation
        #: The group of the journal that what depends on the operation must wait for: each slice
        #: continues with that of the slice before.
        self.group: i64 = turn.reply_group
        #: True while it waits for a sync, and is in no list of tasks.
        self.parked = False

    def tell(self, waiter: EndWaiter) -> None:
        """Tell `waiter` when it is over, at once where it is."""
        if self.over:
            waiter.work_ended()
        else:
            self._waiters.append(waiter)

    def step(self, steps: i64) -> bool:
        """Continue for about so many steps, and count them; return whether some are left."""
        turn = self._turn
        turn.changes += 1
        turn.reply_group = self.group
        last: i64 = turn.steps + steps
        left = False
        self.parked = False
        for yielded in self.operation:
            cost: i64 = yielded
            if cost > 0:
                turn.steps += cost
            if cost < 0 or turn.steps >= last:
                left = True
                self.parked = cost == SYNC
                break
        self.group = turn.reply_group
        if self.parked:
            turn.park(self)
        return left

    def ended(self) -> None:
        """Let go of the operation, and tell those who wait."""
        # A generator keeps what it refers to, and that may refer to the task.
        self.operation = iter(_NOTHING)
        self.over = True
        waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            waiter.work_ended()


def after(task: Task | None) -> Iterator[int]:
    """Within an operation, wait for the end of a task, if there is one."""
    while task is not None and not task.over:
        yield WAIT
