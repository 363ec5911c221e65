"""The sources of a publishing job, as ranges of offsets that can be read piece by piece.

The broker gives a stream's offsets, and each piece is read by its offsets alone.  An archive's
offsets are those in its files: a piece has the rows in a range of offsets, sorted.

Invariant: a piece is one partition of Spark, in order of its offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from leveret.pipelines.replay.sending import Part
from leveret.pipelines.source import STREAM_COLUMN, read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A function applied to rows before they are published.
Choose = Callable[["DataFrame"], "DataFrame"]

_ENDS: Final = (
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
)


def stream_parts(
    spark: SparkSession,
    options: Mapping[str, str],
    choose: Choose,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Part]:
    """Return the parts of a stream; the broker finds the ends for given times.

    Raises: OptionError; Interrupted; NotFound (404) if there is no such stream.
    """
    from leveret.spark.columns.schema import ROW
    from leveret.spark.options.read import parse_options
    from leveret.spark.stream.batch import BatchReader
    from leveret.spark.stream.planner import OffsetRange

    asked = dict(options)
    if since is not None:
        asked["startingTimestamp"] = str(round(since.timestamp() * 1000))
        asked["startingOffsetsByTimestampStrategy"] = "latest"
    if until is not None:
        asked["endingTimestamp"] = str(round(until.timestamp() * 1000))
    planned = BatchReader(parse_options(asked), ROW).partitions()
    ends: dict[str, tuple[int, int]] = {}
    ids: dict[str, str | None] = {}
    for one in planned:
        if isinstance(one, OffsetRange):
            start, end = ends.get(one.stream, (one.start, one.end))
            ends[one.stream] = min(start, one.start), max(end, one.end)
            ids[one.stream] = one.stream_id
    plain = {name: text for name, text in options.items() if name.lower() not in _ENDS}

    def reader(stream: str) -> Callable[[int, int], DataFrame]:
        def read(start: int, end: int) -> DataFrame:
            edges = {
                "startingOffsets": json.dumps({stream: start}),
                "endingOffsets": json.dumps({stream: end}),
            }
            return choose(read_stream(spark, {**plain, **edges})).coalesce(1)

        return read

    return [
        Part(name, start, end, reader(name), ids[name])
        for name, (start, end) in sorted(ends.items())
    ]


def table_parts(rows: DataFrame, choose: Choose) -> list[Part]:
    """Return the parts of an archive, or of any table with the columns of one: one per stream."""
    from pyspark.sql import functions as f

    taken = choose(rows)
    ends = taken.groupBy(STREAM_COLUMN).agg(f.min("offset"), f.max("offset")).collect()

    def reader(stream: str) -> Callable[[int, int], DataFrame]:
        def read(start: int, end: int) -> DataFrame:
            within = (f.col("offset") >= start) & (f.col("offset") < end)
            wanted = rows.where((f.col(STREAM_COLUMN) == stream) & within)
            return choose(wanted).repartition(1).sortWithinPartitions("offset")

        return read

    found = sorted((row[0], row[1], row[2] + 1) for row in ends)
    return [Part(name, start, end, reader(name)) for name, start, end in found]
