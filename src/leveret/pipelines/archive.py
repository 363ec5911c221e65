"""A stream to Parquet files, exactly once: each message is in the archive once, whatever fails.

Spark's own file sink does it: a batch's offsets are in the checkpoint before it is read, its files
count only once the sink's log names them, and a batch that was cut short is read again over the
same offsets.  So an archive and its checkpoint belong together: the sink knows batches by number
only, and with a new checkpoint would skip as many as it has.  That is refused at the start.

Files lie in `stream=<name>/date=<day>`.  The day is that of the broker's timestamp, else (RabbitMQ
gives none) of the publisher's, else the day of archiving.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.pipelines.source import DATE_COLUMN, STREAM_COLUMN, stream_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Under the archive unless said otherwise; Spark does not read what begins with an underscore.
CHECKPOINT: Final = "_checkpoint"

#: The messages of one batch: files of a useful size, and not too much to read again.
BATCH_RECORDS: Final = 1_000_000

#: Batches of one run whose progress is kept to be counted.
_PROGRESS_KEPT: Final = 1_000_000
_PROGRESS_SETTING: Final = "spark.sql.streaming.numRecentProgressUpdates"


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What one run has archived: `records` messages, the last of them before `next_offset`.

    `next_offset` is None when there was nothing to look at.
    """

    path: str
    stream: str
    records: int
    batches: int
    next_offset: int | None


def archive(
    spark: SparkSession,
    uri: str,
    stream: str,
    path: str | Path,
    *,
    checkpoint: str | Path | None = None,
    password_env: str | None = None,
    max_offsets_per_trigger: int = BATCH_RECORDS,
    compression: str = "zstd",
    options: Mapping[str, str] | None = None,
) -> ArchiveResult:
    """Archive what a stream holds now and was not archived yet; return what that was.

    The first run starts at the earliest message, every later one where the last ended.  `options`
    are further options of the data source, such as `failOnDataLoss`.

    Raises: ValueError for a checkpoint that is not the archive's; StreamingQueryException, whose
    text holds the cause.
    """
    with _counting(spark):
        query = start_archive(
            spark,
            uri,
            stream,
            path,
            checkpoint=checkpoint,
            password_env=password_env,
            max_offsets_per_trigger=max_offsets_per_trigger,
            compression=compression,
            options=options,
            trigger={"availableNow": True},
        )
    query.awaitTermination()
    return _result(query, str(path), stream)


def start_archive(
    spark: SparkSession,
    uri: str,
    stream: str,
    path: str | Path,
    *,
    checkpoint: str | Path | None = None,
    password_env: str | None = None,
    max_offsets_per_trigger: int = BATCH_RECORDS,
    compression: str = "zstd",
    options: Mapping[str, str] | None = None,
    trigger: Mapping[str, str | bool] | None = None,
) -> StreamingQuery:
    """Start archiving a stream and go on until stopped; `trigger` as in `DataStreamWriter`.

    By default a batch begins every minute, because each makes at least one file.

    Raises: ValueError for a checkpoint that is not the archive's.
    """
    kept = str(checkpoint or Path(path) / CHECKPOINT)
    _check_checkpoint(spark, str(path), kept)
    texts = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(max_offsets_per_trigger),
        **stream_options(uri, stream, password_env, options),
    }
    rows = spark.readStream.format("leveret").options(**texts).load()
    writer = (
        with_date(rows)
        .writeStream.format("parquet")
        .queryName(f"leveret archive {stream}")
        .outputMode("append")
        .partitionBy(STREAM_COLUMN, DATE_COLUMN)
        .option("path", str(path))
        .option("checkpointLocation", kept)
        .option("compression", compression)
    )
    chosen = dict(trigger or {"processingTime": "1 minute"})
    return writer.trigger(**chosen).start()  # type: ignore[arg-type]  # one of its overloads


def with_date(rows: DataFrame) -> DataFrame:
    """Return rows with the day that they are filed under; a replayed batch gets the same days."""
    from pyspark.sql import functions as f

    # In a streaming query the current time is that of the batch, kept in its checkpoint.
    moment = f.coalesce(f.col("timestamp"), f.col("properties.timestamp"), f.current_timestamp())
    return rows.withColumn(DATE_COLUMN, f.to_date(moment))


def _check_checkpoint(spark: SparkSession, path: str, checkpoint: str) -> None:
    """Refuse to go on with an archive by a checkpoint that has never seen it.

    Raises: ValueError.
    """
    if _exists(spark, f"{path}/_spark_metadata") and not _exists(spark, f"{checkpoint}/metadata"):
        raise ValueError(
            f"{path} is an archive already, and {checkpoint} is not its checkpoint: with another "
            "one messages would be left out. Name the right checkpoint or another path."
        )


def _exists(spark: SparkSession, path: str) -> bool:
    """Tell whether a path exists, on whatever file system Spark reads it from."""
    context = spark.sparkContext
    # PySpark has no way of its own to ask a file system.
    jvm: Any = context._jvm  # noqa: SLF001
    hadoop = context._jsc.hadoopConfiguration()  # noqa: SLF001
    place = jvm.org.apache.hadoop.fs.Path(path)
    return bool(place.getFileSystem(hadoop).exists(place))


@contextmanager
def _counting(spark: SparkSession) -> Iterator[None]:
    """Have a query that starts meanwhile keep the progress of all its batches."""
    before = spark.conf.get(_PROGRESS_SETTING, "100")
    spark.conf.set(_PROGRESS_SETTING, str(_PROGRESS_KEPT))
    try:
        yield
    finally:
        spark.conf.set(_PROGRESS_SETTING, str(before))


def _result(query: StreamingQuery, path: str, stream: str) -> ArchiveResult:
    """Return what the batches of a finished query have read."""
    progress = query.recentProgress
    batches = [p for p in progress if p.numInputRows > 0]
    ends = [json.loads(p.sources[0].endOffset) for p in progress]
    return ArchiveResult(
        path=path,
        stream=stream,
        records=sum(p.numInputRows for p in batches),
        batches=len(batches),
        next_offset=ends[-1][stream] if ends else None,
    )
