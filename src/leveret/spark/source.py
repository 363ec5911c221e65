"""The data source class, from which Spark gets schemas, readers and writers.

Spark creates an object in a separate process for each `load()`, pickles it, and requests a reader.
All results depend only on the options, so the object has no other state.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from leveret.spark.columns.schema import check_schema, default_schema
from leveret.spark.entries import calling_file, entries
from leveret.spark.options.read import Options, parse_options
from leveret.spark.queue.batch import QueueBatchReader
from leveret.spark.queue.stream import QueueStreamReader
from leveret.spark.redaction import hide_uris
from leveret.spark.stream.batch import BatchReader, PrunedBatchReader
from leveret.spark.stream.finder import STREAM_ACCESS, StreamAccess
from leveret.spark.stream.following import FollowingReader
from leveret.spark.stream.stream import SparkStreamReader
from leveret.spark.versions import HAS_ADMISSION_CONTROL
from leveret.spark.worker_daemon import end_silently
from leveret.spark.write.destination import check_destination
from leveret.spark.write.options import parse_write_options
from leveret.spark.write.writer import BatchWriter, StreamWriter

#: The PySpark worker programs that push filters and that plan a write.
_PUSHING_FILE: Final = "data_source_pushdown_filters.py"
_PLANNING_FILE: Final = "write_into_data_source.py"


@entries
class LeveretDataSource(DataSource):
    """The data source `leveret`, which reads streams or a queue, and writes messages."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format.

        `spark.dataSource.register` calls this on the driver.  This is the only opportunity to hide
        URIs in a session that Leveret did not create.  Processes that search for sources call no
        other method of this class.
        """
        end_silently()
        session = SparkSession.getActiveSession()
        if session is not None:
            hide_uris(session)
        return "leveret"

    def schema(self) -> StructType:
        """Return the schema of a read for which the user gives none.  Raises: OptionError."""
        return default_schema(self._parsed())

    def reader(self, schema: StructType) -> BatchReader | QueueBatchReader:
        """Return the reader of a batch read.  Raises: OptionError; SchemaError."""
        options = self._parsed()
        check_schema(schema, options)
        if options.queue is not None:
            return QueueBatchReader(options, schema)
        # Except in the worker that pushes filters, Spark 4.3.0 refuses readers with `pushFilters`.
        is_told_filters = calling_file().endswith(_PUSHING_FILE)
        kind = PrunedBatchReader if is_told_filters else BatchReader
        return kind(options, schema, self.access())

    def streamReader(  # noqa: N802  Spark's name
        self, schema: StructType
    ) -> SparkStreamReader | QueueStreamReader | FollowingReader:
        """Return the reader of a streaming read.  Raises: OptionError; SchemaError."""
        options = self._parsed()
        check_schema(schema, options)
        if options.queue is not None:
            reader: SparkStreamReader | QueueStreamReader = QueueStreamReader(options, schema)
        else:
            reader = SparkStreamReader(options, schema, self.access())
        return reader if HAS_ADMISSION_CONTROL else FollowingReader(reader)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Check that the destination exists, and return the writer of a batch save.

        Raises: OptionError; SchemaError; WriteError; the errors of a refused login.
        """
        options = parse_write_options(self.options)
        made = BatchWriter(options, schema, overwrite)
        check_destination(options)
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return the writer of a micro-batch; when planning, check that the destination exists.

        Raises: OptionError; SchemaError; WriteError; the errors of a refused login.
        """
        options = parse_write_options(self.options)
        made = StreamWriter(options, schema, overwrite)
        # The commit creates a writer in another worker, when the batch is already staged.
        if calling_file().endswith(_PLANNING_FILE):
            check_destination(options)
        return made

    def access(self) -> StreamAccess:
        """Return the readers' access to streams, which tests replace."""
        return STREAM_ACCESS

    def _parsed(self) -> Options:
        return parse_options(self.options)
