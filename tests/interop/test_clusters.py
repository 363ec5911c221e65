"""Programs with pika publish to a topic and join a cluster, by the documented names alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pika
import pika.exceptions
import pytest

from leveret import BlockingConsumer, BlockingProducer, ClusterMessage, Consumer
from support.brokers.brokers import Broker
from support.clusters.handled import SECONDS, Handled


@contextlib.contextmanager
def pika_channel(broker: Broker) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    """Give a channel of a connection of pika's."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.uri))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


async def nothing(message: ClusterMessage) -> None:
    """Ack it."""


def test_pika_publishes_to_a_topic(broker: Broker, name: str) -> None:
    async def run() -> None:
        handled = Handled()
        async with (
            Consumer(name, cluster="one", on_message=handled.handler("1"), uri=broker.uri),
            Consumer(
                name, cluster="two", on_message=handled.handler("2"), uri=broker.uri, partitions=3
            ),
        ):
            await asyncio.to_thread(publish)
            await handled.count(2)
        assert [handled.bodies("1"), handled.bodies("2")] == [[b"hello"], [b"hello"]]
        assert {m.key for _, m in handled.calls} == {"key"}

    def publish() -> None:
        with pika_channel(broker) as channel:
            channel.confirm_delivery()
            channel.basic_publish(name, "key", b"hello", mandatory=True)

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_pika_hears_that_nobody_is_subscribed(broker: Broker, name: str) -> None:
    with BlockingProducer(name, uri=broker.uri), pika_channel(broker) as channel:
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish(name, "key", b"hello", mandatory=True)


def test_pika_joins_a_cluster_without_partitions(broker: Broker, name: str) -> None:
    member = BlockingConsumer(name, cluster="c", on_message=nothing, uri=broker.uri)
    member.subscribe().unsubscribe()
    with BlockingProducer(name, uri=broker.uri) as producer, pika_channel(broker) as channel:
        assert all(one.is_confirmed for one in producer.deliver_many([b"1", b"2", b"bad"]))
        channel.basic_qos(prefetch_count=10)
        bodies = []
        for method, _, body in channel.consume(f"{name}@c"):
            bodies.append(body)
            if body == b"bad":
                channel.basic_reject(method.delivery_tag, requeue=False)
                break
            channel.basic_ack(method.delivery_tag)
        assert bodies == [b"1", b"2", b"bad"]
        channel.cancel()
        letters = channel.consume(f"{name}@c@dead", auto_ack=True)
        _, properties, body = next(letters)
        assert (body, properties.headers["x-death"][0]["reason"]) == (b"bad", "rejected")
    assert member.delete_cluster(dead_letters=True) == 0


def test_pika_joins_and_takes_over_partitions(broker: Broker, name: str) -> None:
    partitions = 4
    member = BlockingConsumer(
        name, cluster="c", on_message=nothing, uri=broker.uri, partitions=partitions
    )
    member.subscribe()
    with BlockingProducer(name, uri=broker.uri) as producer, pika_channel(broker) as channel:
        channel.basic_qos(prefetch_count=10)
        seen: dict[str, list[int]] = {}

        def on_message(ch: object, method: pika.spec.Basic.Deliver, _: object, body: bytes) -> None:
            seen.setdefault(method.routing_key, []).append(int(body))
            channel.basic_ack(method.delivery_tag)
            if sum(map(len, seen.values())) == 200:
                channel.stop_consuming()

        for partition in range(partitions):
            channel.basic_consume(f"{name}@c@{partition}", on_message)
        member.unsubscribe()  # pika stood by, and is active from here on
        messages = [(b"%d" % number, f"key {key}") for number in range(10) for key in range(20)]
        assert all(one.is_confirmed for one in producer.deliver_many(messages))
        channel.start_consuming()
        assert len(seen) == 20
        assert all(numbers == list(range(10)) for numbers in seen.values())
    assert member.delete_cluster() == 0


def test_pika_declares_a_cluster_s_queue_with_the_documented_arguments(
    broker: Broker, name: str
) -> None:
    with BlockingConsumer(name, cluster="c", on_message=nothing, uri=broker.uri, partitions=2):
        arguments = {
            "x-queue-type": "quorum",
            "x-delivery-limit": 100,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"{name}@c@dead",
            "x-single-active-consumer": True,
        }
        with pika_channel(broker) as channel:
            channel.exchange_declare(name, "fanout", durable=True)
            layout = {"alternate-exchange": f"{name}@c@partitions-2"}
            kind = "x-consistent-hash"
            channel.exchange_declare(f"{name}@c", kind, durable=True, arguments=layout)
            for partition in range(2):
                queue = f"{name}@c@{partition}"
                channel.queue_declare(queue, durable=True, arguments=arguments)
            channel.queue_declare(f"{name}@c@dead", durable=True)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="405"):
                channel.queue_declare(f"{name}@c@member-0", exclusive=True)
