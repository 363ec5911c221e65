"""Reports the progress of a running job as lines.

A job calls its optional argument `progress` with each line.  The lines are for people, and their
format may change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Say = Callable[[str], None]

#: The interval at which a batch job checks Spark's progress.
EVERY_SECONDS: Final = 2.0


@contextmanager
def stages(
    spark: SparkSession, say: Say | None, what: str, *, every: float = EVERY_SECONDS
) -> Iterator[None]:
    """Report periodically how many of Spark's tasks are done while the block runs."""
    if say is None:
        yield
        return
    say(what)
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, say, what, every, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(spark: SparkSession, say: Say, what: str, every: float, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    said = ""
    while not ended.wait(every):
        running = [
            stage
            for number in tracker.getActiveStageIds()
            if (stage := tracker.getStageInfo(number)) is not None
        ]
        done = sum(stage.numCompletedTasks for stage in running)
        line = f"{what}: {done} of {sum(stage.numTasks for stage in running)} tasks"
        if running and line != said:
            say(line)
            said = line


def follow(query: StreamingQuery, say: Say | None, *, every: int = 1) -> None:
    """Wait until a query ends, and report each of its batches.

    Raises: StreamingQueryException, whose text contains the cause.
    """
    said = -1
    rows = 0
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(every))
        for progress in query.recentProgress:
            if progress.batchId <= said or progress.numInputRows == 0:
                continue
            said = progress.batchId
            rows += progress.numInputRows
            if say is not None:
                rate = progress.processedRowsPerSecond
                say(
                    f"batch {said}: {progress.numInputRows:,} messages ({rate:,.0f}/s); "
                    f"{rows:,} in all"
                )
