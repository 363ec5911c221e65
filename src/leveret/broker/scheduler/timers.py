"""Deadlines: objects that are called when a time has come.

The core has no clock; it notes deadlines here, the shell looks at the earliest after each batch and
comes back when it is due.  Times are ms of `Core.now_ms`, which never steps.

A deadline that is set enters the heap at the next look at it: so one that moves with each message
of a batch costs one entry.  Of very many some enter at each look, and nothing is called before all
have.

What was cancelled or moved leaves an entry that no longer counts.  When these are the most, the
heap is put aside, and each change moves some of its entries that count to a new one: so no call
takes long, however many deadlines there are.

Invariants: a `Timed` has at most one deadline; what is due is called once, in the order of the
deadlines; what was cancelled or moved is not called at its old one.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.scheduler.costs import VISITED_PER_COST
from leveret.clock import NO_DEADLINE

#: Entries of the heap that are worth sorting out those that no longer count.
_SORT_OUT_AT: Final = 64

#: Entries of a heap that was put aside which each change looks at, and each look at the clock.
_SORTED_OUT_BY_CHANGE: Final = 8
_SORTED_OUT_BY_LOOK: Final = 32

#: Entries that no longer count which `fire` takes out beside each that it may call.
_PASSED_BY: Final = 8

#: Deadlines that enter the heap in one look at it.
_ENTERED_AT_ONCE: Final = 1024

#: When to look again while some have not entered: before any of them.
_AT_ONCE: Final = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Timed:
    """Something that is called at its deadline."""

    def __init__(self) -> None:
        self.deadline_ms: i64 = NO_DEADLINE
        #: Whether `Timers` has it among those whose deadlines are to enter the heap.
        self.enters = False

    @abstractmethod
    def due(self, now_ms: i64) -> None:
        """Handle the deadline, which is not set any more."""


@final
class Timers:
    """All deadlines of a broker."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        #: The heap that was put aside, until all that counts in it has moved to the other.
        self._aside: list[tuple[int, int, Timed]] = []
        #: Those whose deadlines are to enter the heap, each once.
        self._entering: list[Timed] = []
        self._entries: i64 = 0
        self._live: i64 = 0

    def set(self, timed: Timed, deadline_ms: i64) -> None:
        """Call `timed` at `deadline_ms`, in place of any deadline set before."""
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
            # What is deleted must not stay in memory until its deadline, which may be in years.
            self._sort_out()

    def _enter(self) -> bool:
        """Have some deadlines enter the heap that were set; return whether all have entered."""
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
        """Begin to sort out where that is worth it, or go on with it."""
        if self._aside:
            self._go_on(_SORTED_OUT_BY_CHANGE)
            return
        size: i64 = len(self._heap)
        if size > _SORT_OUT_AT and size > 2 * self._live:
            self._aside = self._heap
            self._heap = []

    def _go_on(self, entries: i64) -> None:
        """Look at some entries of the heap that was put aside."""
        aside = self._aside
        while aside and entries > 0:
            entries -= 1
            # Without its last entry a heap is still one.
            entry = aside.pop()
            if entry[2].deadline_ms == entry[0]:
                heapq.heappush(self._heap, entry)

    def _first(self) -> list[tuple[int, int, Timed]]:
        """Return the heap with the earliest entry; it is empty where there is none."""
        heap = self._heap
        aside = self._aside
        if not aside or (heap and (heap[0][0], heap[0][1]) < (aside[0][0], aside[0][1])):
            return heap
        return aside

    def next_ms(self) -> i64:
        """Return the earliest deadline, or NO_DEADLINE.

        It may be an earlier one, at which nothing is called: where many were set or cancelled at
        once.
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
        """Call up to `limit` whose deadline is at or before `now_ms`, the earliest first.

        Deadlines that they set are looked at in the next turn.  Returns the steps of this work,
        without what they did when they were called.
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
