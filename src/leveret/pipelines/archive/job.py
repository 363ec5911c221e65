"""Streams to a lake, exactly once: each message is in the archive once, whatever fails.

For Parquet, the default, Spark's own file sink ensures this: the offsets of a batch are in the
checkpoint before it is read, its files count only once the sink's log names them, and an
interrupted batch is read again over the same offsets.  For a Delta or Iceberg table each batch is
one commit of the table, which records the batch's number (`lakes/`).

An archive and its checkpoint belong together: the sinks know batches by number only, and with a new
checkpoint would skip as many batches as they have, or write all again.  Such a start is refused.

Rows are partitioned by stream and day, or hour too.  The time is that of the broker; without one
(RabbitMQ has none) that of the publisher, else that of archiving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.pipelines.archive.result import ArchiveResult, Batch
from leveret.pipelines.lakes import FORMATS as LAKES
from leveret.pipelines.lakes import LakeOptions, open_lake
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

#: The messages of one batch: enough for files of a useful size, and not too many to read again.
BATCH_RECORDS: Final = 1_000_000

#: Batches of one run whose progress is kept for the totals.
_COUNTING: Final = {"spark.sql.streaming.numRecentProgressUpdates": "1000000"}

#: How many days (hours, streams) a task writes to at once; for more it sorts its rows first.
_WRITING: Final = {"spark.sql.maxConcurrentOutputFileWriters": "16"}

#: Batches of one run in its result.
STEPS_KEPT: Final = 2000

#: For columns whose values differ in each row a dictionary would be built and then dropped; the
#: strongest compression of bodies takes more time than everything else.
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
    """The options of archiving: the source, the archive and its format."""

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
            raise JobError("table and catalog: only an Iceberg table has them")

    @property
    def kept(self) -> str:
        """The directory of the checkpoint."""
        return str(self.checkpoint or Path(self.path) / CHECKPOINT)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that partition the archive."""
        return PARTITION_COLUMNS[: 2 + PARTITIONS.index(self.partition_by)]

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
    """The options of one run, which ends when all present messages are archived."""

    html_path: str | Path | None = None
    progress: Say | None = None


@dataclass(frozen=True, kw_only=True)
class QueryOptions(ArchiveOptions):
    """The options of a query that runs until it is stopped."""

    trigger: Mapping[str, str | bool] | None = None


@takes(RunOptions)
def archive(spark: SparkSession, job: RunOptions) -> ArchiveResult:
    """Archive the messages of streams that are not archived yet; return the result.

    The first run starts at the earliest message, every later one where the last ended.  `format` is
    `parquet`, `delta` or `iceberg`; for an Iceberg table `table` is the name and `catalog` one of
    pyiceberg's configuration.  `partition_by` is `date` or `hour`.  `options` are further options
    of the data source, such as `failOnDataLoss`.  `html_path` is where a page is written.

    Raises: JobError (a ValueError) for invalid arguments, such as a checkpoint of another archive;
    ImportError without the format's package; StreamingQueryException with the cause in its text.
    """
    with _set(spark, _COUNTING):
        query = _start(spark, job, None)
    follow(query, job.progress)
    result = _result(query, job)
    if job.html_path is not None:
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
    """Start archiving and continue until stopped; `trigger` as in `DataStreamWriter`.

    By default a batch begins every minute, because each writes at least one file.

    Raises: as `archive`.
    """
    return _start(spark, job, job.trigger or {"processingTime": "1 minute"})


def _start(
    spark: SparkSession, job: ArchiveOptions, trigger: Mapping[str, str | bool] | None
) -> StreamingQuery:
    """Start the query that archives; without a trigger it ends with what is there."""
    from leveret.spark import in_thread, start_available

    rows = spark.readStream.format("leveret").options(**job.source()).load()
    rows = filed(rows, job.partition_by)
    make = _to_parquet if job.format == "parquet" else _to_lake
    writer = make(spark, rows, job)
    writer = writer.queryName(f"leveret archive {job.title}").outputMode("append")
    writer = writer.option("checkpointLocation", job.kept)
    with _set(spark, _WRITING):
        in_thread(spark)  # a job may be called in any thread
        if trigger is None:
            return start_available(writer)
        return writer.trigger(**trigger).start()  # type: ignore[arg-type]  # one of its overloads


def _to_parquet(spark: SparkSession, rows: DataFrame, job: ArchiveOptions) -> DataStreamWriter:
    """Return the writer to Parquet files."""
    _check_checkpoint(spark, job, there=_exists(spark, f"{job.path}/_spark_metadata"))
    writer = rows.writeStream.format("parquet").partitionBy(*job.columns)
    return writer.options(path=str(job.path), compression=job.compression, **_PARQUET)


def _to_lake(spark: SparkSession, rows: DataFrame, job: ArchiveOptions) -> DataStreamWriter:
    """Return the writer to a table, which is created if it is new."""
    from leveret.pipelines.lakes.sink import FORMAT, LakeSink, to_options
    from leveret.spark.versions import arrow_schema

    options = LakeOptions(
        job.format, str(job.path), job.columns, job.compression, job.table, job.catalog
    )
    lake = open_lake(options)
    _check_checkpoint(spark, job, there=lake.exists())
    lake.create(arrow_schema(rows.schema))
    spark.dataSource.register(LakeSink)
    return rows.writeStream.format(FORMAT).options(**to_options(options))


def filed(rows: DataFrame, partition_by: str = "date") -> DataFrame:
    """Return rows with their partition, the day (and hour); a replayed batch gets the same ones.

    Days and hours are UTC in a session that `leveret.spark.session` made.
    """
    from pyspark.sql import functions as f

    # In a streaming query the current time is that of the batch, kept in its checkpoint.
    moment = f.coalesce(f.col("timestamp"), f.col("properties.timestamp"), f.current_timestamp())
    rows = rows.withColumn(DATE_COLUMN, f.to_date(moment))
    return rows.withColumn(HOUR_COLUMN, f.hour(moment)) if partition_by == "hour" else rows


def _check_checkpoint(spark: SparkSession, job: ArchiveOptions, *, there: bool) -> None:
    """Refuse to continue an existing archive with a checkpoint that does not belong to it.

    Raises: JobError.
    """
    if there and not _exists(spark, f"{job.kept}/metadata"):
        raise JobError(
            f"{job.path} is an archive already, and {job.kept} is not its checkpoint: with another "
            "one messages would be missing or duplicated. Name the right checkpoint or "
            "another path."
        )


def _exists(spark: SparkSession, path: str) -> bool:
    """Return whether a path exists, on any file system that Spark can read."""
    context = spark.sparkContext
    # PySpark has no function of its own for this.
    jvm: Any = context._jvm  # noqa: SLF001
    hadoop = context._jsc.hadoopConfiguration()  # noqa: SLF001
    place = jvm.org.apache.hadoop.fs.Path(path)
    return bool(place.getFileSystem(hadoop).exists(place))


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings for the block; a query started in it keeps them to its end."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def _result(query: StreamingQuery, job: ArchiveOptions) -> ArchiveResult:
    """Return how much the batches of a finished query have read."""
    from leveret.spark.offsets import from_json
    from leveret.spark.versions import offset_in_progress

    progress = query.recentProgress
    batches = [p for p in progress if p.numInputRows > 0]
    ends = [from_json(offset_in_progress(p.sources[0].endOffset) or {}).offsets for p in progress]
    offsets = ends[-1] if ends else {}
    # The first run of all begins at no offset, which Spark writes as null.
    began = offset_in_progress(progress[0].sources[0].startOffset) if progress else None
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
    )
