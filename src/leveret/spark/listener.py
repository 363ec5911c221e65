"""Listeners that report the lag of streaming queries and the results of their writes.

    from leveret.spark.listener import watch_lag

    lags = watch_lag(spark, print, port=9464)
    ...
    lags.of(query).messages

With `port`, this process serves the lag to Prometheus.  With `registry`, it is registered there.

Spark reports a query's progress with each batch, but not while the query is idle.  So the lag of an
idle query is the lag after its last batch.

The progress of a sink contains only its name.  The number of rows that a write drops is in the file
of its option `resultFile`.  `watch_writes` reports it together with the progress of the batch:

    writes = watch_writes(spark, "/data/copy/results.jsonl", print)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from leveret.spark.lag import Lag, LagMetrics, metrics_at, metrics_in
from leveret.spark.offsets import Stored, from_json, latest_of
from leveret.spark.versions import offset_in_progress
from leveret.spark.write.result import WriteResult, read_results

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


class LagListener(StreamingQueryListener):
    """Stores the lag of each running query, and passes it to `on_lag` after each batch."""

    def __init__(
        self,
        on_lag: Callable[[Lag], object] | None = None,
        metrics: LagMetrics | None = None,
    ) -> None:
        self._on_lag = on_lag
        self._metrics = metrics
        self._lags: dict[str, Lag] = {}

    @property
    def port(self) -> int | None:
        """The port at which the lag is served, or None."""
        return None if self._metrics is None else self._metrics.port

    def of(self, query: StreamingQuery) -> Lag | None:
        """Return a query's lag, or None before its first batch and after its end."""
        return self._lags.get(str(query.id))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing, because no lag is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  Spark's name
        """Store the lag after a batch."""
        lag = lag_of(event.progress)
        if lag is not None:
            self._lags[lag.query_id] = lag
            if self._metrics is not None:
                self._metrics.set(lag)
            if self._on_lag is not None:
                self._on_lag(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing, because the lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  Spark's name
        """Remove the lag of a query."""
        self._lags.pop(str(event.id), None)
        if self._metrics is not None:
            self._metrics.forget(str(event.id))


def watch_lag(
    spark: SparkSession,
    on_lag: Callable[[Lag], object] | None = None,
    *,
    port: int | None = None,
    address: str = "127.0.0.1",
    registry: CollectorRegistry | None = None,
) -> LagListener:
    """Track the lag of all streaming queries of a session, and return the listener.

    `on_lag` is called with the lag of a query after each of its batches.  With `port`, the lag is
    served to Prometheus without a password, at `http://address:port/metrics`; port 0 chooses a free
    one.  With `registry`, it is registered there instead.

    Raises: ImportError if either is given without prometheus-client; OSError if the port is in use.
    """
    metrics = None
    if registry is not None:
        metrics = metrics_in(registry)
    elif port is not None:
        metrics = metrics_at(address, port)
    listener = LagListener(on_lag, metrics)
    spark.streams.addListener(listener)
    return listener


class WriteListener(StreamingQueryListener):
    """Passes the results of each written batch to `on_written`."""

    def __init__(
        self,
        result_file: str | Path,
        on_written: Callable[[StreamingQueryProgress, Sequence[WriteResult]], object],
    ) -> None:
        self._result_file = result_file
        self._on_written = on_written

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing, because nothing is written yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  Spark's name
        """Pass the results of a batch to `on_written`."""
        found = written_by(event.progress, self._result_file)
        if found:
            self._on_written(event.progress, found)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing, because nothing was written."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing, because nothing more is written."""


def watch_writes(
    spark: SparkSession,
    result_file: str | Path,
    on_written: Callable[[StreamingQueryProgress, Sequence[WriteResult]], object],
) -> WriteListener:
    """Report the writes of a session's streaming queries, and return the listener.

    `result_file` is the value of their option `resultFile`.  `on_written` is called after each
    batch with the progress of the query and the results of the batch.
    """
    listener = WriteListener(result_file, on_written)
    spark.streams.addListener(listener)
    return listener


def written_by(progress: StreamingQueryProgress, result_file: str | Path) -> list[WriteResult]:
    """Return the results of the batch in a query's progress.

    There are no results for a batch without rows, or for `foreachBatch`, where the user writes.
    """
    query, batch = str(progress.id), progress.batchId
    return [
        result
        for result in read_results(result_file)
        if result.sink == query and result.batch == batch
    ]


def lag_of(progress: StreamingQueryProgress) -> Lag | None:
    """Return the lag in a batch's progress, or None if the query reads no stream of this source."""
    streams: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for source in progress.sources:
        latest, read = _latest(source.latestOffset), _stored(source.endOffset)
        if latest is not None and read is not None:
            for name, end in latest.offsets.items():
                count = max(0, end - read.offsets.get(name, 0))
                streams[name] = streams.get(name, 0) + count
                if name in latest.mean_bytes:
                    sizes[name] = sizes.get(name, 0) + round(count * latest.mean_bytes[name])
    if not streams:
        return None
    return Lag(str(progress.id), progress.name, progress.batchId, streams, sizes)


def _stored(text: str | None) -> Stored | None:
    """Parse a source's offsets, or return None for other sources."""
    found = offset_in_progress(text)
    try:
        return None if found is None else from_json(found)
    except ValueError:
        return None


def _latest(text: str | None) -> Stored | None:
    """Parse the ends of the streams, which before Spark 4.2 are within the batch's end offset."""
    found = offset_in_progress(text)
    try:
        return None if found is None else from_json(latest_of(found) or found)
    except ValueError:
        return None
