"""Writes the rows of a task to Parquet files, each with rows of one partition of the table.

Files have paths as in Hive (`stream=orders/date=2026-11-21/`) and unique names.  The files of a
failed attempt are harmless, because no table lists them.

Invariants: the rows of a partition keep their order.  A file contains at least one row.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from leveret.pipelines.lakes.base import TableFile

#: The size of Arrow data at which a file is closed (Parquet takes a third of it); the rows of a row
#: group, which a reader can skip by its statistics; and the maximum number of open files of a task,
#: each of which buffers a row group.
_LAKE_FILE_BYTES: Final = 512 * 1024 * 1024
_LAKE_ROW_GROUP_ROWS: Final = 131_072
LAKE_FILES_OPEN_MAX: Final = 64


#: The name that Hive writes for a partition without a value.
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"

#: The characters that Hive and Spark escape in the names of directories.
_SPECIAL: Final = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}


def location(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it.  Raises: OSError; ValueError."""
    if "://" not in path:
        return pyarrow.fs.LocalFileSystem(), str(Path(path).absolute())
    system, base = pyarrow.fs.FileSystem.from_uri(path)
    return system, str(base)


class PartitionedFiles:
    """The files that a task writes; with `keep`, they contain the partition columns."""

    def __init__(
        self, path: str, partition_by: Sequence[str], compression: str, *, keep: bool, folder: str
    ) -> None:
        self._system, self._base = location(path)
        self._partition_by = tuple(partition_by)
        self._compression = compression
        self._keep = keep
        self._folder = folder
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._done: list[TableFile] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[TableFile]:
        """Write all batches and return the files; on failure, remove the written files."""
        try:
            for batch in batches:
                for values, rows in self._split(batch):
                    self._add(values, rows)
            while self._open:
                self._close(next(iter(self._open)))
        except BaseException:
            self._remove()
            raise
        return self._done

    def _split(
        self, batch: pa.RecordBatch
    ) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
        """Yield the rows of each partition of a batch."""
        if batch.num_rows == 0:
            return
        columns = [pc.cast(batch.column(name), pa.string()) for name in self._partition_by]
        distinct = [pc.unique(column).to_pylist() for column in columns]
        if all(len(values) == 1 for values in distinct):
            yield tuple(values[0] for values in distinct), batch
            return
        keys = list(zip(*(column.to_pylist() for column in columns), strict=True))
        for values in dict.fromkeys(keys):
            yield values, batch.filter(pa.array([key == values for key in keys]))

    def _add(self, values: tuple[str | None, ...], rows: pa.RecordBatch) -> None:
        file = self._open.get(values)
        if file is None:
            if len(self._open) >= LAKE_FILES_OPEN_MAX:
                self._close(next(iter(self._open)))
            file = self._open[values] = self._make(values)
        if not self._keep:
            rows = rows.drop_columns(list(self._partition_by))
        if file.add(rows) >= _LAKE_FILE_BYTES:
            self._close(values)

    def _make(self, values: tuple[str | None, ...]) -> _OpenFile:
        pairs = zip(self._partition_by, values, strict=True)
        parts = [f"{name}={_escaped(value)}" for name, value in pairs]
        relative = "/".join([*([self._folder] if self._folder else []), *parts])
        self._system.create_dir(f"{self._base}/{relative}", recursive=True)
        return _OpenFile(
            self._system, self._base, f"{relative}/part-{uuid.uuid4()}.parquet", self._compression
        )

    def _close(self, values: tuple[str | None, ...]) -> None:
        file = self._open.pop(values)
        size = file.close()
        partition = dict(zip(self._partition_by, values, strict=True))
        self._done.append(TableFile(file.path, size, file.rows, partition))

    def _remove(self) -> None:
        """Remove everything that this task has written."""
        for file in self._open.values():
            file.abandon()
        remove(self._system, self._base, [*self._done, *self._open.values()])


class _OpenFile:
    """An open file; small batches are combined to row groups of a useful size."""

    def __init__(
        self, system: pyarrow.fs.FileSystem, base: str, path: str, compression: str
    ) -> None:
        self.path = path
        self.rows = 0
        self._system = system
        self._full_path = f"{base}/{path}"
        self._compression = compression
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> int:
        """Add rows; return the approximate size of all added rows."""
        self._gathered.append(rows)
        self._gathered_rows += rows.num_rows
        self.rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._gathered_rows >= _LAKE_ROW_GROUP_ROWS:
            self._write()
        return self._bytes

    def _write(self) -> None:
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered)
        self._gathered, self._gathered_rows = [], 0
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._full_path, table.schema, filesystem=self._system,
                compression=self._compression,
            )  # fmt: skip
        self._writer.write_table(table)

    def close(self) -> int:
        """Finish the file; return its size."""
        self._write()
        if self._writer is not None:
            self._writer.close()
        return int(self._system.get_file_info(self._full_path).size)

    def abandon(self) -> None:
        """Close the file without writing its buffered rows."""
        if self._writer is not None:
            self._writer.close()


def remove(
    system: pyarrow.fs.FileSystem, base: str, files: Iterable[TableFile | _OpenFile]
) -> None:
    """Remove files that no table lists; ignore missing files."""
    for file in files:
        path = f"{base}/{file.path}"
        if system.get_file_info(path).type != pyarrow.fs.FileType.NotFound:
            system.delete_file(path)


def _escaped(value: str | None) -> str:
    """Return a value as escaped in the name of a directory."""
    if not value:
        return NO_VALUE
    return "".join(f"%{ord(c):02X}" if c in _SPECIAL else c for c in value)
