"""An asyncio connection pool: `async with pool.connection() as connection`.

Each address has its own connections.  A connection is lent to one task at a time.  Channels that
the task left open, with their consumers and unacked messages, are closed on return.

Invariants: those of `ShellPool`.  A task that is cancelled while it waits for, opens or returns a
connection occupies no place in the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Self

from leveret.client.asynchronous.connection import connect
from leveret.client.errors import ConnectionInUse
from leveret.client.shell.pool import UNUSABLE, ShellPool
from leveret.limits import CLIENT_POOL_CHECK_SECONDS

if TYPE_CHECKING:
    from leveret.client.addresses import Address
    from leveret.client.asynchronous.channel import Channel
    from leveret.client.asynchronous.connection import Connection
    from leveret.client.shell.shelves import Idle, Key


class Pool(ShellPool["Connection"]):
    """A pool with up to `size` connections to each address.

    `uri` and `options` are those of `connect`.  A task waits at most `wait_seconds` for a
    connection (None: no limit).  A connection is closed after `idle_seconds` without use.  Lost
    connections are replaced, and not recovered unless `recover` says so.  Use the pool in
    `async with`, which closes it on exit.
    """

    #: The loop of the first call, to which all connections belong.
    _loop: asyncio.AbstractEventLoop | None = None

    @functools.cached_property
    def _closing(self) -> set[asyncio.Task[None]]:
        """The tasks that close connections."""
        return set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the idle connections now, and the lent ones when they are returned.

        `Closed` is raised in callers that wait for a connection now or ask for one later.
        """
        for connection in self._shelves.close():
            self._discard(connection)
        while self._closing:
            await asyncio.wait(self._closing)

    @contextlib.asynccontextmanager
    async def connection(self, uri: Address = None) -> AsyncIterator[Connection]:
        """Lend a connection to the pool's address, or to `uri` with the pool's options.

        The connection is lent for the block `async with pool.connection() as connection`.  Channels
        that are still open at its end are closed, and their unacked messages requeued.

        Raises: PoolExhausted when none is free in time; Closed; as `connect`.
        """
        key = self._key(uri)
        connection = await self._borrow(key)
        try:
            yield connection
        finally:
            await self._take_back(key, connection)

    @contextlib.asynccontextmanager
    async def channel(self, uri: Address = None) -> AsyncIterator[Channel]:
        """Lend a connection as `connection` does, and yield a new channel on it.

        Raises: as `connection`.
        """
        async with self.connection(uri) as connection:
            yield await connection.channel()

    # -- lending -----------------------------------------------------------------------------------

    async def _borrow(self, key: Key) -> Connection:
        """Return an open connection."""
        self._check_loop()
        self._discard_expired()
        idle = await self._ask(key)
        try:
            while idle is not None:
                if await self._is_healthy(idle):
                    return idle.connection
                idle = self._shelves.another(key)
            return await connect(key, **self._options)
        except BaseException:
            self._shelves.give_up(key)
            raise

    def _check_loop(self) -> None:
        """Raise if the pool was used in another event loop before.  Raises: ConnectionInUse."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise ConnectionInUse(
                "this pool and its connections belong to another event loop: "
                "create one pool for each loop"
            )

    async def _ask(self, key: Key) -> Idle[Connection] | None:
        """Wait for an idle connection, or return None if the caller may open one."""
        waiter: asyncio.Future[Idle[Connection] | None] = asyncio.get_running_loop().create_future()
        self._shelves.ask(key, waiter)
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await asyncio.shield(waiter)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._stop_waiting(key, waiter)
            if isinstance(error, TimeoutError):
                raise self._shelves.exhausted(key, self._wait_seconds or 0) from None
            raise

    async def _is_healthy(self, idle: Idle[Connection]) -> bool:
        """Return whether a connection can be lent; if not, begin to close it.

        The loop reads continuously, so a close by the broker has been noticed.  A connection that
        was idle for long is tested with a request, because a network may fail silently.
        """
        connection = idle.connection
        if connection.is_open and time.monotonic() - idle.since < CLIENT_POOL_CHECK_SECONDS:
            return True
        try:
            async with asyncio.timeout(connection.parameters.connection_timeout_ms / 1000):
                await (await connection.channel()).close()
        except UNUSABLE:
            self._discard(connection)
            return False
        except BaseException:
            self._discard(connection)
            raise
        return True

    async def _take_back(self, key: Key, connection: Connection) -> None:
        """Close the channels left open and return the connection to the pool, or close it."""
        try:
            for channel in connection.channels:
                await channel.close()
            clean = connection.is_open
        except UNUSABLE:
            clean = False
        except BaseException:
            self._shelves.give_up(key)
            self._discard(connection)
            raise
        if not clean:
            self._shelves.give_up(key)
        elif self._shelves.give_back(key, connection, time.monotonic()):
            return
        await connection.close()

    def _discard(self, connection: Connection) -> None:
        """Close a connection in the background."""
        task = asyncio.ensure_future(connection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
