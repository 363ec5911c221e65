"""Counts and durations of the journal's writes and syncs since the start.

The sync thread updates them once per group and per sync; other threads only read them.  No limit or
decision depends on these figures.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

#: The upper bounds of the histogram classes for sync durations, in ns.  One more class has longer
#: durations.
SYNC_CLASSES_NS: Final[tuple[int, ...]] = (
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
)


@final
class IoCounts:
    """Counts of writes, their bytes and records, and syncs, with durations in ns.

    `sync_classes` counts the syncs in each class of durations.
    """

    def __init__(self) -> None:
        self.writes: i64 = 0
        self.bytes_written: i64 = 0
        self.records: i64 = 0
        self.write_ns: i64 = 0
        self.syncs: i64 = 0
        self.sync_ns: i64 = 0
        self.sync_classes = [0] * (len(SYNC_CLASSES_NS) + 1)

    def wrote(self, records: i64, size: i64, took_ns: i64) -> None:
        """Count a written group."""
        self.writes += 1
        self.records += records
        self.bytes_written += size
        self.write_ns += took_ns

    def synced(self, took_ns: i64) -> None:
        """Count one sync."""
        self.syncs += 1
        self.sync_ns += took_ns
        self.sync_classes[bisect_left(SYNC_CLASSES_NS, int(took_ns))] += 1

    @property
    def records_per_sync(self) -> float:
        """The average number of records that a sync made durable."""
        return float(self.records) / float(self.syncs) if self.syncs > 0 else 0.0

    @property
    def write_ms(self) -> float:
        """The average duration of a write."""
        return float(self.write_ns) / float(self.writes) / 1e6 if self.writes > 0 else 0.0

    @property
    def sync_ms(self) -> float:
        """The average duration of a sync."""
        return float(self.sync_ns) / float(self.syncs) / 1e6 if self.syncs > 0 else 0.0
