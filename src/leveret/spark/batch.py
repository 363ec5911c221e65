"""The batch read: both ends are resolved once, when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from leveret.spark.offsets import EARLIEST, LATEST
from leveret.spark.options import Options
from leveret.spark.planner import OffsetRange, plan
from leveret.spark.ranges import read_range, report_data_loss
from leveret.spark.retries import ask
from leveret.spark.transports import TransportOpener, open_transport


class BatchReader(DataSourceReader):
    """Plans on the driver, reads on the executors; between them it travels pickled."""

    def __init__(
        self, options: Options, schema: StructType, opener: TransportOpener = open_transport
    ) -> None:
        self._options = options.for_batch()
        self._schema = schema
        self._open = opener

    def partitions(self) -> list[InputPartition]:
        """Return the partitions of what the stream holds now.

        Raises: DataLossError when the stream ends before `endingOffsets`; Interrupted; NotFound.
        """
        options = self._options
        start, end = self._resolve()
        return [
            *plan(
                options.stream,
                start,
                end,
                options.max_records_per_partition,
                options.min_partitions,
            )
        ]

    def _resolve(self) -> tuple[int, int]:
        """Return the range to read, empty where it ends before it starts."""
        options = self._options
        with self._open(options, self._schema) as transport:
            bounds = ask(options, transport.bounds)
        start = EARLIEST if options.starting_offset is None else options.starting_offset
        end = LATEST if options.ending_offset is None else options.ending_offset
        start = bounds.earliest if start == EARLIEST else start
        end = bounds.latest if end == LATEST else end
        if end > bounds.latest:
            report_data_loss(options, f"it ends at {bounds.latest}, before the ending offset {end}")
            end = bounds.latest
        return start, max(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's messages.  Raises: DataLossError; Interrupted; NotFound (404)."""
        # Spark plans a read without partitions as one partition of its own kind.
        if isinstance(partition, OffsetRange):
            with self._open(self._options, self._schema) as transport:
                yield from read_range(transport, self._options, partition.start, partition.end)
