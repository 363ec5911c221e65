"""Spark in the demo: archive the stream to Parquet, report on it, and check both."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.cli.demo.checks import Checks
from leveret.cli.demo.lines import DemoMessage
from leveret.cli.demo.topology import EXCHANGE, STREAM

if TYPE_CHECKING:
    from leveret.pipelines.report.result import Report

#: The window of the report; the whole run takes only seconds.
_WINDOW: Final = "1 second"


@dataclass(frozen=True, slots=True)
class Archived:
    """One message as read back from the Parquet files."""

    offset: int
    message_id: str
    routing_key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class DemoLake:
    """Spark's results: the archived rows and the report."""

    rows: tuple[Archived, ...]
    batches: int
    report: Report


def run_spark(uri: str, directory: Path) -> DemoLake:
    """Archive the stream into `directory`, read it back, and report on it.  Raises: Spark's errors.

    The report reads the archive and is also written to `report.html`.  The JVM writes its output to
    `spark.log`.
    """
    from leveret.pipelines.archive.job import archive
    from leveret.pipelines.report.job import report
    from leveret.pipelines.source import read_archive
    from leveret.spark.session import session

    with _standard_error_to(directory / "spark.log"):
        spark = session("leveret demo", fast=True)
    try:
        path = directory / "archive"
        archived = archive(spark, uri, STREAM, path)
        chosen = read_archive(spark, path).select(
            "offset", "properties.message_id", "routing_key", "body"
        )
        rows = tuple(
            Archived(row["offset"], row["message_id"], row["routing_key"], bytes(row["body"]))
            for row in chosen.toArrow().to_pylist()
        )
        found = report(spark, path=path, window=_WINDOW, html_path=directory / "report.html")
        return DemoLake(rows, archived.batches, found)
    finally:
        spark.stop()


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of processes started in the block to a file.

    They keep it after the block.  Spark's JVM prints warnings of no use to a user of the demo.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def check_lake(
    lake: DemoLake, lines: tuple[DemoMessage, ...], sent_again: set[str], checks: Checks
) -> None:
    """Compare the archive and the report with the published lines."""
    published = {line.message_id: line for line in lines}
    counts = Counter(row.message_id for row in lake.rows)
    offsets = sorted(row.offset for row in lake.rows)
    checks.equal("lines in the Parquet archive", len(counts.keys() & published), len(lines))
    altered = sum(not _same(row, published.get(row.message_id)) for row in lake.rows)
    checks.equal("archived lines altered or never published", altered, 0)
    checks.add(
        "each offset of the stream archived exactly once",
        f"{len(offsets):,} in {lake.batches} batches",
        offsets == list(range(len(offsets))),
    )
    repeats = {message_id for message_id, count in counts.items() if count > 1}
    checks.add(
        "repeats in the stream are publishes sent again",
        f"{len(lake.rows) - len(counts):,}",
        repeats <= sent_again,
    )
    _check_report(lake, checks)


def _same(row: Archived, line: DemoMessage | None) -> bool:
    """Return whether an archived message is the published line."""
    return line is not None and (row.body, row.routing_key) == (line.body, line.routing_key)


def _check_report(lake: DemoLake, checks: Checks) -> None:
    """Compare the report with counts of the archive."""
    report = lake.report
    checks.equal("messages in the report", report.messages, len(lake.rows))
    checks.equal("bytes in the report", report.bytes, sum(len(row.body) for row in lake.rows))
    wanted = Counter(row.routing_key for row in lake.rows)
    found = {key.routing_key: key.messages for key in report.keys if key.exchange == EXCHANGE}
    right = report.keys_total == len(wanted) and all(
        wanted[key] == count for key, count in found.items()
    )
    checks.add("messages by routing key in the report", f"{report.keys_total} keys", right)
