"""The TTL of messages: a queue dead-letters or drops the messages that expire.

A message's deadline depends only on the message and its queue: it is the time at which the message
was taken plus the lesser of the queue's TTL and its own.  So the deadline is not stored, and a
requeued or recovered message keeps it (behaviour 66: TTL).

A page on disk is read when the first message in it is due.  Until it is loaded nothing else
expires, so messages expire in order, and only one page is read at a time.

Invariant: the deadlines include those of every message waiting in memory, and the first one of each
page on disk, once `rebuild` has reached it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.death_reasons import REASON_EXPIRED
from leveret.broker.attributes.expiration import deadline_of
from leveret.broker.backlog.window import NOTHING
from leveret.broker.queue.deadlines import Deadlined, Deadlines
from leveret.broker.scheduler.costs import MESSAGE_EXPIRED
from leveret.broker.scheduler.timers import Timed
from leveret.clock import NO_DEADLINE

if TYPE_CHECKING:
    from leveret.broker.queue.classic import ClassicQueue

#: The maximum number of messages that expire at once, before a task expires the rest.
_AT_ONCE: Final = 8

#: The number of stale entries that can be removed in the time that a message takes to expire.
_PASSED_BY: Final = 6


@final
class Expiry(Timed, Deadlined):
    """The deadlines of a queue's messages."""

    def __init__(self, queue: ClassicQueue) -> None:
        super().__init__()
        self.queue = queue
        #: The keys are twice a page's first sequence, or twice a message's sequence plus one.
        self._deadlines: Final = Deadlines(queue.core)
        #: The number of calls of `clear`.  A new one ends a task that rebuilds the deadlines.
        self._cleared: i64 = 0
        #: True while a task expires messages.
        self._expires = False

    def add(self, deadline_ms: i64, sequence: i64) -> None:
        """Add the deadline of a message."""
        key: i64 = 2 * sequence + 1
        self._deadlines.add(deadline_ms, key, self)
        self._arm_for(key)

    def count(self) -> i64:
        """Return the number of messages and pages that may have a deadline."""
        ready = self.queue.ready
        return ready.memory_count() + ready.page_count()

    def tidy(self) -> None:
        """Remove the deadlines of delivered messages if most entries are stale."""
        self._deadlines.tidy(self)

    def has_deadline(self, key: i64) -> bool:
        """Return whether the key's message is still waiting, or its page is still on disk."""
        ready = self.queue.ready
        if key & 1:
            return ready.has(key >> 1)
        pages = ready.pages
        page = None if pages is None else pages.page_at(key >> 1)
        return page is not None and page.first == key >> 1 and page.window is None

    def add_page(self, deadline_ms: i64, first: i64) -> None:
        """Add the deadline of the page that begins at `first`."""
        self._deadlines.add(deadline_ms, 2 * first, self)
        self._arm_for(2 * first)

    def _arm_for(self, key: i64) -> None:
        """Set the timer if it is not set, or if the key's deadline is the first."""
        first = self._deadlines.first()
        if self.deadline_ms == NO_DEADLINE or (first is not None and first[1] == key):
            self.arm()

    def clear(self) -> None:
        """Forget all deadlines."""
        self._cleared += 1
        self._deadlines.clear()
        self.arm()

    def rebuild(self) -> None:
        """Recompute all deadlines after a change of the queue's TTL.  A task does most of it.

        Until the task ends, a message that is due by the new TTL may still be delivered.
        """
        self.clear()
        ready = self.queue.ready
        pages = ready.pages
        if pages is not None:
            for page in pages.away():
                self.queue.scheduler.spent += 1
                pages.note_deadline(page)
        if ready.memory_count() > 0:
            self.queue.scheduler.start(self._note_all())

    def _note_all(self) -> Iterator[int]:
        """Add the deadlines of all messages waiting in memory."""
        ready = self.queue.ready
        cleared = self._cleared
        scattered = ready.scattered()
        sequences = range(int(ready.first_in_order()), int(ready.next_sequence()))
        yield len(scattered)
        for sequence in chain(scattered, sequences):
            if self._cleared != cleared:
                return
            self._note(sequence)
            yield 1

    def _note(self, sequence: i64) -> None:
        """Add the deadline of a message, if it still waits in memory."""
        queue = self.queue
        returned = queue.ready.look(sequence) if queue.ready.has(sequence) else None
        if returned is not None:
            deadline = deadline_of(returned.message, queue.settings.message_ttl_ms)
            queue.note_deadline(deadline, sequence)

    def is_due(self, now_ms: i64) -> bool:
        """Return whether the first deadline is at or before `now_ms`."""
        first = self._deadlines.first()
        return first is not None and first[0] <= now_ms

    def arm(self) -> None:
        """Set the timer to the first deadline, unless a page is being read for it."""
        timers = self.queue.core.timers
        first = self._deadlines.first()
        if first is not None and not self.reads():
            timers.set(self, first[0])
        else:
            timers.cancel(self)

    def reads(self) -> bool:
        """Return whether a page is being read; `arm` is called when it is loaded."""
        first = self._deadlines.first()
        if first is None or first[1] & 1:
            return False
        pages = self.queue.ready.pages
        page = pages.page_at(first[1] >> 1) if pages is not None else None
        return page is not None and page.wanted and page.window is None

    def _pop(self, key: i64) -> i64 | None:
        """Remove the first deadline, which has this key; return the sequence, which may be stale.

        For a page, return None.  If the page is on disk, request it and leave its deadline.
        """
        if key & 1 == 0:
            pages = self.queue.ready.pages
            if pages is not None and pages.fetch(key >> 1):
                return None
        self._deadlines.pop()
        return key >> 1 if key & 1 else None

    def drop_next(self) -> bool:
        """Expire the next message if it is due; return whether it was.

        A message just read from disk may be long overdue.
        """
        queue = self.queue
        sequence = queue.ready.first_at_once()
        returned = queue.ready.look(sequence) if sequence != NOTHING else None
        if returned is None:
            return False
        deadline = deadline_of(returned.message, queue.settings.message_ttl_ms)
        if deadline == NO_DEADLINE or deadline > queue.core.now_ms:
            return False
        queue.scheduler.changes += 1
        queue.scheduler.spent += 1
        queue.discard(sequence, REASON_EXPIRED)
        return True

    def expire(self, until_ms: i64) -> None:
        """Expire the messages due at `until_ms` or before.  If there are many, start a task."""
        if self.expire_some(until_ms) and not self._expires:
            self._expires = True
            self.queue.scheduler.start(self._expire_all())

    def due(self, now_ms: i64) -> None:
        """Expire the messages that are due."""
        core = self.queue.core
        if self.expire_some(self._until()) and not self._expires:
            if core.scheduler.is_writing_much():
                self.arm()
            else:
                self._expires = True
                core.scheduler.start_later(self._expire_all())
        self.queue.expired()

    def waits(self) -> bool:
        """Return whether messages are still expiring, so that the queue is scheduled afterwards."""
        return self._expires or self.reads()

    def _until(self) -> i64:
        """Return the deadline up to which messages expire now.

        A message that expires this very moment may still be delivered, if the queue is about to.
        """
        queue = self.queue
        return queue.core.now_ms - 1 if queue.scheduled else queue.core.now_ms

    def expire_some(self, until_ms: i64) -> bool:
        """Expire a few messages; return whether there may be more."""
        left: i64 = _AT_ONCE
        while left > 0:
            left -= 1
            if not self._expire_next(until_ms):
                self.arm()
                return False
            self.queue.scheduler.spent += MESSAGE_EXPIRED
        return True

    def _expire_all(self) -> Iterator[int]:
        """Expire all messages that are due, unless the disk is too slow for it."""
        queue = self.queue
        while not queue.scheduler.is_writing_much() and self._expire_next(self._until()):
            yield MESSAGE_EXPIRED
        self._expires = False
        if not queue.deleted:
            self.arm()
            queue.expired()

    def _expire_next(self, until_ms: i64) -> bool:
        """Expire the message due first.  Return False if none is due, or if it must wait.

        It must wait while its page is read, and while too many dead letters are waiting.  Stale
        entries cost little, but there may be a million, so one call removes only a few.
        """
        queue = self.queue
        if queue.has_many_letters():
            return False
        left: i64 = _PASSED_BY
        while left > 0:
            left -= 1
            first = self._deadlines.first()
            if first is None or first[0] > until_ms:
                return False
            sequence = self._pop(first[1])
            if sequence is None:
                if self.reads():
                    return False
            elif queue.discard(sequence, REASON_EXPIRED):
                return True
        return True
