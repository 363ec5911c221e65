"""The base class of an archive's tables, to which the files of each batch are added once.

Invariants: `add` does nothing for a batch that the table already has.  The files of a batch and its
number are added in one commit.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

#: The file of an Iceberg table's own catalog, next to its data.
CATALOG_FILE: Final = "catalog.db"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A finished file: its path in the table, its size, rows and partition."""

    path: str
    size: int
    rows: int
    partition: dict[str, str | None]

    def stats(self) -> str:
        """Return Delta's statistics of a file's rows."""
        return json.dumps({"numRecords": self.rows})


@dataclass(frozen=True, slots=True)
class TableSize:
    """The number of a table's files, and their size."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """The identity of a table, and the options for writing its files.

    `table` is the name of an Iceberg table, and `catalog` is a catalog in pyiceberg's
    configuration.
    """

    format: str
    path: str
    partition_by: tuple[str, ...]
    compression: str
    table: str = ""
    catalog: str = ""


class LakeTable(ABC):
    """A Parquet, Delta or Iceberg table of an archive."""

    #: Whether the files also contain the partition columns, and the folder of the files.
    keeps_partition_columns = False
    folder = ""

    def __init__(self, options: LakeOptions) -> None:
        self.options = options

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the table exists."""

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Create the table with these columns unless it exists."""

    @abstractmethod
    def add(self, files: Sequence[TableFile], schema: pa.Schema, query: str, batch: int) -> bool:
        """Add a batch's files in one commit; return False if the table already has the batch."""

    @abstractmethod
    def size(self) -> TableSize:
        """Return the number and the size of the table's files, as its log states them."""

    @abstractmethod
    def uris(self) -> list[str]:
        """Return the URIs of the table's files."""
