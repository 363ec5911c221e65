"""Messages of a stream or an archive published again: in order, once, at a chosen rate.

Each source (a stream, or a stream in an archive) is one publisher of its own, and a message's
publishing id is its offset.  One task at a time publishes a source, sorted by offset: so the order
of the source is kept, whatever the key, and a broker that knows the publisher drops what it took
already.  Running the same job again therefore adds nothing but what is new.

It goes in steps of offsets.  A checkpoint file says up to where all is confirmed, so that a run
after a crash begins there and repeats less than a step, which the broker drops.

Not sent again: the header CC, which Spark holds as text and a broker takes as a list only, the
headers of a dead letter's death, and the property user_id, which must be the login's.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipelines.progress import Say, stages
from leveret.pipelines.refusals import JobError, at_least

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from leveret.spark.write.result import WriteResult

#: Offsets of one step: a save of its own, and what a run after a crash repeats at most.
STEP_RECORDS: Final = 1_000_000

#: About how long a step lasts at a rate.
STEP_SECONDS: Final = 30

#: Rows that Spark hands to a sink at once; with a rate, so few that a second has several.
_ARROW_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ARROW_RECORDS_MAX: Final = 10_000
_PACES_A_SECOND: Final = 10

#: Headers that are not sent again, beside those that begin as a death's do.
_NOT_AGAIN: Final = ("CC", "BCC")
_OF_DEATHS: Final = ("x-death", "x-first-death-", "x-last-death-")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where messages go: to one exchange, stream or queue, or to where their columns say.

    `dedup` False is for brokers that drop nothing twice: then a repeated run publishes again.
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
    """Offsets of one source, from `start` up to before `end`, and how to read some of them.

    `stream_id` says which stream of its name the source is, where that is known.
    """

    source: str
    start: int
    end: int
    read: Callable[[int, int], DataFrame]
    stream_id: str | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """What one run has sent: `messages` in all, of which the broker dropped some.

    `known` are those that it had taken before, `unroutable` those that no queue took, be it that
    they went to a dead-letter exchange.
    """

    name: str
    messages: int
    next_offsets: Mapping[str, int]
    known: int = 0
    unroutable: int = 0

    @property
    def published(self) -> int:
        """How many messages are in a queue or stream by this run."""
        return self.messages - self.known - self.unroutable

    @property
    def dropped_words(self) -> str:
        """What was dropped, for a person; empty where nothing was."""
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
    """Publish parts one after the other; `rate` is messages a second at most.

    Raises: JobError for a checkpoint of another job; what Spark raises, with the sink's reason.
    """
    at_least("step", step, 1)
    if rate is not None:
        at_least("rate", rate, 1)
        # So that something is said, and noted, while a slow one goes on.
        step = min(step, rate * STEP_SECONDS)
    kept = Checkpoint(checkpoint, name)
    total = known = unroutable = 0
    for part in parts:
        kept.meet(part.source, part.stream_id)
        start = max(part.start, kept.next_offset(part.source))
        while start < part.end:
            end = min(part.end, (start // step + 1) * step)
            what = f"{part.source}: offsets {start:,} to {end - 1:,} of {part.end:,}"
            with stages(spark, progress, what):
                rows = part.read(start, end)
                done = _send_step(spark, rows, f"{name}-{part.source}", destination, rate)
            total += done.rows
            known += done.dropped
            unroutable += done.unroutable
            kept.advance(part.source, end)
            if progress is not None:
                progress(f"{part.source}: all before offset {end:,} confirmed; {total:,} in all")
            start = end
    ends = {part.source: part.end for part in parts}
    return Sent(name, total, ends, known, unroutable)


def _send_step(
    spark: SparkSession, rows: DataFrame, publisher: str, destination: Destination, rate: int | None
) -> WriteResult:
    """Publish the rows of a step, which are in order; return what came of them."""
    from leveret.spark.write.result import WriteResult, read_results

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
    """Return the columns that the sink takes."""
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
    """Have Spark hand over few rows at once while the block runs, where there is a rate."""
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
    """Return how many rows go on together at a rate."""
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
    """Yield the rows of batches, a few together, so that no second has more than `rate`."""
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
    """Return a name that the same job has again, and another one has not."""
    text = json.dumps(said, sort_keys=True, default=str)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def short_name(name: str) -> str:
    """Return a name as the sink takes it; a long one ends in a digest of its end."""
    data = name.encode()
    if len(data) <= _NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(data).hexdigest()[:16]
    return data[: _NAME_BYTES_MAX - 17].decode("utf-8", "ignore") + "-" + digest


#: What the sink takes as a publisher's name.
_NAME_BYTES_MAX: Final = 128


class Checkpoint:
    """Up to where each source is published, in a file that is replaced whole; or nowhere.

    Raises: JobError for the file of another job, or one that is none.
    """

    def __init__(self, path: str | Path | None, name: str) -> None:
        self._path = None if path is None else Path(path)
        self._name = name
        self._next: dict[str, int] = {}
        #: Which stream of its name each source is, where a broker tells that.
        self._ids: dict[str, str] = {}
        if self._path is None or not self._path.exists():
            return
        try:
            held = json.loads(self._path.read_bytes())
            self._next = {str(key): int(value) for key, value in held["next_offsets"].items()}
            self._ids = {str(key): str(one) for key, one in held.get("stream_ids", {}).items()}
            name = str(held["name"])
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise JobError(f"checkpoint {self._path}: this is none: {error}") from None
        if name != self._name:
            raise JobError(
                f"checkpoint {self._path} is of {name}, and this is {self._name}: another source, "
                "destination or choice of messages. Name another file, or that job's `name`."
            )

    def meet(self, source: str, stream_id: str | None) -> None:
        """Take note of which stream a source is.

        Raises: JobError when another one of its name was published: the offsets are not of this.
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
        """Return the first offset that is not known to be published."""
        return self._next.get(source, 0)

    def advance(self, source: str, offset: int) -> None:
        """Note that all before an offset is confirmed."""
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
