"""Sets of numbers that come in runs: sequences that are acked, or that are in chunks.

Invariants: the ranges are in order, at least one number apart, and none is empty.  Adding at the
end, as acks mostly do, takes constant time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import final

from mypy_extensions import i64


@final
class RangeSet:
    """A set of integers, kept as ranges with both ends included."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._firsts)

    def add(self, first: i64, last: i64) -> None:
        """Add the numbers from `first` to `last`; none when `last` is below `first`."""
        if last < first:
            return
        lasts = self._lasts
        if not lasts or first > lasts[-1] + 1:
            self._firsts.append(int(first))
            lasts.append(int(last))
            return
        low = bisect_left(lasts, int(first) - 1)
        high = bisect_right(self._firsts, int(last) + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, lasts[high - 1])
        self._firsts[low:high] = [int(first)]
        lasts[low:high] = [int(last)]

    def remove(self, first: i64, last: i64) -> None:
        """Take the numbers from `first` to `last` out of the set; none when `last` is below."""
        if last < first:
            return
        firsts = self._firsts
        lasts = self._lasts
        low = bisect_left(lasts, int(first))
        high = bisect_right(firsts, int(last))
        if low >= high:
            return
        kept_firsts: list[int] = []
        kept_lasts: list[int] = []
        if firsts[low] < first:
            kept_firsts.append(firsts[low])
            kept_lasts.append(int(first) - 1)
        if lasts[high - 1] > last:
            kept_firsts.append(int(last) + 1)
            kept_lasts.append(lasts[high - 1])
        firsts[low:high] = kept_firsts
        lasts[low:high] = kept_lasts

    def within(self, first: i64, last: i64) -> list[tuple[int, int]]:
        """Return the parts of the set from `first` to `last`, as ranges."""
        found: list[tuple[int, int]] = []
        at = bisect_left(self._lasts, int(first))
        while at < len(self._firsts) and self._firsts[at] <= last:
            found.append((max(self._firsts[at], int(first)), min(self._lasts[at], int(last))))
            at += 1
        return found

    def has(self, number: i64) -> bool:
        """Return whether `number` is in the set."""
        at = bisect_right(self._firsts, int(number)) - 1
        return at >= 0 and number <= self._lasts[at]

    def count(self, first: i64, last: i64) -> int:
        """Return how many numbers from `first` to `last` are in the set."""
        total = 0
        at = bisect_left(self._lasts, int(first))
        while first <= last and at < len(self._firsts) and self._firsts[at] <= last:
            total += min(self._lasts[at], int(last)) - max(self._firsts[at], int(first)) + 1
            at += 1
        return total

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield each range as its first and its last number, in order."""
        for at in range(len(self._firsts)):
            yield self._firsts[at], self._lasts[at]
