"""The counting of `make soak` is checked: each thing that can be wrong is counted as what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from soak.board import Row, failed, line, table

pytest.importorskip("numpy")

import numpy as np
from soak.counts import of_lake, of_stream

GOOD = Row("archive", 5, 100, 100, 100, 0, 0, 0, 0)


def lake(numbers: list[int], marks: list[int] | None = None, *, marked: bool = False) -> Row:
    rows = (range(len(numbers)), numbers, marks or [0] * len(numbers))
    arrays = tuple(np.array(one, np.int64) for one in rows)
    return of_lake("archive", 5, 4, arrays, marked=marked, note="")


def wrongs(row: Row) -> tuple[int, int, int, int]:
    return row.lost, row.phantom, row.doubled, row.disorder


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([0, 1, 2, 3], (0, 0, 0, 0)),
        ([0, 1, 3], (1, 0, 0, 0)),
        ([0, 1, 2, 3, 4], (0, 1, 0, 0)),
        ([0, 1, 1, 2, 3], (0, 0, 1, 0)),
        ([0, 2, 1, 3], (0, 0, 0, 1)),
        ([], (4, 0, 0, 0)),
    ],
)
def test_a_lake_and_a_stream_are_counted(
    numbers: list[int], expected: tuple[int, int, int, int]
) -> None:
    assert wrongs(lake(numbers)) == expected
    assert wrongs(of_stream("sink", 5, 4, [numbers], note="")) == expected
    assert lake(numbers).holds == (expected == (0, 0, 0, 0))


def test_tasks_are_in_order_each_by_itself() -> None:
    assert of_stream("sink", 5, 4, [[1, 3], [0, 2]], note="").holds
    assert wrongs(of_stream("sink", 5, 4, [[3, 1], [0, 2]], note="")) == (0, 0, 0, 1)


def test_only_what_is_marked_may_come_again() -> None:
    assert lake([0, 1, 2, 1, 2, 3], [0, 0, 0, 1, 1, 0], marked=True).holds
    assert wrongs(lake([0, 1, 2, 1, 2, 3], [0, 0, 0, 0, 1, 0], marked=True)) == (0, 0, 1, 1)
    assert wrongs(lake([0, 1, 1, 3], [0, 0, 1, 0], marked=True)) == (1, 0, 0, 0)


def test_what_holds() -> None:
    assert GOOD.holds
    for broken in (
        replace(GOOD, kills=0),
        replace(GOOD, lost=1),
        replace(GOOD, phantom=1),
        replace(GOOD, doubled=1),
        replace(GOOD, disorder=1),
        replace(GOOD, published=0, rows=0, distinct=0),
        failed("archive", "it stood still"),
    ):
        assert not broken.holds
        assert "BROKEN" in line(broken)
        assert "BROKEN: archive" in table([GOOD, broken])


def test_the_table() -> None:
    text = table([GOOD, replace(GOOD, name="sink", note="by rows")])
    assert text.splitlines()[1].endswith("holds")
    assert text.splitlines()[2].endswith("holds: by rows")
    assert text.endswith("2 places counted; nothing broken")
