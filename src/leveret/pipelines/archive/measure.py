"""Measures an archive for the page of a run: its files, and the oldest message not archived yet.

Sizes are those that the table's log states, so that no file is opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from leveret.pipelines.lakes import TableSize, open_lake
from leveret.pipelines.source import read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from leveret.pipelines.archive.job import ArchiveOptions

#: The log of Spark's file sink.  Every tenth batch or so, a file has the entries of all before.
METADATA: Final = "_spark_metadata"
_COMPACT: Final = ".compact"

#: The options of the source that choose messages, which are of no use for a single one.
_CHOOSING: Final = ("starting", "ending", "max", "min")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether a path exists, on any file system that Spark can read."""
    system, place = _hadoop(spark, path)
    return bool(system.exists(place))


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return a path's file system and the path, as Hadoop's objects."""
    context = spark.sparkContext
    # PySpark has no function for this.
    jvm: Any = context._jvm  # noqa: SLF001
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(context._jsc.hadoopConfiguration()), place  # noqa: SLF001


def archive_size(spark: SparkSession, job: ArchiveOptions) -> TableSize:
    """Return the number and the size of the files of an archive, which need not exist yet."""
    if job.format == "parquet":
        return _logged(spark, f"{job.path}/{METADATA}")
    lake = open_lake(job.lake)
    return lake.size() if lake.exists() else TableSize()


def _logged(spark: SparkSession, log: str) -> TableSize:
    """Return the size of the files that the log of Spark's file sink names."""
    system, place = _hadoop(spark, log)
    if not system.exists(place):
        return TableSize()
    batches = {
        int(number): status.getPath()
        for status in system.listStatus(place)
        if (number := status.getPath().getName().removesuffix(_COMPACT)).isdecimal()
    }
    compact = [at for at, path in batches.items() if path.getName().endswith(_COMPACT)]
    since = max(compact, default=0)
    current = [path for at, path in batches.items() if at >= since]
    # The first line is the version of the log, and each further line an entry.
    lines = [line for path in current for line in _text(spark, system, path).splitlines()]
    sizes = [int(json.loads(line)["size"]) for line in lines if line.startswith("{")]
    return TableSize(len(sizes), sum(sizes))


def _text(spark: SparkSession, system: Any, path: Any) -> str:
    """Return the text of a file.  Spark's own readers ignore this directory."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    opened = system.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(opened, "UTF-8"))
    finally:
        opened.close()


def oldest_unarchived(
    spark: SparkSession,
    job: ArchiveOptions,
    next_offsets: Mapping[str, int],
    lag: Mapping[str, int],
) -> datetime | None:
    """Return the time at which the broker received the oldest message that is not archived.

    Only the first such message of each stream is read.  The time is None if everything is archived
    or the broker states no times.
    """
    from pyspark.sql import functions as f

    first = {
        name: next_offsets[name]
        for name, count in lag.items()
        if count > 0 and name in next_offsets
    }
    if not first:
        return None
    texts = {
        name: text
        for name, text in job.source().items()
        if not name.lower().startswith((*_CHOOSING, "stream", "failondataloss"))
    }
    after = {name: offset + 1 for name, offset in first.items()}
    texts |= {
        "streams": json.dumps(list(first)),  # a name may have a comma
        "startingOffsets": json.dumps(first),
        "endingOffsets": json.dumps(after),
        "failOnDataLoss": "false",  # a message may have expired since
    }
    times = read_stream(spark, texts, "timestamp timestamp")
    micros = times.agg(f.min(f.unix_micros("timestamp"))).collect()[0][0]
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)
