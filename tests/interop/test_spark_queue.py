"""Spark's queue source on Debian's RabbitMQ: classic and quorum, under Spark's order of calls."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rabbitmq import RabbitMQ, installed

pytest.importorskip("pyspark")

from support.spark.live_queue import LiveQueue
from support.spark.spark_order import Checkpoint, StreamingRun, batch_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

COUNT = 5000
TYPES = pytest.mark.parametrize("type_", ["classic", "quorum"])
MODES = pytest.mark.parametrize("mode", ["afterBatch", "spool"])


@pytest.fixture(scope="module")
def rabbit() -> Iterator[RabbitMQ]:
    """A node of its own."""
    if not installed():
        pytest.skip("rabbitmq-server is not installed")
    with RabbitMQ() as node:
        yield node


def declared(rabbit: RabbitMQ, name: str, type_: str) -> LiveQueue:
    queue = LiveQueue(rabbit.uri, f"{name}-{type_}")
    queue.declare({"x-queue-type": type_})
    return queue


def options(queue: LiveQueue, place: Path, mode: str, **more: str) -> Mapping[str, str]:
    return queue.options | {"spoolDir": str(place / "spool"), "ackMode": mode} | more


def bodies(rows: list[Any]) -> list[bytes]:
    return [row["body"] for row in rows]


@TYPES
@MODES
def test_two_runs_have_all_once_and_leave_nothing(
    rabbit: RabbitMQ, name: str, tmp_path: Path, type_: str, mode: str
) -> None:
    queue = declared(rabbit, name, type_)
    checkpoint = Checkpoint()
    limited = options(queue, tmp_path, mode, maxOffsetsPerTrigger="1000")
    for start in (0, COUNT):
        made = queue.publish_numbers(start, start + COUNT)
        run = StreamingRun(limited, checkpoint, available_now=True)
        batches = run.all_batches()
        assert [len(batch) for batch in batches] == [1000] * 5
        assert [body for batch in batches for body in bodies(batch)] == made
        run.planner.stop()
        assert queue.ready() == 0  # what had been unacked would be back
    run = StreamingRun(limited, checkpoint)
    more = queue.publish_numbers(0, 10)
    assert [body for batch in run.all_batches() for body in bodies(batch)] == more
    run.planner.stop()
    assert queue.delete() == 0


@TYPES
def test_a_batch_read_gives_everything_back(rabbit: RabbitMQ, name: str, type_: str) -> None:
    queue = declared(rabbit, name, type_)
    made = queue.publish_numbers(0, 30)
    for again in (False, True):
        rows = batch_rows(queue.options)
        assert bodies(rows) == made
        assert {row["redelivered"] for row in rows} == {again}
    assert queue.delete() == 30


def test_a_quorum_queue_whose_leader_is_busy_is_not_empty(rabbit: RabbitMQ, name: str) -> None:
    """RabbitMQ counts 0 when the leader says nothing for 250 ms."""
    queue = declared(rabbit, name, "quorum")
    made = queue.publish_numbers(0, 30)
    leader = (
        f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue.name}">>)), '
        "{Name, _} = amqqueue:get_pid(Q), "
    )
    rabbit.evaluate(leader + "sys:suspend(Name).")
    assert queue.ready() == 0
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(batch_rows, queue.options)
        rabbit.evaluate(leader + "sys:resume(Name).")
        assert bodies(reading.result()) == made
    assert queue.delete() == 30


def test_nothing_is_lost_when_the_node_is_killed(name: str, tmp_path: Path) -> None:
    """After a kill RabbitMQ does not always mark what it delivers again."""
    if not installed():
        pytest.skip("rabbitmq-server is not installed")
    with RabbitMQ(tmp_path) as node:
        queue = declared(node, name, "classic")
        node.sync_definitions()
        made = queue.publish_numbers(0, COUNT)
        limited = options(queue, tmp_path, "spool", maxOffsetsPerTrigger="1000")
        checkpoint = Checkpoint()
        run = StreamingRun(limited, checkpoint)
        rows = [*(run.batch() or []), *(run.batch() or [])]
        node.kill()
        run.planner.stop()
        node.start()  # at another port, so that the query is another
        queue = LiveQueue(node.uri, queue.name)
        made += queue.publish_numbers(COUNT, COUNT + 10)
        limited = options(queue, tmp_path, "spool", maxOffsetsPerTrigger="1000")
        run = StreamingRun(limited, checkpoint, available_now=True)
        rows += [row for batch in run.all_batches() for row in batch]
        run.planner.stop()
        assert set(bodies(rows)) == set(made)
        assert queue.delete() == 0
