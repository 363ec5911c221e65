"""The blocking shell over the sans-IO session: `connect`, `Pool` and their classes.

A connection belongs to one thread and has no background thread: it sends heartbeats and reads
messages only inside its calls.  A thread that is busy elsewhere must call `connection.process()`
regularly.
"""

from __future__ import annotations

from leveret.client.blocking.channel import Channel
from leveret.client.blocking.connection import Connection, connect
from leveret.client.blocking.consumer import Consumer
from leveret.client.blocking.pool import Pool

__all__ = ["Channel", "Connection", "Consumer", "Pool", "connect"]
