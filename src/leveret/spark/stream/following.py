"""The streaming read for versions of Spark without admission control (4.0 and 4.1).

These versions call `latestOffset` without the start of the batch or a limit, and run
`Trigger.AvailableNow` as one batch.  So this reader tracks the position, and applies the limits of
the options to each batch.

The position is the end of the last batch.  `latestOffset` has returned it, or, after a restart,
Spark has passed it to `partitions`, which it calls first with the end of the last logged batch.  A
new query has neither, and begins at its initial offset.  As with admission control, a batch is in
the commit log when Spark asks for the next one.

Spark treats the latest offset only as the end of the batch.  So the ends of the streams are stored
in the offset, for the lag in the query's progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from leveret.spark.entries import entries
from leveret.spark.offsets import with_latest
from leveret.spark.stream.stream import SparkStreamReader

Offset = dict[str, Any]


@entries
class FollowingReader(DataSourceStreamReader):
    """Passes the start and the limit of each batch to a reader."""

    def __init__(self, reader: Any) -> None:
        # A `SparkStreamReader`, or a `QueueStreamReader`, which this module must not import.
        self.reader = reader
        self._initial: Offset | None = None
        self._position: Offset | None = None
        # `Trigger.AvailableNow` runs only one batch.
        reader.take_present()

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Return the offset at which a new query starts, which stays the same during a run.

        Spark calls this after the first `latestOffset`.
        """
        if self._initial is None:
            self._initial = self.reader.initialOffset()
        return self._initial

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802  Spark's name
        """Return the end of the next batch.  Raises: as the reader's."""
        start = self._position
        if start is None:
            start = self.initialOffset()
        reader = self.reader
        end: Offset = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end != start and isinstance(reader, SparkStreamReader):
            end = with_latest(end, reader.reportLatestOffset() or {})
        self._position = end
        return end

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return the partitions of a batch, and continue after its end."""
        self._position = {**end}
        planned: list[InputPartition] = self.reader.partitions({**start}, {**end})
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's messages."""
        yield from self.reader.read(partition)

    def stop(self) -> None:
        """Close the connections."""
        self.reader.stop()
