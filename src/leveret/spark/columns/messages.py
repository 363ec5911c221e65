r"""Conversion of messages to Arrow batches, column by column.

Only the columns of the schema are built.  In text, bytes that are not UTF-8 are escaped (`\xff`),
because a Spark string cannot contain them and one such message must not stop a job.  Bodies are
bytes and stay unchanged.

The broker's own headers (`x-stream-offset`, `x-stream-timestamp`, `x-stream-name`) are separate
columns, and are omitted from the decoded headers and from the property bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from leveret.client import BasicProperties
from leveret.client.publish_frames import edit_properties, has_empty_headers, without_headers
from leveret.spark.columns.texts import MILLISECONDS_MAX, SECONDS_MAX, escaped, text_of
from leveret.spark.columns.variants import variant_of
from leveret.spark.versions import arrow_schema

STREAM_OFFSET: Final = "x-stream-offset"
STREAM_TIMESTAMP: Final = "x-stream-timestamp"
STREAM_NAME: Final = "x-stream-name"
DELIVERY_COUNT: Final = "x-delivery-count"

_BROKERS_OWN: Final = frozenset({STREAM_OFFSET, STREAM_TIMESTAMP, STREAM_NAME})
_BROKERS_OWN_BYTES: Final = [name.encode() for name in sorted(_BROKERS_OWN)]


class Delivery(Protocol):
    """The source of a row, such as a message of the client."""

    @property
    def body(self) -> bytes:
        """The message body."""

    @property
    def properties(self) -> BasicProperties:
        """The decoded properties."""

    @property
    def raw_properties(self) -> bytes:
        """The encoded properties, as received."""

    @property
    def exchange(self) -> str:
        """The exchange that the message was published to."""

    @property
    def routing_key(self) -> str:
        """The routing key that the message was published with."""

    @property
    def redelivered(self) -> bool:
        """Whether the message may have been delivered before."""


Builder = Callable[[Sequence[Delivery], pa.DataType], pa.Array]


class BatchBuilder:
    """Builds record batches of one schema from the messages of one stream.

    `partition` is the stream's number in its super stream.
    """

    def __init__(self, stream: str, schema: StructType, partition: int = 0) -> None:
        #: The schema that Spark requires of a batch, exactly.
        self.schema: pa.Schema = arrow_schema(schema)
        self._stream = stream
        self._partition = partition

    def build(self, start: int, messages: Sequence[Delivery]) -> pa.RecordBatch:
        """Return a batch of messages, whose consecutive offsets begin at `start`."""
        arrays = []
        for field in self.schema:
            if field.name == "offset":
                arrays.append(pa.array(range(start, start + len(messages)), field.type))
            elif field.name in _BUILDERS:
                arrays.append(self.column(field, messages))
            else:
                arrays.append(self.constant(field, len(messages)))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def column(self, field: pa.Field, messages: Sequence[Delivery]) -> pa.Array:
        """Return a column built from the messages.

        For columns that depend only on properties, the messages need no other attributes.
        """
        return _BUILDERS[field.name](messages, field.type)

    def constant(self, field: pa.Field, count: int) -> pa.Array:
        """Return a column with the same value in all rows: `stream` or `partition`."""
        value = self._stream if field.name == "stream" else self._partition
        return pa.repeat(pa.scalar(value, field.type), count)


def stream_offset(message: Delivery) -> int | None:
    """Return the offset in a message's `x-stream-offset` header, or None if it has none."""
    value = _headers_of(message).get(STREAM_OFFSET)
    return value if isinstance(value, int) else None


def _timestamp(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    moments = [_headers_of(m).get(STREAM_TIMESTAMP) for m in messages]
    return pa.array([_microseconds(m, 1000, MILLISECONDS_MAX) for m in moments], kind)


def _exchange(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    return pa.array([m.exchange for m in messages], kind)


def _routing_key(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    return pa.array([m.routing_key for m in messages], kind)


def _redelivered(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    return pa.array([m.redelivered for m in messages], kind)


def _delivery_count(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    counts = [_headers_of(m).get(DELIVERY_COUNT) for m in messages]
    # A publisher may have sent any value.
    return pa.array([c if type(c) is int else None for c in counts], kind)


def _headers_of(message: Delivery) -> dict[str, object]:
    """Return a message's headers, including the broker's own."""
    return message.properties.headers or {}


def _body(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    return pa.array([m.body for m in messages], kind)


def _properties(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    decoded = [m.properties for m in messages]
    fields = list(kind)
    arrays = [_property(field, decoded) for field in fields]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _property(field: pa.Field, decoded: list[BasicProperties]) -> pa.Array:
    values = [getattr(p, field.name) for p in decoded]
    if field.name == "timestamp":
        values = [_microseconds(v, 1_000_000, SECONDS_MAX) for v in values]
    elif pa.types.is_string(field.type):
        return _texts(values, field.type)
    return pa.array(values, field.type)


def _headers(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    offsets = [0]
    keys: list[str] = []
    values: list[str | None] = []
    for message in messages:
        for key, value in _headers_of(message).items():
            if key not in _BROKERS_OWN:
                keys.append(key)
                values.append(value if isinstance(value, str) else text_of(value))
        offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        _texts(keys, kind.key_type),
        _texts(values, kind.item_type),
        kind,
    )


def _kafka_headers(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    entries = [
        [(escaped(k), _bytes_of(v)) for k, v in _headers_of(m).items() if k not in _BROKERS_OWN]
        for m in messages
    ]
    offsets = [0, *itertools.accumulate(map(len, entries))]
    pairs = [pair for row in entries for pair in row]
    key, value = kind.value_type
    arrays = [
        pa.array([k for k, _ in pairs], key.type),
        pa.array([v for _, v in pairs], value.type),
    ]
    structs = pa.StructArray.from_arrays(arrays, fields=[key, value])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs, kind)


def _bytes_of(value: object) -> bytes | None:
    """Return the bytes of strings and bytes as sent, and any other value as encoded text."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    text = text_of(value)
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _headers_typed(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    variants = [
        variant_of({k: v for k, v in _headers_of(m).items() if k not in _BROKERS_OWN})
        for m in messages
    ]
    arrays = [pa.array([pair[place] for pair in variants], pa.binary()) for place in (0, 1)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _raw_properties(messages: Sequence[Delivery], kind: pa.DataType) -> pa.Array:
    return pa.array([as_published(m.raw_properties) for m in messages], kind)


def as_published(raw: bytes) -> bytes:
    """Return property bytes without the headers that a stream adds to its deliveries.

    A headers table that becomes empty is removed, because in most cases the broker has added it.
    """
    if not any(name in raw for name in _BROKERS_OWN_BYTES):
        return raw
    left = edit_properties(raw, _BROKERS_OWN_BYTES, {})
    return without_headers(left) if has_empty_headers(left) else left


_BUILDERS: Final[dict[str, Builder]] = {
    "timestamp": _timestamp,
    "exchange": _exchange,
    "routing_key": _routing_key,
    "headers": _headers,
    "kafka_headers": _kafka_headers,
    "headers_typed": _headers_typed,
    "raw_properties": _raw_properties,
    "properties": _properties,
    "redelivered": _redelivered,
    "delivery_count": _delivery_count,
    "body": _body,
}


def _microseconds(moment: object, factor: int, most: int) -> int | None:
    """Return a time in microseconds, or None if it is invalid or beyond the year 9999."""
    if not isinstance(moment, int) or not 0 <= moment <= most:
        return None
    return moment * factor


def _texts(values: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Return a column of text, with bytes that are not UTF-8 escaped."""
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([None if v is None else escaped(v) for v in values], kind)
