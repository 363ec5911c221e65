"""A connection pool for threads: `with pool.connection() as connection`.

Each address has its own connections.  A connection is lent to one thread at a time.  Channels that
the thread left open, with their consumers and unacked messages, are closed on return.

Invariants: those of `ShellPool`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Self

from leveret.client.blocking.connection import connect
from leveret.client.shell.pool import UNUSABLE, ShellPool
from leveret.limits import CLIENT_POOL_CHECK_SECONDS

if TYPE_CHECKING:
    from leveret.client.addresses import Address
    from leveret.client.blocking.channel import Channel
    from leveret.client.blocking.connection import Connection
    from leveret.client.shell.shelves import Idle, Key


class Pool(ShellPool["Connection"]):
    """A pool with up to `size` connections to each address.

    `uri` and `options` are those of `connect`.  A thread waits at most `wait_seconds` for a
    connection (None: no limit).  A connection is closed after `idle_seconds` without use.  Lost
    connections are replaced, and not recovered unless `recover` says so.  Use the pool in
    `with`, which closes it on exit.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections now, and the lent ones when they are returned.

        `Closed` is raised in callers that wait for a connection now or ask for one later.
        """
        for connection in self._shelves.close():
            self._discard(connection)

    @contextlib.contextmanager
    def connection(self, uri: Address = None) -> Iterator[Connection]:
        """Lend a connection to the pool's address, or to `uri` with the pool's options.

        The connection is lent for the block `with pool.connection() as connection`.  Channels
        that are still open at its end are closed, and their unacked messages requeued.

        Raises: PoolExhausted when none is free in time; Closed; as `connect`.
        """
        key = self._key(uri)
        connection = self._borrow(key)
        try:
            yield connection
        finally:
            self._take_back(key, connection)

    @contextlib.contextmanager
    def channel(self, uri: Address = None) -> Iterator[Channel]:
        """Lend a connection as `connection` does, and yield a new channel on it.

        Raises: as `connection`.
        """
        with self.connection(uri) as connection:
            yield connection.channel()

    # -- lending -----------------------------------------------------------------------------------

    def _borrow(self, key: Key) -> Connection:
        """Return an open connection."""
        self._discard_expired()
        idle = self._ask(key)
        try:
            while idle is not None:
                if self._is_healthy(idle):
                    return idle.connection
                idle = self._shelves.another(key)
            return connect(key, **self._options)
        except BaseException:
            self._shelves.give_up(key)
            raise

    def _ask(self, key: Key) -> Idle[Connection] | None:
        """Wait for an idle connection, or return None if the caller may open one."""
        waiter: Future[Idle[Connection] | None] = Future()
        self._shelves.ask(key, waiter)
        try:
            return waiter.result(self._wait_seconds)
        except TimeoutError:
            if self._shelves.withdraw(key, waiter):
                raise self._shelves.exhausted(key, self._wait_seconds or 0) from None
        except KeyboardInterrupt:
            self._stop_waiting(key, waiter)
            raise
        return waiter.result()  # it was granted at the last moment

    @staticmethod
    def _is_healthy(idle: Idle[Connection]) -> bool:
        """Return whether a connection can be lent; if not, close it.

        An idle connection is not read, so pending input is read now.  A connection that was idle
        for long is tested with a request, because a network may fail silently.
        """
        connection = idle.connection
        try:
            connection.process()
            if time.monotonic() - idle.since >= CLIENT_POOL_CHECK_SECONDS:
                connection.channel().close()
        except UNUSABLE:
            connection.abort()  # a close could wait for an answer that never comes
            return False
        except BaseException:
            connection.abort()
            raise
        return True

    def _take_back(self, key: Key, connection: Connection) -> None:
        """Close the channels left open and return the connection to the pool, or close it."""
        try:
            for channel in connection.channels:
                channel.close()
            clean = connection.is_open
        except UNUSABLE:
            clean = False
        except BaseException:
            self._shelves.give_up(key)
            connection.abort()
            raise
        if not clean:
            self._shelves.give_up(key)
        elif self._shelves.give_back(key, connection, time.monotonic()):
            return
        connection.close()

    def _discard(self, connection: Connection) -> None:
        """Close an idle connection."""
        connection.close()
