"""The slices of all HTTP requests: one in every second loop iteration, alternating between users.

A long request does its work in slices of a few milliseconds; `next_slice` ends one and waits for
the next.  However many requests there are, the event loop runs only one slice before it serves its
sockets again.  So other clients wait for one slice, not for one of each request, and a user
with 64 long requests gets no more time than a user with one.  Every second iteration has no slice:
input that another client sent during a slice is routed in the following iteration, and the
deliveries and confirms are sent in the next, before another slice.

`Slices.of` sets the user for the handler inside it.  In work that belongs to no request, such as
sampling, `next_slice` only lets the event loop run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final


class Slices:
    """Schedules the slices of one broker's requests."""

    def __init__(self) -> None:
        #: The requests that wait for a slice, by user; the next user comes first.
        self._waiting: Final[dict[str, deque[asyncio.Future[None]]]] = {}
        #: True from a slice until the next one may begin.
        self._taken = False
        #: The number of slices so far.
        self.count = 0

    @contextmanager
    def of(self, user: str) -> Iterator[None]:
        """Count slices in the block as the user's."""
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
        """Start the next slice, of the user who is next in order."""
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
    """End a slice; return when this request's next slice begins."""
    asking = _ASKING.get()
    if asking is None:
        await asyncio.sleep(0)
    else:
        await asking[0].take(asking[1])
