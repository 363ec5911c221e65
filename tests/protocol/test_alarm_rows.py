"""Behaviour 16 and backpressure: short memory, and a client that does not read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.wire import raw

SILENT = raw.CAPABILITIES | {"connection.blocked": False}
KIBIBYTES_64 = b"x" * 65_536
#: Far more than the watermark of the broker here.
PUBLISHES_MAX = 400


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose memory is short at 4 MiB of messages, which may not go to the disk."""
    need_own_broker()
    windows = {"queue_window_bytes": "1GiB", "memory_window_bytes": "1GiB"}
    with BrokerProcess(tmp_path, settings={"memory_bytes_max": "4MiB"} | windows) as running:
        yield running


def connect(process: BrokerProcess, login: raw.Login | None = None) -> raw.Connection:
    """A connection with channel 1 open."""
    connection = raw.connect(process.uri, login)
    connection.open_channel(1)
    return connection


def publish_until_blocked(connection: raw.Connection, queue: str) -> int:
    """Publish, one confirm after another, until connection.blocked comes; return the publishes."""
    for count in range(1, PUBLISHES_MAX):
        connection.send(raw.publish(1, "", queue, KIBIBYTES_64))
        got = connection.next_method()
        if got.name == "connection.blocked":
            assert got.channel == 0
            assert got.reason
            return count
        assert got.name == "basic.ack", got
    raise AssertionError("the broker took everything")


def test_b16_publisher_is_blocked_and_unblocked(process: BrokerProcess) -> None:
    """16: blocked once, reading stops; consumers go on; when memory is free: unblocked."""
    with connect(process) as publisher, connect(process) as consumer:
        publisher.declare(1, "q")
        publisher.call(1, "confirm.select")
        sent = publish_until_blocked(publisher, "q")
        publisher.send(raw.publish(1, "", "q", b"waits"))
        consumer.call(1, "basic.consume", queue="q", no_ack=True)
        bodies = [consumer.expect(1, "basic.deliver").body for _ in range(sent - 1)]
        assert set(bodies) == {KIBIBYTES_64}
        # What raised the alarm is confirmed at any time; what waited, only after unblocked.
        names: list[str] = []
        while (got := publisher.next_method()).name != "basic.ack" or got.delivery_tag <= sent:
            names.append(got.name)
        assert names.count("connection.unblocked") == 1
        while consumer.expect(1, "basic.deliver").body != b"waits":
            pass


def test_b16_without_the_capability_reading_just_stops(process: BrokerProcess) -> None:
    """16: no connection.blocked to a client that did not announce it; it goes on afterwards."""
    silent = raw.Login(capabilities=SILENT)
    with connect(process) as told, connect(process, silent) as untold, connect(process) as third:
        told.declare(1, "q")
        told.call(1, "confirm.select")
        untold.call(1, "confirm.select")
        publish_until_blocked(told, "q")
        untold.send(raw.publish(1, "", "q", b"untold"))
        assert third.call(1, "queue.purge", queue="q").message_count > 0
        assert untold.expect(1, "basic.ack").delivery_tag == 1
        names = {told.next_method().name for _ in range(2)}
        assert names == {"basic.ack", "connection.unblocked"}


def test_b16_connection_may_be_closed_while_blocked(process: BrokerProcess) -> None:
    """16: a blocked client that goes away leaves nothing behind; others may still declare."""
    with connect(process) as publisher, connect(process) as other:
        publisher.declare(1, "q")
        publisher.call(1, "confirm.select")
        publish_until_blocked(publisher, "q")
        publisher.socket.close()
        other.declare(1, "another", exclusive=True)
        assert other.call(1, "queue.delete", queue="q").message_count > 0
        other.call(1, "confirm.select")
        other.send(raw.publish(1, "", "another", b"m"))
        assert other.expect(1, "basic.ack").delivery_tag == 1


def test_consumer_that_does_not_read_is_not_fed(process: BrokerProcess) -> None:
    """A client that never reads holds neither the others nor an unbounded buffer."""
    with connect(process) as owner, connect(process) as deaf, connect(process) as hears:
        owner.declare(1, "q")
        owner.call(1, "confirm.select")
        deaf.send(raw.method(1, "basic.consume", queue="q", no_ack=True))
        deaf.expect(1, "basic.consume-ok")
        before = psutil.Process(process.pid).memory_info().rss
        for _ in range(3):  # far more than sockets and the broker's bound hold
            for _ in range(40):
                owner.send(raw.publish(1, "", "q", KIBIBYTES_64))
                while (got := owner.next_method()).name != "basic.ack":
                    assert got.name in ("connection.blocked", "connection.unblocked")
                    hears.call(1, "queue.purge", queue="q")
        grown = psutil.Process(process.pid).memory_info().rss - before
        assert grown < 64 * 1024 * 1024
        hears.call(1, "queue.purge", queue="q")
        hears.declare(1, "another", exclusive=True)
        hears.send(raw.publish(1, "", "another", b"m"))
        assert hears.get(1, "another") is not None
        assert deaf.expect(1, "basic.deliver").body == KIBIBYTES_64
