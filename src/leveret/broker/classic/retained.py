"""Acked messages that their queue keeps, so that it can be rewound.

A queue with `x-retain-acked` or `x-retain-acked-bytes` keeps what was acked: for so long after it
was published, and so much of it.  `ClassicQueue.rewind` puts back what was published at a time or
later, at its old place and marked as redelivered.

To the journal an acked message that is kept is one that came back `RETAINED_COUNT` times; the ack
is journaled when retention drops it.  So a crash or a checkpoint loses nothing of it, and a broker
that knows nothing of retention would deliver it again rather than lose it.

Invariants: what is kept is neither ready nor unacked, and counts in the memory that messages hold;
each message kept has one entry in the heap of sequences.
"""

from __future__ import annotations

import heapq
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.backlog.source import Returned
from leveret.broker.classic.chunked import ChunkedQueue
from leveret.broker.core.timers import Timed
from leveret.broker.values.expiration import deadline_of
from leveret.broker.values.queue_settings import UNSET
from leveret.clock import NO_DEADLINE
from leveret.limits import RETAINED_BYTES_MAX, RETAINED_OVERHEAD_BYTES, SLICE_MESSAGES
from leveret.message import Message

#: The delivery count that marks a message as acked and kept: the greatest that a record holds.
RETAINED_COUNT: Final = 0x7FFF_FFFF


@final
class Retained(Timed):
    """The acked messages that one queue keeps."""

    def __init__(self, queue: ChunkedQueue) -> None:
        super().__init__()
        self.queue = queue
        #: How long after its publish a message is kept; -1 is no limit.
        self.age_ms_max: i64 = -1
        self.bytes_max: i64 = RETAINED_BYTES_MAX
        self.messages: dict[i64, Message] = {}
        self.size: i64 = 0
        self._heap: list[int] = []

    def configure(self, age_ms_max: i64, bytes_max: i64) -> None:
        """Set the limits; a limit of 0 drops all messages."""
        self.age_ms_max = age_ms_max
        self.bytes_max = RETAINED_BYTES_MAX if bytes_max < 0 else bytes_max
        self._arm()
        self.trim()

    def end(self) -> None:
        """Retain nothing from now on, and drop what is retained."""
        self.configure(UNSET, 0)

    def wants(self, message: Message) -> bool:
        """Return whether a message that is acked now is to be retained."""
        if _cost(message) > self.bytes_max:
            return False
        return self.age_ms_max < 0 or (
            self.queue.turn.now_ms < message.timestamp_ms + self.age_ms_max
        )

    def keep(self, sequence: i64, message: Message) -> None:
        """Retain an acked message, and drop the oldest ones beyond the limits."""
        self.messages[sequence] = message
        self.size += _cost(message)
        heapq.heappush(self._heap, int(sequence))
        if self.size > self.bytes_max:
            self.trim()
        elif len(self._heap) == 1:
            self._arm()

    def trim(self) -> None:
        """Drop a slice of the messages beyond the limits, the oldest first."""
        now_ms = self.queue.turn.now_ms
        dropped: i64 = 0
        while self._heap and dropped < SLICE_MESSAGES:
            sequence: i64 = self._heap[0]
            message = self.messages[sequence]
            old = 0 <= self.age_ms_max <= now_ms - message.timestamp_ms
            if not old and self.size <= self.bytes_max:
                break
            heapq.heappop(self._heap)
            del self.messages[sequence]
            self.size -= _cost(message)
            self.queue.let_go(sequence, message)
            dropped += 1
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the end of the oldest message, or to now if there is more to drop."""
        timers = self.queue.turn.timers
        if not self._heap:
            timers.cancel(self)
        elif self.size > self.bytes_max:
            timers.set(self, self.queue.turn.now_ms)
        elif self.age_ms_max >= 0:
            first: i64 = self._heap[0]
            timers.set(self, self.messages[first].timestamp_ms + self.age_ms_max)
        else:
            timers.cancel(self)

    def due(self, now_ms: i64) -> None:
        """Drop the messages that are too old."""
        self.trim()

    def take_since(self, timestamp_ms: i64) -> list[Returned]:
        """Return the messages published at that time or later, in order, and retain them no more.

        What has expired by now stays.
        """
        now_ms = self.queue.turn.now_ms
        ttl = self.queue.settings.message_ttl_ms
        taken: list[Returned] = []
        left: list[int] = []
        for number in sorted(self._heap):
            sequence: i64 = number
            message = self.messages[sequence]
            deadline = deadline_of(message, ttl)
            expired = deadline != NO_DEADLINE and deadline <= now_ms
            if message.timestamp_ms < timestamp_ms or expired:
                left.append(number)
                continue
            del self.messages[sequence]
            self.size -= _cost(message)
            taken.append(Returned(sequence, message, 1))
        self._heap = left
        self._arm()
        return taken

    def restore(self, kept: list[Returned]) -> None:
        """Start with the messages retained before a restart, in the order of their sequences."""
        for item in kept:
            self.messages[item.sequence] = item.message
            self.size += _cost(item.message)
            self.queue.turn.held_bytes += item.message.size
            self._heap.append(int(item.sequence))
        self._arm()

    def persistent(self) -> list[Returned]:
        """Return the retained messages that are journaled, for a checkpoint."""
        return [
            Returned(sequence, message, RETAINED_COUNT)
            for sequence, message in self.messages.items()
            if message.persistent
        ]

    def clear(self) -> None:
        """Drop all messages, because the queue is deleted; its record stands for them."""
        turn = self.queue.turn
        turn.timers.cancel(self)
        for message in self.messages.values():
            turn.held_bytes -= message.size
        turn.held_messages -= len(self.messages)
        self.messages.clear()
        self._heap.clear()
        self.size = 0


def _cost(message: Message) -> i64:
    """Return what a message counts for the limit."""
    return message.size + RETAINED_OVERHEAD_BYTES


def retention_of(queue: ChunkedQueue, retained: Retained | None) -> Retained | None:
    """Return what a queue retains by its settings; `retained` is what it had."""
    settings = queue.settings
    if settings.retains():
        if retained is None:
            retained = Retained(queue)
        retained.configure(settings.retain_acked_ms, settings.retain_acked_bytes)
    elif retained is not None:
        retained.end()
    return retained
