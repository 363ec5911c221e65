"""Deliveries that go on to all consumers of a connection, of which there may be very many.

It is so when the client has read what filled its output, and when there is room for more unacked
messages again: each of their queues must look again whether it has something for them.

Invariant: a walk that was begun comes to its end, and who asks meanwhile has another one follow: so
those at the end of a long list have their turn, too.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.core.turn import Turn
from leveret.broker.queue.consumer import Consumer
from leveret.broker.scheduler.task import Work
from leveret.session.channel.channel import Channel

#: Consumers, and channels, that are looked at in the time of a step.
_LOOKS_PER_STEP: Final = 8


@final
class Resuming(Work):
    """Marks the queues of all consumers as having something to deliver, slice after slice."""

    def __init__(self, turn: Turn, channels: dict[i64, Channel]) -> None:
        self._turn: Final = turn
        self._channels: Final = channels
        self._again = False
        self._under_way = False
        #: The channels and the consumers of one of them that are still to come, the next one last.
        self._left: list[Channel] = []
        self._consumers: list[Consumer] = []

    def begin(self) -> None:
        """Mark them all, at once as many as a slice allows."""
        self._again = True
        if not self._under_way:
            self._under_way = True
            self._turn.begin(self)

    def step(self, steps: i64) -> bool:
        """Mark some of them."""
        turn = self._turn
        last = turn.steps + steps
        looked: i64 = 0
        while turn.steps < last:
            looked += 1
            if looked % _LOOKS_PER_STEP == 0:
                turn.steps += 1
            if self._consumers:
                self._consumers.pop().queue.schedule()
            elif self._left:
                self._consumers = list(self._left.pop().consumers.values())
                self._consumers.reverse()
            elif self._again:
                self._again = False
                self._left = list(self._channels.values())
                self._left.reverse()
            else:
                return False
        return True

    def ended(self) -> None:
        """Note that all were marked."""
        self._under_way = False
