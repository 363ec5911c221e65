"""Spark's side of a table: executors write files, and the driver's commit lists them.

The commit of a micro-batch is one commit of the table, with the query's id and the batch's number
in it.  After a crash Spark repeats the batch, and a table that has it adds nothing: the files of
the second attempt are in no table, like those of a failed batch.  The id comes from the tasks,
because it belongs to the query's checkpoint.

Spark creates the writer anew for each batch and pickles it, so it holds nothing but options.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.types import StructType

from leveret.pipelines.lakes import LakeOptions, open_lake
from leveret.pipelines.lakes.base import TableFile
from leveret.pipelines.lakes.files import PartitionedFiles
from leveret.spark.versions import DataSourceStreamArrowWriter, arrow_schema

FORMAT: Final = "leveret_lake"

#: The property by which Spark tells a task the query's id.
QUERY_PROPERTY: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """The files of one task, and their query."""

    query: str
    files: tuple[TableFile, ...]


def to_options(options: LakeOptions) -> dict[str, str]:
    """Return the options in Spark's form."""
    return {
        "format": options.format,
        "path": options.path,
        "partitionBy": json.dumps(options.partition_by),
        "compression": options.compression,
        "table": options.table,
        "catalog": options.catalog,
    }


class LakeSink(DataSource):
    """The sink `leveret_lake`; `archive` registers and uses it."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def streamWriter(  # noqa: N802  Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Return the writer of a batch."""
        raw = self.options
        options = LakeOptions(
            format=raw["format"],
            path=raw["path"],
            partition_by=tuple(json.loads(raw["partitionBy"])),
            compression=raw["compression"],
            table=raw["table"],
            catalog=raw["catalog"],
        )
        return LakeWriter(options, arrow_schema(schema))


class LakeWriter(DataSourceStreamArrowWriter):
    """Writes one batch."""

    def __init__(self, options: LakeOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write a task's rows to files."""
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_PROPERTY) if context is not None else None
        lake = open_lake(self._options)
        files = PartitionedFiles(
            self._options.path,
            self._options.partition_by,
            self._options.compression,
            keep=lake.keeps_partition_columns,
            folder=lake.folder,
        )
        return WrittenFiles(query or "", tuple(files.write(iterator)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """List the files of all tasks in the table."""
        written = [message for message in messages if isinstance(message, WrittenFiles)]
        files = [file for message in written for file in message.files]
        if not files:
            return
        open_lake(self._options).add(files, self._schema, written[0].query, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave the files in place, because the failed commit may have listed them."""
