"""Conversion of deliveries in columns to Arrow batches, without a Python object per message.

The bytes of bodies, keys, offsets and times are used as they are.  Properties and headers are
decoded once for each distinct set, because most publishers repeat them.  The rows equal those of
`messages.BatchBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from leveret.client.message import MessageContent
from leveret.spark.columns.chunks import FROM_HEADERS, ROWS_PER_DISTINCT
from leveret.spark.columns.messages import BatchBuilder
from leveret.spark.columns.properties import find_properties
from leveret.spark.columns.schema import RAW_PROPERTIES
from leveret.spark.columns.texts import MILLISECONDS_MAX
from leveret.spark.options.read import OptionError
from leveret.spark.transport import Piece

if TYPE_CHECKING:
    from leveret.client.blocking.columns import DeliveryColumns

#: The columns that are decoded from properties.
_FROM_PROPERTIES: Final = frozenset({*FROM_HEADERS, "properties", RAW_PROPERTIES})

#: The flags of properties that consist of headers only, and of empty properties.
_HEADERS_ONLY: Final = b"\x20\x00"
_NO_PROPERTIES: Final = b"\x00\x00"


class _Properties(MessageContent):
    """A message with properties only."""

    exchange = ""
    routing_key = ""
    redelivered = False


class DeliveryBuilder:
    """Builds record batches of one schema from the deliveries of one stream."""

    def __init__(self, stream: str, schema: StructType, partition: int = 0) -> None:
        self._builder = BatchBuilder(stream, schema, partition)
        self._names: Final = set(schema.names)

    @property
    def with_properties(self) -> bool:
        """Whether the schema has columns that are decoded from properties."""
        return not self._names.isdisjoint(_FROM_PROPERTIES)

    def pieces(self, columns: DeliveryColumns, start: int, end: int) -> Iterator[Piece]:
        """Yield the messages of a range, one piece for each run of consecutive offsets.

        Raises: OptionError if the messages are not from a stream.
        """
        offsets = np.frombuffer(columns.offsets, "<i8")
        if offsets.size and offsets.min() < 0:
            raise OptionError(
                "the broker sent no x-stream-offset: the queue is not a stream; the option queue "
                "reads a queue"
            )
        batch = self.build(columns)
        # A consumer receives a stream in order.  A message that arrives again is dropped.
        if (np.diff(offsets) <= 0).any():
            seen = np.maximum.accumulate(np.concatenate([[-1], offsets[:-1]]))
            batch = batch.filter(pa.array(offsets > seen))
            offsets = offsets[offsets > seen]
        low, high = np.searchsorted(offsets, [start, end])
        edges = np.flatnonzero(np.diff(offsets[low:high]) != 1) + low + 1
        for first, last in zip([low, *edges], [*edges, high], strict=True):
            if first < last:
                run = batch.slice(first, last - first)
                yield Piece(int(offsets[first]), int(offsets[last - 1]) + 1, run)

    def build(self, columns: DeliveryColumns) -> pa.RecordBatch:
        """Return all messages in one batch."""
        schema = self._builder.schema
        arrays = {f.name: self._plain(f, columns) for f in schema if f.name not in _FROM_PROPERTIES}
        if self.with_properties:
            arrays |= self._from_properties(_binary(columns.count, columns.properties))
        return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)

    def _from_properties(self, raw: pa.Array) -> dict[str, pa.Array]:
        """Return the columns that are decoded from properties."""
        fields = {f.name: f for f in self._builder.schema if f.name in _FROM_PROPERTIES}
        encoded = raw.dictionary_encode()
        different = encoded.dictionary.to_pylist()
        arrays: dict[str, pa.Array] = {}
        if (field := fields.pop(RAW_PROPERTIES, None)) is not None:
            whole = [_Properties(one, b"") for one in different]
            arrays[field.name] = self._builder.column(field, whole).take(encoded.indices)
        if ROWS_PER_DISTINCT * len(different) > len(raw):
            # If each message has its own id or time, the properties of all are decoded together,
            # except for the headers.
            found = find_properties(raw)
            if found is not None:
                if (field := fields.pop("properties", None)) is not None:
                    arrays[field.name] = found.struct(field.type)
                encoded = found.headers().dictionary_encode()
                tables = encoded.dictionary.to_pylist()
                different = [_HEADERS_ONLY + t if t else _NO_PROPERTIES for t in tables]
        messages = [_Properties(one, b"") for one in different]
        for name, field in fields.items():
            arrays[name] = self._builder.column(field, messages).take(encoded.indices)
        return arrays

    def _plain(self, field: pa.Field, columns: DeliveryColumns) -> pa.Array:
        """Return a column that needs no properties."""
        match field.name:
            case "offset":
                return pa.array(np.frombuffer(columns.offsets, "<i8"), field.type)
            case "timestamp":
                moments = np.frombuffer(columns.timestamps, "<i8")
                unknown = (moments < 0) | (moments > MILLISECONDS_MAX)
                return pa.array(np.where(unknown, 0, moments) * 1000, field.type, mask=unknown)
            case "exchange":
                return _text(columns.count, columns.exchanges)
            case "routing_key":
                return _text(columns.count, columns.routing_keys)
            case "redelivered":
                flags = np.frombuffer(columns.redelivered, np.uint8).astype(bool)
                return pa.array(flags, field.type)
            case "body":
                return _binary(columns.count, columns.bodies)
            case _:
                return self._builder.constant(field, columns.count)


def _binary(count: int, texts: tuple[bytes, bytes]) -> pa.Array:
    data, ends = texts
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _text(count: int, texts: tuple[bytes, bytes]) -> pa.Array:
    """Return a column of text, with bytes that are not UTF-8 escaped."""
    found = _binary(count, texts)
    try:
        return found.cast(pa.string())  # which checks that it is UTF-8
    except pa.ArrowInvalid:
        rows = [raw.decode("utf-8", "backslashreplace") for raw in found.to_pylist()]
        return pa.array(rows, pa.string())
