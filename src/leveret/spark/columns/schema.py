"""The columns of the data source, and the schema of a read.

A user's schema (`.schema("offset bigint, routing_key string")`) may name any of the columns, in any
order, and a subset of the fields of `properties`.  The option `columns` (`offset,body`) names whole
columns, and also works where no schema can be given, as in a view.  These are the only ways to read
fewer columns, because Spark does not pass the columns that a query uses to a Python source.

Invariant: every column is nullable, so that the schema is the same for every broker.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from leveret.spark.errors import SourceError
from leveret.spark.options.read import OptionError, Options

#: The properties of class basic, without `headers`, which is a separate column.
PROPERTIES: Final = StructType(
    [
        StructField("content_type", StringType()),
        StructField("content_encoding", StringType()),
        StructField("delivery_mode", IntegerType()),
        StructField("priority", IntegerType()),
        StructField("correlation_id", StringType()),
        StructField("reply_to", StringType()),
        StructField("expiration", StringType()),
        StructField("message_id", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("type", StringType()),
        StructField("user_id", StringType()),
        StructField("app_id", StringType()),
        StructField("cluster_id", StringType()),
    ]
)

ROW: Final = StructType(
    [
        StructField("stream", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("properties", PROPERTIES),
        StructField("redelivered", BooleanType()),
        StructField("delivery_count", LongType()),
        StructField("body", BinaryType()),
    ]
)


#: The columns of Spark's Kafka source, in its order; `headers` is included only on request.
KAFKA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers",
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
    ]
)

#: The property bytes of a message, as its publisher sent them.
RAW_PROPERTIES: Final = "raw_properties"

#: Columns that are read only on request.
ON_REQUEST: Final = StructType(
    [StructField("headers_typed", VariantType()), StructField(RAW_PROPERTIES, BinaryType())]
)

#: The headers of each row in Kafka's form, the source of Kafka's column `headers`.
KAFKA_HEADERS: Final = StructField("kafka_headers", KAFKA["headers"].dataType)

#: The columns of this source.
OURS: Final = StructType([*ROW.fields, *ON_REQUEST.fields])

#: The columns that a copy does not need, because `raw_properties` contains their values.
_DECODED: Final = ("properties", "delivery_count")


class SchemaError(SourceError, ValueError):
    """A schema that does not fit the columns of the source."""


def is_kafka(options: Options) -> bool:
    """Return whether a read has the columns of Spark's Kafka source."""
    if isinstance(options.columns, str):
        return options.columns == "kafka"
    # Some columns exist in both sources, with the same meaning.
    names = set(options.columns)
    return not names <= set(OURS.names) and names <= set(KAFKA.names)


def default_schema(options: Options) -> StructType:
    """Return the schema of a read for which the user gives none.  Raises: OptionError."""
    if isinstance(options.columns, tuple):
        fields = [_named(name, options) for name in options.columns]
    else:
        fields = list((KAFKA if is_kafka(options) else ROW).fields)
        left_out = _DECODED if options.copy else ()
        if not options.include_headers:
            left_out = (*left_out, "headers")
        fields = [field for field in fields if field.name not in left_out]
    if options.copy and all(field.name != RAW_PROPERTIES for field in fields):
        fields.append(OURS[RAW_PROPERTIES])
    return StructType(fields)


def _named(name: str, options: Options) -> StructField:
    """Return the column with a name from the option `columns`.  Raises: OptionError."""
    known = KAFKA if is_kafka(options) else OURS
    if name in known.names:
        return known[name]
    raise OptionError(
        f"option 'columns': there is no column {name!r}; there are: {', '.join(OURS.names)}; or, "
        f"as in Kafka's source: {', '.join(KAFKA.names)}; or one of the words leveret and kafka"
    )


def check_schema(asked: StructType, options: Options) -> None:
    """Check that every column of a schema exists with its type.  Raises: SchemaError."""
    _check_struct(asked, KAFKA if is_kafka(options) else OURS, "")


def _check_struct(asked: StructType, known: StructType, prefix: str) -> None:
    types = {field.name: field.dataType for field in known.fields}
    seen: set[str] = set()
    for field in asked.fields:
        name = prefix + field.name
        if field.name not in types:
            raise SchemaError(f"there is no column {name!r}; there are: {', '.join(types)}")
        if field.name in seen:
            raise SchemaError(f"column {name!r} is requested twice")
        if not field.nullable:
            raise SchemaError(f"column {name!r} may be null")
        seen.add(field.name)
        _check_type(field.dataType, types[field.name], name)


def _check_type(asked: DataType, known: DataType, name: str) -> None:
    if isinstance(asked, StructType) and isinstance(known, StructType):
        if not asked.fields:
            raise SchemaError(f"column {name!r} needs at least one field")
        _check_struct(asked, known, f"{name}.")
    elif asked != known:
        raise SchemaError(f"column {name!r} is {known.simpleString()}, not {asked.simpleString()}")
