"""Ranges of offsets as Spark's partitions.

Invariants: the plan is a pure function of ranges and options, so that a replayed batch is read as
the first time; the partitions of a stream follow each other without gap or overlap; inner edges are
multiples of one step, so that two plans of overlapping ranges cut at the same offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """The messages of a stream from `start` up to, not including, `end`.

    `stream_id` identifies the stream of that name, if it is known, and `run` the run of a query.
    """

    stream: str
    start: int
    end: int
    stream_id: str | None = None
    run: str | None = field(default=None, compare=False)

    @property
    def length(self) -> int:
        """The number of offsets in it."""
        return max(0, self.end - self.start)


def plan(
    ranges: Sequence[OffsetRange], max_records: int, min_partitions: int | None = None
) -> list[OffsetRange]:
    """Return the partitions of some ranges, none for an empty one.

    Each holds at most `max_records` messages; there are at least `min_partitions` in all as long as
    there are that many messages.
    """
    step = max_records
    if min_partitions is not None:
        total = sum(one.length for one in ranges)
        step = max(1, min(step, total // min_partitions))
    return [part for one in ranges for part in _cut(one, step)]


def _cut(whole: OffsetRange, step: int) -> list[OffsetRange]:
    """Return a range in parts that end at multiples of a step."""
    start, end = whole.start, whole.end
    edges = [start, *range(start - start % step + step, end, step), end]
    return [replace(whole, start=a, end=b) for a, b in pairwise(edges) if a < b]
