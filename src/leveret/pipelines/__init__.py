"""Spark jobs over the broker's traffic, each a function of a Spark session.

`archive` writes streams to Parquet, Delta or Iceberg, `report` summarizes the traffic of a stream
or an archive, `route` computes its destinations in a topology, `deadletter` analyses dead letters,
`lifecycle` reports the latencies and outcomes of messages, and `republish` and `replay` publish
messages again.  The command line calls these functions, which neither parse arguments nor print.
"""

from __future__ import annotations

from leveret.pipelines.archive.job import archive, start_archive
from leveret.pipelines.archive.result import ArchiveResult
from leveret.pipelines.deadletter.job import deadletter
from leveret.pipelines.deadletter.republish import republish
from leveret.pipelines.deadletter.result import DeadLetters
from leveret.pipelines.lifecycle.job import lifecycle, lives
from leveret.pipelines.lifecycle.result import Lifecycle
from leveret.pipelines.replay.job import replay
from leveret.pipelines.replay.sending import Destination, Sent
from leveret.pipelines.report.job import report, traffic
from leveret.pipelines.report.result import Report
from leveret.pipelines.report.result import TrafficRow as Traffic
from leveret.pipelines.route.job import route, routed
from leveret.pipelines.route.result import Routes
from leveret.pipelines.route.topology import RecordedTopology as Topology
from leveret.pipelines.route.topology import read_topology
from leveret.pipelines.source import read_archive

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
