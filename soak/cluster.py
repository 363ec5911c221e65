"""A cluster of Spark's own: a master, two workers, and executors that are processes of their own.

    .venv/bin/python -m soak.cluster

The same source and sink as in local mode, whose tasks run in executors: a stream is read in one
batch, archived by a streaming query and written through the sink, and a queue is taken through a
spool that all see.  Tasks must have run in each executor, and every number that was published
must be there once.

The executors' Python lies elsewhere than the driver's, which does not run in an executor: each side
finds its own `python3` in its path, and nobody sets `PYSPARK_PYTHON`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from leveret.client import blocking
from leveret.spark.installation import cache_dir
from leveret.spark.java import find_java_home
from leveret.spark.python import VARIABLES
from soak import ROOT
from support.brokers.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES: Final = 20_000
TASKS: Final = 8
EXECUTORS: Final = 2
LISTENING: Final = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED: Final = re.compile(r"Successfully registered with master (\S+)")
WAIT_SECONDS_MAX: Final = 120.0
LOOK_SECONDS: Final = 0.2

STREAM: Final = {"x-queue-type": "stream"}


@contextmanager
def daemon(
    log: Path, path: str, kind: str, until: re.Pattern[str], *arguments: str
) -> Iterator[str]:
    """Run a daemon of Spark's while the block does; yields what its log says when it is up.

    Raises: RuntimeError when it ends before that, or takes too long.
    """
    home = Path(pyspark.__file__).parent
    address = ("--host", "127.0.0.1", "--webui-port", "0")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *address, *arguments],
            env=os.environ
            | {
                "PATH": path,
                "SPARK_HOME": str(home),
                "JAVA_HOME": str(find_java_home(cache_dir())),
                "SPARK_DAEMON_MEMORY": "256m",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while (found := until.search(log.read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{kind} does not come up: {log.read_text()[-2000:]}")
            time.sleep(LOOK_SECONDS)
        yield found[1]
    finally:
        process.kill()
        process.wait()


def python_where(place: Path, condition: str) -> Path:
    """Make a `python3` that is this Python if a condition of the shell is true; return its path."""
    place.mkdir()
    python = place / "python3"
    python.write_text(f'#!/bin/sh\n{condition} && exec {sys.executable} "$@"\nexit 1\n')
    python.chmod(0o755)
    return python


def path_with(python: Path) -> str:
    """Return a PATH in which a Python comes first."""
    return f"{python.parent}{os.pathsep}{os.environ['PATH']}"


def session(master: str) -> SparkSession:
    """Return a session whose tasks run on the cluster."""
    import leveret.spark

    path = os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])
    config = {
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": path,
        "spark.sql.shuffle.partitions": "2",
    }
    return leveret.spark.session("cluster", master=master, config=config)


def publish(uri: str, queue: str) -> None:
    """Publish numbers."""
    with blocking.connect(uri, recover=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for number in range(MESSAGES):
            channel.publish_nowait(b"%d" % number, "", queue)
        channel.wait_for_confirms()


def check(what: str, rows: DataFrame) -> None:
    """Check that each number is there once.  Raises: RuntimeError."""
    numbers = sorted(int(row["body"]) for row in rows.select("body").collect())
    print(f"{what}: {len(numbers):,} rows, {len(set(numbers)):,} distinct", flush=True)
    if numbers != list(range(MESSAGES)):
        raise RuntimeError(f"{what}: that is not what was published")


def run(spark: SparkSession, uri: str, place: Path) -> None:
    """Read and write by all that there is.  Raises: RuntimeError."""
    from leveret.pipelines import archive
    from leveret.pipelines.source import read_archive

    with blocking.connect(uri, recover=False) as connection:
        channel = connection.channel()
        for name in ("in", "out"):
            channel.queue_declare(name, durable=True, arguments=STREAM)
        channel.queue_declare("waiting", durable=True)
    publish(uri, "in")
    source = spark.read.format("leveret").options(uri=uri, minPartitions=str(TASKS))
    rows = source.option("stream", "in").load()
    check("stream, batch", rows)
    check_executors(rows)
    found = archive(spark, uri, "in", place / "lake", options={"minPartitions": str(TASKS)})
    check(f"archive of {found.records:,}", read_archive(spark, place / "lake"))
    rows.select("body").write.format("leveret").options(uri=uri, stream="out").mode("append").save()
    wait_handed_on(uri)
    check("sink", source.option("stream", "out").load())
    publish(uri, "waiting")
    check("queue by a spool that all see", taken(spark, uri, place))


def wait_handed_on(uri: str) -> None:
    """Wait until a committed batch has gone on to its stream.  Raises: RuntimeError."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    with blocking.connect(uri, recover=False) as connection:
        channel = connection.channel()
        while channel.queue_declare("out", passive=True).message_count < MESSAGES:
            if time.monotonic() > deadline:
                raise RuntimeError("the batch does not come to its stream")
            time.sleep(LOOK_SECONDS)


def taken(spark: SparkSession, uri: str, place: Path) -> DataFrame:
    """Take a queue to files and return them."""
    rows = (
        spark.readStream.format("leveret")
        .options(uri=uri, queue="waiting", spoolDir=str(place / "spool"), minPartitions=str(TASKS))
        .load()
    )
    query = (
        rows.writeStream.format("parquet")
        .options(path=str(place / "taken"), checkpointLocation=str(place / "queue"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(str(place / "taken"))


def check_executors(rows: DataFrame) -> None:
    """Check that tasks ran in all executors.  Raises: RuntimeError."""
    from pyspark.sql import functions as f

    def directory(_: int) -> str:
        """Return where this process works; each executor has a directory of its own."""
        return str(Path.cwd())

    executor = f.udf(directory, "string", useArrow=False)
    seen = {row[0] for row in rows.select(executor("offset")).distinct().collect()}
    print(f"rows came by {len(seen)} executors", flush=True)
    if len(seen) != EXECUTORS:
        raise RuntimeError(f"not by {EXECUTORS}")


def main() -> int:
    """Run it."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as scratch, ExitStack() as stack:
        place = Path(scratch)
        broker = stack.enter_context(BrokerProcess(place / "broker", settings={"http_port": "0"}))
        # Spark sets this variable in executors.
        there = path_with(python_where(place / "executors", '[ -n "$SPARK_EXECUTOR_DIRS" ]'))
        here = python_where(place / "driver", '[ -z "$SPARK_EXECUTOR_DIRS" ]')
        os.environ["PATH"] = path_with(here)
        sys.executable = str(here)
        for variable in VARIABLES:
            os.environ.pop(variable, None)
        log = place / "master.log"
        start = partial(daemon, log, there, "master.Master", LISTENING, "--port", "0")
        master = stack.enter_context(start())
        for number in range(EXECUTORS):
            log = place / f"worker{number}.log"
            given = ("--cores", "1", "--memory", "1g", "--work-dir", str(place / f"work{number}"))
            worker = daemon(log, there, "worker.Worker", REGISTERED, *given, master)
            stack.enter_context(worker)
        spark = session(master)
        try:
            run(spark, broker.uri, place)
        finally:
            spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
