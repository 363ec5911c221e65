"""Streams as tables for PySpark: the data source `leveret`, and a session ready to use it.

A folder per task, and in it a file per role, as in Spark's Kafka source: `options/`; `stream/`
(which streams, where they begin and end, what a read takes of them; `ranges` is the one place that
decides about data loss); `queue/` (queues, through a spool on the disk); `transports/` (how
messages come) over `connection/`; `columns/` (messages to Arrow, and rows as they are asked for).
The way back is `write/`: rows to frames, tasks, staged batches and their commit.  `source` is what
Spark sees of all that, `listener` tells the lag, `session` makes a session.
Importing this package loads neither PySpark nor pyarrow.
"""

from __future__ import annotations

# Bound after the module of that name, so that `leveret.spark.session` is the function.
from leveret.spark.session import session

__all__ = ["session"]
