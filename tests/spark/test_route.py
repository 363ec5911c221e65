"""The route job: message by message what a broker does with them, and counts that are theirs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from leveret.client.blocking import connect
from leveret.pipelines import read_topology, route, routed
from leveret.pipelines.refusals import JobError
from leveret.pipelines.route.matchers import header_text
from support.brokers.brokers import Broker, need_own_broker, unique
from support.http.http_api import Api
from support.node.random_topology import RandomTopology, Sample
from support.spark.live_stream import LiveStream

SCHEMA = "number int, exchange string, routing_key string, headers map<string, string>, body string"
SAMPLES = 400


def export_definitions(broker: Broker, path: Path) -> None:
    """Write the broker's definitions to a file."""
    assert broker.process is not None
    api = Api(broker.process.data_dir / "management.sock")
    api.request("GET", "/api/definitions")
    path.write_bytes(api.getresponse().read())
    api.close()


def as_rows(spark: SparkSession, samples: list[Sample]) -> DataFrame:
    """Return messages as the data source would give them."""
    return spark.createDataFrame(
        [
            (
                number,
                sample.exchange,
                sample.routing_key,
                {name: header_text(value) for name, value in sample.headers.items()},
                "x" * number,
            )
            for number, sample in enumerate(samples)
        ],
        SCHEMA,
    )


@pytest.fixture(params=[1, *(pytest.param(n, marks=pytest.mark.thorough) for n in (2, 3))])
def topology(request: pytest.FixtureRequest, broker: Broker) -> Iterator[RandomTopology]:
    need_own_broker()
    made = RandomTopology(unique("route"), request.param)
    with connect(broker.uri) as connection, connection.channel() as channel:
        made.declare(channel)
        yield made
        made.delete(channel)


def test_each_message_goes_where_the_broker_puts_it(
    spark: SparkSession, broker: Broker, topology: RandomTopology, tmp_path: Path
) -> None:
    samples = topology.sample(SAMPLES)
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.confirm_select()
        topology.publish(channel, samples)
        taken = topology.taken(channel, SAMPLES)
    assert any(taken), "a topology that takes nothing shows nothing"
    path = tmp_path / "definitions.json"
    export_definitions(broker, path)
    rows = as_rows(spark, samples)
    foreseen = routed(rows, read_topology(path, "/")).orderBy("number").collect()
    assert [row["queues"] for row in foreseen] == taken

    found = route(spark, path, vhost="/", rows=rows, sizes=True)
    counts = Counter(name for names in taken for name in names)
    assert {load.queue: load.messages for load in found.queues if load.messages} == counts
    sizes: Counter[str] = Counter()
    for number, names in enumerate(taken):
        sizes.update(dict.fromkeys(names, number))
    assert {load.queue: load.bytes for load in found.queues if load.bytes} == +sizes
    assert (found.messages, found.bytes) == (SAMPLES, sum(range(SAMPLES)))
    assert found.unroutable_messages == sum(not names for names in taken)
    assert sum(one.messages for one in found.unroutable) == found.unroutable_messages


BEFORE = {
    "queues": [{"name": "all"}, {"name": "errors"}, {"name": "idle"}],
    "exchanges": [{"name": "logs", "type": "topic"}],
    "bindings": [
        {"source": "logs", "destination": "all", "routing_key": "#"},
        {"source": "logs", "destination": "errors", "routing_key": "*.error"},
        {"source": "logs", "destination": "idle", "routing_key": "never"},
    ],
}
AFTER = {
    "queues": [{"name": "all"}, {"name": "errors"}, {"name": "app"}],
    "exchanges": BEFORE["exchanges"],
    "bindings": [
        {"source": "logs", "destination": "errors", "routing_key": "*.error"},
        {"source": "logs", "destination": "app", "routing_key": "app.#"},
    ],
}


def test_two_topologies_are_compared_over_a_stream(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    with stream.channel() as channel:
        for key, count in (("app.error", 3), ("app.info", 5), ("web.info", 7)):
            for _ in range(count):
                channel.publish_nowait(b"<b>", stream.exchange, key)
        channel.wait_for_confirms()
    renamed = json.loads(json.dumps([BEFORE, AFTER]).replace('"logs"', json.dumps(stream.exchange)))
    lines: list[str] = []
    page = tmp_path / "route.html"
    found = route(
        spark,
        renamed[1],
        against=renamed[0],
        uri=stream.uri,
        stream=stream.name,
        html_path=page,
        progress=lines.append,
    )
    loads = {load.queue: (load.before, load.messages) for load in found.queues}
    assert loads == {"app": (0, 8), "errors": (3, 3), "all": (15, 0), "idle": (0, 0)}
    assert (found.unroutable_messages, found.unroutable_keys) == (7, 1)
    assert (found.moved_messages, found.moved_keys) == (15, 3)
    moved = {one.routing_key: (one.gains, one.losses) for one in found.moved}
    assert moved == {
        "app.error": (("app",), ("all",)),
        "app.info": (("app",), ("all",)),
        "web.info": ((), ("all",)),
    }
    assert found.unused == ()
    assert lines[0] == f"routing stream {stream.name}"
    text = page.read_text(encoding="utf-8")
    assert "web.info" in text
    assert found.first is None or found.first <= (found.last or found.first)
    assert (found.first is None) == (found.last is None)


def test_properties_may_be_hashed_and_nulls_are_empty(spark: SparkSession) -> None:
    held = {
        "queues": [{"name": n} for n in "ab"],
        "exchanges": [
            {
                "name": "ring",
                "type": "x-consistent-hash",
                "arguments": {"hash-property": "message_id"},
            }
        ],
        "bindings": [{"source": "ring", "destination": n, "routing_key": "5"} for n in "ab"],
    }
    rows = spark.createDataFrame(
        [("ring", str(n), (f"m{n % 20}", None)) for n in range(100)] + [("ring", None, None)],
        "exchange string, routing_key string, properties struct<message_id: string, x: string>",
    )
    found = routed(rows, read_topology(held)).collect()
    chosen = {row["properties"] and row["properties"][0]: row["queues"] for row in found}
    assert all(row["queues"] == chosen[row["properties"][0]] for row in found[:-1])
    assert {name for names in chosen.values() for name in names} == {"a", "b"}


def test_a_busy_queue_among_quiet_ones_is_hot(spark: SparkSession) -> None:
    held = {"queues": [{"name": f"q{n}"} for n in range(9)]}
    keys = [("", f"q{n}") for n in range(9)] + [("", "q4")] * 50
    found = route(
        spark, held, rows=spark.createDataFrame(keys, "exchange string, routing_key string")
    )
    assert [load.queue for load in found.hot] == ["q4"]
    assert found.queues[0].messages == 51


def test_a_binding_for_dead_letters_is_not_called_unused(spark: SparkSession) -> None:
    dead = {"x-dead-letter-exchange": "amq.topic"}
    held = {
        "queues": [{"name": "work", "arguments": dead}, {"name": "dead"}],
        "bindings": [
            {"source": "amq.topic", "destination": "dead", "routing_key": "work"},
            {"source": "amq.topic", "destination": "dead", "routing_key": "seen"},
            {"source": "amq.fanout", "destination": "dead"},
        ],
    }
    keys = [("", "work"), ("amq.topic", "seen")]
    rows = spark.createDataFrame(keys, "exchange string, routing_key string")
    found = route(spark, held, rows=rows)
    assert [binding.source for binding in found.unused] == ["amq.fanout"]
    assert [binding.binding_key for binding in found.not_judged] == ["work"]


def test_what_makes_no_sense_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([("", "")], "exchange string, routing_key string")
    with pytest.raises(JobError, match="No such file"):
        route(spark, tmp_path / "gone.json", rows=rows)
    with pytest.raises(JobError, match="rows cannot be combined"):
        route(spark, BEFORE, rows=rows, path="p")
    with pytest.raises(JobError, match="messages come from a stream"):
        route(spark, BEFORE)
    with pytest.raises(JobError, match="hot_times: 0 is less than 1"):
        route(spark, BEFORE, rows=rows, hot_times=0)
