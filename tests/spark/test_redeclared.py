"""A stream that was deleted and declared again is another one: noticed at once, and never mixed."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.client.blocking import connect
from leveret.errors import NotFound
from leveret.spark.columns.schema import ROW
from leveret.spark.offsets import Stored, from_json
from leveret.spark.options.read import Options, parse_options
from leveret.spark.source import LeveretDataSource
from leveret.spark.stream.batch import BatchReader
from leveret.spark.stream.planner import OffsetRange
from leveret.spark.stream.ranges import DataLossError, read_range
from leveret.spark.transport import Redeclared
from leveret.spark.transports import open_transport
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import Broker, need_own_broker
from support.node.pauses import StepPause
from support.spark.live_stream import LiveStream
from support.spark.memory_stream import STREAMS, MemoryStream
from support.spark.spark_order import Checkpoint, StreamingRun

TRANSPORTS = ["auto", "bulk", "amqp"]


def positions(rows: list[Any] | None) -> list[tuple[str, int]]:
    return sorted((row["stream"], row["offset"]) for row in rows or [])


# -- in memory -------------------------------------------------------------------------------------


def declared(name: str, count: int, stream_id: str | None) -> MemoryStream:
    """Declare a stream, in place of one that is there."""
    STREAMS[name] = MemoryStream(stream_id=stream_id)
    STREAMS[name].append(*(b"%s %d" % (name.encode(), number) for number in range(count)))
    return STREAMS[name]


@pytest.fixture
def shops() -> Iterator[None]:
    """The super stream `shops`, of two partitions."""
    declared("shops-0", 10, "a0")
    declared("shops-1", 20, "a1")
    yield
    for name in ("shops-0", "shops-1", "shops-2"):
        STREAMS.pop(name, None)


def shop_options(**more: str) -> dict[str, str]:
    return {
        "uri": "amqp://localhost",
        "superStream": "shops",
        "startingOffsets": "earliest",
        **more,
    }


LENIENT = {"failOnDataLoss": "false"}


def test_the_ids_are_in_the_offsets_from_the_first_on(shops: None) -> None:
    run = StreamingRun(shop_options(), Checkpoint())
    assert from_json(run.initial).ids == {"shops-0": "a0", "shops-1": "a1"}
    run.batch()
    assert from_json(run.checkpoint.offsets[0]) == Stored(
        {"shops-0": 10, "shops-1": 20}, {"shops-0": "a0", "shops-1": "a1"}
    )
    assert run.batch() is None


@pytest.mark.parametrize("count", [0, 10, 20, 300])
def test_a_new_stream_is_noticed_however_much_it_holds(shops: None, count: int) -> None:
    """Also where it has grown past the offset of the old one: there rows were lost silently."""
    checkpoint = Checkpoint()
    StreamingRun(shop_options(), checkpoint).all_batches()
    declared("shops-1", count, "b1")
    with pytest.raises(DataLossError, match="'shops-1': it was deleted and declared again"):
        StreamingRun(shop_options(), checkpoint).batch()
    lenient = StreamingRun(shop_options(**LENIENT), checkpoint)
    batches = lenient.all_batches()
    assert positions([row for rows in batches for row in rows]) == [
        ("shops-1", offset) for offset in range(count)
    ]
    assert from_json(checkpoint.offsets[-1]) == Stored(
        {"shops-0": 10, "shops-1": count}, {"shops-0": "a0", "shops-1": "b1"}
    )


def test_a_query_that_runs_notices_it_and_tells_the_log(
    shops: None, caplog: pytest.LogCaptureFixture
) -> None:
    run = StreamingRun(shop_options(**LENIENT), Checkpoint())
    run.all_batches()
    declared("shops-0", 300, "b0").truncate(100)
    with caplog.at_level(logging.WARNING, "leveret.spark"):
        rows = [row for batch in run.all_batches() for row in batch]
    assert positions(rows) == [("shops-0", offset) for offset in range(100, 300)]
    assert "it was read up to 10 with the id a0, and has the id b0 now" in caplog.text


def test_a_limit_and_a_target_hold_over_the_change(shops: None) -> None:
    checkpoint = Checkpoint()
    StreamingRun(shop_options(), checkpoint).all_batches()
    declared("shops-1", 25, "b1")
    options = shop_options(**LENIENT, maxOffsetsPerTrigger="10")
    batches = StreamingRun(options, checkpoint, available_now=True).all_batches()
    assert [len(rows) for rows in batches] == [0, 10, 10, 5]


def test_a_checkpoint_of_an_older_release_adopts_the_ids_once(shops: None) -> None:
    old: dict[str, Any] = {"shops-0": 7, "shops-1": 20}
    checkpoint = Checkpoint([old], 1)
    batches = StreamingRun(shop_options(), checkpoint).all_batches()
    assert positions(batches[0]) == [("shops-0", offset) for offset in range(7, 10)]
    assert len(batches) == 1
    assert from_json(checkpoint.offsets[1]).ids == {"shops-0": "a0", "shops-1": "a1"}
    declared("shops-0", 300, "b0")
    with pytest.raises(DataLossError):
        StreamingRun(shop_options(), checkpoint).batch()


def test_an_old_checkpoint_that_is_up_to_date_takes_one_empty_batch(shops: None) -> None:
    checkpoint = Checkpoint([{"shops-0": 10, "shops-1": 20}], 1)
    assert StreamingRun(shop_options(), checkpoint).all_batches() == [[]]
    assert StreamingRun(shop_options(), checkpoint).batch() is None


def test_a_batch_that_an_older_release_planned_is_read(shops: None) -> None:
    planned: list[dict[str, Any]] = [{"shops-0": 4, "shops-1": 5}, {"shops-0": 6, "shops-1": 5}]
    run = StreamingRun(shop_options(), Checkpoint(planned, 1))
    assert positions(run.batch()) == [("shops-0", 4), ("shops-0", 5)]


def test_a_broker_that_tells_no_ids_is_read_as_before(shops: None) -> None:
    """As RabbitMQ: what ends before it was read up to is another stream, a longer one is not."""
    declared("shops-0", 10, None)
    declared("shops-1", 20, None)
    checkpoint = Checkpoint()
    StreamingRun(shop_options(), checkpoint).all_batches()
    assert checkpoint.offsets == [{"shops-0": 10, "shops-1": 20}]
    declared("shops-0", 3, None)
    with pytest.raises(DataLossError, match="it ends at 3, but was read up to 10"):
        StreamingRun(shop_options(), checkpoint).batch()


def test_ids_that_are_not_told_for_a_while_are_kept(shops: None) -> None:
    checkpoint = Checkpoint()
    StreamingRun(shop_options(), checkpoint).all_batches()
    STREAMS["shops-0"].stream_id = None
    STREAMS["shops-0"].append(b"more")
    run = StreamingRun(shop_options(), checkpoint)
    assert positions(run.batch()) == [("shops-0", 10)]
    assert from_json(checkpoint.offsets[-1]).ids == {"shops-0": "a0", "shops-1": "a1"}


def test_a_change_between_plan_and_read_is_noticed_by_the_task(shops: None) -> None:
    run = StreamingRun(shop_options(), Checkpoint())
    assert run.plan()
    declared("shops-1", 300, "b1")
    with pytest.raises(DataLossError, match="its id was a1 and is b1, and the messages 0 to 19"):
        run.run_planned()
    lenient = StreamingRun(shop_options(**LENIENT), run.checkpoint)
    rows = [row for rows in lenient.all_batches() for row in rows]
    bodies = [row["body"] for row in rows if row["stream"] == "shops-1"]
    assert len(bodies) == 300  # of the new one each once, and none in the old one's place


def test_a_new_partition_enters_with_its_id(shops: None) -> None:
    checkpoint = Checkpoint()
    StreamingRun(shop_options(), checkpoint).all_batches()
    declared("shops-2", 5, "a2")
    StreamingRun(shop_options(), checkpoint).batch()
    assert from_json(checkpoint.offsets[-1]).ids["shops-2"] == "a2"


# -- on a broker -----------------------------------------------------------------------------------


def again(stream: LiveStream, count: int) -> None:
    """Delete a stream and declare one of its name."""
    with stream.channel() as channel:
        channel.queue_delete(stream.name)
    stream.declare()
    stream.publish_numbers(0, count)


def options_of(stream: LiveStream, transport: str, **more: str) -> dict[str, str]:
    return stream.options | {"transport": transport, "startingOffsets": "earliest", **more}


def started(stream: LiveStream, transport: str, kept: Checkpoint, **more: str) -> StreamingRun:
    return StreamingRun(options_of(stream, transport, **more), kept, source=LeveretDataSource)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("before", "after"), [(100, 300), (0, 5), (5, 0), (5, 5)])
def test_it_is_noticed_over_each_transport(
    stream: LiveStream, broker: Broker, transport: str, before: int, after: int
) -> None:
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ tells no ids")
    stream.publish_numbers(0, before)
    run = started(stream, transport, Checkpoint(), **LENIENT)
    assert len([row for rows in run.all_batches() for row in rows]) == before
    again(stream, after)
    position = run.checkpoint.offsets[-1] if run.checkpoint.offsets else run.initial
    strict = started(stream, transport, Checkpoint([position], 1))
    with pytest.raises(DataLossError, match="was deleted and declared again"):
        strict.batch()
    assert len([row for rows in run.all_batches() for row in rows]) == after
    run.planner.stop()
    strict.planner.stop()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_task_reads_nothing_of_another_stream(
    stream: LiveStream, broker: Broker, transport: str
) -> None:
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ tells no ids")
    stream.publish_numbers(0, 10)
    options = parse_options(stream.options | {"transport": transport})
    parts = BatchReader(options, ROW).partitions()
    again(stream, 50)
    for part in parts:
        assert isinstance(part, OffsetRange)
        with open_transport(options, stream.name, ROW) as way:
            with pytest.raises(Redeclared):
                [*way.read(part.start, part.end, part.stream_id)]
            # The way is whole: what is there now is read by it.
            assert way.tail().latest == 50
            now = dataclasses.replace(part, stream_id=way.tail().stream_id)
            assert sum(piece.batch.num_rows for piece in way.read(0, 50, now.stream_id)) == 50


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_stream_that_changes_while_it_is_read_is_noticed(
    stream: LiveStream, broker: Broker, transport: str
) -> None:
    """After an interruption the task comes back to another stream."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ tells no ids")
    stream.publish_numbers(0, 10)
    options = parse_options(stream.options | {"transport": transport})
    with open_transport(options, stream.name, ROW) as way:
        stream_id = way.tail().stream_id
        whole = OffsetRange(stream.name, 0, 20, stream_id)
        with pytest.raises(DataLossError, match="10 to 19 are missing"):
            [*read_range(way, options, whole, StepPause())]
        again(stream, 50)
        with pytest.raises(DataLossError, match="0 to 19 are missing"):
            [*read_range(way, options, whole, StepPause())]


def ids_of(uri: str, name: str) -> set[str | None]:
    """Return the ids that the transports tell of a stream."""
    found = set()
    for transport in TRANSPORTS:
        options: Options = parse_options({"uri": uri, "stream": name, "transport": transport})
        with open_transport(options, name, ROW) as way:
            found |= {way.tail().stream_id, way.bounds().stream_id}
    return found


def test_an_id_stays_over_stops_and_kills_and_no_other_stream_has_it(
    tmp_path: Path, name: str
) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path / "data", settings={"journal_bytes_max": "1MiB"}) as broker:
        stream = LiveStream(broker.uri, name, f"{name}-x")
        stream.declare()
        (first,) = ids_of(broker.uri, name)
        assert first is not None
        for end in (broker.kill, broker.terminate):
            end()
            broker.start()
            assert ids_of(broker.uri, name) == {first}
        live = LiveStream(broker.uri, name, f"{name}-x")
        live.publish_bodies(*[bytes(1000)] * 3000)  # more than a checkpoint lets the journal grow
        broker.kill()
        broker.start()
        assert ids_of(broker.uri, name) == {first}
        again(LiveStream(broker.uri, name, f"{name}-x"), 3)
        (second,) = ids_of(broker.uri, name)
        broker.terminate()
        options = parse_options({"uri": f"file://{tmp_path / 'data'}", "stream": name})
        with open_transport(options, name, ROW) as way:
            assert way.tail().stream_id == second
            assert way.bounds().stream_id == second
            with pytest.raises(Redeclared):
                [*way.read(0, 3, first)]
            assert sum(piece.batch.num_rows for piece in way.read(0, 3, second)) == 3
    with BrokerProcess(tmp_path / "other") as broker:
        LiveStream(broker.uri, name, f"{name}-x").declare()
        assert len({first, second, *ids_of(broker.uri, name)}) == 3


def test_partitions_have_ids_of_their_own(broker: Broker, name: str) -> None:
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ tells no ids")
    with connect(broker.uri) as connection, connection.channel() as channel:
        arguments = {"x-queue-type": "stream", "x-super-stream-partitions": 3}
        channel.queue_declare(name, durable=True, arguments=arguments)
        run = StreamingRun(
            {"uri": broker.uri, "superStream": name}, Checkpoint(), source=LeveretDataSource
        )
        ids = from_json(run.initial).ids
        assert len(set(ids.values())) == 3
        assert {*ids} == {f"{name}-{number}" for number in range(3)}
        run.planner.stop()
        channel.queue_delete(name)


def test_offsets_that_a_name_stored_die_with_their_stream(stream: LiveStream) -> None:
    """A consumer by a name begins anew in a stream that was declared again."""
    stream.publish_numbers(0, 10)
    wish = {"x-stream-consumer": "billing", "x-stream-offset": "first"}

    def taken(count: int) -> list[bytes]:
        with stream.channel() as channel:
            channel.qos(prefetch_count=1)
            with channel.consume(stream.name, arguments=wish, inactivity_timeout=120) as messages:
                found = []
                for message in messages:
                    found.append(message.body)
                    message.ack()
                    if len(found) == count:
                        break
                return found

    assert taken(4) == [b"0", b"1", b"2", b"3"]
    assert taken(1) == [b"4"]
    again(stream, 10)
    assert taken(1) == [b"0"]


def test_a_stream_that_is_gone_is_told_as_before(stream: LiveStream) -> None:
    stream.publish_numbers(0, 3)
    run = started(stream, "auto", Checkpoint())
    run.all_batches()
    with stream.channel() as channel:
        channel.queue_delete(stream.name)
    with pytest.raises(NotFound):
        run.batch()
    run.planner.stop()
    stream.declare()


def test_the_offsets_are_read_as_they_always_were(stream: LiveStream, broker: Broker) -> None:
    """Under each name is a number, whatever stands beside it."""
    stream.publish_numbers(0, 3)
    run = started(stream, "auto", Checkpoint())
    run.all_batches()
    run.planner.stop()
    text = json.dumps(run.checkpoint.offsets[-1])
    assert json.loads(text)[stream.name] == 3
    if not broker.is_rabbitmq:
        assert text.startswith(f'{{"{stream.name}": 3, "": {{"ids": ')
