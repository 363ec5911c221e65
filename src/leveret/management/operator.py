"""What a route needs to change the broker: the time, a sync to wait for, and slow hashes.

The core has no clock and does no I/O; whoever changes it from outside gives it the time before and
has what it noted done afterwards, as the sockets' side does for each batch of input.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Operator:
    """The hands of who operates a broker.

    `begin` gives the core the time, `durable` returns when all that was recorded is synced,
    `hash_password` hashes a password beside the loop, `hold_files` keeps all files of the data
    directory from then on, and `release_files` lets go of them again.  `broken` stops the broker
    for an exception that nobody expected.  `counts` returns what the sockets have to tell, by the
    names of the API.
    """

    begin: Callable[[], object]
    durable: Callable[[], Awaitable[None]]
    hash_password: Callable[[bytes], Awaitable[bytes]]
    hold_files: Callable[[], Awaitable[None]]
    release_files: Callable[[], object]
    broken: Callable[[BaseException], object]
    counts: Callable[[], Mapping[str, int]] = dict

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Give the time, let the caller change the core, and wait until that is synced."""
        self.begin()
        yield
        await self.durable()

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Let no file of the data directory be removed meanwhile."""
        try:
            await self.hold_files()
            yield
        finally:
            self.release_files()
