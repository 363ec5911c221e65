"""Table formats that an archive can have: a file for each format, all written by one sink.

`base` is the base class of these tables, `delta` and `iceberg` implement it, `files` writes the
files that they list, and `sink` is Spark's side.  Plain Parquet needs none of this: Spark's own
sink writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from leveret.pipelines.lakes.base import CATALOG_FILE, LakeOptions
from leveret.pipelines.lakes.base import LakeTable as Lake

__all__ = ["FORMATS", "Lake", "LakeOptions", "find_lake", "open_lake"]

FORMATS: Final = ("delta", "iceberg")


def open_lake(options: LakeOptions) -> Lake:
    """Return the table that the options name; it need not exist yet.

    Raises: ImportError, with the package to install.
    """
    if options.format == "delta":
        from leveret.pipelines.lakes.delta import DeltaLake

        return DeltaLake(options)
    from leveret.pipelines.lakes.iceberg import IcebergLake

    return IcebergLake(options)


def find_lake(path: str, table: str = "", catalog: str = "") -> Lake | None:
    """Return the table at a path, to be read, or None if plain files are there.

    An Iceberg table of a catalog is named by `table` and `catalog`, not by its path.

    Raises: ImportError, with the package to install.
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
    """Return whether there is a Delta table at a URI."""
    try:
        from deltalake import DeltaTable
    except ModuleNotFoundError:
        return False
    return bool(DeltaTable.is_deltatable(uri))
