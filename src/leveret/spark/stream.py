"""The streaming read: micro-batches by offsets, exactly once in processing.

One reader lives in the driver for as long as the query runs and keeps its connection; copies of it
travel pickled to the executors.  Spark writes the offsets of a batch to its checkpoint before it
plans it, and asks for the same range again after a failure.

`commit` and `stop` do nothing: reading a stream takes nothing from it, Spark does not call `commit`
for the last batch and does not call `stop` at all (measured with 4.3.0).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from leveret.spark.offsets import EARLIEST, LATEST, from_json, to_json
from leveret.spark.options import Options
from leveret.spark.planner import OffsetRange, plan
from leveret.spark.ranges import read_range, report_data_loss
from leveret.spark.retries import ask
from leveret.spark.transports import Transport, TransportOpener, open_transport


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a stream by its offsets."""

    def __init__(
        self, options: Options, schema: StructType, opener: TransportOpener = open_transport
    ) -> None:
        self._options = options.for_stream()
        self._schema = schema
        self._open = opener
        self._transport: Transport | None = None
        self._target: int | None = None  # of Trigger.AvailableNow
        self._reported: int | None = None

    def __getstate__(self) -> dict[str, object]:
        """Travel without the connection."""
        return self.__dict__ | {"_transport": None}

    # -- on the driver -----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        """Return where a new query starts.  Raises: Interrupted; NotFound (404)."""
        start = LATEST if self._options.starting_offset is None else self._options.starting_offset
        if start == EARLIEST:
            start = ask(self._options, self._driver().earliest)
        elif start == LATEST:
            start = ask(self._options, self._driver().latest)
        return to_json(self._options.stream, start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return what `maxOffsetsPerTrigger` says."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Take the stream's end of now as the query's.  Raises: Interrupted; NotFound (404)."""
        self._target = ask(self._options, self._driver().latest)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return where the next batch ends.

        Raises: DataLossError when the stream ends before `start`; Interrupted; NotFound (404);
        ValueError for the checkpoint of another stream.
        """
        position = from_json(self._options.stream, start)
        latest = ask(self._options, self._driver().latest)
        self._reported = latest
        end = latest if self._target is None else min(latest, self._target)
        if latest < position:
            return to_json(self._options.stream, self._behind(position, latest))
        return to_json(self._options.stream, max(position, self._limited(position, end, limit)))

    def _behind(self, position: int, latest: int) -> int:
        """Answer for a stream that ends before what was read of it."""
        if latest == 0:
            return position  # empty: its messages have expired, and the next has a later offset
        report_data_loss(
            self._options, f"it ends at {latest}, but was read up to {position} already"
        )
        return latest

    def _limited(self, position: int, end: int, limit: ReadLimit) -> int:
        """Return the end that a limit allows."""
        if not isinstance(limit, ReadMaxRows) or end <= position + limit.max_rows:
            return end
        if not self._options.fail_on_data_loss:
            # Messages that have gone count against no limit: a long gap is one batch.
            position = max(position, ask(self._options, self._driver().earliest))
        return min(end, position + limit.max_rows)

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802  Spark's name
        """Return the stream's end as last seen, for the query's progress."""
        if self._reported is None:
            return None
        return to_json(self._options.stream, self._reported)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the partitions of a batch: a pure function of its offsets and the options.

        Raises: DataLossError when the batch ends before it starts: the stream was made anew.
        """
        options = self._options
        first = from_json(options.stream, start)
        last = from_json(options.stream, end)
        if last < first:
            report_data_loss(options, f"a batch from {first} to {last} starts anew from 0")
            first = 0
        return [
            *plan(
                options.stream,
                first,
                last,
                options.max_records_per_partition,
                options.min_partitions,
            )
        ]

    def _driver(self) -> Transport:
        """Return the driver's transport, which lives as long as the query."""
        if self._transport is None:
            self._transport = self._open(self._options, self._schema)
        return self._transport

    # -- on the executors --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's messages.  Raises: DataLossError; Interrupted; NotFound (404)."""
        if isinstance(partition, OffsetRange):
            with self._open(self._options, self._schema) as transport:
                yield from read_range(transport, self._options, partition.start, partition.end)
