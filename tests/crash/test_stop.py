"""Stops in order, starts after crashes, exit codes, and who may have the directory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.brokers.brokers import need_own_broker
from support.wire import raw


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


def client(broker: BrokerProcess) -> raw.Connection:
    """A connection with channel 1 open and confirming."""
    connection = raw.connect(broker.uri)
    connection.open_channel(1)
    connection.call(1, "confirm.select")
    return connection


def publish(connection: raw.Connection, queue: str, *bodies: bytes) -> None:
    """Publish persistent messages and wait until all are confirmed."""
    connection.send(*[raw.publish(1, "", queue, body, delivery_mode=2) for body in bodies])
    left = len(bodies)
    tag = 0
    while left:
        got = connection.expect(1, "basic.ack")
        left -= got.delivery_tag - tag
        tag = got.delivery_tag


def drain(connection: raw.Connection, queue: str) -> list[tuple[bytes, bool]]:
    """What lies in a queue: bodies, and whether each is marked as redelivered."""
    found = []
    while (got := connection.get(1, queue)) is not None:
        found.append((got.body, got.redelivered))
    return found


def test_a_stop_in_order_keeps_messages_and_knows_which_went_out(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        connection = client(broker)
        connection.declare(1, "q", durable=True)
        publish(connection, "q", b"1", b"2", b"3")
        assert connection.get(1, "q", no_ack=False) is not None
        broker.restart()
        with client(broker) as again:
            assert drain(again, "q") == [(b"1", True), (b"2", False), (b"3", False)]
        connection.socket.close()
        assert broker.terminate() == 0


def test_what_a_crash_made_uncertain_stays_so_over_a_stop_in_order(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with client(broker) as connection:
            connection.declare(1, "q", durable=True)
            publish(connection, "q", b"before")
        broker.crash()
        with client(broker) as connection:
            publish(connection, "q", b"after")
        broker.restart()
        with client(broker) as connection:
            assert drain(connection, "q") == [(b"before", True), (b"after", False)]


def test_a_start_that_is_killed_at_once_costs_nothing(tmp_path: Path) -> None:
    """Invariant I9: a second and a third start after a crash."""
    with BrokerProcess(tmp_path) as broker:
        with client(broker) as connection:
            connection.declare(1, "q", durable=True)
            publish(connection, "q", b"1", b"2")
        for _ in range(3):
            broker.crash()
        with client(broker) as connection:
            assert drain(connection, "q") == [(b"1", True), (b"2", True)]


def test_clients_are_told_of_a_stop(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        connection = client(broker)
        os.kill(broker.pid, signal.SIGTERM)
        connection.expect_connection_close(320, "CONNECTION_FORCED")
        connection.socket.close()
        assert broker.wait(raw.SECONDS_MAX) == 0


def test_a_client_that_does_not_answer_does_not_hold_a_stop(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, client(broker):
        assert broker.terminate() == 0


def test_a_transaction_that_was_not_committed_is_gone(tmp_path: Path) -> None:
    """Promise 3, by a kill between the publishes and the commit; the acks in it are undone."""
    with BrokerProcess(tmp_path) as broker:
        with client(broker) as connection:
            connection.declare(1, "q", durable=True)
            publish(connection, "q", b"old")
            connection.open_channel(2)
            connection.call(2, "tx.select")
            assert connection.get(2, "q", no_ack=False) is not None
            connection.send(
                raw.publish(2, "", "q", b"new", delivery_mode=2),
                raw.method(2, "basic.ack", delivery_tag=1),
            )
            connection.sync(2)
            broker.crash()
        with client(broker) as connection:
            assert drain(connection, "q") == [(b"old", True)]


def test_a_directory_has_one_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as first:
        second = BrokerProcess(tmp_path)
        with pytest.raises(BrokerProcessError, match=f"is in use by process {first.pid}"):
            second.start()
        with client(first) as connection:
            connection.sync(1)
        # The lock goes with the process, however it ends.
        first.kill()
        with second:
            assert second.is_running()
