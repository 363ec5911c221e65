"""The input of a job: a stream of a broker, or an archive of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.pipelines.lakes import find_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from leveret.pipelines.options import SourceOptions

#: The columns that are in the names of an archive's directories.
STREAM_COLUMN = "stream"
DATE_COLUMN = "date"
HOUR_COLUMN = "hour"
PARTITION_COLUMNS = (STREAM_COLUMN, DATE_COLUMN, HOUR_COLUMN)


def read_stream(spark: SparkSession, options: Mapping[str, str], columns: str = "") -> DataFrame:
    """Return the present messages of a stream; `columns` as DDL, by default all."""
    reader = spark.read.format("leveret").options(**options)
    return (reader.schema(columns) if columns else reader).load()


def messages(
    spark: SparkSession, options: SourceOptions, columns: str = ""
) -> tuple[DataFrame, str]:
    """Return the messages of a stream or of an archive, and a label of the source.

    `columns` are those of a stream, as DDL: others are not read.  An archive's columns are all
    available and read on demand.
    """
    if options.path is None:
        rows = read_stream(spark, options.stream_options(), columns)
        return rows, f"stream {options.stream}"
    rows = read_archive(spark, options.path)
    if options.stream is None:
        return rows, f"archive {options.path}"
    chosen = rows.where(rows[STREAM_COLUMN] == options.stream)
    return chosen, f"stream {options.stream} in archive {options.path}"


def archive_schema() -> StructType:
    """Return the columns of an archive, so that Spark does not guess any from file names."""
    from pyspark.sql.types import DateType, StructField, StructType

    from leveret.spark.columns.schema import ROW

    written = [field for field in ROW.fields if field.name != STREAM_COLUMN]
    partitions = [StructField(STREAM_COLUMN, ROW[STREAM_COLUMN].dataType)]
    return StructType([*written, *partitions, StructField(DATE_COLUMN, DateType())])


def read_archive(
    spark: SparkSession, path: str | Path, *, table: str = "", catalog: str = ""
) -> DataFrame:
    """Return the rows of an archive: Parquet, Delta or Iceberg, only files of finished batches.

    `table` and `catalog` name an Iceberg table that has no catalog of its own at the path.

    Raises: ImportError without the package that the table needs.
    """
    lake = find_lake(str(path), table, catalog)
    reader = spark.read.schema(archive_schema())
    if lake is None:
        return reader.parquet(str(path))
    uris = lake.uris()
    if not uris:
        return spark.createDataFrame([], archive_schema())
    if not lake.keeps_partition_columns:
        reader = reader.option("basePath", str(path))
    return reader.parquet(*uris)
