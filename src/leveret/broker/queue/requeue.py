"""Requeue, delivery limit and delayed retry: a message that was not acked returns to its queue.

It returns to its old place.  Once it has failed more often than the delivery limit, it is
dead-lettered instead.

A queue with `x-delayed-retry-type` delays requeued messages (delayed retry): `failed` delays
messages requeued by basic.reject or by the end of a channel, `returned` those requeued by
basic.nack or basic.recover, `all` both.  The delay is `x-delayed-retry-min` times the number of
failures (at least 1), and at most `x-delayed-retry-max`.  Without a maximum it is always
`x-delayed-retry-min`.  A message is not delayed beyond its expiry.

A delayed (parked) message is in memory, in the queue's `out` for checkpoints, and in the journal as
requeued, with a record of its due time.  After a restart it may be in a chunk.  It is then ready,
and is parked when it reaches the head of the queue.

All queues together have a share of the memory for parked messages.  Beyond it, queues with more
than an equal part cut their delays short: the messages due next become ready at once, and can move
to disk with the rest of the queue.

Source: behaviours 59 (requeue keeps its place) and 63 (delivery limit); RabbitMQ 4.3's quorum
queues, for the names and the formula of delayed retry.

Invariant: a message is parked or ready, never both; the heap contains the due time of every message
that is parked or must be parked.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.death_reasons import REASON_DELIVERY_LIMIT
from leveret.broker.attributes.expiration import EXPIRATION_FLAG, deadline_of
from leveret.broker.attributes.message_events import REQUEUED
from leveret.broker.backlog.window import RequeuedMessage
from leveret.broker.queue.tracing import note_event
from leveret.broker.scheduler.retained_share import RetainedShare, Shrinking
from leveret.broker.scheduler.timers import Timed
from leveret.clock import NO_DEADLINE
from leveret.message import Message
from leveret.store.records.returns import failures

if TYPE_CHECKING:
    from leveret.broker.queue.classic import ClassicQueue

#: The memory of a parked message in addition to its bytes, and the part of that for its due time.
_RETRY_OVERHEAD_BYTES: Final = 550
_RETRY_TIME_BYTES: Final = 250


#: The maximum number of due times examined for each message beyond the share.
_LOOKED_AT: Final = 4096


def requeue(queue: ClassicQueue, sequence: i64, message: Message, count: i64, failed: bool) -> None:
    """Put a message back, unless it reached the delivery limit; `count` includes this return.

    `failed` is as for `Source.requeue`.
    """
    if 0 <= queue.settings.delivery_limit < failures(count):
        queue.dead_letter(sequence, message, count, REASON_DELIVERY_LIMIT)
        return
    if queue.recorded and message.persistent:
        queue.core.journal.requeue(queue.queue_id, sequence, count)
    if (sequence & queue.core.event_mask) == 0:
        note_event(queue, REQUEUED, sequence, message, count)
    item = RequeuedMessage(sequence, message, count)
    delay_ms = queue.settings.retry_delay_ms(failures(count), failed)
    if delay_ms == 0:
        put_back(queue, item)
    else:
        queue.begin_retries().delay(item, delay_ms)


def put_back(queue: ClassicQueue, item: RequeuedMessage) -> None:
    """Put a requeued message back at its old place."""
    queue.ready.put(item)
    # A message from before a restart may be the first with its own deadline.
    if queue.special or item.message.properties[0] & EXPIRATION_FLAG != 0:
        queue.scheduler.spent += 1
        queue.note_deadline(deadline_of(item.message, queue.settings.message_ttl_ms), item.sequence)
        # Messages above a limit are dropped before the next delivery.  By then all messages
        # requeued together are back, and the oldest is dropped first.
        queue.look_at_limits()
    if not queue.scheduled:
        queue.schedule()


@final
class DelayedRetry(Timed, Shrinking):
    """The requeued messages of one queue waiting for their retry."""

    def __init__(self, queue: ClassicQueue) -> None:
        super().__init__()
        self.queue = queue
        #: The due times of parked messages, and of those to be parked once they are next.
        self.times: dict[i64, i64] = {}
        self.parked: dict[i64, RequeuedMessage] = {}
        #: The bytes of the bodies and properties of the parked messages.
        self.size: i64 = 0
        self._keeper: Final = RetainedShare(queue.core.memory.retries, self)
        self._heap: list[tuple[int, int]] = []

    def delay(self, item: RequeuedMessage, delay_ms: i64) -> None:
        """Delay a requeued message, and journal its due time."""
        queue = self.queue
        due_ms: i64 = queue.core.now_ms + delay_ms
        deadline = deadline_of(item.message, queue.settings.message_ttl_ms)
        if deadline != NO_DEADLINE:
            # The message returns to the queue in time to expire.
            due_ms = min(due_ms, deadline + 1)
        if queue.recorded and item.message.persistent:
            queue.core.journal.define("retry", self._definition(item.sequence, due_ms))
        self._note(item.sequence, due_ms)
        self._park(item)

    def _note(self, sequence: i64, due_ms: i64) -> None:
        if sequence not in self.times:
            self.queue.core.memory.hold_all(0, _RETRY_TIME_BYTES)
        self.times[sequence] = due_ms
        heapq.heappush(self._heap, (int(due_ms), int(sequence)))
        self._arm()

    def _park(self, item: RequeuedMessage) -> None:
        self.parked[item.sequence] = item
        self.size += item.message.size
        queue = self.queue
        if queue.recorded and item.message.persistent:
            queue.out.put(item)
        self._keeper.book(item.message.size + _RETRY_OVERHEAD_BYTES)
        if self._keeper.is_over():
            self.shrink()

    def shrink(self) -> None:
        """Put the messages due first back into the queue while too many are parked."""
        keeper = self._keeper
        skipped: list[tuple[int, int]] = []
        looked: i64 = 0
        while self._heap and looked < _LOOKED_AT and keeper.is_over():
            looked += 1
            entry = heapq.heappop(self._heap)
            sequence: i64 = entry[1]
            if self.times.get(sequence, NO_DEADLINE) != entry[0]:
                continue
            if sequence not in self.parked:
                # The message is in the queue, and is parked when it reaches the head.
                skipped.append(entry)
                continue
            item = self._forget(sequence)
            if item is not None:
                put_back(self.queue, item)
        for entry in skipped:
            heapq.heappush(self._heap, entry)
        self._arm()

    def holds_back(self, sequence: i64) -> bool:
        """Park the next message and return True if it is not due yet."""
        if sequence not in self.times:
            return False
        queue = self.queue
        message = queue.ready.take(sequence)
        self._park(RequeuedMessage(sequence, message, max(queue.ready.taken_count, 1)))
        return True

    def _arm(self) -> None:
        """Set the timer to the first due time."""
        if self._heap:
            self.queue.core.timers.set(self, self._heap[0][0])
        else:
            self.queue.core.timers.cancel(self)

    def due(self, now_ms: i64) -> None:
        """Put the due messages back into the queue."""
        self.queue.scheduler.start_later(self._release())

    def _release(self) -> Iterator[int]:
        while self._heap and self._heap[0][0] <= self.queue.core.now_ms:
            due_ms, number = heapq.heappop(self._heap)
            sequence: i64 = number
            if self.times.get(sequence, NO_DEADLINE) == due_ms:
                item = self._forget(sequence)
                if item is not None:
                    put_back(self.queue, item)
            yield 1
        self._arm()

    def _forget(self, sequence: i64) -> RequeuedMessage | None:
        """Forget a due time; return its message, or None if it was not parked."""
        del self.times[sequence]
        self.queue.core.memory.release_all(0, _RETRY_TIME_BYTES)
        item = self.parked.pop(sequence, None)
        if item is not None:
            self.size -= item.message.size
            self._keeper.book(-(item.message.size + _RETRY_OVERHEAD_BYTES))
            self.queue.out.pop(sequence)
        return item

    def take_all(self) -> dict[i64, RequeuedMessage]:
        """Forget all due times and parked messages; return the parked messages by sequence.

        Their memory is already released.  The caller acks them and removes them from the queue's
        `out`.
        """
        memory = self.queue.core.memory
        parked = self.parked
        memory.release_all(len(parked), self.size + len(self.times) * _RETRY_TIME_BYTES)
        self._keeper.book(-self._keeper.bytes)
        memory.free_table(self.times)
        memory.free(self._heap)
        self.times = {}
        self.parked = {}
        self._heap = []
        self.size = 0
        self._arm()
        return parked

    def end(self) -> None:
        """Forget all messages, because the queue is deleted."""
        self.queue.core.memory.free_table(self.take_all())
        self._keeper.end()

    # -- checkpoints ------------------------------------------------------------------------------

    def _definition(self, sequence: i64, due_ms: i64) -> dict[str, object]:
        queue_id = int(self.queue.queue_id)
        return {"id": queue_id, "sequence": int(sequence), "due_ms": int(due_ms)}

    def definitions(self) -> Iterator[dict[str, object]]:
        """Yield the due times as checkpoint records; they may change while these are read."""
        for sequence in list(self.times):
            due_ms = self.times.get(sequence)
            if due_ms is not None:
                yield self._definition(sequence, due_ms)

    def restore(self, times: dict[i64, i64]) -> None:
        """Restore the due times from the journal.  Messages that are due by now stay ready."""
        queue = self.queue
        for sequence, due_ms in times.items():
            there = queue.ready.has(sequence) or queue.stored.holds(sequence)
            if there and due_ms > queue.core.now_ms:
                self._note(sequence, due_ms)
