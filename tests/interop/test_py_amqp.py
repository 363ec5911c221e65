"""py-amqp, the transport of Celery and kombu, against a running broker."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import amqp
import pytest

from support.brokers.brokers import Broker, unique

HEADERS: dict[str, Any] = {
    "true": True,
    "small": 7,
    "negative": -(2**31),
    "long": 2**40,
    "float": 1.5,
    "decimal": Decimal("3.14"),
    "text": "ü" * 300,
    "time": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "none": None,
    "list": [1, "two", [True, None]],
    "table": {"in": {"ner": "x"}},
}


def connect(broker: Broker, **values: Any) -> amqp.Connection:
    """Open a connection to the broker."""
    where = broker.uri.split("@")[1].split("/")[0]
    connection = amqp.Connection(where, **values)
    connection.connect()
    return connection


@pytest.fixture
def connection(broker: Broker) -> Iterator[amqp.Connection]:
    """An open connection."""
    with connect(broker) as opened:
        yield opened


@pytest.fixture
def channel(connection: amqp.Connection) -> amqp.Channel:
    """A channel of it."""
    return connection.channel()


def exclusive_queue(channel: amqp.Channel) -> str:
    """A server-named queue."""
    queue: str = channel.queue_declare(exclusive=True, auto_delete=False).queue
    return queue


def test_declare_bind_publish_get(channel: amqp.Channel, name: str) -> None:
    channel.exchange_declare(name, "topic", auto_delete=True)
    queue = exclusive_queue(channel)
    channel.queue_bind(queue, name, "a.*")
    channel.basic_publish(amqp.Message("in"), name, "a.b")
    channel.basic_publish(amqp.Message("out"), name, "b.a")
    message = channel.basic_get(queue, no_ack=True)
    assert (message.body, message.delivery_info["routing_key"]) == ("in", "a.b")
    assert channel.basic_get(queue) is None
    channel.queue_unbind(queue, name, "a.*")


def test_consume_and_ack(connection: amqp.Connection, channel: amqp.Channel) -> None:
    queue = exclusive_queue(channel)
    got: list[str] = []

    def on_message(message: amqp.Message) -> None:
        got.append(message.body)
        channel.basic_ack(message.delivery_tag)

    channel.basic_qos(0, 10, False)
    tag = channel.basic_consume(queue, callback=on_message)
    for i in range(100):
        channel.basic_publish(amqp.Message(str(i)), "", queue)
    while len(got) < 100:
        connection.drain_events(timeout=60)
    assert got == [str(i) for i in range(100)]
    channel.basic_cancel(tag)
    assert channel.queue_declare(queue, passive=True).message_count == 0


def test_confirms(broker: Broker, name: str) -> None:
    with connect(broker, confirm_publish=True) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, auto_delete=False)
        for i in range(20):
            channel.basic_publish_confirm(amqp.Message(str(i), delivery_mode=2), "", name)
        assert channel.queue_delete(name) == 20


def test_mandatory_return(connection: amqp.Connection, channel: amqp.Channel, name: str) -> None:
    returned: list[tuple[int, str, str]] = []
    channel.events["basic_return"].add(
        lambda error, _, key, message: returned.append((error.reply_code, key, message.body))
    )
    channel.basic_publish(amqp.Message("nowhere"), "", name, mandatory=True)
    exclusive_queue(channel)  # a round trip behind the return
    assert returned == [(312, name, "nowhere")]


@pytest.mark.parametrize(
    ("action", "error", "text"),
    [
        (
            lambda c, n: c.queue_declare(n, passive=True),
            amqp.NotFound,
            "NOT_FOUND - no queue '{}' in vhost '/'",
        ),
        (
            lambda c, n: c.exchange_declare(n, "direct", passive=True),
            amqp.NotFound,
            "NOT_FOUND - no exchange '{}' in vhost '/'",
        ),
        (
            lambda c, _: c.exchange_declare(
                "amq.direct", "fanout", durable=True, auto_delete=False
            ),
            amqp.PreconditionFailed,
            "inequivalent arg 'type' for exchange 'amq.direct' in vhost '/'",
        ),
        (lambda c, n: c.queue_declare("amq." + n), amqp.AccessRefused, "reserved prefix 'amq.*'"),
    ],
)
def test_channel_errors(
    connection: amqp.Connection, name: str, action: Any, error: type[Exception], text: str
) -> None:
    channel = connection.channel()
    with pytest.raises(error) as raised:
        action(channel, name)
    assert text.format(name) in str(raised.value)
    exclusive_queue(connection.channel())


def test_exclusive_queue_of_another(broker: Broker, channel: amqp.Channel) -> None:
    queue = exclusive_queue(channel)
    with connect(broker) as other, pytest.raises(amqp.ResourceLocked):
        other.channel().queue_declare(queue, passive=True)


def test_immediate_is_not_implemented(broker: Broker, name: str) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.basic_publish(amqp.Message("x"), "", name, immediate=True)
    with pytest.raises(amqp.AMQPNotImplementedError, match="NOT_IMPLEMENTED - immediate=true"):
        connection.drain_events(timeout=60)


def test_wrong_password_and_missing_vhost(broker: Broker) -> None:
    with pytest.raises(amqp.AccessRefused):
        connect(broker, password="wrong")
    with pytest.raises(amqp.NotAllowed):
        connect(broker, virtual_host=unique("no-vhost"))


def test_amqplain(broker: Broker) -> None:
    with connect(broker, login_method="AMQPLAIN") as connection:
        exclusive_queue(connection.channel())


def test_reject_recover_and_redelivered(channel: amqp.Channel) -> None:
    queue = exclusive_queue(channel)
    for i in range(3):
        channel.basic_publish(amqp.Message(str(i)), "", queue)
    tags = [channel.basic_get(queue).delivery_tag for _ in range(3)]
    channel.basic_reject(tags[0], requeue=True)
    channel.basic_reject(tags[2], requeue=False)
    channel.basic_recover(requeue=True)
    got = [channel.basic_get(queue, no_ack=True) for _ in range(2)]
    assert [(m.body, m.delivery_info["redelivered"]) for m in got] == [("0", True), ("1", True)]
    assert channel.basic_get(queue) is None


def test_transactions(channel: amqp.Channel) -> None:
    queue = exclusive_queue(channel)
    channel.tx_select()
    channel.basic_publish(amqp.Message("undone"), "", queue)
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("done"), "", queue)
    assert channel.basic_get(queue) is None
    channel.tx_commit()
    assert channel.basic_get(queue).body == "done"


def test_header_values_and_properties(channel: amqp.Channel) -> None:
    queue = exclusive_queue(channel)
    values: dict[str, Any] = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "delivery_mode": 2,
        "priority": 5,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
    }
    sent = amqp.Message("body", application_headers=HEADERS, **values)
    channel.basic_publish(sent, "", queue)
    got = channel.basic_get(queue, no_ack=True)
    headers = got.properties["application_headers"]
    expected = HEADERS | {"time": headers["time"]}  # py-amqp reads times without a zone
    assert headers == expected
    assert {n: got.properties[n] for n in values} == values


@pytest.mark.parametrize("size", [0, 131_064, 131_065, 1_000_000])
def test_large_bodies(channel: amqp.Channel, size: int) -> None:
    queue = exclusive_queue(channel)
    body = bytes(i & 0x7F for i in range(size))
    channel.basic_publish(amqp.Message(body), "", queue)
    got = channel.basic_get(queue, no_ack=True).body
    assert (got if isinstance(got, bytes) else got.encode()) == body


def test_many_channels(connection: amqp.Connection) -> None:
    channels = [connection.channel() for _ in range(50)]
    queue = exclusive_queue(channels[0])
    for i, channel in enumerate(channels):
        channel.basic_publish(amqp.Message(str(i)), "", queue)
        channel.queue_declare(queue, passive=True)
    assert {c.basic_get(queue, no_ack=True).body for c in channels} == {str(i) for i in range(50)}


def test_heartbeat_is_negotiated(broker: Broker) -> None:
    with connect(broker, heartbeat=5) as connection:
        assert connection.heartbeat == 5
        connection.send_heartbeat()
        exclusive_queue(connection.channel())


def test_cancel_by_the_broker(connection: amqp.Connection, name: str) -> None:
    channel, other = connection.channel(), connection.channel()
    channel.queue_declare(name, auto_delete=False)
    cancelled: list[str] = []
    tag = channel.basic_consume(name, on_cancel=cancelled.append)
    other.queue_delete(name)
    while not cancelled:
        connection.drain_events(timeout=60)
    assert cancelled == [tag]
