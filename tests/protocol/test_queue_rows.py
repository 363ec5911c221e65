"""Behaviours 42-48 and 50: declaring, purging and deleting queues."""

from __future__ import annotations

from typing import Any

import pytest

from support.brokers.brokers import Broker, Client
from support.wire import raw

DECLARE, PURGE, DELETE = (50, 10), (50, 30), (50, 40)


def inequivalent(argument: str, queue: str, rest: str) -> str:
    """The text of a redeclare that differs."""
    where = f"for queue '{queue}' in vhost '/'"
    return f"PRECONDITION_FAILED - inequivalent arg '{argument}' {where}: {rest}"


# -- 42, 43: names


def test_b42_empty_name_asks_for_one(connection: raw.Connection) -> None:
    """42: amq.gen- and something unique, at most 255 bytes."""
    names = {connection.declare(1, exclusive=True).queue for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") for name in names)


def test_b42_empty_name_is_the_last_declared(connection: raw.Connection, name: str) -> None:
    """42: in bind, consume, get, purge and delete; bind without a key uses the name as key."""
    connection.declare(1, name + "-before", exclusive=True)
    connection.declare(1, name, exclusive=True)
    connection.call(1, "queue.bind", exchange="amq.direct")
    for _ in range(3):
        connection.send(raw.publish(1, "amq.direct", name, b"m"))
    assert connection.get(1, "") is not None
    assert connection.call(1, "queue.purge").message_count == 2
    tag = connection.call(1, "basic.consume", no_ack=True).consumer_tag
    connection.send(raw.publish(1, "", name, b"m"))
    assert connection.expect(1, "basic.deliver").consumer_tag == tag
    connection.call(1, "queue.delete")
    assert connection.expect(1, "basic.cancel").consumer_tag == tag
    connection.declare(1, name + "-before", passive=True)
    connection.send(raw.method(1, "queue.declare", queue=name, passive=True))
    connection.expect_channel_close(1, 404)


def test_b42_passive_declare_counts_as_last(connection: raw.Connection, name: str) -> None:
    """42: whatever declare named."""
    connection.declare(1, name, exclusive=True)
    connection.declare(1, exclusive=True)
    connection.declare(1, name, passive=True)
    connection.call(1, "queue.bind", exchange="amq.fanout", routing_key="")
    connection.send(raw.publish(1, "", name, b"m"))
    assert connection.get(1, "") is not None


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("queue.bind", {"exchange": "amq.direct", "routing_key": "k"}),
        ("queue.unbind", {"exchange": "amq.direct", "routing_key": "k"}),
        ("basic.consume", {}),
        ("basic.get", {}),
        ("queue.purge", {}),
        ("queue.delete", {}),
    ],
)
def test_b42_empty_name_without_a_declare_is_404(
    connection: raw.Connection, method: str, values: dict[str, Any]
) -> None:
    """42: nothing was declared on this channel."""
    connection.open_channel(2)
    connection.declare(2, exclusive=True)
    connection.send(raw.method(1, method, **values))
    connection.expect_channel_close(1, 404, "NOT_FOUND - no previously declared queue")


def test_b43_reserved_prefix_is_403(connection: raw.Connection, name: str) -> None:
    """43: amq. is the broker's own."""
    reserved = f"amq.{name}"
    connection.send(raw.method(1, "queue.declare", queue=reserved))
    text = f"ACCESS_REFUSED - queue name '{reserved}' contains reserved prefix 'amq.*'"
    connection.expect_channel_close(1, 403, text, DECLARE)


def test_b43_existing_reserved_queue_may_be_declared(
    connection: raw.Connection, broker: Broker
) -> None:
    """43: a server-named queue again, and equal (RabbitMQ 3.10: only passively)."""
    name: str = connection.declare(1, exclusive=True).queue
    assert connection.declare(1, name, passive=True).queue == name
    if broker.is_rabbitmq:
        connection.send(raw.method(1, "queue.declare", queue=name, exclusive=True))
        connection.expect_channel_close(1, 403, "reserved prefix")
    else:
        assert connection.declare(1, name, exclusive=True).queue == name


# -- 44: exclusive


def test_b44_exclusive_queue_of_another_connection_is_405(client: Client, name: str) -> None:
    """44: declare (also passive), consume, get, bind, unbind, purge, delete."""
    owner, other = client(), client()
    owner.declare(1, name, exclusive=True)
    owner.call(1, "queue.bind", queue=name, exchange="amq.direct", routing_key=name)
    text = f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost '/'"
    bind = {"queue": name, "exchange": "amq.direct", "routing_key": name}
    attempts = [
        raw.method(2, "queue.declare", queue=name),
        raw.method(2, "queue.declare", queue=name, exclusive=True),
        raw.method(2, "queue.declare", queue=name, passive=True),
        raw.method(2, "basic.consume", queue=name),
        raw.method(2, "basic.get", queue=name),
        raw.method(2, "queue.bind", **bind),
        raw.method(2, "queue.unbind", **bind),
        raw.method(2, "queue.purge", queue=name),
        raw.method(2, "queue.delete", queue=name),
    ]
    for attempt in attempts:
        other.open_channel(2)
        other.send(attempt)
        other.expect_channel_close(2, 405, text)
    other.send(raw.publish(1, "", name, b"publishing is allowed"))
    other.sync(1)
    assert owner.drain(1, name) == [b"publishing is allowed"]


def test_b44_other_channels_of_the_connection_may_use_it(
    connection: raw.Connection, name: str
) -> None:
    """44: it belongs to the connection, not to the channel."""
    connection.open_channel(2)
    connection.declare(2, name, exclusive=True)
    connection.call(2, "channel.close", code=200)
    connection.declare(1, name, exclusive=True)


@pytest.mark.parametrize("exclusive", [True, False])
def test_b44_another_exclusive_flag_on_ones_own_is_405(
    connection: raw.Connection, name: str, exclusive: bool
) -> None:
    """44: a mismatch in either direction."""
    connection.open_channel(2)
    connection.declare(2, name, exclusive=exclusive)
    connection.send(raw.method(1, "queue.declare", queue=name, exclusive=not exclusive))
    connection.expect_channel_close(1, 405, "RESOURCE_LOCKED", DECLARE)
    connection.call(2, "queue.delete", queue=name)


# -- 45, 46: equivalence and arguments

REDECLARES: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"durable": True}, "durable", "received 'true' but current is 'false'"),
    ({"durable": True}, {}, "durable", "received 'false' but current is 'true'"),
    ({}, {"auto_delete": True}, "auto_delete", "received 'true' but current is 'false'"),
    (
        {"arguments": {"x-message-ttl": 1000}},
        {"arguments": {"x-message-ttl": 2000}},
        "x-message-ttl",
        "received '2000' but current is '1000'",
    ),
    (
        {"arguments": {"x-message-ttl": 1000}},
        {},
        "x-message-ttl",
        "received none but current is the value '1000' of type 'signedint'",
    ),
    (
        {},
        {"arguments": {"x-message-ttl": 1000}},
        "x-message-ttl",
        "received the value '1000' of type 'signedint' but current is none",
    ),
    (
        {"arguments": {"x-max-length": 10}},
        {"arguments": {"x-max-length": 11}},
        "x-max-length",
        "received '11' but current is '10'",
    ),
    (
        {"arguments": {"x-dead-letter-exchange": "a"}},
        {"arguments": {"x-dead-letter-exchange": "b"}},
        "x-dead-letter-exchange",
        "received 'b' but current is 'a'",
    ),
]


@pytest.mark.parametrize(("first", "second", "argument", "rest"), REDECLARES)
def test_b45_redeclare_that_differs_is_406(
    connection: raw.Connection,
    name: str,
    first: dict[str, Any],
    second: dict[str, Any],
    argument: str,
    rest: str,
) -> None:
    """45: with the text that says which argument, what came and what is."""
    connection.declare(1, name, **first)
    connection.open_channel(2)
    connection.send(raw.method(2, "queue.declare", queue=name, **second))
    connection.expect_channel_close(2, 406, inequivalent(argument, name, rest), DECLARE)
    connection.call(1, "queue.delete", queue=name)


def test_b45_widths_of_integers_compare_equal(connection: raw.Connection, name: str) -> None:
    """45: 1000 is 1000 whatever its type; arguments that mean nothing here are not compared."""
    for value in (1000, raw.Typed("s", 1000), raw.Typed("l", 1000), raw.Typed("i", 1000)):
        connection.declare(1, name, exclusive=True, arguments={"x-message-ttl": value})
    for more in ({"x-mine": 1}, {"x-mine": 2}):
        arguments = {"x-message-ttl": 1000} | more
        connection.declare(1, name, exclusive=True, arguments=arguments)


def test_b45_passive_declare_looks_at_nothing_else(connection: raw.Connection, name: str) -> None:
    """45: flags and arguments of a passive declare are ignored."""
    connection.declare(1, name, exclusive=True)
    arguments = {"x-message-ttl": 1}
    connection.declare(1, name, passive=True, durable=True, arguments=arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-queue-type": "no-such"},
        {"x-queue-type": 1},
        {"x-queue-type": "stream", "x-max-age": "often"},
        {"x-queue-type": "stream", "x-max-age": 60},
        {"x-queue-type": "stream", "x-max-length-bytes": "many"},
        {"x-queue-type": "stream", "x-max-length-bytes": -1},
        {"x-message-ttl": 315_360_000_001},
        {"x-expires": 315_360_000_001},
    ],
    ids=lambda arguments: "-".join(map(str, arguments.values())),
)
def test_b46_bad_arguments_are_406(
    connection: raw.Connection, name: str, arguments: dict[str, Any], broker: Broker
) -> None:
    """46: wrong type or value of an argument that is known."""
    if broker.is_rabbitmq and arguments.get("x-max-age") == "often":
        pytest.skip("RabbitMQ 3.10 answers this by 541")
    connection.send(raw.method(1, "queue.declare", queue=name, durable=True, arguments=arguments))
    connection.expect_channel_close(1, 406, "PRECONDITION_FAILED - ", DECLARE)
    connection.open_channel(1)
    connection.send(raw.method(1, "queue.declare", queue=name, passive=True))
    connection.expect_channel_close(1, 404)


@pytest.mark.parametrize("values", [{}, {"durable": True, "exclusive": True}])
def test_b46_stream_must_be_durable_and_shared(
    connection: raw.Connection, name: str, values: dict[str, bool]
) -> None:
    """46: a stream is neither transient nor exclusive."""
    arguments = {"x-queue-type": "stream"}
    connection.send(raw.method(1, "queue.declare", queue=name, arguments=arguments, **values))
    connection.expect_channel_close(1, 406, "PRECONDITION_FAILED - ", DECLARE)


# -- 47, 50: purge, delete and counts


def test_b47_passive_declare_of_a_missing_queue_is_404(
    connection: raw.Connection, name: str
) -> None:
    """47: with the text clients parse."""
    connection.send(raw.method(1, "queue.declare", queue=name, passive=True))
    text = f"NOT_FOUND - no queue '{name}' in vhost '/'"
    connection.expect_channel_close(1, 404, text, DECLARE)


def test_b47_delete_of_a_missing_queue_is_fine(connection: raw.Connection, name: str) -> None:
    """47: it had no messages."""
    assert connection.call(1, "queue.delete", queue=name).message_count == 0
    connection.call(1, "queue.delete", queue=name, if_unused=True, if_empty=True)


def test_b47_purge_of_a_missing_queue_is_404(connection: raw.Connection, name: str) -> None:
    """47: that is an error."""
    connection.send(raw.method(1, "queue.purge", queue=name))
    text = f"NOT_FOUND - no queue '{name}' in vhost '/'"
    connection.expect_channel_close(1, 404, text, PURGE)


def test_b47_if_unused_with_a_consumer_is_406(connection: raw.Connection, name: str) -> None:
    """47: without consumers it goes."""
    connection.declare(1, name)
    tag = connection.call(1, "basic.consume", queue=name).consumer_tag
    connection.open_channel(2)
    connection.send(raw.method(2, "queue.delete", queue=name, if_unused=True))
    text = f"PRECONDITION_FAILED - queue '{name}' in vhost '/' in use"
    connection.expect_channel_close(2, 406, text, DELETE)
    connection.call(1, "basic.cancel", consumer_tag=tag)
    connection.call(1, "queue.delete", queue=name, if_unused=True)


def test_b47_if_empty_with_messages_is_406(connection: raw.Connection, name: str) -> None:
    """47: without messages it goes."""
    connection.declare(1, name)
    connection.send(raw.publish(1, "", name, b"m"))
    connection.open_channel(2)
    connection.sync(1)
    connection.send(raw.method(2, "queue.delete", queue=name, if_empty=True))
    text = f"PRECONDITION_FAILED - queue '{name}' in vhost '/' not empty"
    connection.expect_channel_close(2, 406, text, DELETE)
    assert connection.drain(1, name) == [b"m"]
    connection.call(1, "queue.delete", queue=name, if_empty=True)


def test_b47_purge_counts_ready_messages_only(connection: raw.Connection, name: str) -> None:
    """47: what is un-acked survives and comes back."""
    connection.declare(1, name, exclusive=True)
    connection.send(*[raw.publish(1, "", name, b"%d" % i) for i in range(5)])
    held = connection.get(1, name, no_ack=False)
    assert held is not None
    assert connection.call(1, "queue.purge", queue=name).message_count == 4
    connection.send(raw.method(1, "basic.reject", delivery_tag=held.delivery_tag, requeue=True))
    assert connection.drain(1, name) == [b"0"]
    assert connection.call(1, "queue.purge", queue=name).message_count == 0


def test_b47_delete_says_how_many_were_ready(connection: raw.Connection, name: str) -> None:
    """47: un-acked ones are not counted; acking them afterwards is no error."""
    connection.declare(1, name)
    connection.send(*[raw.publish(1, "", name, b"m") for _ in range(3)])
    held = connection.get(1, name, no_ack=False)
    assert held is not None
    assert connection.call(1, "queue.delete", queue=name).message_count == 2
    connection.send(raw.method(1, "basic.ack", delivery_tag=held.delivery_tag))
    connection.sync(1)


def test_b47_no_wait(connection: raw.Connection, name: str) -> None:
    """47: no reply to no-wait, for declare, purge and delete alike."""
    connection.send(
        raw.method(1, "queue.declare", queue=name, no_wait=True),
        raw.publish(1, "", name, b"purged"),
        raw.method(1, "queue.purge", queue=name, no_wait=True),
        raw.publish(1, "", name, b"kept"),
    )
    assert connection.drain(1, name) == [b"kept"]
    connection.send(raw.method(1, "queue.delete", queue=name, no_wait=True))
    connection.send(raw.method(1, "queue.declare", queue=name, passive=True))
    connection.expect_channel_close(1, 404)


def test_b50_declare_ok_counts_ready_messages_and_consumers(
    connection: raw.Connection, name: str
) -> None:
    """50: un-acked ones are not in the count."""
    connection.declare(1, name, exclusive=True)
    connection.send(*[raw.publish(1, "", name, b"m") for _ in range(3)])
    assert connection.get(1, name, no_ack=False) is not None
    assert connection.declare(1, name, passive=True).fields == {
        "queue": name, "message_count": 2, "consumer_count": 0,
    }  # fmt: skip
    connection.open_channel(2)
    connection.call(2, "basic.qos", prefetch_count=1)
    connection.call(2, "basic.consume", queue=name)
    connection.expect(2, "basic.deliver")
    again = connection.declare(1, name, exclusive=True)
    assert (again.message_count, again.consumer_count) == (1, 1)


def test_b50_get_ok_counts_what_is_left(connection: raw.Connection, name: str) -> None:
    """50: ready ones behind this message."""
    connection.declare(1, name, exclusive=True)
    connection.send(*[raw.publish(1, "", name, b"m") for _ in range(3)])
    counts = []
    while (got := connection.get(1, name, no_ack=False)) is not None:
        counts.append(got.message_count)
    assert counts == [2, 1, 0]


# -- 48: auto-delete


def test_b48_auto_delete_with_the_last_consumer(connection: raw.Connection, name: str) -> None:
    """48: never before it had one; at once when the last one goes; its bindings too."""
    connection.declare(1, name, auto_delete=True)
    connection.call(1, "queue.bind", queue=name, exchange="amq.direct", routing_key=name)
    connection.send(raw.publish(1, "", name, b"m"))
    assert connection.drain(1, name) == [b"m"]
    tags = [connection.call(1, "basic.consume", queue=name).consumer_tag for _ in range(2)]
    connection.call(1, "basic.cancel", consumer_tag=tags[0])
    connection.declare(1, name, passive=True)
    connection.call(1, "basic.cancel", consumer_tag=tags[1])
    connection.send(raw.publish(1, "amq.direct", name, b"unroutable", mandatory=True))
    assert connection.expect(1, "basic.return").code == 312
    connection.send(raw.method(1, "queue.declare", queue=name, passive=True))
    connection.expect_channel_close(1, 404)


@pytest.mark.parametrize("how", ["channel", "connection"])
def test_b48_auto_delete_with_the_consumers_channel(client: Client, name: str, how: str) -> None:
    """48: a consumer ends with its channel and its connection as well."""
    owner, other = client(), client()
    owner.declare(1, name, auto_delete=True)
    owner.call(1, "basic.consume", queue=name)
    if how == "channel":
        owner.call(1, "channel.close", code=200)
    else:
        owner.close()
    other.send(raw.method(1, "queue.declare", queue=name, passive=True))
    other.expect_channel_close(1, 404)


def test_queue_names_of_255_bytes(connection: raw.Connection) -> None:
    """Section 4.2.5.3: a short string's limit; names are UTF-8."""
    name = "ü" * 127 + "x"
    assert connection.declare(1, name, exclusive=True).queue == name
    connection.send(raw.publish(1, "", name, b"m"))
    got = connection.get(1, name)
    assert got is not None
    assert got.routing_key == name
