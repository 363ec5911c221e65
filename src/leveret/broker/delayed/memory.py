"""The delayed messages of one exchange that are in memory, by their due times.

A *fresh* message is in no chunk yet.  A *loaded* message is also in a chunk, to which it was
written or from which it was read.

Invariants: a sequence is fresh or loaded, never both; fresh messages are in the order of their
sequences; every message in memory has a deadline.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core import Core
from leveret.broker.queue.deadlines import Deadlined, Deadlines
from leveret.chunk import ROW_BYTES
from leveret.message import Message, PlacedMessage

#: The overhead of a delayed message in memory, including its entry in a heap.
DELAYED_OVERHEAD_BYTES: Final = 500


#: The maximum number of stale entries removed to find the first entry.
_PASSED_BY: Final = 256


@final
@mypyc_attr(acyclic=True)
class Delayed(PlacedMessage):
    """A message and its due time in ms."""

    def __init__(self, message: Message, due_ms: i64) -> None:
        super().__init__(message)
        self.due_ms: i64 = due_ms


@final
class DelayedMemory(Deadlined):
    """The messages of one store in memory."""

    def __init__(self, core: Core) -> None:
        self.fresh: dict[i64, Delayed] = {}
        self.loaded: dict[i64, Delayed] = {}
        #: The bytes of all messages, and the bytes of the fresh messages in a chunk.
        self.bytes: i64 = 0
        self.fresh_bytes: i64 = 0
        #: The bytes of memory that are freed after the current write.
        self.leaving: i64 = 0
        self._core: Final = core
        #: The keys are sequences.
        self._deadlines: Final = Deadlines(core)

    def count(self) -> i64:
        """Return the number of messages in memory."""
        return len(self.fresh) + len(self.loaded)

    def taken(self) -> i64:
        """Return the memory in use, without the part that is freed after the current write."""
        return self.bytes + self.count() * DELAYED_OVERHEAD_BYTES - self.leaving

    def get(self, sequence: i64) -> Delayed | None:
        """Return a message, or None if it is not in memory."""
        delayed = self.fresh.get(sequence)
        return self.loaded.get(sequence) if delayed is None else delayed

    def add_fresh(self, sequence: i64, delayed: Delayed) -> None:
        """Add a message that is in no chunk, with a higher sequence than all fresh messages."""
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
        self._core.memory.delay(size)
        self._deadlines.add(delayed.due_ms, sequence, self)

    def has_deadline(self, key: i64) -> bool:
        """Return whether the message with the sequence `key` is in memory."""
        return self.get(key) is not None

    def written(self, sequence: i64) -> None:
        """Make a fresh message a loaded one, because it is in a chunk now."""
        delayed = self.fresh.pop(sequence)
        self.fresh_bytes -= delayed.message.size + ROW_BYTES
        self.loaded[sequence] = delayed

    def unwritten(self, sequences: list[i64]) -> None:
        """Make loaded messages fresh again, because their chunk is lost."""
        for sequence in sequences:
            delayed = self.loaded.pop(sequence)
            self.fresh[sequence] = delayed
            self.fresh_bytes += delayed.message.size + ROW_BYTES
        self.fresh = {sequence: self.fresh[sequence] for sequence in sorted(self.fresh)}

    def remove(self, sequence: i64) -> None:
        """Remove a message, if it is in memory."""
        delayed = self.loaded.pop(sequence, None)
        if delayed is None:
            delayed = self.fresh.pop(sequence, None)
            if delayed is None:
                return
            self.fresh_bytes -= delayed.message.size + ROW_BYTES
        size = delayed.message.size
        self.bytes -= size
        self._core.memory.end_delay(1, size)
        self._deadlines.tidy(self)

    def first(self) -> tuple[int, int] | None:
        """Return the due time and sequence of the first message, or None.

        If very many messages have left, it may be one of these, which `get` does not find.
        """
        deadlines = self._deadlines
        left: i64 = _PASSED_BY
        first = deadlines.first()
        while first is not None and left > 0 and self.get(first[1]) is None:
            left -= 1
            deadlines.pop()
            first = deadlines.first()
        return first

    def pop(self) -> None:
        """Remove the entry that `first` returned, because its message leaves."""
        self._deadlines.pop()

    def clear(self) -> None:
        """Drop all messages."""
        core = self._core
        core.memory.end_delay(self.count(), self.bytes)
        core.memory.free_table(self.fresh)
        core.memory.free_table(self.loaded)
        self._deadlines.clear()
        self.fresh = {}
        self.loaded = {}
        self.bytes = 0
        self.fresh_bytes = 0
        self.leaving = 0
