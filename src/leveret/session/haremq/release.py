"""The release of what a HareMQ connection held, slice after slice, whatever ended it.

Invariants: it begins once; nothing is delivered to the connection meanwhile.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.scheduler.task import Work
from leveret.session.haremq.channel import HareChannel, Returned
from leveret.session.haremq.connection_base import HareConnectionBase


@final
class HareRelease(Work):
    """Ends the channels of a connection, and then deletes its exclusive queues (behaviour 13)."""

    def __init__(self, connection: HareConnectionBase, channels: list[HareChannel]) -> None:
        self._connection = connection
        #: The newest is the last, as its consumer is in the list of its queue.
        self._channels = channels
        self._returned: Returned | None = None

    def step(self, steps: i64) -> bool:
        """Release some of it."""
        turn = self._connection.turn
        turn.changes += 1
        last: i64 = turn.steps + steps
        while True:
            returned = self._returned
            if returned is not None:
                if returned.advance(last):
                    return True
                self._returned = None
            if not self._channels:
                break
            if turn.steps >= last:
                return True
            turn.steps += 1
            self._returned = self._channels.pop().end()
        for cost in self._connection.drop_exclusive():
            turn.steps += cost
            if turn.steps >= last:
                return True
        return False

    def ended(self) -> None:
        """Tell the connection that everything is released."""
        self._connection.holds_nothing()
