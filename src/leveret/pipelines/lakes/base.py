"""The interface of a lake's table to an archive: it takes the files of each batch once.

Invariants: `add` with a batch of a query that the table has already does nothing; the files of a
batch and the record of its number are one commit of the table.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

#: The catalog of an Iceberg table that has its own one, next to its data.
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
class LakeOptions:
    """The table's identity, and how its files are written.

    `table` and `catalog` are Iceberg's: a name, and a catalog of pyiceberg's configuration.
    """

    format: str
    path: str
    partition_by: tuple[str, ...]
    compression: str
    table: str = ""
    catalog: str = ""


class LakeTable(ABC):
    """One table."""

    #: Whether the partition's columns are in the files too, and the folder of the files.
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
        """Add a batch's files in one commit; return False if the table has the batch already."""

    @abstractmethod
    def uris(self) -> list[str]:
        """Return the URIs of the table's files."""
