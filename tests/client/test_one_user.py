"""A connection that several threads or loops use: a clear error, or what was asked for.

What must never come is an error of the protocol that the broker did not send, or a lost message.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from leveret import client
from leveret.client import Channel, Connection, ConnectionInUse, Message, blocking

SECONDS = 60.0


@pytest.fixture
def connection(broker_uri: str) -> Iterator[blocking.Connection]:
    """An open connection."""
    with blocking.connect(broker_uri) as opened:
        yield opened


# -- blocking --------------------------------------------------------------------------------------


def test_no_call_of_a_consumer_gets_between_those_of_another_thread(
    connection: blocking.Connection,
) -> None:
    channel = connection.channel()
    queue = channel.queue_declare(exclusive=True).queue
    for body in (b"1", b"2"):
        channel.publish(body, routing_key=queue)
    consumer = channel.consume(queue)
    message = next(consumer)
    other = channel.queue_declare(exclusive=True).queue
    inside, leave = threading.Event(), threading.Event()

    def stay(_: Message) -> None:
        inside.set()
        assert leave.wait(SECONDS)

    channel.consume(other, stay, no_ack=True)
    channel.publish(b"call", routing_key=other)
    worker = threading.Thread(target=connection.process, args=(SECONDS,), name="the worker")
    worker.start()
    assert inside.wait(SECONDS)
    calls: list[Callable[[], object]] = [
        lambda: next(consumer),  # one waits in the buffer
        consumer.cancel,
        lambda: consumer.__exit__(None, None, None),
        message.ack,
        message.nack,
        message.reject,
        message.process().__enter__().ack,
        channel.confirm_select,
        channel.wait_for_confirms,
        lambda: channel.consume(queue),
        lambda: channel.consume_columns(queue),
        lambda: connection.update_secret("new"),
    ]
    for call in calls:
        with pytest.raises(ConnectionInUse, match=r"'MainThread' .* of thread 'the worker'"):
            call()
    leave.set()
    worker.join()
    message.ack()
    assert next(consumer).body == b"2"
    consumer.cancel()


def test_each_call_of_many_threads_is_done_whole_or_not_at_all(
    connection: blocking.Connection,
) -> None:
    channel = connection.channel()
    channel.confirm_select()
    queue = channel.queue_declare(exclusive=True).queue
    consumer = channel.consume(queue, inactivity_timeout=0.01)
    published: list[int] = []
    consumed: list[Message] = []

    def publish(first: int) -> None:
        for number in range(first, first + 30):
            with contextlib.suppress(ConnectionInUse):
                channel.publish(b"%d" % number, routing_key=queue)
                published.append(number)

    def consume() -> None:
        for _ in range(30):
            with contextlib.suppress(ConnectionInUse):
                if message := next(consumer, None):
                    consumed.append(message)

    with ThreadPoolExecutor(4) as threads:
        tasks = [threads.submit(publish, 0), threads.submit(publish, 30)]
        tasks += [threads.submit(consume), threads.submit(consume)]
        for task in tasks:
            task.result(SECONDS)
    while len(consumed) < len(published):
        consumed += consumer
    assert sorted(int(message.body) for message in consumed) == sorted(published)
    assert len(published) > 0
    assert connection.input_bytes == 0
    for message in consumed:
        message.ack()
    channel.recover()
    assert channel.queue_declare(queue, passive=True).message_count == 0


# -- asyncio ---------------------------------------------------------------------------------------


def calls_of(
    connection: Connection, channel: Channel, message: Message, consumer: client.Consumer
) -> list[Callable[[], object]]:
    """Return every kind of call; those that are awaited return what to await."""
    return [
        message.ack,
        message.nack,
        message.reject,
        lambda: channel.ack(multiple=True),
        lambda: channel.publish_nowait(b"x"),
        lambda: channel.publish(b"x"),
        lambda: channel.get("queue"),
        lambda: channel.qos(1),
        channel.wait_for_confirms,
        channel.close,
        lambda: anext(consumer),
        connection.channel,
        lambda: connection.update_secret("new"),
        connection.close,
    ]


async def run(call: Callable[[], object]) -> None:
    """Make a call, and await what it returns."""
    result = call()
    if isinstance(result, Awaitable):
        await result


def test_another_thread_gets_a_clear_error_and_changes_nothing(broker_uri: str) -> None:
    async def use() -> None:
        async with asyncio.timeout(SECONDS), client.connect(broker_uri) as connection:
            channel = await connection.channel()
            await channel.confirm_select()
            queue = (await channel.queue_declare(exclusive=True)).queue
            await channel.publish(b"1", routing_key=queue)
            await channel.publish(b"2", routing_key=queue)
            consumer = await channel.consume(queue)
            message = await anext(consumer)
            for call in calls_of(connection, channel, message, consumer):
                with pytest.raises(ConnectionInUse, match=r"called from another thread"):
                    await asyncio.to_thread(asyncio.run, run(call))
            message.ack()
            second = await anext(consumer)
            second.ack()
            assert (second.body, channel.unconfirmed_count) == (b"2", 0)
            await channel.recover()
            assert await channel.queue_delete(queue) == 0

    asyncio.run(use())


def test_another_loop_gets_a_clear_error(broker_uri: str) -> None:
    async def opened() -> tuple[Connection, Channel, Message, client.Consumer]:
        connection = await client.connect(broker_uri)
        channel = await connection.channel()
        queue = (await channel.queue_declare(exclusive=True)).queue
        await channel.publish(b"1", routing_key=queue)
        consumer = await channel.consume(queue)
        return connection, channel, await anext(consumer), consumer

    loop = asyncio.new_event_loop()
    connection, channel, message, consumer = loop.run_until_complete(opened())
    for call in calls_of(connection, channel, message, consumer):
        with pytest.raises(ConnectionInUse, match=r"called from another event loop"):
            asyncio.run(run(call))
    message.ack()  # between two runs of its own loop
    loop.run_until_complete(connection.close())
    loop.close()
    with pytest.raises(ConnectionInUse, match="its own loop has ended"):
        message.ack()


def test_a_channel_and_a_connection_may_be_entered_without_await(broker_uri: str) -> None:
    async def use() -> None:
        async with client.connect(broker_uri) as connection:
            async with connection.channel() as channel:
                await channel.qos(1)
                states = [channel.is_open]
            states.append(channel.is_open)
            awaited = await connection.channel()
            task = await asyncio.create_task(connection.channel())
            both = await asyncio.gather(connection.channel(), connection.channel())
            assert len({one.number for one in (awaited, task, *both)}) == 4
            assert states == [True, False]
        assert not connection.is_open

    asyncio.run(use())
