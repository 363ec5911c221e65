"""Delta Lake tables, with the package `deltalake` (delta-rs).

The package needs no JVM code, and so works with any Spark.

A batch is one version of the table with an application transaction of the query, as Delta's own
sink writes it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from leveret.pipelines.lakes.base import LakeTable, TableFile, TableSize

try:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import AddAction, RemoveAction
except ModuleNotFoundError as error:
    raise ImportError(
        f"{error}: a Delta table needs an extra (in a checkout: pip install '.[delta]')"
    ) from error


class DeltaLake(LakeTable):
    """A Delta table at a path."""

    def exists(self) -> bool:
        """Return whether the table exists."""
        return bool(DeltaTable.is_deltatable(self.options.path))

    def create(self, schema: pa.Schema) -> None:
        """Create the table with these columns unless it exists."""
        partition_by = list(self.options.partition_by)
        DeltaTable.create(self.options.path, schema, mode="ignore", partition_by=partition_by)

    def add(self, files: Sequence[TableFile], schema: pa.Schema, query: str, batch: int) -> bool:
        """Add a batch's files in one commit; return False if the table already has the batch."""
        table = DeltaTable(self.options.path)
        known = table.transaction_version(query)
        if known is not None and known >= batch:
            return False
        now_ms = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size, f.partition, now_ms, True, f.stats()) for f in files
        ]
        table.create_write_transaction(
            actions,
            "append",
            schema,
            list(self.options.partition_by),
            commit_properties=CommitProperties(app_transactions=[Transaction(query, batch)]),
        )
        return True

    def size(self) -> TableSize:
        """Return the number and the size of the table's files, as its log states them."""
        sizes = pa.table(DeltaTable(self.options.path).get_add_actions())["size_bytes"].to_pylist()
        return TableSize(len(sizes), sum(sizes))

    def uris(self) -> list[str]:
        """Return the URIs of the table's files."""
        return [str(uri) for uri in DeltaTable(self.options.path).file_uris()]
