"""A class data archive for Spark, which speeds up the start of later JVMs.

    python -m leveret.spark.class_data

runs a small session once, whose JVM writes its loaded and verified classes to a file (170 MB, about
15 s).  Later sessions of `leveret.spark.session` on this machine map that file, and start and run
their first query in two thirds of the time.  The file is for one installation of Spark and one
Java.  A JVM that cannot use it starts without it and prints no warning.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.spark.installation import cache_dir, class_data_path, overlay

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: How long a JVM may take to write the file.
SECONDS_MAX: Final = 600.0


def make(path: Path) -> None:
    """Run a small session whose JVM writes its classes to `path`.  Raises: RuntimeError."""
    from leveret.spark.session import FAST, JAVA_OPTIONS, session

    # Write a new file and then replace the old one, which a JVM may have mapped.
    fresh = path.with_suffix(f".{os.getpid()}")
    options = f"{FAST[JAVA_OPTIONS]} -XX:ArchiveClassesAtExit={fresh}"
    spark = session(
        "leveret classes",
        master="local[2]",
        fast=True,
        config={
            JAVA_OPTIONS: f"{options} -Xlog:disable",
            "spark.log.level": "ERROR",
        },
    )
    jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001  the JVM writes the file when it exits
    with tempfile.TemporaryDirectory(prefix="leveret-") as scratch:
        _use(spark, scratch)
    spark.stop()
    jvm.stdin.close()
    jvm.wait(SECONDS_MAX)
    if not fresh.is_file():
        raise RuntimeError("the JVM did not write its classes to the file")
    fresh.replace(path)


def _use(spark: SparkSession, scratch: str) -> None:
    """Run small jobs that read, write and aggregate, so that the JVM loads their classes."""
    from pyspark.sql import functions as f

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    rows = spark.range(100).withColumn("key", f.col("id") % 3)
    rows = rows.mapInArrow(same, rows.schema)
    rows.write.partitionBy("key").parquet(f"{scratch}/rows")
    found = spark.read.parquet(f"{scratch}/rows")
    found.groupBy("key").agg(f.count("*"), f.max("id")).orderBy("key").collect()
    query = (
        spark.readStream.schema(found.schema)
        .parquet(f"{scratch}/rows")
        .writeStream.format("parquet")
        .options(path=f"{scratch}/out", checkpointLocation=f"{scratch}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> int:
    """Create the file for this machine, unless it exists or SPARK_HOME is set."""
    from leveret.spark.java import find_java_home
    from leveret.spark.versions import JAVA_MAX

    if "SPARK_HOME" in os.environ:
        sys.stdout.write("SPARK_HOME is set, so no file is created for its classes\n")
        return 0
    cache = cache_dir()
    path = class_data_path(overlay(cache), find_java_home(cache, JAVA_MAX))
    if not path.is_file():
        make(path)
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
