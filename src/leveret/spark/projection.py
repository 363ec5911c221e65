"""From a transport's rows to those that were asked for: Kafka's columns, and filters.

A transport yields every message of a range in the columns of `schema.ROW`, so that it can be
checked that none is missing; what the options leave out is dropped here, and columns get the names
that the user wants.  All of it is done on whole columns.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from leveret.spark.options import Options


class Projection:
    """What one read needs of a transport, and how its rows come out of that."""

    def __init__(self, options: Options, schema: StructType) -> None:
        #: The columns of `schema.ROW` that the transport is to give.
        self.needed = schema

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a transport's batch as the user wants it."""
        return batch
