"""Heaps of deadlines, some of whose entries may stand for what has left.

Taking an entry out of the middle of a heap costs as much as the heap is long.  So what leaves stays
in it, and is passed by.  When such entries are the most, they are sorted out: never at once,
because what is on its way from one place to another seems to have left.  The heap is put aside for
that, and what counts moves to a new one.  What leaves and returns has two entries, of which one
stays then.

Invariants: of the entries of a key that counts, the earliest is in one of the two heaps; both
together have no more than some times the entries that may count, once these are sorted out.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, trait

from leveret.broker.core.core import Core
from leveret.broker.scheduler.costs import LOADED_PER_COST

#: The size of a heap from which on entries are sorted out: a queue is booked with so many.
_SORT_OUT_AT: Final = 32


@trait
class Deadlined:
    """Something with deadlines, which knows the keys that count."""

    @abstractmethod
    def count(self) -> i64:
        """Return how many keys `has_deadline` is true for, or more."""

    @abstractmethod
    def has_deadline(self, key: i64) -> bool:
        """Return whether the entry of a key still stands for something."""


@final
class Deadlines:
    """Deadlines (ms), each with a key, the earliest first; `of` is whose they are."""

    def __init__(self, core: Core) -> None:
        self._core: Final = core
        self._heap: list[tuple[int, int]] = []
        #: The heap that was put aside, until all that counts in it has moved to the other.
        self._aside: list[tuple[int, int]] = []
        #: The keys in the other heap meanwhile, each with its earliest deadline there.
        self._moved: dict[int, int] = {}
        #: True while entries are sorted out.
        self._sorts_out = False

    def add(self, deadline_ms: i64, key: i64, of: Deadlined) -> None:
        """Add an entry."""
        entry = (int(deadline_ms), int(key))
        if self._aside:
            self._move(entry)
        else:
            heapq.heappush(self._heap, entry)
            self.tidy(of)

    def tidy(self, of: Deadlined) -> None:
        """Have the entries sorted out soon if most of them count no more."""
        if not self._sorts_out and self._is_untidy(of):
            self._sorts_out = True
            self._core.scheduler.start_later(self._sort_out(of))

    def _is_untidy(self, of: Deadlined) -> bool:
        size: i64 = len(self._heap)
        return size > _SORT_OUT_AT and size > 2 * of.count()

    def _sort_out(self, of: Deadlined) -> Iterator[int]:
        """Sort out entries until most of them count, or all."""
        has_dropped = True
        while has_dropped and self._is_untidy(of):
            self._aside = self._heap
            self._heap = []
            has_dropped = False
            looked: i64 = 0
            while self._aside:
                entry = heapq.heappop(self._aside)
                if not of.has_deadline(entry[1]) or not self._move(entry):
                    has_dropped = True
                looked += 1
                if looked % LOADED_PER_COST == 0:
                    yield 1
            self._forget_moved()
        self._sorts_out = False

    def _move(self, entry: tuple[int, int]) -> bool:
        """Add an entry to the heap while another one is put aside, unless its key has one.

        Returns whether it was added.
        """
        there = self._moved.get(entry[1])
        if there is not None and there <= entry[0]:
            return False
        self._moved[entry[1]] = entry[0]
        heapq.heappush(self._heap, entry)
        return True

    def _forget_moved(self) -> None:
        if self._moved:
            self._core.memory.free_table(self._moved)
            self._moved = {}

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
        if not aside:
            heapq.heappop(heap)
        elif not heap or aside[0] < heap[0]:
            heapq.heappop(aside)
            if not aside:
                self._forget_moved()
        else:
            # It may come back: then it has no entry any more.
            self._moved.pop(heapq.heappop(heap)[1], None)

    def clear(self) -> None:
        """Drop all entries."""
        self._core.memory.free(self._heap)
        self._core.memory.free(self._aside)
        self._forget_moved()
        self._heap = []
        self._aside = []
