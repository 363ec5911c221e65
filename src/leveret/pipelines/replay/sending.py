"""Publishing messages of a stream or an archive again: in order, once, at a chosen rate.

Each source (a stream, or a stream in an archive) is one publisher, and a message's publishing id is
its offset.  One task at a time publishes a source, sorted by offset: this keeps the order of the
source, whatever the key, and a broker that knows the publisher drops what it received already.
Running the same job again therefore adds only new messages.

The job works in steps of offsets.  A checkpoint file stores up to where all is confirmed, so that a
run after a crash begins there and repeats less than a step, which the broker drops.

Not sent again are the header CC, which Spark holds as text and a broker accepts as a list only, the
headers of a dead letter's death, and the property user_id, which must be that of the login.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipelines.progress import Say, stages
from leveret.pipelines.refusals import JobError, at_least

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from leveret.spark.write.result import WriteResult

#: The offsets of one step: the interval of saves, and the most that a crash makes a run repeat.
STEP_RECORDS: Final = 1_000_000

#: The approximate duration of a step if there is a rate.
STEP_SECONDS: Final = 30

#: The steps of one run in its result.
STEPS_KEPT: Final = 2000

#: How many rows Spark passes to a sink at once; with a rate, so few that a second has several
#: batches.
_ARROW_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ARROW_RECORDS_MAX: Final = 10_000
_PACES_A_SECOND: Final = 10

#: Headers that are not sent again, besides those that begin with a death's prefixes.
_NOT_AGAIN: Final = ("CC", "BCC")
_OF_DEATHS: Final = ("x-death", "x-first-death-", "x-last-death-")


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of messages: one exchange, stream or queue, or from their columns.

    `dedup` False is for brokers without deduplication: then a repeated run publishes again.
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

    def sink_options(self, publisher: str) -> dict[str, str]:
        """Return the options of the sink."""
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


@dataclass(frozen=True, slots=True)
class Part:
    """Offsets of one source, `start` to before `end`, and how to read some of them.

    `stream_id` identifies the stream of its name, if it is known.
    """

    source: str
    start: int
    end: int
    read: Callable[[int, int], DataFrame]
    stream_id: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step: messages of a source from an offset to before another, and when it ran."""

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
    """The result of one run: `messages` in all, of which the broker dropped some.

    It had received `known` before, and no queue took `unroutable`, even if they went to a
    dead-letter exchange.  `steps` are the last steps, `STEPS_KEPT` at most, of `steps_total`.
    """

    name: str
    messages: int
    next_offsets: Mapping[str, int]
    known: int = 0
    unroutable: int = 0
    steps: tuple[Step, ...] = ()
    steps_total: int = 0

    @property
    def published(self) -> int:
        """The number of messages that this run put into a queue or stream."""
        return self.messages - self.known - self.unroutable

    @property
    def dropped_words(self) -> str:
        """Describe the dropped messages, for people; empty if there were none."""
        known = f"{self.known} dropped as published before" if self.known else ""
        lost = f"{self.unroutable} that no queue took" if self.unroutable else ""
        return "".join(f"; {words}" for words in (known, lost) if words)


def send(
    spark: SparkSession,
    parts: list[Part],
    name: str,
    destination: Destination,
    *,
    rate: int | None = None,
    step: int = STEP_RECORDS,
    checkpoint: str | Path | None = None,
    progress: Say | None = None,
) -> Sent:
    """Publish parts one after the other; `rate` is the maximal number of messages a second.

    Raises: JobError for a checkpoint of another job; Spark's exceptions, with the sink's reason.
    """
    at_least("step", step, 1)
    if rate is not None:
        at_least("rate", rate, 1)
        # A slow run also reports and saves its progress regularly.
        step = min(step, rate * STEP_SECONDS)
    kept = Checkpoint(checkpoint, name)
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
    """Publish the rows of a step, which are in order; return the result."""
    from leveret.spark import in_thread
    from leveret.spark.write.result import WriteResult, read_results

    in_thread(spark)  # a job may be called in any thread
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
    """Make Spark pass few rows at once while the block runs, if there is a rate."""
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
    """Return how many rows are passed together at a rate."""
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
    """Yield the rows of batches in small groups, so that no second has more than `rate`."""
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


# -- names and checkpoints -------------------------------------------------------------------------


def job_name(kind: str, **said: object) -> str:
    """Return a name that depends only on the job, so that a repeated job has it again."""
    text = json.dumps(said, sort_keys=True, default=str)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def short_name(name: str) -> str:
    """Return a name that the sink accepts; a long one ends in a digest of its end."""
    data = name.encode()
    if len(data) <= _NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(data).hexdigest()[:16]
    return data[: _NAME_BYTES_MAX - 17].decode("utf-8", "ignore") + "-" + digest


#: The publishers' names that the sink accepts.
_NAME_BYTES_MAX: Final = 128


class Checkpoint:
    """The published offsets of each source, in a file that is replaced as a whole, or nowhere.

    Raises: JobError for the file of another job, or one that is no checkpoint.
    """

    def __init__(self, path: str | Path | None, name: str) -> None:
        self._path = None if path is None else Path(path)
        self._name = name
        self._next: dict[str, int] = {}
        #: The id of each source's stream, if the broker gives one.
        self._ids: dict[str, str] = {}
        if self._path is None or not self._path.exists():
            return
        try:
            held = json.loads(self._path.read_bytes())
            self._next = {str(key): int(value) for key, value in held["next_offsets"].items()}
            self._ids = {str(key): str(one) for key, one in held.get("stream_ids", {}).items()}
            name = str(held["name"])
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise JobError(f"checkpoint {self._path}: not a checkpoint: {error}") from None
        if name != self._name:
            raise JobError(
                f"checkpoint {self._path} is of {name}, and this is {self._name}: another source, "
                "destination or choice of messages. Name another file, or that job's `name`."
            )

    def meet(self, source: str, stream_id: str | None) -> None:
        """Record the id of a source's stream.

        Raises: JobError if another stream of its name was published: its offsets do not apply to
        this one.
        """
        if stream_id is None:
            return
        known = self._ids.setdefault(source, stream_id)
        if known != stream_id:
            raise JobError(
                f"checkpoint {self._path}: stream {source!r} was deleted and declared again since: "
                f"its id was {known} and is {stream_id}. To publish the new one, give the job a "
                "`name` of its own and another file."
            )

    def next_offset(self, source: str) -> int:
        """Return the first offset that may be unpublished."""
        return self._next.get(source, 0)

    def advance(self, source: str, offset: int) -> None:
        """Record that all messages before an offset are confirmed."""
        self._next[source] = offset
        if self._path is None:
            return
        held: dict[str, object] = {"name": self._name, "next_offsets": self._next}
        if self._ids:
            held["stream_ids"] = self._ids
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(self._path.name + ".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(held, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
