"""The Spark session that reads streams for `soak.whole`: a line with the rows of each look."""

from __future__ import annotations

import contextlib
import sys

from leveret.spark import session


def main() -> None:
    """Count the rows of all streams until the process is ended."""
    uri, *streams = sys.argv[1:]
    spark = session("whole batches")
    while True:
        for name in streams:
            frame = spark.read.format("leveret").option("uri", uri).option("stream", name)
            # While the broker is away, a read may fail.
            with contextlib.suppress(Exception):
                print(name, frame.load().count(), flush=True)


if __name__ == "__main__":
    main()
