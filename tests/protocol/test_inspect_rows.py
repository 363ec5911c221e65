"""Behaviours 21-23: what a message's properties mean to the broker that takes it."""

from __future__ import annotations

from typing import Any

import pytest

from support.brokers.brokers import Broker, Client
from support.wire import raw
from support.wire.raw import Typed

PUBLISH = (60, 40)


def bodies(connection: raw.Connection, *queues: str) -> list[list[bytes]]:
    """What lies in each queue, taken out."""
    return [connection.drain(1, queue) for queue in queues]


def queues(connection: raw.Connection, name: str, count: int) -> list[str]:
    """So many exclusive queues with names of their own."""
    names = [f"{name}-{number}" for number in range(count)]
    for one in names:
        connection.declare(1, one, exclusive=True)
    return names


# -- 21: expiration


@pytest.mark.parametrize(
    ("expiration", "why"),
    [
        ("abc", "no_integer"),
        ("", "no_integer"),
        (" 5", "no_integer"),
        ("-", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("1e3", '{leftover_string,"e3"}'),
        ("5 ", '{leftover_string," "}'),
        ("315360000001", "{value_too_large,"),
        ("99999999999999999999", "{value_too_large,"),
    ],
)
def test_b21_expiration_that_is_no_number_is_406(
    connection: raw.Connection, name: str, expiration: str, why: str
) -> None:
    """21: text that is no whole number of milliseconds, or more than ten years of them."""
    connection.declare(1, name, exclusive=True)
    connection.send(raw.publish(1, "", name, b"x", expiration=expiration))
    text = f"PRECONDITION_FAILED - invalid expiration '{expiration}': {why}"
    connection.expect_channel_close(1, 406, text, PUBLISH)
    connection.open_channel(1)
    assert connection.drain(1, name) == []


@pytest.mark.parametrize("expiration", ["315360000000", "+60000", "0060000", "4294967296"])
def test_b21_expiration_comes_back_as_it_was_sent(
    connection: raw.Connection, name: str, expiration: str
) -> None:
    """21: a legal one is not touched."""
    connection.declare(1, name, exclusive=True)
    connection.send(raw.publish(1, "", name, b"x", expiration=expiration))
    got = connection.get(1, name)
    assert got is not None
    assert raw.decode_properties(got.properties) == {"expiration": expiration}


def test_b21_missing_exchange_is_told_first(connection: raw.Connection, name: str) -> None:
    """21: 404 comes before what is wrong with the message."""
    connection.send(raw.publish(1, name, "", b"x", expiration="abc", user_id="somebody"))
    connection.expect_channel_close(1, 404, "NOT_FOUND - no exchange", PUBLISH)


# -- 22: user_id


@pytest.mark.parametrize("user_id", ["somebody", "", "Guest"])
def test_b22_user_id_of_another_is_406(connection: raw.Connection, name: str, user_id: str) -> None:
    """22: nobody speaks for another user; guest has no tag impersonator."""
    connection.declare(1, name, exclusive=True)
    connection.send(raw.publish(1, "", name, b"x", user_id=user_id))
    text = (
        f"PRECONDITION_FAILED - user_id property set to '{user_id}' but authenticated user was "
        "'guest'"
    )
    connection.expect_channel_close(1, 406, text, PUBLISH)
    connection.open_channel(1)
    assert connection.drain(1, name) == []


def test_b22_user_id_of_the_login_passes(connection: raw.Connection, name: str) -> None:
    """22: and is delivered, so that a consumer may believe it."""
    connection.declare(1, name, exclusive=True)
    connection.send(raw.publish(1, "", name, b"x", user_id="guest"))
    got = connection.get(1, name)
    assert got is not None
    assert raw.decode_properties(got.properties) == {"user_id": "guest"}


def test_b22_user_id_is_told_before_the_expiration(connection: raw.Connection, name: str) -> None:
    """22: the order of the checks."""
    connection.send(raw.publish(1, "", name, b"x", user_id="o", expiration="abc"))
    connection.expect_channel_close(1, 406, "user_id property set to 'o'", PUBLISH)


# -- 23: CC and BCC


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "longstr"),
        (5, "signedint"),
        (None, "void"),
        (True, "bool"),
        ({"a": 1}, "table"),
        (Typed("b", 1), "byte"),
    ],
)
def test_b23_copies_that_are_no_array_are_406(
    connection: raw.Connection, name: str, header: str, value: Any, kind: str
) -> None:
    """23: the text names the header and the type."""
    connection.declare(1, name, exclusive=True)
    connection.send(raw.publish(1, "", name, b"x", headers={"a": 1, header: value}))
    text = (
        f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{header}",{kind}}}'
    )
    connection.expect_channel_close(1, 406, text, PUBLISH)
    connection.open_channel(1)
    assert connection.drain(1, name) == []


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize("values", [["a", 5], [b"a"], [["a"]], ["k" * 256]])
def test_b23_copies_to_what_is_no_key_are_406(
    connection: raw.Connection, name: str, header: str, values: list[Any], broker: Broker
) -> None:
    """23: a key is a string of at most 255 bytes; RabbitMQ skips what is not."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ skips what is no string")
    connection.send(raw.publish(1, "", name, b"x", headers={header: values}))
    connection.expect_channel_close(1, 406, "PRECONDITION_FAILED - invalid message: ", PUBLISH)


def test_b23_the_longest_key_passes(connection: raw.Connection) -> None:
    """23: 255 bytes, as every routing key."""
    long = "q" * 255
    connection.declare(1, long, exclusive=True)
    connection.send(raw.publish(1, "", "nowhere", b"x", headers={"CC": [long]}))
    assert connection.drain(1, long) == [b"x"]


def test_b23_copies_go_to_queues_by_the_default_exchange(
    connection: raw.Connection, name: str
) -> None:
    """23: once to each queue, whatever names it; the delivery shows the first key and CC."""
    one, two, three, four = queues(connection, name, 4)
    headers = {"first": 1, "BCC": [three, two], "CC": [two, one, two], "last": "x"}
    connection.send(raw.publish(1, "", one, b"m", headers=headers, message_id="i"))
    shown = {"headers": {"first": 1, "CC": [two, one, two], "last": "x"}, "message_id": "i"}
    for queue in (one, two, three):
        got = connection.get(1, queue)
        assert got is not None
        assert (got.body, got.routing_key, got.exchange) == (b"m", one, "")
        assert raw.decode_properties(got.properties) == shown
        assert connection.get(1, queue) is None
    assert connection.drain(1, four) == []


def test_b23_an_empty_table_is_left_of_bcc_alone(connection: raw.Connection, name: str) -> None:
    """23: as RabbitMQ leaves it; `bcc` and `cc` are other headers."""
    connection.declare(1, name, exclusive=True)
    connection.send(
        raw.publish(1, "", "nowhere", b"a", headers={"BCC": [name]}, app_id="a"),
        raw.publish(1, "", name, b"b", headers={"bcc": "x", "cc": 1, "CCC": 2}),
        raw.publish(1, "", name, b"c", headers={"CC": [], "BCC": []}),
    )
    kept = []
    for _ in range(3):
        got = connection.get(1, name)
        assert got is not None
        kept.append(raw.decode_properties(got.properties))
    assert kept == [
        {"headers": {}, "app_id": "a"},
        {"headers": {"bcc": "x", "cc": 1, "CCC": 2}},
        {"headers": {"CC": []}},
    ]


def test_b23_copies_by_a_direct_exchange(
    connection: raw.Connection, exchanges: raw.Exchanges, name: str
) -> None:
    """23: each key is matched."""
    exchange = exchanges("direct")
    one, two, three = queues(connection, name, 3)
    for queue, key in ((one, "a"), (two, "b"), (two, "c"), (three, "d")):
        connection.call(1, "queue.bind", queue=queue, exchange=exchange, routing_key=key)
    headers = {"CC": ["b", "c"], "BCC": ["x"]}
    connection.send(raw.publish(1, exchange, "none", b"m", headers=headers))
    assert bodies(connection, one, two, three) == [[], [b"m"], []]


def test_b23_copies_by_a_topic_exchange(
    connection: raw.Connection, exchanges: raw.Exchanges, name: str
) -> None:
    """23: each key is matched by the patterns."""
    exchange = exchanges("topic")
    one, two = queues(connection, name, 2)
    for queue, key in ((one, "a.*"), (two, "#.z")):
        connection.call(1, "queue.bind", queue=queue, exchange=exchange, routing_key=key)
    headers = {"CC": ["a.b", "a.c"], "BCC": ["b.c.z"]}
    connection.send(raw.publish(1, exchange, "none", b"m", headers=headers))
    assert bodies(connection, one, two) == [[b"m"], [b"m"]]


@pytest.mark.parametrize("kind", ["fanout", "headers"])
def test_b23_copies_by_an_exchange_without_keys(
    connection: raw.Connection, exchanges: raw.Exchanges, name: str, kind: str
) -> None:
    """23: more keys make no more copies where keys mean nothing."""
    exchange = exchanges(kind)
    connection.declare(1, name, exclusive=True)
    connection.call(1, "queue.bind", queue=name, exchange=exchange, arguments={"h": 1})
    headers = {"CC": ["a", "b"], "h": 1}
    connection.send(raw.publish(1, exchange, "k", b"m", headers=headers))
    assert connection.drain(1, name) == [b"m"]


def test_b23_copies_through_exchange_bindings(
    connection: raw.Connection, exchanges: raw.Exchanges, name: str
) -> None:
    """23: all the keys go along to the next exchange."""
    first, second = exchanges("direct"), exchanges("topic")
    connection.declare(1, name, exclusive=True)
    connection.call(1, "exchange.bind", destination=second, source=first, routing_key="b")
    connection.call(1, "queue.bind", queue=name, exchange=second, routing_key="*.z")
    connection.send(raw.publish(1, first, "a", b"m", headers={"CC": ["b", "y.z"]}))
    assert connection.drain(1, name) == [b"m"]


@pytest.mark.parametrize(("key", "copy"), [("none", "k"), ("k", "none")])
def test_b23_an_alternate_exchange_takes_what_no_key_matched(
    connection: raw.Connection, exchanges: raw.Exchanges, name: str, key: str, copy: str
) -> None:
    """23: one key that matches is enough."""
    alternate = exchanges("fanout")
    exchange = exchanges("direct", arguments={"alternate-exchange": alternate})
    one, two = queues(connection, name, 2)
    connection.call(1, "queue.bind", queue=one, exchange=exchange, routing_key="k")
    connection.call(1, "queue.bind", queue=two, exchange=alternate)
    connection.send(raw.publish(1, exchange, key, b"m", headers={"CC": [copy]}))
    connection.send(raw.publish(1, exchange, "n", b"other", headers={"CC": ["n", "o"]}))
    assert bodies(connection, one, two) == [[b"m"], [b"other"]]


def test_b23_a_copy_counts_as_routed(connection: raw.Connection, name: str) -> None:
    """23: mandatory is content with a copy; what is returned has no BCC either."""
    connection.declare(1, name, exclusive=True)
    nowhere = name + "-nowhere"
    for headers in ({"CC": [name]}, {"BCC": [name]}, {"CC": ["n1"], "BCC": ["n2"], "z": 1}):
        connection.send(raw.publish(1, "", nowhere, b"x", mandatory=True, headers=headers))
    got = connection.expect(1, "basic.return")
    assert got.routing_key == nowhere
    assert raw.decode_properties(got.properties) == {"headers": {"CC": ["n1"], "z": 1}}
    assert connection.drain(1, name) == [b"x", b"x"]


def test_b23_copies_in_a_transaction(connection: raw.Connection, name: str) -> None:
    """23: held with the rest, and refused at the publish."""
    one, two = queues(connection, name, 2)
    connection.call(1, "tx.select")
    connection.send(raw.publish(1, "", one, b"m", headers={"BCC": [two]}))
    assert bodies(connection, one, two) == [[], []]
    connection.call(1, "tx.commit")
    assert bodies(connection, one, two) == [[b"m"], [b"m"]]
    connection.send(raw.publish(1, "", one, b"m", headers={"BCC": 5}))
    connection.expect_channel_close(1, 406, "unacceptable_type_in_header", PUBLISH)


def test_b23_copies_of_a_large_body(whole: Client, name: str) -> None:
    """23: a body of many frames, once to each of two durable queues."""
    connection = whole()
    names = [f"{name}-{number}" for number in range(2)]
    for one in names:
        connection.declare(1, one, durable=True)
    body = bytes(range(256)) * 1024
    connection.send(
        raw.publish(1, "", names[0], body, delivery_mode=2, headers={"BCC": [names[1]]})
    )
    for one in names:
        assert connection.drain(1, one) == [body]
        connection.call(1, "queue.delete", queue=one)
