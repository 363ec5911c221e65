"""A queue whose waiting messages are written to chunks: where they lie, and which of them are gone.

A message is written to a chunk at most once.  It may leave its queue at any time, before the chunk
is synced and after; the queue remembers which messages of its chunks are gone for the next start,
which reads the chunks and not the journal before them.

Invariant: a message that a checkpoint must find is in memory and returned by `unstored`, or it is
in a stored chunk.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from leveret.broker.backlog.source import Returned
from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.core.turn import Turn
from leveret.broker.queue.queue import Queue
from leveret.broker.values.death_reasons import REASON_EXPIRED
from leveret.broker.values.event_names import DEAD_LETTERED, DROPPED, EXPIRED, LETTERS_DROPPED
from leveret.message import Message
from leveret.store.checkpoint.checkpoint import NewChunk


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkedQueue(Queue):
    """The base of the queues that keep messages in memory and in stored chunks."""

    def __init__(
        self,
        turn: Turn,
        queue_id: i64,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> None:
        super().__init__(turn, queue_id, name, durable, exclusive, auto_delete, arguments)
        self.stored = StoredChunks(turn.spill)

    def note_event(
        self, event: str, sequence: i64, message: Message | None, count: i64 = 0
    ) -> None:
        """Record an event of a traced message, or of the queue; see `events.py`."""
        self._note(event, sequence, message, "", count)

    def note_death(self, sequence: i64, message: Message, reason: str, count: i64) -> None:
        """Record that a traced message is dead-lettered or dropped."""
        event = EXPIRED if reason == REASON_EXPIRED else DROPPED
        if self.settings.dead_letter_exchange is not None:
            event = DEAD_LETTERED
        self._note(event, sequence, message, reason, count)

    def note_dropped_copies(self, sequence: i64, message: Message, reason: str, count: i64) -> None:
        """Record that copies of a traced message are not made when it is dead-lettered."""
        self._note(LETTERS_DROPPED, sequence, message, reason, count)

    def _note(
        self, event: str, sequence: i64, message: Message | None, reason: str, count: i64
    ) -> None:
        events = self.turn.events
        vhost = self.vhost
        if events is not None and vhost is not None and not self.hidden:
            events.queue_event(event, vhost.name, self.name, sequence, message, reason, count)

    def live(self) -> list[Returned]:
        """Return the messages in memory that are journaled, in the order of sequences."""
        raise RuntimeError("a chunked queue knows its messages")

    def unstored(self, boundary: i64) -> list[Returned]:
        """Return those of them below `boundary` that lie in no chunk."""
        stored = self.stored
        return [
            item
            for item in self.live()
            if item.sequence < boundary
            and (item.sequence > stored.through or stored.find(item.sequence) is None)
        ]

    def counts(self) -> list[tuple[int, int]]:
        """Return the sequences of stored messages that came back, and how often they did."""
        stored = self.stored
        return [
            (int(item.sequence), int(item.count))
            for item in self.live()
            if item.count > 0 and stored.find(item.sequence) is not None
        ]

    def holds(self, sequence: i64) -> bool:
        """Return whether a message that `live` returned is still here."""
        raise RuntimeError("a chunked queue knows its messages")

    def let_go(self, sequence: i64, message: Message) -> None:
        """Forget a message for good, here and in the journal."""
        raise RuntimeError("a chunked queue lets go of its messages")

    def moved(self, sequence: i64, message: Message, recorded: bool) -> None:
        """Forget a message that was moved on; `recorded` tells that the journal knows it left."""
        raise RuntimeError("a chunked queue lets go of its messages")

    def restore(self, returned: list[Returned], next_sequence: i64, unclean: bool) -> None:
        """Start with the messages of the journal, in the order of their sequences."""
        raise RuntimeError("a chunked queue takes its messages back")

    def settle_pages(self) -> None:
        """Write messages that are about to be written anyway to chunks, before a checkpoint."""

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
