"""The job lifecycle: lives put together from events, and those of a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.client import BasicProperties, blocking
from leveret.pipelines import lifecycle
from leveret.pipelines.lifecycle.job import EVENT_STREAM, read_events, summarize
from leveret.pipelines.lifecycle.page import lifecycle_page
from leveret.pipelines.lifecycle.result import Latency, Lifecycle
from leveret.pipelines.refusals import JobError
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker

Event = dict[str, object]


def event(name: str, at_ms: int, sequence: int | None = None, **more: object) -> Event:
    """An event as the broker writes it, of the queue `q`."""
    base: Event = {"event": name, "at_ms": at_ms, "vhost": "/", "queue": "q"}
    if sequence is not None:
        base["sequence"] = sequence
        base |= {"exchange": "", "routing_key": "q", "taken_ms": 1000, "bytes": 1}
    return base | more


def told(
    spark: SparkSession, *events: Event, stuck_after: int = 600, now_ms: int | None = None
) -> Lifecycle:
    """What the job makes of events."""
    bodies = [(json.dumps(one).encode(),) for one in events]
    rows = spark.createDataFrame(bodies, "body binary")
    return summarize(read_events(rows), "a test", stuck_after, now_ms)


def test_the_stages_of_lives_that_end_well(spark: SparkSession) -> None:
    events = []
    for sequence in range(1, 101):
        events += [
            event("routed", 1005, sequence),
            event("delivered", 1005 + sequence, sequence),
            event("acked", 1105 + sequence, sequence),
        ]
    found = told(spark, *reversed(events))
    (queue,) = found.queues
    assert (queue.messages, queue.acked, queue.open, queue.cut) == (100, 100, 0, 0)
    assert queue.stages["routing"] == Latency(100, 5, 5, 5, 5)
    assert queue.stages["waiting"] == Latency(100, 50, 95, 99, 100)
    assert queue.stages["handling"] == Latency(100, 100, 100, 100, 100)
    assert queue.stages["whole"] == Latency(100, 155, 200, 204, 205)
    assert (found.events, found.unreadable, found.stuck_total) == (300, 0, 0)
    assert found.last == datetime.fromtimestamp(1.205, tz=UTC)


def test_every_end_counts_once_and_coming_back_is_no_end(spark: SparkSession) -> None:
    found = told(
        spark,
        event("routed", 1, 1), event("delivered", 2, 1), event("requeued", 2, 1, count=1),
        event("delivered", 3, 1, count=1), event("acked", 4, 1),
        event("routed", 1, 2), event("dead_lettered", 9, 2, reason="expired"),
        event("routed", 1, 3), event("expired", 9, 3, reason="expired"),
        event("routed", 1, 4), event("dropped", 9, 4, reason="maxlen"),
        event("delivered", 5, 5), event("acked", 6, 5),
        event("published", 1, queues=1), event("unroutable", 1, queues=0),
    )  # fmt: skip
    (queue,) = found.queues
    ends = (queue.acked, queue.dead_lettered, queue.expired, queue.dropped, queue.cleared)
    assert ends == (2, 1, 1, 1, 0)
    assert (queue.messages, queue.redelivered, queue.cut) == (5, 1, 1)
    assert queue.stages["waiting"] == Latency(1, 1, 1, 1, 1)
    assert (found.published, found.unroutable) == (1, 1)


def test_what_waits_too_long_is_stuck_and_what_was_purged_is_not(spark: SparkSession) -> None:
    found = told(
        spark,
        event("routed", 0, 1, message_id="lost"),
        event("routed", 0, 2), event("delivered", 100, 2),
        event("routed", 0, 3), event("delivered", 1, 3), event("requeued", 2, 3, count=1),
        event("routed", 0, 4, queue="p"), event("purged", 5, 9, queue="p"),
        event("routed", 0, 5, queue="p"), event("delivered", 1, 5, queue="p"),
        event("routed", 6, 6, queue="p"),
        event("routed", 700_000, 9, queue="p"),
    )  # fmt: skip
    stuck = [(one.queue, one.sequence, one.last_event, one.message_id) for one in found.stuck]
    assert stuck == [
        ("q", 1, "routed", "lost"),
        ("p", 5, "delivered", None),
        ("q", 3, "requeued", None),
        ("p", 6, "routed", None),
        ("q", 2, "delivered", None),
    ]
    assert found.stuck_total == 5
    assert [(q.queue, q.cleared, q.open, q.stuck) for q in found.queues] == [
        ("p", 1, 3, 2),
        ("q", 0, 3, 3),
    ]


def test_what_waits_in_a_silent_broker_is_stuck_by_its_clock(spark: SparkSession) -> None:
    """No event says that time passes: neither of a queue that nobody reads, nor of another."""
    events = [
        event("routed", 1000, 1), event("delivered", 1500, 1), event("requeued", 2000, 1, count=1),
        event("routed", 3000, 2), event("routed", 4000, 3), event("delivered", 4000, 3),
        event("routed", 4000, 1, queue="p"), event("acked", 5000, 1, queue="p"),
        event("published", 4000, queues=2, streams=1), event("published", 4000, queues=1),
        event("published", 4000, queues=1, streams=1),
    ]  # fmt: skip
    found = told(spark, *events)
    assert (found.stuck_total, found.published, found.published_to_streams) == (0, 3, 1)
    assert found.now == found.last == datetime.fromtimestamp(5, tz=UTC)
    found = told(spark, *events, stuck_after=300, now_ms=303_001)
    assert found.now == datetime.fromtimestamp(303.001, tz=UTC)
    assert [(one.queue, one.sequence) for one in found.stuck] == [("q", 1), ("q", 2)]
    assert {q.queue: q.oldest_waiting_ms for q in found.queues} == {"q": 302_001, "p": None}
    assert told(spark, *events, now_ms=1).now == found.last


def test_no_events_and_bodies_that_are_none(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(b"\xff{",), (b"[1]",)], "body binary")
    found = summarize(read_events(rows), "a test", 60)
    assert (found.events, found.unreadable, found.queues, found.first) == (2, 2, (), None)
    assert '"unreadable":2' in lifecycle_page(found, "1 minute")


def test_only_an_archive_is_told_the_time(spark: SparkSession) -> None:
    with pytest.raises(JobError, match="now: only for an archive"):
        lifecycle(spark, uri="amqp://127.0.0.1:1", now="2026-11-21T05:40:00Z")


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[str]:
    """A broker that follows every message; its URI."""
    need_own_broker()
    with BrokerProcess(tmp_path / "data", settings={"event_sample_every": "1"}) as broker:
        yield broker.uri


def test_the_events_of_a_broker(spark: SparkSession, followed: str, tmp_path: Path) -> None:
    with blocking.connect(followed) as connection:
        channel = connection.channel()
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead<b>"}
        channel.queue_declare("work", durable=True, arguments=dead)
        channel.queue_declare("dead<b>", durable=True)
        channel.confirm_select()
        for number in range(10):
            channel.publish(b"%d" % number, "", "work", BasicProperties(delivery_mode=2))
        for number in range(8):
            message = channel.get("work")
            assert message is not None
            if number < 6:
                message.ack()
            else:
                message.reject(requeue=False)
        channel.publish(b"", "", "nowhere")
    page = tmp_path / "page.html"
    found = lifecycle(spark, uri=followed, html_path=page)
    queues = {queue.queue: queue for queue in found.queues}
    work = queues["work"]
    assert (work.messages, work.acked, work.dead_lettered, work.open) == (10, 6, 2, 2)
    assert work.stages["whole"].messages == 6
    assert queues["dead<b>"].messages == 2
    assert (found.published, found.unroutable) == (10, 1)
    assert (found.published_to_streams, work.oldest_waiting_ms is None) == (0, False)
    assert found.source == f"stream {EVENT_STREAM}"
    text = page.read_text()
    assert "dead\\u003cb\\u003e" in text
    assert "guest:guest" not in text
    assert "dead<b>" not in text
