"""Messages of the past published again: of a stream or an archive, to an exchange or a stream.

`sending` says what is kept: the order of each source, and that a repeated run adds nothing.  A
replay of another choice of messages, or to another place, is another job and another publisher; so
is one of another `name`, which is how the same is replayed a second time on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.pipelines.progress import Say
from leveret.pipelines.refusals import JobError, moment
from leveret.pipelines.replay.choosing import Choice, chosen
from leveret.pipelines.replay.sending import (
    STEP_RECORDS,
    Destination,
    Part,
    Sent,
    job_name,
    send,
)
from leveret.pipelines.source import STREAM_COLUMN, read_archive, stream_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from leveret.pipelines.replay.parts import Choose


def replay(
    spark: SparkSession,
    to: Destination,
    *,
    uri: str | None = None,
    stream: str | None = None,
    path: str | Path | None = None,
    rows: DataFrame | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    from_exchange: str | None = None,
    patterns: Sequence[str] = (),
    headers: Mapping[str, str | None] | None = None,
    rate: int | None = None,
    step: int = STEP_RECORDS,
    name: str | None = None,
    checkpoint: str | Path | None = None,
    password_env: str | None = None,
    options: Mapping[str, str] | None = None,
    progress: Say | None = None,
) -> Sent:
    """Publish messages of a stream (`uri` and `stream`) or of an archive (`path`) again.

    `rows` are a table with the columns of an archive, for which the job needs a `name`.

    Taken are those in time, of one exchange, whose key fits one of the topic patterns and whose
    headers are as said.  Without an exchange, stream or queue they go where they went before.

    Raises: JobError for what makes no sense; what Spark raises, with the source's or sink's reason.
    """
    choice = Choice(
        moment("since", since),
        moment("until", until),
        from_exchange,
        tuple(patterns),
        dict(headers or {}),
    )
    choice.check()
    check_destination(to)
    source = find_source(uri, stream, path, rows, name, password_env, options)
    if source.options is not None and to.stream == stream and place_of(uri) == place_of(to.uri):
        raise JobError(f"stream {stream!r} would be replayed into itself")
    own_name = name or job_name(
        "replay", source=source.name, of=stream, to=_place_in(to), **choice.described()
    )
    parts = _parts(spark, source, choice)
    return send(
        spark, parts, own_name, to, rate=rate, step=step, checkpoint=checkpoint, progress=progress
    )


def _parts(spark: SparkSession, source: Source, choice: Choice) -> list[Part]:
    if source.options is None:
        return source_parts(spark, source, lambda rows: chosen(rows, choice))
    # The broker finds the times: RabbitMQ's rows have none.
    rest = Choice(None, None, choice.exchange, choice.patterns, choice.headers)
    return source_parts(spark, source, lambda rows: chosen(rows, rest), choice.since, choice.until)


def source_parts(
    spark: SparkSession,
    source: Source,
    choose: Choose,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Part]:
    """Return the parts of a source; the times are a stream's, where the broker finds them."""
    from leveret.pipelines.replay.parts import stream_parts, table_parts

    if source.options is None:
        return table_parts(source.table(spark), choose)
    return stream_parts(spark, source.options, choose, since, until)


@dataclass(frozen=True, slots=True)
class Source:
    """Where messages come from: a stream, by the options of the data source, or a table."""

    name: str
    options: dict[str, str] | None
    stream: str | None
    path: str | Path | None
    rows: DataFrame | None

    def table(self, spark: SparkSession) -> DataFrame:
        """Return the messages of an archive, of one stream of it, or of a table."""
        rows = self.rows
        if rows is None:
            assert self.path is not None
            rows = read_archive(spark, self.path)
        return rows if self.stream is None else rows.where(rows[STREAM_COLUMN] == self.stream)


def find_source(
    uri: str | None,
    stream: str | None,
    path: str | Path | None,
    rows: DataFrame | None,
    name: str | None,
    password_env: str | None,
    options: Mapping[str, str] | None,
) -> Source:
    """Return where messages come from.  Raises: JobError for nothing, or two things."""
    if rows is not None:
        if path is not None or uri is not None:
            raise JobError("rows are a source of their own: without uri and path")
        if name is None:
            raise JobError("rows: the job needs a name, by which it is known when it runs again")
        return Source(name, None, stream, None, rows)
    if path is not None and uri is None:
        return Source(str(path), None, stream, path, None)
    if path is None and uri is not None and stream is not None:
        texts = stream_options(uri, stream, password_env, options)
        return Source(f"{place_of(uri)}/{stream}", texts, stream, None, None)
    raise JobError("messages come from a stream (uri and stream) or from an archive (path)")


def check_destination(to: Destination) -> None:
    """Refuse a destination that says two things.  Raises: JobError."""
    given = [word for word in ("exchange", "stream", "queue") if getattr(to, word) is not None]
    if len(given) > 1:
        raise JobError(f"messages go to one of: {', '.join(given)}")
    if to.routing_key is not None and given != ["exchange"]:
        raise JobError("routing_key: it goes with an exchange")


def _place_in(to: Destination) -> tuple[str | None, ...]:
    """Return where messages go, for the name of a job."""
    return (place_of(to.uri), to.exchange, to.routing_key, to.stream, to.queue)


def place_of(uri: str | None) -> str:
    """Return broker and vhost of a URI, without who logs in."""
    from leveret.client import parse_uri

    if uri is None:
        return ""
    found = parse_uri(uri)
    return f"{found.host}:{found.port}/{found.vhost}"
