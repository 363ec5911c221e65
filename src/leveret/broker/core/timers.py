"""Deadlines: objects that are called when a time has come.

The core has no clock; it notes deadlines here, the shell looks at the earliest after each batch and
comes back when it is due.  Times are ms of `turn.now_ms`, which never steps.

Invariants: a `Timed` has at most one deadline; what is due is called once, in the order of the
deadlines; what was cancelled or moved is not called at its old one.
"""

from __future__ import annotations

import heapq
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.clock import NO_DEADLINE

#: Entries of the heap that are worth sorting out those that no longer count.
_SORT_OUT_AT: Final = 64


@mypyc_attr(allow_interpreted_subclasses=True)
class Timed:
    """Something that is called at its deadline."""

    def __init__(self) -> None:
        self.deadline_ms: i64 = NO_DEADLINE

    def due(self, now_ms: i64) -> None:
        """Handle the deadline, which is not set any more."""
        raise RuntimeError("what is timed says how it goes on")


@final
class Timers:
    """All deadlines of a broker."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._entries: i64 = 0
        self._live: i64 = 0

    def set(self, timed: Timed, deadline_ms: i64) -> None:
        """Call `timed` at `deadline_ms`, in place of any deadline set before."""
        if timed.deadline_ms == deadline_ms:
            return
        if timed.deadline_ms == NO_DEADLINE:
            self._live += 1
        timed.deadline_ms = deadline_ms
        self._entries += 1
        heapq.heappush(self._heap, (int(deadline_ms), int(self._entries), timed))
        size: i64 = len(self._heap)
        if size > _SORT_OUT_AT and size > 2 * self._live:
            self._heap = [entry for entry in self._heap if entry[2].deadline_ms == entry[0]]
            heapq.heapify(self._heap)

    def cancel(self, timed: Timed) -> None:
        """Remove the deadline of `timed`."""
        if timed.deadline_ms != NO_DEADLINE:
            timed.deadline_ms = NO_DEADLINE
            self._live -= 1

    def next_ms(self) -> i64:
        """Return the earliest deadline, or NO_DEADLINE."""
        heap = self._heap
        while heap:
            if heap[0][2].deadline_ms == heap[0][0]:
                return heap[0][0]
            heapq.heappop(heap)
        return NO_DEADLINE

    def fire(self, now_ms: i64, limit: i64) -> None:
        """Call up to `limit` whose deadline is at or before `now_ms`, the earliest first.

        Deadlines that they set are looked at in the next turn.
        """
        heap = self._heap
        if not heap or heap[0][0] > now_ms:
            return
        due: list[Timed] = []
        while heap and heap[0][0] <= now_ms and len(due) < limit:
            deadline, _, timed = heapq.heappop(heap)
            if timed.deadline_ms == deadline:
                timed.deadline_ms = NO_DEADLINE
                self._live -= 1
                due.append(timed)
        for timed in due:
            timed.due(now_ms)
