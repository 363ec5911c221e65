"""The driver of a streaming query on a queue, which kills itself.

    python -m support.spark.queue_driver JSON

It is a separate process, so that the kill is real: sockets are closed, locks are released, and no
cleanup runs.  Its checkpoint and its sink are files, written as Spark does: the offsets before a
batch, the commit after it; a repeated batch replaces its earlier output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql.types import StructType

from leveret.spark.queue.feed import QueueFeed
from leveret.spark.queue.spool import Spool
from leveret.spark.queue.stream import QueueStreamReader
from leveret.spark.source import LeveretDataSource
from support.spark.spark_order import Checkpoint, StreamingRun

#: The places where it may be killed, in the batch with the given number.
PLACES = ("never", "synced", "planned", "sunk", "committed")


def die() -> None:
    """End like a process killed by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


class DyingFeed(QueueFeed):
    """Kills the process, once armed, when messages are synced in the spool but not acked yet."""

    armed: ClassVar[bool] = False

    def _ack(self, number: int) -> None:
        if self.armed and number > self.handed:
            die()
        super()._ack(number)


class DyingReader(QueueStreamReader):
    """A reader with such a feed."""

    def make_feed(self, spool: Spool) -> QueueFeed:
        return DyingFeed(self._options, spool)


class DyingSource(LeveretDataSource):
    """The data source with such a reader."""

    def streamReader(self, schema: StructType) -> DyingReader:  # noqa: N802  Spark's name
        return DyingReader(self._parsed(), schema)


class KeptCheckpoint(Checkpoint):
    """A checkpoint in files."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        offsets = sorted(directory.glob("offset-*"))
        super().__init__(
            [json.loads(path.read_text()) for path in offsets], len([*directory.glob("commit-*")])
        )

    def save(self) -> None:
        """Write the new entries."""
        for batch, offset in enumerate(self.offsets):
            (self.directory / f"offset-{batch:06d}").write_text(json.dumps(offset))
        for batch in range(self.commits):
            (self.directory / f"commit-{batch:06d}").touch()


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of the sink, in order of the batches."""
    files = sorted(directory.glob("rows-*"))
    rows = [row for path in files for row in json.loads(path.read_text())]
    return [row | {"body": row["body"].encode()} for row in rows]


def run(options: dict[str, str], directory: Path, place: str, number: int) -> None:
    """Run to the end of the queue, or to the place of the kill."""
    checkpoint = KeptCheckpoint(directory)
    started = StreamingRun(options, checkpoint, available_now=True, source=DyingSource)
    while True:
        batch = checkpoint.commits
        dies = batch == number
        if dies and place == "synced":
            DyingFeed.armed = True
        planned = started.plan()
        checkpoint.save()
        if dies and place == "planned":
            die()
        if not planned:
            return
        rows = started.run_planned()
        kept = [{"body": row["body"].decode(), "redelivered": row["redelivered"]} for row in rows]
        (directory / f"rows-{batch:06d}").write_text(json.dumps(kept))
        if dies and place == "sunk":
            die()
        checkpoint.commits += 1
        checkpoint.save()
        if dies and place == "committed":
            die()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    run(given["options"], Path(given["directory"]), given["place"], given["batch"])
