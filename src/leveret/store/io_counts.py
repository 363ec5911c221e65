"""What writing and syncing the journal has cost since the start: counts for whoever asks.

They are counted once per group and per sync, by the thread that writes; others only read them.  It
is not where anything is decided: no limit hangs on these figures.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class IoCounts:
    """Writes with their bytes and records, and syncs; times in ns of a monotonic clock."""

    def __init__(self) -> None:
        self.writes: i64 = 0
        self.bytes_written: i64 = 0
        self.records: i64 = 0
        self.write_ns: i64 = 0
        self.syncs: i64 = 0
        self.sync_ns: i64 = 0

    def wrote(self, records: i64, size: i64, took_ns: i64) -> None:
        """Count one group that was written."""
        self.writes += 1
        self.records += records
        self.bytes_written += size
        self.write_ns += took_ns

    def synced(self, took_ns: i64) -> None:
        """Count one sync."""
        self.syncs += 1
        self.sync_ns += took_ns

    @property
    def records_per_sync(self) -> float:
        """How many records one sync made durable, on average."""
        return float(self.records) / float(self.syncs) if self.syncs > 0 else 0.0

    @property
    def write_ms(self) -> float:
        """How long a write took on average."""
        return float(self.write_ns) / float(self.writes) / 1e6 if self.writes > 0 else 0.0

    @property
    def sync_ms(self) -> float:
        """How long a sync took on average."""
        return float(self.sync_ns) / float(self.syncs) / 1e6 if self.syncs > 0 else 0.0
