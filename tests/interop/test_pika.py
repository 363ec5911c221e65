"""pika against a running broker: what its users do, and what they are told when it goes wrong."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from support.brokers.brokers import Broker, unique

#: What pika can express of header values: it reads floats and does not write them.
HEADERS: dict[str, Any] = {
    "true": True,
    "false": False,
    "small": 7,
    "negative": -(2**31),
    "long": 2**40,
    "decimal": Decimal("3.14"),
    "text": "ü" * 300,
    "bytes": b"\x00\xff",
    "time": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "none": None,
    "list": [1, "two", [True, None]],
    "table": {"in": {"ner": "x"}},
}


@pytest.fixture
def connection(broker: Broker) -> Iterator[pika.BlockingConnection]:
    """An open connection."""
    opened = pika.BlockingConnection(pika.URLParameters(broker.uri))
    yield opened
    if opened.is_open:
        opened.close()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    """A channel of it."""
    return connection.channel()


def exclusive_queue(channel: BlockingChannel) -> str:
    """A server-named queue."""
    queue: str = channel.queue_declare("", exclusive=True).method.queue
    return queue


def test_declare_bind_publish_get(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "topic", auto_delete=True)
    queue = exclusive_queue(channel)
    channel.queue_bind(queue, name, "a.*")
    channel.basic_publish(name, "a.b", b"in")
    channel.basic_publish(name, "b.a", b"out")
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.exchange, method.routing_key, body) == (name, "a.b", b"in")
    assert channel.basic_get(queue) == (None, None, None)
    channel.queue_unbind(queue, name, "a.*")


def test_exchange_to_exchange(channel: BlockingChannel, name: str) -> None:
    inner = name + "-inner"
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.exchange_declare(inner, "direct", auto_delete=True)
    channel.exchange_bind(inner, name)
    queue = exclusive_queue(channel)
    channel.queue_bind(queue, inner, "k")
    channel.basic_publish(name, "k", b"through")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"through"
    channel.exchange_unbind(inner, name)


def test_consume_and_ack(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    got: list[bytes] = []

    def on_message(on: BlockingChannel, method: Any, _: Any, body: bytes) -> None:
        got.append(body)
        on.basic_ack(method.delivery_tag)
        if len(got) == 100:
            on.stop_consuming()

    channel.basic_qos(prefetch_count=10)
    channel.basic_consume(queue, on_message)
    for i in range(100):
        channel.basic_publish("", queue, b"%d" % i)
    channel.start_consuming()
    assert got == [b"%d" % i for i in range(100)]
    assert channel.queue_declare(queue, passive=True).method.message_count == 0


def test_consume_generator_and_cancel(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    for i in range(5):
        channel.basic_publish("", queue, b"%d" % i)
    for method, _, body in channel.consume(queue):
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        if body == b"2":
            break
    channel.cancel()  # requeues what was prefetched
    assert channel.basic_get(queue, auto_ack=True)[2] == b"3"


def test_confirm_and_return(channel: BlockingChannel, name: str) -> None:
    queue = exclusive_queue(channel)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"ok", mandatory=True)
    properties = pika.BasicProperties(message_id="m", headers={"a": 1})
    with pytest.raises(pika.exceptions.UnroutableError) as raised:
        channel.basic_publish("", name, b"nowhere", properties, mandatory=True)
    (returned,) = raised.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.body, returned.properties.message_id) == (b"nowhere", "m")
    channel.basic_publish("", name, b"unroutable and not mandatory")


def test_return_without_confirms(
    connection: pika.BlockingConnection, channel: BlockingChannel, name: str
) -> None:
    returned: list[bytes] = []
    channel.add_on_return_callback(lambda *args: returned.append(args[3]))
    channel.basic_publish("", name, b"nowhere", mandatory=True)
    channel.queue_declare("", exclusive=True)  # a round trip behind the return
    connection.process_data_events()
    assert returned == [b"nowhere"]


def test_persistent_confirmed_on_a_durable_queue(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
    for i in range(20):
        channel.basic_publish("", name, b"%d" % i, properties)
    deleted = channel.queue_delete(name)
    assert deleted.method.message_count == 20


NO_QUEUE = "NOT_FOUND - no queue '{}' in vhost '/'"

ERRORS = [
    (lambda c, n: c.queue_declare(n, passive=True), 404, NO_QUEUE),
    (lambda c, n: c.basic_get(n), 404, NO_QUEUE),
    (lambda c, n: c.queue_bind(n, "amq.direct", "k"), 404, NO_QUEUE),
    (
        lambda c, n: c.exchange_declare(n, passive=True),
        404,
        "NOT_FOUND - no exchange '{}' in vhost '/'",
    ),
    (lambda c, n: c.queue_declare("amq." + n), 403, "ACCESS_REFUSED - queue name 'amq.{}'"),
    (
        lambda c, _: c.exchange_declare("amq.direct", "fanout", durable=True),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/'",
    ),
    (lambda c, _: c.exchange_delete("amq.direct"), 403, "ACCESS_REFUSED"),
]


@pytest.mark.parametrize(("action", "code", "text"), ERRORS)
def test_channel_errors(
    connection: pika.BlockingConnection, name: str, action: Any, code: int, text: str
) -> None:
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
        action(channel, name)
    assert raised.value.reply_code == code
    assert text.format(name) in raised.value.reply_text
    assert connection.is_open
    exclusive_queue(connection.channel())


def test_redeclare_that_differs(connection: pika.BlockingConnection, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
        channel.queue_declare(name, exclusive=True, auto_delete=True)
    assert raised.value.reply_code == 406
    assert raised.value.reply_text == (
        f"PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue '{name}' in vhost '/': "
        "received 'true' but current is 'false'"
    )


def test_exclusive_queue_of_another(broker: Broker, channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as other:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
            other.channel().basic_consume(queue, lambda *_: None)
        assert raised.value.reply_code == 405


def test_publish_to_a_missing_exchange(channel: BlockingChannel, name: str) -> None:
    channel.basic_publish(name, "k", b"x")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
        channel.queue_declare("", exclusive=True)
    assert raised.value.reply_code == 404


def test_wrong_password(broker: Broker) -> None:
    parameters = pika.URLParameters(broker.uri)
    parameters.credentials = pika.PlainCredentials("guest", "wrong")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


def test_missing_vhost(broker: Broker) -> None:
    parameters = pika.URLParameters(broker.uri)
    parameters.virtual_host = unique("no-vhost")
    with pytest.raises(
        pika.exceptions.ProbableAccessDeniedError, match=r"530.*NOT_ALLOWED - vhost"
    ):
        pika.BlockingConnection(parameters)


def test_hard_error_closes_the_connection(
    connection: pika.BlockingConnection, channel: BlockingChannel
) -> None:
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as raised:
        channel.basic_qos(prefetch_size=10)
    assert raised.value.reply_code == 540
    assert connection.is_closed


def test_nack_reject_and_redelivered(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    for i in range(3):
        channel.basic_publish("", queue, b"%d" % i)
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(3)]
    channel.basic_nack(tags[1], multiple=True, requeue=True)
    channel.basic_reject(tags[2], requeue=False)
    got = [channel.basic_get(queue, auto_ack=True) for _ in range(3)]
    assert [body for _, _, body in got] == [b"0", b"1", None]
    assert [method.redelivered for method, _, _ in got[:2]] == [True, True]


def test_recover(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    channel.basic_publish("", queue, b"m")
    assert channel.basic_get(queue)[2] == b"m"
    channel.basic_recover(requeue=True)
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.redelivered, body) == (True, b"m")


def test_prefetch(connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    for i in range(5):
        channel.basic_publish("", queue, b"%d" % i)
    consumer = connection.channel()
    tags: list[int] = []
    consumer.basic_qos(prefetch_count=2)
    consumer.basic_consume(queue, lambda _, method, __, ___: tags.append(method.delivery_tag))
    assert channel.queue_declare(queue, passive=True).method.message_count == 3
    connection.process_data_events()
    assert tags == [1, 2]
    consumer.basic_ack(2, multiple=True)
    assert consumer.queue_declare(queue, passive=True).method.message_count == 1


def test_transactions(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    channel.tx_select()
    channel.basic_publish("", queue, b"undone")
    channel.tx_rollback()
    channel.basic_publish("", queue, b"done")
    assert channel.basic_get(queue)[2] is None
    channel.tx_commit()
    assert channel.basic_get(queue)[2] == b"done"


def test_header_values_and_properties(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers=HEADERS,
        delivery_mode=2,
        priority=5,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    channel.basic_publish("", queue, b"body", sent)
    _, got, body = channel.basic_get(queue, auto_ack=True)
    assert body == b"body"
    expected = HEADERS | {"time": got.headers["time"]}  # pika reads times without a zone
    assert got.headers == expected
    assert got.headers["time"].replace(tzinfo=dt.UTC) == HEADERS["time"]
    names = vars(sent).keys() - {"headers"}
    assert {n: getattr(got, n) for n in names} == {n: getattr(sent, n) for n in names}


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 1_000_000])
def test_large_bodies(channel: BlockingChannel, size: int) -> None:
    queue = exclusive_queue(channel)
    body = bytes(i & 0xFF for i in range(size))
    channel.basic_publish("", queue, body)
    assert channel.basic_get(queue, auto_ack=True)[2] == body


def test_many_channels(connection: pika.BlockingConnection) -> None:
    channels = [connection.channel() for _ in range(50)]
    queue = exclusive_queue(channels[0])
    for i, channel in enumerate(channels):
        channel.basic_publish("", queue, b"%d" % i)
        channel.queue_declare(queue, passive=True)
    got = {channel.basic_get(queue, auto_ack=True)[2] for channel in channels}
    assert got == {b"%d" % i for i in range(50)}


def test_cancel_by_the_broker(connection: pika.BlockingConnection, name: str) -> None:
    channel, other = connection.channel(), connection.channel()
    channel.queue_declare(name)
    channel.basic_consume(name, lambda *_: None)
    other.queue_delete(name)
    channel.start_consuming()  # ends, as its only consumer was cancelled
    assert channel.consumer_tags == []


def test_heartbeats_keep_an_idle_connection(broker: Broker) -> None:
    parameters = pika.URLParameters(broker.uri)
    parameters.heartbeat = 1
    with pika.BlockingConnection(parameters) as connection:
        connection.process_data_events(time_limit=3)
        exclusive_queue(connection.channel())


def test_a_body_of_20_mb(channel: BlockingChannel, name: str) -> None:
    """What real programs send to a broker of default settings: confirmed, and consumed."""
    body = bytes(range(250)) * 80_000
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    persistent = pika.BasicProperties(delivery_mode=2)
    channel.basic_publish("", name, body, persistent, mandatory=True)
    method, _, got = next(channel.consume(name, inactivity_timeout=60))
    assert got == body
    channel.basic_ack(method.delivery_tag)
    channel.queue_delete(name)


def test_server_properties(connection: pika.BlockingConnection) -> None:
    assert connection.basic_nack_supported
    assert connection.consumer_cancel_notify_supported
    assert connection.exchange_exchange_bindings_supported
    assert connection.publisher_confirms_supported


def test_update_secret(connection: pika.BlockingConnection) -> None:
    connection.update_secret("another than the password", "rotated")
    exclusive_queue(connection.channel())
