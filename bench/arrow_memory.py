"""A Spark source that yields Arrow batches which it has in memory: what no transport can beat."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from leveret.client import BasicProperties
from leveret.limits import SPARK_BATCH_RECORDS
from leveret.spark.columns.messages import BatchBuilder
from leveret.spark.columns.schema import ROW

BODY_BYTES: Final = 100


class Share(InputPartition):
    """So many rows."""

    def __init__(self, rows: int) -> None:
        super().__init__(None)
        self.rows = rows


class ArrowMemorySource(DataSource):
    """Rows like those of a stream, without a stream."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "arrow_memory"

    def schema(self) -> StructType:
        """Return the columns of a stream."""
        return ROW

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return ArrowMemoryReader(schema, int(self.options["rows"]), int(self.options["shares"]))


class ArrowMemoryReader(DataSourceReader):
    """Gives one batch again and again."""

    def __init__(self, schema: StructType, rows: int, shares: int) -> None:
        self._schema = schema
        self._rows = rows
        self._shares = shares

    def partitions(self) -> list[InputPartition]:
        """Return equal shares."""
        return [Share(self._rows // self._shares) for _ in range(self._shares)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a share's rows."""
        if isinstance(partition, Share):
            whole = batch(self._schema.json())
            for first in range(0, partition.rows, SPARK_BATCH_RECORDS):
                yield whole.slice(0, min(SPARK_BATCH_RECORDS, partition.rows - first))


@cache
def batch(schema_json: str) -> pa.RecordBatch:
    """Return a batch of random bodies with all columns."""

    class Row:
        """What a row is made of."""

        exchange = ""
        routing_key = "stream"
        redelivered = False

        def __init__(self) -> None:
            self.body = os.urandom(BODY_BYTES)
            self.properties = BasicProperties(delivery_mode=2)
            self.raw_properties = self.properties.encode()
            self.headers: dict[str, object] = {"x-stream-timestamp": 1_795_000_000_000}

    schema = StructType.fromJson(json.loads(schema_json))
    return BatchBuilder("stream", schema).build(0, [Row() for _ in range(SPARK_BATCH_RECORDS)])
