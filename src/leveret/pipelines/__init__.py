"""Spark jobs over what went through the broker, each a function of a session.

`archive` writes a stream to Parquet, `report` tells what traffic a stream or an archive holds.  The
command line calls these functions; nothing here parses arguments or prints.
"""

from __future__ import annotations

from leveret.pipelines.archive import ArchiveResult, archive, start_archive
from leveret.pipelines.report import Report, Traffic, report, traffic
from leveret.pipelines.source import read_archive

__all__ = [
    "ArchiveResult",
    "Report",
    "Traffic",
    "archive",
    "read_archive",
    "report",
    "start_archive",
    "traffic",
]
