"""Sinks under Spark's order of calls, without a JVM, on a real broker: what arrives, and how often.

Each step of a write is made to fail: what computes the rows, the task's process, the connection,
the driver before its commit and after it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from leveret.client import ReturnedMessage
from leveret.client.blocking import Channel, connect
from leveret.spark.options.read import OptionError
from leveret.spark.transport import Interrupted
from leveret.spark.write.link import Sender, WriteError, open_link
from leveret.spark.write.options import parse_write_options
from leveret.spark.write.rows import RowError
from support.brokers.brokers import Broker
from support.spark.live_stream import LiveStream
from support.spark.sink_order import Killed, Sink, fail, kill_this_process, sink_for
from support.spark.written_rows import HEADERS, bodies, consumed, drain, ids, numbers, texts
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


def plain(broker: Broker, **more: str) -> dict[str, str]:
    """Return options of a sink that recognises nothing again."""
    return {"uri": broker.uri, "dedup": "none"} | more


# -- what arrives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [False, True])
def test_rows_arrive_in_the_order_of_their_partition(
    broker: Broker, channel: Channel, queue: str, elsewhere: bool
) -> None:
    sink = sink_for(plain(broker, queue=queue), numbers(0, 1), elsewhere=elsewhere)
    sink.save([[numbers(0, 3), numbers(3, 5)], [], [numbers(5, 6)], [numbers(0, 0)]])
    assert bodies(channel, queue) == texts(0, 6)


def test_columns_say_where_rows_go_and_with_what(
    broker: Broker, channel: Channel, queue: str
) -> None:
    channel.exchange_declare(f"{queue}-e", "topic")
    channel.queue_bind(queue, f"{queue}-e", "a.#")
    rows = numbers(
        0,
        4,
        exchange=pa.array([f"{queue}-e", "", f"{queue}-e", ""]),
        routing_key=pa.array(["a.b", queue, "a", queue]),
        headers=pa.array([[("h", "1")], None, [("h", None), ("x-publisher", "me")], []], HEADERS),
        properties=pa.array(
            [{"app_id": "spark", "delivery_mode": 1}, None, {"app_id": None}, {}],
            pa.struct([("app_id", pa.string()), ("delivery_mode", pa.int32())]),
        ),
    )
    sink_for(plain(broker), rows).save([[rows]])
    arrived = drain(channel, queue)
    assert [m.body for m in arrived] == texts(0, 4)
    assert [m.exchange for m in arrived] == [f"{queue}-e", "", f"{queue}-e", ""]
    assert [m.routing_key for m in arrived] == ["a.b", queue, "a", queue]
    assert [m.properties.headers for m in arrived] == [{"h": "1"}, None, {"h": None}, {}]
    assert [m.properties.delivery_mode for m in arrived] == [1, 2, 2, 2]
    assert [m.properties.app_id for m in arrived] == ["spark", None, None, None]
    channel.exchange_delete(f"{queue}-e")


def test_bodies_larger_than_a_frame_arrive_whole(
    broker: Broker, channel: Channel, queue: str
) -> None:
    large = [b"x" * size for size in (131_063, 131_064, 131_065, 1_500_000, 0)]
    rows = pa.RecordBatch.from_pydict({"body": pa.array(large, pa.binary())})
    sink_for(plain(broker, queue=queue), rows).save([[rows]])
    assert bodies(channel, queue) == large


def test_a_window_smaller_than_a_batch_is_no_limit_to_it(
    broker: Broker, channel: Channel, queue: str
) -> None:
    sink = sink_for(plain(broker, queue=queue, maxInFlight="1"), numbers(0, 1))
    sink.save([[numbers(0, 50), numbers(50, 53)]])
    assert bodies(channel, queue) == texts(0, 53)


def test_without_rows_the_broker_is_not_asked() -> None:
    Sink({"uri": "amqp://127.0.0.1:1", "stream": "s"}, sink_for({}, numbers(0, 1)).schema).save(
        [[]]
    )


# -- what is refused -------------------------------------------------------------------------------


def test_only_append_is_a_mode(broker: Broker) -> None:
    sink = sink_for(plain(broker, queue="q"), numbers(0, 1))
    sink.overwrite = True
    with pytest.raises(OptionError, match="cannot be overwritten"):
        sink.save([[numbers(0, 1)]])
    with pytest.raises(OptionError, match="cannot be overwritten"):
        sink.batch(0, [[numbers(0, 1)]], query="q")


def test_speculative_execution_is_refused(broker: Broker, channel: Channel, queue: str) -> None:
    sink = sink_for(plain(broker, queue=queue), numbers(0, 1))
    with pytest.raises(OptionError, match=r"spark\.speculation"):
        sink.save([[numbers(0, 1)]], {"spark.speculation": "true"})
    sink.save([[numbers(0, 1)]], {"spark.speculation": "false"})
    assert bodies(channel, queue) == texts(0, 1)


def test_a_row_that_can_be_no_message_fails_the_write(broker: Broker, queue: str) -> None:
    rows = numbers(0, 1, exchange=pa.array([None], pa.string()))
    with pytest.raises(RowError, match="column 'exchange' is null"):
        sink_for(plain(broker), rows).save([[rows]])


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"exchange": "none"}, "option 'exchange': there is no exchange 'none'"),
        ({"exchange": "none", "unroutable": "drop"}, "option 'exchange': there is no exchange"),
        ({"exchange": "", "routingKey": "none"}, "option 'routingKey': there is no queue 'none'"),
        ({"stream": "none"}, "option 'stream': there is no stream 'none' in vhost '/' at amqp://"),
        ({"queue": "none"}, "option 'queue': there is no queue 'none'"),
        (
            {"stream": "s", "unroutable": "dead-letter:none"},
            "option 'unroutable': there is no exchange 'none'",
        ),
    ],
)
def test_a_destination_that_is_not_there_is_refused_before_a_task_runs(
    broker: Broker, given: dict[str, str], what: str
) -> None:
    sink = sink_for({"uri": broker.uri} | given, numbers(0, 1))
    with pytest.raises(WriteError, match=what):
        sink.save([[fail]])


# -- unroutable ------------------------------------------------------------------------------------


def test_what_no_queue_takes_fails_the_write_by_default(broker: Broker, name: str) -> None:
    options = plain(broker, exchange="amq.direct", routingKey=name)
    with pytest.raises(WriteError, match=f"no queue takes .* routing key '{name}'"):
        sink_for(options, numbers(0, 1)).save([[numbers(0, 3)]])


def test_what_no_queue_takes_can_be_dropped(broker: Broker, name: str) -> None:
    sink = sink_for(plain(broker, stream=name, unroutable="drop"), numbers(0, 1))
    sink.save([[numbers(0, 3)]])
    assert [message.rows for message in sink.messages] == [3]  # type: ignore[union-attr]


def test_what_no_queue_takes_can_go_to_another_exchange(
    broker: Broker, channel: Channel, queue: str
) -> None:
    lost = f"{queue}-lost"
    channel.exchange_declare(lost, "fanout")
    channel.queue_declare(lost)
    channel.queue_bind(lost, lost)
    keys = pa.array([queue, "none", queue, "none", "none"])
    rows = numbers(0, 5, routing_key=keys, headers=pa.array([[("h", "1")]] * 5, HEADERS))
    options = plain(broker, exchange="", unroutable=f"dead-letter:{lost}", maxInFlight="1")
    sink_for(options, rows).save([[rows, rows]])
    assert bodies(channel, queue) == [b"0", b"2"] * 2
    arrived = drain(channel, lost)
    assert [m.body for m in arrived] == [b"1", b"3", b"4"] * 2
    for headers in [m.headers for m in arrived]:
        assert (headers["h"], headers["x-first-death-reason"]) == ("1", "unroutable")
        assert isinstance(headers["x-death"], list)
        death = headers["x-death"][0]
        assert (death["exchange"], death["routing-keys"]) == ("", ["none"])
    channel.queue_delete(lost)
    channel.exchange_delete(lost)


def test_a_dead_letter_exchange_that_nothing_is_bound_to_fails_the_write(
    broker: Broker, name: str
) -> None:
    options = plain(broker, stream=name, unroutable="dead-letter:amq.fanout")
    with pytest.raises(WriteError, match=r"no queue takes .* exchange 'amq\.fanout'"):
        sink_for(options, numbers(0, 1)).save([[numbers(0, 1)]])


def test_what_a_full_queue_refuses_fails_the_write(
    broker: Broker, channel: Channel, name: str
) -> None:
    full = {"x-max-length": 2, "x-overflow": "reject-publish"}
    channel.queue_declare(name, durable=True, arguments=full)
    with pytest.raises(WriteError, match="reject-publish"):
        sink_for(plain(broker, queue=name), numbers(0, 1)).save([[numbers(0, 10)]])
    channel.queue_delete(name)


# -- dedup=none ------------------------------------------------------------------------------------


def test_without_dedup_a_repeated_batch_is_written_twice(
    broker: Broker, channel: Channel, queue: str
) -> None:
    sink = sink_for(plain(broker, queue=queue), numbers(0, 1))
    for crash in ("before commit", ""):
        sink.batch(0, [[numbers(0, 3)]], query="q", crash=crash)
    assert bodies(channel, queue) == texts(0, 3) * 2


def test_without_dedup_a_lost_connection_fails_the_task(broker: Broker, queue: str) -> None:
    assert broker.process is not None
    with CutProxy(broker.process.port) as proxy:
        uri = broker.uri.replace(str(broker.process.port), str(proxy.port))
        sink = sink_for({"uri": uri, "dedup": "none", "queue": queue}, numbers(0, 1))
        _CUT.append(proxy)
        with pytest.raises(Interrupted, match="must not send them again"):
            sink.save([[numbers(0, 3), cut, numbers(3, 6)]])
        _CUT.clear()


#: Proxies that `cut` cuts: what is between batches travels pickled, by its name.
_CUT: list[CutProxy] = []


def cut() -> None:
    """Cut the connections of the test's proxy."""
    for proxy in _CUT:
        proxy.cut()


# -- dedup=rows ------------------------------------------------------------------------------------


def rows_sink(broker: Broker, live: LiveStream, *, elsewhere: bool = False, **more: str) -> Sink:
    """Return a sink that numbers rows."""
    options = {"uri": broker.uri, "stream": live.name, "dedup": "rows"} | more
    return sink_for(options, numbers(0, 1), elsewhere=elsewhere)


def test_numbered_rows_are_written_once_whatever_fails(
    broker: Broker, channel: Channel, stream: LiveStream
) -> None:
    sink = rows_sink(broker, stream, elsewhere=True)
    parts = [[numbers(0, 3), numbers(3, 6)], [numbers(6, 9)]]
    query = stream.name
    with pytest.raises(ZeroDivisionError):
        sink.batch(0, [parts[0], [*parts[1], fail]], query=query)
    with pytest.raises(Killed):
        sink.batch(0, [[numbers(0, 3), kill_this_process], parts[1]], query=query)
    sink.batch(0, parts, query=query, crash="before commit")
    sink.batch(0, parts, query=query)
    sink.batch(0, parts, query=query)  # committed, and Spark forgot it
    sink.batch(1, [[numbers(9, 12)], [numbers(12, 15)]], query=query)
    assert sorted(consumed(channel, stream.name), key=int) == texts(0, 15)


def test_numbered_rows_are_sent_again_over_a_new_connection(
    broker: Broker, channel: Channel, stream: LiveStream
) -> None:
    assert broker.process is not None
    with CutProxy(broker.process.port) as proxy:
        uri = broker.uri.replace(str(broker.process.port), str(proxy.port))
        sink = rows_sink(broker, stream, uri=uri)
        _CUT.append(proxy)
        rows = [numbers(0, 9000), cut, numbers(9000, 9100), cut, numbers(9100, 9200)]
        sink.batch(3, [rows], query=stream.name)
        _CUT.clear()
        assert proxy.accepted == 3
    assert consumed(channel, stream.name) == texts(0, 9200)


def test_what_is_kept_to_be_sent_again_is_bounded(
    broker: Broker, channel: Channel, queue: str
) -> None:
    options = parse_write_options({"uri": broker.uri, "queue": queue})
    returned: list[ReturnedMessage] = []
    connection = open_link(options)
    sender = Sender(options, connection, True, returned.append, kept_bytes_max=500)
    one = sender.frames.publish("", queue, True, b"\0\0", b"x" * 100)
    for _ in range(20):
        sender.send(one, 1)
        assert sender.kept_bytes <= 500
    sender.send(one * 10, 10)
    sender.finish()
    assert sender.kept_bytes == 0
    sender.close()
    assert (len(bodies(channel, queue)), returned) == (30, [])


def test_a_saved_table_with_a_name_is_saved_once(
    broker: Broker, channel: Channel, stream: LiveStream
) -> None:
    sink = rows_sink(broker, stream, writeId=f"{stream.name}-import")
    for _ in range(2):
        sink.save([[numbers(0, 3)], [numbers(3, 6)]])
    assert consumed(channel, stream.name) == texts(0, 6)


def test_unroutable_numbered_rows_go_to_the_other_exchange_once(
    broker: Broker, channel: Channel, queue: str
) -> None:
    lost = f"{queue}-lost"
    channel.exchange_declare(lost, "fanout")
    channel.queue_bind(queue, lost)
    rows = numbers(0, 6, routing_key=pa.array([queue, "none"] * 3))
    options = {
        "uri": broker.uri,
        "exchange": "",
        "dedup": "rows",
        "unroutable": f"dead-letter:{lost}",
    }
    sink = sink_for(options, rows)
    for _ in range(2):
        sink.batch(0, [[rows]], query=queue)
    assert sorted(bodies(channel, queue)) == texts(0, 6)
    channel.exchange_delete(lost)


# -- a column of publishing ids --------------------------------------------------------------------


def ids_sink(broker: Broker, live: LiveStream) -> Sink:
    options = {"uri": broker.uri, "stream": live.name, "publisherName": f"{live.name}-copy"}
    return sink_for(options, ids(1))


def test_publishing_ids_are_the_users_own(
    broker: Broker, channel: Channel, stream: LiveStream
) -> None:
    sink = ids_sink(broker, stream)
    sink.save([[ids(0, 5, 2**31 - 1), ids(2**31, 2**40)]])
    sink.save([[ids(5, 2**40, 2**40 + 1)]])
    expected = [0, 5, 2**31 - 1, 2**31, 2**40, 2**40 + 1]
    assert [int(body) for body in consumed(channel, stream.name)] == expected


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        ([ids(1, 1)], "1 follows 1, and must be greater"),
        ([ids(1, 2), ids(2)], "2 follows 2, and must be greater"),
        ([ids(-1)], "-1 follows -1"),
        ([ids(1, None)], "column 'publishing_id' is null"),
    ],
)
def test_publishing_ids_that_do_not_grow_are_refused(
    broker: Broker, stream: LiveStream, batches: list[pa.RecordBatch], text: str
) -> None:
    with pytest.raises(RowError, match=text):
        ids_sink(broker, stream).save([batches])


def test_publishing_ids_of_two_tasks_are_refused(broker: Broker, stream: LiveStream) -> None:
    with pytest.raises(WriteError, match=r"use coalesce\(1\)"):
        ids_sink(broker, stream).save([[ids(1)], [ids(2)]])
