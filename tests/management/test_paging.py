"""What lists cost by what their requests ask for: columns and orders that a peer chooses."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from leveret.errors import PreconditionFailed
from leveret.limits import LIST_SORTS_MAX, PAGE_FILTER_CHARACTERS_MAX
from leveret.management import paging
from leveret.management.paging import PageHeap, RowFields, columns_of, sort_key, wanted_of

ROW = {"name": "q", "messages": 1, "arguments": {"x": {"y": 1, "z": 2}, "w": 3}}


def lines_of(call: Callable[[], object]) -> int:
    """Return how many lines of the module a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != paging.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def asked(text: str) -> RowFields:
    """Return the columns of a query."""
    found = columns_of({"columns": text})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name", {"name": "q"}),
        ("arguments.x.y", {"arguments": {"x": {"y": 1}}}),
        ("arguments.x.y,arguments.w", {"arguments": {"x": {"y": 1}, "w": 3}}),
        ("arguments.x.y,arguments.x", {"arguments": {"x": {"y": 1, "z": 2}}}),
        ("arguments.x,arguments.x.y", {"arguments": {"x": {"y": 1, "z": 2}}}),
        ("messages.x,..name..,nothing,", {"messages": 1, "name": "q"}),
        ("", {}),
    ],
)
def test_columns_choose_fields(text: str, found: object) -> None:
    assert asked(text).of(ROW) == found
    assert asked(text).of([ROW, ROW]) == [found, found]


@pytest.mark.parametrize("text", ["a," * 4000, "name.a," * 1000, "arguments." * 800])
def test_a_row_costs_the_same_for_any_number_of_columns(text: str) -> None:
    few, many = asked("arguments.x"), asked(text)
    assert lines_of(lambda: many.of(ROW)) <= 2 * lines_of(lambda: few.of(ROW))


def test_the_key_of_a_row_is_bounded() -> None:
    most = wanted_of({"sort": ",".join(["name"] * LIST_SORTS_MAX)})
    assert len(sort_key(ROW, most.sort)) == LIST_SORTS_MAX
    for text in ("name," * (LIST_SORTS_MAX + 1), "a," * 4000, "a" * PAGE_FILTER_CHARACTERS_MAX * 2):
        with pytest.raises(PreconditionFailed, match="sorted by at most 8 columns"):
            wanted_of({"sort": text})


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("wanted", "most"), [(1, 50), (7, 50), (50, 50), (51, 50), (500, 999)])
def test_what_is_kept_of_slices_is_the_beginning_of_the_sorted_whole(
    reverse: bool, wanted: int, most: int
) -> None:
    rng = random.Random(wanted)
    items = [(rng.randrange(3), f"{number}") for number in range(300)]
    kept = PageHeap(wanted, reverse, most)
    left = list(items)
    while left:
        size = rng.randrange(1, 40)
        kept.add(left[:size])
        left = left[size:]
    assert kept.count == len(items)
    found = asyncio.run(kept.ordered())
    assert found[:wanted] == sorted(items, reverse=reverse)[:wanted]
