"""Samples of counts over time, at several intervals (grains), in bounded memory.

The grains are RabbitMQ's: five seconds for ten minutes, a minute for an hour, and coarser ones for
up to a day.  The samples of a coarser grain are a subset of those of the finest one, not means.

Invariant: the times in a ring increase.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

#: The interval of samples in ms, and the number of samples that are stored.
Grain = tuple[int, int]

#: The grains for the totals of a broker: ten minutes, an hour, eight hours, a day.
TOTALS: Final[tuple[Grain, ...]] = ((5_000, 121), (60_000, 61), (600_000, 49), (1_800_000, 49))

#: The grains for a queue that is requested individually.
DETAILED: Final[tuple[Grain, ...]] = ((5_000, 121),)

#: The grains for a queue in a list, which are enough for a rate.
LISTED: Final[tuple[Grain, ...]] = ((5_000, 3),)

#: The shortest time for a meaningful rate.
_RATE_MS_MIN: Final = 1_000


class _Ring:
    """The samples of one grain, oldest first; at most twice as many as the grain requires."""

    def __init__(self, grain: Grain, width: int) -> None:
        self.step_ms, self.kept = grain
        self._width = width
        self.times = array("q")
        self.values = array("q")

    def add(self, now_ms: int, values: Sequence[int]) -> None:
        """Add a sample, unless the last one is too recent."""
        times = self.times
        # The timer is not exact, so a sample may be a tenth of an interval early.
        if times and now_ms - times[-1] < self.step_ms * 9 // 10:
            return
        times.append(now_ms)
        self.values.extend(values)
        if len(times) >= 2 * self.kept:
            # Removing many samples at a time moves each sample about once.  Removing the oldest one
            # for each new sample would move all samples each time.
            cut = len(times) - self.kept
            del times[:cut]
            del self.values[: cut * self._width]


class Samples:
    """Samples of the counts `names`; times are wall times in ms."""

    def __init__(self, names: Sequence[str], grains: Sequence[Grain]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._width = len(self._places)
        self._rings = [_Ring(grain, self._width) for grain in grains]
        self._last: list[int] = []
        #: The time (ms) of the first sample with the current values; 0 before the first.
        self.changed_ms = 0

    @property
    def detailed(self) -> bool:
        """Return whether the samples are a history, not only enough for a rate."""
        return self._rings[0].kept > LISTED[0][1]

    def add(self, now_ms: int, values: Sequence[int]) -> None:
        """Add a sample, with one number for each name."""
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
        """Return whether rates are known: from two samples, or one that is a second old."""
        times = self._rings[0].times
        return len(times) > 1 or (len(times) == 1 and now_ms - times[0] >= _RATE_MS_MIN)

    def rate(self, names: Sequence[str], now: int, now_ms: int) -> float:
        """Return the growth per second of the sum of some counts, or 0 if it is not known yet.

        The growth is that between the last two samples, or from the only sample to `now`.
        """
        if not self.has_rates(now_ms):
            return 0.0
        ring = self._rings[0]
        if len(ring.times) > 1:
            now, now_ms = self._sum(ring, -1, names), ring.times[-1]
        at = max(0, len(ring.times) - 2)
        seconds = (now_ms - ring.times[at]) / 1000
        # A decreasing queue length has a negative rate, as in RabbitMQ.
        return round((now - self._sum(ring, at, names)) / seconds, 3) if seconds > 0 else 0.0

    def points(
        self, names: Sequence[str], age_ms: int, step_ms: int, now_ms: int
    ) -> list[tuple[int, int]]:
        """Return (time, sum of the counts) at each step of the last `age_ms`, newest first.

        Times before the first sample are omitted.
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
        """Return the finest ring that covers `age_ms`, or the coarsest if none does."""
        for ring in self._rings:
            if ring.step_ms * (ring.kept - 1) >= age_ms:
                return ring
        return self._rings[-1]

    def _sum(self, ring: _Ring, at: int, names: Sequence[str]) -> int:
        begin = (at if at >= 0 else len(ring.times) + at) * self._width
        return sum(ring.values[begin + self._places[name]] for name in names)
