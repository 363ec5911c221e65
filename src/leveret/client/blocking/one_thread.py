"""The guard of a blocking connection: one thread at a time is inside its calls.

A connection has one buffer of output and one reader, so two threads in it at once would mix their
frames: a broker then answers with errors for what neither of them did.  The guard tells the second
thread so, before it has changed anything.  Threads may use a connection in turn.
"""

from __future__ import annotations

import threading
from typing import Self

from leveret.client.errors import ConnectionInUse


class OneThread:
    """Entered by each call; a callback that runs inside a call may enter again."""

    __slots__ = ("_holder", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._holder = 0

    def __enter__(self) -> Self:
        if not self._lock.acquire(blocking=False):
            raise ConnectionInUse(
                f"thread {self._name(threading.get_ident())!r} called this connection while a call "
                f"of thread {self._name(self._holder)!r} ran; a blocking connection serves one "
                "thread at a time: open a connection for each thread, or hold a lock around calls"
            )
        self._holder = threading.get_ident()
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    @staticmethod
    def _name(ident: int) -> str:
        """Return the name of a thread, its number where it has ended."""
        names = [thread.name for thread in threading.enumerate() if thread.ident == ident]
        return names[0] if names else str(ident)
