"""A range of offsets to Spark's partitions.

Invariants: the plan is a pure function of start, end and options, so that a replayed batch is read
as it was the first time; the partitions follow each other without gap or overlap; inner edges are
multiples of one step, so that two plans of overlapping ranges cut at the same offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """The messages of a stream from `start` up to, not including, `end`."""

    stream: str
    start: int
    end: int


def plan(
    stream: str, start: int, end: int, max_records: int, min_partitions: int | None = None
) -> list[OffsetRange]:
    """Return the partitions of a range, none for an empty one.

    Each holds at most `max_records` messages; there are at least `min_partitions` as long as there
    are that many messages.
    """
    step = max_records
    if min_partitions is not None:
        step = max(1, min(step, (end - start) // min_partitions))
    edges = [start, *range(start - start % step + step, end, step), end]
    return [OffsetRange(stream, a, b) for a, b in pairwise(edges) if a < b]
