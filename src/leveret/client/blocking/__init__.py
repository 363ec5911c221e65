"""The blocking shell over the sans-IO session: `connect`, `Pool` and what they give.

A connection belongs to one thread.  Nothing runs behind its back: heartbeats are sent and messages
read inside its calls, so a thread that is busy elsewhere calls `connection.process()` now and then.
"""

from __future__ import annotations

from leveret.client.blocking.channel import Channel
from leveret.client.blocking.connection import Connection, connect
from leveret.client.blocking.consumer import Consumer
from leveret.client.blocking.pool import Pool

__all__ = ["Channel", "Connection", "Consumer", "Pool", "connect"]
