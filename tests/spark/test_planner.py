"""The plan of partitions: pure, whole, without overlap, cut at fixed multiples."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.spark.stream.planner import OffsetRange, plan


def plan_one(start: int, end: int, most: int, least: int | None = None) -> list[OffsetRange]:
    return plan([OffsetRange("s", start, end)], most, least)


OFFSETS = st.integers(0, 2**62)
LENGTHS = st.integers(0, 5000)


@given(OFFSETS, LENGTHS, st.integers(1, 700), st.none() | st.integers(1, 50))
def test_a_plan_is_whole_and_without_overlap(
    start: int, length: int, most: int, least: int | None
) -> None:
    end = start + length
    parts = plan_one(start, end, most, least)
    assert sum(part.end - part.start for part in parts) == length
    assert all(a.end == b.start for a, b in pairwise(parts))
    assert all(0 < part.end - part.start <= most for part in parts)
    if parts:
        assert (parts[0].start, parts[-1].end) == (start, end)


@given(OFFSETS, LENGTHS, st.integers(1, 700), st.integers(1, 50))
def test_there_are_as_many_partitions_as_asked_for(
    start: int, length: int, most: int, least: int
) -> None:
    assert len(plan_one(start, start + length, most, least)) >= min(least, length)


@given(OFFSETS, LENGTHS, LENGTHS, st.integers(10, 700))
def test_overlapping_ranges_are_cut_at_the_same_offsets(
    start: int, first: int, second: int, most: int
) -> None:
    def edges(a: int, b: int) -> set[int]:
        return {part.end for part in plan_one(a, b, most)} - {b}

    middle, end = start + first, start + first + second
    assert edges(start, end) == edges(start, middle) | edges(middle, end) | (
        {middle} if middle % most == 0 and start < middle < end else set()
    )


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 0, []),
        (5, 5, []),
        (0, 10, [(0, 10)]),
        (0, 11, [(0, 10), (10, 11)]),
        (9, 21, [(9, 10), (10, 20), (20, 21)]),
        (10, 20, [(10, 20)]),
    ],
)
def test_edges(start: int, end: int, expected: list[tuple[int, int]]) -> None:
    assert plan_one(start, end, 10) == [OffsetRange("s", a, b) for a, b in expected]


def test_streams_share_the_least_number_of_partitions() -> None:
    ranges = [OffsetRange("a", 0, 90), OffsetRange("b", 0, 10), OffsetRange("c", 5, 5)]
    parts = plan(ranges, 100_000, 10)
    assert len(parts) >= 10
    assert [p.end - p.start for p in parts if p.stream == "a"] == [10] * 9
    assert [p.stream for p in parts] == sorted(p.stream for p in parts)
    assert sum(p.length for p in parts) == 100
