"""A stream whose blocks go to files while the broker is killed: what was confirmed is there.

One publisher keeps some messages unconfirmed; blocks fill and retention takes some several times
between two kills, and checkpoints run all the time.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.wire import raw
from support.wire.raw_codec import decode_properties
from support.wire.raw_stream import Inbox

KILLS = 4
WINDOW = 40
BODY_BYTES = 20_000

SETTINGS = {"journal_bytes_max": "2000000", "journal_file_bytes": "1000000", "http": "false"}


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


def publish_until_killed(broker: BrokerProcess, first: int, seconds: float) -> tuple[int, int]:
    """Publish numbers from `first` on; return those that were confirmed and sent by the kill."""
    connection = raw.connect(broker.uri)
    connection.open_channel(1)
    connection.call(1, "confirm.select")
    inbox = Inbox()
    confirmed = sent = first
    timer = threading.Timer(seconds, broker.kill)
    timer.start()
    try:
        while True:
            while sent - confirmed < WINDOW:
                body = b"%d:" % sent + bytes(BODY_BYTES)
                connection.send(raw.publish(1, "", "s", body, delivery_mode=sent % 2 + 1))
                sent += 1
            data = connection.socket.recv(65_536)
            if not data:
                break
            for got in inbox.feed(data):
                if got.name == "basic.ack":
                    confirmed = first + got.delivery_tag
    except ConnectionError:
        pass
    finally:
        timer.join()
        connection.socket.close()
    return confirmed, sent


def read_all(broker: BrokerProcess) -> tuple[int, int]:
    """Read the stream; return its first offset and the one after its last."""
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        arguments = {"x-queue-type": "stream"}
        count = connection.call(
            1, "queue.declare", queue="s", passive=True, durable=True, arguments=arguments
        ).message_count
        connection.call(1, "basic.qos", prefetch_count=60_000)
        connection.call(
            1, "basic.consume", queue="s", arguments={"x-stream-offset": "first"}
        )  # fmt: skip
        first = next_offset = -1
        for _ in range(count):
            got = connection.expect(1, "basic.deliver")
            offset = int(decode_properties(got.properties)["headers"]["x-stream-offset"])
            assert int(got.body.split(b":")[0]) == offset
            assert next_offset in (-1, offset)
            first = offset if first < 0 else first
            next_offset = offset + 1
    return first, next_offset


RETAINED = {"x-max-length-bytes": 3_000_000, "x-stream-max-segment-size-bytes": 1_000_000}


@pytest.mark.parametrize("limits", [{}, RETAINED], ids=["all", "retained"])
def test_what_was_confirmed_is_there(tmp_path: Path, limits: dict[str, int]) -> None:
    chance = random.Random(len(limits))
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        with raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            arguments = {"x-queue-type": "stream", **limits}
            connection.declare(1, "s", durable=True, arguments=arguments)
        at = begin = 0
        for _ in range(KILLS):
            confirmed, sent = publish_until_killed(broker, at, chance.uniform(0.2, 0.9))
            broker.start()
            first, end = read_all(broker)
            assert confirmed <= end <= sent
            assert first >= begin
            assert first == 0 or limits
            begin, at = first, end
    assert begin > 0 or not limits
    segments = list((tmp_path / "data" / "segments").iterdir())
    assert segments, "no block went to a file"
