"""The part of a connection pool that both shells share; they add waiting, opening and closing.

Invariants: those of `Shelves`; a connection is open when it is lent; a caller that stops waiting
occupies no place in the pool.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, TypeVar, Unpack

from leveret.client.addresses import addresses
from leveret.client.errors import ClientError
from leveret.client.options import split, without_recovery
from leveret.client.shell.shelves import Shelves
from leveret.errors import AmqpError
from leveret.limits import (
    CLIENT_POOL_CONNECTIONS,
    CLIENT_POOL_IDLE_SECONDS,
    CLIENT_POOL_WAIT_SECONDS,
)

if TYPE_CHECKING:
    from leveret.client.addresses import Address
    from leveret.client.options import ConnectOptions
    from leveret.client.shell.shelves import Key, Waiter

#: The maximum number of callers waiting for one address; more could not be served in time anyway.
_WAITERS_MAX: Final = 10_000

C = TypeVar("C")

#: Failures after which a pooled connection is closed and another one is used.
UNUSABLE: Final = (AmqpError, ClientError, OSError)


class ShellPool(ABC, Generic[C]):
    """A pool with up to `size` connections to each address.

    `uri` and `options` are those of `connect`.  A caller waits at most `wait_seconds` for a
    connection (None: no limit).  A connection is closed after `idle_seconds` without use.
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
        self._where, how = split(options)
        self._options = without_recovery(how)
        self._default = addresses(uri, self._where)
        self._wait_seconds = wait_seconds
        self._shelves: Shelves[C] = Shelves(size, idle_seconds, _WAITERS_MAX)

    @property
    def lent_count(self) -> int:
        """The number of connections that are lent or being opened."""
        return self._shelves.lent_count

    @property
    def idle_count(self) -> int:
        """The number of idle connections."""
        return self._shelves.idle_count

    @property
    def waiting_count(self) -> int:
        """The number of callers waiting for a connection."""
        return self._shelves.waiting_count

    @abstractmethod
    def _discard(self, connection: C) -> None:
        """Close an idle connection, now or soon."""

    def _key(self, uri: Address) -> Key:
        """Return the addresses of `uri`, or the pool's own."""
        return self._default if uri is None else addresses(uri, self._where)

    def _discard_expired(self) -> None:
        """Close the connections that were idle for too long."""
        for connection in self._shelves.take_expired(time.monotonic()):
            self._discard(connection)

    def _stop_waiting(self, key: Key, waiter: Waiter[C]) -> None:
        """Withdraw the waiter, or return the connection or place that it has just received."""
        if self._shelves.withdraw(key, waiter) or waiter.exception() is not None:
            return
        idle = waiter.result()
        if idle is None:
            self._shelves.give_up(key)
        elif not self._shelves.give_back(key, idle.connection, idle.since):
            self._discard(idle.connection)
