"""Damage that a real broker meets: it goes on without what is damaged, and says what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.http.http_api import Api
from support.wire import raw

#: A journal of 64 KiB, so that a checkpoint writes chunks soon.
SHORT = {"journal_bytes_max": "65536"}
STREAM = {"x-queue-type": "stream"}


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


def filled(data_dir: Path, arguments: dict[str, Any], count: int) -> None:
    """Make a directory whose queue `q` has so many messages in chunks, and only there."""
    with BrokerProcess(data_dir, settings=SHORT) as broker, raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        connection.declare(1, "q", durable=True, arguments=arguments)
        connection.declare(1, "later", durable=True)
        connection.call(1, "confirm.select")
        for number in range(count):
            publish(connection, "q", b"<%d>" % number)
        while len(snapshots(data_dir)) < 2:
            # The journal that held them goes with the second checkpoint after them.
            publish(connection, "later", bytes(40_000))


def snapshots(data_dir: Path) -> set[str]:
    """The names of the complete snapshots of checkpoints."""
    return {path.name for path in (data_dir / "state").glob("*[0-9]")}


def publish(connection: raw.Connection, queue: str, body: bytes) -> None:
    connection.send(raw.publish(1, "", queue, body, delivery_mode=2))
    connection.expect(1, "basic.ack")


def harm(data_dir: Path, word: bytes) -> Path:
    """Turn a bit of a word in the segment that holds it; return the segment."""
    for path in sorted((data_dir / "segments").iterdir()):
        data = path.read_bytes()
        if word in data:
            path.write_bytes(data.replace(word, bytes([word[0] ^ 1]) + word[1:], 1))
            return path
    raise AssertionError(f"no segment holds {word!r}")


def read_stream(broker: BrokerProcess, count: int) -> list[bytes]:
    """The bodies of the next `count` messages of the stream `q`."""
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        connection.call(1, "basic.qos", prefetch_count=100)
        offset = {"x-stream-offset": "first"}
        connection.call(1, "basic.consume", queue="q", consumer_tag="c", arguments=offset)
        return [connection.expect(1, "basic.deliver").body for _ in range(count)]


def node(data_dir: Path) -> dict[str, Any]:
    """What `GET /api/nodes` says."""
    api = Api(data_dir / "management.sock")
    rows = api.answer("/api/nodes")[1]
    api.close()
    assert isinstance(rows, list)
    found: dict[str, Any] = rows[0]
    return found


def test_a_damaged_message_of_a_stream_is_left_out_counted_and_kept(tmp_path: Path) -> None:
    filled(tmp_path, STREAM, 20)
    segment = harm(tmp_path, b"<7>")
    harmed = segment.read_bytes()
    expected = [b"<%d>" % number for number in range(20) if number != 7]
    for found in (1, 0):
        # The first start finds it, and its checkpoint writes the other messages again.
        before = snapshots(tmp_path)
        with BrokerProcess(tmp_path) as broker:
            for _ in range(2):  # a second reader does not count it again
                assert read_stream(broker, 19) == expected
            said = node(tmp_path)
            assert (said["store_damages"], said["store_damages_known"]) == (found, 0)
            assert said["store_records_lost"] == found
            places = said["store_damaged_places"]
            assert all("the messages 7" in place and segment.name in place for place in places)
            assert broker.output.count("damage found") == found
            while found and snapshots(tmp_path) <= before:
                node(tmp_path)  # until the checkpoint is complete
            assert broker.terminate() == 0
        kept = [path for path in (tmp_path / "quarantine").iterdir() if segment.name in path.name]
        assert len(kept) == 1
        assert kept[0].read_bytes() in harmed


def test_what_is_whole_counts_no_damage(tmp_path: Path) -> None:
    filled(tmp_path, {}, 20)
    with BrokerProcess(tmp_path):
        said = node(tmp_path)
    assert (said["store_damages"], said["store_records_lost"], said["store_torn_ends"]) == (0, 0, 0)
    assert said["store_damaged_places"] == []
