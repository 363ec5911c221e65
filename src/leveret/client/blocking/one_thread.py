"""The guard of a blocking connection: only one thread at a time may be inside its calls.

A connection has one output buffer and one reader, so two concurrent threads would mix their frames
and the broker would reject them.  The guard raises in the second thread before its call has any
effect.  Threads may use a connection one after the other.
"""

from __future__ import annotations

import threading
from typing import Self

from leveret.client.errors import ConnectionInUse


class OneThread:
    """A lock that each call enters; a callback inside a call may enter it again."""

    __slots__ = ("_holder", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._holder = 0

    def __enter__(self) -> Self:
        if not self._lock.acquire(False):
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
        """Return the name of a thread, or its number if it has ended."""
        names = [thread.name for thread in threading.enumerate() if thread.ident == ident]
        return names[0] if names else str(ident)
