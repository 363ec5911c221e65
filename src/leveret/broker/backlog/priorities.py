"""The waiting messages of a priority queue: the highest level first, in order within each level.

The queue decides the level of a message (`levels.py`).

Requeued messages precede new messages of their level, by their old places.  A deep queue has some
messages on disk (`priority_pages.py`).

Invariants: `at` contains exactly the messages waiting in memory; a place in a level is empty if its
sequence is not in `at`; the tail is the messages in memory with a sequence of at least
`tail_start`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.backlog.detached import Detached
from leveret.broker.backlog.message_table import MessageTable
from leveret.broker.backlog.ready import Ready, is_dense
from leveret.broker.backlog.window import NOTHING, RequeuedMessage, WindowPart, sequence_of
from leveret.message import Message
from leveret.store.records.levels import level_of

#: The number of empty places before the head of a level from which they are removed.
_COMPACT_AT: Final = 1024

#: The value of `tail_start` without a tail.
_NO_TAIL: Final = 0x7FFF_FFFF_FFFF_FFFF


@final
class Level:
    """The messages of one priority: new messages in a list, requeued ones in a heap."""

    def __init__(self) -> None:
        self.items: list[RequeuedMessage] = []
        self.head: i64 = 0
        self.back: list[tuple[int, RequeuedMessage]] = []

    def first(self, at: MessageTable) -> RequeuedMessage | None:
        """Return the next message of this level; drop empty places before it."""
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

    def count(self) -> i64:
        """Return the number of places, including empty ones."""
        return len(self.items) - self.head + len(self.back)

    def enter(self, rows: list[RequeuedMessage]) -> None:
        """Insert messages from disk, which are in order, at their places."""
        items = self.items
        head = int(self.head)
        low = bisect_left(items, int(rows[0].sequence), lo=head, key=sequence_of)
        high = bisect_right(items, int(rows[-1].sequence), lo=low, key=sequence_of)
        items[low:high] = sorted(items[low:high] + rows, key=sequence_of)

    def forget_range(self, first: i64, last: i64, at: MessageTable) -> None:
        """Drop the empty places with sequences from `first` to `last` in `items`."""
        items = self.items
        low = bisect_left(items, int(first), lo=int(self.head), key=sequence_of)
        high = bisect_right(items, int(last), lo=low, key=sequence_of)
        items[low:high] = [item for item in items[low:high] if at.get(item.sequence) is item]


@final
class PriorityReady(Ready):
    """The waiting messages of a priority queue."""

    def __init__(self, levels: i64) -> None:
        super().__init__()
        #: The level set (see `levels.py`).
        self.level_set: i64 = levels
        self.at = MessageTable()
        self.next: i64 = 1
        #: A level is created for its first message, because a queue may have 256 levels.
        self.levels: dict[i64, Level] = {}
        #: No level above this one has messages.
        self.highest: i64 = 0
        #: The sequence from which messages are not in a page yet, their number, and their bytes.
        self.tail_start: i64 = _NO_TAIL
        self.tail_count: i64 = 0
        self.tail_bytes: i64 = 0

    def append(self, message: Message) -> i64:
        """Put `message` at the tail of its level; return its sequence."""
        sequence = self.next
        self.next = sequence + 1
        self.size += message.size
        self.bodies += len(message.body)
        returned = RequeuedMessage(sequence, message, 0)
        self.at.put(returned)
        self._level(level_of(message, self.level_set)).items.append(returned)
        if sequence >= self.tail_start:
            self._count_in_tail(message, 1)
        return sequence

    def _level(self, priority: i64) -> Level:
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
        """Return the number of waiting messages."""
        pages = self.pages
        return self.at.count + (pages.away_count if pages is not None else 0)

    def first(self) -> i64:
        """Return the sequence of the next message, or NOTHING.

        Also return NOTHING while that message is being read from disk.
        """
        return self._first(False)

    def first_at_once(self) -> i64:
        """Return the sequence of the next message, after reading it if it is on disk."""
        return self._first(True)

    def _first(self, at_once: bool) -> i64:
        pages = self.pages
        if pages is not None and pages.away_count == 0:
            pages = None
        if pages is None and self.at.count == 0:
            return NOTHING
        while True:
            level = self.levels.get(self.highest)
            found = level.first(self.at) if level is not None else None
            sequence = found.sequence if found is not None else NOTHING
            if pages is not None and pages.awaits(self.highest, sequence, at_once):
                if not at_once:
                    return NOTHING
            elif sequence != NOTHING or self.highest == 0:
                return sequence
            else:
                self.highest -= 1

    def take(self, sequence: i64) -> Message:
        """Remove and return the message that `first` returned; set `taken_count`."""
        returned = self.at.pop(sequence)
        assert returned is not None
        back = self._level(level_of(returned.message, self.level_set)).back
        if back and back[0][1] is returned:
            # If the message is requeued, two entries with the same sequence cannot be ordered.
            heapq.heappop(back)
        self.taken_count = returned.count
        message = returned.message
        if sequence >= self.tail_start:
            self._count_in_tail(message, -1)
        self.size -= message.size
        self.bodies -= len(message.body)
        return message

    def put(self, returned: RequeuedMessage) -> None:
        """Put a message back at its old place."""
        self._count(returned.message)
        self.at.put(returned)
        level = self._level(level_of(returned.message, self.level_set))
        heapq.heappush(level.back, (returned.sequence, returned))
        if returned.sequence >= self.tail_start:
            self._count_in_tail(returned.message, 1)

    def has(self, sequence: i64) -> bool:
        """Return whether a message with this sequence is waiting in memory."""
        return self.at.has(sequence)

    def look(self, sequence: i64) -> RequeuedMessage | None:
        """Return a waiting message without taking it, or None if it is not waiting."""
        returned = self.at.get(sequence)
        if returned is None and self.pages is not None:
            returned = self.pages.look(sequence)
        return returned

    def scattered(self) -> list[int]:
        """Return the sequences before `first_in_order`, in order."""
        first = self.first_in_order()
        if self._lowest(first) >= first:
            return []
        return sorted(int(item.sequence) for item in self.at.within(0, first - 1))

    def first_in_order(self) -> i64:
        """Return the sequence from which messages are looked up one by one.

        This is the first sequence on disk, or the next sequence if no message is on disk.  If the
        messages in memory are many and close together, it is the lowest sequence.
        """
        first = self.pages.first_sequence() if self.pages is not None else NOTHING
        if first == NOTHING:
            first = self.next
        lowest = self._lowest(first)
        return lowest if is_dense(self.at.count, first - lowest) else first

    def _lowest(self, most: i64) -> i64:
        """Return the lowest sequence that may be in memory, but at most `most`."""
        for level in self.levels.values():
            if level.head < len(level.items):
                most = min(most, level.items[level.head].sequence)
            if level.back:
                most = min(most, level.back[0][0])
        return most

    def behind(self, sequence: i64, count: i64) -> tuple[i64, i64]:
        """Skip nothing, because the messages from `first_in_order` on are on disk."""
        return sequence, count

    def remove(self, sequence: i64) -> RequeuedMessage | None:
        """Remove and return a message, or return None if it is not in memory."""
        returned = self.at.pop(sequence)
        if returned is not None:
            self._count_off(returned.message)
            if sequence >= self.tail_start:
                self._count_in_tail(returned.message, -1)
        return returned

    def waiting(self) -> list[RequeuedMessage]:
        """Return all waiting messages in memory, in the order of their sequences."""
        return sorted(self.at.values(), key=sequence_of)

    def copy_waiting(self, parts: list[WindowPart]) -> list[RequeuedMessage | None]:
        """Return all waiting messages in memory, in any order, with None between them."""
        return self.at.places()

    def detach(self) -> Detached:
        """Detach all messages, and continue with the next sequence."""
        detached = Detached()
        for level in self.levels.values():
            detached.lists.extend((level.items, level.back))
        detached.at = self.at
        self.size = 0
        self.bodies = 0
        self.at = MessageTable()
        self.levels = {}
        self.highest = 0
        self.end_tail()
        if self.pages is not None:
            self.pages.detach(detached)
        return detached

    def fill(self, returned: list[RequeuedMessage], next_sequence: i64) -> None:
        """Fill an empty queue with messages in order, all below `next_sequence`."""
        self.next = next_sequence
        for item in returned:
            self._count(item.message)
            self.at.put(item)
            self._level(level_of(item.message, self.level_set)).items.append(item)
        if self.tail_start != _NO_TAIL:
            self.begin_tail()

    # -- deep queues ------------------------------------------------------------------------------

    def begin_tail(self) -> None:
        """Start a new tail at the next message."""
        self.end_tail()
        self.tail_start = self.next

    def end_tail(self) -> None:
        """End the tail."""
        self.tail_count = 0
        self.tail_bytes = 0
        self.tail_start = _NO_TAIL

    def _count_in_tail(self, message: Message, count: i64) -> None:
        self.tail_count += count
        self.tail_bytes += count * message.size

    def enter(self, level: i64, rows: list[RequeuedMessage]) -> None:
        """Add messages of a level from disk, in the order of their sequences."""
        for item in rows:
            self.at.put(item)
        self._level(level).enter(rows)

    def forget_range(self, first: i64, last: i64) -> None:
        """Drop the places of messages in a range of sequences that were moved to disk."""
        for level in self.levels.values():
            level.forget_range(first, last, self.at)
