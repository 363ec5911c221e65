"""The asyncio shell over the sans-IO session: `connect`, `Pool` and their classes."""

from __future__ import annotations

from leveret.client.asynchronous.channel import Channel
from leveret.client.asynchronous.connection import Connection, connect
from leveret.client.asynchronous.consumer import Consumer
from leveret.client.asynchronous.pool import Pool

__all__ = ["Channel", "Connection", "Consumer", "Pool", "connect"]
