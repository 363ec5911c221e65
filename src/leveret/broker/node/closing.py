"""Closing many connections for the operator, slice after slice.

The end of a connection takes some tens of microseconds beside what it held, which is released in
slices of its own (`session/connection/release.py`).

Invariant: connections that were opened after it began are none of those that it closes.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.core.turn import Link, Turn
from leveret.broker.scheduler.task import WaitedWork
from leveret.limits import CLOSE_STEPS

#: Connections that are passed by in a step.
_PASSED_PER_STEP: Final = 8


@final
class Closing(WaitedWork):
    """Closes the connections of a user, or those in a vhost."""

    def __init__(
        self, turn: Turn, links: list[Link], text: str, *, user: str = "", vhost: str = ""
    ) -> None:
        """Choose those of `links` that belong to `user`, or are in `vhost`; clients get `text`."""
        super().__init__()
        self._turn: Final = turn
        #: Those that it has not come to, the next one last.
        self._left: Final = links[::-1]
        self._text: Final = text
        self._user: Final = user
        self._vhost: Final = vhost

    def step(self, steps: i64) -> bool:
        """Close some of them."""
        return self.advance(self._turn.steps + steps)

    def advance(self, last: i64) -> bool:
        """Close some until `Turn.steps` is at `last`; return whether some are left."""
        turn = self._turn
        left = self._left
        passed: i64 = 0
        while left:
            if turn.steps >= last:
                return True
            link = left.pop()
            if (self._user and link.user == self._user) or (
                self._vhost and link.vhost_name == self._vhost
            ):
                turn.changes += 1
                turn.steps += CLOSE_STEPS
                link.force(self._text)
            else:
                passed += 1
                turn.steps += 1 if passed % _PASSED_PER_STEP == 0 else 0
        return False
