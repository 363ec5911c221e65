"""Spark's order of calls to a Python data source, replayed without a JVM.

The order is that of PySpark 4.3.0 (read in its source, and logged from an instrumented one), and on
request that of 4.0 and 4.1, which have no admission control.  The
source, the reader that reads, and every partition are pickled; offsets are passed as JSON.  One
reader plans for as long as the query runs.  `commit` is called with the next batch, so never for
the last one, and `stop` is never called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, InputPartition
from pyspark.sql.types import StructType

from leveret.spark.connection.retries import Pause
from leveret.spark.options.read import parse_options
from leveret.spark.queue.stream import QueueStreamReader
from leveret.spark.stream.batch import PrunedBatchReader
from leveret.spark.stream.finder import StreamAccess
from leveret.spark.stream.following import FollowingReader
from leveret.spark.stream.stream import SparkStreamReader
from leveret.spark.versions import Filter, ReadAllAvailable, arrow_schema
from support.spark.memory_stream import MemorySource, MemoryTransport, find_in_memory

Offset = dict[str, Any]


def pickled(value: Any) -> Any:
    """Return a value as another process receives it."""
    return cloudpickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def as_json(offset: Offset) -> Offset:
    """Return an offset as the engine stores it."""
    stored = json.loads(json.dumps(offset))
    assert isinstance(stored, dict)
    return stored


def make_source(options: Mapping[str, str], source: type[DataSource] = MemorySource) -> DataSource:
    """Return the source as `load()` makes it."""
    made: DataSource = pickled(source(CaseInsensitiveDict(options)))
    return made


def read_all(reader: Any, partitions: list[InputPartition], schema: StructType) -> list[Any]:
    """Return the rows of partitions, each read by its own reader, and check their schema."""
    expected = arrow_schema(schema)
    rows: list[Any] = []
    for partition in partitions:
        for batch in pickled(reader).read(pickled(partition)):
            assert isinstance(batch, pa.RecordBatch)
            assert expected.equals(batch.schema)
            rows += batch.to_pylist()
    return rows


def batch_rows(
    options: Mapping[str, str],
    schema: StructType | None = None,
    filters: list[Filter] | None = None,
    source: type[DataSource] = MemorySource,
) -> list[Any]:
    """Return the rows of a batch read, with pushdown of `filters` if given."""
    made = make_source(options, source)
    chosen = schema or made.schema()
    assert isinstance(chosen, StructType)
    reader = made.reader(schema=chosen)
    if filters is not None:
        reader = PrunedBatchReader(
            parse_options(made.options), chosen, StreamAccess(MemoryTransport, find_in_memory)
        )
        assert reader.pushFilters(filters) == filters
    # Spark reads one partition of its own kind if a source plans none.
    partitions = [*reader.partitions()] or [InputPartition(None)]
    return read_all(reader, partitions, chosen)


@dataclass
class Checkpoint:
    """The state that survives the end of a query."""

    offsets: list[Offset] = field(default_factory=list)
    commits: int = 0


class StreamingRun:
    """One run of a streaming query on a checkpoint."""

    def __init__(
        self,
        options: Mapping[str, str],
        checkpoint: Checkpoint,
        *,
        available_now: bool = False,
        pause: Pause | None = None,
        source: type[DataSource] = MemorySource,
        admission: bool = True,
    ) -> None:
        made = make_source(options, source)
        schema = made.schema()
        assert isinstance(schema, StructType)
        self.schema = schema
        self.checkpoint = checkpoint
        self.planner: Any = made.streamReader(schema=schema)
        assert isinstance(self.planner, SparkStreamReader | QueueStreamReader | FollowingReader)
        if pause is not None:
            self.planner = SparkStreamReader(
                parse_options(CaseInsensitiveDict(options)),
                schema,
                StreamAccess(MemoryTransport, find_in_memory, pause),
            )
        self.reader = made.streamReader(schema=schema)
        self.admission = admission
        # The installed Spark has one of the two orders; ours are tested in both.
        if isinstance(self.planner, FollowingReader):
            self.planner = self.planner.reader
        if not admission:
            self.planner = FollowingReader(self.planner)
            if checkpoint.offsets:
                assert [
                    *self.planner.partitions(checkpoint.offsets[-1], checkpoint.offsets[-1])
                ] == []
            return
        self.initial = as_json(self.planner.initialOffset())
        self.limit = self.planner.getDefaultReadLimit()
        if available_now:
            self.planner.prepareForTriggerAvailableNow()

    def batch(self, *, crash: bool = False, unlimited: bool = False) -> list[Any] | None:
        """Run one batch and return its rows; None if there is nothing new.

        With `crash` the rows are lost before the batch is committed.
        """
        if not self.plan(unlimited=unlimited):
            return None
        rows = self.run_planned()
        if not crash:
            self.checkpoint.commits += 1
        return rows

    def run_planned(self) -> list[Any]:
        """Return the rows of the batch planned last."""
        kept = self.checkpoint
        if not self.admission and len(kept.offsets) == 1:
            self.initial = as_json(self.planner.initialOffset())
        start = kept.offsets[-2] if len(kept.offsets) > 1 else self.initial
        partitions = [*self.planner.partitions(start, kept.offsets[-1])]
        return read_all(self.reader, partitions, self.schema)

    def plan(self, *, unlimited: bool = False) -> bool:
        """Write the offsets of the next batch if the last is committed; False if nothing is new."""
        kept = self.checkpoint
        if len(kept.offsets) > kept.commits:
            return True
        if self.admission:
            start = kept.offsets[-1] if kept.offsets else self.initial
            limit = ReadAllAvailable() if unlimited else self.limit
            end = as_json(self.planner.latestOffset(start, limit))
            self.planner.reportLatestOffset()
        else:
            start = kept.offsets[-1] if kept.offsets else {}
            end = as_json(self.planner.latestOffset())
        if end == start:
            return False
        kept.offsets.append(end)
        if len(kept.offsets) > 1:
            self.planner.commit(kept.offsets[-2])
        return True

    def all_batches(self) -> list[list[Any]]:
        """Run until there is nothing new."""
        found = []
        while (rows := self.batch()) is not None:
            found.append(rows)
        return found
