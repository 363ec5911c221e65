"""Heaps of deadlines, most of whose entries may stand for what has left.

Taking an entry out of the middle of a heap costs as much as the heap is long.  So what leaves stays
in it, and is passed by.  When such entries are the most, the heap is put aside, and each new entry
moves some of those that count to a new one: so no call takes long, however many there are.

Invariant: every entry that counts is in one of the two heaps, once.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, trait

from leveret.broker.core.work import WorkAccount

#: Entries of the heap beyond twice what counts that are worth sorting out.
_SORT_OUT_AT: Final = 1024

#: Entries of a heap that was put aside which each new one looks at: two suffice to come to its end
#: before the other heap is as large.
_SORTED_OUT_AT_ONCE: Final = 2


@trait
class Deadlined:
    """Something with deadlines, which knows the keys that count."""

    @abstractmethod
    def has_deadline(self, key: i64) -> bool:
        """Return whether the entry of a key still stands for something."""


@final
class Deadlines:
    """Deadlines (ms), each with a key, the earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        #: The heap that was put aside, until all that counts in it has moved to the other.
        self._aside: list[tuple[int, int]] = []

    def add(self, deadline_ms: i64, key: i64, counting: i64, of: Deadlined) -> bool:
        """Add an entry, of which `counting` may count now.

        Returns whether it looked at others too, which is worth a step.
        """
        heapq.heappush(self._heap, (int(deadline_ms), int(key)))
        if self._aside:
            self._sort_out(of)
            return True
        size: i64 = len(self._heap)
        if size > _SORT_OUT_AT and size > 2 * counting:
            self._aside = self._heap
            self._heap = []
        return False

    def _sort_out(self, of: Deadlined) -> None:
        """Look at some entries of the heap that was put aside."""
        aside = self._aside
        left: i64 = _SORTED_OUT_AT_ONCE
        while aside and left > 0:
            left -= 1
            # Without its last entry a heap is still one.
            entry = aside.pop()
            if of.has_deadline(entry[1]):
                heapq.heappush(self._heap, entry)

    def first(self) -> tuple[int, int] | None:
        """Return the earliest entry, which may count no more; None if there is none."""
        heap = self._heap
        aside = self._aside
        if aside and (not heap or aside[0] < heap[0]):
            heap = aside
        return heap[0] if heap else None

    def pop(self) -> None:
        """Remove the earliest entry; there is one."""
        heap = self._heap
        aside = self._aside
        if aside and (not heap or aside[0] < heap[0]):
            heap = aside
        heapq.heappop(heap)

    def clear(self, account: WorkAccount) -> None:
        """Drop all entries; many are let go of in slices."""
        account.free(self._heap)
        account.free(self._aside)
        self._heap = []
        self._aside = []
