"""The columns, and the parts of them that a user may ask for."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from leveret.spark.columns.messages import BatchBuilder
from leveret.spark.columns.schema import (
    KAFKA,
    ON_REQUEST,
    ROW,
    SchemaError,
    check_schema,
    default_schema,
)
from leveret.spark.options.read import OptionError, parse_options
from leveret.spark.versions import arrow_schema
from support.spark.memory_stream import Delivery


def columns(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


BODY = ("body", BinaryType())
OPTIONS = {"uri": "amqp://localhost", "stream": "s"}
TEXT = StringType()


def test_the_columns_are_those_of_the_documentation() -> None:
    assert [f"{f.name} {f.dataType.simpleString()}" for f in ROW.fields] == [
        "stream string",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
        "exchange string",
        "routing_key string",
        "headers map<string,string>",
        (
            "properties struct<content_type:string,content_encoding:string,delivery_mode:int,"
            "priority:int,correlation_id:string,reply_to:string,expiration:string,message_id:string,"
            "timestamp:timestamp,type:string,user_id:string,app_id:string,cluster_id:string>"
        ),
        "redelivered boolean",
        "delivery_count bigint",
        "body binary",
    ]


def test_headers_can_be_left_out() -> None:
    without = default_schema(parse_options(OPTIONS | {"includeHeaders": "false"}))
    assert set(ROW.names) - set(without.names) == {"headers"}


def schema_of(**options: str) -> StructType:
    return default_schema(parse_options(OPTIONS | options))


def test_an_option_names_columns() -> None:
    """In any order; where the names are Kafka's, the columns are."""
    assert schema_of(columns="offset, body") == StructType([ROW["offset"], ROW["body"]])
    typed = schema_of(columns='["raw_properties", "headers_typed", "headers"]')
    assert typed == StructType([*reversed(ON_REQUEST.fields), ROW["headers"]])
    assert schema_of(columns="headers,key") == StructType([KAFKA["headers"], KAFKA["key"]])
    assert schema_of(columns="leveret") == ROW
    for wrong in ("offset,nothing", "pulsar", "key,body", "kafka_headers"):
        with pytest.raises(OptionError, match="option 'columns': there is no column '"):
            schema_of(columns=wrong)
    with pytest.raises(OptionError, match="option 'columns': given twice: body"):
        schema_of(columns="body,body")
    with pytest.raises(
        OptionError, match="option 'includeHeaders': the option columns already names"
    ):
        schema_of(columns="body", includeHeaders="true")


def test_a_copy_has_the_property_bytes() -> None:
    copied = schema_of(copy="true")
    decoded = {"headers", "properties", "delivery_count"}
    assert set(ROW.names) - set(copied.names) == decoded
    assert copied.names[-1] == "raw_properties"
    assert schema_of(copy="true", columns="body").names == ["body", "raw_properties"]
    assert schema_of(copy="true", includeHeaders="true").names[-2:] == ["body", "raw_properties"]
    with pytest.raises(OptionError, match="option 'copy': Kafka's columns"):
        schema_of(copy="true", columns="kafka")


@pytest.mark.parametrize(
    "schema",
    [
        columns(BODY),
        columns(("routing_key", TEXT), ("offset", LongType())),
        columns(("properties", columns(("timestamp", TimestampType()), ("content_type", TEXT)))),
        columns(("headers", MapType(TEXT, TEXT))),
    ],
)
def test_a_part_of_the_columns_is_built_as_asked_for(schema: StructType) -> None:
    check_schema(schema, parse_options(OPTIONS))
    batch = BatchBuilder("s", schema).build(5, [Delivery(b"x")])
    assert arrow_schema(schema).equals(batch.schema)
    assert batch.num_rows == 1


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (columns(("key", TEXT)), "there is no column 'key'; there are: stream, partition, offset"),
        (columns(("offset", IntegerType())), "column 'offset' is bigint, not int"),
        (columns(("body", TEXT)), "column 'body' is binary, not string"),
        (columns(BODY, BODY), "column 'body' is requested twice"),
        (
            StructType([StructField("offset", LongType(), nullable=False)]),
            "column 'offset' may be null",
        ),
        (
            columns(("properties", columns(("nothing", TEXT)))),
            "there is no column 'properties.nothing'",
        ),
        (
            columns(("properties", columns(("priority", TEXT)))),
            "column 'properties.priority' is int, not string",
        ),
        (columns(("properties", columns())), "column 'properties' needs at least one field"),
        (
            columns(("headers", MapType(TEXT, BinaryType()))),
            "column 'headers' is map<string,string>",
        ),
    ],
)
def test_other_columns_are_refused(schema: StructType, complaint: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check_schema(schema, parse_options(OPTIONS))
    assert complaint in str(caught.value)
