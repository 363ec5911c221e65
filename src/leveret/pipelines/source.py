"""The source of a job: a stream of a broker, or an archive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.pipelines.lakes import find_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from leveret.pipelines.options import SourceOptions

#: The columns that partition an archive, which are in the names of its directories.
STREAM_COLUMN = "stream"
DATE_COLUMN = "date"
HOUR_COLUMN = "hour"
PARTITION_COLUMNS = (STREAM_COLUMN, DATE_COLUMN, HOUR_COLUMN)


def read_stream(spark: SparkSession, options: Mapping[str, str], columns: str = "") -> DataFrame:
    """Return the current messages of a stream, with `columns` (in DDL), by default all."""
    reader = spark.read.format("leveret").options(**options)
    return (reader.schema(columns) if columns else reader).load()


def messages(
    spark: SparkSession, options: SourceOptions, columns: str = ""
) -> tuple[DataFrame, str]:
    """Return the messages of a stream or an archive, and a label of the source.

    `columns` (in DDL) are the columns that are read from a stream.  An archive has all columns,
    which Spark reads on demand.
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
    """Return the schema of an archive, so that Spark does not infer types from directory names."""
    from pyspark.sql.types import DateType, StructField, StructType

    from leveret.spark.columns.schema import ROW

    written = [field for field in ROW.fields if field.name != STREAM_COLUMN]
    partitions = [StructField(STREAM_COLUMN, ROW[STREAM_COLUMN].dataType)]
    return StructType([*written, *partitions, StructField(DATE_COLUMN, DateType())])


def read_archive(
    spark: SparkSession, path: str | Path, *, table: str = "", catalog: str = ""
) -> DataFrame:
    """Return the rows of the finished batches of an archive in Parquet, Delta or Iceberg.

    `table` and `catalog` name an Iceberg table whose catalog is not at the path.

    Raises: ImportError if the package for the format is not installed.
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
