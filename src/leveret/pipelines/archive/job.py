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

import json
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.pipelines.archive.result import ArchiveResult, Batch
from leveret.pipelines.lakes import FORMATS as LAKES
from leveret.pipelines.lakes import LakeOptions, open_lake
from leveret.pipelines.pages.origin import command_line, path_text
from leveret.pipelines.progress import Say, follow
from leveret.pipelines.refusals import JobError, one_of
from leveret.pipelines.source import (
    DATE_COLUMN,
    HOUR_COLUMN,
    PARTITION_COLUMNS,
    stream_options,
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


def archive(
    spark: SparkSession,
    uri: str,
    stream: str | Sequence[str],
    path: str | Path,
    *,
    format: str = "parquet",
    partition_by: str = "date",
    table: str = "",
    catalog: str = "",
    checkpoint: str | Path | None = None,
    password_env: str | None = None,
    max_offsets_per_trigger: int = BATCH_RECORDS,
    compression: str = "zstd",
    options: Mapping[str, str] | None = None,
    html_path: str | Path | None = None,
    progress: Say | None = None,
) -> ArchiveResult:
    """Archive the messages of streams that are not archived yet; return the result.

    The first run starts at the earliest message, every later one where the last ended.  `format` is
    `parquet`, `delta` or `iceberg`; for an Iceberg table `table` is the name and `catalog` one of
    pyiceberg's configuration.  `partition_by` is `date` or `hour`.  `options` are further options
    of the data source, such as `failOnDataLoss`.  `html_path` is where a page is written.

    Raises: JobError (a ValueError) for invalid arguments, such as a checkpoint of another archive;
    ImportError without the format's package; StreamingQueryException with the cause in its text.
    """
    with _set(spark, _COUNTING):
        query = start_archive(
            spark,
            uri,
            stream,
            path,
            format=format,
            partition_by=partition_by,
            table=table,
            catalog=catalog,
            checkpoint=checkpoint,
            password_env=password_env,
            max_offsets_per_trigger=max_offsets_per_trigger,
            compression=compression,
            options=options,
            trigger={"availableNow": True},
        )
    follow(query, progress)
    result = _result(query, str(path), stream)
    if html_path is not None:
        from leveret.pipelines.archive.page import archive_page
        from leveret.pipelines.pages.document import write_page

        names = stream if isinstance(stream, str) else ",".join(stream)
        command = command_line(
            "archive", names, str(path), format=format, partition_by=partition_by, table=table,
            catalog=catalog, checkpoint=path_text(checkpoint), uri=uri,
        )  # fmt: skip
        write_page(html_path, archive_page(result, command))
    return result


def start_archive(
    spark: SparkSession,
    uri: str,
    stream: str | Sequence[str],
    path: str | Path,
    *,
    format: str = "parquet",
    partition_by: str = "date",
    table: str = "",
    catalog: str = "",
    checkpoint: str | Path | None = None,
    password_env: str | None = None,
    max_offsets_per_trigger: int = BATCH_RECORDS,
    compression: str = "zstd",
    options: Mapping[str, str] | None = None,
    trigger: Mapping[str, str | bool] | None = None,
) -> StreamingQuery:
    """Start archiving and continue until stopped; `trigger` as in `DataStreamWriter`.

    By default a batch begins every minute, because each writes at least one file.

    Raises: as `archive`.
    """
    from leveret.spark import in_thread

    one_of("format", format, FORMATS)
    one_of("partition_by", partition_by, PARTITIONS)
    if (table or catalog) and format != "iceberg":
        raise JobError("table and catalog: only an Iceberg table has them")
    kept = str(checkpoint or Path(path) / CHECKPOINT)
    texts = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(max_offsets_per_trigger),
        **_source(uri, stream, password_env, options),
    }
    columns = PARTITION_COLUMNS[: 2 + PARTITIONS.index(partition_by)]
    rows = filed(spark.readStream.format("leveret").options(**texts).load(), partition_by)
    lake = LakeOptions(format, str(path), columns, compression, table, catalog)
    if format == "parquet":
        _check_checkpoint(spark, str(path), kept, there=_exists(spark, f"{path}/_spark_metadata"))
        writer = rows.writeStream.format("parquet").partitionBy(*columns)
        writer = writer.options(path=str(path), compression=compression, **_PARQUET)
    else:
        writer = _to_lake(spark, rows, lake, kept)
    writer = writer.queryName(f"leveret archive {_title(stream)}").outputMode("append")
    chosen = dict(trigger or {"processingTime": "1 minute"})
    writer = writer.option("checkpointLocation", kept).trigger(**chosen)  # type: ignore[arg-type]  # one of its overloads
    with _set(spark, _WRITING):
        in_thread(spark)  # a job may be called in any thread
        return writer.start()


def _to_lake(
    spark: SparkSession, rows: DataFrame, options: LakeOptions, checkpoint: str
) -> DataStreamWriter:
    """Return the writer to a table, which is created if it is new."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from leveret.pipelines.lakes.sink import FORMAT, LakeSink, to_options

    lake = open_lake(options)
    _check_checkpoint(spark, options.path, checkpoint, there=lake.exists())
    lake.create(to_arrow_schema(rows.schema, timezone="UTC"))
    spark.dataSource.register(LakeSink)
    return rows.writeStream.format(FORMAT).options(**to_options(options))


def _source(
    uri: str,
    stream: str | Sequence[str],
    password_env: str | None,
    options: Mapping[str, str] | None,
) -> dict[str, str]:
    """Return the source's options for one stream or several."""
    if isinstance(stream, str):
        return stream_options(uri, stream, password_env, options)
    texts = stream_options(uri, "", password_env, options)
    del texts["stream"]
    return texts | {"streams": ",".join(stream)}


def _title(stream: str | Sequence[str]) -> str:
    return stream if isinstance(stream, str) else ", ".join(stream)


def filed(rows: DataFrame, partition_by: str = "date") -> DataFrame:
    """Return rows with their partition, the day (and hour); a replayed batch gets the same ones.

    Days and hours are UTC in a session that `leveret.spark.session` made.
    """
    from pyspark.sql import functions as f

    # In a streaming query the current time is that of the batch, kept in its checkpoint.
    moment = f.coalesce(f.col("timestamp"), f.col("properties.timestamp"), f.current_timestamp())
    rows = rows.withColumn(DATE_COLUMN, f.to_date(moment))
    return rows.withColumn(HOUR_COLUMN, f.hour(moment)) if partition_by == "hour" else rows


def _check_checkpoint(spark: SparkSession, path: str, checkpoint: str, *, there: bool) -> None:
    """Refuse to continue an existing archive with a checkpoint that does not belong to it.

    Raises: JobError.
    """
    if there and not _exists(spark, f"{checkpoint}/metadata"):
        raise JobError(
            f"{path} is an archive already, and {checkpoint} is not its checkpoint: with another "
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


def _result(query: StreamingQuery, path: str, stream: str | Sequence[str]) -> ArchiveResult:
    """Return how much the batches of a finished query have read."""
    from leveret.spark.offsets import from_json

    progress = query.recentProgress
    batches = [p for p in progress if p.numInputRows > 0]
    ends = [from_json(json.loads(p.sources[0].endOffset)).offsets for p in progress]
    offsets = ends[-1] if ends else {}
    # The first run of all begins at no offset, which Spark writes as null.
    began = json.loads(progress[0].sources[0].startOffset or "null") if progress else None
    return ArchiveResult(
        path=path,
        stream=_title(stream),
        records=sum(p.numInputRows for p in batches),
        batches=len(batches),
        next_offset=offsets.get(stream) if isinstance(stream, str) else None,
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
