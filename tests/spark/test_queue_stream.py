"""Streaming and batch reads of a real queue by a real Spark: 0 lost, 0 unacked, kills told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from leveret.spark import start_available
from leveret.spark.versions import HAS_ADMISSION_CONTROL
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import Broker, need_own_broker
from support.spark.live_queue import LiveQueue, unacked

COUNT = 5000
MODES = pytest.mark.parametrize("mode", ["afterBatch", "spool"])


@pytest.fixture
def queue(broker: Broker, name: str) -> Iterator[LiveQueue]:
    """An empty queue on the broker."""
    live = LiveQueue(broker.uri, name)
    live.declare()
    yield live
    live.delete()


def rows_of(spark: SparkSession, queue: LiveQueue, place: Path, **options: str) -> DataFrame:
    given = queue.options | {"spoolDir": str(place / "spool")} | options
    return spark.readStream.format("leveret").options(**given).load()


def run_available(rows: DataFrame, place: Path) -> None:
    """Run a query into files to the queue's end of now."""
    kept = {"path": str(place / "lake"), "checkpointLocation": str(place / "checkpoint")}
    writer = rows.select("offset", "body", "redelivered").writeStream.format("parquet")
    start_available(writer.options(**kept)).awaitTermination()


@MODES
def test_two_runs_have_all_once_and_leave_nothing(
    spark: SparkSession, broker: Broker, queue: LiveQueue, tmp_path: Path, mode: str
) -> None:
    rows = rows_of(spark, queue, tmp_path, ackMode=mode, maxOffsetsPerTrigger="2500")
    for start in (0, COUNT):
        queue.publish_numbers(start, start + COUNT)
        run_available(rows, tmp_path)
        # Spark has killed the driver's process, and with it the connection.
        assert queue.ready() == 0
        assert unacked(broker, queue) == 0
    lake = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert sorted(int(row["body"]) for row in lake) == list(range(2 * COUNT))
    assert [row["offset"] for row in sorted(lake, key=lambda row: int(row["body"]))] == [
        *range(2 * COUNT)
    ]
    if HAS_ADMISSION_CONTROL:  # else the first query may still be ending when the second begins
        assert not any(row["redelivered"] for row in lake)


def test_a_running_query_outlives_the_broker_and_leaves_nothing_when_idle(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path / "broker") as process:
        process.flags = ["--port", str(process.port)]
        queue = LiveQueue(process.uri, name)
        queue.declare()
        queue.publish_numbers(0, COUNT)
        query = (
            rows_of(spark, queue, tmp_path, maxOffsetsPerTrigger="2000")
            .writeStream.format("memory")
            .queryName("queue_outlives")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            query.processAllAvailable()
            process.crash()
            queue.publish_numbers(COUNT, COUNT + 100)
            query.processAllAvailable()
            assert unacked(Broker(process.uri, process=process), queue) == 0
            assert queue.ready() == 0
            rows = spark.table("queue_outlives").select("body", "redelivered").collect()
        finally:
            query.stop()
    found = Counter(int(row["body"]) for row in rows)
    assert set(found) == set(range(COUNT + 100))
    fresh = Counter(int(row["body"]) for row in rows if not row["redelivered"])
    assert max(fresh.values()) == 1


def test_a_batch_read_only_looks_and_takes_a_schema(spark: SparkSession, queue: LiveQueue) -> None:
    queue.publish_numbers(0, 100)
    rows = spark.read.format("leveret").options(**queue.options).load()
    assert rows.count() == 100
    kafka = spark.read.format("leveret").options(**queue.options, columns="kafka").load()
    assert kafka.where("topic = 'x' or offset < 10").count() == 10
    assert queue.ready() == 100
