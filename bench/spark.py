"""The Spark source and sink beside what Spark does with the same rows without a broker.

    .venv/bin/python bench/spark.py [--rows 2000000] [--rounds 3] [--only bulk,amqp] [--json]

Random bodies of 100 bytes; every read takes all columns to Spark's `noop` sink.  Within a round the
cases take turns, so that a change of the machine's mood meets all of them; a figure is the median
of the rounds, after one that warms up.  Ratios are what counts: Parquet and Arrow batches from
memory are read in the same session.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import sides

from support.brokers.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BENCH: Final = Path(__file__).resolve().parent
BODY_BYTES: Final = 100
STREAM: Final = "bench"

#: Micro-batches whose time counts, after some that warm up.
BATCHES: Final = 25
WARM_BATCHES: Final = 8

#: The routed traffic: keys of three words, of a topic exchange with that many bindings.
WORDS: Final = 26
KEYS: Final = 16_384
BINDINGS: Final = 200

#: What the AMQP transport may take of the rows: it is a few times slower.
AMQP_SHARE: Final = 0.25


@dataclass(frozen=True)
class Target:
    """A ratio or a figure that is asked for."""

    case: str
    at_least: float = 0.0
    at_most: float = 0.0
    #: The case that it is a ratio to; empty for rows per second (or ms).
    to: str = ""


TARGETS: Final = (
    Target("bulk", at_least=0.6, to="parquet"),
    Target("bulk", at_least=0.8, to="memory"),
    Target("count", at_least=0.83, to="count+body"),
    Target("amqp", at_least=350_000),
    Target("archive", at_least=600_000),
    Target("sink", at_least=400_000),
    Target("sink", at_least=0.9, to="written"),
    Target("route", at_least=1_670_000),
    Target("floor", at_most=2.0, to="rate floor"),
)


@dataclass
class Setting:
    """What the cases share."""

    spark: SparkSession
    uri: str
    directory: Path
    rows: int
    made: int = 0

    def fresh(self, name: str) -> Path:
        """Return a path that nothing is at."""
        self.made += 1
        return self.directory / f"{name}-{self.made}"

    def options(self, **more: str) -> dict[str, str]:
        """Return the source's options."""
        return {"uri": self.uri, "stream": STREAM} | more


def seconds(work: Callable[[], object]) -> float:
    """Return how long a piece of work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def noop(rows: DataFrame) -> None:
    """Read all columns of all rows to nowhere."""
    rows.write.format("noop").mode("overwrite").save()


# -- cases: each returns rows per second, the floors milliseconds ----------------------------------


def parquet(setting: Setting) -> float:
    """Read the archive of the stream as Parquet."""
    rows = setting.spark.read.parquet(str(setting.directory / "archive"))
    return setting.rows / seconds(lambda: noop(rows))


def rows_of_memory(setting: Setting, shares: int) -> DataFrame:
    """Return the rows of a Python source that has them in memory."""
    reader = setting.spark.read.format("arrow_memory").option("rows", setting.rows)
    return reader.option("shares", shares).load()


def memory(setting: Setting) -> float:
    """Read batches that the source has in memory."""
    rows = rows_of_memory(setting, 4)
    return setting.rows / seconds(lambda: noop(rows))


def read(setting: Setting, transport: str, rows: int) -> float:
    """Read the stream."""
    options = setting.options(transport=transport, endingOffsets=json.dumps({STREAM: rows}))
    found = setting.spark.read.format("leveret").options(**options).load()
    return rows / seconds(lambda: noop(found))


def bulk(setting: Setting) -> float:
    """Read the stream as stored chunks."""
    return read(setting, "bulk", setting.rows)


def count(setting: Setting) -> float:
    """Count the messages, reading their offsets alone."""
    return counted(setting, "offset")


def count_body(setting: Setting) -> float:
    """Count the messages, reading their bodies as well."""
    return counted(setting, "offset,body")


def counted(setting: Setting, columns: str) -> float:
    """Count the messages of the stream by some of its columns."""
    options = setting.options(transport="bulk", columns=columns)
    rows = setting.spark.read.format("leveret").options(**options).load()
    return setting.rows / seconds(rows.count)


def amqp(setting: Setting) -> float:
    """Read a part of the stream as deliveries."""
    return read(setting, "amqp", int(setting.rows * AMQP_SHARE))


def archive(setting: Setting) -> float:
    """Archive the stream to Parquet, as the job does."""
    from leveret.pipelines import archive as job

    path = setting.fresh("archive")
    took = seconds(
        lambda: job(setting.spark, setting.uri, STREAM, path, max_offsets_per_trigger=setting.rows)
    )
    shutil.rmtree(path)
    return setting.rows / took


def sink(setting: Setting) -> float:
    """Write the rows to a stream of their own, each confirmed."""
    rows = rows_of_memory(setting, 2).select("body")
    setting.made += 1
    stream = f"sink-{setting.made}"
    with declared(setting.uri, stream):
        writer = rows.write.format("leveret").mode("append")
        took = seconds(lambda: writer.options(uri=setting.uri, stream=stream).save())
    return setting.rows / took


def written(setting: Setting) -> float:
    """Write the same rows as Parquet."""
    rows = rows_of_memory(setting, 2).select("body")
    path = setting.fresh("written")
    took = seconds(lambda: rows.write.parquet(str(path)))
    shutil.rmtree(path)
    return setting.rows / took


def route(setting: Setting) -> float:
    """Count messages by queue, binding and unroutable key, as the job does."""
    from leveret.pipelines import route as job

    rows, definitions = traffic(setting), topology()
    return setting.rows / seconds(lambda: job(setting.spark, definitions, rows=rows))


def routed(setting: Setting) -> float:
    """Put the names of the queues beside every message."""
    from leveret.pipelines.route.job import routed as with_queues
    from leveret.pipelines.route.topology import read_topology

    rows, definitions = traffic(setting), read_topology(topology())
    return setting.rows / seconds(lambda: noop(with_queues(rows, definitions)))


def floor(setting: Setting) -> float:
    """Return the milliseconds of a micro-batch of one message."""
    options = setting.options(startingOffsets="earliest", maxOffsetsPerTrigger="1")
    return batch_ms(setting, setting.spark.readStream.format("leveret").options(**options).load())


def rate_floor(setting: Setting) -> float:
    """Return the milliseconds of a micro-batch of one row of Spark's own rate source."""
    source = setting.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
    return batch_ms(setting, source.load())


def batch_ms(setting: Setting, rows: DataFrame) -> float:
    """Return the median time of a query's micro-batches, in ms."""
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(setting.fresh("checkpoint")))
        .trigger(processingTime="0 seconds")
        .start()
    )
    found: dict[int, float] = {}
    try:
        while len(found) < WARM_BATCHES + BATCHES and query.isActive:
            for progress in query.recentProgress:
                if progress.numInputRows:
                    found[progress.batchId] = progress.durationMs["triggerExecution"]
            query.awaitTermination(1)
    finally:
        query.stop()
    return statistics.median([found[number] for number in sorted(found)][WARM_BATCHES:])


CASES: Final[dict[str, Callable[[Setting], float]]] = {
    "parquet": parquet,
    "memory": memory,
    "bulk": bulk,
    "count": count,
    "count+body": count_body,
    "amqp": amqp,
    "archive": archive,
    "sink": sink,
    "written": written,
    "route": route,
    "routed": routed,
    "floor": floor,
    "rate floor": rate_floor,
}


# -- what they need --------------------------------------------------------------------------------


@contextlib.contextmanager
def declared(uri: str, stream: str) -> Iterator[None]:
    """Have a stream, and delete it afterwards."""
    from leveret.client import blocking

    with blocking.connect(uri) as connection:
        channel = connection.channel()
        channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        yield
        channel.queue_delete(stream)


def make_bodies(path: Path, rows: int) -> None:
    """Write rows with random bodies as Parquet, in files that Spark reads in parallel."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.mkdir()
    generator = np.random.default_rng(7)
    files = 4
    for number in range(files):
        count = rows // files
        data = pa.py_buffer(generator.bytes(count * BODY_BYTES))
        ends = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * BODY_BYTES)
        bodies = pa.BinaryArray.from_buffers(pa.binary(), count, [None, ends, data])
        pq.write_table(pa.table({"body": bodies}), path / f"{number}.parquet")


def topology() -> dict[str, object]:
    """Return definitions of one topic exchange and a queue for each binding."""
    chosen = random.Random(7)  # noqa: S311  the same in every run
    words = [f"w{n}" for n in range(WORDS)]
    keys = [
        ".".join(chosen.choice((chosen.choice(words), "*")) for _ in range(3))
        for _ in range(BINDINGS)
    ]
    return {
        "queues": [{"vhost": "/", "name": f"q{n}"} for n in range(BINDINGS)],
        "exchanges": [{"vhost": "/", "name": "e", "type": "topic"}],
        "bindings": [
            {"vhost": "/", "source": "e", "destination": f"q{n}", "routing_key": key}
            for n, key in enumerate(keys)
        ],
    }


def traffic(setting: Setting) -> DataFrame:
    """Return messages whose keys are of three words, from Parquet; some keys come more often."""
    from pyspark.sql import functions as f

    path = setting.directory / "traffic"
    if not path.exists():
        key = f.floor(f.pow(f.rand(seed=3), f.lit(2.0)) * KEYS).cast("int")
        parts = [f.concat(f.lit("w"), (key / d).cast("int") % WORDS) for d in (1, WORDS, WORDS**2)]
        rows = setting.spark.range(setting.rows).select(
            f.lit("e").alias("exchange"),
            f.concat_ws(".", *parts).alias("routing_key"),
            f.create_map(f.lit("tenant"), (f.col("id") % 7).cast("string")).alias("headers"),
        )
        rows.write.parquet(str(path))
    return setting.spark.read.parquet(str(path))


def prepare(setting: Setting) -> None:
    """Fill the stream by the sink, and archive it for the comparison."""
    from leveret.client import blocking
    from leveret.pipelines import archive as job

    make_bodies(setting.directory / "bodies", setting.rows)
    with blocking.connect(setting.uri) as connection:
        connection.channel().queue_declare(
            STREAM, durable=True, arguments={"x-queue-type": "stream"}
        )
    rows = setting.spark.read.parquet(str(setting.directory / "bodies"))
    rows.write.format("leveret").mode("append").options(uri=setting.uri, stream=STREAM).save()
    result = job(setting.spark, setting.uri, STREAM, setting.directory / "archive")
    if result.records != setting.rows:
        raise RuntimeError(f"{result.records} of {setting.rows} messages are in the archive")


def session() -> SparkSession:
    """Return a session as a user's: a JVM that runs fast for long."""
    import leveret.spark

    os.environ["PYTHONPATH"] = os.pathsep.join([str(BENCH), os.environ.get("PYTHONPATH", "")])
    from arrow_memory import ArrowMemorySource

    spark = leveret.spark.session("bench", master="local[2]", memory="3g")
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(ArrowMemorySource)
    return spark


# -- the report ------------------------------------------------------------------------------------


def unit(case: str) -> str:
    """Return what a case is measured in."""
    return "ms a batch" if "floor" in case else "rows/s"


def lines(found: dict[str, float]) -> list[str]:
    """Return the report: figures, then what is asked for."""
    out = [f"{case:<12} {value:>12,.0f} {unit(case)}" for case, value in found.items()]
    for target in TARGETS:
        if target.case not in found or (target.to and target.to not in found):
            continue
        value = found[target.case] / (found[target.to] if target.to else 1)
        wanted = f"at least {target.at_least:,}" if target.at_least else f"at most {target.at_most}"
        meets = value >= target.at_least and (not target.at_most or value <= target.at_most)
        name = f"{target.case} : {target.to}" if target.to else target.case
        shown = f"{value:,.2f}" if target.to else f"{value:,.0f}"
        out.append(f"{name}: {shown} ({wanted}){'' if meets else '  MISSED'}")
    return out


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help=f"of {', '.join(CASES)}; with commas")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else list(CASES)
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch,
        BrokerProcess(Path(scratch) / "data", settings={"http_port": "0"}) as broker,
    ):
        spark = session()
        setting = Setting(spark, broker.uri, Path(scratch), options.rows)
        prepare(setting)
        times: dict[str, list[float]] = {case: [] for case in chosen}
        for _ in range(options.rounds + 1):
            for case in chosen:
                times[case].append(CASES[case](setting))
                print(f"{case}: {times[case][-1]:,.0f} {unit(case)}", file=sys.stderr, flush=True)
        spark.stop()
    found = {case: statistics.median(values[1:]) for case, values in times.items()}
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(f"{sides.version(sys.executable)}, load {load:.2f} before, {options.rows:,} rows")
    print("\n".join(lines(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
