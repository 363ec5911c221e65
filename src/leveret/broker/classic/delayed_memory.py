"""The delayed messages of one exchange that are in memory, by the time at which they are due.

A *fresh* message lies in no chunk yet; a *loaded* one has a place in a chunk, which it was written
to or read from.

Invariants: a sequence is fresh or loaded, never both; fresh ones are in the order of their
sequences; the heap holds the due time of every message here.  Entries of messages that have left
are passed by, and sorted out when they are the most.
"""

from __future__ import annotations

import heapq
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.work import WorkAccount
from leveret.chunk import ROW_BYTES
from leveret.limits import DELAYED_OVERHEAD_BYTES
from leveret.message import Message

#: Entries of the heap beyond twice what is there that are worth sorting out.
_SORT_OUT_AT: Final = 1024

#: Entries of a heap that was put aside which each new message looks at: two suffice to come to its
#: end before the other heap is as large.
_SORTED_OUT_AT_ONCE: Final = 2

#: Entries that no longer count which one look at the first takes out.
_PASSED_BY: Final = 256


@final
@mypyc_attr(acyclic=True)
class Delayed:
    """A message and when it is due, in ms."""

    def __init__(self, message: Message, due_ms: i64) -> None:
        self.message = message
        self.due_ms: i64 = due_ms


@final
class DelayedMemory:
    """The messages of one store in memory; what they take is booked in `account`."""

    def __init__(self, account: WorkAccount) -> None:
        self.fresh: dict[i64, Delayed] = {}
        self.loaded: dict[i64, Delayed] = {}
        #: The bytes of all, and what the fresh ones would take in a chunk.
        self.bytes: i64 = 0
        self.fresh_bytes: i64 = 0
        #: What of it is being written, and leaves the memory then.
        self.leaving: i64 = 0
        self._account: Final = account
        self._heap: list[tuple[int, int]] = []
        #: The heap that was put aside, until all that counts in it has moved to the other.
        self._aside: list[tuple[int, int]] = []

    def count(self) -> i64:
        """Return how many messages are here."""
        return len(self.fresh) + len(self.loaded)

    def taken(self) -> i64:
        """Return the memory that is taken for longer than the next write."""
        return self.bytes + self.count() * DELAYED_OVERHEAD_BYTES - self.leaving

    def get(self, sequence: i64) -> Delayed | None:
        """Return a message, or None if it is not here."""
        delayed = self.fresh.get(sequence)
        return self.loaded.get(sequence) if delayed is None else delayed

    def add_fresh(self, sequence: i64, delayed: Delayed) -> None:
        """Add a message that lies in no chunk; its sequence is above those of all fresh ones."""
        self.fresh[sequence] = delayed
        self.fresh_bytes += delayed.message.size + ROW_BYTES
        self._book(sequence, delayed)

    def add_loaded(self, sequence: i64, delayed: Delayed) -> None:
        """Add a message that was read from its chunk."""
        self.loaded[sequence] = delayed
        self._book(sequence, delayed)

    def _book(self, sequence: i64, delayed: Delayed) -> None:
        size = delayed.message.size
        self.bytes += size
        self._account.delay(size)
        heap = self._heap
        heapq.heappush(heap, (int(delayed.due_ms), int(sequence)))
        entries: i64 = len(heap)
        if self._aside:
            self._sort_out()
        elif entries > _SORT_OUT_AT and entries > 2 * self.count():
            self._aside = heap
            self._heap = []

    def _sort_out(self) -> None:
        """Look at some entries of the heap that was put aside: so no message pays for all."""
        aside = self._aside
        left: i64 = _SORTED_OUT_AT_ONCE
        while aside and left > 0:
            left -= 1
            # Without its last entry a heap is still one.
            entry = aside.pop()
            if self.get(entry[1]) is not None:
                heapq.heappush(self._heap, entry)

    def written(self, sequence: i64) -> None:
        """Count a fresh message as one that has its place in a chunk."""
        delayed = self.fresh.pop(sequence)
        self.fresh_bytes -= delayed.message.size + ROW_BYTES
        self.loaded[sequence] = delayed

    def unwritten(self, sequences: list[i64]) -> None:
        """Count loaded messages as fresh again: their chunk is lost."""
        for sequence in sequences:
            delayed = self.loaded.pop(sequence)
            self.fresh[sequence] = delayed
            self.fresh_bytes += delayed.message.size + ROW_BYTES
        self.fresh = {sequence: self.fresh[sequence] for sequence in sorted(self.fresh)}

    def remove(self, sequence: i64) -> Delayed | None:
        """Take a message out; return None if it is not here."""
        delayed = self.loaded.pop(sequence, None)
        if delayed is None:
            delayed = self.fresh.pop(sequence, None)
            if delayed is None:
                return None
            self.fresh_bytes -= delayed.message.size + ROW_BYTES
        size = delayed.message.size
        self.bytes -= size
        self._account.end_delay(1, size)
        return delayed

    def first(self) -> tuple[int, int] | None:
        """Return when the first message is due, and its sequence; None if there is none.

        Where very many before it have left, it may be one of these, which `get` does not find.
        """
        left: i64 = _PASSED_BY
        heap = self._first()
        while heap and left > 0 and self.get(heap[0][1]) is None:
            left -= 1
            heapq.heappop(heap)
            heap = self._first()
        return heap[0] if heap else None

    def _first(self) -> list[tuple[int, int]]:
        """Return the heap with the first entry; it is empty where there is none."""
        heap = self._heap
        aside = self._aside
        if not aside or (heap and heap[0] < aside[0]):
            return heap
        return aside

    def pop(self) -> None:
        """Pass by the message that `first` returned: it leaves."""
        heapq.heappop(self._first())

    def clear(self) -> None:
        """Drop all messages; of many, what they took is let go of in slices."""
        account = self._account
        account.end_delay(self.count(), self.bytes)
        account.free_table(self.fresh)
        account.free_table(self.loaded)
        account.free(self._heap)
        account.free(self._aside)
        self.fresh = {}
        self.loaded = {}
        self._heap = []
        self._aside = []
        self.bytes = 0
        self.fresh_bytes = 0
        self.leaving = 0
