"""When messages expire.

A message's deadline follows from the message and its queue alone: the time it was taken plus the
lesser of the queue's TTL and its own.  So nothing about it is stored, and a requeued or recovered
message expires when it would have (behaviours 49 and 66).

A page on the disk is read when the first message in it is due; until it is there nothing else
expires, so that what was due first goes first, and no more than a page is read at a time.

Invariants: the heap holds the deadline of every message that waits in memory and has one, and of
each page on the disk the first; entries of messages that wait no more are passed by, and sorted out
when they are the most.
"""

from __future__ import annotations

import heapq
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.backlog.source import NOTHING
from leveret.broker.classic.ready_queue import ReadyQueue
from leveret.broker.core.timers import Timed
from leveret.broker.values.death_reasons import REASON_EXPIRED
from leveret.broker.values.expiration import deadline_of
from leveret.clock import NO_DEADLINE
from leveret.limits import SLICE_MESSAGES

#: Entries of the heap beyond twice what waits that are worth sorting out.
_SORT_OUT_AT: Final = 1024


@final
class Expiry(Timed):
    """The deadlines of a queue's messages."""

    def __init__(self, queue: ReadyQueue) -> None:
        super().__init__()
        self.queue = queue
        #: Deadlines, each with a key: twice a page's first sequence, or twice a message's plus one.
        self.heap: list[tuple[int, int]] = []

    def add(self, deadline_ms: i64, sequence: i64) -> None:
        """Add the deadline of a message."""
        key: i64 = 2 * sequence + 1
        heapq.heappush(self.heap, (int(deadline_ms), int(key)))
        ready = self.queue.ready
        size: i64 = len(self.heap)
        if size > _SORT_OUT_AT and size > 2 * (ready.memory_count() + ready.page_count()):
            self.heap = [
                entry for entry in self.heap if entry[1] & 1 == 0 or ready.has(entry[1] >> 1)
            ]
            heapq.heapify(self.heap)
        self.arm()

    def add_page(self, deadline_ms: i64, first: i64) -> None:
        """Add the deadline of the page that begins at `first`."""
        key: i64 = 2 * first
        heapq.heappush(self.heap, (int(deadline_ms), int(key)))
        self.arm()

    def rebuild(self) -> None:
        """Compute all deadlines anew, because the queue's TTL changed."""
        ttl = self.queue.settings.message_ttl_ms
        heap: list[tuple[int, int]] = []
        for item in self.queue.ready.waiting():
            deadline = deadline_of(item.message, ttl)
            if deadline != NO_DEADLINE:
                heap.append((int(deadline), 2 * int(item.sequence) + 1))
        self.heap = heap
        pages = self.queue.ready.pages
        if pages is not None:
            for page in pages.away():
                pages.note_deadline(page)
        heapq.heapify(self.heap)
        self.arm()

    def arm(self) -> None:
        """Set the timer to the first deadline, unless a page is being read for it."""
        timers = self.queue.turn.timers
        if self.heap and not self.reads():
            timers.set(self, self.heap[0][0])
        else:
            timers.cancel(self)

    def reads(self) -> bool:
        """Return whether a page is being read; `arm` is called when it is loaded."""
        if not self.heap or self.heap[0][1] & 1:
            return False
        pages = self.queue.ready.pages
        page = pages.page_at(self.heap[0][1] >> 1) if pages is not None else None
        return page is not None and page.wanted and page.window is None

    def pop(self) -> i64:
        """Remove the first deadline and return its message's sequence, which may be gone.

        NOTHING stands for a page: it is had read, and its deadline stays until it is there.
        """
        key: i64 = self.heap[0][1]
        if key & 1 == 0:
            pages = self.queue.ready.pages
            if pages is not None and pages.fetch(key >> 1):
                return NOTHING
        heapq.heappop(self.heap)
        return key >> 1 if key & 1 else NOTHING

    def first_alive(self) -> i64:
        """Return the first sequence whose message has not expired; expire those before it.

        What came from the disk only now may have been due for long.
        """
        queue = self.queue
        ttl = queue.settings.message_ttl_ms
        while True:
            sequence = queue.ready.first_at_once()
            returned = queue.ready.look(sequence) if sequence != NOTHING else None
            if returned is None:
                return sequence
            deadline = deadline_of(returned.message, ttl)
            if deadline == NO_DEADLINE or deadline > queue.turn.now_ms:
                return sequence
            queue.discard(sequence, REASON_EXPIRED)

    def expire(self, now_ms: i64, limit: i64) -> None:
        """Expire up to `limit` waiting messages whose deadline is `now_ms` or before.

        This turn may have steps for fewer, above all where each is dead-lettered.
        """
        queue = self.queue
        turn = queue.turn
        letters = queue.settings.dead_letter_exchange is not None
        limit = min(limit, turn.may_expire() if letters else turn.timed_steps)
        expired: i64 = 0
        while expired < limit and self.heap and self.heap[0][0] <= now_ms:
            sequence = self.pop()
            if sequence != NOTHING and queue.discard(sequence, REASON_EXPIRED):
                expired += 1
            elif sequence == NOTHING and self.reads():
                break
        turn.timed_steps -= expired
        self.arm()

    def due(self, now_ms: i64) -> None:
        """Expire a slice of the messages that are due."""
        queue = self.queue
        self.expire(now_ms, SLICE_MESSAGES)
        if queue.consumers:
            # They may wait for what is behind it.
            queue.schedule()
