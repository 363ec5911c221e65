"""Iceberg tables, with the package `pyiceberg`.

The package needs no JVM code, and so works with any Spark.

A catalog is named as in pyiceberg's configuration (`~/.pyiceberg.yaml`, `PYICEBERG_CATALOG__…`).
Without a name, the table has its own catalog, an SQLite file next to its data, which is enough for
one machine.

A batch is one snapshot.  The same commit sets a property of the table to the query's newest batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from leveret.pipelines.lakes.base import CATALOG_FILE, LakeTable, TableFile, TableSize
from leveret.pipelines.lakes.files import location

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError
    from pyiceberg.table import Table
    from pyiceberg.transforms import IdentityTransform
except ModuleNotFoundError as error:
    raise ImportError(
        f"{error}: an Iceberg table needs an extra (in a checkout: pip install '.[iceberg]')"
    ) from error

TABLE: Final = "leveret.archive"

_BATCH: Final = "leveret.batch."


class IcebergLake(LakeTable):
    """An Iceberg table, whose files are in `data/` below its path."""

    keeps_partition_columns = True
    folder = "data"

    @property
    def name(self) -> str:
        """The table's name with its namespace."""
        return self.options.table or TABLE

    def _catalog(self) -> Catalog:
        if self.options.catalog:
            return load_catalog(self.options.catalog)
        path = Path(self.options.path).absolute()
        path.mkdir(parents=True, exist_ok=True)
        return load_catalog(
            "leveret",
            type="sql",
            uri=f"sqlite:///{path / CATALOG_FILE}",
            warehouse=path.as_uri(),
        )

    def exists(self) -> bool:
        """Return whether the table exists."""
        own = not self.options.catalog
        if own and not (Path(self.options.path) / CATALOG_FILE).exists():
            return False
        return bool(self._catalog().table_exists(self.name))

    def create(self, schema: pa.Schema) -> None:
        """Create the table with these columns unless it exists."""
        catalog = self._catalog()
        with contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(self.name.rpartition(".")[0])
        try:
            table = catalog.create_table(self.name, schema, location=self._uri())
        except TableAlreadyExistsError:
            return
        with table.update_spec() as spec:
            for column in self.options.partition_by:
                spec.add_field(column, IdentityTransform(), column)

    def add(self, files: Sequence[TableFile], schema: pa.Schema, query: str, batch: int) -> bool:
        """Add a batch's files in one commit; return False if the table already has the batch."""
        table: Table = self._catalog().load_table(self.name)
        known = table.properties.get(_BATCH + query)
        if known is not None and int(known) >= batch:
            return False
        base = self._uri()
        with table.transaction() as transaction:
            transaction.add_files([f"{base}/{f.path}" for f in files], check_duplicate_files=False)
            transaction.set_properties({_BATCH + query: str(batch)})
        return True

    def _uri(self) -> str:
        """Return the table's location as a URI."""
        path = self.options.path
        return path.rstrip("/") if "://" in path else Path(location(path)[1]).as_uri()

    def size(self) -> TableSize:
        """Return the number and the size of the table's files, as its log states them."""
        tasks = self._catalog().load_table(self.name).scan().plan_files()
        sizes = [task.file.file_size_in_bytes for task in tasks]
        return TableSize(len(sizes), sum(sizes))

    def uris(self) -> list[str]:
        """Return the URIs of the table's files."""
        table = self._catalog().load_table(self.name)
        return [task.file.file_path for task in table.scan().plan_files()]
