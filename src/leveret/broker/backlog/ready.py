"""The waiting messages of a classic queue, in the order of their sequences.

New messages are in a window.  Requeued and recovered messages are delivered before newer ones, by
their old places.  In a deep queue, the window is the tail, and pages precede it (`fifo_pages.py`).
`priorities.py` has the variant with priorities.

Invariants: a sequence is used once, and sequences grow; `take` takes the message that `first`
returned; `size` and `bodies` are those of the waiting messages.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.backlog.detached import Detached
from leveret.broker.backlog.fifo_pages import FifoPages
from leveret.broker.backlog.pages import Pages
from leveret.broker.backlog.window import (
    NOTHING,
    RequeuedMessage,
    Returns,
    Window,
    WindowPart,
    sequence_of,
    window_of,
)
from leveret.message import Message

#: The number of messages that are sorted quickly, however far apart they are.  For more messages,
#: the number of places per message up to which looking up each place is faster than sorting.
_FEW: i64 = 4096
_PLACES_EACH: i64 = 64


def is_dense(count: i64, places: i64) -> bool:
    """Return whether looking up `places` one by one is faster than sorting `count` messages."""
    return count > _FEW and places <= count * _PLACES_EACH


class Ready:
    """The waiting messages of a queue, oldest first."""

    def __init__(self) -> None:
        #: The newest messages.  In a deep queue, the tail.
        self.window = Window(1)
        self.returns = Returns()
        #: The number of returns of the message taken last.
        self.taken_count: i64 = 0
        #: The bytes of all waiting messages, including those on disk, and the bytes of their
        #: bodies, which `x-max-length-bytes` limits.
        self.size: i64 = 0
        self.bodies: i64 = 0
        #: The messages beyond the memory window, or None before the queue is deep.
        self.pages: Pages | None = None
        #: The same pages, if the queue has no priorities.
        self.fifo: FifoPages | None = None

    def append(self, message: Message) -> i64:
        """Put `message` at the tail; return its sequence."""
        self.size += message.size
        self.bodies += len(message.body)
        return self.window.append(message)

    def next_sequence(self) -> i64:
        """Return the sequence that the next message gets."""
        return self.window.next_sequence

    def count(self) -> i64:
        """Return the number of waiting messages."""
        count = self.window.count() + self.returns.count()
        pages = self.fifo
        if pages is not None:
            count += pages.front.count() + pages.count
        return count

    def memory_count(self) -> i64:
        """Return the number of messages waiting in memory."""
        pages = self.pages
        return self.count() - (pages.away_count if pages is not None else 0)

    def memory_bytes(self) -> i64:
        """Return the bytes of the messages waiting in memory."""
        pages = self.pages
        return self.size - (pages.away_bytes if pages is not None else 0)

    def page_count(self) -> i64:
        """Return the number of pages."""
        pages = self.pages
        return len(pages.items) if pages is not None else 0

    def first(self) -> i64:
        """Return the sequence of the next message, or NOTHING.

        Also return NOTHING while that message is being read from disk.
        """
        pages = self.fifo
        if pages is not None and pages.active:
            return pages.first(False)
        return self.first_in_memory()

    def first_in_memory(self) -> i64:
        """Return the lowest sequence outside the pages, or NOTHING."""
        fresh = self.window.first()
        returned = self.returns.first()
        if returned == NOTHING:
            return fresh
        return returned if fresh == NOTHING or returned < fresh else fresh

    def first_at_once(self) -> i64:
        """Return the sequence of the next message, after reading it if it is on disk."""
        pages = self.fifo
        if pages is not None and pages.active:
            return pages.first(True)
        return self.first()

    def take(self, sequence: i64) -> Message:
        """Remove and return the message that `first` returned; set `taken_count`."""
        returns = self.returns
        if returns.first() == sequence:
            returned = returns.remove(sequence)
            assert returned is not None
            message = returned.message
            self.taken_count = returned.count
        else:
            self.taken_count = 0
            pages = self.fifo
            if pages is not None and pages.active:
                message = pages.front.take()
            else:
                message = self.window.take()
        self.size -= message.size
        self.bodies -= len(message.body)
        return message

    def put(self, returned: RequeuedMessage) -> None:
        """Put a message back at its old place."""
        self._count(returned.message)
        self.returns.put(returned)

    def _count(self, message: Message) -> None:
        """Add a message to the counts."""
        self.size += message.size
        self.bodies += len(message.body)

    def _count_off(self, message: Message) -> None:
        """Remove a message from the counts."""
        self.size -= message.size
        self.bodies -= len(message.body)

    def has(self, sequence: i64) -> bool:
        """Return whether a message with this sequence is waiting in memory."""
        if self.window.has(sequence) or self.returns.at(sequence) is not None:
            return True
        pages = self.fifo
        return pages is not None and pages.has(sequence)

    def look(self, sequence: i64) -> RequeuedMessage | None:
        """Return a waiting message without taking it, or None if it is not waiting."""
        if self.window.has(sequence):
            return RequeuedMessage(sequence, self.window.at(sequence), 0)
        returned = self.returns.at(sequence)
        pages = self.fifo
        if returned is None and pages is not None:
            returned = pages.look(sequence)
        return returned

    def scattered(self) -> list[int]:
        """Return the sequences before `first_in_order`, in order."""
        first = self.first_in_order()
        if not NOTHING < self.returns.first() < first:
            return []
        return [int(item.sequence) for item in self.returns.waiting() if item.sequence < first]

    def first_in_order(self) -> i64:
        """Return the sequence from which messages are looked up one by one.

        Many requeued messages that are close together are also looked up, because sorting a million
        of them takes longer.
        """
        first = self._first_of_new()
        back = self.returns.first()
        if back != NOTHING and back < first and is_dense(self.returns.count(), first - back):
            return back
        return first

    def _first_of_new(self) -> i64:
        """Return the lowest sequence of the messages that were not requeued."""
        pages = self.fifo
        if pages is not None and pages.active:
            first = pages.first_sequence()
            if first != NOTHING:
                return first
        return self.window.head_sequence

    def behind(self, sequence: i64, count: i64) -> tuple[i64, i64]:
        """Skip up to `count` messages from `sequence`; return the next sequence and the rest.

        Only messages from `first_in_order` on are skipped.  The caller skips the rest one by one.
        """
        if self.returns.count() > 0:
            # Requeued messages lie among the others.
            return sequence, count
        pages = self.fifo
        if pages is not None and pages.active:
            sequence, count = pages.behind(sequence, count)
            if count == 0 or pages.page_at(sequence) is not None:
                return sequence, count
        return self.window.behind(sequence, count)

    def remove(self, sequence: i64) -> RequeuedMessage | None:
        """Remove and return a waiting message, or return None if it is not in memory."""
        returned: RequeuedMessage | None
        if self.window.has(sequence):
            returned = RequeuedMessage(sequence, self.window.remove(sequence), 0)
        else:
            returned = self.returns.remove(sequence)
        pages = self.fifo
        if returned is None and pages is not None:
            returned = pages.remove(sequence)
        if returned is not None:
            self._count_off(returned.message)
        return returned

    def waiting(self) -> list[RequeuedMessage]:
        """Return all waiting messages in memory, in the order of their sequences."""
        fresh = self.window.waiting()
        pages = self.fifo
        if pages is not None and pages.active:
            fresh = pages.waiting() + fresh
        back = self.returns.waiting()
        if back and fresh and back[-1].sequence > fresh[0].sequence:
            return sorted(back + fresh, key=sequence_of)
        return back + fresh

    def copy_waiting(self, parts: list[WindowPart]) -> list[RequeuedMessage | None]:
        """Add copies of the windows to `parts`; return the other waiting messages.

        These are in any order, with None between them.
        """
        pages = self.fifo
        if pages is not None and pages.active:
            pages.copy_waiting(parts)
        parts.append(self.window.part())
        back: list[RequeuedMessage | None] = []
        for block in self.returns.blocks():
            back.extend(block.messages.values())
        return back

    def detach(self) -> Detached:
        """Detach all messages, and continue with the next sequence."""
        detached = Detached()
        pages = self.pages
        if pages is not None:
            pages.detach(detached)
        detached.windows.append(self.window)
        detached.returns = self.returns
        self.size = 0
        self.bodies = 0
        self.returns = Returns()
        self.window = Window(self.window.next_sequence)
        return detached

    def fill(self, returned: list[RequeuedMessage], next_sequence: i64) -> None:
        """Fill an empty queue with messages in order, all below `next_sequence`.

        The caller has already restored the pages.
        """
        for item in returned:
            self._count(item.message)
        pages = self.fifo
        if pages is not None and pages.active:
            returned = pages.fill_front(returned)
        else:
            window = window_of(returned, next_sequence)
            if window is not None:
                self.window = window
                return
        for item in returned:
            self.returns.put(item)
        self.window = Window(next_sequence)
