"""Filters and Kafka's columns, on rows in memory: exact, and no filtered row is a lost one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from leveret.client import BasicProperties
from leveret.spark.columns.projection import FILTER_VALUE, matching_keys
from leveret.spark.columns.schema import KAFKA, ROW
from leveret.spark.stream.ranges import DataLossError
from support.spark.memory_stream import STREAMS, Delivery, MemoryStream
from support.spark.spark_order import Checkpoint, StreamingRun, batch_rows

KEYS = ["orders.eu.created", "orders.us.created", "orders.eu.deleted", "", "logs", "orders"]


@pytest.fixture
def keyed(memory: MemoryStream) -> MemoryStream:
    """Twelve messages: each key twice."""
    for number in range(12):
        headers: dict[str, object] = {"n": number, "none": None}
        if number % 3:
            headers[FILTER_VALUE] = f"v{number % 3}"
        body = b"%d" % number
        key = KEYS[number % len(KEYS)]
        memory.add(Delivery(body, "x", key, BasicProperties(headers=headers)))
    return memory


def options(name: str, **more: str) -> dict[str, str]:
    return {"uri": "amqp://localhost", "stream": name, "startingOffsets": "earliest", **more}


def offsets(rows: list[Any] | None) -> list[int]:
    return [row["offset"] for row in rows or []]


# -- filters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders.*.created", [0, 1, 6, 7]),
        ("orders.eu.*", [0, 2, 6, 8]),
        ("orders.#", [0, 1, 2, 5, 6, 7, 8, 11]),
        ("#", list(range(12))),
        ("logs", [4, 10]),
        ("nothing", []),
    ],
)
def test_a_routing_key_filter_is_a_topic_pattern(
    keyed: MemoryStream, name: str, pattern: str, expected: list[int]
) -> None:
    assert offsets(batch_rows(options(name, routingKeyFilter=pattern))) == expected
    run = StreamingRun(options(name, routingKeyFilter=pattern), Checkpoint())
    assert offsets(run.batch()) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"filterValues": "v1"}, [1, 4, 7, 10]),
        ({"filterValues": "v1,v2"}, [1, 2, 4, 5, 7, 8, 10, 11]),
        ({"filterValues": "v1", "filterMatchUnfiltered": "true"}, [0, 1, 3, 4, 6, 7, 9, 10]),
        ({"filterValues": "v3"}, []),
        ({"filterValues": "v1", "routingKeyFilter": "logs"}, [4, 10]),
    ],
)
def test_filter_values_are_those_of_the_header(
    keyed: MemoryStream, name: str, more: dict[str, str], expected: list[int]
) -> None:
    assert offsets(batch_rows(options(name, **more))) == expected


def test_a_filter_needs_no_column_of_the_user(keyed: MemoryStream, name: str) -> None:
    """What is looked at is read, and left out of the rows."""
    wanted = StructType([ROW["body"]])
    more = {"filterValues": "v1", "routingKeyFilter": "logs"}
    assert batch_rows(options(name, **more), wanted) == [{"body": b"4"}, {"body": b"10"}]
    rows = batch_rows(options(name, includeHeaders="false", **more))
    assert "headers" not in rows[0]


def test_a_filtered_row_is_no_lost_one_and_a_lost_one_is_told(
    keyed: MemoryStream, name: str
) -> None:
    filtered = options(name, routingKeyFilter="logs")
    assert offsets(batch_rows(filtered)) == [4, 10]
    del keyed.messages[7]  # which the filter would have left out
    with pytest.raises(DataLossError, match="the messages 7 to 7 are missing"):
        batch_rows(filtered)
    assert offsets(batch_rows(filtered | {"failOnDataLoss": "false"})) == [4, 10]


@given(st.lists(st.sampled_from([*KEYS, "grüße.x", "a."]), max_size=30))
def test_each_key_is_matched_by_itself(keys: list[str]) -> None:
    import pyarrow as pa

    one_by_one = [matching_keys(pa.array([key]), "orders.#").to_pylist()[0] for key in keys]
    assert matching_keys(pa.array(keys, pa.string()), "orders.#").to_pylist() == one_by_one


# -- Kafka's columns -------------------------------------------------------------------------------


def test_kafkas_columns_are_those_of_its_source(keyed: MemoryStream, name: str) -> None:
    rows = batch_rows(options(name, columns="kafka", includeHeaders="true"))
    assert rows[1] == {
        "key": b"orders.us.created",
        "value": b"1",
        "topic": name,
        "partition": 0,
        "offset": 1,
        "timestamp": datetime.fromtimestamp(1, UTC),
        "timestampType": 1,
        "headers": [
            {"key": "n", "value": b"1"},
            {"key": "none", "value": None},
            {"key": FILTER_VALUE, "value": b"v1"},
        ],
    }
    plain = batch_rows(options(name, columns="kafka"))
    assert [*plain[0]] == [column for column in KAFKA.names if column != "headers"]


def test_a_super_stream_is_kafkas_topic(name: str) -> None:
    for number in range(2):
        STREAMS[f"{name}-{number}"] = MemoryStream()
        STREAMS[f"{name}-{number}"].append(b"x")
    rows = batch_rows({"uri": "amqp://localhost", "superStream": name, "columns": "kafka"})
    assert [(row["topic"], row["partition"]) for row in rows] == [(name, 0), (name, 1)]


def test_a_part_of_kafkas_columns_with_a_filter(keyed: MemoryStream, name: str) -> None:
    wanted = StructType([KAFKA["headers"], KAFKA["value"], KAFKA["timestampType"]])
    texts = options(name, columns="kafka", routingKeyFilter="logs")
    assert [row["value"] for row in batch_rows(texts, wanted)] == [b"4", b"10"]
    assert batch_rows(texts, wanted)[1]["headers"][0] == {"key": "n", "value": b"10"}


def test_no_time_is_no_time_in_kafkas_columns(memory: MemoryStream, name: str) -> None:
    """RabbitMQ tells none."""
    memory.messages[0] = Delivery(b"x")
    memory.next_offset = 1
    (row,) = batch_rows(options(name, columns="kafka"))
    assert (row["timestamp"], row["timestampType"]) == (None, -1)


def test_our_columns_are_not_kafkas(memory: MemoryStream, name: str) -> None:
    from leveret.spark.columns.schema import SchemaError

    with pytest.raises(SchemaError, match="there is no column 'body'; there are: key, value"):
        batch_rows(options(name, columns="kafka"), StructType([ROW["body"]]))
