"""The batch read of streams, whose start and end are resolved once, when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from leveret.spark.columns.projection import Projection
from leveret.spark.entries import entries
from leveret.spark.offsets import EARLIEST
from leveret.spark.options.read import Options
from leveret.spark.stream.finder import STREAM_ACCESS, StreamAccess
from leveret.spark.stream.planner import OffsetRange, plan
from leveret.spark.stream.pruning import Pruning, pruning_of
from leveret.spark.stream.ranges import read_range, report_data_loss
from leveret.spark.stream.streams import Streams
from leveret.spark.versions import Filter


@entries
class BatchReader(DataSourceReader):
    """Plans the read on the driver; pickled copies read the partitions on the executors."""

    def __init__(
        self,
        options: Options,
        schema: StructType,
        access: StreamAccess = STREAM_ACCESS,
    ) -> None:
        self._options = options.for_batch()
        self._projection = Projection(options, schema)
        self._access = access
        self._pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        """Return the partitions of the streams' current contents.

        Raises: DataLossError if an offset is beyond the end of its stream or a start is after its
        end; Interrupted; NotFound; OptionError if the options do not name the existing streams.
        """
        options = self._options
        streams = Streams(options, self._projection.needed, self._access)
        try:
            ranges = self._resolve(streams)
        finally:
            streams.close()
        return [*plan(ranges, options.max_records_per_partition, options.min_partitions)]

    def _resolve(self, streams: Streams) -> list[OffsetRange]:
        """Return the range to read from each stream.  Raises: DataLossError."""
        bounds = streams.bounds()
        starts = streams.starts(EARLIEST, bounds)
        ends = streams.ends(bounds)
        ranges = []
        for name, start in starts.items():
            end, latest = ends[name], bounds[name].latest
            if end > latest:
                what = f"it ends at {latest}, before the ending offset {end}"
                report_data_loss(self._options, name, what)
                end = latest
            if start > end:
                what = f"the starting offset {start} is after the ending offset {end}"
                report_data_loss(self._options, name, what)
            if not self._pruning.leaves_out(self._options, name):
                ranges.append(self._pruned(streams, name, start, end, bounds[name].stream_id))
        return ranges

    def _pruned(
        self, streams: Streams, name: str, start: int, end: int, stream_id: str | None
    ) -> OffsetRange:
        """Return the part of a range whose rows can match the query's filters."""
        bounds = self._pruning
        start = start if bounds.start is None else max(start, bounds.start)
        end = end if bounds.end is None else min(end, bounds.end)
        is_timed = bounds.from_ms is not None or bounds.until_ms is not None
        if start < end and is_timed and streams.keeps_time(name):
            if bounds.from_ms is not None:
                start = max(start, streams.offset_at(name, max(0, bounds.from_ms)))
            if bounds.until_ms is not None:
                end = min(end, streams.end_at(name, max(0, bounds.until_ms)))
        return OffsetRange(name, start, max(start, end), stream_id)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's messages.  Raises: DataLossError; Interrupted; NotFound (404)."""
        # If there are no partitions, Spark plans one of its own type.
        if isinstance(partition, OffsetRange):
            projection = self._projection
            with self._access.open(self._options, partition.stream, projection.needed) as transport:
                for batch in read_range(transport, self._options, partition):
                    yield projection.apply(batch)


class PrunedBatchReader(BatchReader):
    """A batch read to which Spark passes the query's filters.

    It is a separate class because Spark refuses every reader that has `pushFilters`, unless
    `spark.sql.python.filterPushdown.enabled` is set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Derive bounds from the filters, and return all of them for Spark to apply again."""
        self._pruning = pruning_of(filters, self._options)
        return filters
