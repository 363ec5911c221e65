"""A connection pool for threads: `with pool.connection() as connection`.

Each address has its own connections.  A connection is lent to one thread at a time.  Channels that
the thread left open, with their consumers and unacked messages, are closed on return.

Invariants: those of `Shelves`, which are only accessed under the lock; no socket is used under it;
a lent connection was open a moment ago.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self, Unpack

from leveret.client.addresses import addresses
from leveret.client.blocking.connection import connect
from leveret.client.errors import ClientError
from leveret.client.options import split, without_recovery
from leveret.client.shell.shelves import Shelves, Waiter
from leveret.errors import AmqpError
from leveret.limits import (
    CLIENT_POOL_CHECK_SECONDS,
    CLIENT_POOL_CONNECTIONS,
    CLIENT_POOL_IDLE_SECONDS,
    CLIENT_POOL_WAIT_SECONDS,
    CLIENT_POOL_WAITERS_MAX,
)

if TYPE_CHECKING:
    from leveret.client.addresses import Address
    from leveret.client.blocking.channel import Channel
    from leveret.client.blocking.connection import Connection
    from leveret.client.options import ConnectOptions
    from leveret.client.shell.shelves import Idle, Key


class _Waiting(Waiter["Connection"]):
    """A waiting thread."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._idle: Idle[Connection] | None = None
        self._error: Exception | None = None

    def served(self, idle: Idle[Connection] | None) -> None:
        self._idle = idle
        self._done.set()

    def refused(self, error: Exception) -> None:
        self._error = error
        self._done.set()

    def wait(self, seconds: float | None) -> bool:
        """Wait until served or refused; return False after a timeout."""
        return self._done.wait(seconds)

    def result(self) -> Idle[Connection] | None:
        """Return the connection or place that was granted.  Raises: Closed."""
        if self._error is not None:
            raise self._error
        return self._idle


class Pool:
    """Connections to lend, `size` for each address; `uri` and `options` are those of `connect`.

    A thread waits at most `wait_seconds` for a connection (None: no limit); a connection is closed
    after `idle_seconds` unused.  Use the pool in `with`, which closes it on exit.
    """

    def __init__(
        self,
        uri: Address = None,
        *,
        size: int = CLIENT_POOL_CONNECTIONS,
        wait_seconds: float | None = CLIENT_POOL_WAIT_SECONDS,
        idle_seconds: float = CLIENT_POOL_IDLE_SECONDS,
        **options: Unpack[ConnectOptions],
    ) -> None:
        self._where, self._how = split(options)
        self._default = addresses(uri, self._where)
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._shelves: Shelves[Connection] = Shelves(size, idle_seconds, CLIENT_POOL_WAITERS_MAX)

    @property
    def lent_count(self) -> int:
        """The number of connections that are lent, or being opened to be lent."""
        with self._lock:
            return self._shelves.lent_count

    @property
    def idle_count(self) -> int:
        """The number of open connections that are ready to lend."""
        with self._lock:
            return self._shelves.idle_count

    @property
    def waiting_count(self) -> int:
        """The number of threads waiting for a connection."""
        with self._lock:
            return self._shelves.waiting_count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections now, and the lent ones when they are returned.

        Current and later callers that need a connection get `Closed`.
        """
        with self._lock:
            idle = self._shelves.close()
        for connection in idle:
            connection.close()

    @contextlib.contextmanager
    def connection(self, uri: Address = None) -> Iterator[Connection]:
        """Lend a connection to the pool's address, or to `uri` with the pool's options.

        Raises: PoolExhausted when none is free in time; Closed; as `connect`.
        """
        key = self._default if uri is None else addresses(uri, self._where)
        connection = self._borrow(key)
        try:
            yield connection
        finally:
            self._take_back(key, connection)

    @contextlib.contextmanager
    def channel(self, uri: Address = None) -> Iterator[Channel]:
        """Lend a connection like `connection`, with one channel open on it."""
        with self.connection(uri) as connection:
            yield connection.channel()

    # -- lending -----------------------------------------------------------------------------------

    def _borrow(self, key: Key) -> Connection:
        """Return an open connection."""
        with self._lock:
            expired = self._shelves.take_expired(time.monotonic())
        for connection in expired:
            connection.close()
        idle = self._ask(key)
        try:
            while idle is not None:
                if self._is_healthy(idle):
                    return idle.connection
                with self._lock:
                    idle = self._shelves.another(key)
            return connect(key, **without_recovery(self._how))
        except BaseException:
            with self._lock:
                self._shelves.give_up(key)
            raise

    def _ask(self, key: Key) -> Idle[Connection] | None:
        """Wait for an idle connection; None means that a new one may be opened."""
        waiting = _Waiting()
        with self._lock:
            self._shelves.ask(key, waiting)
        try:
            if waiting.wait(self._wait_seconds):
                return waiting.result()
        except KeyboardInterrupt:
            self._stop_waiting(key, waiting)
            raise
        with self._lock:
            if self._shelves.withdraw(key, waiting):
                raise self._shelves.exhausted(key, self._wait_seconds or 0)
        return waiting.result()  # it was granted at the last moment

    def _stop_waiting(self, key: Key, waiting: _Waiting) -> None:
        """Withdraw, or return a connection or place that was granted at the last moment."""
        with self._lock:
            if self._shelves.withdraw(key, waiting):
                return
        idle = waiting.result()
        if idle is not None:
            self._take_back(key, idle.connection)
            return
        with self._lock:
            self._shelves.give_up(key)

    @staticmethod
    def _is_healthy(idle: Idle[Connection]) -> bool:
        """Return whether a connection can be lent; if not, close it.

        An idle connection is not read, so pending input is read now.  A connection that was unused
        for long is tested with a request, as a network may fail silently.
        """
        connection = idle.connection
        try:
            connection.process()
            if time.monotonic() - idle.since >= CLIENT_POOL_CHECK_SECONDS:
                connection.channel().close()
        except (AmqpError, ClientError, OSError):
            connection.abort()  # a close could wait for an answer that never comes
            return False
        except BaseException:
            connection.abort()
            raise
        return True

    def _take_back(self, key: Key, connection: Connection) -> None:
        """Close the channels left open and keep the connection; close it if that fails."""
        try:
            for channel in connection.channels:
                channel.close()
            clean = connection.is_open
        except (AmqpError, ClientError, OSError):
            clean = False
        except BaseException:
            with self._lock:
                self._shelves.give_up(key)
            connection.abort()
            raise
        with self._lock:
            if not clean:
                self._shelves.give_up(key)
            elif self._shelves.give_back(key, connection, time.monotonic()):
                return
        connection.close()
