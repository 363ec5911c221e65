"""Staged batches under Spark's order of calls: each is there once and whole, or not at all.

Every step of a write is made to fail, and the batch is written again as Spark does it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leveret.client import BasicProperties
from leveret.client.blocking import Channel, connect
from leveret.errors import NotFound
from leveret.limits import SPARK_WRITE_STAGING_MS
from leveret.spark.transport import Interrupted
from leveret.spark.write.link import WriteError
from leveret.spark.write.result import WriteResult, read_results
from leveret.spark.write.staging import COMMIT_KEY, discard
from leveret.spark.write.task import WrittenRows
from support.brokers.brokers import Broker
from support.spark.live_stream import LiveStream
from support.spark.sink_order import Killed, Sink, fail, kill_this_process, sink_for
from support.spark.written_rows import HEADERS, bodies, consumed, drain, numbers, texts
from support.wire.cut_proxy import CutProxy


@pytest.fixture
def channel(broker: Broker) -> Iterator[Channel]:
    """A channel to look at what arrived."""
    with connect(broker.uri) as connection:
        yield connection.channel()


@pytest.fixture
def queue(channel: Channel, name: str) -> Iterator[str]:
    """A durable queue."""
    channel.queue_declare(name, durable=True)
    yield name
    channel.queue_delete(name)


def staged(broker: Broker, rows: pa.RecordBatch | None = None, **more: str) -> Sink:
    """Return a sink as it is by default."""
    return sink_for({"uri": broker.uri} | more, rows or numbers(0, 1))


def queues_of(sink: Sink) -> list[str]:
    """Return the staging queues that the tasks of the last attempt told of."""
    written = [message for message in sink.messages if isinstance(message, WrittenRows)]
    return [message.staged.queue for message in written if message.staged is not None]


def is_there(broker: Broker, queue: str) -> bool:
    """Tell whether a queue exists."""
    with connect(broker.uri) as connection:
        try:
            connection.channel().queue_declare(queue, passive=True)
        except NotFound:
            return False
        return True


# -- what arrives ----------------------------------------------------------------------------------


def test_a_batch_arrives_as_it_was_and_in_the_order_of_its_tasks(
    broker: Broker, channel: Channel, queue: str
) -> None:
    columns: dict[str, Any] = {
        "exchange": pa.array([""] * 3),
        "routing_key": pa.array([queue] * 3),
        "headers": pa.array([[("h", "1")], None, []], HEADERS),
        "properties": pa.array(
            [{"app_id": "spark", "delivery_mode": 1}, None, {}],
            pa.struct([("app_id", pa.string()), ("delivery_mode", pa.int32())]),
        ),
    }
    rows = numbers(0, 3, **columns)
    sink = staged(broker, rows)
    sink.batch(0, [[rows], [], [numbers(3, 6, **columns)]], query=queue)
    assert bodies(channel, queue) == texts(0, 6)
    assert not any(is_there(broker, name) for name in queues_of(sink))


def test_what_staging_adds_is_taken_off_again(broker: Broker, channel: Channel, queue: str) -> None:
    rows = numbers(0, 2, headers=pa.array([[("h", "1")], None], HEADERS))
    staged(broker, rows, queue=queue).save([[rows]])
    consumer = channel.consume(queue, inactivity_timeout=120)
    first, second = next(consumer), next(consumer)
    assert first.properties.headers == {"h": "1"}
    assert not second.properties.headers
    assert (second.exchange, second.routing_key) == ("", queue)
    for message in (first, second):
        message.ack()
    consumer.cancel()


def test_nothing_is_seen_before_the_commit(broker: Broker, channel: Channel, queue: str) -> None:
    sink = staged(broker, queue=queue)
    sink.batch(0, [[numbers(0, 9)]], query=queue, crash="before commit")
    assert channel.queue_declare(queue, passive=True).message_count == 0
    (left,) = queues_of(sink)
    arguments = {
        "x-queue-type": "classic",
        "x-staging-sink": queue,
        "x-staging-batch": 0,
        "x-staging-destination": f"queue:{queue}",
        "x-staging-exchange": "",
        "x-staging-routing-key": queue,
        "x-expires": SPARK_WRITE_STAGING_MS,
    }
    # Declared otherwise, it would be refused.
    assert channel.queue_declare(left, durable=True, arguments=arguments).message_count == 9
    discard(sink_options(sink), [left])
    assert not is_there(broker, left)


def sink_options(sink: Sink) -> Any:
    """Return a sink's options as the sink has them."""
    from leveret.spark.write.options import parse_write_options

    return parse_write_options(sink.options)


def test_a_batch_of_many_rows_and_large_bodies(
    broker: Broker, channel: Channel, stream: LiveStream
) -> None:
    large = pa.RecordBatch.from_pydict({"body": pa.array([b"x" * 500_000] * 3)})
    sink = staged(broker, stream=stream.name)
    sink.batch(0, [[numbers(0, 10_000), large], [numbers(10_000, 12_000)]], query=stream.name)
    expected = texts(0, 10_000) + [b"x" * 500_000] * 3 + texts(10_000, 12_000)
    assert sorted(wait_for(channel, stream.name, len(expected))) == sorted(expected)


def wait_for(channel: Channel, stream: str, count: int) -> list[bytes]:
    """Return the bodies of a stream when that many are there, and those that follow at once."""
    channel.qos(1000)
    arguments = {"x-stream-offset": "first"}
    consumer = channel.consume(stream, arguments=arguments, inactivity_timeout=120)
    found: list[bytes] = []
    while len(found) < count and (message := next(consumer, None)) is not None:
        message.ack()
        found.append(message.body)
    consumer.inactivity_timeout = 0.3
    found += [message.body for message in consumer]
    consumer.cancel()
    return found


# -- which sink ------------------------------------------------------------------------------------


@pytest.fixture
def other(channel: Channel, name: str) -> Iterator[str]:
    """Another durable queue."""
    channel.queue_declare(f"{name}-other", durable=True)
    yield f"{name}-other"
    channel.queue_delete(f"{name}-other")


def test_a_write_id_to_two_destinations_writes_both(
    broker: Broker, channel: Channel, queue: str, other: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "results.jsonl")
    more = {"writeId": queue, "writeBatch": "4", "resultFile": file}
    sinks = [staged(broker, **to, **more) for to in ({"queue": queue}, {"stream": other})]
    for _ in range(2):  # the second time as after a crash
        for sink in sinks:
            sink.save([[numbers(0, 3)], [numbers(3, 5)]])
    assert bodies(channel, queue) == texts(0, 5)
    assert bodies(channel, other) == texts(0, 5)
    places = [f"queue:{queue}", f"queue:{other}"]
    assert read_results(file) == [
        WriteResult(queue, place, 4, 5, dropped, 0) for dropped in (0, 5) for place in places
    ]


def test_what_is_dropped_is_logged(
    broker: Broker, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = staged(broker, queue=queue)
    for _ in range(2):
        sink.batch(7, [[numbers(0, 3)]], query=queue)
    assert "3 of 3 rows were written before and dropped" in caplog.text
    assert f"batch 7 of sink {queue!r} to 'queue:{queue}'" in caplog.text


def test_a_batch_below_the_last_one_is_an_error_that_says_what_to_do(
    broker: Broker, channel: Channel, queue: str
) -> None:
    def save(batch: int, **more: str) -> None:
        options = {"queue": queue, "writeId": queue, "writeBatch": str(batch)}
        staged(broker, **(options | more)).save([[numbers(batch, batch + 1)]])

    save(12)
    with pytest.raises(WriteError) as refused:
        save(0)
    for text in ("batch 0", repr(queue), f"'queue:{queue}'", "12", "writeId", "delete_sink"):
        assert text in str(refused.value)
    save(0, lowerBatch="drop")
    save(0, writeId=f"{queue}-anew")
    assert bodies(channel, queue) == [b"12", b"0"]


def test_a_query_that_was_set_back_is_told(broker: Broker, channel: Channel, queue: str) -> None:
    sink = staged(broker, queue=queue)
    for batch in (0, 1, 2):
        sink.batch(batch, [[numbers(batch, batch + 1)]], query=queue)
    with pytest.raises(WriteError, match="new checkpoint"):
        sink.batch(1, [[numbers(1, 2)]], query=queue)
    assert not any(is_there(broker, left) for left in queues_of(sink))
    sink.batch(2, [[numbers(2, 3)]], query=queue)
    assert bodies(channel, queue) == texts(0, 3)


def test_a_batch_in_flight_of_a_client_that_said_no_destination_is_known_again(
    broker: Broker, channel: Channel, queue: str, other: str
) -> None:
    channel.confirm_select()
    arguments: dict[str, object] = {"x-staging-sink": queue, "x-staging-batch": 5}
    channel.queue_declare(f"{queue}-old", durable=True, arguments=arguments)
    headers: dict[str, object] = {"x-staged-exchange": "", "x-staged-routing-key": queue}
    properties = BasicProperties(delivery_mode=2, headers=headers)
    channel.publish(b"0", "", f"{queue}-old", properties)
    command = {"sink": queue, "batch": 5, "queues": [f"{queue}-old"]}
    channel.publish(json.dumps(command).encode(), "", COMMIT_KEY, mandatory=True)
    for to in (queue, other):
        staged(broker, queue=to).batch(5, [[numbers(0, 1)]], query=queue)
    assert bodies(channel, queue) == texts(0, 1)
    assert bodies(channel, other) == texts(0, 1)


def test_numbered_rows_that_the_broker_had_are_counted(
    broker: Broker, queue: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "results.jsonl")
    sink = staged(broker, queue=queue, dedup="rows", resultFile=file)
    for count in (3, 5):
        sink.batch(0, [[numbers(0, count)]], query=queue)
    found = [(result.rows, result.dropped) for result in read_results(file)]
    assert found == [(3, 0), (5, 3)]


def test_rows_that_no_queue_takes_are_counted(broker: Broker, queue: str, tmp_path: Path) -> None:
    file = str(tmp_path / "results.jsonl")
    rows = numbers(0, 4, routing_key=pa.array([queue, "none", queue, "none"]))
    more = {"exchange": "", "dedup": "rows", "unroutable": "drop", "resultFile": file}
    staged(broker, rows, **more).batch(0, [[rows]], query=queue)
    assert [result.unroutable for result in read_results(file)] == [2]


# -- what fails ------------------------------------------------------------------------------------


def test_a_batch_is_written_once_whatever_fails(
    broker: Broker, channel: Channel, stream: LiveStream
) -> None:
    sink = dataclasses.replace(staged(broker, stream=stream.name), elsewhere=True)
    parts = [[numbers(0, 3), numbers(3, 6)], [numbers(6, 9)]]
    # As after a shuffle: other partitions, in another order.
    other = [[numbers(8, 9)], [numbers(0, 1), numbers(4, 8)], [numbers(1, 4)]]
    query = stream.name
    with pytest.raises(ZeroDivisionError):
        sink.batch(0, [parts[0], [*parts[1], fail]], query=query)
    assert [message is None for message in sink.messages] == [False, True]
    assert not is_there(broker, queues_of(sink)[0])  # aborted
    with pytest.raises(Killed):
        sink.batch(0, [[numbers(0, 3), kill_this_process], parts[1]], query=query)
    sink.batch(0, other, query=query, crash="before commit")
    sink.batch(0, parts, query=query)
    for again in (other, parts):  # committed, and the driver died before Spark noted it
        sink.batch(0, again, query=query)
        assert not any(is_there(broker, name) for name in queues_of(sink))
    sink.batch(1, [[numbers(9, 12)], [numbers(12, 15)]], query=query)
    found = wait_for(channel, query, 15)
    assert sorted(found, key=int) == texts(0, 15)


def test_each_query_has_batches_of_its_own(broker: Broker, channel: Channel, queue: str) -> None:
    sink = staged(broker, queue=queue)
    for query in ("a", "b"):
        sink.batch(0, [[numbers(0, 2)]], query=f"{queue}-{query}")
    assert bodies(channel, queue) == texts(0, 2) * 2


def test_a_batch_with_a_message_that_no_queue_takes_is_refused_whole(
    broker: Broker, channel: Channel, queue: str
) -> None:
    rows = numbers(0, 4, routing_key=pa.array([queue, queue, "none", queue]))
    sink = staged(broker, rows, exchange="")
    with pytest.raises(WriteError, match="refused batch 0"):
        sink.batch(0, [[rows]], query=queue)
    assert not is_there(broker, queues_of(sink)[0])
    assert bodies(channel, queue) == []
    channel.queue_declare("none")
    sink.batch(0, [[rows]], query=queue)
    assert bodies(channel, queue) == [b"0", b"1", b"3"]
    assert bodies(channel, "none") == [b"2"]
    channel.queue_delete("none")


def test_unroutable_messages_of_a_batch_are_dropped_or_go_elsewhere(
    broker: Broker, channel: Channel, queue: str
) -> None:
    lost = f"{queue}-lost"
    channel.exchange_declare(lost, "fanout", durable=True)
    channel.queue_declare(lost, durable=True)
    channel.queue_bind(lost, lost)
    rows = numbers(0, 4, routing_key=pa.array([queue, "none", queue, "none"]))
    staged(broker, rows, exchange="", unroutable="drop").batch(0, [[rows]], query=queue)
    other = staged(broker, rows, exchange="", unroutable=f"dead-letter:{lost}")
    other.batch(0, [[rows]], query=f"{queue}-2")
    assert bodies(channel, queue) == [b"0", b"2"] * 2
    assert bodies(channel, lost) == [b"1", b"3"]
    channel.queue_delete(lost)
    channel.exchange_delete(lost)


def test_a_lost_connection_fails_the_task_and_not_the_next_attempt(
    broker: Broker, channel: Channel, queue: str
) -> None:
    assert broker.process is not None
    with CutProxy(broker.process.port) as proxy:
        uri = broker.uri.replace(str(broker.process.port), str(proxy.port))
        sink = sink_for({"uri": uri, "queue": queue}, numbers(0, 1))
        PROXIES.append(proxy)
        with pytest.raises(Interrupted, match="must not send them again"):
            sink.batch(0, [[numbers(0, 3), cut, numbers(3, 6)]], query=queue)
        PROXIES.clear()
        sink.batch(0, [[numbers(0, 6)]], query=queue)
    assert bodies(channel, queue) == texts(0, 6)


#: Proxies that `cut` cuts: what is between batches travels pickled, by its name.
PROXIES: list[CutProxy] = []


def cut() -> None:
    """Cut the connections of the test's proxy."""
    for proxy in PROXIES:
        proxy.cut()


def test_a_staging_queue_that_is_gone_fails_the_commit(
    broker: Broker, channel: Channel, queue: str
) -> None:
    sink = staged(broker, queue=queue)
    sink.batch(0, [[numbers(0, 3)]], query=queue, crash="before commit")
    (left,) = queues_of(sink)
    channel.queue_delete(left)
    committer = sink.committer()
    with pytest.raises(WriteError, match="is gone: it expired"):
        committer.commit(sink.messages, 0)
    assert bodies(channel, queue) == []


def test_a_commit_that_is_asked_for_twice_is_one(
    broker: Broker, channel: Channel, queue: str
) -> None:
    sink = staged(broker, queue=queue)
    sink.batch(0, [[numbers(0, 3000)]], query=queue, crash="before commit")
    (left,) = queues_of(sink)
    channel.confirm_select()
    command = {
        "sink": queue,
        "destination": f"queue:{queue}",
        "batch": 0,
        "queues": [left],
        "unroutable": "fail",
    }
    for _ in range(2):
        channel.publish(json.dumps(command).encode(), "", COMMIT_KEY, mandatory=True)
    sink.committer().abort(sink.messages, 0)  # too late: it is committed
    assert bodies(channel, queue) == texts(0, 3000)


@pytest.mark.parametrize("purged", [1, 2])
def test_staging_queues_that_somebody_emptied_fail_the_commit(
    broker: Broker, channel: Channel, queue: str, purged: int
) -> None:
    sink = staged(broker, queue=queue)
    rows = [[numbers(0, 3)], [numbers(3, 6)]]
    sink.batch(0, rows, query=queue, crash="before commit")
    for left in queues_of(sink)[:purged]:
        channel.queue_purge(left)
    with pytest.raises(WriteError, match=r"were removed from it|was emptied"):
        sink.committer().commit(sink.messages, 0)
    sink.committer().abort(sink.messages, 0)
    assert not any(is_there(broker, left) for left in queues_of(sink))
    sink.batch(0, rows, query=queue)
    assert bodies(channel, queue) == texts(0, 6)


@pytest.mark.parametrize("count", [3, 30_000])
def test_a_commit_whose_answer_is_lost_is_asked_for_again(
    broker: Broker, channel: Channel, queue: str, count: int
) -> None:
    assert broker.process is not None
    with CutProxy(broker.process.port) as proxy:
        uri = broker.uri.replace(str(broker.process.port), str(proxy.port))
        sink = sink_for({"uri": uri, "queue": queue}, numbers(0, 1))
        sink.batch(0, [[numbers(0, count)]], query=queue, crash="before commit")
        proxy.last_words = COMMIT_KEY.encode()
        sink.committer().commit(sink.messages, 0)
        assert proxy.last_words == b""
        assert proxy.accepted == 3  # the task's, the commit's, and the commit's once more
    assert bodies(channel, queue) == texts(0, count)


def test_a_full_queue_holds_up_its_batch_for_so_long(
    broker: Broker, channel: Channel, name: str
) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(name, durable=True, arguments=full)
    sink = staged(broker, queue=name, confirmTimeoutMs="200")
    with pytest.raises(WriteError, match="is full and rejects"):
        sink.batch(0, [[numbers(0, 2)]], query=name)
    assert bodies(channel, name) == [b"0"]
    # It is committed, and a repeated write waits for the rest of it.
    again = staged(broker, queue=name)
    again.batch(0, [[numbers(0, 2)]], query=name)
    assert bodies(channel, name) == [b"1"]
    channel.queue_delete(name)


# -- batch saves -----------------------------------------------------------------------------------


def test_a_save_is_there_whole_or_not_at_all(broker: Broker, channel: Channel, queue: str) -> None:
    sink = staged(broker, queue=queue)
    with pytest.raises(ZeroDivisionError):
        sink.save([[numbers(0, 3)], [numbers(3, 6), fail]])
    assert not is_there(broker, queues_of(sink)[0])
    assert bodies(channel, queue) == []
    sink.save([[numbers(0, 3)], [numbers(3, 6)]])
    sink.save([[numbers(0, 3)], [numbers(3, 6)]])
    assert bodies(channel, queue) == texts(0, 6) * 2


def test_a_save_with_a_name_is_saved_once(broker: Broker, channel: Channel, queue: str) -> None:
    sink = staged(broker, queue=queue, writeId=f"{queue}-import")
    with pytest.raises(ZeroDivisionError):
        sink.save([[numbers(0, 3)], [numbers(3, 6), fail]])
    for _ in range(3):
        sink.save([[numbers(0, 3)], [numbers(3, 6)]])
    assert bodies(channel, queue) == texts(0, 6)
    assert not any(is_there(broker, name) for name in queues_of(sink))
    assert drain(channel, queue) == []


def test_saves_with_a_name_and_a_number_are_saved_once_each(
    broker: Broker, channel: Channel, queue: str
) -> None:
    for number in (0, 1, 1, 0, 2):
        options = {"queue": queue, "writeId": f"{queue}-job", "lowerBatch": "drop"}
        sink = staged(broker, **options, writeBatch=str(number))
        sink.save([[numbers(number, number + 1)]])
    assert bodies(channel, queue) == texts(0, 3)


def test_streams_take_what_is_staged_in_order(
    broker: Broker, channel: Channel, stream: LiveStream
) -> None:
    sink = staged(broker, stream=stream.name)
    for number in range(5):
        rows = numbers(number * 100, number * 100 + 100)
        sink.batch(number, [[rows]], query=stream.name)
    assert wait_for(channel, stream.name, 500) == texts(0, 500)
    assert consumed(channel, stream.name) == texts(0, 500)
