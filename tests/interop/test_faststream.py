"""FastStream against a running broker: its own subscribers, without its in-memory test client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.rabbit import (
    Channel,
    ExchangeType,
    QueueType,
    RabbitBroker,
    RabbitExchange,
    RabbitMessage,
    RabbitQueue,
    RabbitResponse,
)

from interop.faststream_app import QUEUE, STUCK, URI
from interop.worker_process import WorkerProcess
from support.brokers.brokers import Broker

#: How long anything may take.
SECONDS_MAX = 120


class Heard:
    """What subscribers got, in order."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[Any] = asyncio.Queue()

    async def take(self, count: int) -> list[Any]:
        """Wait for so many items."""
        return [await self.items.get() for _ in range(count)]


def run(broker: Broker, test: Callable[[RabbitBroker], Awaitable[None]]) -> None:
    """Run a test with a broker that is not started yet, within a time.

    Messages are handled one after another: with a wider prefetch FastStream's tasks overtake.
    """

    async def main() -> None:
        rabbit = RabbitBroker(broker.uri, logger=None, default_channel=Channel(prefetch_count=1))
        async with asyncio.timeout(SECONDS_MAX), rabbit:
            await test(rabbit)

    asyncio.run(main())


def listen(
    rabbit: RabbitBroker, heard: Heard, label: str, queue: RabbitQueue, exchange: RabbitExchange
) -> None:
    """Subscribe: what comes is heard with a label."""

    @rabbit.subscriber(queue, exchange)
    async def on_message(body: str) -> None:
        await heard.items.put((label, body))


def private(name: str, key: str = "", bind_arguments: dict[str, Any] | None = None) -> RabbitQueue:
    """Return an exclusive queue that is bound by a key or by arguments."""
    return RabbitQueue(
        name, durable=False, exclusive=True, routing_key=key, bind_arguments=bind_arguments
    )


def test_default_exchange(broker: Broker, name: str) -> None:
    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        listen(rabbit, heard, "q", private(name), RabbitExchange())
        await rabbit.start()
        for i in range(20):
            await rabbit.publish(str(i), name)
        assert await heard.take(20) == [("q", str(i)) for i in range(20)]

    run(broker, test)


def test_direct_exchange(broker: Broker, name: str) -> None:
    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        exchange = RabbitExchange(name, ExchangeType.DIRECT, auto_delete=True)
        listen(rabbit, heard, "a", private(f"{name}.a", "a"), exchange)
        listen(rabbit, heard, "b", private(f"{name}.b", "b"), exchange)
        await rabbit.start()
        await rabbit.publish("to a", "a", exchange)
        await rabbit.publish("to b", "b", exchange)
        assert sorted(await heard.take(2)) == [("a", "to a"), ("b", "to b")]

    run(broker, test)


def test_fanout_and_topic_exchanges(broker: Broker, name: str) -> None:
    """The topic exchange is bound to the fanout one: exchange to exchange, by FastStream."""

    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        all_of_it = RabbitExchange(f"{name}.all", ExchangeType.FANOUT, auto_delete=True)
        logs = RabbitExchange(name, ExchangeType.TOPIC, auto_delete=True, bind_to=all_of_it)
        listen(rabbit, heard, "every", private(f"{name}.1", "#"), logs)
        listen(rabbit, heard, "error", private(f"{name}.2", "*.error"), logs)
        listen(rabbit, heard, "fanout", private(f"{name}.3"), all_of_it)
        await rabbit.start()
        await rabbit.publish("one", exchange=all_of_it, routing_key="disk.error")
        await rabbit.publish("two", exchange=logs, routing_key="disk.info")
        got = sorted(await heard.take(4))
        assert got == [("error", "one"), ("every", "one"), ("every", "two"), ("fanout", "one")]

    run(broker, test)


def test_headers_exchange(broker: Broker, name: str) -> None:
    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        exchange = RabbitExchange(name, ExchangeType.HEADERS, auto_delete=True)
        both: dict[str, Any] = {"x-match": "all", "kind": "a", "size": 1}
        one: dict[str, Any] = {"x-match": "any", "kind": "a", "size": 1}
        listen(rabbit, heard, "all", private(f"{name}.1", "", both), exchange)
        listen(rabbit, heard, "any", private(f"{name}.2", "", one), exchange)
        await rabbit.start()
        await rabbit.publish("x", exchange=exchange, headers={"kind": "a", "size": 1})
        await rabbit.publish("y", exchange=exchange, headers={"kind": "b", "size": 1})
        assert sorted(await heard.take(3)) == [("all", "x"), ("any", "x"), ("any", "y")]

    run(broker, test)


def test_request_and_reply(broker: Broker, name: str) -> None:
    """Direct reply-to: no queue is declared for the answers, and ten requests wait at once."""

    async def test(rabbit: RabbitBroker) -> None:
        @rabbit.subscriber(private(name))
        async def double(number: int, message: RabbitMessage) -> RabbitResponse:
            assert (message.reply_to or "").startswith("amq.rabbitmq.reply-to.")
            return RabbitResponse(number * 2, headers={"kind": "answer"})

        await rabbit.start()
        replies = await asyncio.gather(
            *(rabbit.request(i, name, timeout=SECONDS_MAX) for i in range(10))
        )
        assert [await reply.decode() for reply in replies] == [2 * i for i in range(10)]
        assert {reply.headers["kind"] for reply in replies} == {"answer"}

    run(broker, test)


def test_reply_queue_and_publisher(broker: Broker, name: str) -> None:
    """What a handler returns goes to its publisher's queue, and to the `reply_to` of a message."""

    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        listen(rabbit, heard, "next", private(f"{name}.next"), RabbitExchange())
        listen(rabbit, heard, "reply", private(f"{name}.reply"), RabbitExchange())

        @rabbit.subscriber(private(name))
        @rabbit.publisher(f"{name}.next")
        async def shout(text: str) -> str:
            return text.upper()

        await rabbit.start()
        await rabbit.publish("hello", name, reply_to=f"{name}.reply")
        assert sorted(await heard.take(2)) == [("next", "HELLO"), ("reply", "HELLO")]

    run(broker, test)


def test_dead_letters(broker: Broker, name: str) -> None:
    """What a handler fails on is rejected, and dies with its history in a header."""

    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        dead = RabbitExchange(f"{name}.dead", ExchangeType.FANOUT, auto_delete=True)
        queue = RabbitQueue(
            name, durable=True, auto_delete=True, arguments={"x-dead-letter-exchange": dead.name}
        )

        @rabbit.subscriber(queue, ack_policy=AckPolicy.REJECT_ON_ERROR)
        async def fail(_: str) -> None:
            raise ValueError("for good")

        @rabbit.subscriber(private(f"{name}.letters"), dead)
        async def on_letter(body: str, message: RabbitMessage) -> None:
            await heard.items.put((body, message.headers["x-death"], message.headers["mine"]))

        await rabbit.start()
        await rabbit.publish("x", name, headers={"mine": 1})
        ((body, (death,), mine),) = await heard.take(1)
        assert (body, mine) == ("x", 1)
        assert (death["queue"], death["reason"], death["count"]) == (name, "rejected", 1)
        assert (death["exchange"], death["routing-keys"]) == ("", [name])

    run(broker, test)


def test_expired_letters_are_tried_again(broker: Broker, name: str) -> None:
    """The common retry: rejected to a queue with a TTL, whose dead letters come back."""

    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        again = RabbitQueue(
            f"{name}.again",
            durable=True,
            arguments={
                "x-message-ttl": 300,
                "x-expires": 60_000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": name,
            },
        )
        queue = RabbitQueue(
            name,
            durable=True,
            arguments={
                "x-expires": 60_000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": again.name,
            },
        )

        @rabbit.subscriber(queue)
        async def third(_: str, message: RabbitMessage) -> None:
            deaths = message.headers.get("x-death", [])
            rejected = [death["count"] for death in deaths if death["reason"] == "rejected"]
            if rejected != [2]:
                await message.reject()
            await heard.items.put((time.monotonic(), rejected))

        await rabbit.start()
        await rabbit.declare_queue(again)
        await rabbit.publish("x", name)
        runs = await heard.take(3)
        assert [rejected for _, rejected in runs] == [[], [1], [2]]
        assert runs[2][0] - runs[0][0] >= 0.6

    run(broker, test)


def test_priorities_and_prefetch(broker: Broker, name: str) -> None:
    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        queue = RabbitQueue(name, durable=True, auto_delete=True, arguments={"x-max-priority": 5})

        @rabbit.subscriber(queue)
        async def on_message(body: str) -> None:
            await heard.items.put(body)

        await rabbit.connect()
        await rabbit.declare_queue(queue)
        for priority in (0, 3, 5, 3, 1):
            await rabbit.publish(str(priority), name, priority=priority)
        await rabbit.start()
        assert await heard.take(5) == ["5", "3", "3", "1", "0"]

    run(broker, test)


def test_stream(broker: Broker, name: str) -> None:
    """A stream is read from its first message by a subscriber that comes later."""

    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        queue = RabbitQueue(name, QueueType.STREAM, durable=True)
        await rabbit.connect()
        await rabbit.declare_queue(queue)
        for i in range(5):
            await rabbit.publish(str(i), name)

        @rabbit.subscriber(
            queue,
            consume_args={"x-stream-offset": "first"},
            ack_policy=AckPolicy.ACK,
        )
        async def on_message(body: str, message: RabbitMessage) -> None:
            await heard.items.put((body, message.headers["x-stream-offset"]))

        await rabbit.start()
        assert await heard.take(5) == [(str(i), i) for i in range(5)]

    run(broker, test)


def test_delayed_exchange(broker: Broker, name: str) -> None:
    """`x-delayed-message` is RabbitMQ's only by a plugin that Debian does not have."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ has no x-delayed-message without a plugin")

    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        exchange = RabbitExchange(
            name,
            ExchangeType.X_DELAYED_MESSAGE,
            auto_delete=True,
            arguments={"x-delayed-type": "direct"},
        )
        listen(rabbit, heard, "q", private(name, "k"), exchange)
        await rabbit.start()
        await rabbit.publish("late", "k", exchange, headers={"x-delay": 3_600_000})
        await rabbit.publish("now", "k", exchange)
        start = time.monotonic()
        await rabbit.publish("soon", "k", exchange, headers={"x-delay": 500})
        assert await heard.take(2) == [("q", "now"), ("q", "soon")]
        assert time.monotonic() - start >= 0.5

    run(broker, test)


def test_consistent_hash_exchange(broker: Broker, name: str) -> None:
    """Each key goes to one queue and always to the same."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ's x-consistent-hash is a plugin")

    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        exchange = RabbitExchange(name, ExchangeType.X_CONSISTENT_HASH, auto_delete=True)
        for label in "ab":
            listen(rabbit, heard, label, private(f"{name}.{label}", "1"), exchange)
        await rabbit.start()
        for i in range(100):
            await rabbit.publish(str(i % 50), exchange=exchange, routing_key=f"key-{i % 50}")
        got = await heard.take(100)
        assert len(set(got)) == 50
        assert {label for label, _ in got} == {"a", "b"}

    run(broker, test)


def test_a_killed_service(broker: Broker, tmp_path: Path, name: str) -> None:
    """What it had not acked is delivered again, to the next one."""

    def service(stuck: str) -> WorkerProcess:
        return WorkerProcess(
            tmp_path / stuck,
            ["interop.faststream_app"],
            {URI: broker.uri, QUEUE: name, STUCK: stuck},
        )

    async def test(rabbit: RabbitBroker) -> None:
        heard = Heard()
        listen(rabbit, heard, "reply", private(f"{name}.reply"), RabbitExchange())
        await rabbit.start()
        await rabbit.declare_queue(RabbitQueue(name, durable=True))
        await rabbit.publish(f"{name}.reply", name)
        with service("yes") as first:
            assert await heard.take(1) == [("reply", "begun, redelivered=False")]
            first.kill()
        with service("no") as second:
            assert await heard.take(1) == [("reply", "begun, redelivered=True")]
            assert second.stop() == 0

    run(broker, test)
