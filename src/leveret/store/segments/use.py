"""Counts of the live and total bytes in segment files, by which compaction selects files.

A removed message counts as an average share of its chunk, so the figures are estimates.  Files of
temporary chunks are not counted, because they are removed without compaction.

Invariant: `removed` subtracts for each file the bytes that `wrote` added.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.store.segments.segments import ChunkRef

#: From this number of dead bytes on, a file with fewer messages than `compact_records_min` is
#: compacted too.
_COMPACT_DEAD_BYTES_MIN: Final = 4 * 1024 * 1024


def row_bytes(ref: ChunkRef) -> i64:
    """Return the average size in bytes of a message in a chunk."""
    return ref.size // max(ref.count, 1)


@final
@mypyc_attr(acyclic=True)
class FileUse:
    """The counts of one file: its bytes, its messages, and its live bytes."""

    def __init__(self) -> None:
        self.size: i64 = 0
        self.rows: i64 = 0
        self.live_bytes: i64 = 0

    def worth(self, rows_min: i64, live_percent: i64) -> bool:
        """Return whether moving the live data frees enough space."""
        many = self.rows > rows_min or self.size - self.live_bytes >= _COMPACT_DEAD_BYTES_MIN
        return many and 100 * self.live_bytes < live_percent * self.size


@final
class SegmentUse:
    """The bytes in all segment files, and the bytes of live messages in them."""

    def __init__(self) -> None:
        self.bytes_total: i64 = 0
        self.bytes_live: i64 = 0
        self._files: dict[int, FileUse] = {}

    def wrote(self, ref: ChunkRef) -> None:
        """Count the bytes of a chunk; its owner counts live messages."""
        if ref.temporary:
            return
        use = self.file(ref)
        before = use.size
        use.size = max(before, ref.position + ref.size)
        use.rows += ref.count
        self.bytes_total += use.size - before

    def file(self, ref: ChunkRef) -> FileUse:
        """Return the counts of the file that contains a chunk."""
        number = int(ref.file_number)
        use = self._files.get(number)
        if use is None:
            use = FileUse()
            self._files[number] = use
        return use

    def lives(self, ref: ChunkRef, messages: i64) -> None:
        """Count messages of a chunk as live, or as removed if the number is negative."""
        if not ref.temporary:
            self.bytes_live += messages * row_bytes(ref)

    def removed(self, numbers: list[int]) -> None:
        """Subtract the bytes of removed files."""
        for number in numbers:
            use = self._files.pop(number, None)
            if use is not None:
                self.bytes_total -= use.size

    def dead(self) -> i64:
        """Return the approximate number of bytes that are no longer needed."""
        return max(self.bytes_total - self.bytes_live, 0)
