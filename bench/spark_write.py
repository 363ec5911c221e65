"""Rows a second that the Spark sink encodes: Arrow batches to the bytes of AMQP publishes.

    python bench/spark_write.py [rows a batch, default 10000]

Nothing is sent and Spark does not run: it is what the encoder alone can do on one core, the best of
thirty batches each.
"""

from __future__ import annotations

import sys
import timeit
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.client.publish_frames import PublishFrames
from leveret.spark.write.encoder import Encoder, Envelope
from leveret.spark.write.schema import Layout
from leveret.wire.buffer import COMPILED

RUNS: Final = 30
FRAME_BYTES: Final = 131_072
BODY: Final = b"x" * 100
HEADERS: Final = pa.map_(pa.string(), pa.string())

CONSTANT: Final = Layout("e", "k", by_stream=False, headers=False, properties=False)
KEYS: Final = Layout("e", None, by_stream=False, headers=False, properties=False)
HEADED: Final = Layout("e", "k", by_stream=False, headers=True, properties=False)

DIRECT: Final = Envelope(mandatory=True)
STAGED: Final = Envelope(mandatory=True, staging_queue="leveret.staging." + "s" * 64)
NUMBERED: Final = Envelope(mandatory=True, publisher="p" * 40)


def main(count: int) -> None:
    """Measure and print every case."""
    print(f"build: {'compiled' if COMPILED else 'pure'}; {count} rows a batch, 100-byte bodies")
    random = Random(7)  # noqa: S311  the same rows in every run
    some = [random.randrange(1000) for _ in range(count)]
    fixed = pa.array([BODY] * count, pa.binary())
    sizes = pa.array([BODY[: 50 + n % 50] * 2 for n in some], pa.binary())
    keys = pa.array([f"orders.{n}" for n in some])
    headers = pa.array([[("customer", f"{n}")] for n in some], HEADERS)
    unique = pa.array([[("customer", f"{n}")] for n in range(count)], HEADERS)
    measure("one key", {"body": fixed}, CONSTANT, DIRECT)
    measure("one key, sizes from 100 to 198", {"body": sizes}, CONSTANT, DIRECT)
    measure("one key, staged", {"body": fixed}, CONSTANT, STAGED)
    measure("one key, dedup=rows", {"body": fixed}, CONSTANT, NUMBERED)
    measure("1,000 keys", {"body": fixed, "routing_key": keys}, KEYS, DIRECT)
    measure("1,000 different headers", {"body": fixed, "headers": headers}, HEADED, DIRECT)
    measure("all headers different", {"body": fixed, "headers": unique}, HEADED, DIRECT)


def measure(name: str, columns: dict[str, Any], layout: Layout, envelope: Envelope) -> None:
    """Print the rows a second of one case."""
    batch = pa.RecordBatch.from_pydict(columns)
    ids = None
    if envelope.publisher is not None:
        ids = np.arange(batch.num_rows, dtype=np.int64) + (1 << 32)
    encoder = Encoder(layout, PublishFrames(1, FRAME_BYTES), envelope)

    def run() -> None:
        for _ in encoder.encode(batch, ids):
            pass

    seconds = min(timeit.repeat(run, number=1, repeat=RUNS))
    print(f"{name:<34} {batch.num_rows / seconds:12,.0f} rows/s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
