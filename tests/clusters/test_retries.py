"""What a handler's result does: acks, retries with a delay, in place or not, and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from leveret import ClusterMessage, Consumer, Outcome, Producer
from leveret.client import Message, connect
from leveret.client.clusters.topology import delays_retries
from leveret.limits import CLUSTER_DELIVERIES_MAX
from support.clusters.handled import SECONDS, Handled

#: A delay that is over at once, where the delay itself is not what is tested.
AT_ONCE = 0.001


async def dead_letter(uri: str, topic: str) -> Message:
    """Return the next dead letter of the cluster `c`."""
    async with asyncio.timeout(SECONDS), await connect(uri) as connection:
        channel = await connection.channel()
        async with channel.consume(f"{topic}@c@dead", no_ack=True) as letters:
            return await anext(letters)


def in_loop(uri: str, topic: str, test: Callable[[Producer], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a producer of the topic."""

    async def run() -> None:
        async with asyncio.timeout(SECONDS), Producer(topic, uri=uri) as producer:
            await test(producer)

    asyncio.run(run())


def fails(times: int) -> Callable[[ClusterMessage], Outcome | None]:
    """Return an answer to messages `bad`: to be retried so many times, then acked."""

    def answer(message: ClusterMessage) -> Outcome | None:
        is_bad = message.body == b"bad" and message.attempt <= times
        return Outcome.RETRY if is_bad else None

    return answer


@pytest.mark.parametrize("partitions", [0, 1])
def test_a_message_is_retried_until_it_is_acked(
    broker_uri: str, topic: str, partitions: int
) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        async with Consumer(
            topic,
            cluster="c",
            on_message=handled.handler(answer=fails(3)),
            uri=broker_uri,
            partitions=partitions,
            retry_delay=AT_ONCE,
        ):
            await producer.deliver(b"bad", "k")
            await handled.count(4)
            await producer.deliver(b"good", "k")
            await handled.count(5)
        assert handled.bodies() == [b"bad"] * 4 + [b"good"]
        assert [m.attempt for _, m in handled.calls] == [1, 2, 3, 4, 1]

    in_loop(broker_uri, topic, test)


@pytest.mark.parametrize("partitions", [0, 1])
@pytest.mark.parametrize("how", ["result", "exception", "time-out", "no outcome", "cancelled"])
def test_what_fails_too_often_is_dead_lettered(
    broker_uri: str, topic: str, partitions: int, how: str
) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()

        async def on_message(message: ClusterMessage) -> Any:
            await handled.note("", message)
            if how == "exception":
                raise ValueError("bad")
            if how == "time-out":
                await asyncio.Event().wait()
            if how == "cancelled":
                raise asyncio.CancelledError
            return Outcome.RETRY if how == "result" else "done"

        async with Consumer(
            topic,
            cluster="c",
            on_message=on_message,
            uri=broker_uri,
            partitions=partitions,
            retry_delay=AT_ONCE,
            max_attempts=3,
            handler_timeout=0.5 if how == "time-out" else None,
        ):
            await producer.deliver(b"bad", "key")
            letter = await dead_letter(broker_uri, topic)
        assert letter.body == b"bad"
        assert [m.attempt for _, m in handled.calls] == [1, 2, 3]
        deaths = letter.headers["x-death"]
        assert isinstance(deaths, list)
        assert deaths[0]["reason"] == "rejected"
        assert deaths[0]["routing-keys"] == ["key"]

    in_loop(broker_uri, topic, test)


@pytest.mark.parametrize("error", [ValueError, StopIteration, TimeoutError])
def test_what_a_plain_function_raises_is_retried(
    broker_uri: str, topic: str, error: type[Exception]
) -> None:
    def on_message(message: ClusterMessage) -> None:
        raise error("bad")

    async def test(producer: Producer) -> None:
        async with Consumer(
            topic,
            cluster="c",
            on_message=on_message,
            uri=broker_uri,
            retry_delay=AT_ONCE,
            max_attempts=2,
        ):
            await producer.deliver(b"bad")
            assert (await dead_letter(broker_uri, topic)).body == b"bad"

    in_loop(broker_uri, topic, test)


def test_what_ends_every_member_that_gets_it_is_dead_lettered(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        async with Consumer(topic, cluster="c", on_message=handled.handler(), uri=broker_uri):
            pass
        await producer.deliver(b"bad")
        async with await connect(broker_uri) as connection:
            for _ in range(CLUSTER_DELIVERIES_MAX + 1):
                channel = await connection.channel()
                assert await channel.get(f"{topic}@c") is not None
                await channel.close()
        letter = await dead_letter(broker_uri, topic)
        deaths = letter.headers["x-death"]
        assert isinstance(deaths, list)
        assert (letter.body, deaths[0]["reason"]) == (b"bad", "delivery_limit")

    in_loop(broker_uri, topic, test)


@pytest.mark.parametrize("partitions", [0, 1])
def test_a_dead_letter_is_not_retried_and_holds_nothing_up(
    broker_uri: str, topic: str, partitions: int
) -> None:
    def answer(message: ClusterMessage) -> Outcome | None:
        return Outcome.DEAD_LETTER if message.body == b"bad" else Outcome.ACK

    async def test(producer: Producer) -> None:
        handled = Handled()
        async with Consumer(
            topic,
            cluster="c",
            on_message=handled.handler(answer=answer),
            uri=broker_uri,
            partitions=partitions,
        ):
            await producer.deliver_many([b"1", b"bad", b"2"])
            assert (await dead_letter(broker_uri, topic)).body == b"bad"
            await handled.count(3)
        assert handled.bodies() == [b"1", b"bad", b"2"]

    in_loop(broker_uri, topic, test)


def test_in_a_partition_later_messages_wait_for_the_retry(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        async with Consumer(
            topic,
            cluster="c",
            on_message=handled.handler(answer=fails(2)),
            uri=broker_uri,
            partitions=3,
            retry_delay=AT_ONCE,
        ):
            await producer.deliver_many([(body, "k") for body in (b"0", b"bad", b"1", b"2")])
            await handled.count(6)
        assert handled.bodies() == [b"0", b"bad", b"bad", b"bad", b"1", b"2"]

    in_loop(broker_uri, topic, test)


def test_in_a_shared_queue_others_pass_the_retry(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        async with await connect(broker_uri) as connection:
            if not delays_retries(connection.server_properties):
                pytest.skip("this broker does not delay what is returned")
        handled = Handled()
        member = Consumer(
            topic,
            cluster="c",
            on_message=handled.handler(answer=fails(1)),
            uri=broker_uri,
            retry_delay=0.5,
        )
        async with member:
            begun = asyncio.get_running_loop().time()
            await producer.deliver_many([b"0", b"bad", b"1", b"2"])
            await handled.count(5)
            assert asyncio.get_running_loop().time() - begun >= 0.5
        assert handled.bodies() == [b"0", b"bad", b"1", b"2", b"bad"]
        assert handled.calls[-1][1].redelivered

    in_loop(broker_uri, topic, test)


def test_who_leaves_does_not_wait_for_a_retry_in_place(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()

        def member(answer: Callable[[ClusterMessage], Outcome | None] | None) -> Consumer:
            return Consumer(
                topic,
                cluster="c",
                on_message=handled.handler(answer=answer),
                uri=broker_uri,
                partitions=2,
                retry_delay=3600,
                retry_delay_max=3600,
            )

        async with member(fails(1)):
            await producer.deliver_many([(b"bad", "k"), (b"1", "k")])
            await handled.count(1)
        async with member(None):
            await handled.count(3)
        assert handled.bodies() == [b"bad", b"bad", b"1"]

    in_loop(broker_uri, topic, test)


def test_the_delay_grows_and_has_an_end() -> None:
    member = Consumer(
        "t", cluster="c", on_message=Handled().handler(), retry_delay=2, retry_delay_max=5
    )
    assert [member.settings.delay(attempt) for attempt in (1, 2, 3, 4)] == [2, 4, 5, 5]


@pytest.mark.parametrize(
    ("properties", "delays"),
    [
        ({"product": "RabbitMQ", "version": "3.13.7", "platform": "Leveret 0.1.0"}, True),
        ({"product": "Leveret", "version": "0.1.0", "platform": "Python"}, True),
        ({"product": "RabbitMQ", "version": "3.10.8", "platform": "Erlang/OTP 25"}, False),
        ({"product": "RabbitMQ", "version": "4.3.0", "platform": "Erlang/OTP 27"}, True),
        ({"product": "RabbitMQ", "version": "4.10.0-rc.1", "platform": "Erlang/OTP 27"}, True),
        ({"product": "RabbitMQ", "version": "?"}, False),
        ({"product": "Other", "version": "9.9"}, False),
        ({}, False),
    ],
)
def test_which_brokers_delay_what_is_returned(properties: dict[str, object], delays: bool) -> None:
    assert delays_retries(properties) is delays
