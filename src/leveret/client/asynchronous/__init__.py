"""The asyncio shell over the sans-IO session: `connect`, `Connection`, `Channel`, `Consumer`."""

from __future__ import annotations

from leveret.client.asynchronous.channel import Channel
from leveret.client.asynchronous.connection import Connection, connect
from leveret.client.asynchronous.consumer import Consumer

__all__ = ["Channel", "Connection", "Consumer", "connect"]
