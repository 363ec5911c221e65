"""The page for jobs that used Kafka: each row of its tables is true, and its job runs."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from leveret.client import BasicProperties, parse_uri
from leveret.client.blocking import Connection, connect
from leveret.routing.murmur import partition_of
from leveret.spark.columns.schema import KAFKA
from leveret.spark.connection.http_link import announced_address
from leveret.spark.options.kafka_names import INSTEAD
from leveret.spark.options.read import OPTION_NAMES, OptionError, parse_options
from leveret.spark.source import LeveretDataSource
from leveret.spark.write.options import parse_write_options
from leveret.spark.write.rows import RowError
from leveret.spark.write.schema import PASSED_OVER
from support.brokers.brokers import Broker
from support.spark.sink_order import Sink, sink_for
from support.spark.spark_order import Checkpoint, StreamingRun, batch_rows, make_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs/how-to/from-kafka.md"
URI = "amqp://guest:guest@localhost:5672/%2F"

#: The messages of the super stream, and their places: each key has its partition.
KEYS = [f"key.{number}" for number in range(12)]
PLACES = [(partition_of(key.encode(), 2), key) for key in KEYS]


def section(title: str) -> str:
    return PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def table(title: str) -> dict[str, list[str]]:
    """Return the rows of a section's table by the name in their first cell."""
    lines = [line for line in section(title).splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0].strip("` "): row[1:] for row in cells}


@pytest.fixture(scope="module")
def connection(broker: Broker) -> Iterator[Connection]:
    """The broker with both topics of the page, and messages in the first."""
    with connect(broker.uri) as connected:
        channel = connected.channel()
        arguments = {"x-queue-type": "stream", "x-super-stream-partitions": 2}
        for topic in ("orders", "totals"):
            channel.queue_declare(topic, durable=True, arguments=arguments)
        channel.confirm_select()
        for number, key in enumerate(KEYS):
            headers: dict[str, object] = {"n": number, "raw": b"\xff", "text": "größe"}
            channel.publish(b"%d" % number, "orders", key, BasicProperties(headers=headers))
        yield connected
        for topic in ("orders", "totals"):
            connected.channel().queue_delete(topic)


@pytest.fixture
def options(broker: Broker, connection: Connection) -> dict[str, str]:
    """The options of each read of the page."""
    return {"uri": broker.uri, "columns": "kafka"}


def places(rows: list[Any]) -> list[tuple[int, int]]:
    """Return the partition and the offset of each row."""
    return sorted((row["partition"], row["offset"]) for row in rows)


def expected(start: int = 0, end: int = 99, partitions: tuple[int, ...] = (0, 1)) -> list[Any]:
    """Return the places of all messages; partition 0 from `start` to `end`."""
    found = []
    for partition in partitions:
        count = sum(1 for one, _ in PLACES if one == partition)
        low, high = (start, min(end, count)) if partition == 0 else (0, count)
        found += [(partition, offset) for offset in range(low, high)]
    return found


# -- the options of a read -------------------------------------------------------------------------

READ = table("Options of a read")


def batch(options: dict[str, str], **more: str) -> list[Any]:
    chosen = {name.lower() for name in more} & {"subscribe", "subscribepattern", "assign"}
    given = {} if chosen else {"subscribe": "orders"}
    return batch_rows(options | given | more, source=LeveretDataSource)


def first_batch(options: dict[str, str], **more: str) -> list[Any]:
    given = {"subscribe": "orders", "startingOffsets": "earliest"} | options | more
    run = StreamingRun(given, Checkpoint(), source=LeveretDataSource)
    try:
        return run.batch() or []
    finally:
        run.planner.stop()


def partitions(options: dict[str, str], **more: str) -> int:
    source = make_source(options | {"subscribe": "orders"} | more, LeveretDataSource)
    return len([*source.reader(schema=source.schema()).partitions()])  # type: ignore[arg-type]


#: What each option does to a read of the topic, by the value on the page.
READS: dict[str, Callable[[dict[str, str], dict[str, str]], object]] = {
    "subscribe": lambda base, it: places(batch(base, **it)) == expected(),
    "subscribePattern": lambda base, it: (
        {(row["topic"], row["partition"]) for row in batch(base, **it)}
        == {("orders-0", 0), ("orders-1", 0)}
    ),
    "assign": lambda base, it: places(batch(base, **it)) == expected(partitions=(1,)),
    "startingOffsets": lambda base, it: (
        places(batch(base, **it))
        == places(batch(base, startingOffsets='{"orders-0": 2, "orders-1": -2}'))
        == expected(2)
    ),
    "startingTimestamp": lambda base, it: places(batch(base, **it)) == expected(),
    "startingOffsetsByTimestamp": lambda base, it: places(batch(base, **it)) == expected(),
    "startingOffsetsByTimestampStrategy": lambda base, it: (
        batch(base, startingTimestamp="32503680000000", **it) == []
    ),
    "endingOffsets": lambda base, it: places(batch(base, **it)) == expected(end=2),
    "endingTimestamp": lambda base, it: batch(base, **it) == [],
    "endingOffsetsByTimestamp": lambda base, it: places(batch(base, **it)) == expected(end=0),
    "maxOffsetsPerTrigger": lambda base, it: len(first_batch(base, **it)) == 4,
    "minOffsetsPerTrigger": lambda base, it: places(first_batch(base, **it)) == expected(),
    "maxTriggerDelay": lambda base, it: places(
        first_batch(base, minOffsetsPerTrigger="1", **it)
    ) == expected(),
    "minPartitions": lambda base, it: partitions(base, **it) >= 4,
    "maxRecordsPerPartition": lambda base, it: partitions(base, **it) == len(KEYS),
    "failOnDataLoss": lambda base, it: places(
        batch(base, startingOffsets='{"orders": {"0": 99, "1": -2}}', **it)
    ) == expected(99),
    "includeHeaders": lambda base, it: all("headers" in row for row in batch(base, **it)),
}  # fmt: skip


def test_every_option_of_a_read_is_on_the_page_and_is_tested() -> None:
    assert [*READ] == [*READS]
    kafkas_own = {"subscribe", "subscribePattern", "assign"}
    assert all(name in OPTION_NAMES for name in READ if name not in kafkas_own)


@pytest.mark.parametrize("name", READS)
def test_an_option_of_a_read_does_what_it_does_for_kafka(
    options: dict[str, str], name: str
) -> None:
    value, here = READ[name]
    assert here.startswith("the same")
    assert READS[name](options, {name: value.strip("`")})
    # Spark hands names on in lower case.
    assert READS[name](options, {name.lower(): value.strip("`")})


def test_a_topic_can_be_read_with_permissions_for_its_partitions_alone(
    options: dict[str, str],
) -> None:
    parameters = parse_uri(options["uri"])
    address = announced_address(parameters).removeprefix("http://")
    login = base64.b64encode(f"{parameters.username}:{parameters.password}".encode()).decode()
    http = HTTPConnection(address)
    for method, path, body in (
        ("PUT", "/api/users/kafka-reader", {"password": "secret", "tags": ""}),
        (
            "PUT",
            "/api/permissions/%2F/kafka-reader",
            {"configure": "", "write": "", "read": "^orders-"},
        ),
    ):
        http.request(method, path, json.dumps(body), {"Authorization": f"Basic {login}"})
        answer = http.getresponse()
        assert answer.status < 300, answer.read()
        answer.read()
    limited = options["uri"].replace("guest:guest@", "kafka-reader:secret@")
    try:
        assert places(batch(options | {"uri": limited})) == expected()
    finally:
        http.request(
            "DELETE", "/api/users/kafka-reader", headers={"Authorization": f"Basic {login}"}
        )
        http.close()


def test_only_one_option_selects() -> None:
    own = re.findall(
        r"`(\w+)`", section("Options of a read").rpartition("Only one of")[2].split("\n\n")[0]
    )
    values = {"assign": '{"s": [0]}'}
    for one in own:
        for other in own:
            if one != other:
                both = {name: values.get(name, "s") for name in (one, other)}
                with pytest.raises(OptionError, match=r"only one of these|is given twice"):
                    parse_options({"uri": URI, **both})
    assert len(own) == 8


# -- the columns of a read -------------------------------------------------------------------------

ROW: dict[str, object] = {
    "key": b"key.0",
    "value": b"0",
    "topic": "orders",
    "partition": PLACES[0][0],
    "offset": 0,
    "timestampType": 1,
    "headers": [
        {"key": "n", "value": b"0"},
        {"key": "raw", "value": b"\xff"},
        {"key": "text", "value": "größe".encode()},
    ],
}


@pytest.mark.parametrize("name", table("Columns of a read"))
def test_a_column_of_a_read_is_kafkas(options: dict[str, str], name: str) -> None:
    kind, _ = table("Columns of a read")[name]
    assert re.sub("([:,]) ", r"\1", kind) == KAFKA[name].dataType.simpleString()
    rows = batch(options, includeHeaders="true")
    (row,) = (row for row in rows if row["value"] == b"0")
    assert row[name] == ROW[name] if name in ROW else row[name].year >= 2024
    assert [*row] == [*table("Columns of a read")] == KAFKA.names
    # Named alone, and named with another.
    named = ",".join(dict.fromkeys([name, "value"]))
    assert next(iter(batch(options, columns=named)[0])) == name


# -- writes ----------------------------------------------------------------------------------------

HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def written(options: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows of `totals`."""
    read = {"subscribe": "totals", "includeHeaders": "true"}
    return batch_rows(options | read, source=LeveretDataSource)


def sink_of(options: dict[str, str], **columns: Any) -> tuple[Sink, pa.RecordBatch]:
    rows = pa.record_batch({"value": pa.array([b"v"]), **columns})
    return sink_for({"uri": options["uri"]}, rows), rows


@pytest.fixture
def totals(options: dict[str, str], connection: Connection) -> dict[str, str]:
    """The options of a read, and an empty topic to write to."""
    channel = connection.channel()
    channel.queue_delete("totals")
    arguments = {"x-queue-type": "stream", "x-super-stream-partitions": 2}
    channel.queue_declare("totals", durable=True, arguments=arguments)
    return options


def check_key(totals: dict[str, str]) -> None:
    for key in (pa.array(["größe"]), pa.array(["größe".encode()])):
        sink, rows = sink_of(totals, key=key, topic=pa.array(["totals"]))
        sink.save([[rows]])
    for row in written(totals):
        assert (row["key"], row["partition"]) == (
            "größe".encode(),
            partition_of("größe".encode(), 2),
        )
    sink, rows = sink_of(totals, key=pa.array([b"\xff"]), topic=pa.array(["totals"]))
    with pytest.raises(RowError, match="column 'key' is not UTF-8"):
        sink.save([[rows]])


def check_value(totals: dict[str, str]) -> None:
    for value in (pa.array(["größe"]), pa.array(["größe".encode()])):
        sink, rows = sink_of(totals, value=value, topic=pa.array(["totals"]))
        sink.save([[rows]])
    assert {row["value"] for row in written(totals)} == {"größe".encode()}
    sink, rows = sink_of(totals, value=pa.array([None], pa.binary()), topic=pa.array(["totals"]))
    with pytest.raises(RowError, match="column 'value' is null"):
        sink.save([[rows]])


def check_topic(totals: dict[str, str]) -> None:
    with connect(totals["uri"]) as connected, connected.channel() as channel:
        channel.queue_declare("plain", durable=True, arguments={"x-queue-type": "stream"})
        topics = pa.array(["totals", "plain"])
        rows = pa.record_batch({"value": [b"a", b"b"], "topic": topics, "key": ["k", None]})
        sink_for({"uri": totals["uri"]}, rows).save([[rows]])
        assert [(row["topic"], row["key"]) for row in written(totals)] == [("totals", b"k")]
        lost = pa.record_batch({"value": [b"a"], "topic": ["plain"], "key": ["k"]})
        with pytest.raises(RowError, match="topic 'plain': there is no super stream"):
            sink_for({"uri": totals["uri"]}, lost).save([[lost]])
        # The option wins over the column.
        where = {"uri": totals["uri"], "topic": "totals"}
        sink_for(where, lost).save([[lost]])
        assert len(written(totals)) == 2
        channel.qos(1)
        consumer = channel.consume(
            "plain", arguments={"x-stream-offset": "first"}, inactivity_timeout=60
        )
        assert next(consumer).body == b"b"
        channel.queue_delete("plain")


def check_headers(totals: dict[str, str]) -> None:
    entries = [("a", "größe".encode()), ("b", b"\xff\x00"), ("n", None), ("a", b"last")]
    headers = pa.array([[dict(zip(("key", "value"), one, strict=True)) for one in entries]], HEADER)
    sink, rows = sink_of(totals, topic=pa.array(["totals"]), headers=headers)
    sink.save([[rows]])
    (row,) = written(totals)
    assert row["headers"] == [
        {"key": "a", "value": b"last"},
        {"key": "b", "value": b"\xff\x00"},
        {"key": "n", "value": None},
    ]


def check_partition(totals: dict[str, str]) -> None:
    assert "partition" in PASSED_OVER
    chosen = partition_of(b"k", 2)
    more = {"topic": pa.array(["totals"]), "key": pa.array(["k"])}
    sink, rows = sink_of(totals, partition=pa.array([1 - chosen], pa.int32()), **more)
    sink.save([[rows]])
    assert [row["partition"] for row in written(totals)] == [chosen]


WRITES: dict[str, Callable[[dict[str, str]], None]] = {
    "key": check_key,
    "value": check_value,
    "topic": check_topic,
    "headers": check_headers,
    "partition": check_partition,
}


def test_every_column_of_a_write_is_on_the_page_and_is_tested() -> None:
    assert [*table("Columns of a write")] == [*WRITES]


@pytest.mark.parametrize("name", WRITES)
def test_a_column_of_a_write_is_kafkas(totals: dict[str, str], name: str) -> None:
    WRITES[name](totals)


def test_the_options_of_a_write_are_kafkas(totals: dict[str, str]) -> None:
    ((name, (value, here)),) = table("Options of a write").items()
    assert (name, here) == ("topic", "the same")
    rows = pa.record_batch({"value": [b"v"], "key": [b"k"]})
    where = {"uri": totals["uri"], "TOPIC": value.strip("`"), "checkpointLocation": "/x"}
    sink_for(where | {"queryName": "q"}, rows).save([[rows]])
    assert [row["key"] for row in written(totals)] == [b"k"]
    missing = sink_for(where | {"TOPIC": "none"}, rows)
    with pytest.raises(
        Exception, match="option 'topic': there is no super stream, exchange or str"
    ):
        missing.save([[rows]])


# -- what is refused -------------------------------------------------------------------------------

REFUSED = table("Options that are refused")


def test_every_refused_option_is_on_the_page() -> None:
    names = [name.partition("`")[0].lower().replace("*", "") for name in REFUSED]
    assert names == [*INSTEAD]


@pytest.mark.parametrize("written_name", REFUSED)
def test_an_error_says_what_to_do_instead(written_name: str) -> None:
    name = written_name.partition("`")[0].replace("*", "something.of.kafka")
    (instead,) = REFUSED[written_name]
    text = f"option '{name}' belongs to Kafka: {instead.replace('`', chr(39))}"
    with pytest.raises(OptionError) as caught:
        parse_write_options({"uri": URI, "stream": "s", name: "x"})
    assert str(caught.value) == text
    if name not in OPTION_NAMES:
        with pytest.raises(OptionError) as caught:
            parse_options({"uri": URI, "stream": "s", name: "x"})
        assert str(caught.value) == text


# -- the job ---------------------------------------------------------------------------------------


def test_the_job_of_the_page_runs(
    spark: SparkSession, totals: dict[str, str], tmp_path: Path
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    places_of_page = {URI: totals["uri"], "/data/totals": str(tmp_path)}
    for there, here in places_of_page.items():
        assert there in example
        example = example.replace(there, here)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(example, PAGE.name, "exec"), names)  # noqa: S102  our own page
    query = names["query"]
    wanted = expected()
    query.processAllAvailable()
    query.stop()
    rows = written(totals)
    source = {place: key for place, key in zip(numbered(), KEYS, strict=True) if place in wanted}
    assert sorted(row["key"].decode() for row in rows) == sorted(source.values())
    assert all(row["value"] == row["key"].removeprefix(b"key.").upper() for row in rows)


def numbered() -> list[tuple[int, int]]:
    """Return the partition and the offset of each message."""
    found: list[tuple[int, int]] = []
    for partition, _ in PLACES:
        found.append((partition, sum(1 for one, _ in found if one == partition)))
    return found
