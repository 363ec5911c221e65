"""How long the route job takes: messages of many keys through a topic exchange with many bindings.

    .venv/bin/python bench/route.py [--messages 5000000] [--bindings 200] [--json]

The traffic lies in Parquet files, columns exchange, routing_key and headers, and is read in each
run.  Two figures, each the best of several runs after a first one that warms Spark: the job as
`leveret pipeline route` runs it (counts by queue, binding and unroutable key), and `routed`, which
puts the names of the queues beside every message.  The job is to take at most 3 s.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import leveret.spark
from leveret.pipelines import route
from leveret.pipelines.route.job import routed
from leveret.pipelines.route.topology import RecordedTopology, read_topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECONDS_TARGET: Final = 3.0

WORDS: Final = 26
KEYS: Final = 16_384


def topology(bindings: int) -> dict[str, object]:
    """Return definitions of one topic exchange and a queue for each binding."""
    chosen = random.Random(7)  # noqa: S311  the same in every run
    words = [f"w{n}" for n in range(WORDS)]
    queues = [{"vhost": "/", "name": f"q{n}"} for n in range(bindings)]
    rows = []
    for number in range(bindings):
        key = ".".join(chosen.choice((chosen.choice(words), "*")) for _ in range(3))
        rows.append({"vhost": "/", "source": "e", "destination": f"q{number}", "routing_key": key})
    exchanges = [{"vhost": "/", "name": "e", "type": "topic"}]
    return {"queues": queues, "exchanges": exchanges, "bindings": rows}


def write_traffic(spark: SparkSession, path: Path, messages: int) -> None:
    """Write messages whose keys are of three words; some keys come much more often."""
    from pyspark.sql import functions as f

    key = f.floor(f.pow(f.rand(seed=3), f.lit(2.0)) * KEYS).cast("int")
    parts = [f.concat(f.lit("w"), ((key / d).cast("int") % WORDS)) for d in (1, WORDS, WORDS**2)]
    rows = spark.range(messages).select(
        f.lit("e").alias("exchange"),
        f.concat_ws(".", *parts).alias("routing_key"),
        f.create_map(f.lit("tenant"), (f.col("id") % 7).cast("string")).alias("headers"),
    )
    rows.write.parquet(str(path))


def best(run: Callable[[], object], rounds: int) -> float:
    """Return the seconds of the fastest run after the first."""
    run()
    seconds = []
    for _ in range(rounds):
        began = time.monotonic()
        run()
        seconds.append(time.monotonic() - began)
    return min(seconds)


def measure(spark: SparkSession, path: Path, bindings: int, rounds: int) -> dict[str, float]:
    """Return the figures."""
    definitions = topology(bindings)
    made: RecordedTopology = read_topology(definitions)

    def traffic() -> DataFrame:
        return spark.read.parquet(str(path))

    result = route(spark, definitions, rows=traffic())
    return {
        "messages": float(result.messages),
        "keys": float(result.keys),
        "matches_per_key": sum(b.messages for b in result.bindings) / result.messages,
        "route_seconds": best(lambda: route(spark, definitions, rows=traffic()), rounds),
        "routed_seconds": best(
            lambda: routed(traffic(), made).write.format("noop").mode("overwrite").save(), rounds
        ),
    }


def main() -> int:
    """Measure and print; 1 when the target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--bindings", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    config = {"spark.log.level": "ERROR"}
    spark = leveret.spark.session("bench route", memory="2g", config=config)
    try:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "traffic"
            write_traffic(spark, path, arguments.messages)
            found = measure(spark, path, arguments.bindings, arguments.rounds)
    finally:
        spark.stop()
    if arguments.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:>16} {value:12,.2f}")
    return int(found["route_seconds"] > SECONDS_TARGET)


if __name__ == "__main__":
    sys.exit(main())
