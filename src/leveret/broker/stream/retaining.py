"""Retention by time: each second all streams are looked at, a slice at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.task import Work

if TYPE_CHECKING:
    from leveret.broker.core.turn import Turn
    from leveret.broker.stream.stream import Stream

#: Streams that are listed in one step.
_LISTED_PER_STEP: Final = 16


@final
class Retaining(Work):
    """Applies the retention of some streams; those that are deleted meanwhile are passed by."""

    def __init__(self, turn: Turn) -> None:
        self._turn: Final = turn
        self._streams: list[Stream] = []
        self.under_way = False

    def begin(self, streams: list[Stream]) -> None:
        """Look at these streams, while it is not under way."""
        turn = self._turn
        turn.steps += len(streams) // _LISTED_PER_STEP
        self._streams = streams
        self.under_way = True
        turn.begin(self)

    def step(self, steps: i64) -> bool:
        """Look at some streams."""
        turn = self._turn
        streams = self._streams
        last = turn.steps + steps
        while streams and turn.steps < last:
            turn.steps += 1
            stream = streams.pop()
            if not stream.deleted:
                stream.retain()
        return bool(streams)

    def ended(self) -> None:
        """Note that all were looked at."""
        self.under_way = False
