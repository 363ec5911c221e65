"""The files transport: a data directory or a backup shows what its broker would show."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leveret.client import BasicProperties
from leveret.client.blocking import connect
from leveret.errors import NotFound
from leveret.spark.columns.schema import ROW
from leveret.spark.options.read import OptionError, parse_options
from leveret.spark.source import LeveretDataSource
from leveret.spark.stream.ranges import DataLossError
from leveret.spark.transport import Bounds
from leveret.spark.transports import open_transport
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.spark.live_stream import LiveStream, Sent
from support.spark.spark_order import Checkpoint, StreamingRun, batch_rows
from support.store.data_dirs import SMALL

COUNT = 3000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Any]]]:
    """A directory that a broker was killed on, and the rows that it had shown."""
    need_own_broker()
    place = tmp_path_factory.mktemp("files") / "data"
    with BrokerProcess(place, settings=SMALL) as broker:
        orders = [LiveStream(broker.uri, f"orders-{n}", f"x{n}") for n in range(2)]
        for stream in orders:
            stream.declare()
        orders[0].publish(
            Sent(b"%d" % n * 20, f"k.{n % 7}", BasicProperties(headers={"n": n}, message_id=str(n)))
            for n in range(COUNT)
        )
        orders[1].publish_numbers(0, 5)
        rows = read({"uri": broker.uri, "stream": "orders-0", "transport": "amqp"})
        half_release(broker.uri)
        broker.kill()
        yield place, rows


def half_release(uri: str) -> None:
    """Commit a batch whose first message is in the stream `parts`, while the second has to wait."""
    with connect(uri) as connection, connection.channel() as channel:
        stream: dict[str, object] = {"x-queue-type": "stream"}
        channel.queue_declare("parts", durable=True, arguments=stream)
        full: dict[str, object] = {"x-max-length": 0, "x-overflow": "reject-publish"}
        channel.queue_declare("full", durable=True, arguments=full)
        staging: dict[str, object] = {"x-staging-sink": "s", "x-staging-batch": 1}
        channel.queue_declare("s.1", durable=True, arguments=staging)
        channel.confirm_select()
        channel.publish(b"seen", "", "parts")
        for key in ("parts", "full"):
            headers: dict[str, object] = {"x-staged-exchange": "", "x-staged-routing-key": key}
            channel.publish(b"unseen", "", "s.1", BasicProperties(headers=headers))
        command = json.dumps({"sink": "s", "batch": 1, "queues": ["s.1"]}).encode()
        channel.publish_nowait(command, "", "amq.leveret.commit")
        while channel.queue_declare("s.1", passive=True).message_count > 1:
            pass


def read(options: dict[str, str]) -> list[Any]:
    return batch_rows(options, source=LeveretDataSource)


def uri_of(place: Path) -> str:
    return f"file://{place}"


def segments(place: Path) -> list[Path]:
    return sorted((place / "segments").iterdir())


def test_the_rows_are_those_that_the_broker_showed(made: tuple[Path, list[Any]]) -> None:
    place, rows = made
    assert len(rows) == COUNT
    assert segments(place), "some of it is in chunks, the rest in the journal"
    options = {"uri": uri_of(place), "stream": "orders-0", "maxRecordsPerPartition": "700"}
    assert read(options) == rows
    start, end = '{"orders-0": 100}', '{"orders-0": 105}'
    part = read(options | {"startingOffsets": start, "endingOffsets": end})
    assert part == rows[100:105]
    assert read(options | {"transport": "files", "columns": "kafka"})[7]["value"] == b"7" * 20


def test_a_batch_that_is_being_released_is_not_shown(made: tuple[Path, list[Any]]) -> None:
    rows = read({"uri": uri_of(made[0]), "stream": "parts"})
    assert [bytes(row["body"]) for row in rows] == [b"seen"]


def test_streams_are_found_without_a_broker(made: tuple[Path, list[Any]]) -> None:
    uri = uri_of(made[0])
    assert len(read({"uri": uri, "superStream": "orders"})) == COUNT + 5
    assert len(read({"uri": uri, "streamPattern": ".*-1"})) == 5
    with pytest.raises(NotFound, match="no super stream 'others'"):
        read({"uri": uri, "superStream": "others"})
    with pytest.raises(NotFound, match="no stream 'none' in vhost '/'"):
        read({"uri": uri, "stream": "none"})
    with pytest.raises(NotFound, match="no stream 'orders-0' in vhost 'other'"):
        read({"uri": f"{uri}?vhost=other", "stream": "orders-0"})


def test_a_query_reads_a_directory_to_its_end(made: tuple[Path, list[Any]]) -> None:
    options = {
        "uri": uri_of(made[0]),
        "superStream": "orders",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000",
        "maxBytesPerTrigger": "1m",
    }
    run = StreamingRun(options, Checkpoint(), source=LeveretDataSource)
    batches = run.all_batches()
    assert sum(map(len, batches)) == COUNT + 5
    assert len(batches) >= 4
    run.planner.stop()


def test_moments_are_offsets(made: tuple[Path, list[Any]]) -> None:
    place, rows = made
    options = parse_options({"uri": uri_of(place), "stream": "orders-0"})
    with open_transport(options, "orders-0", ROW) as way:
        assert replace(way.bounds(), stream_id=None) == Bounds(0, COUNT)
        assert way.offset_at(0) == 0
        assert way.offset_at(int(time.time() * 1000) + 3_600_000) == COUNT
        for row in rows[:: COUNT // 10]:
            moment = int(row["timestamp"].timestamp() * 1000)
            first = next(r["offset"] for r in rows if r["timestamp"] >= row["timestamp"])
            assert way.offset_at(moment) == first
            assert way.end_at(moment) == first
        assert way.end_at(0) == 0
        assert way.end_at(int(time.time() * 1000) + 3_600_000) == COUNT
        assert 20 <= way.mean_bytes(0, COUNT) <= 100


def test_harmed_messages_are_missing_and_the_others_true(
    made: tuple[Path, list[Any]], tmp_path: Path
) -> None:
    place, rows = made
    copy = tmp_path / "copy"
    shutil.copytree(place, copy, ignore=shutil.ignore_patterns("*.sock"))
    for segment in segments(copy):
        data = bytearray(segment.read_bytes())
        for position in range(len(data) * 3 // 4, len(data), 997):  # where bodies lie
            data[position] ^= 0xFF
        segment.write_bytes(data)
    options = {"uri": uri_of(copy), "stream": "orders-0"}
    with pytest.raises(DataLossError, match="are missing"):
        read(options)
    left = read(options | {"failOnDataLoss": "false"})
    assert 0 < len(left) < COUNT
    shown = {row["offset"]: row for row in rows}
    assert all(shown[row["offset"]] == row for row in left)


def test_a_directory_that_changes_is_told_anew(tmp_path: Path) -> None:
    need_own_broker()
    place = tmp_path / "data"
    options = {"uri": uri_of(place), "stream": "s"}
    with BrokerProcess(place) as broker:
        stream = LiveStream(broker.uri, "s", "x")
        stream.declare()
        for count in (10, 20):
            stream.publish_numbers(0, 10)
            with pytest.raises(OptionError, match="a broker runs on it"):
                read(options)
            broker.terminate()
            assert len(read(options)) == count
            broker.flags = ["--port", str(broker.port)]
            broker.start()


def test_what_is_no_directory_of_a_broker_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "gone"):
        with pytest.raises(OptionError, match=r"option 'uri': .* cannot be read"):
            read({"uri": uri_of(place), "stream": "s"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"uri": "file://host/path"}, "option 'uri': the URI of a data directory is file:///path"),
        ({"uri": "file:relative"}, "option 'uri': the URI of a data directory is file:///path"),
        ({"uri": "file:///p?user=x"}, "unknown query parameter 'user'; known: vhost"),
        ({"transport": "bulk"}, "option 'transport': bulk does not read a directory"),
        ({"transport": "files", "uri": "amqp://localhost"}, "files reads a data directory"),
        ({"passwordEnv": "P"}, "option 'passwordEnv' belongs to a broker"),
        ({"caFile": "/ca.pem"}, "option 'caFile' belongs to a broker"),
        ({"httpUri": "http://localhost"}, "option 'httpUri' belongs to a broker"),
    ],
)
def test_options_of_brokers_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_options({"uri": "file:///data", "stream": "s"} | options)
    with pytest.raises(OptionError, match="a queue is read from a broker"):
        parse_options({"uri": "file:///data", "queue": "q"})
