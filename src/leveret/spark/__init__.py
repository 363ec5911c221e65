"""The PySpark data source `leveret`, which reads and writes streams and queues as tables.

Each folder has a task, and each file in it a role, as in Spark's Kafka source: `options/` parses
options; `stream/` finds streams and plans and reads offset ranges (only `ranges` decides what
counts as data loss); `queue/` reads queues through a spool on disk; `transports/` fetches messages
over `connection/`; `columns/` converts messages to Arrow columns.  `write/` converts rows to
frames, and contains the tasks, the staged batches and their commit.  `source` implements Spark's
interface, `listener` reports the lag, and `session` creates a session that is ready to use.

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
    """Import `watch_lag`, and thereby PySpark, on first use."""
    if name == "watch_lag":
        from leveret.spark.listener import watch_lag

        return watch_lag
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
