"""Summarizes traffic by exchange, routing key and time window, in a table and on an HTML page.

The job reads a stream, or an archive of a stream.  The time of a message is the broker's, or the
publisher's if the broker, such as RabbitMQ, records none.  Messages with neither have no window.

Spark counts the messages.  The size of the result is limited: it has the rows and keys with the
most messages, and totals of all messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipelines.options import SourceOptions, takes
from leveret.pipelines.pages.bars import BANDS_MAX, Bar, bar_width
from leveret.pipelines.pages.origin import command_line, path_text
from leveret.pipelines.refusals import span_seconds
from leveret.pipelines.report.result import Report, TrafficRow
from leveret.pipelines.source import messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: The maximum numbers of rows and of keys in the result.
ROWS_MAX: Final = 10_000
KEYS_MAX: Final = 50

#: The quantiles of a row.
FRACTIONS: Final = (0.5, 0.99)

_COLUMNS: Final = (
    "timestamp timestamp, exchange string, routing_key string, "
    "properties struct<timestamp: timestamp>, body binary"
)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(SourceOptions):
    """The options of a report."""

    window: str = "1 minute"
    html_path: str | Path | None = None

    def __post_init__(self) -> None:
        """Check the options.  Raises: JobError."""
        span_seconds("window", self.window)
        super().__post_init__()


@takes(ReportOptions)
def report(spark: SparkSession, job: ReportOptions) -> Report:
    """Report the traffic of a stream (`uri` and `stream`) or of an archive (`path`).

    With `path`, `stream` selects one of the archive's streams.  `window` is the length of a window
    of time, such as `1 minute` or `6 hours`.  `password_env` names the environment variable with
    the password, and `options` are further options of the data source.  If `html_path` is given, a
    page is written to it.

    Raises: JobError (a ValueError) for invalid sources or an invalid window; Spark's exceptions.
    """
    rows, source = messages(spark, job, _COLUMNS)
    found = summarize(rows, source, span_seconds("window", job.window))
    if job.html_path is not None:
        from leveret.pipelines.pages.document import write_page
        from leveret.pipelines.report.page import report_page

        command = command_line(
            "report", stream=job.stream, path=path_text(job.path), window=job.window, uri=job.uri
        )
        write_page(job.html_path, report_page(found, command))
    return found


def traffic(rows: DataFrame, window_seconds: int) -> DataFrame:
    """Return a table of messages and bytes by window, exchange and routing key.

    `rows` have the columns of the data source or of an archive.

    `sizes` and `latencies` are KLL sketches, in bytes and milliseconds, which
    `kll_merge_agg_bigint` can merge.  `timed` is the number of messages with a latency.  Spark 4.0
    has no such sketches; instead, the columns are arrays with the median and the 99th percentile.
    """
    from pyspark.sql import functions as f

    moment = f.coalesce(f.col("timestamp"), f.col("properties.timestamp"))
    return _traffic(rows, _floored(moment, window_seconds))


def _traffic(rows: DataFrame, window_start: Column) -> DataFrame:
    """Return the table of `traffic`, with the windows in `window_start`."""
    from pyspark.sql import functions as f

    from leveret.spark.versions import sketch

    taken, sent = f.unix_millis("timestamp"), f.unix_millis("properties.timestamp")
    return (
        rows.select(
            window_start.alias("window_start"),
            "exchange",
            "routing_key",
            f.length("body").cast("bigint").alias("size"),
            f.greatest(taken - sent, f.lit(0)).alias("latency"),
        )
        .groupBy("window_start", "exchange", "routing_key")
        .agg(
            f.count(f.lit(1)).alias("messages"),
            f.sum("size").alias("bytes"),
            sketch("size", FRACTIONS).alias("sizes"),
            f.count(f.col("latency")).alias("timed"),
            sketch("latency", FRACTIONS).alias("latencies"),
        )
    )


def summarize(rows: DataFrame, source: str, window_seconds: int) -> Report:
    """Return the report on messages."""
    from pyspark.sql import functions as f

    grouped = traffic(rows, window_seconds).persist()
    try:
        totals = grouped.agg(
            f.coalesce(f.sum("messages"), f.lit(0)).alias("messages"),
            f.coalesce(f.sum("bytes"), f.lit(0)).alias("bytes"),
            f.count(f.lit(1)).alias("rows"),
            f.count_distinct("exchange", "routing_key").alias("keys"),
            f.unix_micros(f.min("window_start")).alias("first"),
            f.unix_micros(f.max("window_start")).alias("last"),
        ).collect()[0]
        bar_seconds = bar_width(totals["first"], totals["last"], window_seconds)
        keys = _collect(_by_key(grouped, rows), KEYS_MAX)
        return Report(
            source=source,
            window_seconds=window_seconds,
            messages=totals["messages"],
            bytes=totals["bytes"],
            rows=tuple(sorted(_collect(grouped, ROWS_MAX), key=_in_time)),
            rows_total=totals["rows"],
            keys=keys,
            keys_total=totals["keys"],
            bars=_bars(grouped, keys[:BANDS_MAX], bar_seconds),
            bar_seconds=bar_seconds,
        )
    finally:
        grouped.unpersist()


def _floored(moment: Column, seconds: int) -> Column:
    """Return the start of the window of a moment."""
    from pyspark.sql import functions as f

    micros = f.unix_micros(moment)
    return f.timestamp_micros(micros - f.pmod(micros, f.lit(seconds * 1_000_000)))


def _by_key(grouped: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the traffic of each key over all windows."""
    from pyspark.sql import functions as f

    from leveret.spark.versions import HAS_SKETCHES

    if not HAS_SKETCHES:
        # Quantiles cannot be merged, so read the messages again.
        return _traffic(rows, f.lit(None).cast("timestamp"))
    return grouped.groupBy("exchange", "routing_key").agg(
        f.lit(None).cast("timestamp").alias("window_start"),
        f.sum("messages").alias("messages"),
        f.sum("bytes").alias("bytes"),
        f.kll_merge_agg_bigint("sizes").alias("sizes"),
        f.sum("timed").alias("timed"),
        f.kll_merge_agg_bigint("latencies").alias("latencies"),
    )


def _quantiles() -> dict[str, Column]:
    """Return the quantiles of a row of the report, from its sketches."""
    from pyspark.sql import functions as f

    from leveret.spark.versions import quantile

    sizes = f.when(f.col("bytes").isNotNull(), f.col("sizes"))
    latencies = f.when(f.col("timed") > 0, f.col("latencies"))
    return {
        "size_p50": quantile(sizes, FRACTIONS, 0),
        "size_p99": quantile(sizes, FRACTIONS, 1),
        "latency_p50_ms": quantile(latencies, FRACTIONS, 0),
        "latency_p99_ms": quantile(latencies, FRACTIONS, 1),
    }


def _collect(grouped: DataFrame, most: int) -> tuple[TrafficRow, ...]:
    """Return the rows with the most messages."""
    from pyspark.sql import functions as f

    ordered = grouped.orderBy(f.desc("messages"), "window_start", "exchange", "routing_key")
    found = ordered.limit(most).select(
        f.unix_micros("window_start").alias("window_start"),
        "exchange",
        "routing_key",
        "messages",
        "bytes",
        *(column.alias(name) for name, column in _quantiles().items()),
    )
    return tuple(
        TrafficRow(
            window_start=_moment(row["window_start"]),
            exchange=row["exchange"] or "",
            routing_key=row["routing_key"] or "",
            messages=row["messages"],
            bytes=row["bytes"] or 0,
            size_p50=row["size_p50"] or 0,
            size_p99=row["size_p99"] or 0,
            latency_p50_ms=row["latency_p50_ms"],
            latency_p99_ms=row["latency_p99_ms"],
        )
        for row in found.collect()
    )


def _bars(grouped: DataFrame, keys: tuple[TrafficRow, ...], bar_seconds: int) -> tuple[Bar, ...]:
    """Return the bars of the plot, in order of time and rank."""
    from pyspark.sql import functions as f

    rank = f.lit(BANDS_MAX)
    for place, key in enumerate(keys):
        same = (f.col("exchange") == key.exchange) & (f.col("routing_key") == key.routing_key)
        rank = f.when(same, place).otherwise(rank)
    start = f.unix_micros(_floored(f.col("window_start"), bar_seconds))
    found = (
        grouped.where(f.col("window_start").isNotNull())
        .groupBy(start.alias("start"), rank.alias("rank"))
        .agg(f.sum("messages").alias("messages"))
        .collect()
    )
    bars = [Bar(_known(row["start"]), row["rank"], row["messages"]) for row in found]
    return tuple(sorted(bars, key=lambda bar: (bar.start, bar.rank)))


def _in_time(row: TrafficRow) -> tuple[datetime, str, str]:
    """Return the sort key of a row; rows without a window are first."""
    return row.window_start or _EPOCH, row.exchange, row.routing_key


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _known(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else _known(micros)
