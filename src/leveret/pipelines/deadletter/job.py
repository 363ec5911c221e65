"""Dead letters: why, where and by which error messages were dead-lettered, and republishing them.

It reads what a dead-letter exchange has put into a stream (bind one: this removes nothing), an
archive of one, or a queue, which is browsed and left unchanged.  Spark counts the groups; the size
of the result is limited: the groups with the most letters, with their first and last letter, and
totals over all.

`republish` publishes letters of a stream or an archive again, to the queue in which each died:
other queues that got the message may have processed it.  `sending` ensures that each is sent once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipelines.deadletter.result import DeadLetters, Group, Letter
from leveret.pipelines.letters import (
    BODY_BYTES_SHOWN,
    ERROR_HEADERS,
    UNKNOWN,
    UNROUTABLE,
    described,
    error_kind,
    letters,
)
from leveret.pipelines.pages.bars import BANDS_MAX, Bar, bar_width
from leveret.pipelines.pages.origin import command_line, moment_text, path_text
from leveret.pipelines.progress import Say, stages
from leveret.pipelines.refusals import JobError, moment, only_one, span_seconds
from leveret.pipelines.replay.choosing import Choice, in_time
from leveret.pipelines.replay.job import find_source, place_of, source_parts
from leveret.pipelines.replay.sending import STEP_RECORDS, Destination, Sent, job_name, send
from leveret.pipelines.source import messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

#: The number of groups in the result.
GROUPS_MAX: Final = 1000

_COLUMNS: Final = (
    "stream string, offset bigint, timestamp timestamp, exchange string, routing_key string, "
    "headers map<string, string>, body binary"
)


def deadletter(
    spark: SparkSession,
    *,
    uri: str | None = None,
    stream: str | None = None,
    from_queue: str | None = None,
    path: str | Path | None = None,
    rows: DataFrame | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    window: str = "1 minute",
    error_headers: Sequence[str] = ERROR_HEADERS,
    error_path: str | None = None,
    html_path: str | Path | None = None,
    password_env: str | None = None,
    options: Mapping[str, str] | None = None,
    progress: Say | None = None,
) -> DeadLetters:
    """Group the dead letters of a stream, a queue (`uri` with either), an archive or a table.

    `error_path` is the path of the error in a JSON body (`$.error.message`), `error_headers` are
    headers that may hold it.

    Raises: JobError for invalid arguments; Spark's exceptions.
    """
    seconds = span_seconds("window", window)
    choice = Choice(moment("since", since), moment("until", until))
    choice.check()
    if rows is not None:
        only_one(rows=True, uri=uri, path=path)
        source = "a table"
    elif from_queue is not None:
        rows, source = _browsed(spark, uri, from_queue, stream, path, password_env, options)
    else:
        rows, source = messages(
            spark,
            uri=uri,
            stream=stream,
            path=path,
            password_env=password_env,
            options=options,
            columns=_COLUMNS,
        )
    with stages(spark, progress, f"dead letters of {source}"):
        found = _summarize(rows, source, choice, seconds, error_headers, error_path)
    if html_path is not None:
        from leveret.pipelines.deadletter.page import deadletter_page
        from leveret.pipelines.pages.document import write_page

        own_headers = () if tuple(error_headers) == ERROR_HEADERS else tuple(error_headers)
        command = "" if source == "a table" else command_line(
            "deadletter", stream=stream, path=path_text(path), from_queue=from_queue,
            since=moment_text(choice.since), until=moment_text(choice.until), window=window,
            error_path=error_path, error_header=own_headers, uri=uri,
        )  # fmt: skip
        write_page(html_path, deadletter_page(found, command))
    return found


def _browsed(
    spark: SparkSession,
    uri: str | None,
    queue: str,
    stream: str | None,
    path: str | Path | None,
    password_env: str | None,
    options: Mapping[str, str] | None,
) -> tuple[DataFrame, str]:
    """Return the messages of a queue, which stay in it."""
    if uri is None or stream is not None or path is not None:
        raise JobError("from_queue: a queue is read by uri and from_queue alone")
    texts = {**(options or {}), "uri": uri, "queue": queue}
    if password_env is not None:
        texts["passwordEnv"] = password_env
    return spark.read.format("leveret").options(**texts).schema(_COLUMNS).load(), f"queue {queue}"


def republish(
    spark: SparkSession,
    to_uri: str,
    *,
    uri: str | None = None,
    stream: str | None = None,
    path: str | Path | None = None,
    rows: DataFrame | None = None,
    reason: str | None = None,
    queue: str | None = None,
    fingerprint: str | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    error_headers: Sequence[str] = ERROR_HEADERS,
    error_path: str | None = None,
    to_queue: str | None = None,
    to_exchange: str | None = None,
    as_published: bool = False,
    unroutable: str = "fail",
    dedup: bool = True,
    rate: int | None = None,
    step: int = STEP_RECORDS,
    name: str | None = None,
    checkpoint: str | Path | None = None,
    password_env: str | None = None,
    to_password_env: str | None = None,
    options: Mapping[str, str] | None = None,
    to_options: Mapping[str, str] | None = None,
    progress: Say | None = None,
) -> Sent:
    """Publish dead letters again, each to the queue in which it died and to no other.

    `to_queue` sends all of them to one queue or stream, `to_exchange` to an exchange with the first
    routing key of each, and `as_published` to the exchange of the first publish, and so to all
    queues that are bound to it.  A letter that died in no queue (reason `unroutable`) is always
    sent as published.

    `rows` are a table with the columns of an archive, for which the job needs a `name`.  What
    selects letters is optional.  `options` and `to_options` are further ones of source and sink.

    Raises: JobError for invalid arguments; Spark's exceptions, with the source's or sink's reason.
    """
    choice = Choice(moment("since", since), moment("until", until))
    choice.check()
    wanted = {"reason": reason, "queue": queue, "fingerprint": fingerprint}
    where = _where(to_queue, to_exchange, as_published)

    def choose(rows: DataFrame) -> DataFrame:
        found = letters(rows, error_headers, error_path)
        return _addressed(found, choice, wanted, as_published or to_exchange is not None)

    source = find_source(uri, stream, path, rows, name, password_env, options)
    said = {**choice.described(), **wanted, "to": place_of(to_uri), "error_path": error_path}
    own_name = name or _job_name(source.name, stream, said, where)
    to = Destination(to_uri, to_exchange, None, None, to_queue, to_password_env, unroutable, dedup)
    to = replace(to, options=to_options or {})
    parts = source_parts(spark, source, choose)
    return send(
        spark, parts, own_name, to, rate=rate, step=step, checkpoint=checkpoint, progress=progress
    )


def _job_name(
    source: str, stream: str | None, said: Mapping[str, object], where: Mapping[str, object]
) -> str:
    """Return the name by which a job is known when it runs again.

    Without a destination it is that of earlier releases, which sent letters as published: such a
    letter was in the queue of its death too, which knows it by that name.
    """
    return job_name("deadletter", source=source, of=stream, **said, **where)


def _where(to_queue: str | None, to_exchange: str | None, as_published: bool) -> dict[str, object]:
    """Return the destination that was chosen.  Raises: JobError for more than one."""
    said: dict[str, object] = {} if to_queue is None else {"to_queue": to_queue}
    said |= {} if to_exchange is None else {"to_exchange": to_exchange}
    said |= {"as_published": True} if as_published else {}
    if len(said) > 1:
        raise JobError(f"letters go to one of: {', '.join(said)}")
    return said


def _addressed(
    found: DataFrame, choice: Choice, wanted: Mapping[str, str | None], as_published: bool
) -> DataFrame:
    """Return the selected letters, addressed to the queue in which each died.

    `as_published` addresses them as they were first published, and so are letters with the reason
    `unroutable`, which no queue has taken.  For others without a queue the destination is unknown,
    and Spark raises that.
    """
    from pyspark.sql import functions as f

    taken = in_time(found, f.col("died_at"), choice)
    for column, value in wanted.items():
        taken = taken if value is None else taken.where(f.col(column) == value)
    key = f.coalesce("first_routing_key", "routing_key")
    if as_published:
        return taken.withColumns({"exchange": f.col("first_exchange"), "routing_key": key})
    homeless = f.raise_error(
        f.concat(
            f.lit("the letter at offset "),
            f.col("offset").cast("string"),
            f.lit(
                " does not tell which queue it died in: choose others, or say where letters go "
                "(to_queue, to_exchange, as_published)"
            ),
        )
    ).cast("string")
    unrouted = f.col("reason") == UNROUTABLE
    died_in = f.when(f.col("queue") == UNKNOWN, homeless).otherwise(f.col("queue"))
    return taken.withColumns(
        {
            "exchange": f.when(unrouted, f.col("first_exchange")).otherwise(f.lit("")),
            "routing_key": f.when(unrouted, key).otherwise(died_in),
        }
    )


# -- counting --------------------------------------------------------------------------------------


def _summarize(
    rows: DataFrame,
    source: str,
    choice: Choice,
    window_seconds: int,
    error_headers: Sequence[str],
    error_path: str | None,
) -> DeadLetters:
    from pyspark.sql import functions as f

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
    taken = in_time(described(rows, error_headers, error_path), f.col("died_at"), choice)
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
    """Return how many messages are no dead letters."""
    from pyspark.sql import functions as f

    found = counted.where(~f.col("is_letter")).agg(f.coalesce(f.sum("letters"), f.lit(0)))
    return int(found.collect()[0][0])


def _groups(windows: DataFrame) -> tuple[Group, ...]:
    """Return the groups with the most letters."""
    from pyspark.sql import functions as f

    # Without a time the order is arbitrary; a null would lose the letter.
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
        Group(
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
    """Return the pairs of queue and reason that the plot shows: those with the most letters."""
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
    """Return the bars of the plot, in order of time and place."""
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
