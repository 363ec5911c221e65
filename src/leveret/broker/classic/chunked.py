"""A queue whose waiting messages are written to chunks: where they lie, and which of them are gone.

A message is written to a chunk at most once.  It may leave its queue at any time, before the chunk
is synced and after; the queue remembers which messages of its chunks are gone for the next start,
which reads the chunks and not the journal before them.

Invariant: a message that a checkpoint must find is in memory and returned by `unstored`, or it is
in a stored chunk.
"""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import i64, mypyc_attr

from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.backlog.window import Returned, WindowPart
from leveret.broker.core.turn import Turn
from leveret.broker.queue.queue import Queue
from leveret.broker.values.queue_attributes import QueueAttributes
from leveret.message import Address, Message
from leveret.store.checkpoint.checkpoint import NewChunk


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkedQueue(Queue):
    """The base of the queues that keep messages in memory and in stored chunks."""

    def __init__(self, turn: Turn, queue_id: i64, name: str, attributes: QueueAttributes) -> None:
        super().__init__(turn, queue_id, name, attributes)
        self.stored = StoredChunks(turn.spill)
        #: Where its last dead letter went; None before the first one.
        self.letter_address: Address | None = None

    @abstractmethod
    def live(self) -> list[Returned]:
        """Return the messages in memory that are journaled, in the order of sequences."""

    @abstractmethod
    def live_parts(self, parts: list[WindowPart]) -> list[list[Returned | None]]:
        """Return the same in lists of any order, and in windows, which are put into `parts`.

        With them come messages that are not persistent, and None.

        A checkpoint looks at them in slices: there may be millions.
        """

    def counts_on_disk(self) -> dict[i64, i64]:
        """Return how often messages that are on the disk alone came back."""
        return {}

    @abstractmethod
    def holds(self, sequence: i64) -> bool:
        """Return whether a message that `live` returned is still here."""

    @abstractmethod
    def let_go(self, sequence: i64, message: Message) -> None:
        """Forget a message for good, here and in the journal."""

    @abstractmethod
    def restore(self, returned: list[Returned], next_sequence: i64, unclean: bool) -> None:
        """Start with the messages of the journal, in the order of their sequences."""

    def settle_pages(self, boundary: i64) -> bool:
        """Write messages that are about to be written anyway to chunks, before a checkpoint.

        Returns whether some below `boundary` are left; it is asked again then.
        """
        return False

    def chunked(self, chunk: NewChunk) -> None:
        """Add a new chunk of messages, of which some may be gone by now."""
        self.stored.add(chunk.ref, len(chunk.sequences))
        after: i64 = chunk.ref.first
        for sequence in chunk.sequences:
            self.stored.skip(after, sequence - 1)
            after = sequence + 1
        for sequence in chunk.sequences:
            if not self.holds(sequence):
                self.stored.forget(sequence)
