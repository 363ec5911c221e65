"""The program that writes batches for `soak.whole`, until it is killed or all are written.

Its tasks and commits are those of the Spark sink, in Spark's order of calls, without a JVM.  After
each batch it says so in a file, as a checkpoint does, and a new process goes on from there.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from soak.whole import BODY_BYTES, DESTINATIONS, batches_done, done_file, size_of
from support.spark.sink_order import sink_for

#: The tasks of a batch.
TASKS = 3


def main() -> None:
    """Write the batches that are left."""
    given = json.loads(sys.argv[1])
    place = Path(given["place"])
    for batch in range(batches_done(place), given["batches"]):
        size = size_of(given["seed"], batch)
        edges = [size * task // TASKS for task in range(TASKS + 1)]
        for name, options in DESTINATIONS.items():
            columns = {} if options else {"exchange": "", "routing_key": name}
            tasks = [
                [_rows(batch, first, end, columns)] if end > first else []
                for first, end in itertools.pairwise(edges)
            ]
            whole = {"uri": given["uri"], "retryTimeoutMs": "600000", **options}
            sink_for(whole, _rows(batch, 0, 1, columns)).batch(batch, tasks, query=f"to-{name}")
        new = done_file(place).with_suffix(".new")
        new.write_text(str(batch + 1))
        new.replace(done_file(place))


def _rows(batch: int, first: int, end: int, columns: dict[str, str]) -> pa.RecordBatch:
    """Return rows whose bodies are the numbers of the batch and of the row."""
    numbers = np.empty((end - first, 2), ">i8")
    numbers[:, 0] = batch
    numbers[:, 1] = np.arange(first, end)
    bodies = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(BODY_BYTES), end - first, [None, pa.py_buffer(numbers.tobytes())]
    )
    more = {name: pa.array([value] * (end - first)) for name, value in columns.items()}
    return pa.RecordBatch.from_pydict({"body": bodies.cast(pa.binary()), **more})


if __name__ == "__main__":
    main()
