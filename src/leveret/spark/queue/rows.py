"""Encoding of a queue's messages for the spool, and decoding of spooled messages to rows.

The driver writes the bytes of properties and names as received, and tasks decode them, so that the
single driver does little work for each message.  Spooled messages do not depend on the columns of a
query, so a query with another schema can read them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from leveret.client import Message
from leveret.spark.columns.chunks import FROM_HEADERS, ChunkBatchBuilder
from leveret.spark.columns.schema import RAW_PROPERTIES
from leveret.spark.versions import arrow_schema

#: The columns that are decoded from property bytes.
DECODED: Final = (*FROM_HEADERS, "properties")

SCHEMA: Final = pa.schema(
    [
        pa.field("exchange", pa.binary(), nullable=False),
        pa.field("routing_key", pa.binary(), nullable=False),
        pa.field("redelivered", pa.bool_(), nullable=False),
        pa.field("properties", pa.binary(), nullable=False),
        pa.field("body", pa.large_binary(), nullable=False),
    ]
)


def to_spool(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return messages as a batch of the spool's schema."""
    columns = [
        [m.exchange.encode("utf-8", "surrogateescape") for m in messages],
        [m.routing_key.encode("utf-8", "surrogateescape") for m in messages],
        [m.redelivered for m in messages],
        [m.raw_properties for m in messages],
        [m.body for m in messages],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class SpoolBatchBuilder:
    """Makes record batches of a query's schema from spooled messages, column by column.

    Repeated values (names, properties) are decoded once.
    """

    def __init__(self, queue: str, schema: StructType) -> None:
        self.schema: pa.Schema = arrow_schema(schema)
        self._queue = queue
        self._decoder = ChunkBatchBuilder(queue, schema)
        self._decodes = any(field.name in DECODED for field in schema.fields)

    def build(self, start: int, spooled: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of spooled messages, whose numbers begin at `start`."""
        columns: dict[str, pa.Array] = {}
        if self._decodes:
            columns = self._decoder.decoded(spooled.column("properties"))
        for field in self.schema:
            if field.name not in columns:
                columns[field.name] = self._column(field, start, spooled)
        arrays = [columns[field.name] for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, field: pa.Field, start: int, spooled: pa.RecordBatch) -> pa.Array:
        count = spooled.num_rows
        if field.name == "stream":
            return pa.repeat(pa.scalar(self._queue, field.type), count)
        if field.name == "partition":
            return pa.repeat(pa.scalar(0, field.type), count)
        if field.name == "offset":
            return pa.array(np.arange(start, start + count), field.type)
        if field.name == "timestamp":
            return pa.nulls(count, field.type)
        if field.name in ("exchange", "routing_key"):
            encoded = spooled.column(field.name).dictionary_encode()
            names = encoded.dictionary.to_pylist()
            texts = [name.decode("utf-8", "backslashreplace") for name in names]
            return pa.array(texts, field.type).take(encoded.indices)
        name = "properties" if field.name == RAW_PROPERTIES else field.name
        return spooled.column(name).cast(field.type)
