"""Batch reads of a real stream by a real Spark."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.client import BasicProperties, Timestamp
from support.brokers.brokers import Broker
from support.spark.live_stream import LiveStream, Sent

PASSWORD_ENV = "LEVERET_SPARK_TEST_PASSWORD"


def load(spark: SparkSession, stream: LiveStream, **options: str) -> DataFrame:
    return spark.read.format("leveret").options(**(stream.options | options)).load()


def offsets(rows: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in rows.select("offset").collect())


HEADERS: dict[str, object] = {
    "text": "grüße",
    "number": -(2**40),
    "flag": True,
    "bytes": b"\xff",
    "moment": Timestamp(1_700_000_000),
}
#: RabbitMQ 3.10 fails (541) over these in a stream.
MORE_HEADERS: dict[str, object] = {
    "nothing": None,
    "decimal": Decimal("1.50"),
    "table": {"a": [1]},
}
#: How the headers look in a table.
TEXTS = {
    "text": "grüße",
    "number": "-1099511627776",
    "flag": "true",
    "bytes": "\\xff",
    "moment": "1700000000",
}
MORE_TEXTS = {"nothing": None, "decimal": "1.50", "table": '{"a": [1]}'}


def all_properties(headers: dict[str, object]) -> BasicProperties:
    return BasicProperties(
        content_type="application/octet-stream",
        content_encoding="identity",
        headers=headers,
        delivery_mode=2,
        priority=3,
        correlation_id="correlation",
        reply_to="reply",
        expiration="60000",
        message_id="message",
        timestamp=1_700_000_000,
        type="type",
        user_id="guest",
        app_id="app",
    )


def test_a_row_holds_all_of_its_message(
    spark: SparkSession, broker: Broker, stream: LiveStream
) -> None:
    every_byte = bytes(range(256)) * 4
    properties = all_properties(HEADERS if broker.is_rabbitmq else HEADERS | MORE_HEADERS)
    before = datetime.now(tz=UTC)
    stream.publish([Sent(every_byte, "a.b", properties), Sent(b"", "plain")])
    rows = load(spark, stream).orderBy("offset").withColumn("at", f.unix_millis("timestamp"))
    first, second = rows.collect()
    assert first["body"] == every_byte
    assert (first["stream"], first["partition"], first["offset"]) == (stream.name, 0, 0)
    assert (first["exchange"], first["routing_key"]) == (stream.exchange, "a.b")
    assert (first["redelivered"], first["delivery_count"]) == (False, None)
    assert first["headers"] == (TEXTS if broker.is_rabbitmq else TEXTS | MORE_TEXTS)
    published = first["properties"].asDict()
    # How PySpark shows a moment depends on the zone of this process.
    assert published.pop("timestamp").timestamp() == pytest.approx(1_700_000_000)
    assert published == {
        "content_type": "application/octet-stream",
        "content_encoding": "identity",
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "correlation",
        "reply_to": "reply",
        "expiration": "60000",
        "message_id": "message",
        "type": "type",
        "user_id": "guest",
        "app_id": "app",
        "cluster_id": None,
    }
    assert (second["body"], second["headers"]) == (b"", {})
    if first["at"] is not None:  # RabbitMQ gives no timestamp
        published_at = datetime.fromtimestamp(first["at"] / 1000, UTC)
        assert abs(published_at - before) < timedelta(minutes=1)


def test_an_empty_stream_is_an_empty_table(spark: SparkSession, stream: LiveStream) -> None:
    rows = load(spark, stream)
    assert rows.count() == 0
    assert "body" in rows.columns


def test_every_message_once_whatever_the_partitions(
    spark: SparkSession, stream: LiveStream
) -> None:
    bodies = stream.publish_numbers(0, 3000)
    rows = load(spark, stream, maxRecordsPerPartition="700", prefetch="50").cache()
    assert rows.rdd.getNumPartitions() == 5
    assert [row["body"] for row in rows.orderBy("offset").collect()] == bodies
    assert offsets(rows) == list(range(3000))
    assert load(spark, stream, minPartitions="7").rdd.getNumPartitions() >= 7
    rows.unpersist()


def test_large_bodies_come_whole(spark: SparkSession, stream: LiveStream) -> None:
    chance = random.Random(7)
    bodies = [chance.randbytes(size) for size in (0, 1, 131_064, 131_065, 3_000_000)]
    stream.publish_bodies(*bodies)
    rows = load(spark, stream).orderBy("offset").collect()
    assert [row["body"] for row in rows] == bodies


def test_a_read_starts_and_ends_where_it_is_told_to(
    spark: SparkSession, stream: LiveStream
) -> None:
    stream.publish_numbers(0, 20)
    cases = {
        ("earliest", "latest"): range(20),
        (stream.at(5), "latest"): range(5, 20),
        ("earliest", stream.at(5)): range(5),
        (stream.at(19), stream.at(20)): range(19, 20),
        (stream.at(-2), stream.at(-1)): range(20),
        (stream.at(20), "latest"): range(0),
    }
    for (start, end), expected in cases.items():
        rows = load(spark, stream, startingOffsets=start, endingOffsets=end)
        assert offsets(rows) == list(expected), (start, end)


def test_an_end_beyond_the_stream_is_data_loss(spark: SparkSession, stream: LiveStream) -> None:
    stream.publish_numbers(0, 20)
    beyond = {"startingOffsets": stream.at(15), "endingOffsets": stream.at(25)}
    with pytest.raises(PySparkException, match="ends at 20, before the ending offset 25"):
        load(spark, stream, **beyond).count()
    assert load(spark, stream, failOnDataLoss="false", **beyond).count() == 5


def test_a_users_schema_is_what_is_read(spark: SparkSession, stream: LiveStream) -> None:
    stream.publish([Sent(b"x", "k", BasicProperties(priority=4))])
    columns = "routing_key string, properties struct<priority: int>, offset bigint"
    reader = spark.read.format("leveret").options(**stream.options).schema(columns)
    assert [tuple(row) for row in reader.load().collect()] == [("k", (4,), 0)]
    with pytest.raises(PySparkException, match="there is no column 'key'"):
        spark.read.format("leveret").options(**stream.options).schema("key string").load().collect()


def test_sql_reads_a_stream(spark: SparkSession, stream: LiveStream) -> None:
    stream.publish_numbers(0, 3)
    texts = ", ".join(f"{key} '{text}'" for key, text in stream.options.items())
    spark.sql(f"CREATE TEMPORARY VIEW live USING leveret OPTIONS ({texts})")
    try:
        query = "SELECT sum(CAST(CAST(body AS string) AS int)) AS total FROM live"
        assert spark.sql(query).collect()[0]["total"] == 3
    finally:
        spark.sql("DROP VIEW live")


def test_a_table_that_could_not_be_read_is_not_made(
    spark: SparkSession, stream: LiveStream
) -> None:
    """Spark 4.3.0 keeps no options of a table for a Python source."""
    texts = ", ".join(f"{key} '{text}'" for key, text in stream.options.items())
    with pytest.raises(AnalysisException, match="Use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE live USING leveret OPTIONS ({texts})")


def test_an_unknown_option_is_an_error_of_load(spark: SparkSession, stream: LiveStream) -> None:
    with pytest.raises(AnalysisException, match="unknown option 'startingoffset'") as caught:
        load(spark, stream, startingOffset="earliest")
    assert_short(caught.value)


def test_a_stream_that_is_not_there_is_an_error(spark: SparkSession, broker: Broker) -> None:
    absent = LiveStream(broker.uri, "nobody-made-this", "")
    with pytest.raises(PySparkException, match="no stream 'nobody-made-this' in vhost") as caught:
        load(spark, absent).count()
    assert_short(caught.value)


def assert_short(error: PySparkException) -> None:
    """Check that an error is Spark's sentence, the line that raised it, and Leveret's text."""
    lines = [line for line in str(error).splitlines() if "SQLSTATE" not in line]
    assert len(lines) == 4, lines
    assert "entries.py" in lines[1]
    assert lines[3].startswith("leveret.")


def test_a_password_from_the_environment_is_in_no_plan(
    spark: SparkSession, stream: LiveStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.publish_numbers(0, 2)
    options = {"uri": stream.uri.replace("guest:guest@", "guest@"), "passwordEnv": PASSWORD_ENV}
    rows = load(spark, stream, **options)
    assert rows.count() == 2
    rows.explain(extended=True)
    assert "guest:guest" not in capsys.readouterr().out
