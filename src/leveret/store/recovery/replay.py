"""What recovery tells the broker: the records of snapshot and journal, one call each.

The order is: all that the state snapshot holds (counters, definitions, then each queue with its
chunks), then every journal record from the snapshot's `replay_from_lsn` on, in the journal's order.

**Every record may describe what the snapshot already includes**, for a snapshot is taken in slices
while the broker goes on, and a recovery may be cut off and begin again.  So each is idempotent:

- define: changes what has the same id in place, messages and all.  Ids are never used twice, and
  grow: where a name has a queue with a greater id already, the definition is an older one's and is
  passed by.  What has no id is replaced; its newer records lie further on and put it right.
- delete: names what goes by its id; what is not there stays so.  Records of a queue that was
  deleted before the snapshot was taken come all the same: an unknown queue is no error.
- publish: a (queue, sequence) that lies in a chunk of the snapshot is taken out before the call;
  what a later ack in the journal removes is removed again.
- ack, purge: say what is gone for good, and a sequence is never given twice; acking what is not
  there does nothing.
- requeue: the count is absolute; so are a stream's first offset and consumer offsets: the last one
  told is the newest one.
- publisher sequences only go up, unless the publisher had been forgotten.
- a transaction's or a move's parts are any of these.

The broker's side of it: counters and `next_sequence` only ever go up, and each sequence met in a
publish, an ack (its last) or a purge raises the queue's next sequence above it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import i64, mypyc_attr

from leveret.message import Message
from leveret.store.records.ranges import RangeSet
from leveret.store.segments.segments import ChunkRef


@mypyc_attr(allow_interpreted_subclasses=True)
class Replay(ABC):
    """What the broker implements to be put back into the state before the stop.

    `targets` are pairs of queue id and sequence.  What is not abstract may be left out.
    """

    @abstractmethod
    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Take a definition: as `Journal.define` was given it."""

    @abstractmethod
    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Take out a definition: as `Journal.delete` was given it."""

    @abstractmethod
    def publish(self, message: Message, targets: list[tuple[int, int]]) -> None:
        """Put a message into each queue of `targets`.

        A queue may be unknown: one that was deleted after this record and before the snapshot.
        What no delete record explains by the end of the replay is kept apart, not dropped.
        """

    @abstractmethod
    def ack(self, queue_id: i64, first: i64, last: i64) -> None:
        """Take out the messages `first` to `last` of a queue."""

    @abstractmethod
    def requeue(self, queue_id: i64, sequence: i64, delivery_count: i64) -> None:
        """Set how often a message was delivered."""

    @abstractmethod
    def purge(self, queue_id: i64, below_sequence: i64) -> None:
        """Take out every message of a queue below a sequence."""

    @abstractmethod
    def trim(self, queue_id: i64, first_offset: i64) -> None:
        """Let a stream begin at `first_offset`."""

    @abstractmethod
    def spill(self, queue_id: i64, ref: ChunkRef, gone: RangeSet) -> None:
        """Learn that messages of a queue lie in a chunk; those in `gone` are gone.

        What was told of them before need not be kept.  A chunk that lies where one lies that was
        told already is the same one, or older: it is passed by.
        """

    def consumer_offset(self, queue_id: i64, consumer: bytes, offset: i64) -> None:  # noqa: B027
        """Set how far a named consumer of a stream has come; FORGOTTEN takes the name out."""

    def records_lost(self) -> None:  # noqa: B027
        """Learn that records are missing at this place of the journal, of any queue.

        What is told of a queue after it shows how far that queue had come at least; of one that
        nothing more is told of, the last messages may be lost, and their sequences be given again.
        """

    # -- from the snapshot only --------------------------------------------------------------------

    def publisher_sequence(  # noqa: B027
        self, queue_id: i64, publisher: bytes, sequence: i64, time_ms: i64
    ) -> None:
        """Set the highest number of a named publisher's messages, and the time of the last one.

        The journal tells more of them by the messages that are `numbered`.
        """

    def counter(self, name: str, value: i64) -> None:  # noqa: B027
        """Set a counter that never goes back, such as the next queue id."""

    @abstractmethod
    def queue(self, queue_id: i64, next_sequence: i64) -> None:
        """Set a queue's next sequence; its acks and chunks follow."""

    def acked(self, queue_id: i64, first: i64, last: i64) -> None:  # noqa: B027
        """Learn that these messages of the queue's chunks are gone.

        `chunk_message` leaves them out by itself; the broker keeps them for its next checkpoint.
        """

    @abstractmethod
    def chunk(self, queue_id: i64, ref: ChunkRef) -> bool:
        """Learn where older messages of a queue lie; return True to be given them now.

        Of one that turns out to be damaged what can be read is told in any case.
        """

    def verifies(self, queue_id: i64) -> bool:
        """Tell whether the queue's newest chunks are to be looked at now, not when read."""
        return True

    def keeps_all(self, queue_id: i64) -> bool:
        """Tell whether messages that are not persistent come back too: those of a stream."""
        return False

    def chunk_lost(self, queue_id: i64, ref: ChunkRef) -> None:  # noqa: B027
        """Learn that the chunk just told is damaged: neither it nor a later one is to be kept.

        What is told of the queue from here on, by `chunk_message` or by `publish` from an older
        part of the journal, is to be handed over again by the next checkpoint; while it is not,
        what can be saved is saved at each start that still has that part.
        """

    @abstractmethod
    def chunk_message(
        self,
        queue_id: i64,
        sequence: i64,
        message: Message,
        delivery_count: i64,
        expiry_ms: i64,
        priority: i64,
    ) -> None:
        """Put a message that lies in a chunk and is live into its queue."""
