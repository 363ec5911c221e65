"""The batch read: both ends are resolved once, when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from leveret.spark.finder import StreamFinder, find_streams
from leveret.spark.offsets import EARLIEST
from leveret.spark.options import Options
from leveret.spark.planner import OffsetRange, plan
from leveret.spark.projection import Projection
from leveret.spark.ranges import read_range, report_data_loss
from leveret.spark.streams import Streams
from leveret.spark.transports import TransportOpener, open_transport


class BatchReader(DataSourceReader):
    """Plans on the driver, reads on the executors; between them it travels pickled."""

    def __init__(
        self,
        options: Options,
        schema: StructType,
        opener: TransportOpener = open_transport,
        finder: StreamFinder = find_streams,
    ) -> None:
        self._options = options.for_batch()
        self._projection = Projection(options, schema)
        self._open = opener
        self._find = finder

    def partitions(self) -> list[InputPartition]:
        """Return the partitions of what the streams hold now.

        Raises: DataLossError when a stream ends before `endingOffsets`; Interrupted; NotFound;
        OptionError for options that do not name the streams there are.
        """
        options = self._options
        streams = Streams(options, self._projection.needed, self._open, self._find)
        try:
            ranges = self._resolve(streams)
        finally:
            streams.close()
        return [*plan(ranges, options.max_records_per_partition, options.min_partitions)]

    def _resolve(self, streams: Streams) -> list[OffsetRange]:
        """Return what to read of each stream, nothing where it ends before it starts."""
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
            ranges.append(OffsetRange(name, start, max(start, end)))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's messages.  Raises: DataLossError; Interrupted; NotFound (404)."""
        # Spark plans a read without partitions as one partition of its own kind.
        if isinstance(partition, OffsetRange):
            projection = self._projection
            with self._open(self._options, partition.stream, projection.needed) as transport:
                for batch in read_range(transport, self._options, partition):
                    yield projection.apply(batch)
