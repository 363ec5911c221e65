"""Publishing messages of a stream or an archive again, to an exchange or a stream.

`sending` ensures that the order of each source is kept, and that a repeated run adds nothing.  A
replay of another choice of messages, or to another destination, is another job and another
publisher; so is one of another `name`, which allows replaying the same messages a second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.pipelines.pages.origin import (
    command_line,
    headers_given,
    moment_text,
    path_text,
)
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
    html_path: str | Path | None = None,
    progress: Say | None = None,
) -> Sent:
    """Publish messages of a stream (`uri` and `stream`) or of an archive (`path`) again.

    `rows` are a table with the columns of an archive, for which the job needs a `name`.

    Times, an exchange, topic patterns and headers select the messages.  Without an exchange, stream
    or queue they go to their original destinations.  `html_path` is where a page is written.

    Raises: JobError for invalid arguments; Spark's exceptions, with the source's or sink's reason.
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
    sent = send(
        spark, parts, own_name, to, rate=rate, step=step, checkpoint=checkpoint, progress=progress
    )
    command = command_line(
        "replay", stream=stream, path=path_text(path), pattern=patterns, rate=rate, name=name,
        from_exchange=from_exchange, header=headers_given(headers),
        checkpoint=path_text(checkpoint), uri=uri, **_written(to, choice),
    )  # fmt: skip
    _write(html_path, sent, source, to, "" if rows is not None else command)
    return sent


def _write(
    html_path: str | Path | None, sent: Sent, source: Source, to: Destination, command: str
) -> None:
    """Write the page, if requested."""
    if html_path is not None:
        from leveret.pipelines.pages.document import write_page
        from leveret.pipelines.replay.page import replay_page

        write_page(html_path, replay_page(sent, source.name, _words_of(to), command))


def _written(to: Destination, choice: Choice) -> dict[str, str | bool | None]:
    """Return a destination and the chosen times as options of the command line."""
    return {
        "exchange": to.exchange, "routing_key": to.routing_key, "to_stream": to.stream,
        "to_queue": to.queue, "unroutable": to.unroutable, "no_dedup": not to.dedup, "to": to.uri,
        "since": moment_text(choice.since), "until": moment_text(choice.until),
    }  # fmt: skip


def _words_of(to: Destination) -> str:
    """Return the destination for people."""
    for word in ("exchange", "stream", "queue"):
        name = getattr(to, word)
        if name is not None:
            return f"{word} {name or '(default exchange)'}"
    return "the original exchanges"


def _parts(spark: SparkSession, source: Source, choice: Choice) -> list[Part]:
    if source.options is None:
        return source_parts(spark, source, lambda rows: chosen(rows, choice))
    # The broker finds the times, because RabbitMQ's rows have none.
    rest = Choice(None, None, choice.exchange, choice.patterns, choice.headers)
    return source_parts(spark, source, lambda rows: chosen(rows, rest), choice.since, choice.until)


def source_parts(
    spark: SparkSession,
    source: Source,
    choose: Choose,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Part]:
    """Return the parts of a source; times apply to a stream, in which the broker finds them."""
    from leveret.pipelines.replay.parts import stream_parts, table_parts

    if source.options is None:
        return table_parts(source.table(spark), choose)
    return stream_parts(spark, source.options, choose, since, until)


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of messages: a stream, by the options of the data source, or a table."""

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
    """Return the origin of messages.  Raises: JobError for none, or more than one."""
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
    """Refuse more than one destination.  Raises: JobError."""
    given = [word for word in ("exchange", "stream", "queue") if getattr(to, word) is not None]
    if len(given) > 1:
        raise JobError(f"messages go to one of: {', '.join(given)}")
    if to.routing_key is not None and given != ["exchange"]:
        raise JobError("routing_key: it goes with an exchange")


def _place_in(to: Destination) -> tuple[str | None, ...]:
    """Return the destination, for the name of a job."""
    return (place_of(to.uri), to.exchange, to.routing_key, to.stream, to.queue)


def place_of(uri: str | None) -> str:
    """Return broker and vhost of a URI, without credentials."""
    from leveret.client import parse_uri

    if uri is None:
        return ""
    found = parse_uri(uri)
    return f"{found.host}:{found.port}/{found.vhost}"
