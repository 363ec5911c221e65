"""Publishes messages of a stream or an archive again: in order, once, at a chosen rate.

Each source (a stream, or a stream in an archive) is one publisher, and the publishing id of a
message is its offset.  One task at a time publishes a source, sorted by offset.  This preserves the
order of the source, and the broker drops the messages that it has already received from the
publisher.  A repeated run therefore adds only new messages.

The job publishes in steps, which are ranges of offsets.  A checkpoint file (`checkpoint.py`) stores
the offset before which all messages are confirmed.  After a crash, a run starts there and repeats
at most a step, which the broker drops.

The header CC is not sent again, because Spark has it as text and a broker accepts only a list; nor
are the headers about dead-lettering, and the property user_id, which must be that of the login.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipelines.options import SourceOptions
from leveret.pipelines.progress import Say, stages
from leveret.pipelines.refusals import JobError, at_least, moment
from leveret.pipelines.replay.checkpoint import ReplayProgress
from leveret.pipelines.replay.choosing import Choice
from leveret.pipelines.source import STREAM_COLUMN, read_archive

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from leveret.spark.write.result import WriteResult

#: The offsets of one step: the interval between checkpoints, and the maximum repeated after a
#: crash.
STEP_RECORDS: Final = 1_000_000

#: The approximate duration of a step if a rate is given.
STEP_SECONDS: Final = 30

#: The maximum number of steps in the result of a run.
STEPS_KEPT: Final = 2000

#: The setting for the number of rows per Arrow batch, its maximum, and the number of batches per
#: second if a rate is given.
_ARROW_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ARROW_RECORDS_MAX: Final = 10_000
_PACES_A_SECOND: Final = 10

#: The kinds of destinations, of which at most one can be given.
_PLACES: Final = ("exchange", "stream", "queue")

#: The headers that are not sent again, and the prefixes of headers about dead-lettering.
_NOT_AGAIN: Final = ("CC", "BCC")
_OF_DEATHS: Final = ("x-death", "x-first-death-", "x-last-death-")


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of messages: an exchange, a stream, a queue, or the original exchanges.

    `routing_key` replaces the messages' own with an `exchange`.  `password_env` names the
    environment variable with the password.  `unroutable` is what happens to messages that no queue
    takes: `fail`, `drop` or `dead-letter:<exchange>`.  `dedup=False` is for brokers without
    deduplication; a repeated run then publishes again.  `options` are further options of the sink.

    Raises: JobError (a ValueError) for destinations that exclude each other.
    """

    uri: str = field(repr=False)
    exchange: str | None = None
    routing_key: str | None = None
    stream: str | None = None
    queue: str | None = None
    password_env: str | None = None
    unroutable: str = "fail"
    dedup: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that at most one destination is given.  Raises: JobError."""
        given = [word for word in _PLACES if getattr(self, word) is not None]
        if len(given) > 1:
            raise JobError(f"give only one of: {', '.join(given)}")
        if self.routing_key is not None and given != ["exchange"]:
            raise JobError("routing_key: it needs an exchange")

    @property
    def words(self) -> str:
        """The destination in words."""
        for word in _PLACES:
            name = getattr(self, word)
            if name is not None:
                return f"{word} {name or '(default exchange)'}"
        return "the original exchanges"

    def sink_options(self, publisher: str) -> dict[str, str]:
        """Return the options of the data source's sink."""
        texts = {**self.options, "uri": self.uri, "unroutable": self.unroutable}
        chosen = {
            "exchange": self.exchange,
            "routingKey": self.routing_key,
            "stream": self.stream,
            "queue": self.queue,
            "passwordEnv": self.password_env,
        }
        texts |= {name: text for name, text in chosen.items() if text is not None}
        texts |= {"publisherName": publisher} if self.dedup else {"dedup": "none"}
        return texts


@dataclass(frozen=True, kw_only=True)
class PublishOptions(SourceOptions):
    """The options of a publishing job: the source, which may be `rows`, the times and the rate.

    `name` is the start of the publishers' names, by which a broker recognizes a repeated run.
    """

    rows: DataFrame | None = None
    since: str | datetime | None = None
    until: str | datetime | None = None
    rate: int | None = None
    step: int = STEP_RECORDS
    name: str | None = None
    checkpoint: str | Path | None = None
    progress: Say | None = None

    def __post_init__(self) -> None:
        """Check the options.  Raises: JobError."""
        self.choice.check()
        super().__post_init__()
        at_least("step", self.step, 1)
        if self.rate is not None:
            at_least("rate", self.rate, 1)

    def check_source(self) -> None:
        """Check that exactly one source is given, and a name for rows.  Raises: JobError."""
        if self.rows is None:
            super().check_source()
        elif self.path is not None or self.uri is not None:
            raise JobError("rows cannot be combined with uri or path")
        elif self.name is None:
            raise JobError("rows: the job needs a name, by which a repeated run is recognized")

    @property
    def choice(self) -> Choice:
        """The conditions on the messages."""
        return Choice(moment("since", self.since), moment("until", self.until))

    @property
    def source_name(self) -> str:
        """The name of the source, for people and for the job's name."""
        if self.uri is not None:
            return f"{place_of(self.uri)}/{self.stream}"
        return (self.name or "") if self.path is None else str(self.path)

    def name_of(self, kind: str, **said: object) -> str:
        """Return the given name, or a name that depends on the source and on `said`."""
        return self.name or job_name(kind, source=self.source_name, of=self.stream, **said)

    def table(self, spark: SparkSession) -> DataFrame:
        """Return the messages of an archive or a table, or only those of `stream`."""
        rows = self.rows
        if rows is None:
            assert self.path is not None
            rows = read_archive(spark, self.path)
        return rows if self.stream is None else rows.where(rows[STREAM_COLUMN] == self.stream)


def place_of(uri: str | None) -> str:
    """Return the broker and the vhost of a URI, without credentials."""
    from leveret.client import parse_uri

    if uri is None:
        return ""
    found = parse_uri(uri)
    return f"{found.host}:{found.port}/{found.vhost}"


@dataclass(frozen=True, slots=True)
class ReplayPart:
    """The offsets of one source from `start` to before `end`, and a function that reads a range.

    `stream_id` distinguishes streams with the same name, if it is known.
    """

    source: str
    start: int
    end: int
    read: Callable[[int, int], DataFrame]
    stream_id: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the messages of a source with offsets from `start` to before `end`."""

    source: str
    start: int
    end: int
    messages: int
    known: int
    unroutable: int
    began: datetime
    ended: datetime


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of a run."""

    #: The name of the job, by which a broker recognizes a repeated run.
    name: str
    #: The number of messages that the run sent.
    messages: int
    #: The offset of each source at which a later run begins.
    next_offsets: Mapping[str, int]
    #: How many of the messages the broker dropped, because it had received them before.
    known: int = 0
    #: How many of the messages no queue took, even if they were sent to a dead-letter exchange.
    unroutable: int = 0
    #: The last steps, at most 2,000.
    steps: tuple[Step, ...] = ()
    #: The number of all steps.
    steps_total: int = 0

    @property
    def published(self) -> int:
        """The number of messages that this run added to a queue or stream."""
        return self.messages - self.known - self.unroutable

    @property
    def dropped_words(self) -> str:
        """The numbers of dropped messages in words, or "" if there were none."""
        known = f"{self.known} dropped as published before" if self.known else ""
        lost = f"{self.unroutable} that no queue took" if self.unroutable else ""
        return "".join(f"; {words}" for words in (known, lost) if words)


def send(
    spark: SparkSession,
    parts: list[ReplayPart],
    name: str,
    destination: Destination,
    options: PublishOptions,
) -> Sent:
    """Publish the parts one after the other, as the job `name`.

    Raises: JobError for a checkpoint of another job; Spark's exceptions, with the sink's reason.
    """
    step, rate, progress = options.step, options.rate, options.progress
    if rate is not None:
        # A slow run must report and save its progress regularly, too.
        step = min(step, rate * STEP_SECONDS)
    kept = ReplayProgress(options.checkpoint, name)
    total = known = unroutable = count = 0
    steps: deque[Step] = deque(maxlen=STEPS_KEPT)
    for part in parts:
        kept.meet(part.source, part.stream_id)
        start = max(part.start, kept.next_offset(part.source))
        while start < part.end:
            end = min(part.end, (start // step + 1) * step)
            what = f"{part.source}: offsets {start:,} to {end - 1:,} of {part.end:,}"
            began = datetime.now(UTC)
            with stages(spark, progress, what):
                rows = part.read(start, end)
                done = _send_step(spark, rows, f"{name}-{part.source}", destination, rate)
            total += done.rows
            known += done.dropped
            unroutable += done.unroutable
            count += 1
            counts = (done.rows, done.dropped, done.unroutable)
            steps.append(Step(part.source, start, end, *counts, began, datetime.now(UTC)))
            kept.advance(part.source, end)
            if progress is not None:
                progress(f"{part.source}: all before offset {end:,} confirmed; {total:,} in all")
            start = end
    ends = {part.source: part.end for part in parts}
    return Sent(name, total, ends, known, unroutable, tuple(steps), count)


def _send_step(
    spark: SparkSession, rows: DataFrame, publisher: str, destination: Destination, rate: int | None
) -> WriteResult:
    """Publish the ordered rows of a step; return the sink's result."""
    from leveret.spark import in_thread
    from leveret.spark.write.result import WriteResult, read_results

    in_thread(spark)  # a job may be called from any thread
    shaped = _shaped(rows, destination)
    with _paced_batches(spark, rate), tempfile.TemporaryDirectory() as told:
        if rate is not None:
            shaped = shaped.mapInArrow(_pacing(rate), shaped.schema)
        options = destination.sink_options(short_name(publisher))
        options["resultFile"] = str(Path(told) / "result")
        shaped.write.format("leveret").options(**options).mode("append").save()
        results = read_results(options["resultFile"])
    return results[-1] if results else WriteResult("", "", 0, 0, 0, 0)


def _shaped(rows: DataFrame, destination: Destination) -> DataFrame:
    """Return the columns that the sink accepts."""
    from pyspark.sql import functions as f

    def is_kept(name: Column, _value: Column) -> Column:
        dropped = name.isin(*_NOT_AGAIN)
        for prefix in _OF_DEATHS:
            dropped = dropped | name.startswith(prefix)
        return ~dropped

    user = f.lit(None).cast("string")
    columns = [
        f.map_filter("headers", is_kept).alias("headers"),
        f.col("properties").withField("user_id", user).alias("properties"),
        f.col("body"),
    ]
    if destination.stream is None and destination.queue is None:
        columns += [] if destination.exchange is not None else [f.col("exchange")]
        columns += [] if destination.routing_key is not None else [f.col("routing_key")]
    if destination.dedup:
        columns.append(f.col("offset").alias("publishing_id"))
    return rows.select(*columns)


@contextmanager
def _paced_batches(spark: SparkSession, rate: int | None) -> Iterator[None]:
    """If a rate is given, make Spark use small Arrow batches while the block runs."""
    if rate is None:
        yield
        return
    before = spark.conf.get(_ARROW_RECORDS)
    spark.conf.set(_ARROW_RECORDS, str(records_at_once(rate)))
    try:
        yield
    finally:
        spark.conf.set(_ARROW_RECORDS, str(before))


def records_at_once(rate: int) -> int:
    """Return the number of rows per Arrow batch for a rate."""
    return max(1, min(_ARROW_RECORDS_MAX, rate // _PACES_A_SECOND))


def _pacing(rate: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def paced(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pace(batches, rate, time.monotonic, time.sleep)

    return paced


def pace(
    batches: Iterator[pa.RecordBatch],
    rate: int,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches in small slices, at most `rate` rows per second."""
    few = records_at_once(rate)
    began = clock()
    gone = 0
    for batch in batches:
        for start in range(0, batch.num_rows, few):
            piece = batch.slice(start, few)
            wait = began + gone / rate - clock()
            if wait > 0:
                sleep(wait)
            gone += piece.num_rows
            yield piece


# -- names -----------------------------------------------------------------------------------------


def job_name(kind: str, **said: object) -> str:
    """Return a name that depends only on the job's arguments: repeated runs have the same name."""
    text = json.dumps(said, sort_keys=True, default=str)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def short_name(name: str) -> str:
    """Return a name that the sink accepts; the end of a long name is replaced by a digest."""
    data = name.encode()
    if len(data) <= _NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(data).hexdigest()[:16]
    return data[: _NAME_BYTES_MAX - 17].decode("utf-8", "ignore") + "-" + digest


#: The maximum size of a publisher's name that the sink accepts.
_NAME_BYTES_MAX: Final = 128
