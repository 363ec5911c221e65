"""Properties as keyword arguments of publishes, in both shells and in producers."""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from typing import Any

import pytest

from leveret import BlockingProducer, Producer
from leveret.client import BasicProperties, Channel, blocking, connect
from leveret.client.options import with_options

GIVEN: dict[str, Any] = {
    "headers": {"tenant": "ada"},
    "priority": 4,
    "expiration": 60,
    "delay": timedelta(minutes=2),
    "message_id": "m-1",
}

SENT = BasicProperties(
    headers={"tenant": "ada", "x-delay": 120_000},
    priority=4,
    expiration="60000",
    message_id="m-1",
    delivery_mode=2,
)


def test_both_shells_publish_with_options(broker_uri: str) -> None:
    with blocking.connect(broker_uri) as connection, connection.channel() as channel:
        queue = channel.queue_declare(exclusive=True).queue
        channel.publish(b"1", routing_key=queue, **GIVEN)
        channel.publish_nowait(b"2", routing_key=queue, **GIVEN)
        for _ in range(2):
            message = channel.get(queue, no_ack=True)
            assert message is not None
            assert repr(message.properties) == repr(SENT)

    async def main() -> None:
        async with connect(broker_uri) as connection, connection.channel() as channel:
            queue = (await channel.queue_declare(exclusive=True)).queue
            await channel.publish(b"1", routing_key=queue, **GIVEN)
            channel.publish_nowait(b"2", routing_key=queue, **GIVEN)
            for _ in range(2):
                message = await channel.get(queue, no_ack=True)
                assert message is not None
                assert repr(message.properties) == repr(SENT)

    asyncio.run(main())


def test_an_exchange_delays_a_message(broker_uri: str, name: str) -> None:
    with blocking.connect(broker_uri) as connection, connection.channel() as channel:
        kind = {"x-delayed-type": "direct"}
        channel.exchange_declare(name, "x-delayed-message", arguments=kind)
        queue = channel.queue_declare(exclusive=True).queue
        channel.queue_bind(queue, name, "key")
        channel.confirm_select()
        channel.publish(b"in an hour", name, "key", delay=timedelta(hours=1))
        channel.publish(b"soon", name, "key", delay=0.01)
        assert next(channel.consume(queue, no_ack=True)).body == b"soon"
        channel.exchange_delete(name)


def test_options_take_precedence_and_headers_are_added() -> None:
    properties = BasicProperties(headers={"a": 1, "b": 2}, priority=1, app_id="app")
    sent = with_options(properties, {"headers": {"b": 3}, "priority": 2})
    expected = BasicProperties(headers={"a": 1, "b": 3}, priority=2, app_id="app")
    assert repr(sent) == repr(expected)
    assert properties.headers == {"a": 1, "b": 2}
    assert repr(with_options(properties, {"priority": None})) == repr(properties)
    assert with_options(None, {"expiration": "250"}).expiration == "250"


@pytest.mark.parametrize(
    ("option", "value", "error", "text"),
    [
        ("delay", -1, ValueError, "delay is -1: it must be 0 or more seconds"),
        ("delay", float("nan"), ValueError, "delay is nan"),
        ("delay", "5", TypeError, "delay must be seconds or a timedelta, not str"),
        ("expiration", float("inf"), ValueError, "expiration is inf"),
        ("expiration", True, TypeError, "expiration must be seconds or a timedelta, not bool"),
        ("priorty", 4, TypeError, "there is no keyword argument 'priorty'; there are content_type"),
        ("priority", "high", TypeError, "priority"),
    ],
)
def test_an_invalid_option_is_refused(
    option: str, value: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        with_options(None, {option: value})  # type: ignore[arg-type]  # what a typo does


def test_help_shows_the_options() -> None:
    for publish in (
        Channel.publish,
        Channel.publish_nowait,
        blocking.Channel.publish,
        blocking.Channel.publish_nowait,
        blocking.Connection.request,
    ):
        assert {"headers", "priority", "delay"} < set(inspect.signature(publish).parameters)
    assert "delay" not in inspect.signature(Producer.deliver).parameters


def test_a_producer_delivers_with_options(broker_uri: str, name: str) -> None:
    with (
        blocking.connect(broker_uri) as connection,
        connection.channel() as channel,
        BlockingProducer(name, uri=broker_uri) as producer,
    ):
        queue = channel.queue_declare(exclusive=True).queue
        channel.queue_bind(queue, name)
        assert producer.deliver(b"1", headers={"tenant": "ada"}, priority=4).is_confirmed
        message = channel.get(queue, no_ack=True)
        assert message is not None
        assert (message.headers, message.properties.priority) == ({"tenant": "ada"}, 4)
        with pytest.raises(TypeError, match="there is no keyword argument 'delay'"):
            producer.deliver(b"2", delay=1)  # type: ignore[call-arg]  # a fanout cannot delay
        channel.exchange_delete(name)
