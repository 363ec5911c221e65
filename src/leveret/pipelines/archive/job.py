"""Archives streams in a lake, exactly once, even after failures.

For Parquet, the default, Spark's file sink ensures this.  The offsets of a batch are written to the
checkpoint before the batch is read, its files count only when the sink's log names them, and an
interrupted batch is repeated with the same offsets.  For a Delta or Iceberg table, each batch is
one commit of the table, which records the number of the batch (`lakes/`).

An archive needs its own checkpoint.  The sinks identify batches only by number, so with a new
checkpoint they would skip as many batches as the archive has, or write all of them again.  Such a
start is refused.

Rows are partitioned by stream and date, and optionally by hour.  The time is the broker's; if a
message has none, as in RabbitMQ, the publisher's; otherwise the time of archiving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipelines.archive.measure import METADATA, archive_size, exists, oldest_unarchived
from leveret.pipelines.archive.result import ArchiveResult, Batch, Measured
from leveret.pipelines.lakes import FORMATS as LAKES
from leveret.pipelines.lakes import LakeOptions, TableSize, open_lake
from leveret.pipelines.options import source_options, takes
from leveret.pipelines.pages.origin import command_line, path_text
from leveret.pipelines.progress import Say, follow
from leveret.pipelines.refusals import JobError, one_of
from leveret.pipelines.source import (
    DATE_COLUMN,
    HOUR_COLUMN,
    PARTITION_COLUMNS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: The default directory below the archive; Spark does not read names that begin with `_`.
CHECKPOINT: Final = "_checkpoint"

#: The messages of one batch: enough for files of a useful size, and few enough to repeat.
BATCH_RECORDS: Final = 1_000_000

#: The setting that makes Spark retain the progress of all batches of a run, for the totals.
_COUNTING: Final = {"spark.sql.streaming.numRecentProgressUpdates": "1000000"}

#: The setting for the number of partitions to which a task writes concurrently; for more of them it
#: sorts its rows first.
_WRITING: Final = {"spark.sql.maxConcurrentOutputFileWriters": "16"}

#: The name of what Spark sums up while it writes a batch.
_OBSERVED: Final = "archived"

#: The maximum number of batches in the result of a run.
STEPS_KEPT: Final = 2000

#: Parquet's options: no dictionaries for columns with distinct values, which would be built and
#: then discarded, and a low compression level, since a high level takes more time than everything
#: else.
_PARQUET: Final = {
    "parquet.enable.dictionary#body": "false",
    "parquet.enable.dictionary#offset": "false",
    "parquet.enable.dictionary#timestamp": "false",
    "parquet.compression.codec.zstd.level": "1",
    "parquet.compression.codec.zstd.bufferPool.enabled": "true",
}

#: The formats of an archive, and the units of its partitions.
FORMATS: Final = ("parquet", *LAKES)
PARTITIONS: Final = ("date", "hour")


@dataclass(frozen=True)
class ArchiveOptions:
    """The options of an archive: its source, its path and its format."""

    uri: str = field(repr=False)
    stream: str | Sequence[str]
    path: str | Path
    _: KW_ONLY
    format: str = "parquet"
    partition_by: str = "date"
    table: str = ""
    catalog: str = ""
    checkpoint: str | Path | None = None
    password_env: str | None = None
    max_offsets_per_trigger: int = BATCH_RECORDS
    compression: str = "zstd"
    options: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Check the options.  Raises: JobError."""
        one_of("format", self.format, FORMATS)
        one_of("partition_by", self.partition_by, PARTITIONS)
        if (self.table or self.catalog) and self.format != "iceberg":
            raise JobError("table and catalog: only for the format iceberg")

    @property
    def kept(self) -> str:
        """The directory of the checkpoint."""
        return str(self.checkpoint or Path(self.path) / CHECKPOINT)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that partition the archive."""
        return PARTITION_COLUMNS[: 2 + PARTITIONS.index(self.partition_by)]

    @property
    def lake(self) -> LakeOptions:
        """The identity of a Delta or Iceberg table."""
        return LakeOptions(
            self.format, str(self.path), self.columns, self.compression, self.table, self.catalog
        )

    @property
    def title(self) -> str:
        """The names of the streams, for people."""
        return self.stream if isinstance(self.stream, str) else ", ".join(self.stream)

    def source(self) -> dict[str, str]:
        """Return the options of the data source, for one stream or several."""
        texts = {
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self.max_offsets_per_trigger),
            **source_options(self.uri, self.password_env, self.options),
        }
        if isinstance(self.stream, str):
            return texts | {"stream": self.stream}
        return texts | {"streams": ",".join(self.stream)}


@dataclass(frozen=True, kw_only=True)
class RunOptions(ArchiveOptions):
    """The options of a run, which ends when all current messages are archived."""

    html_path: str | Path | None = None
    progress: Say | None = None


@dataclass(frozen=True, kw_only=True)
class QueryOptions(ArchiveOptions):
    """The options of a query that runs until it is stopped."""

    trigger: Mapping[str, str | bool] | None = None


@takes(RunOptions)
def archive(spark: SparkSession, job: RunOptions) -> ArchiveResult:
    """Archive the messages of streams that are not archived yet; return the result.

    `uri` is the broker, and `path` a directory or a location that the format can write to.  The
    first run starts at the earliest message, and each later run where the last one ended, which
    `checkpoint` stores (by default in the archive).

    `format` is `parquet`, `delta` or `iceberg`.  For an Iceberg table, `table` is its name, and
    `catalog` is a catalog in pyiceberg's configuration.  `partition_by` is `date` or `hour`.
    `max_offsets_per_trigger` is the number of messages of one batch.  `password_env` names the
    environment variable with the password.  `options` are further options of the data source, such
    as `failOnDataLoss`.  If `html_path` is given, a page about the run is written to it.
    `progress` is called with a line of text after each batch.

    Raises: JobError (a ValueError) for invalid arguments, such as a checkpoint of another archive;
    ImportError if the format's package is not installed; StreamingQueryException, with the cause in
    its text.
    """
    before = TableSize() if job.html_path is None else archive_size(spark, job)
    with _set(spark, _COUNTING):
        query = _start(spark, job, None)
    follow(query, job.progress)
    result = _result(query, job)
    if job.html_path is not None:
        result = replace(result, measured=_measured(spark, job, result, before))
        from leveret.pipelines.archive.page import archive_page
        from leveret.pipelines.pages.document import write_page

        names = job.stream if isinstance(job.stream, str) else ",".join(job.stream)
        command = command_line(
            "archive", names, str(job.path), format=job.format, partition_by=job.partition_by,
            table=job.table, catalog=job.catalog, checkpoint=path_text(job.checkpoint), uri=job.uri,
        )  # fmt: skip
        write_page(job.html_path, archive_page(result, command))
    return result


@takes(QueryOptions)
def start_archive(spark: SparkSession, job: QueryOptions) -> StreamingQuery:
    """Start a query that archives until it is stopped.

    `trigger` is that of `DataStreamWriter.trigger`, such as `{"processingTime": "5 minutes"}`.  By
    default, a batch starts every minute, because each batch writes at least one file.  The other
    arguments are those of `archive`.

    Raises: as `archive`.
    """
    return _start(spark, job, job.trigger or {"processingTime": "1 minute"})


def _start(
    spark: SparkSession, job: ArchiveOptions, trigger: Mapping[str, str | bool] | None
) -> StreamingQuery:
    """Start the query that archives; without a trigger, it ends after the current messages."""
    from pyspark.sql import functions as f

    from leveret.spark import in_thread, start_available

    rows = spark.readStream.format("leveret").options(**job.source()).load()
    rows = filed(rows, job.partition_by).observe(
        _OBSERVED, f.coalesce(f.sum(f.length("body")), f.lit(0)).alias("bytes")
    )
    make = _to_parquet if job.format == "parquet" else _to_lake
    writer = make(spark, rows, job)
    writer = writer.queryName(f"leveret archive {job.title}").outputMode("append")
    writer = writer.option("checkpointLocation", job.kept)
    with _set(spark, _WRITING):
        in_thread(spark)  # a job may be called from any thread
        if trigger is None:
            return start_available(writer)
        return writer.trigger(**trigger).start()  # type: ignore[arg-type]  # one of its overloads


def _to_parquet(spark: SparkSession, rows: DataFrame, job: ArchiveOptions) -> DataStreamWriter:
    """Return a writer to Parquet files."""
    _check_checkpoint(spark, job, there=exists(spark, f"{job.path}/{METADATA}"))
    writer = rows.writeStream.format("parquet").partitionBy(*job.columns)
    return writer.options(path=str(job.path), compression=job.compression, **_PARQUET)


def _to_lake(spark: SparkSession, rows: DataFrame, job: ArchiveOptions) -> DataStreamWriter:
    """Return a writer to a Delta or Iceberg table, and create the table if necessary."""
    from leveret.pipelines.lakes.sink import FORMAT, LakeSink, to_options
    from leveret.spark.versions import arrow_schema

    lake = open_lake(job.lake)
    _check_checkpoint(spark, job, there=lake.exists())
    lake.create(arrow_schema(rows.schema))
    spark.dataSource.register(LakeSink)
    return rows.writeStream.format(FORMAT).options(**to_options(job.lake))


def filed(rows: DataFrame, partition_by: str = "date") -> DataFrame:
    """Add the columns of the date and, optionally, the hour, by which rows are partitioned.

    Dates and hours are in UTC in a session that `leveret.spark.session` created.  A repeated batch
    has the same partitions.
    """
    from pyspark.sql import functions as f

    # In a streaming query, the current time is that of the batch, stored in the checkpoint.
    moment = f.coalesce(f.col("timestamp"), f.col("properties.timestamp"), f.current_timestamp())
    rows = rows.withColumn(DATE_COLUMN, f.to_date(moment))
    return rows.withColumn(HOUR_COLUMN, f.hour(moment)) if partition_by == "hour" else rows


def _check_checkpoint(spark: SparkSession, job: ArchiveOptions, *, there: bool) -> None:
    """Check that an existing archive is continued with its own checkpoint.

    Raises: JobError.
    """
    if there and not exists(spark, f"{job.kept}/metadata"):
        raise JobError(
            f"{job.path} already contains an archive, and {job.kept} is not its checkpoint: with "
            "another checkpoint, messages would be missing or duplicated. Name the right "
            "checkpoint or another path."
        )


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change Spark's settings inside the block; a query started there keeps them to its end."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def _result(query: StreamingQuery, job: ArchiveOptions) -> ArchiveResult:
    """Return the result of a finished query."""
    from leveret.spark.listener import lag_of
    from leveret.spark.offsets import from_json
    from leveret.spark.versions import offset_in_progress

    progress = query.recentProgress
    batches = [p for p in progress if p.numInputRows > 0]
    ends = [from_json(offset_in_progress(p.sources[0].endOffset) or {}).offsets for p in progress]
    offsets = ends[-1] if ends else {}
    # The first run has no start offset, which Spark writes as null.
    began = offset_in_progress(progress[0].sources[0].startOffset) if progress else None
    lag = lag_of(progress[-1]) if progress else None
    return ArchiveResult(
        path=str(job.path),
        stream=job.title,
        records=sum(p.numInputRows for p in batches),
        batches=len(batches),
        next_offset=offsets.get(job.stream) if isinstance(job.stream, str) else None,
        next_offsets=offsets,
        first_offsets=from_json(began).offsets if began else {},
        steps=tuple(
            Batch(
                p.batchId,
                datetime.fromisoformat(p.timestamp),
                p.durationMs.get("triggerExecution", 0) / 1000,
                p.numInputRows,
            )
            for p in batches[-STEPS_KEPT:]
        ),
        body_bytes=sum(p.observedMetrics[_OBSERVED]["bytes"] for p in batches),
        lag={} if lag is None else lag.streams,
    )


def _measured(
    spark: SparkSession, job: ArchiveOptions, result: ArchiveResult, before: TableSize
) -> Measured:
    """Return the archive's size and age; `before` is its size before the run."""
    after = archive_size(spark, job)
    # Another program may have merged or removed files meanwhile.
    added = TableSize(max(0, after.files - before.files), max(0, after.bytes - before.bytes))
    return Measured(after, added, oldest_unarchived(spark, job, result.next_offsets, result.lag))
