"""The declarative example, run as a user runs it: `spark-pipelines` in a copy of its directory.

    .venv/bin/python -m soak.declarative

It is run twice, with messages published before each run: the table and the view must hold all of
them once, and the stream behind the sink those with long bodies.  It needs `pyspark[pipelines]`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from leveret.client import blocking
from soak import ROOT
from support.brokers.broker_process import BrokerProcess

EXAMPLE: Final = ROOT / "examples" / "declarative"
COMMAND: Final = Path(sys.executable).with_name("spark-pipelines")
CATALOG: Final = ("--conf", "spark.sql.catalogImplementation=hive")

#: Messages before each run, every fourth of which is long.
MESSAGES: Final = (100, 60)
KEYS: Final = 3
SECONDS_MAX: Final = 900


def publish(uri: str, first: int, count: int) -> None:
    """Publish orders with bodies that are no two alike."""
    with blocking.connect(uri, recover=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for number in range(first, first + count):
            body = b"%d" % number + b" " * (120 if number % 4 == 0 else 0)
            channel.publish_nowait(body, "shop", f"key.{number % KEYS}")
        channel.wait_for_confirms()


def run(place: Path, uri: str, *arguments: str) -> None:
    """Run the command.  Raises: RuntimeError with the end of what it printed."""
    environment = os.environ | {"LEVERET_URI": uri, "PYSPARK_PYTHON": sys.executable}
    began = time.monotonic()
    done = subprocess.run(
        [COMMAND, *arguments],
        cwd=place,
        env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    print(f"{arguments[0]}: exit {done.returncode} in {time.monotonic() - began:.0f} s", flush=True)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-4000:])


def check(place: Path, uri: str, count: int) -> None:
    """Compare what there is now with what was published.  Raises: RuntimeError."""
    tables = place / "spark-warehouse"
    found = sorted(int(body) for body in pq.read_table(tables / "orders")["body"].to_pylist())
    view = pq.read_table(tables / "orders_by_key").to_pylist()
    by_key = {row["routing_key"]: row["count"] for row in view}
    with blocking.connect(uri, recover=False) as connection:
        large = connection.channel().queue_declare("large-orders", passive=True).message_count
    print(
        f"{len(found)} in the table, {by_key} in the view, {large} long ones published", flush=True
    )
    expected = Counter(f"key.{number % KEYS}" for number in range(count))
    if found != list(range(count)) or by_key != expected or large != (count + 3) // 4:
        raise RuntimeError(f"that is not what comes of {count} messages")


def main() -> int:
    """Run it."""
    with (
        tempfile.TemporaryDirectory(prefix="declarative-") as scratch,
        BrokerProcess(Path(scratch) / "broker") as broker,
    ):
        place = Path(scratch) / "pipeline"
        shutil.copytree(EXAMPLE, place)
        spec = place / "spark-pipeline.yml"
        text = spec.read_text().replace("file:///tmp/leveret-declarative", f"file://{scratch}")
        spec.write_text(text)
        with blocking.connect(broker.uri, recover=False) as connection:
            channel = connection.channel()
            channel.exchange_declare("shop", "topic", durable=True)
            for name in ("orders", "large-orders"):
                channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
            channel.queue_bind("orders", "shop", "#")
        run(place, broker.uri, "dry-run")
        published = 0
        for count in MESSAGES:
            publish(broker.uri, published, count)
            published += count
            run(place, broker.uri, "run", *CATALOG)
            check(place, broker.uri, published)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
