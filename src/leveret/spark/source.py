"""The data source as Spark sees it: options and a schema to readers and writers.

Spark makes one in a process of its own for each `load()`, pickles it, and asks it for a reader; all
is decided by the options, so that it needs no state.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from leveret.spark.columns.schema import check_schema, default_schema
from leveret.spark.options.read import Options, parse_options
from leveret.spark.queue.batch import QueueBatchReader
from leveret.spark.queue.stream import QueueStreamReader
from leveret.spark.stream.batch import BatchReader, PrunedBatchReader
from leveret.spark.stream.finder import StreamFinder, find_streams
from leveret.spark.stream.stream import StreamReader
from leveret.spark.transports import TransportOpener, open_transport
from leveret.spark.write.options import parse_write_options
from leveret.spark.write.writer import BatchWriter, StreamWriter

#: PySpark's worker that pushes filters.
_PUSHING_FILE: Final = "data_source_pushdown_filters.py"


class LeveretDataSource(DataSource):
    """Streams or a queue of an AMQP broker as a table, and a table as messages to it."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "leveret"

    def schema(self) -> StructType:
        """Return the columns of a read whose user named none.  Raises: OptionError."""
        options = self._parsed()
        return default_schema(options.columns, options.include_headers)

    def reader(self, schema: StructType) -> BatchReader | QueueBatchReader:
        """Return the reader of a batch.  Raises: OptionError; SchemaError."""
        options = self._parsed()
        check_schema(schema, options.columns)
        if options.queue is not None:
            return QueueBatchReader(options, schema)
        kind = PrunedBatchReader if _is_told_filters(sys._getframe(1)) else BatchReader  # noqa: SLF001
        return kind(options, schema, self.opener(), self.finder())

    def streamReader(  # noqa: N802  Spark's name
        self, schema: StructType
    ) -> StreamReader | QueueStreamReader:
        """Return the reader of a stream.  Raises: OptionError; SchemaError."""
        options = self._parsed()
        check_schema(schema, options.columns)
        if options.queue is not None:
            return QueueStreamReader(options, schema)
        return StreamReader(options, schema, self.opener(), self.finder())

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch save.  Raises: OptionError; SchemaError."""
        return BatchWriter(parse_write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return the writer of a streaming query.  Raises: OptionError; SchemaError."""
        return StreamWriter(parse_write_options(self.options), schema, overwrite)

    def opener(self) -> TransportOpener:
        """Return how its readers reach a stream."""
        return open_transport

    def finder(self) -> StreamFinder:
        """Return how its readers learn which streams there are."""
        return find_streams

    def _parsed(self) -> Options:
        return parse_options(self.options)


def _is_told_filters(caller: FrameType) -> bool:
    """Tell whether a reader is made by the part of Spark that goes on to push filters to it.

    Only there may a reader have `pushFilters`: elsewhere Spark 4.3.0 refuses one that has.
    """
    return caller.f_code.co_filename.endswith(_PUSHING_FILE)
