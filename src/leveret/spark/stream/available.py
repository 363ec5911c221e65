"""`start_available`: `Trigger.AvailableNow` on every supported version of Spark.

    from leveret.spark import start_available

    query = start_available(rows.writeStream.format("parquet").options(...))
    query.awaitTermination()

Spark 4.0 and 4.1 run `Trigger.AvailableNow` of a Python source as a single batch.  So a query with
a limit such as `maxOffsetsPerTrigger` ends after that batch, and the reader of a queue never learns
that the batch was committed.  On these versions `start_available` starts an ordinary query, which a
thread polls and stops.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: How often the thread polls its query.
_EVERY_SECONDS: Final = 0.05

#: The key of `durationMs` that is present if Spark called `latestOffset` for the batch.
_ASKED: Final = "latestOffset"

#: Spark's status message of a query without new data.
_IDLE: Final = "Waiting for data to arrive"


def start_available(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query that reads all messages available now, in batches within its limits, and ends.

    Before Spark 4.2, a query that reads a queue ends when the queue is empty.

    Raises: as `DataStreamWriter.start`.
    """
    from leveret.spark.versions import HAS_ADMISSION_CONTROL

    if HAS_ADMISSION_CONTROL:
        return writer.trigger(availableNow=True).start()
    query = writer.trigger(processingTime="0 seconds").start()
    threading.Thread(target=_stop_at_end, args=(query,), daemon=True).start()
    return query


def _stop_at_end(query: StreamingQuery) -> None:
    """Stop a query once it reaches the stream ends seen by its first batch, or has no new data."""
    targets: list[dict[str, int]] = []
    wait = threading.Event().wait
    while query.isActive:
        progress = query.lastProgress
        if progress is not None:
            # A batch repeated from an earlier run stores the ends of that run.
            if not targets and _ASKED in progress.durationMs:
                targets = [_ends(source) for source in progress.sources]
            positions = [_positions(source) for source in progress.sources]
            if any(targets) and all(map(_is_reached, targets, positions)):
                break
        if query.status["message"] == _IDLE:
            break
        wait(_EVERY_SECONDS)
    query.stop()


def _is_reached(target: dict[str, int], position: dict[str, int]) -> bool:
    """Return whether a source has read every stream of its target to the end."""
    return all(position.get(name, 0) >= end for name, end in target.items())


def _ends(source: Any) -> dict[str, int]:
    """Return the ends of a source's streams at the time of a batch, or {} for other sources."""
    from leveret.spark.offsets import latest_of
    from leveret.spark.versions import offset_in_progress

    return _offsets(latest_of(offset_in_progress(source.endOffset) or {}))


def _positions(source: Any) -> dict[str, int]:
    """Return a source's offsets after a batch, or {} for other sources."""
    from leveret.spark.versions import offset_in_progress

    return _offsets(offset_in_progress(source.endOffset))


def _offsets(stored: dict[str, object] | None) -> dict[str, int]:
    from leveret.spark.offsets import from_json

    try:
        return from_json(stored or {}).offsets
    except ValueError:
        return {}
