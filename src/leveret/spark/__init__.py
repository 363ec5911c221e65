"""Streams as tables for PySpark: the data source `leveret`, and a session ready to use it.

A file per role, as in Spark's Kafka source: `options`, `offsets` (what a position means), `finder`
and `streams` (which streams, where they begin and end), `planner` (ranges to partitions), `limits`
(what a micro-batch takes), `pruning` (what filters spare), `batch` and `stream` (the readers),
`transports/` (how messages come), `columns`, `deliveries` and `chunks` (messages to Arrow),
`projection` with `kafka` (rows as they are asked for), `ranges` (the one place that decides about
data loss), `listener` (lag).  The way back:
`writer` (the sinks), `write_options`, `write_schema`, `write_encoder` with `write_rows` (Arrow to
frames), `write_task`, `write_staging` (batches and their commit), `write_link` (the connection).
Importing this package loads neither PySpark nor pyarrow.
"""

from __future__ import annotations

# Bound after the module of that name, so that `leveret.spark.session` is the function.
from leveret.spark.session import session

__all__ = ["session"]
