"""Planning of offset ranges as Spark's partitions.

Invariants: the plan is a pure function of ranges and options, so a replayed batch gets the same
partitions.  The partitions of a stream are contiguous and do not overlap.  Inner edges are
multiples of one step, so two plans of overlapping ranges cut at the same offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """The messages of a stream from `start` up to, but not including, `end`.

    `stream_id` identifies the stream among streams of the same name, if known.  `run` identifies a
    run of the query.
    """

    stream: str
    start: int
    end: int
    stream_id: str | None = None
    run: str | None = field(default=None, compare=False)

    @property
    def length(self) -> int:
        """The number of offsets in the range."""
        return max(0, self.end - self.start)


def plan(
    ranges: Sequence[OffsetRange], max_records: int, min_partitions: int | None = None
) -> list[OffsetRange]:
    """Cut ranges into partitions; empty ranges have none.

    Each partition has at most `max_records` messages.  There are at least `min_partitions`
    partitions in total if there are that many messages.
    """
    step = max_records
    if min_partitions is not None:
        total = sum(one.length for one in ranges)
        step = max(1, min(step, total // min_partitions))
    return [part for one in ranges for part in _cut(one, step)]


def _cut(whole: OffsetRange, step: int) -> list[OffsetRange]:
    """Cut a range into parts that end at multiples of a step."""
    start, end = whole.start, whole.end
    edges = [start, *range(start - start % step + step, end, step), end]
    return [replace(whole, start=a, end=b) for a, b in pairwise(edges) if a < b]
