"""Conversion of a transport's rows to the requested ones, with filters and Kafka's columns.

A transport yields every message of a range in columns of this source, so that missing messages are
detected.  A projection then drops rows that the filters exclude, and converts columns to those that
the user requested.  It operates on whole columns.

A filtered row is not a lost row, because its offset was counted before it was dropped.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType

from leveret.routing.topic import TopicTrie
from leveret.spark.columns.kafka import SOURCES, kafka_column
from leveret.spark.columns.schema import ROW, is_kafka
from leveret.spark.options.read import Options
from leveret.spark.versions import arrow_schema

#: The header in which publishers set the value for stream filtering.
FILTER_VALUE: Final = "x-stream-filter-value"


class Projection:
    """The columns that a read needs from its transport, and the conversion of their rows."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._is_kafka = is_kafka(options)
        self._pattern = options.routing_key_filter
        self._values = options.filter_values
        self._match_unfiltered = options.filter_match_unfiltered
        self._schema: pa.Schema = arrow_schema(schema)
        #: The columns that the transport must return, with the names of this source.
        self.needed = self._needed(schema)
        self._is_identity = self.needed == schema and not self._is_filter

    @property
    def _is_filter(self) -> bool:
        return self._pattern is not None or self._values is not None

    def _needed(self, schema: StructType) -> StructType:
        fields: dict[str, StructField] = {}
        for field in schema.fields:
            source = SOURCES[field.name] if self._is_kafka else field
            fields[source.name] = source
        if self._pattern is not None:
            fields.setdefault("routing_key", ROW["routing_key"])
        if self._values is not None:
            fields.setdefault("headers", ROW["headers"])
        return StructType([*fields.values()])

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a transport's batch to the user's columns; the result may have no rows."""
        if self._is_identity:
            return batch
        if self._is_filter:
            batch = batch.filter(self._mask(batch))
        if self._is_kafka:
            columns = [kafka_column(batch, field, self._options) for field in self._schema]
        else:
            columns = [batch.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Return a Boolean array of the rows that pass the filters."""
        if self._pattern is None:
            return self._value_mask(batch)
        mask = matching_keys(batch.column("routing_key"), self._pattern)
        return mask if self._values is None else pc.and_(mask, self._value_mask(batch))

    def _value_mask(self, batch: pa.RecordBatch) -> pa.Array:
        found = pc.map_lookup(batch.column("headers"), FILTER_VALUE, "first")
        mask = pc.is_in(found, value_set=pa.array(self._values, found.type))
        return pc.or_(mask, pc.is_null(found)) if self._match_unfiltered else mask


def matching_keys(keys: pa.Array, pattern: str) -> pa.Array:
    """Return a Boolean array of the routing keys that match a topic pattern.

    Each distinct key is matched once.
    """
    trie = TopicTrie()
    trie.insert(pattern, True)
    encoded = keys.dictionary_encode()
    matched = [bool(trie.match(key)) for key in encoded.dictionary.to_pylist()]
    return pa.array(matched, pa.bool_()).take(encoded.indices)
