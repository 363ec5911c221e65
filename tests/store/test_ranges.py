"""Ranges against a plain set."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from leveret.store.records.ranges import RangeSet

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 60), st.integers(-2, 8)),
        st.tuples(st.just("remove"), st.integers(0, 70), st.integers(-2, 30)),
    ),
    max_size=30,
)


@given(STEPS, st.integers(0, 70), st.integers(0, 70))
def test_ranges_hold_what_a_set_holds(
    steps: list[tuple[str, int, int]], first: int, last: int
) -> None:
    ranges = RangeSet()
    expected: set[int] = set()
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
    assert [ranges.has(n) for n in range(80)] == [n in expected for n in range(80)]
    parts = ranges.within(first, last)
    assert {n for low, high in parts for n in range(low, high + 1)} == {
        n for n in expected if first <= n <= last
    }
    assert ranges.count(first, last) == len(expected & set(range(first, last + 1)))
