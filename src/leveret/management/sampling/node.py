"""Counts of the node's resource use and I/O, by RabbitMQ's names, sampled with the totals."""

from __future__ import annotations

import resource
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.broker.broker import Broker

#: The names, in the order of `node_counts`.
NODE_COUNTS: Final = (
    "mem_used",
    "fd_used",
    "sockets_used",
    "proc_used",
    "disk_free",
    "context_switches",
    "io_read_count",
    "io_read_bytes",
    "io_write_count",
    "io_write_bytes",
    "io_sync_count",
    "io_sync_us",
)


def node_counts(broker: Broker, counts: Mapping[str, int]) -> list[int]:
    """Return the counts of the node; `counts` are those of `Operator.counts`."""
    io, reader = broker.core.io, broker.core.reader
    used = resource.getrusage(resource.RUSAGE_SELF)
    return [
        int(broker.memory_bytes()),
        counts.get("fd_used", 0),
        counts.get("sockets_used", 0),
        threading.active_count(),
        int(broker.disk_free_bytes),
        used.ru_nvcsw + used.ru_nivcsw,
        int(reader.reads),
        int(reader.bytes_read),
        int(io.writes),
        int(io.bytes_written),
        int(io.syncs),
        int(io.sync_ns) // 1000,
    ]
