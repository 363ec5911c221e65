"""What a route needs to change the broker: the time, a sync to wait for, and slow hashes.

The core has no clock and does no I/O; whoever changes it from outside gives it the time before and
has what it noted done afterwards, as the sockets' side does for each batch of input.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Operator:
    """The hands of who operates a broker.

    `begin` gives the core the time, `durable` returns when all that was recorded is synced, and
    `hash_password` hashes a password beside the loop.
    """

    begin: Callable[[], object]
    durable: Callable[[], Awaitable[None]]
    hash_password: Callable[[bytes], Awaitable[bytes]]

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Give the time, let the caller change the core, and wait until that is synced."""
        self.begin()
        yield
        await self.durable()
