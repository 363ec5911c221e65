"""The sinks in a session of Spark: what only Spark shows."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leveret.client.blocking import connect
from leveret.spark import start_available
from leveret.spark.listener import watch_writes
from leveret.spark.write.result import WriteResult, read_results
from support.brokers.brokers import Broker
from support.spark.live_stream import LiveStream, Sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def copied(broker: Broker, name: str) -> Iterator[LiveStream]:
    """Another empty stream."""
    live = LiveStream(broker.uri, f"{name}-copy", f"{name}-copy-exchange")
    live.declare()
    yield live
    live.delete()


def count_and_distinct(spark: SparkSession, live: LiveStream) -> tuple[int, int]:
    """Return how many messages a stream holds, and how many bodies."""
    rows = spark.read.format("leveret").options(**live.options).schema("body binary").load()
    bodies = [bytes(row.body) for row in rows.collect()]
    return len(bodies), len(set(bodies))


def copy(source: DataFrame, target: LiveStream, checkpoint: Path, **more: str) -> StreamingQuery:
    """Run a query that writes what is there, to its end."""
    query = start_available(
        source.writeStream.format("leveret")
        .options(**target.options, **more)
        .option("checkpointLocation", str(checkpoint))
        .queryName(f"copy to {target.name}")
    )
    query.awaitTermination()
    return query


def test_a_table_is_saved(spark: SparkSession, stream: LiveStream) -> None:
    rows = spark.range(0, 500, numPartitions=2).selectExpr(
        "CAST(id AS STRING) AS body",
        "'a.b' AS routing_key",
        "map('h', CAST(id % 7 AS STRING)) AS headers",
        "named_struct('app_id', 'spark', 'timestamp', timestamp'2026-01-02 03:04:05Z') "
        "AS properties",
    )
    save = rows.write.format("leveret").mode("append").option("uri", stream.uri)
    save.option("exchange", stream.exchange).option("dedup", "rows").save()
    assert count_and_distinct(spark, stream) == (500, 500)
    read = spark.read.format("leveret").options(**stream.options).load()
    found = read.selectExpr(
        "routing_key",
        "headers['h'] = CAST(CAST(body AS STRING) AS INT) % 7",
        "properties.app_id",
        "date_format(properties.timestamp, 'yyyy-MM-dd HH:mm:ss')",
    )
    assert {tuple(row) for row in found.collect()} == {
        ("a.b", True, "spark", "2026-01-02 03:04:05")
    }


def test_overwriting_is_refused(spark: SparkSession, stream: LiveStream) -> None:
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS body")
    with pytest.raises(Exception, match="cannot be overwritten"):
        rows.write.format("leveret").mode("overwrite").options(**stream.options).save()


def test_speculative_execution_is_refused(spark: SparkSession, stream: LiveStream) -> None:
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS body")
    # Where a session is started with it, Spark hands its settings to tasks the same way.
    spark.sparkContext.setLocalProperty("spark.speculation", "true")
    try:
        with pytest.raises(Exception, match="two tasks would write the same rows"):
            rows.write.format("leveret").mode("append").options(**stream.options).save()
    finally:
        spark.sparkContext.setLocalProperty("spark.speculation", "false")


@pytest.mark.parametrize("dedup", ["auto", "rows"])
def test_a_stream_is_copied_once_though_a_batch_is_written_again(
    spark: SparkSession, stream: LiveStream, copied: LiveStream, tmp_path: Path, dedup: str
) -> None:
    stream.publish(Sent(f"{n}".encode(), f"k.{n % 3}") for n in range(1000))
    source = (
        spark.readStream.format("leveret")
        .options(**stream.options, startingOffsets="earliest", maxOffsetsPerTrigger="400")
        .load()
    )
    copy(source, copied, tmp_path / "c", dedup=dedup)
    assert arrived(copied, 1000) == 1000
    # The last batch once more, as after a crash before Spark's note that it is done.
    commits = tmp_path / "c" / "commits"
    for name in ("2", ".2.crc"):
        (commits / name).unlink(missing_ok=True)
    copy(source, copied, tmp_path / "c", dedup=dedup)
    copied.publish_bodies(b"last")
    assert arrived(copied, 1001) == 1001
    assert count_and_distinct(spark, copied) == (1001, 1001)


def test_a_query_to_a_stream_that_is_not_there_is_refused(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    stream.publish_numbers(0, 1)
    source = spark.readStream.format("leveret").options(**stream.options)
    none = LiveStream(stream.uri, f"{stream.name}-none", "")
    with pytest.raises(Exception, match=f"option 'stream': there is no stream '{none.name}'"):
        copy(source.option("startingOffsets", "earliest").load(), none, tmp_path / "c")


def arrived(live: LiveStream, count: int) -> int:
    """Return how many messages a stream holds when `count` have come: staged ones take a moment."""
    with live.channel() as channel:
        channel.qos(1000)
        consumer = channel.consume(
            live.name, arguments={"x-stream-offset": "first"}, inactivity_timeout=120
        )
        found = 0
        while found < count and (message := next(consumer, None)) is not None:
            message.ack()
            found += 1
        return channel.queue_declare(live.name, passive=True).message_count


def test_the_example_of_the_page(spark: SparkSession, broker: Broker, name: str) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/spark/sink.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "amq.topic", "orders.#")
        code = example.replace("amqp://guest:guest@localhost:5672/%2F", broker.uri)
        exec(compile(code, "spark-sink.md", "exec"), {})  # noqa: S102
        consumer = channel.consume(name, inactivity_timeout=120)
        found = list(islice(consumer, 1000))
        assert {int(message.body) for message in found} == set(range(1000))
        assert {message.routing_key for message in found} == {"orders.0", "orders.1", "orders.2"}
        channel.queue_delete(name)


def test_foreach_batch_writes_to_two_destinations_and_is_told_when_it_begins_anew(
    spark: SparkSession, stream: LiveStream, broker: Broker, name: str, tmp_path: Path
) -> None:
    stream.publish(Sent(f"{n}".encode(), f"k.{n % 3}") for n in range(100))
    queues = (f"{name}-1", f"{name}-2")

    def save(rows: DataFrame, batch: int) -> None:
        for one in queues:
            where = {"uri": broker.uri, "queue": one, "writeId": name, "writeBatch": str(batch)}
            rows.select("body").write.format("leveret").mode("append").options(**where).save()

    def run(checkpoint: str) -> None:
        options = {**stream.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "50"}
        rows = spark.readStream.format("leveret").options(**options).load()
        writer = rows.writeStream.foreachBatch(save)
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        start_available(writer).awaitTermination()

    with connect(broker.uri) as connection, connection.channel() as channel:
        for one in queues:
            channel.queue_declare(one, durable=True)
        run("first")
        # Nothing remembers the checkpoint: the batches begin at 0 again.
        with pytest.raises(Exception, match="is below the last one that was written, 1"):
            run("second")
        for one in queues:
            consumer = channel.consume(one, inactivity_timeout=120)
            found = [message.body for message in islice(consumer, 100)]
            assert sorted(found, key=int) == [b"%d" % n for n in range(100)]
            consumer.cancel()
            channel.queue_delete(one)


def test_what_a_query_dropped_comes_with_its_progress(
    spark: SparkSession, stream: LiveStream, copied: LiveStream, tmp_path: Path
) -> None:
    stream.publish(Sent(f"{n}".encode(), f"k.{n % 3}") for n in range(200))
    source = (
        spark.readStream.format("leveret")
        .options(**stream.options, startingOffsets="earliest")
        .load()
    )
    file = tmp_path / "results.jsonl"
    told: queue.Queue[tuple[int, int, int]] = queue.Queue()

    def written(progress: StreamingQueryProgress, results: Sequence[WriteResult]) -> None:
        for result in results:
            told.put((progress.batchId, result.rows, result.dropped))

    listener = watch_writes(spark, file, written)
    try:
        for dropped in (0, 200):
            copy(source, copied, tmp_path / "c", resultFile=str(file))
            assert told.get(timeout=60)[:2] == (0, 200)
            assert read_results(file)[-1].dropped == dropped
            for name in ("0", ".0.crc"):
                (tmp_path / "c" / "commits" / name).unlink(missing_ok=True)
    finally:
        spark.streams.removeListener(listener)
    assert arrived(copied, 200) == 200
