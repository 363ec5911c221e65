"""The guard that restricts an asyncio connection to the event loop that opened it.

A call from another thread would mix its frames with those of the loop, and the broker would reject
them.  A call from another loop would wait forever.  The guard raises before a call has any effect.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import _get_running_loop as running_loop
from typing import Self

from leveret.client.errors import ConnectionInUse

__all__ = ["OneLoop", "running_loop"]


class OneLoop:
    """The event loop of a connection.

    Frequent callers compare `running_loop()` with `loop` first and call `check` if they differ.
    """

    __slots__ = ("_thread", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def check(self) -> None:
        """Raise if called outside the loop.  Raises: ConnectionInUse."""
        running = running_loop()
        if running is self.loop:
            return
        same_thread = threading.get_ident() == self._thread
        if running is None and same_thread and not self.loop.is_closed():
            return  # between two runs of the loop, when nothing runs concurrently
        where = "another event loop" if same_thread else "another thread"
        if self.loop.is_closed():
            where += ", and its own loop has ended"
        raise ConnectionInUse(
            f"this connection was opened in one event loop and called from {where}; an asyncio "
            "connection works only in its own loop: use "
            "asyncio.run_coroutine_threadsafe(coroutine, loop) or "
            "loop.call_soon_threadsafe(function), or open a connection there"
        )
