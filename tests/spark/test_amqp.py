"""The AMQP transport on a real broker, without a JVM: ends, exact reads, interruptions."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from leveret.client import BasicProperties
from leveret.client.blocking import connect
from leveret.errors import AccessRefusedHard, NotFound
from leveret.limits import SPARK_BATCH_BYTES, SPARK_BATCH_RECORDS
from leveret.spark.columns.schema import ROW
from leveret.spark.options.read import parse_options
from leveret.spark.stream.planner import OffsetRange
from leveret.spark.stream.ranges import read_range
from leveret.spark.transport import Bounds, Interrupted, Piece, Transport
from leveret.spark.transports import open_transport
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import Broker, need_own_broker
from support.node.pauses import StepPause
from support.spark.live_stream import LiveStream, Sent


def transport(stream: LiveStream, **options: str) -> Transport:
    given = stream.options | {"transport": "amqp"} | options
    return open_transport(parse_options(given), stream.name, ROW)


def bodies(pieces: list[Piece]) -> list[bytes]:
    return [body for piece in pieces for body in piece.batch.column("body").to_pylist()]


def test_the_ends_of_a_stream(stream: LiveStream) -> None:
    with transport(stream) as empty:
        assert replace(empty.bounds(), stream_id=None) == Bounds(0, 0)
        assert empty.bounds().is_empty
    stream.publish_numbers(0, 1)
    with transport(stream) as one:
        assert replace(one.bounds(), stream_id=None) == Bounds(0, 1)
        stream.publish_numbers(1, 400)
        assert replace(one.bounds(), stream_id=None) == Bounds(0, 400)


@pytest.mark.parametrize("prefetch", ["1", "2", "2000"])
def test_a_range_comes_exactly_whatever_the_credit(stream: LiveStream, prefetch: str) -> None:
    made = stream.publish_numbers(0, 60)
    with transport(stream, prefetch=prefetch) as way:
        for start, end in ((0, 60), (0, 1), (59, 60), (7, 23)):
            pieces = [*way.read(start, end)]
            assert (pieces[0].start, pieces[-1].end) == (start, end)
            assert all(a.end == b.start for a, b in pairwise(pieces))
            assert bodies(pieces) == made[start:end]


def test_batches_are_bounded_by_records_and_by_bytes(stream: LiveStream) -> None:
    count = SPARK_BATCH_RECORDS + 5
    stream.publish(Sent(b"") for _ in range(count))
    stream.publish(Sent(bytes(3_000_000)) for _ in range(7))
    with transport(stream) as way:
        pieces = [*way.read(0, count + 7)]
    # A batch ends with the read that filled it.
    one_read = 262_144
    assert sum(piece.batch.num_rows for piece in pieces) == count + 7
    sizes = [sum(map(len, piece.batch.column("body").to_pylist())) for piece in pieces]
    assert max(sizes) <= SPARK_BATCH_BYTES + 3_000_000 + one_read
    assert max(piece.batch.num_rows for piece in pieces) <= SPARK_BATCH_RECORDS + one_read // 60
    assert len(pieces) >= 3


def test_a_read_of_what_is_not_there_ends(stream: LiveStream) -> None:
    made = stream.publish_numbers(0, 5)
    with transport(stream, pollTimeoutMs="300") as way:
        assert bodies([*way.read(2, 9)]) == made[2:]
        assert [*way.read(5, 9)] == []
        assert [*way.read(100, 101)] == []


def test_a_moment_is_an_offset(broker: Broker, stream: LiveStream) -> None:
    with transport(stream) as way:
        assert way.offset_at(0) == 0
        stream.publish_numbers(0, 50)
        middle = time.time_ns() // 1_000_000 + 1
        while time.time_ns() // 1_000_000 <= middle + 1:
            pass  # messages of the same millisecond could not be told apart
        stream.publish_numbers(50, 80)
        assert way.offset_at(0) == 0
        assert way.offset_at(middle + 3_600_000) == 80
        assert way.keeps_time() is not broker.is_rabbitmq
        if not broker.is_rabbitmq:  # which has times of chunks, in seconds
            assert way.offset_at(middle) == 50
            (piece,) = way.read(0, 80)
            for offset, moment in enumerate(piece.batch.column("timestamp").to_pylist()):
                at_ms = int(moment.timestamp() * 1000)
                assert way.offset_at(at_ms) <= offset
                assert way.offset_at(at_ms + 1) > offset
                assert way.end_at(at_ms + 1) > offset


def test_sizes_are_guessed_from_the_next_messages(stream: LiveStream) -> None:
    stream.publish([Sent(bytes(10))] * 300 + [Sent(bytes(1000))] * 300)
    with transport(stream) as way:
        assert way.mean_bytes(0, 600) == 10
        assert way.mean_bytes(290, 310) == 505
        assert way.mean_bytes(300, 301) == 1000
        assert way.mean_bytes(5, 5) == 0
        assert way.mean_bytes(600, 700) == 0


def test_a_stream_that_is_not_there_is_an_error(stream: LiveStream) -> None:
    absent = LiveStream(stream.uri, "nobody-made-this", "")
    with transport(absent) as way:
        with pytest.raises(NotFound):
            way.latest()
        with pytest.raises(NotFound):
            [*way.read(0, 1)]


def test_a_queue_is_no_stream(stream: LiveStream) -> None:
    """Nothing is taken from it, and the error says what is wrong."""
    queue = LiveStream(stream.uri, f"{stream.name}-queue", "")
    with connect(stream.uri) as connection, connection.channel() as channel:
        channel.queue_declare(queue.name)
        channel.confirm_select()
        channel.publish(b"x", "", queue.name, BasicProperties())
        with transport(queue) as way, pytest.raises(Exception, match="stream"):
            way.earliest()
        assert channel.queue_delete(queue.name) == 1


def test_a_refused_login_is_no_interruption(stream: LiveStream) -> None:
    wrong = stream.uri.replace("guest:guest@", "guest:wrong@")
    with transport(LiveStream(wrong, stream.name, "")) as way, pytest.raises(AccessRefusedHard):
        way.latest()


def test_nobody_who_answers_is_an_interruption() -> None:
    with transport(LiveStream("amqp://127.0.0.1:1", "s", "")) as way, pytest.raises(Interrupted):
        way.latest()


def test_a_read_goes_on_after_a_crash_of_the_broker(tmp_path: Path, name: str) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path / "broker") as broker:
        broker.flags = ["--port", str(broker.port)]
        live = LiveStream(broker.uri, name, f"{name}-exchange")
        live.declare()
        count = 3 * SPARK_BATCH_RECORDS
        live.publish(Sent(b"%d" % number) for number in range(count))
        options = parse_options(
            live.options | {"prefetch": "100", "numRetries": "20", "transport": "amqp"}
        )

        def restart(_: float) -> None:
            if not broker.is_running():
                broker.start()

        pause = StepPause(restart)
        with open_transport(options, name, ROW) as way:
            batches = read_range(way, options, OffsetRange(name, 0, count), pause)
            found = next(batches).column("body").to_pylist()
            broker.kill()
            for batch in batches:
                found += batch.column("body").to_pylist()
        assert found == [b"%d" % number for number in range(count)]
        assert pause.waits
