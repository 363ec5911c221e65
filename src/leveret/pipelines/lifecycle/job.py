"""Computes latencies and outcomes of messages, and finds stuck messages, from the broker's events.

The job reads the stream `amq.leveret.events` of a virtual host (`event_sample_every` enables it),
or an archive of it.  A message in a queue is identified by the name of the queue and its sequence;
one aggregation combines all its events.

The stages are in milliseconds of the broker's clock: *routing* from the publish to the queue (not 0
for delayed messages and dead letters), *waiting* from the queue to the first delivery, *handling*
from the first delivery to the ack, *whole* from the publish to the ack.

A message is stuck if its last event is older than `stuck_after`, and it has neither ended nor been
removed by a purge or with its queue.  The current time is read from the broker's clock, because an
idle queue has no newer events.  For an archive it is an argument, or else the time of the newest
event.  `cut` counts messages whose first events are missing, because they were published before the
first event in the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipelines.lifecycle.result import STAGES, Latency, Lifecycle, QueueLife, Stuck
from leveret.pipelines.options import SourceOptions, takes
from leveret.pipelines.pages.origin import command_line, moment_text, path_text
from leveret.pipelines.progress import Say, stages
from leveret.pipelines.refusals import JobError, moment, span_seconds
from leveret.pipelines.source import messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EVENT_STREAM: Final = "amq.leveret.events"

#: The maximum numbers of queues and of stuck messages in the result.
QUEUES_MAX: Final = 1000
STUCK_MAX: Final = 1000

QUANTILES: Final = (0.5, 0.95, 0.99)

#: The events that end a message, and the events that remove all waiting messages of a queue.
ENDS: Final = ("acked", "dead_lettered", "expired", "dropped")
_QUEUE_ENDS: Final = ("purged", "deleted")

#: The possible last events of a message that waits for delivery.
_WAITING: Final = ("routed", "requeued")

EVENT: Final = (
    "event string, at_ms bigint, vhost string, queue string, sequence bigint, exchange string, "
    "routing_key string, taken_ms bigint, bytes bigint, message_id string, reason string, "
    "count bigint, queues bigint, streams bigint"
)


@dataclass(frozen=True, kw_only=True)
class LifecycleOptions(SourceOptions):
    """The options of the lifecycle job."""

    stream: str = EVENT_STREAM
    stuck_after: str = "10 minutes"
    now: str | datetime | None = None
    html_path: str | Path | None = None
    progress: Say | None = None

    def __post_init__(self) -> None:
        """Check the options.  Raises: JobError."""
        span_seconds("stuck_after", self.stuck_after)
        if self.now is not None and self.path is None:
            raise JobError("now: only for an archive (path); a broker has its own clock")
        moment("now", self.now)
        super().__post_init__()


@takes(LifecycleOptions)
def lifecycle(spark: SparkSession, job: LifecycleOptions) -> Lifecycle:
    """Report latencies and outcomes of messages, from events of a broker (`uri`) or an archive.

    `stream` is the stream of the events.  A message is *stuck* if it has not ended and had no event
    for `stuck_after`, a span such as `10 minutes`.  The other arguments are those of `archive`.

    `now` is the current time for an archive (`path`), by default the time of its newest event.  For
    a broker, the current time is read from its clock.

    Raises: JobError (a ValueError) for invalid arguments; Spark's exceptions.
    """
    from leveret.spark.connection.clock import clock_ms
    from leveret.spark.options.read import parse_options

    seconds = span_seconds("stuck_after", job.stuck_after)
    at = moment("now", job.now)
    now_ms = None if at is None else round(at.timestamp() * 1000)
    rows, source = messages(spark, job, "body binary")
    with stages(spark, job.progress, f"reading {source}"):
        if job.uri is not None:
            now_ms = clock_ms(parse_options(job.stream_options()))
        found = summarize(read_events(rows), source, seconds, now_ms)
    if job.html_path is not None:
        from leveret.pipelines.lifecycle.page import lifecycle_page
        from leveret.pipelines.pages.document import write_page

        command = command_line(
            "lifecycle", stream=job.stream, path=path_text(job.path), stuck_after=job.stuck_after,
            now=moment_text(at), uri=job.uri,
        )  # fmt: skip
        write_page(job.html_path, lifecycle_page(found, job.stuck_after, command))
    return found


def read_events(rows: DataFrame) -> DataFrame:
    """Return events as columns (`EVENT`); `event` is null for a body that is not an event."""
    from pyspark.sql import functions as f

    text = f.col("body").cast("string")
    return rows.select(f.from_json(text, EVENT).alias("e")).select("e.*")


def lives(events: DataFrame) -> DataFrame:
    """Return a row for each message in each queue, for further queries.

    `events` is a table that `leveret.pipelines.lifecycle.job.read_events` makes of the messages of
    a stream of events.

    The columns are vhost, queue, sequence, the known properties of the message, the times
    `taken_ms`, `routed_ms`, `delivered_ms` (of the first delivery) and `ended_ms`, the outcome
    `end` (null if the message has not ended, `cleared` if a purge or the deletion of its queue
    removed it), `deliveries`, `last_event` and `last_ms`.
    """
    from pyspark.sql import functions as f

    event, at = f.col("event"), f.col("at_ms")
    key = ["vhost", "queue", "sequence"]
    of_messages = events.where(f.col("sequence").isNotNull() & ~event.isin(*_QUEUE_ENDS))
    grouped = of_messages.groupBy(*key).agg(
        f.max("exchange").alias("exchange"),
        f.max("routing_key").alias("routing_key"),
        f.max("message_id").alias("message_id"),
        f.min("taken_ms").alias("taken_ms"),
        f.min(f.when(event == "routed", at)).alias("routed_ms"),
        f.min(f.when(event == "delivered", at)).alias("delivered_ms"),
        f.max(f.when(event.isin(*ENDS), at)).alias("ended_ms"),
        f.max(f.when(event.isin(*ENDS), event)).alias("own_end"),
        f.count(f.when(event == "delivered", 1)).alias("deliveries"),
        f.max(f.struct(at, f.when(event == "requeued", 1).otherwise(0), event)).alias("last"),
    )
    cleared = (
        events.where(event.isin(*_QUEUE_ENDS))
        .groupBy("vhost", "queue")
        .agg(f.max(f.struct("sequence", "at_ms")).alias("cleared"))
    )
    # A purge removes only waiting messages, not delivered ones.
    waits = f.col("last.event").isin(*_WAITING)
    gone = (f.col("sequence") < f.col("cleared.sequence")) & (
        waits & (f.col("cleared.at_ms") >= f.col("last.at_ms"))
    )
    return grouped.join(f.broadcast(cleared), ["vhost", "queue"], "left").select(
        *key,
        "exchange",
        "routing_key",
        "message_id",
        "taken_ms",
        "routed_ms",
        "delivered_ms",
        "ended_ms",
        f.coalesce(f.col("own_end"), f.when(gone, f.lit("cleared"))).alias("end"),
        "deliveries",
        f.col("last.event").alias("last_event"),
        f.col("last.at_ms").alias("last_ms"),
    )


def summarize(
    events: DataFrame, source: str, stuck_after_seconds: int, now_ms: int | None = None
) -> Lifecycle:
    """Return the report on events; the current time is at least that of the newest event."""
    from pyspark.sql import functions as f

    totals = events.agg(
        f.count(f.lit(1)).alias("events"),
        f.count(f.when(f.col("event").isNull(), 1)).alias("unreadable"),
        f.count(f.when(f.col("event") == "published", 1)).alias("published"),
        f.count(
            f.when((f.col("event") == "published") & (f.col("streams") == f.col("queues")), 1)
        ).alias("to_streams"),
        f.count(f.when(f.col("event") == "unroutable", 1)).alias("unroutable"),
        f.min("at_ms").alias("first"),
        f.max("at_ms").alias("last"),
    ).collect()[0]
    now_ms = max(now_ms or 0, totals["last"] or 0)
    oldest = now_ms - stuck_after_seconds * 1000
    all_lives = lives(events).persist()
    try:
        stuck = all_lives.where(f.col("end").isNull() & (f.col("last_ms") < oldest))
        by_queue = _by_queue(all_lives, oldest, now_ms)
        found = by_queue.orderBy(f.desc("messages"), "vhost", "queue").limit(QUEUES_MAX).collect()
        return Lifecycle(
            source=source,
            events=totals["events"],
            unreadable=totals["unreadable"],
            published=totals["published"],
            unroutable=totals["unroutable"],
            queues=tuple(_queue_life(row.asDict()) for row in found),
            queues_total=len(found) if len(found) < QUEUES_MAX else by_queue.count(),
            messages=all_lives.count(),
            stuck=tuple(_stuck(row.asDict()) for row in _oldest(stuck).collect()),
            stuck_total=stuck.count(),
            first=_moment(totals["first"]),
            last=_moment(totals["last"]),
            published_to_streams=totals["to_streams"],
            now=_moment(now_ms or None),
        )
    finally:
        all_lives.unpersist()


def _spans() -> dict[str, Column]:
    """Return the durations of the stages, null for stages that a message did not complete."""
    from pyspark.sql import functions as f

    acked_ms = f.when(f.col("end") == "acked", f.col("ended_ms"))
    return {
        "routing": f.col("routed_ms") - f.col("taken_ms"),
        "waiting": f.col("delivered_ms") - f.col("routed_ms"),
        "handling": acked_ms - f.col("delivered_ms"),
        "whole": f.when(f.col("routed_ms").isNotNull(), acked_ms - f.col("taken_ms")),
    }


def _by_queue(all_lives: DataFrame, oldest_ms: int, now_ms: int) -> DataFrame:
    """Return counts and latencies of each queue, and the age of its oldest waiting message."""
    from pyspark.sql import functions as f

    from leveret.spark.versions import quantile, sketch

    end = f.col("end")
    waits = end.isNull() & f.col("last_event").isin(*_WAITING)
    arrived = f.when(waits, f.coalesce("routed_ms", "last_ms"))
    counts = [f.count(f.when(end == name, 1)).alias(name) for name in (*ENDS, "cleared")]
    latencies = []
    for name, span in _spans().items():
        sketched = sketch(span, QUANTILES)
        quantiles = [quantile(sketched, QUANTILES, place) for place in range(len(QUANTILES))]
        passed = f.count(span)
        latencies += [
            passed.alias(f"{name}_messages"),
            *(
                f.when(passed > 0, value).alias(f"{name}_{place}")
                for place, value in enumerate(quantiles)
            ),
            f.max(span).alias(f"{name}_max"),
        ]
    return all_lives.groupBy("vhost", "queue").agg(
        f.count(f.lit(1)).alias("messages"),
        *counts,
        f.count(f.when(end.isNull(), 1)).alias("open"),
        f.count(f.when(end.isNull() & (f.col("last_ms") < oldest_ms), 1)).alias("stuck"),
        f.count(f.when(f.col("routed_ms").isNull(), 1)).alias("cut"),
        f.count(f.when(f.col("deliveries") > 1, 1)).alias("redelivered"),
        (f.lit(now_ms) - f.min(arrived)).alias("oldest_waiting_ms"),
        *latencies,
    )


def _oldest(stuck: DataFrame) -> DataFrame:
    return stuck.orderBy("last_ms", "vhost", "queue", "sequence").limit(STUCK_MAX)


def _queue_life(row: dict[str, object]) -> QueueLife:
    """Return the object for a queue's row."""
    found = {name: _latency(row, name) for name in STAGES}
    kept = {name: row[name] for name in QueueLife.__slots__ if name != "stages"}
    passed = {name: latency for name, latency in found.items() if latency.messages}
    return QueueLife(stages=passed, **kept)  # type: ignore[arg-type]  # the columns have its names


def _latency(row: dict[str, object], stage: str) -> Latency:
    names = (f"{stage}_messages", f"{stage}_0", f"{stage}_1", f"{stage}_2", f"{stage}_max")
    values = [row[name] for name in names]
    return Latency(*(value if isinstance(value, int) else 0 for value in values))


def _stuck(row: dict[str, object]) -> Stuck:
    """Return the object for a stuck message's row."""
    kept = {name: row[name] for name in Stuck.__slots__ if name != "last_at"}
    last_ms = row["last_ms"]
    assert isinstance(last_ms, int)
    return Stuck(last_at=_known(last_ms), **kept)  # type: ignore[arg-type]  # the columns have its names


def _known(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else _known(ms)
