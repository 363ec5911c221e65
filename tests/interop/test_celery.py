"""Celery against a running broker: its own worker in processes of its own, on real queues.

Chords need a backend that counts or polls: results go to files, which Celery polls by a task of
its own (`celery.chord_unlock`, retried with a countdown); the late-acking workers use `rpc://`.
"""
# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group, uuid
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult
from kombu import pools
from kombu.connection import Connection
from kombu.transport.native_delayed_delivery import (
    CELERY_DELAYED_DELIVERY_EXCHANGE,
    MAX_NUMBER_OF_BITS_TO_USE,
    level_name,
)

from interop.celery_app import CONFIGURATION, READY, make_app
from interop.worker_process import WorkerProcess
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import Broker, need_own_broker, unique
from support.http.http_api import Api

#: How long a result may take; a worker's start is part of the first one.
SECONDS_MAX = 120

#: Versions of RabbitMQ by which kombu takes prefetch for the channel, and for each consumer.
VERSIONS = ("3.13.7", "4.3.6")

#: A worker that is there at once and leaves at once: one thread, and no talk with its neighbours.
QUICK = ("--pool=threads", "--concurrency=1", "--without-mingle", "--without-gossip")


@dataclass
class Side:
    """An app and what its worker needs."""

    app: Celery
    configuration: dict[str, Any]
    directory: Path

    @property
    def host(self) -> str:
        """The host in the names of its workers: no other app's mailboxes are found there."""
        return str(self.configuration["task_default_queue"])

    def worker(self, name: str, *options: str) -> WorkerProcess:
        """Return a worker that is not started yet."""
        command = ["celery", "-A", "interop.celery_app", "worker", "-n", f"{name}@{self.host}"]
        return WorkerProcess(
            self.directory / name,
            [*command, "--loglevel=INFO", *options],
            {
                CONFIGURATION: json.dumps(self.configuration),
                READY: self.ready_queue(name),
                "AUTOSCALE_KEEPALIVE": "86400",  # no process ends because it was idle
            },
        )

    def ready_queue(self, name: str) -> str:
        """Return the queue where a worker says that it is ready."""
        return f"{self.host}.{name}.ready"

    def wait_until_ready(self, name: str) -> None:
        """Wait until a started worker consumes its tasks and its remote control.

        What is sent to its remote control before is lost: its mailbox is not there yet.
        """
        assert self.heard(self.ready_queue(name), 1) == ["ready"]

    def send(self, task: str, *args: object, **options: Any) -> AsyncResult:
        """Send a task by its name."""
        return self.app.tasks[task].apply_async(args, **options)

    def heard(self, queue: str, count: int) -> list[str]:
        """Take so many texts out of a queue."""
        with Connection(self.app.conf.broker_url) as connection:
            replies = connection.SimpleQueue(queue)
            texts = []
            for _ in range(count):
                message = replies.get(timeout=SECONDS_MAX)
                message.ack()
                texts.append(message.payload)
            replies.close()
        return texts


def got(result: AsyncResult) -> Any:
    """Return a task's result as soon as it is there."""
    return result.get(timeout=SECONDS_MAX, interval=0.05)


@contextlib.contextmanager
def opened(broker: Broker, directory: Path, **configuration: Any) -> Iterator[Side]:
    """Give an app of its own names whose results are in files."""
    name = unique("celery")
    results = directory / "results"
    results.mkdir()
    whole = {
        "broker_url": broker.uri,
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {"confirm_publish": True},
        "result_backend": results.as_uri(),
        "result_chord_retry_interval": 0.2,
        "task_default_queue": name,
        "task_default_exchange": name,
        "task_default_routing_key": name,
        "worker_prefetch_multiplier": 1,
        "worker_hijack_root_logger": False,
        **configuration,
    }
    app = make_app(whole)
    yield Side(app, whole, directory)
    if whole["result_backend"] == "rpc://":
        app.backend.result_consumer.stop()
    app.close()


@pytest.fixture(scope="module", autouse=True)
def _pools() -> Iterator[None]:
    """See that kombu's pools, which apps of one URI share, are closed at the end."""
    yield
    pools.reset()


@pytest.fixture(scope="module")
def side(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """An app with one worker of one process that sends events.

    The queues of its events and its remote control are transient and shared, as before Celery 5.7.
    """
    options = {
        "event_queue_exclusive": False,
        "control_queue_exclusive": False,
        "task_send_sent_event": True,
    }
    directory = tmp_path_factory.mktemp("celery")
    with (
        opened(broker, directory, **options) as side,
        side.worker("main", "--concurrency=1", "--task-events") as worker,
    ):
        side.wait_until_ready("main")
        yield side
        assert worker.stop() == 0


def test_results_and_errors(side: Side) -> None:
    results = [side.send("add", i, i) for i in range(20)]
    assert [got(result) for result in results] == [2 * i for i in range(20)]
    with pytest.raises(ValueError, match="no way"):
        got(side.send("fail", "no way"))


def test_retries_with_a_countdown(side: Side) -> None:
    assert got(side.send("flaky", 2)) == 2


def test_revoke(side: Side, name: str) -> None:
    """The worker has answered that it knows of the revoke before the task is sent to it."""
    revoked = uuid()
    (answer,) = side.app.control.revoke(revoked, reply=True, timeout=SECONDS_MAX, limit=1)
    assert "ok" in answer[f"main@{side.host}"]
    result = side.send("note", name, "revoked", task_id=revoked)
    side.send("note", name, "next")
    assert side.heard(name, 1) == ["next"]
    with pytest.raises(TaskRevokedError):
        got(result)


def test_group_and_chain(side: Side) -> None:
    add = side.app.tasks["add"]
    assert got(group(add.s(i, i) for i in range(5)).apply_async()) == [0, 2, 4, 6, 8]
    assert got(chain(add.s(1, 2), add.s(3), add.s(4)).apply_async()) == 10


def test_chord(side: Side) -> None:
    add, total = side.app.tasks["add"], side.app.tasks["total"]
    assert got(chord([add.s(i, i) for i in range(5)])(total.s())) == 20


def test_priorities(side: Side, name: str) -> None:
    """Tasks that wait are run by priority, and in order where it is equal."""
    queue = f"{name}.priority"
    options = {"exchange": queue, "routing_key": queue}
    side.app.amqp.queues.add(queue, queue_arguments={"x-max-priority": 9}, **options)
    for priority in (0, 5, 9, 5, None, 1):
        side.send("note", name, str(priority), queue=queue, priority=priority)
    side.app.control.add_consumer(
        queue, exchange=queue, options={"queue_arguments": {"x-max-priority": 9}}
    )
    assert side.heard(name, 6) == ["9", "5", "5", "1", "0", "None"]
    side.app.control.cancel_consumer(queue)


def test_remote_control(side: Side) -> None:
    node = f"main@{side.host}"
    inspect = side.app.control.inspect(destination=[node], timeout=SECONDS_MAX, limit=1)
    assert inspect.ping() == {node: {"ok": "pong"}}
    queues = inspect.active_queues()[node]
    assert side.configuration["task_default_queue"] in [queue["name"] for queue in queues]
    assert "add" in inspect.registered()[node]
    assert inspect.stats()[node]["prefetch_count"] >= 1


def test_events(side: Side) -> None:
    """A task's life is told on the events' exchange, by its sender and by its worker."""
    life = {"task-sent", "task-received", "task-started", "task-succeeded"}
    seen: list[tuple[str, str]] = []
    with side.app.connection_for_read() as connection:
        receiver = side.app.events.Receiver(
            connection,
            handlers={"*": lambda event: seen.append((event.get("uuid", ""), event["type"]))},
        )
        with receiver.consumer_context() as (consuming, _, _):
            task = side.send("add", 1, 1)
            while not {(task.id, kind) for kind in life} <= set(seen):
                consuming.drain_events(timeout=SECONDS_MAX)
    assert {kind for one, kind in seen if one == task.id} == life


def test_late_ack_of_a_killed_worker(broker: Broker, tmp_path: Path, name: str) -> None:
    """What a killed worker had begun is delivered again, to the next one; results by `rpc://`."""
    with opened(broker, tmp_path, result_backend="rpc://", task_acks_late=True) as side:
        with side.worker("first", *QUICK) as first:
            result = side.send("hold", name)
            assert side.heard(name, 1) == ["begun"]
            first.kill()
        with side.worker("second", *QUICK) as second:
            assert got(result) == "redelivered"
            assert second.stop() == 0


@dataclass
class Reported:
    """A broker that reports a version of RabbitMQ, and its only worker."""

    process: BrokerProcess
    side: Side
    #: Whether kombu sets the prefetch of the whole channel, which also changes for consumers that
    #: are there. From 4.0 on it sets that of new consumers.
    by_channel: bool

    @property
    def queue(self) -> str:
        """The queue of the worker's tasks."""
        return str(self.side.configuration["task_default_queue"])

    def command(self, name: str, **arguments: object) -> Any:
        """Send the worker a command of its remote control; return its answer."""
        (answer,) = self.side.app.control.broadcast(
            name, arguments=arguments, reply=True, timeout=SECONDS_MAX, limit=1
        )
        (found,) = answer.values()
        return found

    def autoscale(self, processes_max: int) -> None:
        """Set how many processes the worker may have, and see that it has no more."""
        while True:
            assert "ok" in self.command("autoscale", max=processes_max, min=1)
            if len(self.command("stats")["pool"]["processes"]) <= processes_max:
                return

    def add_queue(self, queue: str) -> None:
        """Let tasks be sent to another queue."""
        self.side.app.amqp.queues.add(queue, exchange=queue, routing_key=queue)

    def consume(self, queue: str) -> None:
        """Have the worker consume another queue."""
        assert "ok" in self.command("add_consumer", queue=queue, exchange=queue, routing_key=queue)

    def unacked(self) -> int:
        """Return how many tasks the worker has taken and not acked."""
        api = Api(self.process.data_dir / "management.sock")
        _, queue, _ = api.answer(f"/api/queues/%2F/{self.queue}")
        api.close()
        assert isinstance(queue, dict)
        return int(queue["messages_unacknowledged"])

    def waiting(self, queue: str) -> str | None:
        """Return the id of the next task that waits in the broker, and leave it there."""
        with Connection(self.process.uri) as connection:
            channel = connection.default_channel
            message = channel.basic_get(queue)
            if message is None:
                return None
            channel.basic_reject(message.delivery_tag, requeue=True)
            return str(message.headers["id"])


class Gated:
    """A task that has a process to itself until its gate is opened."""

    def __init__(self, side: Side, task: str, reply: str) -> None:
        self.gate = side.directory / uuid()
        os.mkfifo(self.gate)
        self.result = side.send(task, reply, str(self.gate))

    def open(self) -> None:
        """Let the task end, as soon as it has begun."""
        self.gate.write_bytes(b"")
        got(self.result)


@contextlib.contextmanager
def started(version: str, directory: Path) -> Iterator[Reported]:
    """Start a broker that reports a version, and a worker of one or two processes."""
    options = ("--autoscale=2,1", "--without-mingle", "--without-gossip")
    with (
        BrokerProcess(directory / "data", settings={"rabbitmq_version": version}) as process,
        opened(Broker(process.uri), directory) as side,
        side.worker("scaled", *options) as worker,
    ):
        process.flags = ["--port", str(process.port)]  # where it comes back
        yield Reported(process, side, by_channel=version == VERSIONS[0])
        assert worker.stop() == 0


@pytest.fixture(scope="module")
def each_version(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Reported]]:
    """A worker for each version; a start takes seconds, so they start at the same time."""
    need_own_broker()
    with contextlib.ExitStack() as stack:
        found = {
            version: stack.enter_context(started(version, tmp_path_factory.mktemp("reported")))
            for version in VERSIONS
        }
        for one in found.values():
            one.side.wait_until_ready("scaled")
        yield found


@pytest.fixture(params=VERSIONS)
def reported(request: pytest.FixtureRequest, each_version: dict[str, Reported]) -> Reported:
    """The worker at a broker that reports a version of RabbitMQ."""
    return each_version[request.param]


def test_tasks_with_an_eta_hold_others_up_from_4_0_on(reported: Reported, name: str) -> None:
    """Tasks that wait for their time fill the prefetch, and the worker raises it for each of them.

    This works for the channel. A consumer keeps its prefetch: no further task of its queue comes.
    """
    side = reported.side
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.5)
    assert got(side.send("add", 1, 2, eta=soon)) == 3
    assert dt.datetime.now(dt.UTC) >= soon
    prefetch_count = reported.command("stats")["prefetch_count"]
    reported.add_queue(name)
    reported.consume(name)
    held = [side.send("add", 1, 1, countdown=3600, queue=name) for _ in range(prefetch_count)]
    while reported.command("stats")["prefetch_count"] < 2 * prefetch_count:
        pass
    next_one = side.send("note", f"{name}.reply", "next", queue=name)
    if reported.by_channel:
        assert side.heard(f"{name}.reply", 1) == ["next"]
    else:
        assert reported.waiting(name) == next_one.id
    assert not any(result.ready() for result in held)
    reported.command("cancel_consumer", queue=name)


def test_autoscale_beyond_the_first_maximum_has_no_effect_from_4_0_on(
    reported: Reported, name: str
) -> None:
    """The worker prefetches as many tasks as it may have processes, and starts one for each.

    When its maximum is raised, it raises the prefetch: of the channel, but not of a consumer.
    """
    reported.autoscale(3)
    tasks = [Gated(reported.side, "wait_then_ack", name) for _ in range(3)]
    if reported.by_channel:
        assert reported.side.heard(name, 3) == ["begun"] * 3
    else:
        assert reported.side.heard(name, 2) == ["begun"] * 2
        assert reported.waiting(reported.queue) == tasks[2].result.id
    for task in tasks:
        task.open()
    reported.autoscale(2)


def test_a_worker_that_lost_a_killed_broker_takes_fewer_tasks_before_4_0(
    reported: Reported, name: str
) -> None:
    """The worker connects again, and tasks that were confirmed run.

    While a process is busy, it prefetches one task less, and raises the prefetch of the channel as
    tasks end. It could not raise that of a consumer, and so prefetches a task for each process.
    """
    side = reported.side
    reply = f"{name}.reply"
    running, done = (Gated(side, "wait", reply) for _ in range(2))
    assert side.heard(reply, 2) == ["begun"] * 2  # in two processes
    done.open()
    while reported.unacked():
        pass  # until the broker has the ack of the task that runs
    reported.add_queue(name)
    confirmed = [side.send("add", i, i, queue=name) for i in range(20)]
    reported.process.crash()
    first, second = (Gated(side, "wait_then_ack", reply) for _ in range(2))
    assert side.heard(reply, 1) == ["begun"]
    assert reported.waiting(reported.queue) == (second.result.id if reported.by_channel else None)
    for task in (running, first, second):
        task.open()
    tasks = [Gated(side, "wait_then_ack", reply) for _ in range(2)]
    assert side.heard(reply, 3) == ["begun"] * 3  # with `second`
    for task in tasks:
        task.open()
    reported.consume(name)
    assert [got(result) for result in confirmed] == [2 * i for i in range(20)]


@pytest.mark.parametrize("kind", ["quorum", pytest.param("classic", marks=pytest.mark.thorough)])
@pytest.mark.usefixtures("no_delayed_delivery")
def test_native_delayed_delivery(broker: Broker, tmp_path: Path, kind: str) -> None:
    """A countdown of 3 s waits 2 s in one queue of Celery's 28 and 1 s in another, in no worker.

    Each bit of the seconds is a word of the routing key: a level's queue takes a 1, a 0 goes past.
    """
    options = {
        "task_default_queue_type": "quorum",
        "task_default_exchange_type": "topic",
        "broker_native_delayed_delivery_queue_type": kind,
    }
    with (
        opened(broker, tmp_path, **options) as side,
        side.worker(kind, *QUICK) as worker,
        Connection(broker.uri) as connection,
    ):
        assert got(side.send("add", 1, 1)) == 2  # the worker has declared all
        start = time.monotonic()
        result = side.send("journey", countdown=3)
        waiting = connection.default_channel.queue_declare(level_name(1), passive=True)
        assert waiting.message_count == 1
        journey = got(result)
        assert time.monotonic() - start >= 3
        assert worker.stop() == 0
    key = side.configuration["task_default_routing_key"]
    assert journey == {
        "exchange": "celery_delayed_delivery",
        "routing_key": ".".join("0" * 26 + "11") + f".{key}",
        "deaths": [["celery_delayed_0", "expired", 1], ["celery_delayed_1", "expired", 1]],
    }


@pytest.fixture
def no_delayed_delivery(broker: Broker) -> Iterator[None]:
    """See that nothing of native delayed delivery is there, before and after."""
    with Connection(broker.uri) as connection:
        remove_delayed_delivery(connection.default_channel)
        yield
        remove_delayed_delivery(connection.default_channel)


def remove_delayed_delivery(channel: Any) -> None:
    """Delete the queues and exchanges of native delayed delivery."""
    levels = [level_name(number) for number in range(MAX_NUMBER_OF_BITS_TO_USE)]
    for queue in levels:
        channel.queue_delete(queue)
    for exchange in (*levels, CELERY_DELAYED_DELIVERY_EXCHANGE):
        channel.exchange_delete(exchange)
