"""Dead letters: grouped as they died, and some of them back where they came from, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from leveret.client import BasicProperties
from leveret.client.blocking import Channel, connect
from leveret.pipelines import archive, deadletter, republish
from leveret.pipelines.deadletter.republish import _addressed
from leveret.pipelines.kinds import KIND_WORDS, error_kind, fingerprint
from leveret.pipelines.letters import letters
from leveret.pipelines.refusals import JobError
from leveret.pipelines.replay.choosing import Choice
from leveret.pipelines.replay.sending import Sent
from support.brokers.brokers import Broker, unique
from support.spark.live_stream import LiveStream

SCHEMA = (
    "stream string, offset bigint, timestamp timestamp, exchange string, routing_key string, "
    "headers map<string, string>, properties struct<timestamp: timestamp>, body binary"
)
DEATHS = [
    {"count": 2, "reason": "expired", "queue": "retry", "time": "1700000100", "exchange": "dlx"},
    {
        "count": 1,
        "reason": "rejected",
        "queue": "work",
        "time": "1700000000",
        "exchange": "shop",
        "routing-keys": ["order.eu", "copy"],
    },
]


def letter(offset: int, headers: dict[str, str], body: bytes = b"") -> tuple[object, ...]:
    return ("s", offset, None, "dlx", "own", headers, None, body)


def table(spark: SparkSession, *rows: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


# -- letters on paper ------------------------------------------------------------------------------


def test_what_was_published_is_the_first_deaths(spark: SparkSession) -> None:
    """A letter that goes round has its entries moved, so the headers say which is the first."""
    first = {
        "x-first-death-queue": "work",
        "x-first-death-reason": "rejected",
        "x-first-death-exchange": "shop",
    }
    moved = {"x-death": json.dumps(DEATHS[::-1]), **first}
    rows = table(
        spark,
        letter(0, {"x-death": json.dumps(DEATHS)}),
        letter(1, moved),
        letter(2, {"x-first-death-reason": "maxlen", "x-first-death-queue": "q"}),
        letter(3, {"x-death": "no JSON"}),
        letter(4, {"other": "x"}),
    )
    columns = ("reason", "queue", "died_times", "first_exchange", "first_routing_key")
    found = [tuple(row) for row in letters(rows).orderBy("offset").select(*columns).collect()]
    assert found == [
        ("expired", "retry", 3, "shop", "order.eu"),
        ("rejected", "work", 3, "shop", "order.eu"),
        ("maxlen", "q", 1, "", None),
        ("unknown", "unknown", 1, "", None),
    ]


def test_errors_of_a_kind_have_one_fingerprint(spark: SparkSession) -> None:
    texts = [
        "no order 'a-17' in 30.5 s (3f2b8c9d-0000-4000-8000-0123456789ab at 0xFFEE)",
        "no order 'b'  in 7 s (00000000-1111-4000-8000-0123456789ab at 0x1)\n  at line 7",
        "Traceback (most recent call last):\n  File 'x', line 3\nKeyError: 'b'\n",
        "Traceback (most recent call last):\n  File 'y', line 9\nKeyError: 'c'",
    ]
    rows = [
        letter(n, {"x-death": json.dumps(DEATHS), "x-error": text}) for n, text in enumerate(texts)
    ]
    found = deadletter(spark, rows=table(spark, *rows))
    assert {(one.kind, one.letters) for one in found.groups} == {
        ("no order <text> in <n> s (<id> at <hex>)", 2),
        ("KeyError: <text>", 2),
    }
    assert len({one.fingerprint for one in found.groups}) == 2
    bodies = [
        letter(n, {"x-death": json.dumps(DEATHS)}, b'{"error": {"text": "bad %d"}} \xff' % n)
        for n in range(3)
    ]
    found = deadletter(spark, rows=table(spark, *bodies), error_path="$.error.text")
    assert [(one.kind, one.letters, one.last.error) for one in found.groups] == [
        ("bad <n>", 3, "bad 2")
    ]
    assert deadletter(spark, rows=table(spark, *bodies)).groups[0].fingerprint == ""


KINDS = {
    "cannot read <text>": [
        "cannot read '081109 204005 35 INFO dfs.Da",
        "cannot read 'Jun 14 15:16:02 combo s'",
    ],
    "<time> host sshd[<n>]: refused <address> at <path>": [
        "Jun 14 15:16:02 host sshd[19937]: refused 10.1.2.3:50010 at /etc/ssh/key",
        "Sun Jul 3 host sshd[7]: refused db.eu.example.com:5432 at C:\\keys\\x.pem",
    ],
    "<time> lost blk_<n> of session <id>": [
        "2026-11-23T08:00:00.123Z lost blk_-17 of session a8Fk2jZ9",
        "2026/11/23 08:00:00 lost blk_-17, blk_18 of session 3f2b8c9d-0000-40",
    ],
    "Foo@<hex> can't open <url>, won't retry ...": [
        "Foo@1a2b can't open http://shop.eu/orders/17, won't retry bec...",
        "Foo@7f3a9c21 can't open amqp://host, won't retry a\u2026",
    ],
    "I/O error and/or timeout": ["I/O error and/or timeout"],
    " ".join(["word"] * KIND_WORDS): [f"{'word ' * KIND_WORDS}cut", f"{'word ' * KIND_WORDS}x y"],
}


def test_ids_paths_times_and_cut_texts_do_not_make_kinds(spark: SparkSession) -> None:
    texts = [(kind, text) for kind, texts in KINDS.items() for text in texts]
    rows = spark.createDataFrame(texts, "expected string, error string").coalesce(1)
    found = rows.select("expected", error_kind("error"), fingerprint("error")).collect()
    assert [row[1] for row in found] == [row[0] for row in found]
    assert len({row[2] for row in found}) == len(KINDS)


# -- letters of a broker ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Works:
    """Two queues whose letters a stream keeps."""

    stream: LiveStream
    exchange: str
    queues: tuple[str, str]
    letters: list[int] = field(default_factory=list)

    def fail(self, channel: Channel, queue: str) -> int:
        """Reject all that a queue holds, and wait for the letters; return how many there are."""
        count = 0
        while (message := channel.get(queue)) is not None:
            message.reject(requeue=False)
            count += 1
        self.letters.append(count)
        # Readers see them when they are synced.
        with self.stream.channel() as reader:
            reader.qos(1000)
            first = {"x-stream-offset": "first"}
            letters = reader.consume(self.stream.name, arguments=first)
            for letter in islice(letters, sum(self.letters)):
                letter.ack()
        return count


@pytest.fixture
def works(broker: Broker, stream: LiveStream) -> Iterator[Works]:
    exchange = unique("works")
    queues = (f"{exchange}-a", f"{exchange}-b")
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.exchange_declare(exchange, "topic", durable=True)
        for name, key in zip(queues, ("a.#", "b.#"), strict=True):
            arguments = {"x-dead-letter-exchange": stream.exchange}
            if key == "b.#":
                arguments["x-dead-letter-routing-key"] = "gone"
            channel.queue_declare(name, durable=True, arguments=arguments)
            channel.queue_bind(name, exchange, key)
        yield Works(stream, exchange, queues)
        for name in queues:
            channel.queue_delete(name)
        channel.exchange_delete(exchange)


def publish(works: Works, channel: Channel) -> None:
    for n in range(30):
        headers: dict[str, object] = {"x-error": f"no such order: {n % 3}", "n": n}
        key = ("a.x", "b.y", "a.z")[n % 3]
        channel.publish(str(n).encode(), works.exchange, key, BasicProperties(headers=headers))


def test_letters_of_a_stream_are_grouped_and_go_back_once(
    spark: SparkSession, works: Works, tmp_path: Path
) -> None:
    stream, (first, second) = works.stream, works.queues
    with connect(stream.uri) as connection, connection.channel() as channel:
        channel.confirm_select()
        publish(works, channel)
        assert (works.fail(channel, first), works.fail(channel, second)) == (20, 10)
    page = tmp_path / "deadletter.html"
    lines: list[str] = []
    source = {"uri": stream.uri, "stream": stream.name}
    found = deadletter(spark, **source, html_path=page, progress=lines.append)  # type: ignore[arg-type]
    groups = {(one.queue, one.reason, one.kind): one.letters for one in found.groups}
    assert groups == {
        (first, "rejected", "no such order: <n>"): 20,
        (second, "rejected", "no such order: <n>"): 10,
    }
    assert (found.letters, found.others) == (30, 0)
    assert sum(bar.count for bar in found.bars) == 30
    (of_second,) = (one for one in found.groups if one.queue == second)
    assert (of_second.first.exchange, of_second.first.routing_key) == (works.exchange, "b.y")
    assert (of_second.first.body, of_second.last.body) == ("1", "28")
    assert lines[0] == f"dead letters of stream {stream.name}"
    text = page.read_text(encoding="utf-8")
    assert "no such order: \\u003cn\\u003e" in text
    assert f"leveret pipeline deadletter --stream {stream.name}" in text

    sent = republish(spark, stream.uri, **source, queue=second)  # type: ignore[arg-type]
    assert sent.messages == 10
    with connect(stream.uri) as connection, connection.channel() as channel:
        assert channel.get(first, no_ack=True) is None
        back = [channel.get(second, no_ack=True) for _ in range(11)]
    assert [message and int(message.body) for message in back] == [*range(1, 30, 3), None]
    assert back[0] is not None
    assert (back[0].routing_key, back[0].exchange) == (second, "")
    assert not [name for name in back[0].headers if "death" in name]
    assert back[0].headers["n"] == "1"

    again = republish(spark, stream.uri, **source, queue=second)  # type: ignore[arg-type]
    assert (again.messages, again.name) == (10, sent.name)
    assert (sent.known, sent.published) == (0, 10)
    assert (again.known, again.published, again.unroutable) == (10, 0, 0)
    with connect(stream.uri) as connection, connection.channel() as channel:
        assert channel.get(second, no_ack=True) is None


def again(spark: SparkSession, stream: LiveStream, **more: Any) -> Sent:
    """Publish letters of a stream again."""
    return republish(spark, stream.uri, uri=stream.uri, stream=stream.name, **more)


def test_letters_go_to_the_queue_that_they_died_in_unless_another_place_is_said(
    spark: SparkSession, works: Works
) -> None:
    """A second queue that had the message, and handled it, gets it only where that is asked for."""
    stream, (first, _) = works.stream, works.queues
    other = f"{first}-other"
    with connect(stream.uri) as connection, connection.channel() as channel:
        channel.confirm_select()
        channel.queue_declare(other, durable=True)
        channel.queue_bind(other, works.exchange, "a.#")
        publish(works, channel)
        assert channel.queue_purge(other) == 20  # as handled
        assert works.fail(channel, first) == 20
        sent = again(spark, stream, queue=first)
        assert (sent.messages, sent.published) == (20, 20)
        assert (channel.queue_purge(first), channel.queue_purge(other)) == (20, 0)
        again(spark, stream, queue=first, to_queue=other)
        assert (channel.queue_purge(first), channel.queue_purge(other)) == (0, 20)
        again(spark, stream, queue=first, as_published=True)
        message = channel.get(first, no_ack=True)
        assert message is not None
        assert (message.exchange, message.routing_key) == (works.exchange, "a.x")
        assert (channel.queue_purge(first), channel.queue_purge(other)) == (19, 20)
        channel.queue_bind(other, "amq.topic", f"{other}.#")
        lost = again(
            spark,
            stream,
            queue=first,
            to_exchange="amq.topic",
            unroutable="drop",
        )
        assert (lost.messages, lost.unroutable, lost.published) == (20, 20, 0)
        channel.queue_bind(other, "amq.topic", "a.x")
        again(
            spark,
            stream,
            queue=first,
            to_exchange="amq.topic",
            unroutable="drop",
            name="again",
        )
        assert (channel.queue_purge(first), channel.queue_purge(other)) == (0, 10)
        channel.queue_delete(other)


def test_a_queue_that_is_gone_is_told_or_counted(spark: SparkSession, works: Works) -> None:
    stream, (first, _) = works.stream, works.queues
    with connect(stream.uri) as connection, connection.channel() as channel:
        channel.confirm_select()
        publish(works, channel)
        works.fail(channel, first)
        channel.queue_delete(first)
    with pytest.raises(Exception, match=f"no queue takes what is published to .*{first}"):
        again(spark, stream, queue=first)
    sent = again(spark, stream, queue=first, unroutable="drop")
    assert (sent.messages, sent.unroutable) == (20, 20)


def test_letters_that_died_in_no_queue_go_as_they_were_published(spark: SparkSession) -> None:
    unrouted = [{"count": 1, "reason": "unroutable", "queue": "", "exchange": "shop",
                 "routing-keys": ["order.eu"]}]  # fmt: skip
    rows = table(
        spark,
        letter(0, {"x-death": json.dumps(DEATHS)}),
        letter(1, {"x-death": json.dumps(unrouted)}),
    )
    none: dict[str, str | None] = {}
    found = _addressed(letters(rows), Choice(None, None), none, False).orderBy("offset")
    assert [(row.exchange, row.routing_key) for row in found.collect()] == [
        ("", "retry"),
        ("shop", "order.eu"),
    ]
    lost = table(spark, letter(7, {"x-death": "no JSON"}))
    with pytest.raises(Exception, match="the dead letter at offset 7 does not name the queue"):
        _addressed(letters(lost), Choice(None, None), none, False).collect()


def test_letters_of_an_archive_go_back_by_their_error(
    spark: SparkSession, works: Works, tmp_path: Path
) -> None:
    stream, (first, _) = works.stream, works.queues
    with connect(stream.uri) as connection, connection.channel() as channel:
        channel.confirm_select()
        publish(works, channel)
        headers: dict[str, object] = {"x-error": "disk full"}
        channel.publish(b"77", works.exchange, "a.w", BasicProperties(headers=headers))
        works.fail(channel, first)
    archive(spark, stream.uri, stream.name, tmp_path / "lake")
    found = deadletter(spark, path=tmp_path / "lake")
    (full,) = (one for one in found.groups if one.kind == "disk full")
    sent = republish(
        spark,
        stream.uri,
        path=tmp_path / "lake",
        fingerprint=full.fingerprint,
        reason="rejected",
        since="2020-01-01",
    )
    assert sent.messages == 1
    with connect(stream.uri) as connection, connection.channel() as channel:
        message = channel.get(first, no_ack=True)
        assert message is not None
        assert (message.body, message.routing_key) == (b"77", first)
        assert channel.get(first, no_ack=True) is None


def test_a_queue_is_looked_at_and_left_as_it_is(
    spark: SparkSession, works: Works, broker: Broker
) -> None:
    held = unique("held")
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.confirm_select()
        channel.queue_declare(held, durable=True)
        channel.queue_bind(held, works.stream.exchange, "#")
        publish(works, channel)
        works.fail(channel, works.queues[0])
        found = deadletter(spark, uri=broker.uri, from_queue=held)
        assert (found.letters, found.groups[0].queue) == (20, works.queues[0])
        assert channel.queue_delete(held) == 20


def test_what_makes_no_sense_is_refused(spark: SparkSession) -> None:
    with pytest.raises(JobError, match="messages come from a stream"):
        deadletter(spark)
    with pytest.raises(JobError, match="from_queue: it needs uri"):
        deadletter(spark, uri="amqp://", from_queue="q", stream="s")
    with pytest.raises(JobError, match="window: '1 month' is not a span"):
        deadletter(spark, uri="amqp://", stream="s", window="1 month")
    with pytest.raises(JobError, match="since: 'soon' is not a moment"):
        republish(spark, "amqp://", uri="amqp://", stream="s", since="soon")
    with pytest.raises(JobError, match="give only one of: to_queue, as_published"):
        republish(spark, "amqp://", uri="amqp://", stream="s", to_queue="q", as_published=True)
    with pytest.raises(JobError, match="messages come from a stream"):
        republish(spark, "amqp://")
