"""aio-pika (on aiormq and pamqp) against a running broker."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import aio_pika
import aiormq
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractQueue

from support.brokers.brokers import Broker, unique

HEADERS: dict[str, Any] = {
    "true": True,
    "small": 7,
    "negative": -(2**31),
    "long": 2**40,
    "float": 1.5,
    "decimal": Decimal("3.14"),
    "text": "ü" * 300,
    "bytes": bytearray(b"\x00\xff"),
    "time": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "none": None,
    "list": [1, "two", [True, None]],
    "table": {"in": {"ner": "x"}},
}

Test = Callable[[AbstractConnection, AbstractChannel], Awaitable[None]]


@asynccontextmanager
async def opened(broker: Broker) -> AsyncIterator[tuple[AbstractConnection, AbstractChannel]]:
    """A connection with a channel."""
    connection = await aio_pika.connect(broker.uri)
    async with connection:
        yield connection, await connection.channel()


def run(broker: Broker, test: Test) -> None:
    """Run a test with a connection and a channel of it."""

    async def main() -> None:
        async with asyncio.timeout(120), opened(broker) as (connection, channel):
            await test(connection, channel)

    asyncio.run(main())


async def queue_of(channel: AbstractChannel) -> AbstractQueue:
    """A server-named queue."""
    return await channel.declare_queue(exclusive=True)


async def send(channel: AbstractChannel, queue: str, *bodies: bytes) -> None:
    """Publish to a queue, confirmed."""
    for body in bodies:
        await channel.default_exchange.publish(aio_pika.Message(body), queue)


def test_declare_bind_publish_get(broker: Broker, name: str) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        exchange = await channel.declare_exchange(name, "topic", auto_delete=True)
        queue = await queue_of(channel)
        await queue.bind(exchange, "a.*")
        await exchange.publish(aio_pika.Message(b"in"), "a.b")
        await exchange.publish(aio_pika.Message(b"out"), "b.a")
        message = await queue.get(no_ack=True)
        assert (message.body, message.exchange, message.routing_key) == (b"in", name, "a.b")
        assert await queue.get(fail=False) is None
        await queue.unbind(exchange, "a.*")

    run(broker, test)


def test_consume_ack_and_cancel(broker: Broker) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        await channel.set_qos(prefetch_count=10)
        queue = await queue_of(channel)
        sent = [b"%d" % i for i in range(100)]
        sender = asyncio.create_task(send(channel, queue.name, *sent))
        got = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    got.append(message.body)
                if len(got) == len(sent):
                    break
        await sender
        assert got == sent
        declared = await channel.declare_queue(queue.name, passive=True)
        assert declared.declaration_result.message_count == 0

    run(broker, test)


def test_confirms_of_many_publishes_at_once(broker: Broker, name: str) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        queue = await channel.declare_queue(name, durable=True)
        exchange = channel.default_exchange
        mode = aio_pika.DeliveryMode.PERSISTENT
        messages = [aio_pika.Message(b"%d" % i, delivery_mode=mode) for i in range(200)]
        await asyncio.gather(*[exchange.publish(m, name) for m in messages])
        assert (await queue.delete(if_empty=False)).message_count == 200

    run(broker, test)


def test_mandatory_return(broker: Broker, name: str) -> None:
    async def test(connection: AbstractConnection, channel: AbstractChannel) -> None:
        message = aio_pika.Message(b"nowhere", message_id="m")
        returned = await channel.default_exchange.publish(message, name)
        assert returned is not None
        assert not isinstance(returned, aiormq.spec.Basic.Ack)
        strict = await connection.channel(on_return_raises=True)
        with pytest.raises(aio_pika.exceptions.PublishError):
            await strict.default_exchange.publish(message, name)

    run(broker, test)


def test_errors_close_the_channel_only(broker: Broker, name: str) -> None:
    async def test(connection: AbstractConnection, channel: AbstractChannel) -> None:
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity) as missing:
            await channel.declare_queue(name, passive=True)
        assert f"NOT_FOUND - no queue '{name}' in vhost '/'" in str(missing.value)
        channel = await connection.channel()
        await channel.declare_queue(name, exclusive=True)
        with pytest.raises(aio_pika.exceptions.ChannelPreconditionFailed) as unequal:
            await channel.declare_queue(name, exclusive=True, auto_delete=True)
        assert "inequivalent arg 'auto_delete'" in str(unequal.value)
        channel = await connection.channel()
        with pytest.raises(aiormq.exceptions.ChannelAccessRefused):
            await channel.declare_queue("amq." + name)
        await queue_of(await connection.channel())

    run(broker, test)


def test_exclusive_queue_of_another(broker: Broker) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        queue = await queue_of(channel)
        async with opened(broker) as (_, other):
            with pytest.raises(aiormq.exceptions.ChannelLockedResource):
                await other.declare_queue(queue.name, passive=True)

    run(broker, test)


def test_publish_to_a_missing_exchange(broker: Broker, name: str) -> None:
    async def test(connection: AbstractConnection, channel: AbstractChannel) -> None:
        exchange = await channel.get_exchange(name, ensure=False)
        with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
            await exchange.publish(aio_pika.Message(b"x"), "k")
        await queue_of(await connection.channel())

    run(broker, test)


def test_login_and_vhost_errors(broker: Broker) -> None:
    async def main() -> None:
        wrong = broker.uri.replace("guest:guest", "guest:wrong")
        with pytest.raises(aiormq.exceptions.ProbableAuthenticationError):
            await aio_pika.connect(wrong)
        with pytest.raises(aiormq.exceptions.InvalidFrameError, match=r"Connection\.Close"):
            await aio_pika.connect(broker.uri.replace("%2F", unique("no-vhost")))

    asyncio.run(main())


def test_nack_reject_and_redelivered(broker: Broker) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        queue = await queue_of(channel)
        await send(channel, queue.name, b"0", b"1", b"2")
        held = [await queue.get() for _ in range(3)]
        await held[1].nack(multiple=True, requeue=True)
        await held[2].reject(requeue=False)
        got = [await queue.get(no_ack=True, fail=False) for _ in range(3)]
        assert [m and (m.body, m.redelivered) for m in got] == [(b"0", True), (b"1", True), None]

    run(broker, test)


def test_transaction(broker: Broker) -> None:
    async def test(connection: AbstractConnection, _: AbstractChannel) -> None:
        channel = await connection.channel(publisher_confirms=False)
        queue = await queue_of(channel)
        transaction = channel.transaction()
        await transaction.select()
        await send(channel, queue.name, b"undone")
        await transaction.rollback()
        await send(channel, queue.name, b"done")
        assert await queue.get(fail=False) is None
        await transaction.commit()
        message = await queue.get()
        assert message.body == b"done"
        await message.ack()
        await transaction.commit()

    run(broker, test)


def test_header_values_and_properties(broker: Broker) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        queue = await queue_of(channel)
        sent = aio_pika.Message(
            b"body",
            headers=HEADERS,
            content_type="text/plain",
            content_encoding="utf-8",
            delivery_mode=2,
            priority=5,
            correlation_id="c",
            reply_to="r",
            expiration=60,
            message_id="m",
            timestamp=1_700_000_000,
            type="t",
            user_id="guest",
            app_id="a",
        )
        await channel.default_exchange.publish(sent, queue.name)
        got = await queue.get(no_ack=True)
        assert dict(got.headers) == HEADERS
        for field in (
            "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id",
            "reply_to", "expiration", "message_id", "timestamp", "type", "user_id", "app_id",
        ):  # fmt: skip
            assert getattr(got, field) == getattr(sent, field), field

    run(broker, test)


@pytest.mark.parametrize("size", [0, 131_064, 131_065, 1_000_000])
def test_large_bodies(broker: Broker, size: int) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        queue = await queue_of(channel)
        body = bytes(i & 0xFF for i in range(size))
        await send(channel, queue.name, body)
        assert (await queue.get(no_ack=True)).body == body

    run(broker, test)


def test_many_channels_of_any_number(broker: Broker) -> None:
    async def test(connection: AbstractConnection, channel: AbstractChannel) -> None:
        queue = await queue_of(channel)
        channels = [await connection.channel() for _ in range(50)]
        await connection.channel(65_535)
        await asyncio.gather(*[send(c, queue.name, b"m") for c in channels])
        got = [await queue.get(no_ack=True) for _ in channels]
        assert len(got) == 50

    run(broker, test)


def test_robust_connection(broker: Broker) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), await aio_pika.connect_robust(broker.uri) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(unique("robust"), auto_delete=True)
            await send(channel, queue.name, b"m")
            assert (await queue.get(no_ack=True)).body == b"m"
            await queue.delete()

    asyncio.run(main())


def test_server_capabilities(broker: Broker) -> None:
    async def main() -> None:
        connection = await aiormq.connect(broker.uri)
        capabilities: Any = connection.server_properties["capabilities"]
        await connection.close()
        for capability in (
            "publisher_confirms", "exchange_exchange_bindings", "basic.nack",
            "consumer_cancel_notify", "connection.blocked", "consumer_priorities",
            "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
        ):  # fmt: skip
            assert capabilities[capability] is True, capability

    asyncio.run(main())
