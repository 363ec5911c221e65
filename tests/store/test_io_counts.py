"""The counts of the journal's writes and syncs."""

from __future__ import annotations

from leveret.store.io_counts import IoCounts


def test_nothing_written_has_averages_of_zero() -> None:
    counts = IoCounts()
    assert (counts.records_per_sync, counts.write_ms, counts.sync_ms) == (0.0, 0.0, 0.0)


def test_averages_are_of_what_was_counted() -> None:
    counts = IoCounts()
    counts.wrote(100, 12_000, 2_000_000)
    counts.wrote(300, 36_000, 4_000_000)
    counts.synced(5_000_000)
    assert (counts.writes, counts.records, counts.bytes_written) == (2, 400, 48_000)
    assert (counts.records_per_sync, counts.write_ms, counts.sync_ms) == (400.0, 3.0, 5.0)
