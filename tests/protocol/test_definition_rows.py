"""Behaviours 73 and 75, and policies: what a file of definitions makes of a broker at its start.

The file was exported by RabbitMQ 3.10.8 (`tests/broker/definitions`).  The broker is a process that
loads it by the setting `load_definitions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.wire import raw
from support.wire.raw_codec import method, publish

EXPORTED = Path(__file__).parents[1] / "broker" / "definitions" / "rabbitmq_3_10_8.json"
ANNA = raw.Login("anna", "anna-pass", "shop")

#: What the exported file has no example of.
MORE = {
    "vhosts": [{"name": "full"}],
    "permissions": [
        {"user": "anna", "vhost": "full", "configure": ".*", "write": ".*", "read": ".*"}
    ],
    "parameters": [
        {
            "vhost": "full",
            "component": "vhost-limits",
            "name": "limits",
            "value": {"max-queues": 1},
        }
    ],
    "policies": [
        {"vhost": "full", "name": "short", "pattern": "^q", "definition": {"max-length": 1}}
    ],
    "queues": [{"vhost": "full", "name": "q", "durable": True, "arguments": {}}],
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that loads the definitions at each of its starts."""
    folder = tmp_path_factory.mktemp("definitions")
    definitions = json.loads(EXPORTED.read_text())
    for section, rows in MORE.items():
        definitions[section] += rows
    path = folder / "definitions.json"
    path.write_text(json.dumps(definitions))
    settings = {"load_definitions": str(path), "login_failure_delay_ms": "100"}
    with BrokerProcess(folder / "data", settings=settings) as broker:
        yield broker


def connect(broker: BrokerProcess, login: raw.Login = ANNA) -> raw.Connection:
    connection = raw.connect(broker.uri, login)
    connection.open_channel(1)
    return connection


def test_b75_users_of_rabbitmq_log_in_with_their_passwords(loaded: BrokerProcess) -> None:
    for login in (ANNA, raw.Login("bob", "bob-pass"), raw.Login("guest", "guest")):
        connect(loaded, login).close()
    refused = raw.dial(loaded.uri)
    refused.start(raw.Login("bob", "anna-pass"))
    refused.expect_connection_close(403, "ACCESS_REFUSED")
    refused.socket.close()


def test_b75_what_the_file_declares_is_there_and_routes(loaded: BrokerProcess) -> None:
    connection = connect(loaded)
    arguments = {
        "x-queue-type": "classic",
        "x-message-ttl": 60_000,
        "x-max-priority": 5,
        "x-dead-letter-exchange": "dead",
        "x-dead-letter-routing-key": "o",
    }
    connection.declare(1, "orders", durable=True, arguments=arguments)
    connection.send(publish(1, "events", "order.x", b"routed"))
    got = connection.get(1, "orders")
    assert got is not None
    assert got.body == b"routed"
    connection.send(publish(1, "events", "nobody", b"by the policy's alternate exchange"))
    got = connection.get(1, "lost")
    assert got is not None
    assert got.body == b"by the policy's alternate exchange"
    connection.close()


@pytest.mark.parametrize("again", [BrokerProcess.restart, BrokerProcess.crash])
def test_b75_the_same_file_at_the_next_start_changes_nothing(
    loaded: BrokerProcess, again: Callable[[BrokerProcess], BrokerProcess]
) -> None:
    connection = connect(loaded)
    connection.call(1, "confirm.select")
    connection.send(publish(1, "", "orders-q", b"kept", delivery_mode=2))
    connection.expect(1, "basic.ack")
    connection.close()
    again(loaded)
    connection = connect(loaded)
    got = connection.get(1, "orders-q")
    assert got is not None
    assert got.body == b"kept"
    connection.close()
    # What was transient ended with the stop: a queue, an exchange, and the bindings of each.
    assert "changed=\"{'queues': 1, 'exchanges': 1, 'bindings': 3}\"" in loaded.output


def test_b73_a_vhost_takes_no_queue_beyond_its_limit(loaded: BrokerProcess) -> None:
    connection = connect(loaded, raw.Login("anna", "anna-pass", "full"))
    connection.declare(1, "q", durable=True)
    connection.send(method(1, "queue.declare", queue="one-more"))
    closed = connection.expect(1, "channel.close")
    text = "cannot declare queue 'one-more': queue limit in vhost 'full' (1) is reached"
    assert (closed.code, closed.text) == (406, f"PRECONDITION_FAILED - {text}")
    connection.close()


def test_a_policy_bounds_a_queue(loaded: BrokerProcess) -> None:
    connection = connect(loaded, raw.Login("anna", "anna-pass", "full"))
    for number in range(3):
        connection.send(publish(1, "", "q", b"%d" % number))
    got = connection.get(1, "q")
    assert got is not None
    assert got.body == b"2"
    assert connection.get(1, "q") is None
    connection.close()
