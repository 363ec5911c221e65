"""The messages of a priority queue that wait: the highest level first, in order within each.

A message's level is its priority, at most the queue's `x-max-priority`; without a priority it is 0.
What came back lies before what is new on its level, by its old place.

Invariant: `at` holds exactly what waits; a place in a level whose sequence is not in `at` is empty.
"""

from __future__ import annotations

import heapq
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.ready import Ready
from leveret.broker.source import NOTHING, Returned
from leveret.message import Message
from leveret.wire.properties import property_priority

#: The flag of the property `priority` in the first byte of the property flags.
_PRIORITY_FLAG: Final = 0x08

#: Places behind the head of a level that are worth moving the rest for.
_COMPACT_AT: Final = 1024


def priority_of(message: Message) -> i64:
    """Return a message's priority; 0 where it has none."""
    if message.properties[0] & _PRIORITY_FLAG == 0:
        return 0
    priority = property_priority(message.properties)
    return priority if priority is not None else 0


@final
class Level:
    """One priority: what is new in order, what came back in a heap."""

    def __init__(self) -> None:
        self.items: list[Returned] = []
        self.head: i64 = 0
        self.back: list[tuple[int, Returned]] = []

    def first(self, at: dict[i64, Returned]) -> Returned | None:
        """Return what is next on this level; places that are empty are passed by for good."""
        back = self.back
        while back and at.get(back[0][0]) is not back[0][1]:
            heapq.heappop(back)
        items = self.items
        head = self.head
        size: i64 = len(items)
        while head < size and at.get(items[head].sequence) is not items[head]:
            head += 1
        if head == size:
            items.clear()
            head = 0
        elif head >= _COMPACT_AT and head * 2 >= size:
            del items[:head]
            head = 0
        self.head = head
        fresh = items[head] if items else None
        if not back:
            return fresh
        returned = back[0][1]
        return returned if fresh is None or returned.sequence < fresh.sequence else fresh


@final
class PriorityReady(Ready):
    """What waits, by priority."""

    def __init__(self, priority_max: i64) -> None:
        super().__init__()
        self.priority_max: i64 = priority_max
        self.at: dict[i64, Returned] = {}
        self.next: i64 = 1
        #: Made when a message of the priority first comes: there may be 256 of each queue.
        self.levels: dict[i64, Level] = {}
        #: No level above this one holds anything.
        self.highest: i64 = 0

    def append(self, message: Message) -> i64:
        """Put `message` at the tail of its level; return its sequence."""
        sequence = self.next
        self.next = sequence + 1
        returned = Returned(sequence, message, 0)
        self.at[sequence] = returned
        self._level(message).items.append(returned)
        return sequence

    def _level(self, message: Message) -> Level:
        priority = min(priority_of(message), self.priority_max)
        self.highest = max(self.highest, priority)
        level = self.levels.get(priority)
        if level is None:
            level = Level()
            self.levels[priority] = level
        return level

    def next_sequence(self) -> i64:
        """Return the sequence that the next message gets."""
        return self.next

    def count(self) -> i64:
        """Return how many messages wait."""
        return len(self.at)

    def _first(self) -> Returned | None:
        if not self.at:
            return None
        while True:
            level = self.levels.get(self.highest)
            found = level.first(self.at) if level is not None else None
            if found is not None or self.highest == 0:
                return found
            self.highest -= 1

    def first(self) -> i64:
        """Return the sequence of the message that is next, or NOTHING."""
        found = self._first()
        return found.sequence if found is not None else NOTHING

    def take(self, sequence: i64) -> Message:
        """Return the message that `first` named and move on; sets `taken_count`."""
        returned = self.at.pop(sequence)
        back = self._level(returned.message).back
        if back and back[0][1] is returned:
            # It may come back: two entries of one sequence cannot be put in order.
            heapq.heappop(back)
        self.taken_count = returned.count
        return returned.message

    def put(self, returned: Returned) -> None:
        """Take a message back at its old place."""
        self.at[returned.sequence] = returned
        heapq.heappush(self._level(returned.message).back, (returned.sequence, returned))

    def has(self, sequence: i64) -> bool:
        """Tell whether a message with this sequence waits."""
        return sequence in self.at

    def look(self, sequence: i64) -> Returned | None:
        """Return a message that waits, without taking it; None where it does not wait."""
        return self.at.get(sequence)

    def scattered(self) -> list[int]:
        """Return the sequences of all that waits, in order."""
        return sorted(int(sequence) for sequence in self.at)

    def first_in_order(self) -> i64:
        """Return the next sequence: none lies behind those of `scattered`."""
        return self.next

    def remove(self, sequence: i64) -> Returned | None:
        """Take a message out wherever it is; None where it does not wait."""
        return self.at.pop(sequence, None)

    def waiting(self) -> list[Returned]:
        """Return all that waits, in the order of the sequences."""
        return [self.at[sequence] for sequence in sorted(self.at)]

    def clear(self) -> None:
        """Drop all; sequences go on."""
        self.at.clear()
        self.levels.clear()
        self.highest = 0

    def fill(self, returned: list[Returned], next_sequence: i64) -> None:
        """Start with messages in the order of their sequences, all below `next_sequence`."""
        self.clear()
        self.next = next_sequence
        for item in returned:
            self.at[item.sequence] = item
            self._level(item.message).items.append(item)
