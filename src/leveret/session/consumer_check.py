"""Consumers after a change of their user's permissions: those of queues that he may no longer read.

A connection may have tens of thousands of consumers, a user may have many connections, and the
pattern of a permission may take long with each name.  So what one change of permissions does not
look at within a slice is looked at in later turns; until then these consumers go on.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.scheduler.task import Work

if TYPE_CHECKING:
    from leveret.broker.core.turn import Turn
    from leveret.broker.queue.consumer import Consumer

#: Consumers that are listed in one step.
_LISTED_PER_STEP: Final = 16


class ConsumerCheck(Work):
    """Looks at the consumers of one connection, and ends some."""

    def __init__(self, turn: Turn) -> None:
        self._turn: Final = turn
        self._left: list[Consumer] = []
        #: True where permissions changed since the consumers were listed.
        self._again = False
        self._under_way = False

    def begin(self, last: i64) -> None:
        """Look at all consumers, at once until `Turn.steps` is at `last`."""
        self._again = True
        if self._under_way:
            return
        self._under_way = True
        turn = self._turn
        if turn.steps < last:
            turn.begin(self, last - turn.steps)
        else:
            turn.works.append(self)

    def step(self, steps: i64) -> bool:
        """Look at some consumers."""
        turn = self._turn
        last = turn.steps + steps
        if self._again:
            self._again = False
            self._left = self.consumers()
            turn.steps += len(self._left) // _LISTED_PER_STEP
            self.begin_checks()
        while self._left and turn.steps < last:
            turn.steps += 1
            if not self.check(self._left[-1], last):
                self._left.pop()
        return bool(self._left)

    def ended(self) -> None:
        """Note that all were looked at."""
        self._under_way = False

    @abstractmethod
    def consumers(self) -> list[Consumer]:
        """Return the consumers of the connection."""

    def begin_checks(self) -> None:
        """Forget how far the check of one consumer came: permissions have changed again."""

    @abstractmethod
    def check(self, consumer: Consumer, last: i64) -> bool:
        """End a consumer, which may be gone, if the user may not read its queue.

        Returns whether some of its names are left when `Turn.steps` is at `last`.
        """
