"""Spooled messages become the rows that the same messages become by themselves."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from leveret.client import BasicProperties, Message
from leveret.client.message import delivered
from leveret.client.recovery.revival import NoDeliveries
from leveret.spark.columns.messages import BatchBuilder
from leveret.spark.columns.schema import KAFKA_HEADERS, ON_REQUEST, PROPERTIES, ROW
from leveret.spark.queue.rows import SpoolBatchBuilder, to_spool
from leveret.wire.methods.basic import BasicDeliver

SCHEMAS = [
    ROW,
    StructType([ROW["body"], ROW["offset"]]),
    StructType([ROW["redelivered"], ROW["headers"], ROW["stream"], ROW["routing_key"]]),
    StructType([StructField("properties", StructType([PROPERTIES["type"]])), ROW["partition"]]),
    StructType([ROW["delivery_count"], ROW["timestamp"], ROW["exchange"]]),
    StructType([*ON_REQUEST.fields, KAFKA_HEADERS]),
]


#: Of messages that came from no channel.
NOBODY = NoDeliveries()


def message(number: int, properties: BasicProperties, body: bytes) -> Message:
    key = f"orders.{number % 3}" if number % 4 else "größe"
    method = BasicDeliver("c", number + 1, number % 5 == 0, "ex" if number % 2 else "", key)
    return delivered(NOBODY, method, properties.encode(), body)


def alike(number: int) -> BasicProperties:
    return BasicProperties(delivery_mode=2, headers={"n": number % 2, "x-delivery-count": 3})


def unlike(number: int) -> BasicProperties:
    return BasicProperties(
        message_id=f"m{number}",
        timestamp=1_700_000_000 + number if number % 3 else None,
        headers={"é": "x" * number} if number % 2 else None,
        priority=number % 10,
    )


@pytest.mark.parametrize("properties", [alike, unlike, lambda _: BasicProperties()])
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(("start", "end"), [(0, 60), (7, 8), (20, 60), (5, 5)])
def test_rows_are_what_messages_are(
    schema: StructType, properties: Callable[[int], BasicProperties], start: int, end: int
) -> None:
    messages = [message(n, properties(n), b"%d" % n) for n in range(60)]
    spooled = to_spool(messages).slice(start, end - start)
    rows = SpoolBatchBuilder("q", schema).build(100 + start, spooled)
    expected = BatchBuilder("q", schema).build(100 + start, messages[start:end])
    assert rows.schema.equals(expected.schema)
    assert rows.to_pylist() == expected.to_pylist()
    rows.validate(full=True)


def test_a_spool_keeps_names_that_are_no_text() -> None:
    method = BasicDeliver("c", 1, False, "", b"\xff.k".decode("utf-8", "surrogateescape"))
    odd = delivered(NOBODY, method, BasicProperties().encode(), b"")
    rows = SpoolBatchBuilder("q", ROW).build(0, to_spool([odd]))
    assert rows.column("routing_key").to_pylist() == ["\\xff.k"]
    assert rows.column("body").type == pa.binary()
