"""The asyncio shell over the sans-IO session: `connect`, `Connection`, `Channel`, `Consumer`."""

from __future__ import annotations

from leveret.client.asynchronous.connection import Channel, Connection, connect
from leveret.client.asynchronous.consumer import Consumer

__all__ = ["Channel", "Connection", "Consumer", "connect"]
