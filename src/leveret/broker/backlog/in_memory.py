"""The messages in a queue's memory outside of its pages: new ones, and those that were returned.

`ready.py`, which knows the pages too, decides which message is next.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.backlog.window import NOTHING, Returns, Window


class InMemory:
    """The newest messages of a queue, those that were returned, and the counts of all."""

    def __init__(self) -> None:
        #: The newest; of a deep queue its tail.
        self.window = Window(1)
        self.returns = Returns()
        #: How often the message that was taken last had been returned.
        self.taken_count: i64 = 0
        #: The bytes of all that waits, on the disk too, and of the bodies among them, which
        #: `x-max-length-bytes` bounds.
        self.size: i64 = 0
        self.bodies: i64 = 0

    def first_in_memory(self) -> i64:
        """Return the lowest sequence, or NOTHING."""
        fresh = self.window.first()
        returned = self.returns.first()
        if returned == NOTHING:
            return fresh
        return returned if fresh == NOTHING or returned < fresh else fresh
