"""Groups dead letters by queue, reason and error.

The job reads a stream that is bound to a dead-letter exchange, an archive of such a stream, or a
queue, which it browses without removing messages.  Spark counts the groups.  The size of the result
is limited: it has the groups with the most dead letters, with the first and the last letter of
each, and totals of all groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipelines.deadletter.result import DeadLetterGroup, DeadLetters, Letter
from leveret.pipelines.kinds import error_kind
from leveret.pipelines.letters import (
    BODY_BYTES_SHOWN,
    ERROR_HEADERS,
    described,
)
from leveret.pipelines.options import SourceOptions, source_options, takes
from leveret.pipelines.pages.bars import BANDS_MAX, Bar, bar_width
from leveret.pipelines.pages.origin import command_line, moment_text, path_text
from leveret.pipelines.progress import Say, stages
from leveret.pipelines.refusals import JobError, moment, only_one, span_seconds
from leveret.pipelines.replay.choosing import Choice, in_time
from leveret.pipelines.source import messages, read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

#: The maximum number of groups in the result.
GROUPS_MAX: Final = 1000

_COLUMNS: Final = (
    "stream string, offset bigint, timestamp timestamp, exchange string, routing_key string, "
    "headers map<string, string>, body binary"
)


@dataclass(frozen=True, kw_only=True)
class DeadLetterOptions(SourceOptions):
    """The options of the dead-letter job, whose source may also be a queue, or rows."""

    from_queue: str | None = None
    rows: DataFrame | None = None
    since: str | datetime | None = None
    until: str | datetime | None = None
    window: str = "1 minute"
    error_headers: Sequence[str] = ERROR_HEADERS
    error_path: str | None = None
    html_path: str | Path | None = None
    progress: Say | None = None

    def __post_init__(self) -> None:
        """Check the options.  Raises: JobError."""
        span_seconds("window", self.window)
        self.choice.check()
        super().__post_init__()

    def check_source(self) -> None:
        """Check that exactly one source is given.  Raises: JobError."""
        if self.rows is not None:
            only_one(rows=True, uri=self.uri, path=self.path)
        elif self.from_queue is None:
            super().check_source()
        elif self.uri is None or self.stream is not None or self.path is not None:
            raise JobError("from_queue: it needs uri, and excludes stream and path")

    @property
    def choice(self) -> Choice:
        """The conditions on the letters."""
        return Choice(moment("since", self.since), moment("until", self.until))


@takes(DeadLetterOptions)
def deadletter(spark: SparkSession, job: DeadLetterOptions) -> DeadLetters:
    """Group the dead letters of a stream or a queue (with `uri`), an archive or a table.

    The source is `uri` with `stream` or `from_queue`, whose messages stay there, or `path`, or
    `rows` with the columns of the data source.  Dead letters from `since` to before `until` count.

    `error_path` is the path of the error in a JSON body, such as `$.error.message`.
    `error_headers` are headers that may contain the error.  `window` is the length of a bar of the
    page.  The other arguments are those of `archive`.

    Raises: JobError (a ValueError) for invalid arguments; Spark's exceptions.
    """
    rows, source = _source(spark, job)
    with stages(spark, job.progress, f"dead letters of {source}"):
        found = _summarize(rows, source, job)
    if job.html_path is not None:
        from leveret.pipelines.deadletter.page import deadletter_page
        from leveret.pipelines.pages.document import write_page

        command = "" if job.rows is not None else _command(job)
        write_page(job.html_path, deadletter_page(found, command))
    return found


def _source(spark: SparkSession, job: DeadLetterOptions) -> tuple[DataFrame, str]:
    """Return the messages and a label of their source; a queue is browsed."""
    if job.rows is not None:
        return job.rows, "a table"
    if job.from_queue is None:
        return messages(spark, job, _COLUMNS)
    assert job.uri is not None
    texts = source_options(job.uri, job.password_env, job.options) | {"queue": job.from_queue}
    return read_stream(spark, texts, _COLUMNS), f"queue {job.from_queue}"


def _command(job: DeadLetterOptions) -> str:
    """Return the equivalent command."""
    headers = tuple(job.error_headers)
    return command_line(
        "deadletter", stream=job.stream, path=path_text(job.path), from_queue=job.from_queue,
        since=moment_text(job.choice.since), until=moment_text(job.choice.until),
        window=job.window, error_path=job.error_path,
        error_header=() if headers == ERROR_HEADERS else headers, uri=job.uri,
    )  # fmt: skip


# -- counting --------------------------------------------------------------------------------------


def _summarize(rows: DataFrame, source: str, job: DeadLetterOptions) -> DeadLetters:
    from pyspark.sql import functions as f

    window_seconds = span_seconds("window", job.window)
    micros = f.unix_micros("died_at")
    start = micros - f.pmod(micros, f.lit(window_seconds * 1_000_000))
    sample = f.struct(
        "stream",
        "offset",
        f.col("first_exchange").alias("exchange"),
        f.coalesce("first_routing_key", "routing_key").alias("routing_key"),
        micros.alias("died_at"),
        "died_times",
        "error",
        f.make_valid_utf8(f.substring("body", 1, BODY_BYTES_SHOWN).cast("string")).alias("body"),
    )
    order = f.struct("died_at", "stream", "offset")
    letters = described(rows, job.error_headers, job.error_path)
    taken = in_time(letters, f.col("died_at"), job.choice)
    counted = (
        taken.select("*", start.alias("start"), sample.alias("letter"), order.alias("order"))
        .groupBy("is_letter", "reason", "queue", "fingerprint", "start")
        .agg(
            f.count(f.lit(1)).alias("letters"),
            f.sum(f.length("body")).alias("bytes"),
            f.min_by("letter", "order").alias("first"),
            f.max_by("letter", "order").alias("last"),
        )
        .persist()
    )
    try:
        windows = counted.where("is_letter")
        totals = windows.agg(
            f.coalesce(f.sum("letters"), f.lit(0)).alias("letters"),
            f.coalesce(f.sum("bytes"), f.lit(0)).alias("bytes"),
            f.count_distinct("reason", "queue", "fingerprint").alias("groups"),
            f.min("start").alias("first"),
            f.max("start").alias("last"),
        ).collect()[0]
        bar_seconds = bar_width(totals["first"], totals["last"], window_seconds)
        ends = _ends(windows)
        return DeadLetters(
            source=source,
            letters=totals["letters"],
            bytes=totals["bytes"],
            others=_others(counted),
            groups=_groups(windows),
            groups_total=totals["groups"],
            ends=ends,
            bars=_bars(windows, ends, bar_seconds),
            bar_seconds=bar_seconds,
        )
    finally:
        counted.unpersist()


def _others(counted: DataFrame) -> int:
    """Return the number of messages that are not dead letters."""
    from pyspark.sql import functions as f

    found = counted.where(~f.col("is_letter")).agg(f.coalesce(f.sum("letters"), f.lit(0)))
    return int(found.collect()[0][0])


def _groups(windows: DataFrame) -> tuple[DeadLetterGroup, ...]:
    """Return the groups with the most letters."""
    from pyspark.sql import functions as f

    # Letters without a time are in arbitrary order; with a null they would be lost.
    in_order = f.coalesce("start", f.lit(-1))
    found = (
        windows.groupBy("reason", "queue", "fingerprint")
        .agg(
            f.sum("letters").alias("letters"),
            f.sum("bytes").alias("bytes"),
            f.min_by("first", in_order).alias("first"),
            f.max_by("last", in_order).alias("last"),
        )
        .withColumn("error", f.col("last.error"))
        .withColumn("kind", error_kind("error"))
        .orderBy(f.desc("letters"), "queue", "reason", "fingerprint")
        .limit(GROUPS_MAX)
    )
    return tuple(
        DeadLetterGroup(
            row["reason"],
            row["queue"],
            row["fingerprint"],
            row["kind"],
            row["letters"],
            row["bytes"] or 0,
            _letter(row["first"]),
            _letter(row["last"]),
        )
        for row in found.collect()
    )


def _letter(row: Row) -> Letter:
    died_at = row["died_at"]
    return Letter(
        stream=row["stream"] or "",
        offset=row["offset"],
        exchange=row["exchange"] or "",
        routing_key=row["routing_key"] or "",
        died_at=None if died_at is None else _EPOCH + timedelta(microseconds=died_at),
        died_times=row["died_times"],
        error=row["error"],
        body=row["body"] or "",
    )


def _ends(windows: DataFrame) -> tuple[tuple[str, str], ...]:
    """Return the pairs of queue and reason with the most letters, which the plot shows."""
    from pyspark.sql import functions as f

    found = (
        windows.groupBy("queue", "reason")
        .agg(f.sum("letters").alias("letters"))
        .orderBy(f.desc("letters"), "queue", "reason")
        .limit(BANDS_MAX)
    )
    return tuple((row["queue"], row["reason"]) for row in found.collect())


def _bars(
    windows: DataFrame, ends: tuple[tuple[str, str], ...], bar_seconds: int
) -> tuple[Bar, ...]:
    """Return the bars of the plot, in order of time and rank."""
    from pyspark.sql import functions as f

    rank = f.lit(BANDS_MAX)
    for place, (queue, reason) in enumerate(ends):
        same = (f.col("queue") == queue) & (f.col("reason") == reason)
        rank = f.when(same, place).otherwise(rank)
    width = f.lit(bar_seconds * 1_000_000)
    found = (
        windows.where(f.col("start").isNotNull())
        .groupBy((f.col("start") - f.pmod("start", width)).alias("bar"), rank.alias("rank"))
        .agg(f.sum("letters").alias("letters"))
        .collect()
    )
    bars = [
        Bar(_EPOCH + timedelta(microseconds=row["bar"]), row["rank"], row["letters"])
        for row in found
    ]
    return tuple(sorted(bars, key=lambda bar: (bar.start, bar.rank)))


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
