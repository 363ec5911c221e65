"""What a table of a lake is to an archive: it takes files, each batch of a query once.

Invariants: `add` with a batch that the table knows of that query does nothing; the files of a batch
and the note of it are one commit of the table.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

#: The catalog of an Iceberg table that has one of its own, beside its data.
CATALOG_FILE: Final = "catalog.db"


@dataclass(frozen=True, slots=True)
class File:
    """A finished file: its path in the table, its size, rows and partition."""

    path: str
    size: int
    rows: int
    partition: dict[str, str | None]

    def stats(self) -> str:
        """Return what Delta notes of a file's rows."""
        return json.dumps({"numRecords": self.rows})


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Which table, and how its files are written.

    `table` and `catalog` are Iceberg's: a name, and a catalog of pyiceberg's configuration.
    """

    format: str
    path: str
    partition_by: tuple[str, ...]
    compression: str
    table: str = ""
    catalog: str = ""


class Lake(ABC):
    """One table."""

    #: Whether the columns of the partition are in the files too, and in which folder those lie.
    keeps_partition_columns = False
    folder = ""

    def __init__(self, options: LakeOptions) -> None:
        self.options = options

    @abstractmethod
    def exists(self) -> bool:
        """Tell whether the table is there."""

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Make the table with these columns, if it is not there."""

    @abstractmethod
    def add(self, files: Sequence[File], schema: pa.Schema, query: str, batch: int) -> bool:
        """Add a batch's files in one commit; False when the batch is known already."""

    @abstractmethod
    def uris(self) -> list[str]:
        """Return where the table's files lie."""
