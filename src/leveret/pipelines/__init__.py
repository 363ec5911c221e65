"""Spark jobs over what went through the broker, each a function of a session.

`archive` writes a stream to Parquet, `report` tells what traffic a stream or an archive holds.  The
command line calls these functions; nothing here parses arguments or prints.
"""

from __future__ import annotations

from leveret.pipelines.archive import ArchiveResult, archive
from leveret.pipelines.report import Report, report

__all__ = ["ArchiveResult", "Report", "archive", "report"]
