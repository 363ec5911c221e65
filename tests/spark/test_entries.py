"""The methods that Spark calls: short errors, whole tracebacks of faults, and silent ends."""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import select
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import BinaryType, StructType

import leveret.spark
from leveret.errors import NotFound
from leveret.spark.entries import ENTRIES, entries
from leveret.spark.errors import SourceError
from leveret.spark.queue.stream import QueueStreamReader
from leveret.spark.source import LeveretDataSource
from leveret.spark.stream.stream import SparkStreamReader

#: What Spark and its workers prove to each other.
SECRET = "secret"

#: A program of a worker, which writes to its socket after Spark has closed it.
WORKER = """
from leveret.spark.source import LeveretDataSource
from leveret.spark.stream.stream import SparkStreamReader
def main(infile, outfile):
    {call}
    infile.read()
    outfile.write(bytes(1_000_000))
"""


def of_spark(kind: type) -> Iterator[type]:
    """Yield the classes of the source that extend a class of PySpark."""
    one: type
    for one in kind.__subclasses__():
        if one.__module__.startswith("leveret.spark"):
            yield one
        yield from of_spark(one)


def test_every_method_that_spark_calls_is_an_entry() -> None:
    for module in pkgutil.walk_packages(leveret.spark.__path__, "leveret.spark."):
        importlib.import_module(module.name)
    bases = (DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter)
    found = {
        f"{kind.__qualname__}.{name}": hasattr(vars(kind)[name], "__wrapped__")
        for base in bases
        for kind in of_spark(base)
        for name in ENTRIES & vars(kind).keys()
    }
    assert len(found) > 20
    assert [name for name, is_entry in found.items() if not is_entry] == []


@entries
class Failing:
    """A source that fails as wanted."""

    def schema(self, error: Exception) -> None:
        try:
            raise KeyError("what led to it")
        except KeyError as cause:
            raise error from cause

    def read(self, error: Exception) -> Iterator[int]:
        yield 1
        self.schema.__wrapped__(self, error)  # type: ignore[attr-defined]


def shown(error: Exception, *, by_read: bool) -> str:
    """Return the traceback that Spark would show."""
    try:
        [*Failing().read(error)] if by_read else Failing().schema(error)
    except Exception:  # noqa: BLE001
        return traceback.format_exc()
    raise AssertionError


@pytest.mark.parametrize("by_read", [True, False])
def test_an_error_that_is_meant_has_neither_cause_nor_calls(
    by_read: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "leveret.spark"):
        text = shown(NotFound("no stream"), by_read=by_read)
    assert "what led to it" not in text
    assert text.count("spark/entries.py") == 1
    assert text.endswith("\nleveret.errors.NotFound: 404 NOT_FOUND - no stream\n")
    assert "what led to it" in caplog.text


@pytest.mark.parametrize("kind", ["reader", "writer", "streamWriter"])
def test_another_version_on_an_executor_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    source = LeveretDataSource({"uri": "amqp://h", "stream": "s"})
    schema = StructType().add("body", BinaryType())
    made = source.reader(schema) if kind == "reader" else getattr(source, kind)(schema, False)
    data: bytes = cloudpickle.dumps(made)  # type: ignore[no-untyped-call]
    assert vars(cloudpickle.loads(data)).keys() == vars(made).keys()
    monkeypatch.setattr("leveret.spark.entries.__version__", "9.1")
    with pytest.raises(SourceError, match=r"Leveret \S+ on the driver and 9\.1 on an executor"):
        cloudpickle.loads(data)


@pytest.mark.parametrize("kind", [SparkStreamReader, QueueStreamReader])
def test_a_reader_is_pickled_without_its_connections(kind: type[Any]) -> None:
    made: Any = object.__new__(kind)
    # A lock cannot be pickled, and neither can a connection.
    vars(made)["_streams" if kind is SparkStreamReader else "_feed"] = threading.Lock()
    data: bytes = cloudpickle.dumps(made)  # type: ignore[no-untyped-call]
    assert set(vars(cloudpickle.loads(data)).values()) == {None}


@pytest.mark.parametrize("by_read", [True, False])
def test_a_fault_keeps_its_traceback(by_read: bool) -> None:
    text = shown(AssertionError("impossible"), by_read=by_read)
    assert "what led to it" in text
    assert "in schema" in text


@pytest.mark.parametrize(
    ("daemon", "call"),
    [
        ("pyspark.daemon", "LeveretDataSource.name()"),
        ("pyspark.daemon", "list(SparkStreamReader.read(None, None))"),
        ("leveret.spark.worker_daemon", "pass"),
    ],
    ids=["planned", "read", "other"],
)
def test_a_worker_that_spark_needs_no_more_prints_nothing(
    daemon: str, call: str, tmp_path: Path
) -> None:
    # PySpark's daemon takes only programs whose names begin like this.
    (tmp_path / "pyspark_program.py").write_text(WORKER.format(call=call))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    made = subprocess.Popen(
        [sys.executable, "-m", daemon, "pyspark_program"],
        env=os.environ | {"PYTHONPATH": path, "PYTHON_WORKER_FACTORY_SECRET": SECRET},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with made as process:
        assert process.stdin is not None
        assert process.stdout is not None
        (port,) = struct.unpack("!i", process.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as spark:
            (worker,) = struct.unpack("!i", spark.recv(4, socket.MSG_WAITALL))
            spark.sendall(struct.pack("!i", len(SECRET)) + SECRET.encode())
            assert spark.recv(6, socket.MSG_WAITALL) == b"\x00\x00\x00\x02ok"
            ended = os.pidfd_open(worker)
        with os.fdopen(ended) as descriptor:
            select.select([descriptor], [], [])
        _, printed = process.communicate()
    assert printed == b""
