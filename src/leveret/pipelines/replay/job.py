"""Publishes messages of a stream or an archive again, to an exchange, a stream or a queue.

`sending` preserves the order of each source, and ensures that a repeated run adds nothing.  A
replay of another choice of messages, or to another destination, is another job with another
publisher.  So is a replay with another `name`, which can publish the same messages a second time.

A publishing job reads its source in parts, which are ranges of offsets of one stream.  Each part is
read in steps.  The range of a stream comes from the broker, and a step of it is read by its
offsets.  The range of an archive comes from its files, and a step of it has the rows with these
offsets, sorted.

Invariant: a step is one Spark partition, ordered by offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipelines.options import takes
from leveret.pipelines.pages.origin import (
    command_line,
    headers_given,
    moment_text,
    path_text,
)
from leveret.pipelines.refusals import JobError
from leveret.pipelines.replay.choosing import Choice, chosen
from leveret.pipelines.replay.sending import (
    Destination,
    PublishOptions,
    ReplayPart,
    Sent,
    place_of,
    send,
)
from leveret.pipelines.source import STREAM_COLUMN, read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A function applied to rows before they are published.
Choose = Callable[["DataFrame"], "DataFrame"]

_ENDS: Final = (
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
)


@dataclass(frozen=True)
class ReplayOptions(PublishOptions):
    """The options of a replay: the destination, and the conditions on messages."""

    to: Destination
    _: KW_ONLY
    from_exchange: str | None = None
    patterns: Sequence[str] = ()
    headers: Mapping[str, str | None] | None = None
    html_path: str | Path | None = None

    def __post_init__(self) -> None:
        """Check the options.  Raises: JobError."""
        super().__post_init__()
        is_own_stream = self.uri is not None and self.to.stream == self.stream
        if is_own_stream and place_of(self.uri) == place_of(self.to.uri):
            raise JobError(f"stream {self.stream!r} would be replayed into itself")

    @property
    def choice(self) -> Choice:
        """The conditions on the messages."""
        return replace(
            super().choice,
            exchange=self.from_exchange,
            patterns=tuple(self.patterns),
            headers=dict(self.headers or {}),
        )

    @property
    def own_name(self) -> str:
        """The job's name: the same for the same messages and destination."""
        to = self.to
        place = (place_of(to.uri), to.exchange, to.routing_key, to.stream, to.queue)
        return self.name_of("replay", to=place, **self.choice.described())


@takes(ReplayOptions)
def replay(spark: SparkSession, job: ReplayOptions) -> Sent:
    """Publish messages of a stream (`uri` and `stream`) or of an archive (`path`) again.

    `rows` is a table with the columns of an archive, for which the job needs a `name`.

    Messages are selected by `since` and `until` (before it), `from_exchange`, `patterns` of routing
    keys and `headers` (by name and text, or None for any value).  If the destination names no
    exchange, stream or queue, messages are published to their original exchanges.

    `rate` is the maximum number of messages per second.  After each `step` of messages,
    `checkpoint`, a file on the driver's machine, stores the progress.  A broker recognizes a
    repeated run by `name`, and drops its messages.  The other arguments are those of `archive`.

    Raises: JobError (a ValueError) for invalid arguments; Spark's exceptions, with the source's or
    sink's reason.
    """
    sent = send(spark, _parts(spark, job), job.own_name, job.to, job)
    if job.html_path is not None:
        from leveret.pipelines.pages.document import write_page
        from leveret.pipelines.replay.page import replay_page

        command = "" if job.rows is not None else _command(job)
        write_page(job.html_path, replay_page(sent, job.source_name, job.to.words, command))
    return sent


def _command(job: ReplayOptions) -> str:
    """Return the equivalent command."""
    to, choice = job.to, job.choice
    return command_line(
        "replay", stream=job.stream, path=path_text(job.path), pattern=job.patterns, rate=job.rate,
        name=job.name, from_exchange=job.from_exchange, header=headers_given(job.headers),
        checkpoint=path_text(job.checkpoint), uri=job.uri, exchange=to.exchange,
        routing_key=to.routing_key, to_stream=to.stream, to_queue=to.queue,
        unroutable=to.unroutable, no_dedup=not to.dedup, to=to.uri,
        since=moment_text(choice.since), until=moment_text(choice.until),
    )  # fmt: skip


# -- parts -----------------------------------------------------------------------------------------


def _parts(spark: SparkSession, job: ReplayOptions) -> list[ReplayPart]:
    """Return the parts of a replay's source."""
    choice = job.choice
    if job.uri is None:
        return source_parts(spark, job, lambda rows: chosen(rows, choice))
    # The broker selects by time, because RabbitMQ's rows have no times.
    rest = Choice(None, None, choice.exchange, choice.patterns, choice.headers)
    return source_parts(spark, job, lambda rows: chosen(rows, rest), choice.since, choice.until)


def source_parts(
    spark: SparkSession,
    job: PublishOptions,
    choose: Choose,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[ReplayPart]:
    """Return the parts of a source; only for a stream, the broker applies `since` and `until`."""
    if job.uri is None:
        return _table_parts(job.table(spark), choose)
    return _stream_parts(spark, job.stream_options(), choose, since, until)


def _stream_parts(
    spark: SparkSession,
    options: Mapping[str, str],
    choose: Choose,
    since: datetime | None,
    until: datetime | None,
) -> list[ReplayPart]:
    """Return the parts of a stream; the broker finds the offsets for `since` and `until`.

    Raises: OptionError; Interrupted; NotFound (404) if the stream does not exist.
    """
    from leveret.spark.columns.schema import ROW
    from leveret.spark.options.read import parse_options
    from leveret.spark.stream.batch import BatchReader
    from leveret.spark.stream.planner import OffsetRange

    asked = dict(options)
    if since is not None:
        asked["startingTimestamp"] = str(round(since.timestamp() * 1000))
        asked["startingOffsetsByTimestampStrategy"] = "latest"
    if until is not None:
        asked["endingTimestamp"] = str(round(until.timestamp() * 1000))
    planned = BatchReader(parse_options(asked), ROW).partitions()
    ends: dict[str, tuple[int, int]] = {}
    ids: dict[str, str | None] = {}
    for one in planned:
        if isinstance(one, OffsetRange):
            start, end = ends.get(one.stream, (one.start, one.end))
            ends[one.stream] = min(start, one.start), max(end, one.end)
            ids[one.stream] = one.stream_id
    plain = {name: text for name, text in options.items() if name.lower() not in _ENDS}

    def reader(stream: str) -> Callable[[int, int], DataFrame]:
        def read(start: int, end: int) -> DataFrame:
            edges = {
                "startingOffsets": json.dumps({stream: start}),
                "endingOffsets": json.dumps({stream: end}),
            }
            return choose(read_stream(spark, {**plain, **edges})).coalesce(1)

        return read

    return [
        ReplayPart(name, start, end, reader(name), ids[name])
        for name, (start, end) in sorted(ends.items())
    ]


def _table_parts(rows: DataFrame, choose: Choose) -> list[ReplayPart]:
    """Return a part for each stream in an archive, or in a table with the same columns."""
    from pyspark.sql import functions as f

    taken = choose(rows)
    ends = taken.groupBy(STREAM_COLUMN).agg(f.min("offset"), f.max("offset")).collect()

    def reader(stream: str) -> Callable[[int, int], DataFrame]:
        def read(start: int, end: int) -> DataFrame:
            within = (f.col("offset") >= start) & (f.col("offset") < end)
            wanted = rows.where((f.col(STREAM_COLUMN) == stream) & within)
            return choose(wanted).repartition(1).sortWithinPartitions("offset")

        return read

    found = sorted((row[0], row[1], row[2] + 1) for row in ends)
    return [ReplayPart(name, start, end, reader(name)) for name, start, end in found]
