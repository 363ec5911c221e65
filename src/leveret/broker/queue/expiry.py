"""The expiry of queues that nobody uses (`x-expires`, behaviour 49).

Invariant: a queue with consumers does not expire; the time counts from the end of the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.core.timers import Timed
from leveret.clock import NO_DEADLINE

if TYPE_CHECKING:
    from leveret.broker.queue.queue import Queue


@final
class QueueExpiry(Timed):
    """The expiry of one queue; its messages are not dead-lettered."""

    def __init__(self, queue: Queue, expires_ms: i64) -> None:
        super().__init__()
        self.queue = queue
        self.expires_ms: i64 = expires_ms
        self.touched_ms: i64 = queue.turn.now_ms
        self.arm()

    def touch(self) -> None:
        """Restart the time, because the queue was used."""
        self.touched_ms = self.queue.turn.now_ms
        if self.deadline_ms == NO_DEADLINE:
            self.arm()

    def arm(self) -> None:
        """Set the timer to when the queue may expire."""
        self.queue.turn.timers.set(self, self.touched_ms + self.expires_ms)

    def due(self, now_ms: i64) -> None:
        """Delete the queue, unless it was used since; with consumers the last one's end counts."""
        self.queue.turn.start_later(self._delete())

    def _delete(self) -> Iterator[int]:
        queue = self.queue
        if queue.consumers or queue.deleted or queue.kept:
            return
        if queue.turn.now_ms < self.touched_ms + self.expires_ms:
            self.arm()
        elif queue.vhost is not None:
            queue.vhost.drop_unused(queue)
        yield 1
