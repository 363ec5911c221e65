"""Fixtures of the Spark tests: streams in memory, and one session and one broker for all.

Tests that need a session ask for `spark`; the others run without Java.  Without PySpark (the pure
build is set up without it) nothing here is collected.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.brokers.brokers import Broker, running_broker, unique

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.spark.live_stream import LiveStream
    from support.spark.memory_stream import MemoryStream

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from leveret.spark.versions import HAS_FILTERS

    collect_ignore = [] if HAS_FILTERS else ["test_pruning.py"]


PASSWORD_ENV = "LEVERET_SPARK_TEST_PASSWORD"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker whose streams are read."""
    with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return unique("s")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests: starting one takes seconds."""
    import leveret.spark

    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.pop(name, None)  # of this machine's user
    # Set before the JVM starts, whose environment the workers get.
    os.environ[PASSWORD_ENV] = "guest"
    warehouse = tmp_path_factory.mktemp("warehouse")
    config = {
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.log.level": "ERROR",
        # With few rows, compiling each plan and planning again as it runs take most of the time.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    session = leveret.spark.session("tests", master="local[2]", fast=True, config=config)
    yield session
    session.stop()


@pytest.fixture
def memory(name: str) -> Iterator[MemoryStream]:
    """A stream in memory under the test's name."""
    from support.spark.memory_stream import STREAMS, MemoryStream

    STREAMS[name] = MemoryStream()
    yield STREAMS[name]
    del STREAMS[name]


@pytest.fixture
def stream(broker: Broker, name: str) -> Iterator[LiveStream]:
    """An empty stream on the broker, bound to an exchange of its own."""
    from support.spark.live_stream import LiveStream

    live = LiveStream(broker.uri, name, f"{name}-exchange")
    live.declare()
    yield live
    live.delete()
