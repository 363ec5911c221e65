"""The columns of Spark's Kafka source, made from those of this source: `columns=kafka`.

The routing key is the key, the body the value, and the stream, or the super stream of a partition,
the topic.  `timestampType` is 1, the time of the log, if the broker gives one, and -1, none, if it
does not (RabbitMQ).  Headers are bytes there: the UTF-8 of their texts here.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

#: Kafka's columns and the columns of `schema.ROW` from which each is made.
SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "key": ("routing_key",),
    "value": ("body",),
    "topic": ("stream",),
    "partition": ("partition",),
    "offset": ("offset",),
    "timestamp": ("timestamp",),
    "timestampType": ("timestamp",),
    "headers": ("headers",),
}

#: As in `org.apache.kafka.common.record.TimestampType`.
LOG_APPEND_TIME: Final = 1
NO_TIME: Final = -1


def kafka_column(batch: pa.RecordBatch, field: pa.Field, super_stream: str | None) -> pa.Array:
    """Return one of Kafka's columns from a batch that holds its source columns."""
    ours = batch.column(SOURCES[field.name][0])
    if field.name == "topic" and super_stream is not None:
        return pa.repeat(pa.scalar(super_stream, field.type), batch.num_rows)
    if field.name == "timestampType":
        kinds = pa.array([NO_TIME, LOG_APPEND_TIME], field.type)
        return kinds.take(pc.is_valid(ours).cast(pa.int8()))
    if field.name == "headers":
        return _header_list(ours, field.type)
    return ours.cast(field.type)


def _header_list(headers: pa.MapArray, kind: pa.ListType) -> pa.Array:
    """Return a map as a list of its entries."""
    entry = kind.value_type
    parts = [headers.keys.cast(entry.field(0).type), headers.items.cast(entry.field(1).type)]
    entries = pa.StructArray.from_arrays(parts, fields=[entry.field(0), entry.field(1)])
    return pa.ListArray.from_arrays(headers.offsets, entries, type=kind)
