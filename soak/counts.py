"""What rows are worth: numbers that were published against numbers that are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from soak.board import Row

Numbers = NDArray[np.int64]


def of_lake(
    name: str,
    kills: int,
    published: int,
    rows: Sequence[Numbers],
    *,
    marked: bool,
    note: str,
) -> Row:
    """Count rows in order of their offsets: their offsets, numbers, and marks of redelivery.

    With `marked` a number may be there again, and later, where it is called redelivered.
    """
    offsets, numbers, redelivered = rows
    judged = numbers[redelivered == 0] if marked else numbers
    again = _again(numbers)
    return _row(
        name,
        kills,
        published,
        numbers,
        doubled=_again(judged) + _again(offsets),
        disorder=_behind(judged),
        note=f"{again:,} came twice, marked; {note}" if marked else note,
    )


def of_stream(
    name: str, kills: int, published: int, tasks: Iterable[list[int]], *, note: str
) -> Row:
    """Count what tasks wrote, each in its order."""
    written = [np.array(one, np.int64) for one in tasks]
    numbers = np.concatenate([np.zeros(0, np.int64), *written])
    disorder = sum(_behind(one) for one in written)
    return _row(
        name, kills, published, numbers, doubled=_again(numbers), disorder=disorder, note=note
    )


def _row(
    name: str,
    kills: int,
    published: int,
    numbers: Numbers,
    *,
    doubled: int,
    disorder: int,
    note: str,
) -> Row:
    distinct = np.unique(numbers)
    there = int(((distinct >= 0) & (distinct < published)).sum())
    return Row(
        name,
        kills,
        published,
        rows=len(numbers),
        distinct=len(distinct),
        lost=published - there,
        phantom=len(distinct) - there,
        doubled=doubled,
        disorder=disorder,
        note=note,
    )


def _again(numbers: Numbers) -> int:
    """Return how many are there that were there before."""
    return len(numbers) - len(np.unique(numbers))


def _behind(numbers: Numbers) -> int:
    """Return how many stand right behind a later one."""
    return int((np.diff(numbers) < 0).sum())
