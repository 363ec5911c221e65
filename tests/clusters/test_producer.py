"""A producer's acknowledgements: confirmed, returned, refused, failed; and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leveret import BlockingProducer, ClusterMismatch, DeliveryStatus, Outgoing, Producer
from leveret.client import BasicProperties, Channel, Closed, ConnectionLost, connect, parse_uri
from leveret.errors import NotFound
from support.clusters.handled import SECONDS
from support.wire.cut_proxy import CutProxy

Test = Callable[[Producer, Channel], Awaitable[None]]


def with_producer(uri: str, topic: str, test: Test, window: int = 1000) -> None:
    """Run a test with a producer, and a channel of another connection to look with."""

    async def run() -> None:
        async with (
            asyncio.timeout(SECONDS),
            await connect(uri) as connection,
            Producer(topic, uri=uri, window=window) as producer,
        ):
            await test(producer, await connection.channel())

    asyncio.run(run())


async def bound_queue(channel: Channel, topic: str, **arguments: object) -> str:
    """Declare a queue that gets what is delivered to the topic."""
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    queue = (await channel.queue_declare(exclusive=True, arguments=named)).queue
    await channel.queue_bind(queue, topic)
    return queue


def test_a_delivery_that_nobody_subscribed_to_is_returned(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer, channel: Channel) -> None:
        acknowledgement = await producer.deliver(b"x")
        assert acknowledgement.status is DeliveryStatus.RETURNED
        assert not acknowledgement.is_confirmed

    with_producer(broker_uri, topic, test)


def test_a_confirmed_delivery_is_persistent_and_has_its_id_and_key(
    broker_uri: str, topic: str
) -> None:
    async def test(producer: Producer, channel: Channel) -> None:
        queue = await bound_queue(channel, topic)
        first = await producer.deliver(b"1", "customer 17")
        given = BasicProperties(message_id="mine", delivery_mode=1, headers={"a": 1})
        second = await producer.deliver(bytearray(b"2"), properties=given)
        assert first.status is second.status is DeliveryStatus.CONFIRMED
        messages = [await channel.get(queue, no_ack=True) for _ in range(2)]
        assert messages[0] is not None
        assert messages[1] is not None
        assert messages[0].routing_key == "customer 17"
        assert messages[0].properties.delivery_mode == 2
        assert messages[0].properties.message_id == first.message_id
        assert (messages[1].body, second.message_id) == (b"2", "mine")
        assert messages[1].properties.delivery_mode == 1
        assert messages[1].headers == {"a": 1}
        assert first.message_id != second.message_id

    with_producer(broker_uri, topic, test)


def test_a_full_queue_refuses_a_delivery(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer, channel: Channel) -> None:
        await bound_queue(channel, topic, x_max_length=1, x_overflow="reject-publish")
        statuses = [(await producer.deliver(b"x")).status for _ in range(3)]
        # RabbitMQ takes a message or two more than the length of a queue says.
        assert statuses[0] is DeliveryStatus.CONFIRMED
        assert statuses[2] is DeliveryStatus.REFUSED

    with_producer(broker_uri, topic, test)


@pytest.mark.parametrize("window", [1, 7, 1000])
def test_many_are_delivered_in_order_and_acknowledged_one_by_one(
    broker_uri: str, topic: str, window: int
) -> None:
    async def test(producer: Producer, channel: Channel) -> None:
        queue = await bound_queue(channel, topic)
        properties = BasicProperties(message_id="last")
        messages: list[bytes | tuple[Any, ...]] = [b"0", (b"1",), Outgoing(b"2", "k")]
        messages += [(b"%d" % number, "k") for number in range(3, 99)]
        acknowledgements = await producer.deliver_many([*messages, (b"99", "k", properties)])
        assert [one.status for one in acknowledgements] == [DeliveryStatus.CONFIRMED] * 100
        assert len({one.message_id for one in acknowledgements}) == 100
        assert acknowledgements[-1].message_id == "last"
        bodies = []
        async with channel.consume(queue, no_ack=True) as source:
            async for message in source:
                bodies.append(message.body)
                if len(bodies) == 100:
                    break
        assert bodies == [b"%d" % number for number in range(100)]

    with_producer(broker_uri, topic, test, window)


def test_what_cannot_be_sent_is_refused_before_it_is(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer, channel: Channel) -> None:
        queue = await bound_queue(channel, topic)
        with pytest.raises(ValueError, match="key"):
            await producer.deliver(b"x", "k" * 256)
        with pytest.raises(TypeError, match="bytes"):
            await producer.deliver("x")  # type: ignore[arg-type]  # what is refused
        with pytest.raises(ValueError, match="message_id"):
            await producer.deliver(b"x", properties=BasicProperties(message_id="i" * 256))
        with pytest.raises(ValueError, match="key"):
            await producer.deliver_many([(b"x", "k" * 256)])
        assert (await producer.deliver(b"x", "k" * 255)).is_confirmed
        assert (await channel.queue_declare(queue, passive=True)).message_count == 1

    with_producer(broker_uri, topic, test)


def test_a_topic_deleted_under_its_producer_is_declared_again(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer, channel: Channel) -> None:
        await channel.exchange_delete(topic)
        failed = await producer.deliver(b"x")
        assert failed.status is DeliveryStatus.FAILED
        assert isinstance(failed.error, NotFound)
        assert (await producer.deliver(b"x")).status is DeliveryStatus.RETURNED

    with_producer(broker_uri, topic, test)


def test_a_topic_of_another_type_is_refused(broker_uri: str, topic: str) -> None:
    async def run() -> None:
        async with await connect(broker_uri) as connection:
            await (await connection.channel()).exchange_declare(topic, "direct")
            with pytest.raises(ClusterMismatch, match=f"topic '{topic}'.*fanout"):
                await Producer(topic, uri=broker_uri).start()

    asyncio.run(run())


def test_a_closed_producer_refuses_and_does_not_hang(broker_uri: str, topic: str) -> None:
    async def run() -> None:
        producer = Producer(topic, uri=broker_uri)
        await producer.start()
        under_way = asyncio.ensure_future(producer.deliver(b"x"))
        await asyncio.sleep(0)
        await producer.close()
        assert (await under_way).status is DeliveryStatus.RETURNED
        with pytest.raises(Closed, match=topic):
            await producer.deliver(b"x")
        with pytest.raises(Closed, match=topic):
            await producer.start()
        await producer.close()

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_what_is_not_acknowledged_when_it_closes_has_failed(broker_uri: str, topic: str) -> None:
    async def run() -> None:
        with CutProxy(parse_uri(broker_uri).port) as proxy:
            uri = f"amqp://guest:guest@127.0.0.1:{proxy.port}/%2F?connection_timeout=8000"
            producer = Producer(topic, uri=uri, close_timeout=0, window=2)
            await producer.start()
            proxy.is_stalled = True
            deliveries = [asyncio.ensure_future(producer.deliver(b"x")) for _ in range(5)]
            closing = asyncio.ensure_future(producer.close())
            done, _ = await asyncio.wait(deliveries)
            proxy.cut()
            await closing
            assert {task.result().status for task in done} == {DeliveryStatus.FAILED}
            assert all(task.result().error is not None for task in done)

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def through(proxy: CutProxy) -> str:
    """Return the URI of the broker behind a proxy."""
    return f"amqp://guest:guest@127.0.0.1:{proxy.port}/%2F"


def test_deliveries_go_on_when_the_connection_is_recovered(broker_uri: str, topic: str) -> None:
    async def test(_: Producer, channel: Channel) -> None:
        queue = await bound_queue(channel, topic)
        with CutProxy(parse_uri(broker_uri).port) as proxy:
            async with Producer(topic, uri=through(proxy), window=10) as producer:
                delivering = asyncio.ensure_future(
                    producer.deliver_many(b"%d" % number for number in range(500))
                )
                for count in (50, 150, 300):
                    while (await channel.queue_declare(queue, passive=True)).message_count < count:
                        assert not delivering.done()
                    proxy.cut()
                acknowledgements = await delivering
        assert {one.status for one in acknowledgements} == {DeliveryStatus.CONFIRMED}
        bodies = []
        count = (await channel.queue_declare(queue, passive=True)).message_count
        for _number in range(count):
            message = await channel.get(queue, no_ack=True)
            assert message is not None
            bodies.append(int(message.body))
        # What was confirmed and not heard of was sent again, in its order.
        assert list(dict.fromkeys(bodies)) == list(range(500))

    with_producer(broker_uri, topic, test)


def test_who_closes_while_nobody_answers_does_not_hang(broker_uri: str, topic: str) -> None:
    async def run() -> None:
        with CutProxy(parse_uri(broker_uri).port) as proxy:
            producer = Producer(topic, uri=through(proxy), close_timeout=0)
            await producer.start()
        delivery = asyncio.ensure_future(producer.deliver(b"x"))
        await asyncio.sleep(0)
        assert not delivery.done()
        await producer.close()
        assert (await delivery).status is DeliveryStatus.FAILED
        with pytest.raises(Closed):
            await producer.deliver(b"x")

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_without_recovery_a_lost_delivery_has_failed_and_the_next_connects(
    broker_uri: str, topic: str
) -> None:
    async def run() -> None:
        with CutProxy(parse_uri(broker_uri).port) as proxy:
            async with Producer(topic, uri=through(proxy), recover=False) as producer:
                assert (await producer.deliver(b"1")).status is DeliveryStatus.RETURNED
                proxy.last_words = b"the last words"
                lost = await producer.deliver(b"the last words")
                assert lost.status is DeliveryStatus.FAILED
                assert isinstance(lost.error, ConnectionLost)
                assert (await producer.deliver(b"2")).status is DeliveryStatus.RETURNED

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_nobody_who_answers_is_a_failure_and_raises_nothing(topic: str) -> None:
    async def run() -> None:
        producer = Producer(topic, uri="amqp://guest:guest@127.0.0.1:1/")
        with pytest.raises(ConnectionRefusedError):
            await producer.start()
        failed = await producer.deliver(b"x")
        assert failed.status is DeliveryStatus.FAILED
        assert isinstance(failed.error, OSError)
        await producer.close()

    asyncio.run(run())


def test_the_blocking_producer_does_the_same(broker_uri: str, topic: str) -> None:
    with BlockingProducer(topic, uri=broker_uri) as producer:
        assert producer.deliver(b"x").status is DeliveryStatus.RETURNED
        many = producer.deliver_many([b"x", (b"y", "key")])
        assert [one.status for one in many] == [DeliveryStatus.RETURNED] * 2
        with pytest.raises(ValueError, match="key"):
            producer.deliver(b"x", "k" * 256)
    with pytest.raises(Closed):
        producer.deliver(b"x")
    producer.close()


def test_arguments_that_make_no_sense_are_named() -> None:
    with pytest.raises(ValueError, match="window is 0"):
        Producer("t", window=0)
    with pytest.raises(ValueError, match="topic 'a@b'"):
        Producer("a@b")
