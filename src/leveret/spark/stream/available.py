"""A query over what is there, which then ends: `Trigger.AvailableNow` on each version of Spark.

    from leveret.spark import start_available

    query = start_available(rows.writeStream.format("parquet").options(...))
    query.awaitTermination()

Spark 4.0 and 4.1 run `Trigger.AvailableNow` of a Python source as one batch: with a limit such as
`maxOffsetsPerTrigger` that batch is all that is read, and a queue does not learn that the batch is
committed.  There a thread watches an ordinary query instead, and stops it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: How often the thread looks at its query.
_EVERY_SECONDS: Final = 0.05

#: The duration that Spark measures when it asks its sources for their latest offsets.
_ASKED: Final = "latestOffset"

#: Spark's status of a query that has found nothing new.
_IDLE: Final = "Waiting for data to arrive"


def start_available(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query that ends when it has read what is there now, in batches of its limits.

    Before Spark 4.2, a query that reads a queue ends when the queue has nothing more.

    Raises: as `DataStreamWriter.start`.
    """
    from leveret.spark.versions import HAS_ADMISSION_CONTROL

    if HAS_ADMISSION_CONTROL:
        return writer.trigger(availableNow=True).start()
    query = writer.trigger(processingTime="0 seconds").start()
    threading.Thread(target=_stop_at_end, args=(query,), daemon=True).start()
    return query


def _stop_at_end(query: StreamingQuery) -> None:
    """Stop a query that has read up to the ends of its first batch, or has nothing new."""
    targets: list[dict[str, int]] = []
    wait = threading.Event().wait
    while query.isActive:
        progress = query.lastProgress
        if progress is not None:
            # A batch of an earlier run that is repeated has the ends of that time.
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
    """Return whether a source has read up to its target, if it has one."""
    return all(position.get(name, 0) >= end for name, end in target.items())


def _ends(source: Any) -> dict[str, int]:
    """Return the ends of a source's streams at the time of a batch; none for other sources."""
    from leveret.spark.offsets import latest_of
    from leveret.spark.versions import offset_in_progress

    return _offsets(latest_of(offset_in_progress(source.endOffset) or {}))


def _positions(source: Any) -> dict[str, int]:
    """Return a source's offsets after a batch; none for other sources."""
    from leveret.spark.versions import offset_in_progress

    return _offsets(offset_in_progress(source.endOffset))


def _offsets(stored: dict[str, object] | None) -> dict[str, int]:
    from leveret.spark.offsets import from_json

    try:
        return from_json(stored or {}).offsets
    except ValueError:
        return {}
