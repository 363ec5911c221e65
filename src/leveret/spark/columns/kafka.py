"""The columns of Spark's Kafka source (`columns=kafka`), made from those of this source.

The key is the routing key, the value is the body, and the topic is the stream, or the super stream
of a partition.  `timestampType` is 1 (log append time) if the broker reports a time, and -1 (none)
if it does not (RabbitMQ).  Header values are bytes: strings and bytes as sent, and the UTF-8 of
this source's text for any other value.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField

from leveret.spark.columns.schema import KAFKA_HEADERS, ROW
from leveret.spark.options.read import Options

#: Kafka's columns, and the source column of each.
SOURCES: Final[dict[str, StructField]] = {
    "key": ROW["routing_key"],
    "value": ROW["body"],
    "topic": ROW["stream"],
    "partition": ROW["partition"],
    "offset": ROW["offset"],
    "timestamp": ROW["timestamp"],
    "timestampType": ROW["timestamp"],
    "headers": KAFKA_HEADERS,
}

#: As in `org.apache.kafka.common.record.TimestampType`.
LOG_APPEND_TIME: Final = 1
NO_TIME: Final = -1


def kafka_column(batch: pa.RecordBatch, field: pa.Field, options: Options) -> pa.Array:
    """Return one of Kafka's columns, made from its source column in a batch."""
    ours = batch.column(SOURCES[field.name].name)
    if field.name == "topic" and len(ours):
        topic, _ = options.place_of(ours[0].as_py())
        return pa.repeat(pa.scalar(topic, field.type), len(ours))
    if field.name == "timestampType":
        kinds = pa.array([NO_TIME, LOG_APPEND_TIME], field.type)
        return kinds.take(pc.is_valid(ours).cast(pa.int8()))
    return ours.cast(field.type)
