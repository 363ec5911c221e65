"""Expiry of unused queues (`x-expires`); for the expiry of messages see `ttl.py`.

A queue with consumers does not expire.  The time starts when its last consumer is removed.  The
messages of an expired queue are not dead-lettered.

Source: behaviour 49 (expires).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.scheduler.timers import Timed
from leveret.clock import NO_DEADLINE

if TYPE_CHECKING:
    from leveret.broker.queue.queue import Queue


@final
class QueueExpiry(Timed):
    """The timer that deletes one unused queue."""

    def __init__(self, queue: Queue, expires_ms: i64) -> None:
        super().__init__()
        self.queue = queue
        self.expires_ms: i64 = expires_ms
        self.touched_ms: i64 = queue.core.now_ms
        self.arm()

    def touch(self) -> None:
        """Restart the time because the queue was used."""
        self.touched_ms = self.queue.core.now_ms
        if self.deadline_ms == NO_DEADLINE:
            self.arm()

    def arm(self) -> None:
        """Set the timer to the earliest time at which the queue may expire."""
        self.queue.core.timers.set(self, self.touched_ms + self.expires_ms)

    def due(self, now_ms: i64) -> None:
        """Delete the queue, unless it has been used since or has consumers."""
        self.queue.scheduler.start_later(self._delete())

    def _delete(self) -> Iterator[int]:
        queue = self.queue
        if queue.consumers or queue.deleted or queue.kept:
            return
        if queue.core.now_ms < self.touched_ms + self.expires_ms:
            self.arm()
        elif queue.vhost is not None:
            queue.vhost.drop_unused(queue)
        yield 1


def expiry_of(queue: Queue, before: QueueExpiry | None) -> QueueExpiry | None:
    """Replace `before` by the expiry for the queue's settings; return it, or None without one."""
    if before is not None:
        queue.core.timers.cancel(before)
    expires_ms = queue.settings.expires_ms
    return QueueExpiry(queue, expires_ms) if expires_ms > 0 else None
