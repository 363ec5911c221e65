"""Sinks while the broker is killed: each row is there once after it has come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.client.blocking import connect
from leveret.spark.transport import Interrupted
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.spark.sink_order import Sink, sink_for
from support.spark.written_rows import numbers, texts
from support.wire.cut_proxy import CutProxy

STREAM = "s"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of the test's own with an empty stream."""
    need_own_broker()
    with BrokerProcess(tmp_path / "data") as running:
        with connect(running.uri) as connection, connection.channel() as channel:
            arguments = {"x-queue-type": "stream"}
            channel.queue_declare(STREAM, durable=True, arguments=arguments)
        yield running


def sink_to(uri: str, **more: str) -> Sink:
    """Return a sink to the stream."""
    return sink_for({"uri": uri, "stream": STREAM} | more, numbers(0, 1))


def arrived(process: BrokerProcess, count: int) -> list[bytes]:
    """Return the bodies in the stream when `count` have come, and those that follow at once."""
    with connect(process.uri) as connection, connection.channel() as channel:
        channel.qos(1000)
        consumer = channel.consume(
            STREAM, arguments={"x-stream-offset": "first"}, inactivity_timeout=120
        )
        found: list[bytes] = []
        while len(found) < count and (message := next(consumer, None)) is not None:
            message.ack()
            found.append(message.body)
        consumer.inactivity_timeout = 0.5
        return found + [message.body for message in consumer]


def test_a_committed_batch_is_there_once_however_soon_the_broker_dies(
    process: BrokerProcess,
) -> None:
    rows = [[numbers(0, 6000)], [numbers(6000, 9000)]]
    for _ in range(2):  # each time it dies while it hands the batch on, or after that
        sink_to(process.uri).batch(0, rows, query="q")
        process.kill()
        process.start()
    sink_to(process.uri).batch(1, [[numbers(9000, 9010)]], query="q")
    assert arrived(process, 9010) == texts(0, 9010)


def test_a_batch_that_was_staged_when_the_broker_died_is_written_again(
    process: BrokerProcess,
) -> None:
    sink = sink_to(process.uri)
    sink.batch(0, [[numbers(0, 3000)]], query="q", crash="before commit")
    process.kill()
    process.start()
    sink_to(process.uri).batch(0, [[numbers(0, 3000)]], query="q")
    assert arrived(process, 3000) == texts(0, 3000)


def test_a_staged_batch_can_be_committed_after_the_broker_has_come_back(
    process: BrokerProcess,
) -> None:
    sink = sink_to(process.uri)
    sink.batch(0, [[numbers(0, 3000)]], query="q", crash="before commit")
    process.kill()
    process.start()
    sink_to(process.uri).committer().commit(sink.messages, 0)
    assert arrived(process, 3000) == texts(0, 3000)


#: What `restart` restarts: what stands between two batches travels pickled, by its name.
RUNNING: list[tuple[BrokerProcess, CutProxy]] = []


def restart() -> None:
    """Kill the test's broker and start it again."""
    for process, proxy in RUNNING:
        process.kill()
        process.start()
        proxy.lead_to(process.port)


@pytest.fixture
def proxy(process: BrokerProcess) -> Iterator[CutProxy]:
    """A proxy that leads to the broker wherever it listens."""
    with CutProxy(process.port) as made:
        RUNNING.append((process, made))
        yield made
        RUNNING.clear()


def test_a_task_that_numbers_its_rows_rides_out_a_crash(
    process: BrokerProcess, proxy: CutProxy
) -> None:
    sink = sink_to(f"amqp://guest:guest@127.0.0.1:{proxy.port}/%2F", dedup="rows")
    rows = [numbers(0, 8000), restart, numbers(8000, 9000), restart, numbers(9000, 9001)]
    sink.batch(0, [rows], query="q")
    assert arrived(process, 9001) == texts(0, 9001)


def test_a_task_that_stages_its_rows_fails_with_the_broker(
    process: BrokerProcess, proxy: CutProxy
) -> None:
    sink = sink_to(f"amqp://guest:guest@127.0.0.1:{proxy.port}/%2F")
    with pytest.raises(Interrupted, match="must not send them again"):
        sink.batch(0, [[numbers(0, 8000), restart, numbers(8000, 9000)]], query="q")
    sink.batch(0, [[numbers(0, 9000)]], query="q")
    assert arrived(process, 9000) == texts(0, 9000)
