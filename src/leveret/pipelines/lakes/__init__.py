"""The table formats of an archive: a module for each format, and a sink that writes all of them.

`base` is the base class of the tables, which `delta` and `iceberg` implement.  `files` writes the
files of a table, and `sink` is Spark's data source.  Plain Parquet is written by Spark's own sink.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from leveret.pipelines.lakes.base import CATALOG_FILE, LakeOptions, TableSize
from leveret.pipelines.lakes.base import LakeTable as Lake

__all__ = ["FORMATS", "Lake", "LakeOptions", "TableSize", "find_lake", "open_lake"]

FORMATS: Final = ("delta", "iceberg")


def open_lake(options: LakeOptions) -> Lake:
    """Return the table that the options name; it need not exist yet.

    Raises: ImportError, which names the package to install.
    """
    if options.format == "delta":
        from leveret.pipelines.lakes.delta import DeltaLake

        return DeltaLake(options)
    from leveret.pipelines.lakes.iceberg import IcebergLake

    return IcebergLake(options)


def find_lake(path: str, table: str = "", catalog: str = "") -> Lake | None:
    """Return the table at a path, or None if the path contains plain Parquet files.

    `table` and `catalog` name an Iceberg table in a catalog, whose path is not used.

    Raises: ImportError, which names the package to install.
    """
    format_ = ""
    if table or catalog or (Path(path) / CATALOG_FILE).is_file():
        format_ = "iceberg"
    elif (Path(path) / "_delta_log").is_dir():
        format_ = "delta"
    elif "://" in path:
        format_ = "delta" if _is_delta(path) else ""
    return open_lake(LakeOptions(format_, path, (), "", table, catalog)) if format_ else None


def _is_delta(uri: str) -> bool:
    """Return whether a Delta table exists at a URI."""
    try:
        from deltalake import DeltaTable
    except ModuleNotFoundError:
        return False
    return bool(DeltaTable.is_deltatable(uri))
