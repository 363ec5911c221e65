"""The columns of the data source, and the requested ones.

A schema that a user gives (`.schema("offset bigint, routing_key string")`) may name any of the
columns, in any order, with fewer fields of `properties`.  This is the only way to read less: Spark
tells a Python source nothing about the columns that a query uses.

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
)

from leveret.spark.errors import SourceError

#: The properties of class basic, without `headers`, which is a column of its own.
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


#: The columns of Spark's Kafka source, in its order; `headers` only on request.
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

#: The available columns, by the option `columns`.
COLUMNS: Final = {"leveret": ROW, "kafka": KAFKA}


class SchemaError(SourceError, ValueError):
    """A schema with columns that the source does not have."""


def default_schema(columns: str, include_headers: bool) -> StructType:
    """Return the schema of a read without a schema of the user."""
    known = COLUMNS[columns]
    return StructType([f for f in known.fields if include_headers or f.name != "headers"])


def check_schema(asked: StructType, columns: str = "leveret") -> None:
    """Check that the source has every column of a schema.  Raises: SchemaError."""
    _check_struct(asked, COLUMNS[columns], "")


def _check_struct(asked: StructType, known: StructType, prefix: str) -> None:
    types = {field.name: field.dataType for field in known.fields}
    seen: set[str] = set()
    for field in asked.fields:
        name = prefix + field.name
        if field.name not in types:
            raise SchemaError(f"there is no column {name!r}; there are: {', '.join(types)}")
        if field.name in seen:
            raise SchemaError(f"column {name!r} is asked for twice")
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
