"""The examples on the pages of the jobs run as they stand, and say what they assert."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.pipelines import archive
from support.brokers.brokers import Broker, running_broker
from support.spark.live_stream import LiveStream

DIRECTORY = Path(__file__).parents[2] / "docs/reference/pipelines"
PAGES = sorted(page for page in DIRECTORY.glob("*.md") if page.stem != "README")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
URI = re.compile(r"amqp://guest:guest@localhost(:5672)?/%2F")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that tells its events, for the page that reads them."""
    settings = {"event_sample_every": "1"}
    with running_broker(tmp_path_factory.mktemp("telling"), settings) as running:
        yield running


@pytest.fixture
def orders(broker: Broker) -> Iterator[LiveStream]:
    """The stream that examples read unless they make their own."""
    live = LiveStream(broker.uri, "orders", "orders-exchange")
    live.declare()
    live.publish_numbers(0, 10)
    yield live
    live.delete()


def example(page: Path, uri: str, directory: Path) -> str:
    """Return the Python of a page, for a broker and a directory of this test's."""
    code = "\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))
    return URI.sub(uri, code).replace('"/data/', f'"{directory}/')


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_example_runs(
    spark: SparkSession,
    orders: LiveStream,
    tmp_path: Path,
    page: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code = example(page, orders.uri, tmp_path)
    if f"{tmp_path}/archive/orders" in code and "archive(" not in code:
        archive(spark, orders.uri, orders.name, tmp_path / "archive" / "orders")
    exec(compile(code, page.name, "exec"), {"__name__": "example"})  # noqa: S102  our own page
