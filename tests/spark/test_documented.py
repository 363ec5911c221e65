"""The page of the source: its table of options is that of the code, and its examples run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.spark.options.read import (
    BATCH_ONLY,
    OPTION_NAMES,
    QUEUE_ONLY,
    SELECTIONS,
    STREAM_ONLY,
    Options,
    parse_options,
)
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import Broker, need_own_broker
from support.spark.live_stream import LiveStream, Sent

PAGE = Path(__file__).parents[2] / "docs/reference/spark/streams.md"
PASSWORD_ENV = "LEVERET_SPARK_TEST_PASSWORD"

#: How the page writes what an option is when it is not given.
DEFAULTS = {
    "startingOffsetsByTimestampStrategy": "`error`",
    "maxTriggerDelay": "`15m`",
    "maxRecordsPerPartition": "500000",
    "failOnDataLoss": "`true`",
    "columns": "`leveret`",
    "filterMatchUnfiltered": "`false`",
    "transport": "`auto`",
    "prefetch": "2000",
    "pollTimeoutMs": "60000",
    "retryTimeoutMs": "120000",
    "ackMode": "`afterBatch`",
}


def table() -> dict[str, tuple[str, str]]:
    """Return the default and the description of each option on the page."""
    text = PAGE.read_text().partition("## Options")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) ?\| (.*) \|$", text, re.MULTILINE)
    return {name: (default, description) for name, default, description in rows}


def test_the_table_has_the_options_of_the_code_and_no_others() -> None:
    assert sorted(table()) == sorted(OPTION_NAMES)


@pytest.mark.parametrize(("name", "written"), DEFAULTS.items())
def test_the_table_has_the_defaults_of_the_code(name: str, written: str) -> None:
    """A read that is told the default is the one that is told nothing."""
    assert table()[name][0] == written
    about = {
        "startingOffsetsByTimestampStrategy": {"startingTimestamp": "1"},
        "maxTriggerDelay": {"minOffsetsPerTrigger": "1"},
        "filterMatchUnfiltered": {"filterValues": "a"},
    }.get(name, {})
    selection = {"queue": "q"} if name in QUEUE_ONLY else {"stream": "s"}
    given = {"uri": "amqp://localhost", **selection, **about}
    bare, told = parse_options(given), parse_options(given | {name: written.strip("`")})
    for field in fields(Options):
        if field.name != "given":
            assert getattr(bare, field.name) == getattr(told, field.name)


def test_the_table_says_what_belongs_to_one_kind_of_read() -> None:
    for names, words in (
        (BATCH_ONLY, "batch only: "),
        (STREAM_ONLY, "streaming only: "),
        (QUEUE_ONLY, "queues only: "),
    ):
        for name, (_, description) in table().items():
            assert description.startswith(words) == (name in names), name
    assert [name for name in table() if name in SELECTIONS] == [*SELECTIONS]


# -- examples --------------------------------------------------------------------------------------


@pytest.fixture
def orders(broker: Broker) -> Iterator[list[LiveStream]]:
    """The stream and the super stream of the examples."""
    made = [LiveStream(broker.uri, name, f"{name}-exchange") for name in ("orders", "orders-0")]
    for stream in made:
        stream.declare()
        stream.publish(Sent(b"%d" % number, f"key.{number % 3}") for number in range(30))
    yield made
    for stream in made:
        stream.delete()


def stopped_broker(place: Path) -> Path:
    """Return a directory that a broker with the stream of the examples ran on."""
    need_own_broker()
    with BrokerProcess(place) as broker:
        stream = LiveStream(broker.uri, "orders", "x")
        stream.declare()
        stream.publish_numbers(0, 7)
        broker.terminate()
    return place


def test_the_examples_run(
    spark: SparkSession,
    broker: Broker,
    orders: list[LiveStream],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    replaced = {
        "amqp://guest:guest@localhost:5672/%2F": broker.uri,
        "amqp://reader@broker.example/%2F": broker.uri.replace("guest:guest@", "guest@"),
        "BROKER_PASSWORD": PASSWORD_ENV,
        "/data/orders": str(tmp_path / "orders"),
        "/var/backups/leveret": str(stopped_broker(tmp_path / "data")),
    }
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for written in examples:
        example = written
        for there, here in replaced.items():
            example = example.replace(there, here)
        exec(compile(example, PAGE.name, "exec"), names)  # noqa: S102  our own page
        query = names.get("query")
        if query is not None:
            query.awaitTermination()  # type: ignore[attr-defined]
    assert re.search(r"key\.2 *\| *10", capsys.readouterr().out)
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 30
    assert names["backup"].count() == 7  # type: ignore[attr-defined]
    assert names["changes"].isStreaming  # type: ignore[attr-defined]
    spark.streams.removeListener(names["lags"])  # type: ignore[arg-type]
