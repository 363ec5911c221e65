"""Spark jobs over what went through the broker, each a function of a session.

`archive` writes a stream to Parquet, `report` tells what traffic a stream or an archive holds,
`route` where it would go in a topology, `deadletter` why messages died, and `republish` and
`replay` publish some of them again.  The command line calls these functions; nothing here
parses arguments or prints.
"""

from __future__ import annotations

from leveret.pipelines.archive import ArchiveResult, archive, start_archive
from leveret.pipelines.deadletter import deadletter, republish
from leveret.pipelines.deadletter_result import DeadLetters
from leveret.pipelines.lifecycle import lifecycle, lives
from leveret.pipelines.lifecycle_result import Lifecycle
from leveret.pipelines.replay import replay
from leveret.pipelines.report import report, traffic
from leveret.pipelines.report_result import Report, Traffic
from leveret.pipelines.route import route, routed
from leveret.pipelines.route_result import Routes
from leveret.pipelines.sending import Destination, Sent
from leveret.pipelines.source import read_archive
from leveret.pipelines.topology import Topology, read_topology

__all__ = [
    "ArchiveResult",
    "DeadLetters",
    "Destination",
    "Lifecycle",
    "Report",
    "Routes",
    "Sent",
    "Topology",
    "Traffic",
    "archive",
    "deadletter",
    "lifecycle",
    "lives",
    "read_archive",
    "read_topology",
    "replay",
    "report",
    "republish",
    "route",
    "routed",
    "start_archive",
    "traffic",
]
