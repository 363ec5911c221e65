"""Messages of the past published again: of a stream or an archive, to an exchange or a stream.

`sending` says what is kept: the order of each source, and that a repeated run adds nothing.  A
replay of another choice of messages, or to another place, is another job and another publisher; so
is one of another `name`, which is how the same is replayed a second time on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.pipelines.choosing import Choice, chosen
from leveret.pipelines.progress import Say
from leveret.pipelines.refusals import JobError, moment
from leveret.pipelines.sending import (
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


def replay(
    spark: SparkSession,
    to: Destination,
    *,
    uri: str | None = None,
    stream: str | None = None,
    path: str | Path | None = None,
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
    texts = source_options(uri, stream, path, password_env, options)
    if texts is not None and to.stream == stream and _same_broker(uri, to.uri):
        raise JobError(f"stream {stream!r} would be replayed into itself")
    source = str(path) if texts is None else f"{place_of(uri)}/{stream}"
    own_name = name or job_name("replay", source=source, of=stream, **choice.described(), **_to(to))
    parts = _parts(spark, texts, path, stream, choice)
    return send(
        spark, parts, own_name, to, rate=rate, step=step, checkpoint=checkpoint, progress=progress
    )


def _parts(
    spark: SparkSession,
    texts: dict[str, str] | None,
    path: str | Path | None,
    stream: str | None,
    choice: Choice,
) -> list[Part]:
    from leveret.pipelines.parts import stream_parts, table_parts

    if texts is not None:
        # The broker finds the times: RabbitMQ's rows have none.
        rest = Choice(None, None, choice.exchange, choice.patterns, choice.headers)
        return stream_parts(
            spark, texts, lambda rows: chosen(rows, rest), choice.since, choice.until
        )
    assert path is not None
    return table_parts(archived(spark, path, stream), lambda rows: chosen(rows, choice))


def archived(spark: SparkSession, path: str | Path, stream: str | None) -> DataFrame:
    """Return the messages of an archive, or of one stream of it."""
    rows = read_archive(spark, path)
    return rows if stream is None else rows.where(rows[STREAM_COLUMN] == stream)


def source_options(
    uri: str | None,
    stream: str | None,
    path: str | Path | None,
    password_env: str | None,
    options: Mapping[str, str] | None,
) -> dict[str, str] | None:
    """Return the data source's options for a stream; None for an archive.

    Raises: JobError for neither or both.
    """
    if path is not None and uri is None:
        return None
    if path is None and uri is not None and stream is not None:
        return stream_options(uri, stream, password_env, options)
    raise JobError("messages come from a stream (uri and stream) or from an archive (path)")


def check_destination(to: Destination) -> None:
    """Refuse a destination that says two things.  Raises: JobError."""
    given = [word for word in ("exchange", "stream", "queue") if getattr(to, word) is not None]
    if len(given) > 1:
        raise JobError(f"messages go to one of: {', '.join(given)}")
    if to.routing_key is not None and given != ["exchange"]:
        raise JobError("routing_key: it goes with an exchange")


def _to(to: Destination) -> dict[str, object]:
    """Return where messages go, for the name of a job."""
    place = (place_of(to.uri), to.exchange, to.routing_key, to.stream, to.queue)
    return {"to": place}


def place_of(uri: str | None) -> str:
    """Return broker and vhost of a URI, without who logs in."""
    from leveret.client import parse_uri

    if uri is None:
        return ""
    found = parse_uri(uri)
    return f"{found.host}:{found.port}/{found.vhost}"


def _same_broker(uri: str | None, other: str) -> bool:
    return place_of(uri) == place_of(other)
