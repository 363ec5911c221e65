"""Streaming reads of a real stream by a real Spark: limits, restarts, replays, losses, a crash."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import leveret.spark
from leveret.spark import start_available
from leveret.spark.lag import Lag
from leveret.spark.offsets import from_json, latest_of
from leveret.spark.versions import HAS_ADMISSION_CONTROL, offset_in_progress
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import Broker, need_own_broker
from support.http.http_api import ANSWER_SECONDS_MAX, Api
from support.spark.live_stream import LiveStream, Sent

#: The bodies of each batch, in the order in which the batches were run.
Batches = list[tuple[int, list[int]]]


def rows_of(spark: SparkSession, stream: LiveStream, **options: str) -> DataFrame:
    given = {"startingOffsets": "earliest"} | stream.options | options
    return spark.readStream.format("leveret").options(**given).load()


def collecting(batches: Batches) -> Callable[[DataFrame, int], None]:
    """Return a sink that notes the offsets of each batch."""

    def note(rows: DataFrame, batch: int) -> None:
        batches.append((batch, sorted(row["offset"] for row in rows.select("offset").collect())))

    return note


def run_available(rows: DataFrame, checkpoint: Path) -> Batches:
    """Run a query to the stream's end of now and return its batches."""
    batches: Batches = []
    writer = rows.writeStream.foreachBatch(collecting(batches))
    start_available(writer.option("checkpointLocation", str(checkpoint))).awaitTermination()
    return batches


def test_batches_are_limited_and_a_restart_goes_on(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    stream.publish_numbers(0, 25)
    rows = rows_of(spark, stream, maxOffsetsPerTrigger="10")
    assert run_available(rows, tmp_path) == [
        (0, list(range(10))),
        (1, list(range(10, 20))),
        (2, list(range(20, 25))),
    ]
    assert run_available(rows, tmp_path) == []
    stream.publish_numbers(25, 30)
    assert run_available(rows, tmp_path) == [(3, list(range(25, 30)))]


def test_a_query_over_what_is_there_ends_though_more_comes(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    stream.publish_numbers(0, 10)
    seen: list[int] = []

    def note(rows: DataFrame, batch: int) -> None:
        seen.extend(row["offset"] for row in rows.select("offset").collect())
        stream.publish_numbers(10 + 5 * batch, 15 + 5 * batch)

    writer = rows_of(spark, stream, maxOffsetsPerTrigger="5").writeStream.foreachBatch(note)
    query = start_available(writer.option("checkpointLocation", str(tmp_path)))
    query.awaitTermination()
    assert query.exception() is None
    # Before 4.2, more batches may have begun until the query is stopped.
    assert seen[:10] == list(range(10))
    assert len(seen) == 10 or not HAS_ADMISSION_CONTROL


def test_a_batch_whose_commit_was_lost_is_replayed_as_it_was(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    stream.publish_numbers(0, 15)
    rows = rows_of(spark, stream, maxOffsetsPerTrigger="10", maxRecordsPerPartition="4")
    before = run_available(rows, tmp_path)
    stream.publish_numbers(15, 18)
    for file in (tmp_path / "commits").glob("*1*"):
        file.unlink()
    assert run_available(rows, tmp_path) == [before[1], (2, list(range(15, 18)))]


def queries_of(broker: Broker, stream: LiveStream) -> list[dict[str, Any]]:
    """Return the queries that a broker shows to read a stream."""
    need_own_broker()
    assert broker.process is not None
    api = Api(broker.process.data_dir / "management.sock")
    try:
        status, found = api.ask("GET", f"/api/streams/%2F/{stream.name}/queries")
    finally:
        api.close()
    assert status == 200
    assert isinstance(found, list)
    return found


def test_a_running_query_follows_the_stream_and_tells_how_far_it_is(
    spark: SparkSession, broker: Broker, stream: LiveStream, tmp_path: Path
) -> None:
    stream.publish_numbers(0, 5)
    seen: Queue[Lag] = Queue()
    lags = leveret.spark.watch_lag(spark, seen.put, port=0)
    query = (
        rows_of(spark, stream)
        .writeStream.format("memory")
        .queryName("following")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        assert spark.table("following").count() == 5
        stream.publish_numbers(5, 9)
        query.processAllAvailable()
        assert spark.table("following").count() == 9
        progress = [p for p in query.recentProgress if p.numInputRows]
        assert sum(p.numInputRows for p in progress) == 9
        latest = offset_in_progress(progress[-1].sources[0].latestOffset) or {}
        found = from_json(latest_of(latest) or latest)
        assert found.offsets == {stream.name: 9}
        assert found.mean_bytes[stream.name] > 0
        (told,) = queries_of(broker, stream)
        assert (told["query_id"], told["name"]) == (str(query.id), "following")
        assert (told["owner"], told["position"], told["lag"]) == ("guest", 9, 0)
        assert told["bytes_behind"] == 0
        assert seen.get(timeout=ANSWER_SECONDS_MAX).streams == {stream.name: 0}
        with urllib.request.urlopen(f"http://127.0.0.1:{lags.port}/metrics") as answer:
            text = answer.read().decode()
        labels = f'query="following",query_id="{query.id}",stream="{stream.name}"'
        for of in ("offsets", "bytes"):
            assert f"leveret_spark_{of}_behind_latest{{{labels}}} 0.0\n" in text
    finally:
        query.stop()
        spark.streams.removeListener(lags)
    stream.publish_numbers(9, 12)
    (told,) = queries_of(broker, stream)
    assert (told["position"], told["lag"]) == (9, 3)
    assert told["bytes_behind"] > 0


def test_a_query_over_amqp_tells_how_far_it_is(
    spark: SparkSession, broker: Broker, stream: LiveStream, tmp_path: Path
) -> None:
    need_own_broker()
    stream.publish_numbers(0, 5)
    writer = rows_of(spark, stream, transport="amqp").writeStream.format("memory")
    query = writer.queryName("over_amqp").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        stream.publish_numbers(5, 9)
        query.processAllAvailable()
    finally:
        query.stop()
    assert spark.table("over_amqp").count() == 9
    stream.publish_numbers(9, 12)
    (told,) = queries_of(broker, stream)
    assert (told["query_id"], told["name"]) == (str(query.id), "over_amqp")
    assert (told["owner"], told["position"], told["lag"]) == ("guest", 9, 3)
    assert told["bytes_behind"] > 0


def test_what_retention_took_is_an_error_or_passed_over(
    spark: SparkSession, broker: Broker, stream: LiveStream, tmp_path: Path
) -> None:
    name = f"{stream.name}-short"
    short = LiveStream(stream.uri, name, f"{name}-exchange")
    limits = {"x-max-length-bytes": 500_000, "x-stream-max-segment-size-bytes": 200_000}
    short.declare(limits)
    try:
        short.publish_numbers(0, 5)
        assert run_available(rows_of(spark, short), tmp_path) == [(0, list(range(5)))]
        short.publish(Sent(bytes(1000)) for _ in range(3000))
        with pytest.raises(StreamingQueryException, match=r"the messages 5 to .* are missing"):
            run_available(rows_of(spark, short), tmp_path)
        lenient = rows_of(spark, short, failOnDataLoss="false")
        ((batch, left),) = run_available(lenient, tmp_path)
        assert batch == 1
        # RabbitMQ leaves out an offset for each of its segments.
        left_out = set(range(left[0], 3005)) - set(left)
        assert len(left_out) < 20 if broker.is_rabbitmq else not left_out
        assert 5 < left[0] < 3000
    finally:
        short.delete()


def test_a_query_outlives_a_crash_of_the_broker(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path / "broker") as broker:
        broker.flags = ["--port", str(broker.port)]
        live = LiveStream(broker.uri, name, f"{name}-exchange")
        live.declare()
        live.publish_numbers(0, 100)
        query = (
            rows_of(spark, live)
            .writeStream.format("memory")
            .queryName("crashed")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            query.processAllAvailable()
            broker.crash()
            live.publish_numbers(100, 200)
            query.processAllAvailable()
            offsets = [row["offset"] for row in spark.table("crashed").collect()]
            assert sorted(offsets) == list(range(200))
        finally:
            query.stop()
