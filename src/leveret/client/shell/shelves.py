"""The state of a pool for each address: idle connections, taken places and waiting callers.

The pools of both shells use it, from any thread.  It opens no connections, does not block and reads
no clock.

A *place* is the right to have one connection to an address.  A caller gets an idle connection with
its place, or a place for a new connection, and returns the place by `give_back` or `give_up`.

Invariants: an address has at most `size` places; no caller waits while a place or an idle
connection is free; callers are served in the order of their requests.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from leveret.client.errors import Closed, PoolExhausted

C = TypeVar("C")

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures

    from leveret.client.uri import Parameters

    #: The future of a waiting caller.  Its result is an idle connection, or None for a place for a
    #: new connection.  It fails when the pool is closed.
    Waiter = asyncio.Future["Idle[C] | None"] | concurrent.futures.Future["Idle[C] | None"]

#: The key of a shelf: the addresses that are tried in order.
Key = tuple["Parameters", ...]


class Idle(Generic[C]):
    """An idle connection, and when it became idle (monotonic seconds)."""

    __slots__ = ("connection", "since")

    def __init__(self, connection: C, since: float) -> None:
        self.connection = connection
        self.since = since


class Shelf(Generic[C]):
    """The connections to one address; `places` counts idle and lent connections."""

    def __init__(self) -> None:
        self.places = 0
        self.idle: deque[Idle[C]] = deque()
        self.waiters: deque[Waiter[C]] = deque()


class Shelves(Generic[C]):
    """The shelves of one pool, by address."""

    def __init__(self, size: int, idle_seconds: float, waiters_max: int) -> None:
        if size < 1:
            raise ValueError(f"a pool needs a size of at least 1, not {size}")
        self.size = size
        self.idle_seconds = idle_seconds
        self.waiters_max = waiters_max
        self.is_closed = False
        self._shelves: dict[Key, Shelf[C]] = {}
        self._lock = threading.RLock()

    @property
    def lent_count(self) -> int:
        """The number of connections that are lent or being opened."""
        with self._lock:
            return sum(shelf.places - len(shelf.idle) for shelf in self._shelves.values())

    @property
    def idle_count(self) -> int:
        """The number of idle connections."""
        with self._lock:
            return sum(len(shelf.idle) for shelf in self._shelves.values())

    @property
    def waiting_count(self) -> int:
        """The number of waiting callers."""
        with self._lock:
            return sum(len(shelf.waiters) for shelf in self._shelves.values())

    def ask(self, key: Key, waiter: Waiter[C]) -> None:
        """Serve `waiter` at once, or queue it.

        Raises: Closed; PoolExhausted when too many callers are waiting.
        """
        with self._lock:
            if self.is_closed:
                raise Closed("the pool was closed")
            shelf = self._shelves.setdefault(key, Shelf())
            if shelf.idle:
                # The connection used last is the most likely to be alive.
                waiter.set_result(shelf.idle.pop())
            elif shelf.places < self.size:
                shelf.places += 1
                waiter.set_result(None)
            elif len(shelf.waiters) >= self.waiters_max:
                raise PoolExhausted(
                    f"all {self.size} connections to {_shown(key)} are lent and "
                    f"{len(shelf.waiters)} callers already wait for one: return them sooner, "
                    "or give the pool a larger size"
                )
            else:
                shelf.waiters.append(waiter)

    def withdraw(self, key: Key, waiter: Waiter[C]) -> bool:
        """Remove a waiter; return False if its future is already resolved."""
        with self._lock:
            shelf = self._shelves.get(key)
            if shelf is None or waiter not in shelf.waiters:
                return False
            shelf.waiters.remove(waiter)
            return True

    def exhausted(self, key: Key, seconds: float) -> PoolExhausted:
        """Return the error for a caller that has waited too long."""
        return PoolExhausted(
            f"all {self.size} connections to {_shown(key)} are lent and none was returned in "
            f"{seconds:g} s: return them sooner, or give the pool a larger size"
        )

    def give_back(self, key: Key, connection: C, now: float) -> bool:
        """Take back a usable connection; return False if the pool is closed.

        In that case the place is freed, and the caller must close the connection.
        """
        with self._lock:
            if self.is_closed:
                self.give_up(key)
                return False
            shelf = self._shelves[key]
            idle = Idle(connection, now)
            if shelf.waiters:
                shelf.waiters.popleft().set_result(idle)
            else:
                shelf.idle.append(idle)
            return True

    def give_up(self, key: Key) -> None:
        """Free the place of a connection that has ended or could not be opened."""
        with self._lock:
            shelf = self._shelves[key]
            if shelf.waiters:
                shelf.waiters.popleft().set_result(None)
                return
            shelf.places -= 1
            if shelf.places == 0:
                del self._shelves[key]

    def another(self, key: Key) -> Idle[C] | None:
        """Replace a connection that has ended: free its place and return an idle connection.

        Return None if no connection is idle; the caller then keeps the place to open one.
        """
        with self._lock:
            shelf = self._shelves[key]
            if not shelf.idle:
                return None
            found = shelf.idle.pop()
            self.give_up(key)
            return found

    def take_expired(self, now: float) -> list[C]:
        """Remove and return the connections that were idle for `idle_seconds`."""
        with self._lock:
            expired: list[C] = []
            for key, shelf in list(self._shelves.items()):
                while shelf.idle and now - shelf.idle[0].since >= self.idle_seconds:
                    expired.append(shelf.idle.popleft().connection)
                    self.give_up(key)
            return expired

    def close(self) -> list[C]:
        """Refuse current and later waiters; return the idle connections."""
        with self._lock:
            self.is_closed = True
            idle: list[C] = []
            for key, shelf in list(self._shelves.items()):
                waiters = list(shelf.waiters)
                shelf.waiters.clear()
                for waiter in waiters:
                    waiter.set_exception(Closed("the pool was closed"))
                while shelf.idle:
                    idle.append(shelf.idle.pop().connection)
                    self.give_up(key)
            return idle


def _shown(key: Key) -> str:
    """Format the addresses, without passwords."""
    return ", ".join(str(parameters) for parameters in key)
