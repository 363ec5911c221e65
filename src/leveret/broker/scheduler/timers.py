"""Deadlines: objects that are called at a given time.

The core has no clock; it records deadlines here, and the shell checks the earliest after each batch
and calls `fire` when it is due.  Times are ms of `Core.now_ms`, which never jumps.

A deadline is added to the heap at the next check, not when it is set.  So a deadline that moves
with each message of a batch costs one entry.  If there are very many new deadlines, each check adds
some of them, and nothing is called before all of them are in the heap.

A cancelled or moved deadline leaves a stale entry.  When most entries are stale, the heap is put
aside, and each change moves some of its valid entries to a new one.  So no call takes long, however
many deadlines there are.

Invariants: a `Timed` has at most one deadline; due objects are called once, in the order of their
deadlines; a cancelled or moved object is not called at its old deadline.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.scheduler.costs import VISITED_PER_COST
from leveret.clock import NO_DEADLINE

#: The heap size from which removing stale entries is worthwhile.
_SORT_OUT_AT: Final = 64

#: The entries of the old heap that are examined at each change, and at each check.
_SORTED_OUT_BY_CHANGE: Final = 8
_SORTED_OUT_BY_LOOK: Final = 32

#: The stale entries that `fire` may remove for each object that it may call.
_PASSED_BY: Final = 8

#: The maximum number of deadlines added to the heap in one check.
_ENTERED_AT_ONCE: Final = 1024

#: The time of the next check while some deadlines are not in the heap yet: earlier than all of
#: them.
_AT_ONCE: Final = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Timed:
    """An object that is called at its deadline."""

    def __init__(self) -> None:
        self.deadline_ms: i64 = NO_DEADLINE
        #: Whether the deadline waits to be added to the heap.
        self.enters = False

    @abstractmethod
    def due(self, now_ms: i64) -> None:
        """Handle the deadline, which is no longer set."""


@final
class Timers:
    """All deadlines of a broker."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        #: The old heap, until all its valid entries have moved to the new one.
        self._aside: list[tuple[int, int, Timed]] = []
        #: The objects whose deadlines wait to be added to the heap, each once.
        self._entering: list[Timed] = []
        self._entries: i64 = 0
        self._live: i64 = 0

    def set(self, timed: Timed, deadline_ms: i64) -> None:
        """Call `timed` at `deadline_ms`, replacing any deadline set before."""
        if timed.deadline_ms == deadline_ms:
            return
        if timed.deadline_ms == NO_DEADLINE:
            self._live += 1
        timed.deadline_ms = deadline_ms
        if not timed.enters:
            timed.enters = True
            self._entering.append(timed)

    def cancel(self, timed: Timed) -> None:
        """Remove the deadline of `timed`."""
        if timed.deadline_ms != NO_DEADLINE:
            timed.deadline_ms = NO_DEADLINE
            self._live -= 1
            # A deleted object must not stay in memory until its deadline, which may be years away.
            self._sort_out()

    def _enter(self) -> bool:
        """Add some new deadlines to the heap; return whether all of them are in it."""
        entering = self._entering[:_ENTERED_AT_ONCE]
        del self._entering[:_ENTERED_AT_ONCE]
        for timed in entering:
            timed.enters = False
            if timed.deadline_ms != NO_DEADLINE:
                self._entries += 1
                entry = (int(timed.deadline_ms), int(self._entries), timed)
                heapq.heappush(self._heap, entry)
                self._sort_out()
        return not self._entering

    def _sort_out(self) -> None:
        """Begin to remove stale entries if that is worthwhile, or continue."""
        if self._aside:
            self._go_on(_SORTED_OUT_BY_CHANGE)
            return
        size: i64 = len(self._heap)
        if size > _SORT_OUT_AT and size > 2 * self._live:
            self._aside = self._heap
            self._heap = []

    def _go_on(self, entries: i64) -> None:
        """Take up to `entries` entries from the old heap, and move the valid ones."""
        aside = self._aside
        while aside and entries > 0:
            entries -= 1
            # A heap without its last entry is still a heap.
            entry = aside.pop()
            if entry[2].deadline_ms == entry[0]:
                heapq.heappush(self._heap, entry)

    def _first(self) -> list[tuple[int, int, Timed]]:
        """Return the heap with the earliest entry, or an empty one if there are no entries."""
        heap = self._heap
        aside = self._aside
        if not aside or (heap and (heap[0][0], heap[0][1]) < (aside[0][0], aside[0][1])):
            return heap
        return aside

    def next_ms(self) -> i64:
        """Return the earliest deadline, or NO_DEADLINE.

        If many deadlines were set or cancelled at once, the result may be too early, and nothing is
        called at that time.
        """
        if self._entering and not self._enter():
            return _AT_ONCE
        if self._aside:
            self._go_on(_SORTED_OUT_BY_LOOK)
        left: i64 = _SORTED_OUT_BY_LOOK
        heap = self._first()
        while heap and left > 0 and heap[0][2].deadline_ms != heap[0][0]:
            left -= 1
            heapq.heappop(heap)
            heap = self._first()
        return heap[0][0] if heap else NO_DEADLINE

    def fire(self, now_ms: i64, limit: i64) -> i64:
        """Call up to `limit` objects with deadlines at or before `now_ms`, the earliest first.

        Deadlines that the called objects set are examined in the next round.  Return the cost of
        this work, without the costs of the called objects.
        """
        if self._entering and not self._enter():
            return _ENTERED_AT_ONCE // VISITED_PER_COST
        heap = self._first()
        if not heap or heap[0][0] > now_ms:
            return 0
        most: i64 = _PASSED_BY * limit
        left = most
        due: list[Timed] = []
        while heap and heap[0][0] <= now_ms and len(due) < limit and left > 0:
            left -= 1
            deadline, _, timed = heapq.heappop(heap)
            if timed.deadline_ms == deadline:
                timed.deadline_ms = NO_DEADLINE
                self._live -= 1
                due.append(timed)
            heap = self._first()
        for timed in due:
            timed.due(now_ms)
        return len(due) + (most - left) // _PASSED_BY
