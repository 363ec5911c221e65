"""Ranges against a plain set."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.store.records.ranges import BLOCK_RANGES_MAX, RangeSet

Step = tuple[str, int, int]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 60), st.integers(-2, 8)),
        st.tuples(st.just("remove"), st.integers(0, 70), st.integers(-2, 30)),
    ),
    max_size=30,
)

#: More numbers than a few blocks take, where every other one is a range.
MANY = 8 * BLOCK_RANGES_MAX


@given(STEPS, st.integers(0, 70), st.integers(0, 70))
def test_ranges_hold_what_a_set_holds(steps: list[Step], first: int, last: int) -> None:
    same_as_a_set(RangeSet(), set(), steps, first, last, 80)


@pytest.mark.parametrize("seed", range(20))
def test_many_ranges_hold_what_a_set_holds(seed: int) -> None:
    draw = random.Random(seed)
    ranges = RangeSet()
    # Each goes to the front, or anywhere, of those that are there.
    numbers = list(range(MANY, 0, -2))
    if seed % 2:
        draw.shuffle(numbers)
    for number in numbers:
        ranges.add(number, number)
    lengths = (0, 1, 5, BLOCK_RANGES_MAX, 3 * BLOCK_RANGES_MAX)
    steps = [
        (draw.choice(("add", "remove")), draw.randrange(MANY), draw.choice(lengths))
        for _ in range(40)
    ]
    same_as_a_set(ranges, set(numbers), steps, draw.randrange(MANY), draw.randrange(MANY), MANY)


def test_a_block_has_so_many_ranges() -> None:
    ranges = RangeSet()
    for number in range(MANY, 0, -2):
        ranges.add(number, number)
        assert len(ranges.blocks[0].firsts) <= BLOCK_RANGES_MAX
    for number in range(MANY + 2, 2 * MANY, 2):
        ranges.add(number, number)
        assert len(ranges.blocks[-1].firsts) <= BLOCK_RANGES_MAX
    ranges.add(2, 2 * MANY)
    assert len(ranges.blocks) == 1
    for number in range(3, 2 * MANY, 2):
        ranges.remove(number, number)
    assert max(len(block.firsts) for block in ranges.blocks) <= BLOCK_RANGES_MAX
    ranges.remove(0, 2 * MANY)
    assert len(ranges) == 0


def same_as_a_set(
    ranges: RangeSet, expected: set[int], steps: list[Step], first: int, last: int, end: int
) -> None:
    """Add and remove numbers below `end` or a little above it; compare with a plain set."""
    for verb, start, length in steps:
        if verb == "add":
            ranges.add(start, start + length)
            expected |= set(range(start, start + length + 1))
        else:
            ranges.remove(start, start + length)
            expected -= set(range(start, start + length + 1))
    found = list(ranges.ranges())
    assert {n for low, high in found for n in range(low, high + 1)} == expected
    assert len(ranges) == len(found)
    assert all(low <= high for low, high in found)
    assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(found))
    assert [ranges.has(n) for n in range(end)] == [n in expected for n in range(end)]
    parts = ranges.within(first, last)
    assert {n for low, high in parts for n in range(low, high + 1)} == {
        n for n in expected if first <= n <= last
    }
    assert ranges.count(first, last) == len(expected & set(range(first, last + 1)))
