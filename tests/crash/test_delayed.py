"""Delayed messages over SIGKILL: what was confirmed comes, at its time or at the next start."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.wire import raw

#: Delays in ms, spread so that each start finds some that came due while nothing ran.
DELAYS = [30 * number for number in range(1, 61)]


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


def connect(broker: BrokerProcess) -> raw.Connection:
    """A connection with channel 1 open."""
    connection = raw.connect(broker.uri)
    connection.open_channel(1)
    return connection


def declare(connection: raw.Connection) -> None:
    """Declare the delayed exchange `later` and the queue `q` bound to it."""
    arguments = {"x-delayed-type": "direct"}
    values = {"type": "x-delayed-message", "durable": True, "arguments": arguments}
    connection.call(1, "exchange.declare", exchange="later", **values)
    for queue in ("q", "settled"):
        connection.declare(1, queue, durable=True)
    connection.call(1, "queue.bind", queue="q", exchange="later", routing_key="k")


def publish(connection: raw.Connection) -> None:
    """Publish all of them and wait until they are confirmed."""
    connection.call(1, "confirm.select")
    for ms in DELAYS:
        headers = {"x-delay": ms}
        connection.send(raw.publish(1, "later", "k", b"%d" % ms, headers=headers, delivery_mode=2))
    confirmed = 0
    while confirmed < len(DELAYS):
        confirmed = connection.expect(1, "basic.ack").delivery_tag


def settle(connection: raw.Connection) -> None:
    """Wait until the acks are on the disk: what is confirmed after them is there later."""
    connection.send(raw.publish(2, "", "settled", b"", delivery_mode=2))
    name = ""
    while name != "basic.ack":  # what is delivered meanwhile is not acked and comes again
        name = connection.next_method().name


def test_confirmed_delayed_messages_come_over_kills(tmp_path: Path) -> None:
    """Killed after every few deliveries: each comes, none before its time."""
    missing = set(DELAYS)
    with BrokerProcess(tmp_path) as broker:
        with connect(broker) as connection:
            declare(connection)
            began = time.monotonic()
            publish(connection)
        while missing:
            broker.crash()
            with connect(broker) as connection:
                connection.open_channel(2)
                connection.call(2, "confirm.select")
                connection.call(1, "basic.consume", queue="q")
                for _ in range(min(15, len(missing))):
                    got = connection.expect(1, "basic.deliver")
                    ms = int(got.body)
                    # Times are whole milliseconds: one may be cut off at each end.
                    assert (time.monotonic() - began) * 1000 > ms - 2
                    missing.discard(ms)
                    connection.send(raw.method(1, "basic.ack", delivery_tag=got.delivery_tag))
                settle(connection)
        assert broker.terminate() == 0
        broker.start()
        with connect(broker) as connection:
            connection.call(1, "exchange.declare", exchange="later", passive=True)
            assert connection.get(1, "q") is None
