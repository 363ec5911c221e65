"""Schedules HTTP requests in slices: one in every second loop iteration, alternating between users.

A long request does its work in slices of a few milliseconds; `next_slice` ends one and waits for
the next.  However many requests are in progress, the event loop runs only one slice before it
serves its sockets again.  So an AMQP client waits for one slice, not for one of each request, and a
user with 64 long requests gets no more time than a user with one.  Every second iteration has no
slice: input that arrived during a slice is routed in the following iteration, and its deliveries
and confirms are sent in the next, before another slice.

`Slices.of` sets the user for the handler inside it.  In work that belongs to no request, such as
sampling, `next_slice` only yields to the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final


class Slices:
    """Schedules the slices of the requests of one broker."""

    def __init__(self) -> None:
        #: The requests that wait for a slice, by user, in the order of users.
        self._waiting: Final[dict[str, deque[asyncio.Future[None]]]] = {}
        #: True from the start of a slice until the next one may start.
        self._taken = False
        #: The number of slices so far.
        self.count = 0

    @contextmanager
    def of(self, user: str) -> Iterator[None]:
        """Assign the slices in the `with` block to a user."""
        token = _ASKING.set((self, user))
        try:
            yield
        finally:
            _ASKING.reset(token)

    async def take(self, user: str) -> None:
        """Wait for the user's next slice."""
        if not self._taken:
            self._taken = True
            self.count += 1
            self._rest()
            return
        core: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(core)
        await core

    def _rest(self) -> None:
        """Schedule the next slice after an iteration without one."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._next)

    def _next(self) -> None:
        """Start the next slice, for the first waiting request of the next user."""
        while self._waiting:
            user = next(iter(self._waiting))
            line = self._waiting.pop(user)
            core = line.popleft()
            if line:
                # The user's other requests wait until the other users have had a slice.
                self._waiting[user] = line
            # The request may have ended while it waited.
            if not core.done():
                self.count += 1
                core.set_result(None)
                self._rest()
                return
        self._taken = False


_ASKING: Final[ContextVar[tuple[Slices, str] | None]] = ContextVar("asking", default=None)


async def next_slice() -> None:
    """End the slice of this request, and return when its next slice begins."""
    asking = _ASKING.get()
    if asking is None:
        await asyncio.sleep(0)
    else:
        await asking[0].take(asking[1])
