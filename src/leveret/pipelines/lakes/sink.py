"""The Spark sink for tables: executors write files, and the driver adds them to the table.

The driver adds the files of a micro-batch in one commit, with the query's id and the batch's
number.  After a crash, Spark repeats the batch.  If the table already has it, nothing is added, and
no table lists the files of the second attempt.  The query's id, which its checkpoint stores, comes
from the tasks.

Spark creates and pickles a new writer for each batch, so a writer has no state except its options.
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

#: The local property that contains the query's id in a task.
QUERY_PROPERTY: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """The files of one task, and their query."""

    query: str
    files: tuple[TableFile, ...]


def to_options(options: LakeOptions) -> dict[str, str]:
    """Return the options as Spark's options."""
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
        """Return a writer."""
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
        """Add the files of all tasks to the table."""
        written = [message for message in messages if isinstance(message, WrittenFiles)]
        files = [file for message in written for file in message.files]
        if not files:
            return
        open_lake(self._options).add(files, self._schema, written[0].query, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do not remove the files, because the failed commit may have added them."""
