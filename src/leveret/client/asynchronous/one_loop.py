"""The guard of an asyncio connection: it is used in the loop that `connect` ran in, and only there.

A call from another thread would mix its frames with those of the loop, and the broker would answer
with errors for what neither of them did; a call from another loop would wait for ever.  The guard
says so before anything has changed.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import _get_running_loop as running_loop

from leveret.client.errors import ConnectionInUse

__all__ = ["OneLoop", "running_loop"]


class OneLoop:
    """The loop of a connection.

    Who calls often compares `running_loop()` with `loop` first, and asks `check` if they differ.
    """

    __slots__ = ("_thread", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def check(self) -> None:
        """Refuse a call from elsewhere.  Raises: ConnectionInUse."""
        running = running_loop()
        if running is self.loop:
            return
        same_thread = threading.get_ident() == self._thread
        if running is None and same_thread and not self.loop.is_closed():
            return  # between two runs of the loop: nothing else can happen meanwhile
        where = "another event loop" if same_thread else "another thread"
        if self.loop.is_closed():
            where += ", and its own loop has ended"
        raise ConnectionInUse(
            f"this connection was called from {where} than connect() ran in; an asyncio connection "
            "serves its own loop only: use asyncio.run_coroutine_threadsafe(coroutine, loop) or "
            "loop.call_soon_threadsafe(function), or open a connection there"
        )
