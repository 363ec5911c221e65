"""Replay: in order, once however often it runs, and of what was chosen only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from leveret.client import BasicProperties
from leveret.client.blocking import connect
from leveret.pipelines import Destination, archive, read_archive, replay
from leveret.pipelines.progress import Say
from leveret.pipelines.refusals import JobError
from leveret.pipelines.replay.choosing import Choice, header_choice, matching
from leveret.pipelines.replay.sending import pace
from support.brokers.brokers import Broker, unique
from support.spark.live_stream import LiveStream, Sent

COUNT = 240


@pytest.fixture
def queue(broker: Broker) -> Iterator[str]:
    """A queue to replay to."""
    name = unique("replayed")
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.queue_declare(name, durable=True)
        yield name
        channel.queue_delete(name)


def fill(stream: LiveStream) -> list[Sent]:
    """Publish messages of three keys; what each is, is in its body."""
    messages = [
        Sent(
            str(n).encode(),
            f"{('app', 'web', 'db')[n % 3]}.{n % 5}",
            BasicProperties(
                message_id=f"m{n}",
                headers={"tenant": f"t{n % 2}", **({"CC": ["x"]} if n % 10 == 0 else {})},
            ),
        )
        for n in range(COUNT)
    ]
    stream.publish(messages)
    return messages


def take(uri: str, queue: str) -> list[tuple[int, str | None, dict[str, object]]]:
    """Take out of a queue what it holds: number, message id, headers."""
    found = []
    with connect(uri) as connection, connection.channel() as channel:
        while (message := channel.get(queue, no_ack=True)) is not None:
            own = {k: v for k, v in message.headers.items() if not k.startswith("x-publi")}
            found.append((int(message.body), message.properties.message_id, own))
    return found


def test_a_stream_again_in_order_and_only_once(
    spark: SparkSession, stream: LiveStream, queue: str, tmp_path: Path
) -> None:
    fill(stream)
    to = Destination(stream.uri, queue=queue)
    lines: list[str] = []
    checkpoint = tmp_path / "checkpoint"
    sent = replay(
        spark,
        to,
        uri=stream.uri,
        stream=stream.name,
        step=100,
        checkpoint=checkpoint,
        progress=lines.append,
    )
    assert (sent.messages, sent.next_offsets) == (COUNT, {stream.name: COUNT})
    assert len([line for line in lines if "confirmed" in line]) == 3
    expected = [(n, f"m{n}", {"tenant": f"t{n % 2}"}) for n in range(COUNT)]
    assert take(stream.uri, queue) == expected

    # With the checkpoint nothing is left to do; without it, or with one that is behind, the broker
    # drops what it knows.
    again = replay(spark, to, uri=stream.uri, stream=stream.name, checkpoint=checkpoint)
    assert again.messages == 0
    stream.publish([Sent(b"999", "app.9")])
    page = tmp_path / "replay.html"
    more = replay(spark, to, uri=stream.uri, stream=stream.name, html_path=page)
    assert sum(step.messages for step in more.steps) == more.messages
    assert f"leveret pipeline replay --stream {stream.name} " in page.read_text(encoding="utf-8")
    assert (more.name, more.messages) == (sent.name, COUNT + 1)
    assert take(stream.uri, queue) == [(999, None, {})]

    # On purpose it is replayed again under another name.
    replay(spark, to, uri=stream.uri, stream=stream.name, name=unique("again"))
    assert [number for number, _, _ in take(stream.uri, queue)] == [*range(COUNT), 999]


class Crash(Exception):
    """Ends a run where a test wants it to."""


@pytest.mark.parametrize("at", ["before offset 100 confirmed", "offsets 100 to 199"])
def test_a_run_that_was_cut_short_is_gone_on_with(
    spark: SparkSession, stream: LiveStream, queue: str, tmp_path: Path, at: str
) -> None:
    """Whatever was noted of the step that was cut, each message is in the queue once."""
    stream.publish_numbers(0, COUNT)
    to = Destination(stream.uri, queue=queue)

    def crash(line: str) -> None:
        if at in line:
            raise Crash(line)

    def run(progress: Say | None) -> int:
        sent = replay(
            spark,
            to,
            uri=stream.uri,
            stream=stream.name,
            step=100,
            checkpoint=tmp_path / "c",
            progress=progress,
        )
        return sent.messages

    with pytest.raises(Crash):
        run(crash)
    assert run(None) == COUNT - 100
    assert [number for number, _, _ in take(stream.uri, queue)] == list(range(COUNT))


def test_an_archive_by_key_header_and_time_to_where_it_went(
    spark: SparkSession, stream: LiveStream, queue: str, tmp_path: Path
) -> None:
    fill(stream)
    archive(spark, stream.uri, stream.name, tmp_path / "archive", max_offsets_per_trigger=70)
    with connect(stream.uri) as connection, connection.channel() as channel:
        channel.queue_unbind(stream.name, stream.exchange, "#")
        channel.queue_bind(queue, stream.exchange, "#")
    sent = replay(
        spark,
        Destination(stream.uri),
        path=tmp_path / "archive",
        patterns=["app.*", "#.3"],
        headers={"tenant": "t1"},
        since="2020-01-01",
        from_exchange=stream.exchange,
    )
    wanted = [n for n in range(COUNT) if n % 2 == 1 and (n % 3 == 0 or n % 5 == 3)]
    assert sent.messages == len(wanted)
    assert [number for number, _, _ in take(stream.uri, queue)] == wanted
    rows = read_archive(spark, tmp_path / "archive")
    to = Destination(stream.uri, queue=queue)
    assert replay(spark, to, rows=rows, name=unique("table"), patterns=["app.0"]).messages == 16
    assert [number for number, _, _ in take(stream.uri, queue)] == [*range(0, COUNT, 15)]
    none = replay(spark, Destination(stream.uri), path=tmp_path / "archive", until="2020-01-01")
    assert none.messages == 0


def test_a_streams_times_are_the_brokers(
    spark: SparkSession, stream: LiveStream, queue: str
) -> None:
    fill(stream)
    to = Destination(stream.uri, queue=queue)
    assert replay(spark, to, uri=stream.uri, stream=stream.name, since="2100-01-01").messages == 0
    assert replay(spark, to, uri=stream.uri, stream=stream.name, until="2020-01-01").messages == 0
    past = replay(spark, to, uri=stream.uri, stream=stream.name, since="2020-01-01", rate=100_000)
    assert past.messages == COUNT


def test_what_makes_no_sense_is_refused(spark: SparkSession) -> None:
    to = Destination("amqp://localhost", queue="q")
    source = {"uri": "amqp://localhost", "stream": "s"}
    with pytest.raises(JobError, match="messages come from a stream"):
        replay(spark, to)
    with pytest.raises(JobError, match="is not before until"):
        replay(spark, to, **source, since="2026-01-02", until="2026-01-01")  # type: ignore[arg-type]
    with pytest.raises(JobError, match="give only one of: stream, queue"):
        replay(spark, Destination("amqp://", stream="a", queue="b"), **source)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="routing_key: it needs an exchange"):
        replay(spark, Destination("amqp://", queue="b", routing_key="k"), **source)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="would be replayed into itself"):
        replay(spark, Destination("amqp://localhost/", stream="s"), **source)  # type: ignore[arg-type]
    rows = spark.createDataFrame([("s", 1)], "stream string, offset bigint")
    with pytest.raises(JobError, match="the job needs a name"):
        replay(spark, to, rows=rows)
    with pytest.raises(JobError, match="rows cannot be combined"):
        replay(spark, to, rows=rows, **source)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="at most 255 bytes"):
        replay(spark, to, **source, patterns=["x" * 256])  # type: ignore[arg-type]


def test_patterns_are_the_brokers_trie() -> None:
    keys = pa.array(["a.b", "a", None, "c.a.b", "a.b"])
    assert matching(["a.*", "#.c"], keys).to_pylist() == [True, False, False, False, True]
    assert matching(["#"], keys).to_pylist() == [True] * 5


def test_headers_are_asked_for_by_value_or_by_name() -> None:
    assert header_choice(["a=b=c", "d", "e="]) == {"a": "b=c", "d": None, "e": ""}
    for wrong in (["=x"], ["a=1", "a=2"]):
        with pytest.raises(JobError, match="is not NAME=VALUE"):
            header_choice(wrong)


def test_a_choice_without_a_time_holds_for_all_times() -> None:
    Choice(datetime(2026, 1, 1, tzinfo=UTC)).check()


def test_no_second_has_more_than_the_rate() -> None:
    """By a clock of the test's own: rows go on when their time has come, and none is late."""
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    batches = [
        pa.RecordBatch.from_pydict({"n": list(range(start, start + 25))}) for start in (0, 25)
    ]
    gone: list[tuple[float, int]] = []
    rows: list[int] = []
    for piece in pace(iter(batches), 100, lambda: now, sleep):
        gone.append((now - 100.0, piece.num_rows))
        rows += piece.column(0).to_pylist()
    assert rows == list(range(50))
    assert [round(moment, 6) for moment, _ in gone] == [0.0, 0.1, 0.2, 0.25, 0.35, 0.45]
    assert [count for _, count in gone] == [10, 10, 5, 10, 10, 5]
