"""Ranges against a plain set."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from leveret.store.ranges import RangeSet

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 60), st.integers(-2, 8)),
        st.tuples(st.just("remove_below"), st.integers(0, 70), st.just(0)),
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
            ranges.remove_below(start)
            expected = {number for number in expected if number >= start}
    found = list(ranges.ranges())
    assert {n for low, high in found for n in range(low, high + 1)} == expected
    assert len(ranges) == len(found)
    assert all(low <= high for low, high in found)
    assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(found))
    assert [ranges.has(n) for n in range(80)] == [n in expected for n in range(80)]
    assert ranges.count(first, last) == len(expected & set(range(first, last + 1)))
