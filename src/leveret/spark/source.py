"""The data source as Spark sees it: options and a schema become readers and writers.

Spark makes one in a separate process for each `load()`, pickles it, and asks it for a reader;
everything depends on the options, so it needs no state.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from leveret.spark.columns.schema import check_schema, default_schema
from leveret.spark.options.read import Options, parse_options
from leveret.spark.queue.batch import QueueBatchReader
from leveret.spark.queue.stream import QueueStreamReader
from leveret.spark.redaction import hide_uris
from leveret.spark.stream.access import STREAM_ACCESS, StreamAccess
from leveret.spark.stream.batch import BatchReader, PrunedBatchReader
from leveret.spark.stream.stream import StreamReader
from leveret.spark.write.options import parse_write_options
from leveret.spark.write.writer import BatchWriter, StreamWriter

#: The PySpark worker that pushes filters.
_PUSHING_FILE: Final = "data_source_pushdown_filters.py"


class LeveretDataSource(DataSource):
    """Streams or a queue of an AMQP broker as a table, and a table as messages to it."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format.

        `spark.dataSource.register` asks for it on the driver, which is the only chance to let a
        session that is not ours hide URIs.
        """
        session = SparkSession.getActiveSession()
        if session is not None:
            hide_uris(session)
        return "leveret"

    def schema(self) -> StructType:
        """Return the columns of a read without a schema of the user.  Raises: OptionError."""
        options = self._parsed()
        return default_schema(options.columns, options.include_headers)

    def reader(self, schema: StructType) -> BatchReader | QueueBatchReader:
        """Return the reader of a batch.  Raises: OptionError; SchemaError."""
        options = self._parsed()
        check_schema(schema, options.columns)
        if options.queue is not None:
            return QueueBatchReader(options, schema)
        kind = PrunedBatchReader if _is_told_filters(sys._getframe(1)) else BatchReader  # noqa: SLF001
        return kind(options, schema, self.access())

    def streamReader(  # noqa: N802  Spark's name
        self, schema: StructType
    ) -> StreamReader | QueueStreamReader:
        """Return the reader of a stream.  Raises: OptionError; SchemaError."""
        options = self._parsed()
        check_schema(schema, options.columns)
        if options.queue is not None:
            return QueueStreamReader(options, schema)
        return StreamReader(options, schema, self.access())

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch save.  Raises: OptionError; SchemaError."""
        return BatchWriter(parse_write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return the writer of a streaming query.  Raises: OptionError; SchemaError."""
        return StreamWriter(parse_write_options(self.options), schema, overwrite)

    def access(self) -> StreamAccess:
        """Return how its readers reach the streams."""
        return STREAM_ACCESS

    def _parsed(self) -> Options:
        return parse_options(self.options)


def _is_told_filters(caller: FrameType) -> bool:
    """Return whether the calling part of Spark pushes filters to the reader.

    Only there may a reader have `pushFilters`: elsewhere Spark 4.3.0 refuses such a reader.
    """
    return caller.f_code.co_filename.endswith(_PUSHING_FILE)
