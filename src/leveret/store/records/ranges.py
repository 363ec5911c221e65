"""Sets of integers stored as ranges, for sequences that are acked or in chunks.

A consumer that acks every other message of a deep queue creates one range per message.  So the
ranges are stored in blocks, and an insert or remove moves only the ranges of one block.

Invariants: the ranges are in order, not adjacent, and not empty.  There is always at least one
block.  A block is empty only if it is the only one, and has at most `BLOCK_RANGES_MAX` ranges.
Adding at the end, as most acks do, takes constant time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

#: A block with more ranges is split.
BLOCK_RANGES_MAX: Final = 1024


@final
@mypyc_attr(acyclic=True)
class RangeBlock:
    """Consecutive ranges, by the first and the last number of each."""

    def __init__(self, firsts: list[int], lasts: list[int]) -> None:
        self.firsts = firsts
        self.lasts = lasts

    def take_out(self, first: i64, last: i64) -> None:
        """Remove the numbers from `first` to `last`."""
        firsts = self.firsts
        lasts = self.lasts
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

    def take_out_until(self, number: i64) -> i64:
        """Remove the ranges that begin at or before `number`; return the end of the last one."""
        high = bisect_right(self.firsts, int(number))
        end = self.lasts[high - 1]
        del self.firsts[:high]
        del self.lasts[:high]
        return end

    def put(self, first: i64, last: i64) -> None:
        """Add the numbers from `first` to `last`; a range must end at `first` - 1 or after it."""
        firsts = self.firsts
        lasts = self.lasts
        low = bisect_left(lasts, int(first) - 1)
        high = bisect_right(firsts, int(last) + 1)
        if low < high:
            first = min(first, firsts[low])
            last = max(last, lasts[high - 1])
        firsts[low:high] = [int(first)]
        lasts[low:high] = [int(last)]


@final
class RangeSet:
    """A set of integers, stored as ranges with both ends included."""

    def __init__(self) -> None:
        self.blocks: list[RangeBlock] = [RangeBlock([], [])]

    def __len__(self) -> int:
        """Return the number of ranges."""
        return sum([len(block.firsts) for block in self.blocks])

    def add(self, first: i64, last: i64) -> None:
        """Add the numbers from `first` to `last`; none if `last` is below `first`."""
        if last < first:
            return
        block = self.blocks[-1]
        lasts = block.lasts
        if not lasts or first > lasts[-1] + 1:
            if len(lasts) >= BLOCK_RANGES_MAX:
                self.blocks.append(RangeBlock([int(first)], [int(last)]))
            else:
                block.firsts.append(int(first))
                lasts.append(int(last))
        elif first >= block.firsts[-1]:
            if last > lasts[-1]:
                lasts[-1] = int(last)
        else:
            self._add_among(first, last)

    def _add_among(self, first: i64, last: i64) -> None:
        """Add numbers that begin before the last range."""
        blocks = self.blocks
        place = self._ending(first - 1)
        end: i64 = place + 1
        while end < len(blocks) and blocks[end].firsts[0] <= last + 1:
            end += 1
        if end > place + 1:
            # The new numbers extend into later blocks.
            behind = blocks[end - 1]
            last = max(last, behind.take_out_until(last + 1))
            if behind.firsts:
                end -= 1
            del blocks[place + 1 : end]
        blocks[place].put(first, last)
        self._split(place)

    def _split(self, place: i64) -> None:
        """Split a block with too many ranges in two."""
        block = self.blocks[place]
        if len(block.firsts) > BLOCK_RANGES_MAX:
            half = len(block.firsts) // 2
            self.blocks.insert(place + 1, RangeBlock(block.firsts[half:], block.lasts[half:]))
            del block.firsts[half:]
            del block.lasts[half:]

    def _ending(self, number: i64) -> i64:
        """Return the index of the first block that ends at or after `number`.

        Return the number of blocks if there is none.
        """
        blocks = self.blocks
        low: i64 = 0
        high: i64 = len(blocks)
        while low < high:
            middle: i64 = (low + high) >> 1
            lasts = blocks[middle].lasts
            if lasts and lasts[-1] >= number:
                high = middle
            else:
                low = middle + 1
        return low

    def remove(self, first: i64, last: i64) -> None:
        """Remove the numbers from `first` to `last`; none if `last` is below `first`."""
        if last < first:
            return
        blocks = self.blocks
        place = self._ending(first)
        while place < len(blocks) and blocks[place].firsts[0] <= last:
            block = blocks[place]
            block.take_out(first, last)
            if block.firsts or len(blocks) == 1:
                self._split(place)
                place += 1
            else:
                del blocks[place]

    def within(self, first: i64, last: i64) -> list[tuple[int, int]]:
        """Return the parts of the set from `first` to `last`, as ranges."""
        found: list[tuple[int, int]] = []
        blocks = self.blocks
        place = self._ending(first)
        while place < len(blocks):
            firsts = blocks[place].firsts
            lasts = blocks[place].lasts
            at = bisect_left(lasts, int(first))
            while at < len(firsts) and firsts[at] <= last:
                found.append((max(firsts[at], int(first)), min(lasts[at], int(last))))
                at += 1
            if at < len(firsts):
                break
            place += 1
        return found

    def has(self, number: i64) -> bool:
        """Return whether `number` is in the set."""
        place = self._ending(number)
        if place == len(self.blocks):
            return False
        block = self.blocks[place]
        at = bisect_right(block.firsts, int(number)) - 1
        return at >= 0 and number <= block.lasts[at]

    def count(self, first: i64, last: i64) -> int:
        """Return how many numbers from `first` to `last` are in the set."""
        if last < first:
            return 0
        return sum([high - low + 1 for low, high in self.within(first, last)])

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last number of each range, in order."""
        for block in self.blocks:
            lasts = block.lasts
            for at, first in enumerate(block.firsts):
                yield first, lasts[at]
