"""Spark's source on streams of Debian's RabbitMQ, under Spark's order of calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from rabbitmq import RabbitMQ, free_ports, installed

pytest.importorskip("pyspark")

from leveret.spark.columns.schema import ROW
from leveret.spark.options.read import parse_options
from leveret.spark.source import LeveretDataSource
from leveret.spark.stream.ranges import DataLossError
from leveret.spark.transports import open_transport
from support.spark.live_stream import LiveStream, Sent
from support.spark.spark_order import Checkpoint, StreamingRun, batch_rows


@pytest.fixture(scope="module")
def management_port() -> int:
    """The port of the management plugin."""
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def rabbit(management_port: int) -> Iterator[RabbitMQ]:
    """A node of its own, with the management plugin."""
    if not installed():
        pytest.skip("rabbitmq-server is not installed")
    settings = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {management_port}\n"
    with RabbitMQ(plugins=["rabbitmq_management"], configuration=settings) as node:
        yield node


@pytest.fixture
def stream(rabbit: RabbitMQ, name: str) -> Iterator[LiveStream]:
    """An empty stream, bound to an exchange of its own."""
    live = LiveStream(rabbit.uri, name, f"{name}-exchange")
    live.declare()
    yield live
    live.delete()


def bodies(batches: list[list[Any]]) -> list[bytes]:
    return [row["body"] for batch in batches for row in batch]


def read(options: Mapping[str, str]) -> list[Any]:
    return batch_rows(options, source=LeveretDataSource)


Follow = Callable[[Mapping[str, str], Checkpoint], StreamingRun]


@pytest.fixture
def following() -> Iterator[Follow]:
    """Start runs that end where the stream ends, and stop them after the test."""
    runs: list[StreamingRun] = []

    def start(options: Mapping[str, str], checkpoint: Checkpoint) -> StreamingRun:
        texts = {"startingOffsets": "earliest", **options}
        run = StreamingRun(texts, checkpoint, available_now=True, source=LeveretDataSource)
        runs.append(run)
        return run

    yield start
    for run in runs:
        run.planner.stop()


def test_each_message_once_over_restarts_and_a_replay(
    stream: LiveStream, following: Follow
) -> None:
    made = stream.publish_numbers(0, 3000)
    limited = stream.options | {"maxOffsetsPerTrigger": "700", "maxRecordsPerPartition": "300"}
    checkpoint = Checkpoint()
    lost = following(limited, checkpoint).batch(crash=True)
    again = following(limited, checkpoint)
    assert again.batch() == lost
    rest = again.all_batches()
    assert bodies([lost or [], *rest]) == made
    assert len(rest) >= 3
    made = stream.publish_numbers(3000, 3010)
    assert bodies(following(limited, checkpoint).all_batches()) == made


def test_rows_are_those_of_its_messages(stream: LiveStream) -> None:
    stream.publish([Sent(b"x" * 300_000, "some.key"), Sent(b"", "other")])
    first, second = read(stream.options)
    assert (first["body"], first["routing_key"]) == (b"x" * 300_000, "some.key")
    assert (first["timestamp"], first["exchange"]) == (None, stream.exchange)
    assert (second["body"], second["offset"]) == (b"", 1)
    (kafka,) = read(stream.options | {"columns": "kafka", "routingKeyFilter": "some.*"})
    assert (kafka["key"], kafka["timestampType"]) == (b"some.key", -1)


def test_several_streams_by_pattern_and_as_a_super_stream(
    rabbit: RabbitMQ, name: str, management_port: int
) -> None:
    partitions = [LiveStream(rabbit.uri, f"{name}-{n}", f"{name}-x{n}") for n in range(3)]
    for number, partition in enumerate(partitions):
        partition.declare()
        partition.publish_numbers(0, 10 * (number + 1))
    try:
        rows = read({"uri": rabbit.uri, "superStream": name})
        assert len(rows) == 60
        assert {(row["stream"], row["partition"]) for row in rows} == {
            (partition.name, number) for number, partition in enumerate(partitions)
        }
        by_pattern = {
            "uri": rabbit.uri,
            "streamPattern": f"{name}-[12]",
            "httpUri": f"http://127.0.0.1:{management_port}",
        }
        assert len(read(by_pattern)) == 50
    finally:
        for partition in partitions:
            partition.delete()


def test_a_moment_is_that_of_a_chunk(stream: LiveStream) -> None:
    stream.publish_numbers(0, 10)
    middle = (int(time.time()) + 2) * 1000
    with stream.channel() as channel:
        while time.time() * 1000 <= middle:  # RabbitMQ's times are in seconds
            channel.queue_declare(stream.name, passive=True)
    stream.publish_numbers(10, 15)
    rows = read(stream.options | {"startingTimestamp": str(middle)})
    assert [row["offset"] for row in rows] == list(range(10, 15))
    rows = read(stream.options | {"endingTimestamp": str(middle)})
    assert [row["offset"] for row in rows] == list(range(10))
    options = parse_options(stream.options)
    with open_transport(options, stream.name, ROW) as way:
        assert way.offset_at(middle + 3_600_000) == 15
        assert not way.keeps_time()


def test_what_retention_took_is_told(rabbit: RabbitMQ, name: str, following: Follow) -> None:
    short = LiveStream(rabbit.uri, f"{name}-short", f"{name}-exchange")
    limits = {"x-max-length-bytes": 500_000, "x-stream-max-segment-size-bytes": 200_000}
    short.declare(limits)
    try:
        short.publish_numbers(0, 5)
        checkpoint = Checkpoint()
        assert len(bodies(following(short.options, checkpoint).all_batches())) == 5
        short.publish(Sent(bytes(1000)) for _ in range(3000))
        with pytest.raises(DataLossError, match="the messages 5 to"):
            following(short.options, checkpoint).all_batches()
        lenient = short.options | {"failOnDataLoss": "false"}
        left = following(lenient, checkpoint).all_batches()
        assert 0 < len(bodies(left)) < 3000
    finally:
        short.delete()


def test_a_stream_deleted_and_made_again_is_told(stream: LiveStream, following: Follow) -> None:
    stream.publish_numbers(0, 20)
    checkpoint = Checkpoint()
    following(stream.options, checkpoint).all_batches()
    stream.delete()
    stream.declare()
    made = stream.publish_numbers(0, 4)
    with pytest.raises(DataLossError, match="it ends at 4, but was read up to 20"):
        following(stream.options, checkpoint).all_batches()
    lenient = stream.options | {"failOnDataLoss": "false"}
    assert bodies(following(lenient, checkpoint).all_batches()) == made
    assert json.dumps(checkpoint.offsets[-1]) == json.dumps({stream.name: 4})
