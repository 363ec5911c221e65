"""What only a real Spark shows of several streams, Kafka's columns, pushed filters and lag."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.client import BasicProperties
from leveret.client.blocking import connect
from leveret.errors import NotFound
from leveret.spark import start_available
from leveret.spark.columns.schema import KAFKA
from leveret.spark.lag import Lag
from leveret.spark.listener import watch_lag
from leveret.spark.offsets import from_json
from leveret.spark.options.read import OptionError
from leveret.spark.source import LeveretDataSource
from leveret.spark.versions import HAS_FILTERS
from support.brokers.brokers import Broker
from support.spark.live_stream import LiveStream, Sent
from support.spark.spark_order import batch_rows


@pytest.fixture
def partitions(broker: Broker, name: str) -> Iterator[list[LiveStream]]:
    """The partitions of a super stream, of which the first two exist."""
    made = [LiveStream(broker.uri, f"{name}-{n}", f"{name}-x{n}") for n in range(3)]
    for partition in made[:2]:
        partition.declare()
    yield made
    for partition in made:
        partition.delete()


def super_stream(partitions: list[LiveStream], **more: str) -> dict[str, str]:
    name = partitions[0].name.removesuffix("-0")
    return {"uri": partitions[0].uri, "superStream": name, **more}


def run_available(rows: DataFrame, place: Path) -> None:
    kept = {"path": str(place / "rows"), "checkpointLocation": str(place / "checkpoint")}
    start_available(rows.writeStream.format("parquet").options(**kept)).awaitTermination()


def test_a_super_stream_grows_a_partition_between_runs(
    spark: SparkSession, partitions: list[LiveStream], tmp_path: Path
) -> None:
    first, second, third = partitions
    options = super_stream(partitions, startingOffsets="earliest", maxOffsetsPerTrigger="15")
    rows = spark.readStream.format("leveret").options(**options).load()
    first.publish_numbers(0, 10)
    second.publish_numbers(0, 20)
    run_available(rows, tmp_path)
    third.declare()
    third.publish_numbers(0, 7)
    first.publish_numbers(10, 12)
    run_available(rows, tmp_path)
    kept = spark.read.parquet(str(tmp_path / "rows"))
    found = sorted((row["partition"], row["offset"]) for row in kept.collect())
    assert found == [(n, o) for n, count in ((0, 12), (1, 20), (2, 7)) for o in range(count)]
    assert kept.select("stream").distinct().count() == 3


def test_streams_have_their_turns_over_restarts(
    spark: SparkSession, partitions: list[LiveStream], tmp_path: Path
) -> None:
    """Spark keeps the order of the names in its checkpoint, which says whose turn it is."""
    names = [partition.name for partition in partitions]
    options = super_stream(partitions, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    partitions[2].declare()
    rows = spark.readStream.format("leveret").options(**options).load()
    for _ in range(2):
        for partition in partitions:
            partition.publish_bodies(b"first", b"second")
        run_available(rows, tmp_path)
    log = tmp_path / "checkpoint" / "offsets"
    kept = [log / str(number) for number in range(12)]
    texts = [one.read_text().splitlines()[-1] for one in kept]
    orders = [[*from_json(json.loads(text)).offsets] for text in texts]
    # The last of each run takes all that is left: there the order begins anew.
    turns = [order[-1] for order in orders]
    assert [turns[n] for n in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10)] == (names + names[:2]) * 2
    assert orders[5] == orders[11] == names
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 12


def test_a_super_stream_shows_the_same_rows_by_each_transport(broker: Broker, name: str) -> None:
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ makes no super streams over AMQP")
    with connect(broker.uri) as connection, connection.channel() as channel:
        partitions = {"x-queue-type": "stream", "x-super-stream-partitions": 2}
        channel.queue_declare(name, durable=True, arguments=partitions)
        channel.confirm_select()
        for number in range(20):
            headers = BasicProperties(headers={"n": number % 3})
            channel.publish(b"%d" % number, name, f"key.{number}", headers)
        options = {"uri": broker.uri, "superStream": name}
        by_amqp, in_bulk = (
            batch_rows(options | {"transport": transport}, source=LeveretDataSource)
            for transport in ("amqp", "bulk")
        )
        assert len(by_amqp) == 20
        assert by_amqp == in_bulk
        assert {key for row in by_amqp for key, _ in row["headers"]} == {"n"}
        assert {row["partition"] for row in by_amqp} == {0, 1}
        for transport, text in (("amqp", "read it by the option superStream"), ("auto", name)):
            with pytest.raises((OptionError, NotFound), match=text):
                batch_rows(
                    {"uri": broker.uri, "stream": name, "transport": transport},
                    source=LeveretDataSource,
                )
        channel.queue_delete(name)


def test_kafkas_columns_have_kafkas_types(
    spark: SparkSession, broker: Broker, stream: LiveStream
) -> None:
    stream.publish([Sent(b"one", "a.b"), Sent(b"two", "c")])
    options = stream.options | {"columns": "kafka", "includeHeaders": "true"}
    rows = spark.read.format("leveret").options(**options).load()
    assert rows.schema == KAFKA
    texts = rows.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "topic", "offset")
    assert [tuple(row) for row in texts.orderBy("offset").collect()] == [
        ("a.b", "one", stream.name, 0),
        ("c", "two", stream.name, 1),
    ]
    assert {row["timestampType"] for row in rows.collect()} == {-1 if broker.is_rabbitmq else 1}


@pytest.mark.skipif(not HAS_FILTERS, reason="Spark pushes filters since 4.1")
def test_filters_that_spark_pushes_spare_partitions(
    spark: SparkSession, broker: Broker, stream: LiveStream
) -> None:
    stream.publish_numbers(0, 1000)
    options = stream.options | {"maxRecordsPerPartition": "100"}
    whole = spark.read.format("leveret").options(**options).load()
    assert whole.rdd.getNumPartitions() == 10
    rows = spark.read.format("leveret").options(**options).load()
    part = rows.where("offset >= 250 AND offset < 320 AND routing_key = ''")
    assert part.rdd.getNumPartitions() == 2
    assert sorted(row["offset"] for row in part.collect()) == list(range(250, 320))
    assert rows.where(f"stream = 'other{stream.name}'").count() == 0
    late = rows.where(f.col("timestamp") > f.lit("2100-01-01").cast("timestamp"))
    assert late.count() == 0
    if not broker.is_rabbitmq:  # whose messages have no times
        moment = f.lit("2000-01-01").cast("timestamp")
        assert rows.where(f.col("timestamp") > moment).count() == 1000
        assert late.rdd.getNumPartitions() <= 1


def test_filters_of_the_options_leave_rows_out(spark: SparkSession, stream: LiveStream) -> None:
    stream.publish(Sent(b"%d" % n, f"k.{n % 10}") for n in range(200))
    options = stream.options | {"routingKeyFilter": "*.3", "maxRecordsPerPartition": "30"}
    rows = spark.read.format("leveret").options(**options).load()
    assert sorted(row["offset"] for row in rows.collect()) == list(range(3, 200, 10))


def test_positions_that_name_not_all_are_an_error(
    spark: SparkSession, partitions: list[LiveStream]
) -> None:
    offsets = f'{{"{partitions[0].name}": 0}}'
    options = super_stream(partitions, startingOffsets=offsets)
    with pytest.raises(PySparkException, match=f"these are missing: {partitions[1].name}"):
        spark.read.format("leveret").options(**options).load().count()


def test_the_lag_of_a_query_is_told(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    stream.publish_numbers(0, 25)
    told: list[Lag] = []
    listener = watch_lag(spark, told.append)
    options = stream.options | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    try:
        query = (
            spark.readStream.format("leveret")
            .options(**options)
            .load()
            .writeStream.format("noop")
            .queryName("lagging")
            .option("checkpointLocation", str(tmp_path))
            .start()
        )
        try:
            query.processAllAvailable()
            # Events come by a queue of Spark's own: those of a batch are there before its end.
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001
            assert [lag.messages for lag in told if lag.query_name == "lagging"][:3] == [15, 5, 0]
            last = listener.of(query)
            assert last is not None
            assert last.streams == {stream.name: 0}
        finally:
            query.stop()
    finally:
        spark.streams.removeListener(listener)
