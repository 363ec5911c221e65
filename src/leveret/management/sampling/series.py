"""Samples of some counts over time: a ring for each grain, so that memory is bounded.

The grains are RabbitMQ's: five seconds for ten minutes, a minute for an hour, and longer for a day.
A point of a coarser grain is a sample of the finest one, not a mean.

Invariant: the times in a ring increase.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

#: The grain in ms, and the number of samples kept.
Grain = tuple[int, int]

#: The grains for the totals of a broker: ten minutes, an hour, eight hours, a day.
TOTALS: Final[tuple[Grain, ...]] = ((5_000, 121), (60_000, 61), (600_000, 49), (1_800_000, 49))

#: The grains for a queue that is requested individually.
DETAILED: Final[tuple[Grain, ...]] = ((5_000, 121),)

#: The grains for a queue in a list: enough for a rate.
LISTED: Final[tuple[Grain, ...]] = ((5_000, 3),)

#: The shortest time for a meaningful rate.
_RATE_MS_MIN: Final = 1_000


class _Ring:
    """The samples of one grain, oldest first; at most twice the number to keep."""

    def __init__(self, grain: Grain, width: int) -> None:
        self.step_ms, self.kept = grain
        self._width = width
        self.times = array("q")
        self.values = array("q")

    def add(self, now_ms: int, values: Sequence[int]) -> None:
        """Add a sample, unless the last one is of the same step."""
        times = self.times
        # The timer is not exact: a tenth of a step earlier counts as the next step.
        if times and now_ms - times[-1] < self.step_ms * 9 // 10:
            return
        times.append(now_ms)
        self.values.extend(values)
        if len(times) >= 2 * self.kept:
            # Cutting now and then moves each sample once; cutting for each sample would move all.
            cut = len(times) - self.kept
            del times[:cut]
            del self.values[: cut * self._width]


class Samples:
    """Samples of counts that have `names`; times are wall time in ms."""

    def __init__(self, names: Sequence[str], grains: Sequence[Grain]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._width = len(self._places)
        self._rings = [_Ring(grain, self._width) for grain in grains]
        self._last: list[int] = []
        #: The time (ms) of the first sample with the current values; 0 before the first.
        self.changed_ms = 0

    @property
    def detailed(self) -> bool:
        """Return whether this is a history, and not just enough for a rate."""
        return self._rings[0].kept > LISTED[0][1]

    def add(self, now_ms: int, values: Sequence[int]) -> None:
        """Add a sample, one number for each name."""
        if values != self._last:
            self._last = list(values)
            self.changed_ms = now_ms
        for ring in self._rings:
            ring.add(now_ms, values)

    def carry_on(self, other: Samples) -> None:
        """Copy the finest samples of another series of the same counts."""
        self._rings[0].times.extend(other._rings[0].times)
        self._rings[0].values.extend(other._rings[0].values)
        self._last, self.changed_ms = other._last, other.changed_ms

    def has_rates(self, now_ms: int) -> bool:
        """Return whether a rate is known: there are two samples, or one that is a second old."""
        times = self._rings[0].times
        return len(times) > 1 or (len(times) == 1 and now_ms - times[0] >= _RATE_MS_MIN)

    def rate(self, names: Sequence[str], now: int, now_ms: int) -> float:
        """Return the growth per second of the sum of some counts; 0 if it is not known yet.

        It is measured between the last two samples, or from the only one to `now`.
        """
        if not self.has_rates(now_ms):
            return 0.0
        ring = self._rings[0]
        if len(ring.times) > 1:
            now, now_ms = self._sum(ring, -1, names), ring.times[-1]
        at = max(0, len(ring.times) - 2)
        seconds = (now_ms - ring.times[at]) / 1000
        # A length may fall, which gives a negative rate, as in RabbitMQ.
        return round((now - self._sum(ring, at, names)) / seconds, 3) if seconds > 0 else 0.0

    def points(
        self, names: Sequence[str], age_ms: int, step_ms: int, now_ms: int
    ) -> list[tuple[int, int]]:
        """Return (time, sum of the counts) at each step of the last `age_ms`, newest first.

        Times before the first sample have no entry.
        """
        ring = self._ring_for(age_ms, now_ms)
        found: list[tuple[int, int]] = []
        for back in range(0, age_ms + 1, step_ms):
            at = bisect_right(ring.times, now_ms - back) - 1
            if at < 0:
                break
            found.append((now_ms - back, self._sum(ring, at, names)))
        return found

    def _ring_for(self, age_ms: int, now_ms: int) -> _Ring:
        """Return the finest ring that covers `age_ms`, or else the coarsest."""
        for ring in self._rings:
            if ring.step_ms * (ring.kept - 1) >= age_ms:
                return ring
        return self._rings[-1]

    def _sum(self, ring: _Ring, at: int, names: Sequence[str]) -> int:
        begin = (at if at >= 0 else len(ring.times) + at) * self._width
        return sum(ring.values[begin + self._places[name]] for name in names)
