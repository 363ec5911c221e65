"""The lag of streaming queries, and the results of their writes, batch by batch.

    from leveret.spark.listener import watch_lag

    lags = watch_lag(spark, print, port=9464)
    ...
    lags.of(query).messages

With `port`, Prometheus gets it from this process, and with `registry` from where that is served.

Spark reports a query's progress with each batch, and nothing while it is idle: the lag of an idle
query is that after its last batch.

The progress contains only the name of a sink.  The number of dropped rows of a write to a broker is
in the file of its option `resultFile`, and `watch_writes` passes it on with the progress of its
batch:

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
        """The port where the lag is served; None if it is not."""
        return None if self._metrics is None else self._metrics.port

    def of(self, query: StreamingQuery) -> Lag | None:
        """Return a query's lag; None before its first batch and after its end."""
        return self._lags.get(str(query.id))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing: no lag is known yet."""

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
        """Do nothing: the lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  Spark's name
        """Forget a query."""
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
    """Follow the lag of all streaming queries of a session; return the listener.

    With `port`, it is served to Prometheus without a password, at `http://address:port/metrics`;
    with `registry`, it is registered there.

    Raises: ImportError for these without prometheus-client; OSError if the port is in use.
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
    """Passes the results of each batch that a query has written to `on_written`."""

    def __init__(
        self,
        result_file: str | Path,
        on_written: Callable[[StreamingQueryProgress, Sequence[WriteResult]], object],
    ) -> None:
        self._result_file = result_file
        self._on_written = on_written

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing: nothing is written yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  Spark's name
        """Find the results of a batch and pass them on."""
        found = written_by(event.progress, self._result_file)
        if found:
            self._on_written(event.progress, found)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing: nothing was written."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing: nothing more is written."""


def watch_writes(
    spark: SparkSession,
    result_file: str | Path,
    on_written: Callable[[StreamingQueryProgress, Sequence[WriteResult]], object],
) -> WriteListener:
    """Follow the writes of a session's streaming queries through the file of their `resultFile`."""
    listener = WriteListener(result_file, on_written)
    spark.streams.addListener(listener)
    return listener


def written_by(progress: StreamingQueryProgress, result_file: str | Path) -> list[WriteResult]:
    """Return the results of the batch in a progress, whose query has this sink.

    There are none for a batch without rows, or one of `foreachBatch`, whose sinks are the user's.
    """
    query, batch = str(progress.id), progress.batchId
    return [
        result
        for result in read_results(result_file)
        if result.sink == query and result.batch == batch
    ]


def lag_of(progress: StreamingQueryProgress) -> Lag | None:
    """Return the lag in a batch's progress; None if it read no stream of this source."""
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
    """Return what Spark stored of a source; None for other sources."""
    found = offset_in_progress(text)
    try:
        return None if found is None else from_json(found)
    except ValueError:
        return None


def _latest(text: str | None) -> Stored | None:
    """Return the ends of the streams, which before Spark 4.2 are in the end of the batch."""
    found = offset_in_progress(text)
    try:
        return None if found is None else from_json(latest_of(found) or found)
    except ValueError:
        return None
