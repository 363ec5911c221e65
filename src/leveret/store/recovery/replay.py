"""The interface between recovery and the broker: one method for each kind of record.

The order is: all records of the state snapshot (counters, definitions, then each queue with its
chunks), then all journal records from the snapshot's `replay_from_lsn` on, in the journal's order.

**Every record may describe a change that the snapshot already includes**, because a snapshot is
taken in slices while the broker works, and a recovery may be interrupted and repeated.  So each
call is idempotent:

- define: changes the object with the same id in place, and its messages remain.  Ids only grow and
  are never reused: if a queue of the same name already has a higher id, the definition is an older
  queue's and is ignored.  An object without an id is replaced; newer records follow and correct it.
- delete: identifies the object by its id, and does nothing if it does not exist.  There may be
  records of a queue that was deleted before the snapshot was taken, so an unknown queue is not an
  error.
- publish: a (queue, sequence) in a chunk of the snapshot is removed before the call.  A later ack
  in the journal removes the message again.
- ack, purge: remove messages permanently, and a sequence is never reused.  Acking an unknown
  message does nothing.
- requeue: the count is absolute, as are a stream's first offset and consumer offsets; the last one
  replayed is the newest.
- publish sessions: a channel's progress only grows, until the channel is forgotten.
- publisher sequences only grow, unless the publisher was forgotten.
- the parts of a transaction or a move are any of these.

The broker in turn never decreases counters and `next_sequence`.  Each sequence in a publish, an ack
(its last) or a purge raises the queue's next sequence above it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import i64, mypyc_attr

from leveret.message import Message
from leveret.store.records.publish_session import PublishProgress
from leveret.store.records.ranges import RangeSet
from leveret.store.recovery.queue_state import KnownQueue
from leveret.store.segments.segments import ChunkRef


@mypyc_attr(allow_interpreted_subclasses=True)
class Replay(ABC):
    """The interface that the broker implements to restore its state.

    `targets` are pairs of queue id and sequence.  Methods that are not abstract are optional.
    """

    @abstractmethod
    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Apply a definition of `Journal.define`."""

    @abstractmethod
    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Apply a deletion of `Journal.delete`."""

    @abstractmethod
    def publish(self, message: Message, targets: list[tuple[int, int]]) -> None:
        """Put a message into each queue of `targets`.

        A queue may be unknown if it was deleted after this record and before the snapshot.  If no
        delete record of the queue follows, its messages are restored to a separate queue instead of
        being dropped.
        """

    @abstractmethod
    def ack(self, queue_id: i64, first: i64, last: i64) -> None:
        """Remove the messages `first` to `last` of a queue."""

    @abstractmethod
    def requeue(self, queue_id: i64, sequence: i64, delivery_count: i64) -> None:
        """Set a message's delivery count."""

    @abstractmethod
    def purge(self, queue_id: i64, below_sequence: i64) -> None:
        """Remove every message of a queue below a sequence."""

    @abstractmethod
    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Set the first offset of a stream."""

    @abstractmethod
    def spill(self, queue_id: i64, ref: ChunkRef, gone: RangeSet) -> None:
        """Record that messages of a queue are in a chunk; those in `gone` are removed.

        Copies of them that were replayed before may be dropped.  A chunk at the position of an
        already replayed one is the same or an older chunk, and is ignored.
        """

    def consumer_offset(self, queue_id: i64, consumer: bytes, offset: i64) -> None:  # noqa: B027
        """Set the offset of a named consumer of a stream."""

    def consumer_forgotten(self, queue_id: i64, consumer: bytes) -> None:  # noqa: B027
        """Remove a named consumer of a stream, with its offset."""

    def publish_session(self, progress: PublishProgress) -> None:  # noqa: B027
        """Set the progress of the publishes on a client's channel, or forget it."""

    def records_lost(self) -> None:  # noqa: B027
        """Record that records of any queue may be missing at this position of the journal.

        Later records of a queue show its minimum progress.  If there are none, the queue's last
        messages may be lost, and their sequences may be reused.
        """

    # -- from the snapshot only --------------------------------------------------------------------

    def publisher_sequence(  # noqa: B027
        self, queue_id: i64, publisher: bytes, sequence: i64, time_ms: i64
    ) -> None:
        """Set the highest number of a named publisher's messages, and the time of the last one.

        The journal has further numbers, in `numbered` messages.
        """

    def counter(self, name: str, value: i64) -> None:  # noqa: B027
        """Set a counter that never decreases, such as the next queue id."""

    @abstractmethod
    def queue(self, queue_id: i64, next_sequence: i64) -> None:
        """Set a queue's next sequence; its acks and chunks follow."""

    def acked(self, queue_id: i64, first: i64, last: i64) -> None:  # noqa: B027
        """Record that these messages of the queue's chunks are removed.

        They do not follow by `chunk_message`.  The broker stores them for its next checkpoint.
        """

    @abstractmethod
    def chunk(self, queue_id: i64, ref: ChunkRef) -> bool:
        """Record a chunk of a queue; return True to receive its messages now."""

    # -- repair, after the last record -------------------------------------------------------------

    def state(self, queue_id: i64) -> KnownQueue | None:
        """Return the known state of a queue, or None if no record refers to it."""
        return None

    def queue_ids(self) -> list[int]:
        """Return the ids of all queues in the records."""
        return []

    def chunk_lost(self, queue_id: i64, ref: ChunkRef) -> None:  # noqa: B027
        """Record that a chunk is damaged and must not be used any more.

        Its remaining messages follow by `chunk_message`, and the next checkpoint must write them
        again.  Until then, each start finds them at the same places.
        """

    def chunk_message(
        self, queue_id: i64, sequence: i64, message: Message, delivery_count: i64
    ) -> None:
        """Add a live message of a chunk, or a copy found elsewhere, to its queue."""
        raise RuntimeError("no message of a chunk was requested")
