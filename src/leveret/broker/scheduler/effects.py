"""Requests from the core to the shell, and the base classes of objects that wait for them.

Each is a native base class that higher packages extend; `Core` and the scheduler list them, and the
shell runs them once per batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.store.segments.segments import ChunkRef


@mypyc_attr(allow_interpreted_subclasses=True)
class SyncWaiter:
    """An object that waits for a sync of the journal, written chunks, or the release of a batch."""

    def __init__(self) -> None:
        #: The journal group that it waits for, or 0.
        self.waits_for: i64 = 0
        self.waits_for_spill = False

    @abstractmethod
    def synced(self, group: i64) -> None:
        """Continue, because every group up to `group` is synced."""

    def spilled(self) -> None:
        """Continue, because chunks were written."""

    def hold_ended(self) -> None:
        """Continue, because a publish that was held is settled."""


class Hold:
    """The reason that a publish is not settled yet, although it is handled.

    A commit waits for the release of its batch, and a staged batch for its chunk.
    """

    def __init__(self) -> None:
        self.ended = False
        #: The channels whose confirms wait for its end.
        self.waiting: dict[SyncWaiter, None] = {}

    def end(self) -> None:
        """Notify the channels."""
        self.ended = True
        waiting = self.waiting
        self.waiting = {}
        for waiter in waiting:
            waiter.hold_ended()


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkWanted:
    """A request to the shell: read a stored chunk and call `arrived` with its bytes.

    `owner` is the queue's id, and `levels` is as in `ChunkReader.read`.
    """

    def __init__(self, owner: i64, ref: ChunkRef, levels: i64) -> None:
        self.owner: Final[i64] = owner
        self.ref = ref
        self.levels: Final[i64] = levels

    @abstractmethod
    def arrived(self, data: bytes) -> None:
        """Process the chunk's bytes, fewer than requested if the file ends early."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkReader:
    """Reads a stored chunk at once, for the few callers that cannot wait for it.

    `reads`, `bytes_read` and `read_ns` (of a monotonic clock) count its reads since the start; no
    decision depends on them.
    """

    def __init__(self) -> None:
        self.reads: i64 = 0
        self.bytes_read: i64 = 0
        self.read_ns: i64 = 0

    def count_read(self, size: i64, took_ns: i64) -> None:
        """Count a read of `size` bytes."""
        self.reads += 1
        self.bytes_read += size
        self.read_ns += took_ns

    def read(self, owner: i64, ref: ChunkRef, levels: i64) -> bytes:
        """Return the chunk's bytes, fewer than requested if they cannot be read.

        Damaged messages that have another copy are repaired.  `levels` is the queue's highest
        priority, or negative for delayed messages, whose due times are only in the rows.
        """
        return b""


@mypyc_attr(allow_interpreted_subclasses=True)
class DeadMessage:
    """A message that left its queue and may be published to a dead-letter exchange."""

    @abstractmethod
    def dead_letter(self) -> Iterator[int] | None:
        """Dead-letter the message or drop it; return the rest of a long operation, or None."""


@final
class WaitingLetters:
    """The messages that wait to be dead-lettered, in the order in which they left their queues.

    They wait until the deliveries of the batch are done, or for later rounds if there are too many.
    The list is read from the front and extended at the end; `next` returns a message only once.
    """

    def __init__(self) -> None:
        self._added: list[DeadMessage] = []
        #: The list being read, from index `_done` on.
        self._begun: list[DeadMessage] = []
        self._done: i64 = 0

    def add(self, letter: DeadMessage) -> None:
        """Add a message, to dead-letter it after all waiting ones."""
        self._added.append(letter)

    def any(self) -> bool:
        """Return whether messages wait."""
        return len(self._added) > 0 or len(self._begun) > 0

    def count(self) -> i64:
        """Return how many messages wait."""
        return len(self._added) + len(self._begun) - self._done

    def next(self) -> DeadMessage | None:
        """Remove and return the next message, or return None if no message waits."""
        if not self._begun:
            self._begun = self._added
            self._added = []
            if not self._begun:
                return None
        letter = self._begun[self._done]
        self._done += 1
        if self._done == len(self._begun):
            self._begun = []
            self._done = 0
        return letter

    def put_aside(self) -> list[DeadMessage]:
        """Remove and return the added messages, to separate them from later ones."""
        before = self._added
        self._added = []
        return before

    def put_back(self, before: list[DeadMessage]) -> list[DeadMessage]:
        """Remove and return the messages added since `put_aside`, and add back `before`."""
        own = self._added
        self._added = before
        return own


@final
class DamagedChunk:
    """A stored chunk that failed its check when it was read, with the bytes read.

    `what` describes the loss, `records` is the number of messages lost.
    """

    def __init__(self, ref: ChunkRef, data: bytes, what: str, records: i64) -> None:
        self.ref: Final = ref
        self.data: Final = data
        self.what: Final = what
        self.records: Final[i64] = records
