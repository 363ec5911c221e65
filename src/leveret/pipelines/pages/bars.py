"""Stacked bars over time: the counts of a job, and their representation in a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from leveret.pipelines.pages.origin import milliseconds

#: The number of keys in a stack, besides all other keys together.  The style of the pages has a
#: colour for each of them and for the others.
BANDS_MAX: Final = 7

#: The maximum number of bars in a plot.
BARS_MAX: Final = 120


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a bar: the count of the key with this rank, or of all others (`BANDS_MAX`)."""

    start: datetime
    rank: int
    count: int


def bar_width(first: int | None, last: int | None, window_seconds: int) -> int:
    """Return the width of bars in seconds: as few windows as `BARS_MAX` allows.

    `first` and `last` are the starts of the first and the last window, in microseconds.
    """
    if first is None or last is None:
        return window_seconds
    windows = (last - first) // (window_seconds * 1_000_000) + 1
    return window_seconds * -(-windows // BARS_MAX)


def bars_span(bars: Sequence[Bar], bar_seconds: int) -> tuple[datetime, datetime] | None:
    """Return the start of the first bar and the end of the last, or None without bars."""
    if not bars:
        return None
    return bars[0].start, bars[-1].start + timedelta(seconds=bar_seconds)


def stacks(bars: Sequence[Bar], names: Sequence[str], bar_seconds: int) -> dict[str, object]:
    """Return the data of a plot: names of series, start times, and the counts of each series."""
    ranks = sorted({bar.rank for bar in bars})
    starts = sorted({bar.start for bar in bars})
    place = {start: at for at, start in enumerate(starts)}
    counts = {rank: [0] * len(starts) for rank in ranks}
    for bar in bars:
        counts[bar.rank][place[bar.start]] += bar.count
    return {
        "step": bar_seconds,
        "names": ["all others" if rank == BANDS_MAX else names[rank] for rank in ranks],
        "seconds": [(milliseconds(start) or 0) / 1000 for start in starts],
        "counts": [counts[rank] for rank in ranks],
    }
