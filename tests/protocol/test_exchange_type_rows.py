"""The exchange types of RabbitMQ's plugins, as a client sees them.

RabbitMQ needs its plugins for them: where it has not, the tests are passed by.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.brokers.brokers import Broker, Client
from support.wire import raw
from support.wire.raw import Exchanges, bound_queue

BIND = (50, 20)
HASH, HISTORY = "x-consistent-hash", "x-recent-history"


@pytest.fixture
def typed(exchanges: Exchanges, connection: raw.Connection, broker: Broker) -> Exchanges:
    """Declares exchanges; on a RabbitMQ without the plugin the test is skipped."""

    class Typed(Exchanges):
        def __call__(self, type: str = "direct", **values: Any) -> str:
            if broker.is_rabbitmq:
                probe = raw.connect(broker.uri)
                probe.open_channel(1)
                name = f"{self.name}-probe"
                probe.send(raw.method(1, "exchange.declare", exchange=name, type=type, **values))
                refused = probe.next_method().name == "connection.close"
                probe.socket.close()
                if refused:
                    pytest.skip(f"RabbitMQ has no {type}")
                self.declared.append(name)
            return super().__call__(type, **values)

    made = Typed(connection, exchanges.name)
    made.declared = exchanges.declared
    return made


def counts(connection: raw.Connection, *queues: str) -> list[int]:
    """How many messages each queue has."""
    return [len(connection.drain(1, queue)) for queue in queues]


def test_equal_values_go_to_one_queue(connection: raw.Connection, typed: Exchanges) -> None:
    exchange = typed(HASH)
    queues = [bound_queue(connection, exchange, "10") for _ in range(3)]
    connection.send(*[raw.publish(1, exchange, "same", b"x")] * 12)
    assert sorted(counts(connection, *queues)) == [0, 0, 12]
    connection.send(*[raw.publish(1, exchange, f"key {n}", b"x") for n in range(60)])
    found = counts(connection, *queues)
    assert sum(found) == 60
    assert min(found) > 0


@pytest.mark.parametrize(
    ("arguments", "equal", "different"),
    [
        ({"hash-header": "h"}, [{"headers": {"h": "a"}}], [{"headers": {"h": n}} for n in "0123"]),
        ({"hash-property": "message_id"}, [{"message_id": "a"}], [{"message_id": "b"}]),
        ({"hash-property": "correlation_id"}, [{"correlation_id": "a"}], [{}]),
        ({"hash-property": "timestamp"}, [{"timestamp": 1}], [{"timestamp": 2}]),
    ],
)
def test_other_values_than_the_key(
    connection: raw.Connection,
    typed: Exchanges,
    arguments: dict[str, str],
    equal: list[dict[str, Any]],
    different: list[dict[str, Any]],
) -> None:
    exchange = typed(HASH, arguments=arguments)
    queues = [bound_queue(connection, exchange, "10") for _ in range(2)]
    for props in (*equal, *different):
        connection.send(*[raw.publish(1, exchange, f"{n}", b"x", **props) for n in range(6)])
        assert sorted(counts(connection, *queues)) == [0, 6]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("ten", "PRECONDITION_FAILED - The binding key must be an integer: "),
        ("", "PRECONDITION_FAILED - The binding key must be an integer: "),
        ("0", "PRECONDITION_FAILED - The binding key must be greater than 0"),
        ("-1", "PRECONDITION_FAILED - The binding key must be greater than 0"),
    ],
)
def test_a_binding_key_that_is_no_weight_is_406(
    connection: raw.Connection, typed: Exchanges, key: str, text: str
) -> None:
    exchange = typed(HASH)
    queue = connection.declare(1, exclusive=True).queue
    connection.send(raw.method(1, "queue.bind", queue=queue, exchange=exchange, routing_key=key))
    connection.expect_channel_close(1, 406, text, BIND)


def test_arguments_of_a_hash_that_are_none_are_406(
    client: Client, typed: Exchanges, name: str
) -> None:
    typed(HASH)
    cases = [
        (
            {"hash-header": "a", "hash-property": "message_id"},
            "PRECONDITION_FAILED - hash-header and hash-property are mutually exclusive",
        ),
        ({"hash-property": "priority"}, "PRECONDITION_FAILED - Unsupported property: priority"),
    ]
    for arguments, text in cases:
        connection = client()
        values = {"exchange": name, "type": HASH, "arguments": arguments}
        connection.send(raw.method(1, "exchange.declare", **values))
        connection.expect_channel_close(1, 406, text, (40, 10))


def test_a_modulus_gives_equal_keys_to_one_queue(
    connection: raw.Connection, typed: Exchanges
) -> None:
    exchange = typed("x-modulus-hash")
    queues = [bound_queue(connection, exchange, "any") for _ in range(3)]
    connection.send(*[raw.publish(1, exchange, "same", b"x")] * 9)
    assert sorted(counts(connection, *queues)) == [0, 0, 9]


def test_chance_gives_each_message_to_one_queue(
    connection: raw.Connection, typed: Exchanges
) -> None:
    exchange = typed("x-random")
    queues = [bound_queue(connection, exchange, "any") for _ in range(3)]
    connection.send(*[raw.publish(1, exchange, "same", b"x")] * 90)
    found = counts(connection, *queues)
    assert sum(found) == 90
    assert min(found) > 5


def test_a_new_binding_gets_the_history(connection: raw.Connection, typed: Exchanges) -> None:
    exchange = typed(HISTORY, arguments={"x-recent-history-length": 2})
    early = bound_queue(connection, exchange, "")
    skipped = {"x-recent-history-no-store": True}
    connection.send(*[raw.publish(1, exchange, "k", b"%d" % n) for n in range(4)])
    connection.send(raw.publish(1, exchange, "k", b"skipped", headers=skipped))
    connection.sync(1)
    late = bound_queue(connection, exchange, "k")
    assert connection.drain(1, early) == [b"0", b"1", b"2", b"3", b"skipped"]
    assert connection.drain(1, late) == [b"2", b"3"]


def test_what_only_a_history_took_is_returned(connection: raw.Connection, typed: Exchanges) -> None:
    exchange = typed(HISTORY)
    connection.send(raw.publish(1, exchange, "k", b"m", mandatory=True))
    assert connection.expect(1, "basic.return").code == 312
    assert connection.drain(1, bound_queue(connection, exchange, "k")) == [b"m"]


def test_a_history_of_no_length_is_406(client: Client, typed: Exchanges, name: str) -> None:
    typed(HISTORY)
    for length in (0, -1, "20"):
        connection = client()
        values = {"type": HISTORY, "arguments": {"x-recent-history-length": length}}
        connection.send(raw.method(1, "exchange.declare", exchange=name, **values))
        connection.expect_channel_close(1, 406, "PRECONDITION_FAILED - Invalid argument ")


# -- x-delayed-message -----------------------------------------------------------------------------


def delayed(name: Exchanges, type: str = "direct") -> str:
    """Declare a delayed exchange."""
    return name("x-delayed-message", arguments={"x-delayed-type": type})


def test_delayed_messages_come_in_the_order_of_their_times(
    connection: raw.Connection, typed: Exchanges
) -> None:
    """Nothing waits here but for the broker's clock: each comes when it is due."""
    exchange = delayed(typed)
    queue = bound_queue(connection, exchange, "k")
    connection.call(1, "basic.consume", queue=queue, no_ack=True)
    for ms in (150, 50, 100, 0):
        connection.send(raw.publish(1, exchange, "k", b"%d" % ms, headers={"x-delay": ms}))
    got = [connection.expect(1, "basic.deliver") for _ in range(4)]
    assert [one.body for one in got] == [b"0", b"50", b"100", b"150"]
    headers = [raw.decode_properties(one.properties)["headers"] for one in got]
    assert [one["x-delay"] for one in headers] == [0, -50, -100, -150]


def test_a_delayed_type_that_is_none_is_406(
    client: Client, typed: Exchanges, name: str, broker: Broker
) -> None:
    delayed(typed)
    for wish in ({}, {"x-delayed-type": "x-no-such"}, {"x-delayed-type": "x-delayed-message"}):
        if broker.is_rabbitmq and wish:
            continue  # its plugin ends the connection for these
        connection = client()
        values = {"type": "x-delayed-message", "arguments": wish}
        connection.send(raw.method(1, "exchange.declare", exchange=name, **values))
        text = "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be"
        connection.expect_channel_close(1, 406, text, (40, 10))


def test_a_delay_beyond_ten_years_is_406(
    connection: raw.Connection, typed: Exchanges, broker: Broker
) -> None:
    exchange = delayed(typed)
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ's plugin routes at once what is longer than 49.7 days")
    years = 11 * 366 * 86_400_000
    connection.send(raw.publish(1, exchange, "k", b"x", headers={"x-delay": years}))
    connection.expect_channel_close(1, 406, "PRECONDITION_FAILED - an x-delay of ", (60, 40))
