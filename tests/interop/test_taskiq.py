"""taskiq with taskiq-aio-pika against a running broker: its own receiver, or its command.

Results are kept in this process: the receiver runs beside the test, on the same loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel
from taskiq import AsyncTaskiqTask, Context, SimpleRetryMiddleware, TaskiqDepends
from taskiq.api import run_receiver_task
from taskiq.brokers.inmemory_broker import InmemoryResultBackend
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue, QueueType

from interop.taskiq_app import QUEUE, STUCK, URI, make_broker
from interop.worker_process import WorkerProcess
from support.brokers.brokers import Broker

#: How long anything may take.
SECONDS_MAX = 120


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test within a time."""

    async def main() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await test()

    asyncio.run(main())


def tasks_of(broker: Broker, name: str, queue: Queue | None = None, **values: Any) -> AioPikaBroker:
    """Return taskiq's broker with an exchange and queues of its own names."""
    tasks = AioPikaBroker(
        broker.uri,
        exchange=Exchange(name=name),
        task_queues=[queue or Queue(name=name)],
        dead_letter_queue=Queue(name=f"{name}.dead"),
        **values,
    )
    return tasks.with_result_backend(InmemoryResultBackend())


@contextlib.asynccontextmanager
async def working(tasks: AioPikaBroker, async_tasks: int = 10) -> AsyncIterator[None]:
    """Run a receiver beside the test."""
    tasks.is_worker_process = True
    await tasks.startup()
    receiver = asyncio.create_task(run_receiver_task(tasks, max_async_tasks=async_tasks))
    try:
        yield
    finally:
        receiver.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await receiver
        await tasks.shutdown()


async def got(task: AsyncTaskiqTask[Any]) -> Any:
    """Return a task's result as soon as it is there."""
    result = await task.wait_result(check_interval=0.02, timeout=SECONDS_MAX)
    result.raise_for_error()
    return result.return_value


@contextlib.asynccontextmanager
async def looking(broker: Broker) -> AsyncIterator[AbstractChannel]:
    """A channel to look with."""
    async with await aio_pika.connect(broker.uri) as connection:
        yield await connection.channel()


async def take(channel: AbstractChannel, queue: str) -> Any:
    """Wait for one message of a queue, and ack it."""
    declared = await channel.get_queue(queue)
    async with declared.iterator() as messages:
        message = await anext(messages)
        await message.ack()
        return message


def test_tasks_labels_and_retries(broker: Broker, name: str) -> None:
    """The queues are quorum queues, taskiq-aio-pika's default."""
    tasks = tasks_of(broker, name).with_middlewares(SimpleRetryMiddleware(default_retry_count=5))
    runs: list[int] = []

    @tasks.task(task_name=f"{name}.add")
    async def add(x: int, y: int) -> int:
        return x + y

    @tasks.task(task_name=f"{name}.label")
    async def label(context: Context = TaskiqDepends()) -> Any:  # noqa: B008 - taskiq's own way
        return context.message.labels["mine"]

    @tasks.task(task_name=f"{name}.flaky", retry_on_error=True)
    async def flaky() -> int:
        runs.append(1)
        if len(runs) < 3:
            raise ValueError("not yet")
        return len(runs)

    async def test() -> None:
        async with working(tasks):
            sent = [await add.kiq(i, i) for i in range(20)]
            assert [await got(task) for task in sent] == [2 * i for i in range(20)]
            assert await got(await label.kicker().with_labels(mine="a label").kiq()) == "a label"
            assert await got(await flaky.kiq()) == 3

    run(test)


def test_delay_queue(broker: Broker, name: str) -> None:
    """A delay is the expiration of a message in a queue that nobody reads; its dead letter runs."""
    tasks = tasks_of(broker, name, delay_queue=Queue(name=f"{name}.delay"))

    @tasks.task(task_name=f"{name}.now")
    async def now() -> float:
        return time.monotonic()

    async def test() -> None:
        async with working(tasks):
            start = time.monotonic()
            late = await now.kicker().with_labels(delay=0.6).kiq()
            await got(await now.kiq())
            assert await got(late) - start >= 0.6

    run(test)


def test_a_short_delay_behind_a_long_one(broker: Broker, name: str) -> None:
    """Messages expire when they are due, not only at the head of their queue as in RabbitMQ."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ expires messages at the head of a queue only")
    tasks = tasks_of(broker, name, delay_queue=Queue(name=f"{name}.delay"))

    @tasks.task(task_name=f"{name}.echo")
    async def echo(text: str) -> str:
        return text

    async def test() -> None:
        async with working(tasks), looking(broker) as channel:
            await echo.kicker().with_labels(delay=3600).kiq("late")
            assert await got(await echo.kicker().with_labels(delay=0.3).kiq("soon")) == "soon"
            waiting = await channel.declare_queue(f"{name}.delay", passive=True)
            assert waiting.declaration_result.message_count == 1

    run(test)


def test_delayed_message_exchange(broker: Broker, name: str) -> None:
    """`delayed_message_exchange_plugin=True`: delays by an `x-delayed-message` exchange."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ has no x-delayed-message without a plugin")
    tasks = tasks_of(broker, name, delayed_message_exchange_plugin=True)

    @tasks.task(task_name=f"{name}.now")
    async def now() -> float:
        return time.monotonic()

    async def test() -> None:
        async with working(tasks):
            late = await now.kicker().with_labels(delay=3600).kiq()
            start = time.monotonic()
            soon = await now.kicker().with_labels(delay=0.5).kiq()
            await got(await now.kiq())
            assert await got(soon) - start >= 0.5
            assert not await late.is_ready()

    run(test)


def test_priorities(broker: Broker, name: str) -> None:
    queue = Queue(name=name, type=QueueType.CLASSIC, max_priority=10)
    tasks = tasks_of(broker, name, queue, qos=1)
    seen: list[str] = []

    @tasks.task(task_name=f"{name}.note")
    async def note(text: str) -> None:
        seen.append(text)

    async def test() -> None:
        await tasks.startup()
        sent = [
            await note.kicker().with_labels(priority=priority).kiq(str(priority))
            for priority in (1, 10, 5, 10, 0)
        ]
        await tasks.shutdown()
        async with working(tasks, async_tasks=1):
            for task in sent:
                await got(task)
        assert seen == ["10", "10", "5", "1", "0"]

    run(test)


def test_dead_letter_queue(broker: Broker, name: str) -> None:
    """What expires before a worker takes it goes to the dead letter queue, with its headers."""
    tasks = tasks_of(broker, name, Queue(name=name, arguments={"x-message-ttl": 100}))

    @tasks.task(task_name=f"{name}.never")
    async def never() -> None:
        """Stand for a task whose workers are all away."""

    async def test() -> None:
        await tasks.startup()
        async with looking(broker) as channel:
            task = await never.kicker().with_labels(mine="x").kiq()
            message = await take(channel, f"{name}.dead")
            (death,) = message.headers["x-death"]
            assert (message.headers["task_id"], message.headers["mine"]) == (task.task_id, "x")
            assert (death["queue"], death["reason"], death["count"]) == (name, "expired", 1)
            assert (death["exchange"], death["routing-keys"]) == (name, [name])
        await tasks.shutdown()

    run(test)


def test_a_killed_worker(broker: Broker, tmp_path: Path, name: str) -> None:
    """What it had not acked is run by the next one; both are started by taskiq's command."""

    def worker(stuck: str) -> WorkerProcess:
        return WorkerProcess(
            tmp_path / stuck,
            ["taskiq", "worker", "interop.taskiq_app:broker", "--workers=1"],
            {URI: broker.uri, QUEUE: name, STUCK: stuck},
        )

    async def test() -> None:
        tasks = make_broker(broker.uri, name)

        @tasks.task(task_name="work")
        async def work(reply: str) -> None:
            """Stand for the task of the worker's process."""

        await tasks.startup()
        async with looking(broker) as channel:
            reply = await channel.declare_queue(exclusive=True)
            await work.kiq(reply.name)
            with worker("yes") as first:
                assert (await take(channel, reply.name)).body == b"begun"
                first.kill()
            with worker("no") as second:
                assert (await take(channel, reply.name)).body == b"done"
                assert second.stop() == 0
        await tasks.shutdown()

    run(test)
