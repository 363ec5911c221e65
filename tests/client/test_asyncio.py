"""The asyncio shell against a running broker: every operation, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from leveret.client import (
    BasicProperties,
    Channel,
    Closed,
    Connection,
    Consumer,
    ConsumerCancelled,
    Message,
    Returned,
    ReturnedMessage,
    connect,
    parse_uri,
)
from leveret.client.uri import Parameters
from leveret.errors import (
    AccessRefusedHard,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from support.brokers.brokers import unique

SECONDS = 60.0
QUIET_SECONDS = 0.2


def in_loop(test: Callable[[Channel], Coroutine[Any, Any, None]]) -> Callable[[str], None]:
    """Run a coroutine test with a channel of a connection of its own."""

    async def run(broker_uri: str) -> None:
        async with asyncio.timeout(60), await connect(broker_uri) as connection:
            await test(await connection.channel())

    def wrapped(broker_uri: str) -> None:
        asyncio.run(run(broker_uri))

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


async def take(consumer: Consumer, count: int) -> list[bytes]:
    """Return the bodies of the next messages."""
    return [(await asyncio.wait_for(anext(consumer), SECONDS)).body for _ in range(count)]


async def fill(channel: Channel, queue: str, *bodies: bytes) -> None:
    """Publish bodies to a queue, confirmed."""
    await channel.confirm_select()
    for one in bodies:
        await channel.publish(one, routing_key=queue)


async def own_queue(channel: Channel) -> str:
    """Return a new exclusive queue."""
    return (await channel.queue_declare(exclusive=True)).queue


async def is_quiet(awaited: Awaitable[object]) -> bool:
    """Tell whether nothing comes of `awaited` for a while."""
    try:
        await asyncio.wait_for(awaited, QUIET_SECONDS)
    except TimeoutError:
        return True
    return False


# -- connections -----------------------------------------------------------------------------------


def test_a_connection_opens_and_closes(broker_uri: str) -> None:
    async def scenario() -> None:
        connection = await connect(broker_uri, connection_name="test")
        states = [connection.is_open]
        assert connection.server_properties["product"]
        assert "guest:guest" not in repr(connection)
        for _ in range(2):
            await connection.close()
            states.append(connection.is_open)
        assert states == [True, False, False]
        await connection.wait_closed()
        with pytest.raises(Closed):
            await connection.channel()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("username", "vhost", "kind"),
    [("nobody", "/", AccessRefusedHard), ("guest", "nowhere", NotAllowed)],
)
def test_a_refused_connection(
    broker_uri: str, username: str, vhost: str, kind: type[Exception]
) -> None:
    """Behaviours 3 (refused logins) and 6 (unknown vhost)."""
    right = parse_uri(broker_uri)
    with pytest.raises(kind):
        asyncio.run(connect(Parameters(right.host, right.port, username, "guest", vhost)))


def test_nobody_listens() -> None:
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(connect("amqp://127.0.0.1:1"))


def test_closing_the_connection_ends_everything(broker_uri: str) -> None:
    async def scenario() -> None:
        connection = await connect(broker_uri)
        channel = await connection.channel()
        queue = await own_queue(channel)
        consumer = await channel.consume(queue)
        reading = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(StopAsyncIteration):
            await reading
        assert [message async for message in consumer] == []
        with pytest.raises(Closed):
            await channel.get(queue)

    asyncio.run(scenario())


# -- queues and exchanges --------------------------------------------------------------------------


@in_loop
async def test_the_life_of_a_queue(channel: Channel) -> None:
    name = unique()
    assert await channel.queue_declare(name, auto_delete=True) == (name, 0, 0)
    await fill(channel, name, b"1", b"2", b"3")
    assert (await channel.queue_declare(name, passive=True, auto_delete=True)).message_count == 3
    assert await channel.queue_purge(name) == 3
    await fill(channel, name, b"4")
    with pytest.raises(PreconditionFailed):
        await channel.queue_delete(name, if_empty=True)
    async with await channel.connection.channel() as other:
        assert await other.queue_delete(name) == 1


@in_loop
async def test_a_missing_queue_closes_the_channel_and_each_later_use_says_so(
    channel: Channel,
) -> None:
    """Behaviours 34 (delete when missing) and 47 (passive declare, delete, purge)."""
    name = unique()
    for _ in range(2):
        with pytest.raises(NotFound, match=f"404 NOT_FOUND - no queue '{name}' in vhost '/'"):
            await channel.queue_declare(name, passive=True)
    with pytest.raises(NotFound):
        await channel.publish(b"", routing_key=name)
    with pytest.raises(NotFound):
        channel.publish_nowait(b"", routing_key=name)
    assert isinstance(channel.error, NotFound)


def test_another_connections_queue(broker_uri: str) -> None:
    """Behaviour 44 (exclusive queue)."""

    async def scenario() -> None:
        async with await connect(broker_uri) as one, await connect(broker_uri) as two:
            queue = await own_queue(await one.channel())
            channel = await two.channel()
            with pytest.raises(ResourceLocked):
                await channel.get(queue)

    asyncio.run(scenario())


@in_loop
async def test_exchanges_and_bindings(channel: Channel) -> None:
    queue, name = await own_queue(channel), unique()
    await channel.exchange_declare(name, "topic")
    await channel.exchange_declare(f"{name}-from", "fanout", durable=False)
    await channel.exchange_bind(name, f"{name}-from")
    await channel.queue_bind(queue, name, "a.#")
    await channel.confirm_select()
    await channel.publish(b"1", f"{name}-from", "a.b")
    await channel.publish(b"2", name, "b.a")
    await channel.exchange_unbind(name, f"{name}-from")
    await channel.queue_unbind(queue, name, "a.#")
    await channel.publish(b"3", name, "a.b")
    assert await take(channel.consume(queue, no_ack=True), 1) == [b"1"]
    await channel.exchange_delete(name)
    await channel.exchange_delete(f"{name}-from")
    assert await channel.get(queue) is None


@in_loop
async def test_requests_of_many_tasks_on_one_channel(channel: Channel) -> None:
    names = [unique() for _ in range(20)]
    made = await asyncio.gather(*[channel.queue_declare(n, exclusive=True) for n in names])
    assert [declared.queue for declared in made] == names


# -- publishing ------------------------------------------------------------------------------------


@in_loop
async def test_properties_come_back(channel: Channel) -> None:
    queue = await own_queue(channel)
    sent = BasicProperties(headers={"a": [1, {"b": b"\xff"}]}, delivery_mode=2, type="t")
    await channel.publish(b"body", "", queue, sent)
    await channel.qos(1)
    message = await channel.get(queue, no_ack=True)
    assert message is not None
    assert (message.body, message.properties) == (b"body", sent)


@in_loop
async def test_a_mandatory_message_that_nobody_takes(channel: Channel) -> None:
    """Behaviour 24 (return before confirm), among publishes that are taken."""
    queue, nowhere = await own_queue(channel), unique()
    await channel.confirm_select()
    keys = [queue, nowhere] * 50
    publishes = [channel.publish(b"x", "", key, mandatory=True) for key in keys]
    results = await asyncio.gather(*publishes, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), Returned] * 50
    assert all(isinstance(r, Returned) and r.message.routing_key == nowhere for r in results[1::2])


@in_loop
async def test_a_window_of_publishes(channel: Channel) -> None:
    queue = await own_queue(channel)
    with pytest.raises(ValueError, match="not in confirm mode"):
        await channel.wait_for_confirms()
    await channel.confirm_select()
    sequences = [channel.publish_nowait(b"x" * 100, routing_key=queue) for _ in range(5000)]
    assert sequences == list(range(1, 5001))
    await channel.wait_for_confirms()
    assert channel.unconfirmed_count == 0
    channel.publish_nowait(b"y", routing_key=unique(), mandatory=True)
    with pytest.raises(Returned):
        await channel.wait_for_confirms()
    await channel.wait_for_confirms()
    assert (await channel.queue_declare(queue, passive=True)).message_count == 5000


@in_loop
async def test_returns_without_confirm_mode(channel: Channel) -> None:
    returned: list[ReturnedMessage] = []
    name = unique()
    channel.on_return(returned.append)
    await channel.publish(b"body", routing_key=name, mandatory=True)
    await channel.qos(1)  # its reply comes after the return
    assert [message.routing_key for message in returned] == [name]


@in_loop
async def test_a_missing_exchange(channel: Channel) -> None:
    """Behaviour 18 (missing exchange)."""
    await channel.confirm_select()
    name = unique()
    publishes = [channel.publish(b"x", name) for _ in range(3)]
    results = await asyncio.gather(*publishes, return_exceptions=True)
    assert [type(result) for result in results] == [NotFound] * 3
    with pytest.raises(NotFound):
        await channel.wait_for_confirms()


@in_loop
async def test_transactions(channel: Channel) -> None:
    queue = await own_queue(channel)
    await channel.tx_select()
    await channel.publish(b"1", routing_key=queue)
    await channel.tx_rollback()
    await channel.publish(b"2", routing_key=queue)
    assert await channel.get(queue) is None
    await channel.tx_commit()
    message = await channel.get(queue)
    assert message is not None
    assert message.body == b"2"


# -- consuming -------------------------------------------------------------------------------------


@in_loop
async def test_iterating(channel: Channel) -> None:
    queue = await own_queue(channel)
    await fill(channel, queue, b"1", b"2", b"3")
    await channel.qos(1)
    seen = []
    async for message in channel.consume(queue, consumer_tag="mine"):
        assert message.consumer_tag == "mine"
        seen.append(message.body)
        message.ack()
        if len(seen) == 3:
            break
    assert seen == [b"1", b"2", b"3"]


@in_loop
async def test_leaving_a_consumer_gives_back_what_was_not_handed_out(channel: Channel) -> None:
    queue = await own_queue(channel)
    await fill(channel, queue, b"1", b"2", b"3")
    async with channel.consume(queue) as consumer:
        async for message in consumer:
            message.ack()
            break
    assert (await channel.queue_declare(queue, passive=True)).consumer_count == 0
    assert await take(channel.consume(queue), 2) == [b"2", b"3"]


@in_loop
async def test_cancel_hands_out_what_has_come(channel: Channel) -> None:
    queue = await own_queue(channel)
    await fill(channel, queue, b"1", b"2")
    consumer = await channel.consume(queue)
    assert await take(consumer, 1) == [b"1"]
    await consumer.cancel()
    await consumer.cancel()
    assert [message.body async for message in consumer] == [b"2"]
    assert [message.body async for message in consumer] == []


@in_loop
async def test_many_tasks_share_a_consumer(channel: Channel) -> None:
    queue = await own_queue(channel)
    consumer = channel.consume(queue)
    tasks = [asyncio.create_task(take(consumer, 2)) for _ in range(3)]
    await fill(channel, queue, *[b"%d" % number for number in range(6)])
    taken = [body for bodies in await asyncio.gather(*tasks) for body in bodies]
    assert sorted(taken) == [b"%d" % number for number in range(6)]


@in_loop
async def test_a_task_that_stops_waiting_loses_no_message(channel: Channel) -> None:
    queue = await own_queue(channel)
    consumer = await channel.consume(queue)
    assert await is_quiet(anext(consumer))
    await fill(channel, queue, b"1")
    assert await take(consumer, 1) == [b"1"]


@in_loop
async def test_a_get_that_nobody_awaits_any_more_gives_its_message_back(channel: Channel) -> None:
    queue = await own_queue(channel)
    await fill(channel, queue, b"1")
    getting = asyncio.create_task(channel.get(queue))
    await asyncio.sleep(0)
    getting.cancel()
    await channel.qos(1)
    message = await channel.get(queue)
    assert message is not None
    assert message.redelivered


@in_loop
async def test_a_consumer_that_nobody_awaits_any_more_is_cancelled(channel: Channel) -> None:
    queue = await own_queue(channel)
    starting = asyncio.create_task(take(channel.consume(queue), 1))
    await asyncio.sleep(0)
    starting.cancel()
    await channel.qos(1)
    await channel.qos(1)
    assert (await channel.queue_declare(queue, passive=True)).consumer_count == 0


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_callback(broker_uri: str, is_coroutine: bool) -> None:
    async def scenario(connection: Connection) -> None:
        channel = await connection.channel()
        queue = await own_queue(channel)
        seen: list[bytes] = []
        done = asyncio.Event()

        def callback(message: Message) -> None:
            seen.append(message.body)
            message.ack()
            if len(seen) == 2:
                done.set()

        async def coroutine(message: Message) -> None:
            await channel.qos(1)
            callback(message)

        async with await channel.consume(queue, coroutine if is_coroutine else callback):
            await fill(channel, queue, b"1", b"2")
            await asyncio.wait_for(done.wait(), SECONDS)
        assert seen == [b"1", b"2"]
        declared = await channel.queue_declare(queue, passive=True)
        assert (declared.message_count, declared.consumer_count) == (0, 0)

    async def run() -> None:
        async with await connect(broker_uri) as connection:
            await scenario(connection)

    asyncio.run(run())


@in_loop
async def test_a_callback_that_fails_ends_its_consumer_and_nothing_else(channel: Channel) -> None:
    queue = await own_queue(channel)

    def callback(message: Message) -> None:
        raise LookupError(message.body)

    consumer = await channel.consume(queue, callback)
    await fill(channel, queue, b"1")
    with pytest.raises(LookupError):
        await asyncio.wait_for(consumer.wait(), SECONDS)
    declared = await channel.queue_declare(queue, passive=True)
    assert declared.consumer_count == 0
    assert channel.is_open
    await channel.recover()
    message = await channel.get(queue)
    assert message is not None


@in_loop
async def test_the_broker_cancels(channel: Channel) -> None:
    """Behaviour 54 (server cancels)."""
    name = unique()
    await channel.queue_declare(name)
    iterated = await channel.consume(name)
    called = await channel.consume(name, Message.ack)
    reading = asyncio.create_task(take(iterated, 1))
    await channel.queue_delete(name)
    for waiting in (reading, anext(iterated), called.wait()):
        with pytest.raises(ConsumerCancelled):
            await asyncio.wait_for(waiting, SECONDS)
    await iterated.cancel()


@in_loop
async def test_messages_that_count_as_acked_are_handed_out_before_the_end_is_told(
    channel: Channel,
) -> None:
    name = unique()
    await channel.queue_declare(name)
    await fill(channel, name, b"1", b"2")
    consumer = await channel.consume(name, no_ack=True)
    await channel.queue_delete(name)
    assert await take(consumer, 2) == [b"1", b"2"]
    with pytest.raises(ConsumerCancelled):
        await anext(consumer)


@in_loop
async def test_the_end_of_the_channel_ends_its_consumers(channel: Channel) -> None:
    queue = await own_queue(channel)
    await fill(channel, queue, b"1", b"2")
    consumer = channel.consume(queue)
    message = await anext(consumer)
    reading = asyncio.create_task(take(consumer, 2))
    with pytest.raises(NotFound):
        await channel.queue_declare(unique("nowhere"), passive=True)
    with pytest.raises(NotFound):
        await reading
    with pytest.raises(NotFound):
        message.ack()


@in_loop
async def test_a_consumer_that_cannot_start(channel: Channel) -> None:
    consumer = channel.consume(unique("nowhere"))
    with pytest.raises(NotFound):
        await consumer
    with pytest.raises(Closed):
        await consumer


@in_loop
async def test_messages_that_nobody_takes_stay_with_the_broker(channel: Channel) -> None:
    """Reading pauses, and goes on for a reply that comes behind the messages."""
    connection = channel.connection
    connection.input_bytes_high = 100_000
    queue = await own_queue(channel)
    await fill(channel, queue, *[b"x" * 10_000] * 2000)
    consumer = await channel.consume(queue, no_ack=True)
    await asyncio.wait_for(until(lambda: not connection.is_reading), SECONDS)
    held = connection.input_bytes
    assert await is_quiet(asyncio.Event().wait())
    assert connection.input_bytes == held
    assert 100_000 < held < 10_000_000
    await asyncio.wait_for(channel.qos(1), SECONDS)
    assert len(await take(consumer, 2000)) == 2000
    assert connection.input_bytes == 0
    assert connection.is_reading


@in_loop
async def test_a_connection_that_reads_nothing_closes_at_once(channel: Channel) -> None:
    connection = channel.connection
    connection.input_bytes_high = 100_000
    queue = await own_queue(channel)
    await fill(channel, queue, *[b"x" * 10_000] * 2000)
    async with channel.consume(queue):
        await asyncio.wait_for(until(lambda: not connection.is_reading), SECONDS)
        await asyncio.wait_for(connection.close(), SECONDS)
    assert connection.error is None


@in_loop
async def test_a_channel_that_nobody_awaits_any_more_is_closed(channel: Channel) -> None:
    opening = asyncio.create_task(channel.connection.channel())
    await asyncio.sleep(0)
    opening.cancel()
    await channel.qos(1)
    await channel.qos(1)
    assert len(channel.connection.session.channels) == 1


async def until(done: Callable[[], bool]) -> None:
    """Let the loop run until `done` says so."""
    for _ in range(10**9):
        if done():
            return
        await asyncio.sleep(0)


@in_loop
async def test_a_browse_hands_out_everything_before_its_end(channel: Channel) -> None:
    queue = await own_queue(channel)
    await fill(channel, queue, b"1", b"2", b"3")
    for no_ack in (False, True):
        browse = await channel.consume(queue, no_ack=no_ack, arguments={"x-browse": True})
        # The reply comes after the broker's cancel, so that the end is known before the messages.
        await channel.queue_declare(queue, passive=True)
        assert await take(browse, 3) == [b"1", b"2", b"3"]
        with pytest.raises(ConsumerCancelled):
            await asyncio.wait_for(anext(browse), SECONDS)


@in_loop
async def test_messages_that_came_before_the_broker_cancelled_can_be_acked(
    channel: Channel,
) -> None:
    name = unique()
    await channel.queue_declare(name)
    await fill(channel, name, b"1", b"2")
    consumer = await channel.consume(name)
    await channel.queue_delete(name)
    taken = [await asyncio.wait_for(anext(consumer), SECONDS) for _ in range(2)]
    assert [message.body for message in taken] == [b"1", b"2"]
    for message in taken:
        message.ack()
    await channel.queue_declare(name)
    await channel.queue_delete(name)
