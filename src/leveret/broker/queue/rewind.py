"""Retained messages: acked messages that a queue keeps for a rewind.

A queue with `x-retain-acked` or `x-retain-acked-bytes` retains acked messages: for a time after
they were published, and up to a size, within the share of memory for all retained messages
(`retention.py`).  `ClassicQueue.rewind` puts back messages that were published at a time or later,
at their old places and marked as redelivered.

In the journal, a retained message has `RETAINED_COUNT` returns; its ack is journaled when retention
drops it.  So a crash or a checkpoint loses no retained message, and a broker without this feature
would deliver it again instead of losing it.

During a rewind of many messages, the first of them are already in the queue, in order, and the
others are still retained.

Invariants: retained messages are neither ready nor unacked, and count in the memory of messages;
each retained message has an entry in the heap of sequences.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.expiration import deadline_of
from leveret.broker.attributes.settings import UNSET
from leveret.broker.backlog.window import RequeuedMessage
from leveret.broker.queue.requeue import put_back
from leveret.broker.scheduler.retained_share import RetainedShare, Shrinking
from leveret.broker.scheduler.task import Task
from leveret.broker.scheduler.timers import Timed
from leveret.clock import NO_DEADLINE
from leveret.limits import RETAINED_BYTES_MAX
from leveret.message import Message
from leveret.store.records.record import RETAINED_COUNT

if TYPE_CHECKING:
    from leveret.broker.queue.classic import ClassicQueue

#: The overhead of a retained message in addition to its bytes.
RETAINED_OVERHEAD_BYTES: Final = 256


#: The cost of putting a message back: a heap entry, a record, a place in the queue.
_REWOUND: Final = 2

#: The maximum number of messages dropped at once, before a task drops the rest.
_DROPPED_AT_ONCE: Final = 16


@final
class Retained(Timed, Shrinking):
    """The retained messages of one queue."""

    def __init__(self, queue: ClassicQueue) -> None:
        super().__init__()
        self.queue = queue
        #: The time for which a message is retained after its publish; -1 means no limit.
        self.age_ms_max: i64 = -1
        self.bytes_max: i64 = RETAINED_BYTES_MAX
        self.messages: dict[i64, Message] = {}
        self._keeper: Final = RetainedShare(queue.core.memory.retention, self)
        #: The sequences of all retained messages, and of some that were put back.
        self._heap: list[int] = []
        self._rewindings: list[Rewinding] = []
        #: True while a task drops messages.
        self._trims = False

    @property
    def size(self) -> i64:
        """The size of the messages as the limits count it."""
        return self._keeper.bytes

    def _is_over(self) -> bool:
        return self._keeper.bytes > self.bytes_max or self._keeper.is_over()

    def configure(self, age_ms_max: i64, bytes_max: i64) -> None:
        """Set the limits; a limit of 0 drops all messages."""
        self.age_ms_max = age_ms_max
        self.bytes_max = RETAINED_BYTES_MAX if bytes_max < 0 else bytes_max
        self._arm()
        self.shrink()

    def end(self) -> None:
        """Stop retaining messages, and drop those that are retained."""
        self.configure(UNSET, 0)

    def wants(self, message: Message) -> bool:
        """Return whether a message that is acked now must be retained."""
        if _cost(message) > self.bytes_max:
            return False
        return self.age_ms_max < 0 or (
            self.queue.core.now_ms < message.timestamp_ms + self.age_ms_max
        )

    def keep(self, sequence: i64, message: Message) -> None:
        """Retain an acked message, and drop the oldest ones beyond the limits."""
        # Retaining takes as long as settling two messages.
        self.queue.scheduler.spent += 1
        self.messages[sequence] = message
        heapq.heappush(self._heap, int(sequence))
        for rewinding in self._rewindings:
            rewinding.added.append(int(sequence))
        self._keeper.book(_cost(message))
        if self._is_over():
            self.shrink()
        elif len(self.messages) == 1:
            self._arm()

    def shrink(self) -> None:
        """Drop the messages that are too old or beyond the limits, the oldest first.

        If there are many, a task drops the rest.
        """
        left: i64 = _DROPPED_AT_ONCE
        while self._drop_first():
            self.queue.scheduler.spent += 1
            left -= 1
            if left == 0:
                if not self._trims:
                    self._trims = True
                    self.queue.scheduler.start_later(self._drop_old())
                return
        self._arm()

    def _drop_old(self) -> Iterator[int]:
        while self._drop_first():
            yield 1
        self._trims = False
        self._arm()

    def _drop_first(self) -> bool:
        """Drop the oldest entry if its message was put back, is too old or is beyond a limit."""
        if not self._heap:
            return False
        sequence: i64 = self._heap[0]
        message = self.messages.get(sequence)
        if message is not None:
            age_ms = self.queue.core.now_ms - message.timestamp_ms
            if not self._is_over() and not 0 <= self.age_ms_max <= age_ms:
                return False
            del self.messages[sequence]
            self._keeper.book(-_cost(message))
            self.queue.let_go(sequence, message)
        heapq.heappop(self._heap)
        return True

    def _arm(self) -> None:
        """Set the timer to the expiry of the oldest message, or to now if there is more to drop."""
        timers = self.queue.core.timers
        if not self.messages or (self.age_ms_max < 0 and not self._is_over()):
            timers.cancel(self)
            return
        first = self.messages.get(self._heap[0])
        if first is None or self._is_over():
            # The entry of a message that was put back remains until the heap is examined.
            timers.set(self, self.queue.core.now_ms)
        else:
            timers.set(self, first.timestamp_ms + self.age_ms_max)

    def due(self, now_ms: i64) -> None:
        """Drop the messages that are too old."""
        self.shrink()

    def rewind(self, timestamp_ms: i64) -> Rewinding:
        """Start putting back messages published at `timestamp_ms` or later, the oldest first.

        They return to their old places and are marked as redelivered.  Expired messages stay
        retained.
        """
        rewinding = Rewinding()
        rewinding.task = self.queue.scheduler.start(self._put_all_back(timestamp_ms, rewinding))
        return rewinding

    def _put_all_back(self, timestamp_ms: i64, rewinding: Rewinding) -> Iterator[int]:
        self._rewindings.append(rewinding)
        waiting = list(self._heap)
        # The sequences that stay retained, and those acked since, which become the new heap.
        left: list[int] = []
        added = rewinding.added
        while waiting or added:
            if not waiting:
                heapq.heappush(left, added.pop())
            else:
                sequence = heapq.heappop(waiting)
                if sequence in self.messages:
                    if self._put_back(sequence, timestamp_ms):
                        rewinding.count += 1
                    else:
                        left.append(sequence)
            yield _REWOUND
        self._rewindings.remove(rewinding)
        old = self._heap
        self._heap = left
        self.queue.core.memory.free(old)
        self._arm()

    def _put_back(self, sequence: i64, timestamp_ms: i64) -> bool:
        """Put a message back, unless it was published before `timestamp_ms` or has expired."""
        message = self.messages[sequence]
        if message.timestamp_ms < timestamp_ms:
            return False
        queue = self.queue
        deadline = deadline_of(message, queue.settings.message_ttl_ms)
        if deadline != NO_DEADLINE and deadline <= queue.core.now_ms:
            return False
        del self.messages[sequence]
        self._keeper.book(-_cost(message))
        item = RequeuedMessage(sequence, message, 1)
        if queue.recorded and message.persistent:
            queue.core.journal.requeue(queue.queue_id, sequence, item.count)
        if queue.queued_keys is not None:
            queue.queued_keys.came_back(sequence, message)
        put_back(queue, item)
        queue.rewound += 1
        return True

    def restore(self, kept: list[RequeuedMessage]) -> None:
        """Restore the messages retained before a restart, in the order of their sequences."""
        for item in kept:
            self.messages[item.sequence] = item.message
            self._keeper.book(_cost(item.message))
            self.queue.core.memory.hold(item.message.size)
            self._heap.append(int(item.sequence))
        self._arm()

    def persistent(self) -> list[RequeuedMessage]:
        """Return the retained messages that are journaled, for a checkpoint."""
        return [
            RequeuedMessage(sequence, message, RETAINED_COUNT)
            for sequence, message in self.messages.items()
            if message.persistent
        ]

    def within(self, first: i64, last: i64) -> list[RequeuedMessage]:
        """Return the retained messages from `first` to `last` that are journaled."""
        kept = self.messages
        few = last - first < len(kept)
        places = [at for at in range(int(first), int(last) + 1) if at in kept] if few else [*kept]
        return [
            RequeuedMessage(place, kept[place], RETAINED_COUNT)
            for place in places
            if first <= place <= last and kept[place].persistent
        ]

    def clear(self) -> None:
        """Drop all messages.  In the journal, the record of the queue's deletion covers them."""
        core = self.queue.core
        core.timers.cancel(self)
        count: i64 = len(self.messages)
        core.memory.release_all(count, self._keeper.bytes - count * RETAINED_OVERHEAD_BYTES)
        core.memory.free_table(self.messages)
        core.memory.free(self._heap)
        self.messages = {}
        self._heap = []
        self._keeper.end()


@final
class Rewinding:
    """One rewind."""

    def __init__(self) -> None:
        #: The number of messages that were put back.
        self.count: i64 = 0
        #: The sequences acked since the rewind began.
        self.added: Final[list[int]] = []
        self.task: Task | None = None


def _cost(message: Message) -> i64:
    """Return the size of a message as the limits count it."""
    return message.size + RETAINED_OVERHEAD_BYTES


def retention_of(queue: ClassicQueue, retained: Retained | None) -> Retained | None:
    """Return the retention for a queue's settings; `retained` is the previous one."""
    settings = queue.settings
    if settings.retains():
        if retained is None:
            retained = Retained(queue)
        retained.configure(settings.retain_acked_ms, settings.retain_acked_bytes)
    elif retained is not None:
        retained.end()
    return retained
