"""A queue as a source under Spark's order of calls, on a real broker and without a JVM.

A row is at least once: 0 are lost, 0 are unacked when nothing more comes, and what comes twice is
marked as redelivered.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.client import BasicProperties
from leveret.errors import NotFound
from leveret.spark.options.read import OptionError
from leveret.spark.queue.spool import Spool, SpoolError
from leveret.spark.stream.ranges import DataLossError
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import Broker, need_own_broker
from support.spark.live_queue import LiveQueue, unacked
from support.spark.live_stream import LiveStream, Sent
from support.spark.queue_driver import rows_of
from support.spark.spark_order import Checkpoint, StreamingRun, batch_rows

MODES = pytest.mark.parametrize("mode", ["afterBatch", "spool"])
COUNT = 5000


@pytest.fixture
def queue(broker: Broker, name: str) -> Iterator[LiveQueue]:
    """An empty queue on the broker."""
    live = LiveQueue(broker.uri, name)
    live.declare()
    yield live
    live.delete()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Where the spool lies."""
    return tmp_path / "spool"


def options(queue: LiveQueue, spool: Path, mode: str, **more: str) -> dict[str, str]:
    return queue.options | {"spoolDir": str(spool), "ackMode": mode} | more


def bodies(batches: list[list[Any]]) -> list[bytes]:
    return [row["body"] for batch in batches for row in batch]


# -- nothing lost, nothing left unacked ------------------------------------------------------------


@MODES
def test_available_now_twice_gives_all_once_and_leaves_nothing(
    broker: Broker, queue: LiveQueue, spool: Path, mode: str
) -> None:
    checkpoint = Checkpoint()
    limited = options(queue, spool, mode, maxOffsetsPerTrigger="1000")
    found: list[bytes] = []
    for start in (0, COUNT):
        made = queue.publish_numbers(start, start + COUNT)
        run = StreamingRun(limited, checkpoint, available_now=True)
        batches = run.all_batches()
        assert [len(batch) for batch in batches] == [1000] * 5
        assert bodies(batches) == made
        found += made
        # Before anything is closed: Spark kills the process here.
        assert unacked(broker, queue) == 0
        run.planner.stop()
        assert queue.ready() == 0


@MODES
@pytest.mark.parametrize("admission", [True, False])
def test_a_running_query_gives_all_once_and_leaves_nothing_when_idle(
    broker: Broker, queue: LiveQueue, spool: Path, mode: str, admission: bool
) -> None:
    checkpoint = Checkpoint()
    for start in (0, COUNT):
        run = StreamingRun(options(queue, spool, mode), checkpoint, admission=admission)
        made = queue.publish_numbers(start, start + COUNT)
        assert bodies(run.all_batches()) == made
        assert unacked(broker, queue) == 0
        more = queue.publish_numbers(0, 10)
        assert bodies(run.all_batches()) == more
        assert unacked(broker, queue) == 0
        run.planner.stop()
    assert queue.ready() == 0


def test_a_query_of_one_batch_is_not_acked_without_admission_control(
    queue: LiveQueue, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark before 4.2 ends Trigger.AvailableNow and Trigger.Once without asking again."""
    checkpoint = Checkpoint()
    made = queue.publish_numbers(0, COUNT)
    for run_number in range(2):
        assert ("start_available" in caplog.text) is False
        run = StreamingRun(options(queue, spool, "afterBatch"), checkpoint, admission=False)
        rows = run.batch() or []
        assert [row["body"] for row in rows] == made
        assert {row["redelivered"] for row in rows} == {bool(run_number)}
        run.planner.stop()
    assert "start such a query by leveret.spark.start_available" in caplog.text


# -- deaths of the driver --------------------------------------------------------------------------


def drive(options: dict[str, str], directory: Path, place: str = "never", batch: int = -1) -> int:
    """Run a driver that dies in that place of that batch; return its exit code."""
    given = {"options": options, "directory": str(directory), "place": place, "batch": batch}
    driver = [sys.executable, "-m", "support.spark.queue_driver", json.dumps(given)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    return subprocess.run(driver, env=os.environ | {"PYTHONPATH": path}, check=False).returncode


def check_marked(rows: list[dict[str, Any]], made: list[bytes]) -> int:
    """Check that all is there and what is there again is marked; return how much that is."""
    found = Counter(row["body"] for row in rows)
    assert set(found) == set(made)
    fresh = Counter(row["body"] for row in rows if not row["redelivered"])
    assert max(fresh.values()) == 1
    return len(rows) - len(found)


@pytest.mark.parametrize(
    ("mode", "place", "batch", "again"),
    [
        # In the spool and not acked, so that the broker cannot know: all that was taken ahead.  The
        # second batch is the first whose messages the spool takes, and may take all that follow.
        ("spool", "synced", 1, range(1, COUNT + 1)),
        ("spool", "committed", 2, range(1)),
        # The batch is run from the spool, and its ack is the next poll's.
        ("afterBatch", "planned", 2, range(1000, 1001)),
    ],
)
def test_a_driver_that_dies_loses_nothing_and_what_comes_again_is_marked(
    queue: LiveQueue, spool: Path, tmp_path: Path, mode: str, place: str, batch: int, again: range
) -> None:
    made = queue.publish_numbers(0, COUNT)
    limited = options(queue, spool, mode, maxOffsetsPerTrigger="1000")
    sink = tmp_path / "sink"
    assert drive(limited, sink, place, batch) == -signal.SIGKILL
    assert drive(limited, sink) == 0
    rows = rows_of(sink)
    assert check_marked(rows, made) in again
    first = [*dict.fromkeys(row["body"] for row in rows)]
    assert first == made
    assert queue.ready() == 0


# -- deaths of the broker --------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("available_now", [False, True])
def test_a_query_outlives_the_broker(
    tmp_path: Path, name: str, spool: Path, mode: str, available_now: bool
) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path / "broker") as broker:
        broker.flags = ["--port", str(broker.port)]
        queue = LiveQueue(broker.uri, name)
        queue.declare()
        made = queue.publish_numbers(0, COUNT)
        limited = options(queue, spool, mode, maxOffsetsPerTrigger="1000", numRetries="20")
        run = StreamingRun(limited, Checkpoint(), available_now=available_now)
        rows = [*(run.batch() or []), *(run.batch() or [])]
        assert run.plan()
        # Its confirm comes after the sync of the acks so far.
        LiveQueue(broker.uri, f"{name}-other").declare()
        broker.crash()
        rows += run.run_planned()
        run.checkpoint.commits += 1
        if not available_now:
            made += queue.publish_numbers(COUNT, COUNT + 10)
        for batch in run.all_batches():
            rows += batch
        again = check_marked(rows, made)
        # The batch that was run; what was taken ahead of it is read when it comes again.
        assert again == 1000 if mode == "afterBatch" else again < COUNT
        run.planner.stop()
        assert queue.ready() == 0


# -- replays, limits, refusals ---------------------------------------------------------------------


@MODES
def test_a_batch_that_failed_is_the_same_batch_again(
    queue: LiveQueue, spool: Path, mode: str
) -> None:
    made = queue.publish_numbers(0, 2500)
    checkpoint = Checkpoint()
    limited = options(queue, spool, mode, maxOffsetsPerTrigger="1000", maxRecordsPerPartition="300")
    run = StreamingRun(limited, checkpoint)
    first = run.batch()
    lost = run.batch(crash=True)
    run.planner.stop()
    again = StreamingRun(limited, checkpoint)
    rows = again.batch() or []
    assert rows == lost
    found = [*(first or []), *rows, *(row for batch in again.all_batches() for row in batch)]
    assert check_marked(found, made) == (1000 if mode == "afterBatch" else 0)
    again.planner.stop()


def test_a_commit_that_the_checkpoint_lost_is_run_again(queue: LiveQueue, spool: Path) -> None:
    """Spark does not sync its commit log: the newest entry may go with the power."""
    queue.publish_numbers(0, 30)
    checkpoint = Checkpoint()
    limited = options(queue, spool, "spool", maxOffsetsPerTrigger="10")
    run = StreamingRun(limited, checkpoint, available_now=True)
    batches = run.all_batches()
    run.planner.stop()
    checkpoint.commits -= 1
    again = StreamingRun(limited, checkpoint, available_now=True)
    assert again.all_batches() == batches[-1:]
    again.planner.stop()


def test_available_now_ends_where_the_queue_ended_at_the_start(
    broker: Broker, queue: LiveQueue, spool: Path
) -> None:
    made = queue.publish_numbers(0, 25)
    checkpoint = Checkpoint()
    for start, mode in ((25, "spool"), (50, "afterBatch"), (75, "spool")):
        limited = options(queue, spool, mode, maxOffsetsPerTrigger="10")
        run = StreamingRun(limited, checkpoint, available_now=True)
        more = queue.publish_numbers(start, start + 25)
        batches = run.all_batches()
        assert [len(batch) for batch in batches] == [10, 10, 5]
        assert bodies(batches) == made
        run.planner.stop()
        assert queue.ready() == 25
        made = more


@pytest.mark.parametrize(("size", "lengths"), [("100", [10, 10, 5]), ("9", [1] * 25)])
def test_batches_are_limited_by_bytes(
    queue: LiveQueue, spool: Path, size: str, lengths: list[int]
) -> None:
    queue.publish(Sent(bytes(10)) for _ in range(25))
    run = StreamingRun(options(queue, spool, "spool", maxBytesPerTrigger=size), Checkpoint())
    assert [len(batch) for batch in run.all_batches()] == lengths
    run.planner.stop()


def test_no_batch_after_the_ack_is_larger_than_the_prefetch(queue: LiveQueue, spool: Path) -> None:
    made = queue.publish_numbers(0, 250)
    run = StreamingRun(options(queue, spool, "afterBatch", prefetch="100"), Checkpoint())
    batches = run.all_batches()
    assert bodies(batches) == made
    assert max(len(batch) for batch in batches) == 100
    run.planner.stop()


def test_the_files_of_committed_batches_go(queue: LiveQueue, spool: Path) -> None:
    queue.publish_numbers(0, 1000)
    limited = options(queue, spool, "afterBatch", maxOffsetsPerTrigger="100", prefetch="200")
    run = StreamingRun(limited, Checkpoint())
    run.all_batches()
    run.planner.stop()
    # Those of the newest batch stay: Spark's checkpoint may lose it.
    assert len([*spool.glob("*.arrow")]) <= 2


def test_a_new_query_on_an_old_spool_starts_with_what_no_batch_had(
    queue: LiveQueue, spool: Path
) -> None:
    made = queue.publish_numbers(0, 30)
    limited = options(queue, spool, "spool", maxOffsetsPerTrigger="10")
    run = StreamingRun(limited, Checkpoint())
    assert bodies([run.batch() or []]) == made[:10]
    assert run.plan()  # the first is committed, the second never
    run.planner.stop()
    again = StreamingRun(limited, Checkpoint())
    assert bodies(again.all_batches()) == made[10:]
    again.planner.stop()


def test_a_lost_spool_is_told(queue: LiveQueue, spool: Path) -> None:
    queue.publish_numbers(0, 10)
    checkpoint = Checkpoint()
    run = StreamingRun(options(queue, spool, "spool"), checkpoint)
    run.all_batches()
    run.planner.stop()
    shutil.rmtree(spool)
    made = queue.publish_numbers(10, 20)
    strict = StreamingRun(options(queue, spool, "spool"), checkpoint)
    with pytest.raises(DataLossError, match="the checkpoint belongs to spool"):
        strict.batch()
    strict.planner.stop()
    lenient = StreamingRun(options(queue, spool, "spool", failOnDataLoss="false"), checkpoint)
    assert bodies(lenient.all_batches()) == made
    lenient.planner.stop()


def test_lost_and_damaged_files_are_told(queue: LiveQueue, spool: Path) -> None:
    queue.publish_numbers(0, 10)
    run = StreamingRun(options(queue, spool, "spool"), Checkpoint())
    assert run.plan()
    (file,) = spool.glob("*.arrow")
    data = file.read_bytes()
    file.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    with pytest.raises(SpoolError, match="is damaged"):
        run.run_planned()
    file.unlink()
    with pytest.raises(DataLossError, match="the messages 0 to 9 are missing"):
        run.run_planned()
    run.planner.stop()
    assert queue.ready() == 10  # no task had seen the spool


def test_a_task_that_does_not_see_the_spool_is_told_and_nothing_is_taken(
    queue: LiveQueue, spool: Path, tmp_path: Path
) -> None:
    """As on a cluster without shared storage: the directory is the driver's own."""
    queue.publish_numbers(0, 10)
    run = StreamingRun(options(queue, spool, "spool"), Checkpoint())
    assert run.plan()
    spool.rename(tmp_path / "elsewhere")
    with pytest.raises(SpoolError, match="on a cluster spoolDir must be on storage"):
        run.run_planned()
    (tmp_path / "elsewhere").rename(spool)
    run.planner.stop()
    assert queue.ready() == 10


def test_two_queries_do_not_share_a_spool(queue: LiveQueue, spool: Path, name: str) -> None:
    run = StreamingRun(options(queue, spool, "spool"), Checkpoint())
    with pytest.raises(SpoolError, match="in use by another query"):
        Spool(str(spool), queue.name, "/", lock_seconds=0.0)
    run.planner.stop()
    other = LiveQueue(queue.uri, f"{name}-other")
    with pytest.raises(SpoolError, match="is the spool of queue"):
        StreamingRun(options(other, spool, "spool"), Checkpoint())


def test_a_checkpoint_of_something_else_is_refused(queue: LiveQueue, spool: Path) -> None:
    run = StreamingRun(options(queue, spool, "spool"), Checkpoint([{"other": 3}], 1))
    with pytest.raises(ValueError, match="is not of queue"):
        run.batch()
    run.planner.stop()


def test_a_queue_that_is_not_there_is_an_error(broker: Broker, spool: Path) -> None:
    absent = LiveQueue(broker.uri, "nobody-made-this")
    run = StreamingRun(options(absent, spool, "spool"), Checkpoint())
    with pytest.raises(NotFound):
        run.batch()
    run.planner.stop()
    with pytest.raises(NotFound, match=r"no queue 'nobody-made-this' in vhost '/' at amqp"):
        batch_rows(absent.options)


def test_a_stream_is_refused(broker: Broker, name: str, spool: Path) -> None:
    stream = LiveStream(broker.uri, name, f"{name}-exchange")
    stream.declare()
    queue = LiveQueue(broker.uri, name)
    run = StreamingRun(options(queue, spool, "spool"), Checkpoint())
    assert run.batch() is None
    stream.publish_numbers(0, 3)
    with pytest.raises(OptionError, match="is a stream"):
        run.batch()
    run.planner.stop()
    with pytest.raises(OptionError, match="is a stream"):
        batch_rows(queue.options)
    stream.delete()


# -- batch -----------------------------------------------------------------------------------------


def test_a_batch_read_only_looks(broker: Broker, queue: LiveQueue) -> None:
    made = queue.publish_numbers(0, 30)
    for again in (False, True):
        rows = batch_rows(queue.options | {"ackMode": "none"})
        assert bodies([rows]) == made
        assert [row["offset"] for row in rows] == list(range(30))
        assert {row["redelivered"] for row in rows} == {again and broker.is_rabbitmq}
        assert queue.ready() == 30


def test_an_empty_queue_is_an_empty_table(queue: LiveQueue) -> None:
    assert batch_rows(queue.options) == []


def test_the_columns_of_a_row(queue: LiveQueue, spool: Path) -> None:
    properties = BasicProperties(headers={"n": 7}, content_type="text/plain", delivery_mode=2)
    queue.publish([Sent(b"hello", properties=properties)])
    run = StreamingRun(options(queue, spool, "afterBatch"), Checkpoint())
    ((row,),) = run.all_batches()
    run.planner.stop()
    assert row["stream"] == row["routing_key"] == queue.name
    assert (row["partition"], row["offset"], row["exchange"]) == (0, 0, "")
    assert row["headers"] == [("n", "7")]
    assert row["properties"]["content_type"] == "text/plain"
    assert (row["redelivered"], row["body"], row["timestamp"]) == (False, b"hello", None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "'spoolDir' is missing"),
        ({"spoolDir": "x", "ackMode": "none"}, "none only browses"),
        ({"spoolDir": "x"}, "an absolute path"),
        ({"spoolDir": "s3://bucket/x"}, "an absolute path"),
        ({"spoolDir": "/x", "transport": "bulk"}, "belongs to streams"),
        ({"spoolDir": "x", "minOffsetsPerTrigger": "3"}, "belongs to streams"),
    ],
)
def test_wrong_streaming_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        StreamingRun({"uri": "amqp://localhost", "queue": "q"} | given, Checkpoint())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ackMode": "spool"}, "only browses"),
        ({"spoolDir": "x"}, "belongs to a streaming read"),
        ({"maxOffsetsPerTrigger": "3"}, "belongs to a streaming read"),
    ],
)
def test_wrong_batch_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        batch_rows({"uri": "amqp://localhost", "queue": "q"} | given)
