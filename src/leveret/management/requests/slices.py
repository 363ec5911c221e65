"""The slices of all HTTP requests: one in each turn of the event loop, and users take turns.

A request that is long does its work in slices of a few milliseconds.  `next_slice` ends one and
waits for the next.  Whatever the number of requests, the loop runs one slice between two looks at
its sockets, so that a neighbour waits for one of them and not for one of each request; and a user
with 64 long requests gets no more of the loop than a user with one.

A request's handler does not know whose slice it runs: `Slices.of` says so around it.  Work that
belongs to no request, such as the samples, gives way to the loop alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final


class Slices:
    """The slices of one broker's requests."""

    def __init__(self) -> None:
        #: Those that wait for a slice, by user; the user whose turn is next comes first.
        self._waiting: Final[dict[str, deque[asyncio.Future[None]]]] = {}
        #: Whether this turn of the loop has had its slice.
        self._taken = False
        #: How many slices there were.
        self.count = 0

    @contextmanager
    def of(self, user: str) -> Iterator[None]:
        """Count what is done in the block as a user's."""
        token = _ASKING.set((self, user))
        try:
            yield
        finally:
            _ASKING.reset(token)

    async def take(self, user: str) -> None:
        """Wait until it is the user's turn."""
        if not self._taken:
            self._taken = True
            self.count += 1
            asyncio.get_running_loop().call_soon(self._next)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        await turn

    def _next(self) -> None:
        """Give the next turn of the loop to who comes next in it."""
        while self._waiting:
            user = next(iter(self._waiting))
            line = self._waiting.pop(user)
            turn = line.popleft()
            if line:
                # The user's next request waits for all other users.
                self._waiting[user] = line
            # The request may have ended while it waited.
            if not turn.done():
                self.count += 1
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._taken = False


_ASKING: Final[ContextVar[tuple[Slices, str] | None]] = ContextVar("asking", default=None)


async def next_slice() -> None:
    """End a slice of work; return when the loop has served others and it is one's turn again."""
    asking = _ASKING.get()
    if asking is None:
        await asyncio.sleep(0)
    else:
        await asking[0].take(asking[1])
