"""Heaps of deadlines, in which entries of removed keys may remain.

Removing an entry from the middle of a heap takes time proportional to its length.  So stale entries
stay in the heap and are skipped.  When most entries are stale, a task removes them.  It runs later,
because a key that is being moved looks removed for a moment.  It sets the heap aside and moves the
live entries to a new heap.  If a key was removed and added again, only one of its two entries is
moved.

Invariants: the earliest entry of each live key is in one of the two heaps.  After the task, both
heaps together have at most a few times as many entries as there may be live keys.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, trait

from leveret.broker.core import Core
from leveret.broker.scheduler.costs import LOADED_PER_COST

#: The heap size from which stale entries are removed.  A queue's memory is booked for this many.
_SORT_OUT_AT: Final = 32


@trait
class Deadlined:
    """The owner of deadlines, which decides which of their keys are live."""

    @abstractmethod
    def count(self) -> i64:
        """Return an upper bound of the number of live keys."""

    @abstractmethod
    def has_deadline(self, key: i64) -> bool:
        """Return whether a key's entry is live."""


@final
class Deadlines:
    """Deadlines (ms), each with a key, the earliest first; `of` is their owner."""

    def __init__(self, core: Core) -> None:
        self._core: Final = core
        self._heap: list[tuple[int, int]] = []
        #: The heap that was set aside, until all its live entries have moved to the other.
        self._aside: list[tuple[int, int]] = []
        #: The keys moved to the other heap, each with its earliest deadline there.
        self._moved: dict[int, int] = {}
        #: True while a task removes stale entries.
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
        """Start a task that removes stale entries if most are stale."""
        if not self._sorts_out and self._is_untidy(of):
            self._sorts_out = True
            self._core.scheduler.start_later(self._sort_out(of))

    def _is_untidy(self, of: Deadlined) -> bool:
        size: i64 = len(self._heap)
        return size > _SORT_OUT_AT and size > 2 * of.count()

    def _sort_out(self, of: Deadlined) -> Iterator[int]:
        """Remove stale entries until most entries are live, or none is stale."""
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
        """Add an entry to the new heap, unless its key already has an earlier one there.

        Return whether it was added.
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
        """Return the earliest entry, which may be stale, or None if the heaps are empty."""
        heap = self._heap
        aside = self._aside
        if aside and (not heap or aside[0] < heap[0]):
            heap = aside
        return heap[0] if heap else None

    def pop(self) -> None:
        """Remove the earliest entry, which must exist."""
        heap = self._heap
        aside = self._aside
        if not aside:
            heapq.heappop(heap)
        elif not heap or aside[0] < heap[0]:
            heapq.heappop(aside)
            if not aside:
                self._forget_moved()
        else:
            # If the key is added again, it needs a new entry.
            self._moved.pop(heapq.heappop(heap)[1], None)

    def clear(self) -> None:
        """Drop all entries."""
        self._core.memory.free(self._heap)
        self._core.memory.free(self._aside)
        self._forget_moved()
        self._heap = []
        self._aside = []
