"""Streams as tables for PySpark: the data source `leveret`, and a session ready to use it.

There is a folder for each task, and in it a file for each role, as in Spark's Kafka source:
`options/`; `stream/` (which streams there are, where they begin and end, and what a read takes of
them; only `ranges` decides about data loss); `queue/` (queues, read through a spool on disk);
`transports/` (how messages are fetched) over `connection/`; `columns/` (messages as Arrow columns,
and the rows that were asked for).  `write/` is the way back: rows to frames, tasks, staged batches
and their commit.  `source` is what Spark sees of all this, `listener` reports the lag, `session`
makes a session.

Importing this package loads neither PySpark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.spark.registration import register

# Bound after the module of the same name, so that `leveret.spark.session` is the function.
from leveret.spark.session import in_thread, session
from leveret.spark.stream.available import start_available

if TYPE_CHECKING:
    from leveret.spark.listener import watch_lag

__all__ = ["in_thread", "register", "session", "start_available", "watch_lag"]


def __getattr__(name: str) -> object:
    """Import `watch_lag`, and PySpark with it, when it is used."""
    if name == "watch_lag":
        from leveret.spark.listener import watch_lag

        return watch_lag
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
