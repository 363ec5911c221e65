"""dramatiq against a running broker: its own worker, in threads here or by its command.

Each actor has a queue of its own `q`, with `q.DQ` for what is delayed and `q.XQ` for dead letters.
"""
# mypy: allow-untyped-calls

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dramatiq
import pika
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import Pipelines, Retries
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend
from pika.adapters.blocking_connection import BlockingChannel

from interop.dramatiq_app import QUEUE, STUCK, URI, work
from interop.worker_process import WorkerProcess
from support.brokers.brokers import Broker

#: How long anything may take.
SECONDS_MAX = 120


@pytest.fixture
def tasks(broker: Broker) -> Iterator[RabbitmqBroker]:
    """A broker of dramatiq's, with retries, results and ten priorities; it waits for confirms."""
    results = Results(backend=StubBackend())
    middleware = [Pipelines(), Retries(min_backoff=100, max_backoff=200), results]
    made = RabbitmqBroker(
        url=broker.uri, confirm_delivery=True, max_priority=10, middleware=middleware
    )
    dramatiq.set_broker(made)
    yield made
    made.close()


@pytest.fixture
def channel(broker: Broker) -> Iterator[BlockingChannel]:
    """A channel to look with."""
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        yield connection.channel()


@contextmanager
def working(tasks: RabbitmqBroker) -> Iterator[None]:
    """Run a worker of one thread."""
    worker = dramatiq.Worker(tasks, worker_timeout=50, worker_threads=1)
    worker.start()
    try:
        yield
    finally:
        worker.stop()


def got(message: dramatiq.Message[Any]) -> Any:
    """Return an actor's result as soon as it is there."""
    return message.get_result(block=True, timeout=SECONDS_MAX * 1000)


def take(channel: BlockingChannel, queue: str) -> tuple[Any, Any, bytes]:
    """Wait for one message of a queue, and ack it."""
    method, properties, body = next(channel.consume(queue, inactivity_timeout=SECONDS_MAX))
    assert method is not None, f"nothing in {queue} after {SECONDS_MAX} s"
    channel.basic_ack(method.delivery_tag)
    channel.cancel()
    return method, properties, body


def test_actors_groups_and_pipelines(tasks: RabbitmqBroker, name: str) -> None:
    @dramatiq.actor(queue_name=name, store_results=True)
    def add(*numbers: int) -> int:
        return sum(numbers)

    with working(tasks):
        messages = [add.send(i, i) for i in range(20)]
        assert [got(message) for message in messages] == [2 * i for i in range(20)]
        group = dramatiq.group([add.message(i, 1) for i in range(5)]).run()
        assert list(group.get_results(block=True, timeout=SECONDS_MAX * 1000)) == [1, 2, 3, 4, 5]
        chain = (add.message(1, 2) | add.message(3) | add.message(4)).run()
        assert chain.get_result(block=True, timeout=SECONDS_MAX * 1000) == 10


def test_delayed_message(tasks: RabbitmqBroker, name: str) -> None:
    """It waits in `q.DQ`, then in its worker, and goes to `q` when it is due; others pass it."""

    @dramatiq.actor(queue_name=name, store_results=True)
    def echo(text: str) -> str:
        return text

    echo.send_with_options(args=("in an hour",), delay=3_600_000)
    start = time.monotonic()
    late = echo.send_with_options(args=("late",), delay=1000)
    assert tasks.get_queue_message_counts(name) == (0, 2, 0)
    with working(tasks):
        assert got(echo.send("at once")) == "at once"
        assert got(late.copy(queue_name=name)) == "late"
        assert time.monotonic() - start >= 1
        tasks.join(name, timeout=SECONDS_MAX * 1000, min_successes=1)
    assert tasks.get_queue_message_counts(name) == (0, 1, 0)


def test_retries(tasks: RabbitmqBroker, name: str) -> None:
    """Each retry is a delayed message; the third run succeeds."""
    runs: list[float] = []

    @dramatiq.actor(queue_name=name, max_retries=3, store_results=True)
    def flaky() -> int:
        runs.append(time.monotonic())
        if len(runs) < 3:
            raise ValueError("not yet")
        return len(runs)

    with working(tasks):
        assert got(flaky.send()) == 3
    assert tasks.get_queue_message_counts(name) == (0, 0, 0)


def test_dead_letter(tasks: RabbitmqBroker, channel: BlockingChannel, name: str) -> None:
    """What fails for good is rejected and lies in `q.XQ`, which keeps it for seven days."""

    @dramatiq.actor(queue_name=name, max_retries=0)
    def fail() -> None:
        raise ValueError("for good")

    with working(tasks):
        message = fail.send()
        method, properties, body = take(channel, f"{name}.XQ")
    assert dramatiq.Message.decode(body).message_id == message.message_id
    assert (method.exchange, method.routing_key) == ("", f"{name}.XQ")
    (death,) = properties.headers["x-death"]
    assert {key: death[key] for key in ("queue", "reason", "count", "exchange")} == {
        "queue": name, "reason": "rejected", "count": 1, "exchange": ""
    }  # fmt: skip
    assert death["routing-keys"] == [name]
    assert properties.headers["x-first-death-reason"] == "rejected"
    assert properties.headers["x-first-death-queue"] == name
    assert tasks.get_queue_message_counts(name) == (0, 0, 0)


def test_priorities(tasks: RabbitmqBroker, name: str) -> None:
    @dramatiq.actor(queue_name=name)
    def note(text: str) -> None:
        """Never run: the messages are taken by dramatiq's consumer itself."""

    for priority in (1, 10, None, 5, 10):
        note.send_with_options(args=(str(priority),), broker_priority=priority)
    consumer = tasks.consume(name, prefetch=1, timeout=SECONDS_MAX * 1000)
    seen = []
    for _ in range(5):
        message = next(consumer)
        assert message is not None
        seen.append(message.args[0])
        consumer.ack(message)
    consumer.close()
    assert seen == ["10", "10", "5", "1", "None"]


def test_a_queue_that_was_deleted(
    tasks: RabbitmqBroker, channel: BlockingChannel, name: str
) -> None:
    """The message is returned before its confirm, and dramatiq declares the queue again."""

    @dramatiq.actor(queue_name=name, store_results=True)
    def echo(text: str) -> str:
        return text

    echo.send("lost")
    channel.queue_delete(name)
    message = echo.send("found")
    assert tasks.get_queue_message_counts(name) == (1, 0, 0)
    with working(tasks):
        assert got(message) == "found"


def test_a_killed_worker(broker: Broker, channel: BlockingChannel, tmp_path: Path) -> None:
    """What it had not acked is run by the next one; both are started by dramatiq's command."""
    reply = channel.queue_declare("", exclusive=True).method.queue
    queue = f"i-{tmp_path.name}"

    def worker(stuck: str) -> WorkerProcess:
        return WorkerProcess(
            tmp_path / stuck,
            ["dramatiq", "interop.dramatiq_app", "--processes=1", "--threads=1"],
            {URI: broker.uri, QUEUE: queue, STUCK: stuck},
        )

    tasks = RabbitmqBroker(url=broker.uri, middleware=[])
    dramatiq.actor(broker=tasks, queue_name=queue)(work).send(reply)
    with worker("yes") as first:
        assert take(channel, reply)[2] == b"begun"
        first.kill()
    with worker("no") as second:
        assert take(channel, reply)[2] == b"done"
        assert second.stop() == 0
    assert tasks.get_queue_message_counts(queue) == (0, 0, 0)
    tasks.close()
