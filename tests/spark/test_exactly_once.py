"""Exactly once under kills, in short: `make soak` is the long form, with kills of the whole driver.

A stream is archived and written through the sink while the broker, workers that run tasks, and the
driver's half in Python are killed by SIGKILL; a query that failed is started again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from soak.load import Load
from soak.world import is_worker

from leveret.client.blocking import connect
from leveret.pipelines.archive.job import start_archive
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.spark.live_stream import LiveStream

#: Nothing tells when a query has committed: its files are looked at.
PAUSE = threading.Event()
BATCHES_SECONDS_MAX = 600.0
LIMITS = {"numRetries": "30", "minPartitions": "2"}


class Queries:
    """The two queries, each started again when it has failed."""

    def __init__(self, spark: SparkSession, uri: str, place: Path) -> None:
        self._spark = spark
        self._uri = uri
        self._place = place
        self._starts: list[Callable[[], StreamingQuery]] = [self._archive, self._sink]
        self._running = [start() for start in self._starts]

    def _archive(self) -> StreamingQuery:
        return start_archive(
            self._spark, self._uri, "in", self._place / "lake", checkpoint=self._place / "archive",
            max_offsets_per_trigger=1000, options=LIMITS, trigger={"processingTime": "0 seconds"},
        )  # fmt: skip

    def _sink(self) -> StreamingQuery:
        reading = LIMITS | {"maxOffsetsPerTrigger": "1000", "startingOffsets": "earliest"}
        rows: DataFrame = (
            self._spark.readStream.format("leveret")
            .options(uri=self._uri, stream="in", **reading)
            .load()
        )
        return (
            rows.select("body")
            .writeStream.format("leveret")
            .options(uri=self._uri, stream="out", dedup="rows", numRetries="30")
            .option("checkpointLocation", str(self._place / "sink"))
            .start()
        )

    def go_on(self, batches: int) -> None:
        """Wait until each query has committed so many more batches."""
        goals = [self._committed(name) + batches for name in ("archive", "sink")]
        deadline = time.monotonic() + BATCHES_SECONDS_MAX
        while any(
            self._committed(name) < goal
            for name, goal in zip(("archive", "sink"), goals, strict=True)
        ):
            assert time.monotonic() < deadline, "the queries stand still"
            self._start_again()
            PAUSE.wait(0.05)

    def _start_again(self) -> None:
        for place, query in enumerate(self._running):
            if not query.isActive:
                self._running[place] = self._starts[place]()

    def _committed(self, name: str) -> int:
        commits = (self._place / name / "commits").glob("[0-9]*")
        return max((int(path.name) + 1 for path in commits), default=0)

    def finish(self) -> None:
        """Read what is there to its end, and stop."""
        for place in range(len(self._running)):
            while True:
                try:
                    self._running[place].processAllAvailable()
                    break
                except StreamingQueryException:  # of a kill that was noticed late
                    self._start_again()
        for query in self._running:
            query.stop()


def kill(wanted: Callable[[psutil.Process], bool]) -> None:
    """Kill one of this session's processes."""
    while True:
        for process in psutil.Process().children(recursive=True):
            try:
                if wanted(process):
                    process.kill()
                    return
            except psutil.NoSuchProcess:
                continue


def is_drivers_half(process: psutil.Process) -> bool:
    """Tell whether a process is the one that plans a query's batches."""
    return process.cmdline()[-1:] == ["pyspark.sql.streaming.python_streaming_source_runner"]


def test_rows_are_there_once_and_in_order_whoever_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path / "broker") as broker:
        broker.flags = ["--port", str(broker.port)]
        for name in ("in", "out"):
            LiveStream(broker.uri, name, f"{name}-exchange").declare()
        load = Load(broker.uri, "in", pause_seconds=0.5)
        load.start()
        queries = Queries(spark, broker.uri, tmp_path)
        kills: list[Callable[[], object]] = [
            broker.crash,
            lambda: kill(is_worker),
            lambda: kill(is_drivers_half),
            broker.crash,
            lambda: kill(is_worker),
        ]
        for strike in kills:
            queries.go_on(1)
            strike()
        queries.go_on(1)
        published = load.end()
        queries.finish()
        lake = spark.read.parquet(str(tmp_path / "lake")).select("offset", "body").collect()
        archived = [int(row["body"]) for row in sorted(lake, key=lambda row: int(row["offset"]))]
        assert archived == list(range(published))
        written = numbers_by_task(broker.uri, published)
    assert sorted(n for numbers in written.values() for n in numbers) == list(range(published))
    assert all(numbers == sorted(numbers) for numbers in written.values())


def numbers_by_task(uri: str, count: int) -> dict[object, list[int]]:
    """Return what the sink's stream holds, by the task that wrote it."""
    found: dict[object, list[int]] = {}
    with connect(uri) as connection, connection.channel() as channel:
        assert channel.queue_declare("out", passive=True).message_count == count
        channel.qos(count)
        consumer = channel.consume("out", arguments={"x-stream-offset": "first"})
        for _ in range(count):
            message = next(consumer)
            found.setdefault(message.headers.get("x-publisher"), []).append(int(message.body))
    return found
