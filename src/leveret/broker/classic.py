"""The classic queue: messages wait in order, go to one consumer each, and end with their ack.

A requeued message returns to its old place (behaviour 59).  All waiting messages lie in memory;
those of durable queues that are persistent are in the journal as well.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import final

from mypy_extensions import i64

from leveret.broker.consumers import SingleActive
from leveret.broker.queue import Queue
from leveret.broker.source import NOTHING, Returned, Returns, Window
from leveret.broker.turn import Turn
from leveret.message import Message
from leveret.store.ranges import RangeSet
from leveret.store.segments import ChunkRef


@final
class ClassicQueue(Queue):
    """A queue whose messages are consumed."""

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
        if arguments.get("x-single-active-consumer") is True:
            self.single_active = True
            self.turns = SingleActive(self.consumers)
        self.window = Window(1)
        self.returns = Returns()
        #: Messages with lower sequences may have been handed out before an unclean stop.
        self.redelivered_below: i64 = 0
        self.bytes_ready: i64 = 0
        #: Persistent messages that are handed out and not acked, by their sequences.
        self.out: dict[i64, Returned] = {}
        #: Chunks that checkpoints wrote of this queue, how far they reach, and what is gone of it.
        self.chunks: list[ChunkRef] = []
        self.chunked_through: i64 = 0
        self.dead = RangeSet()
        #: The sequence of the message that `get` took last.
        self.taken_sequence: i64 = 0
        #: How often the message taken last had been handed out before.
        self.taken_count: i64 = 0

    @property
    def kind(self) -> str:
        """Return `classic`, or `quorum` where it was declared so."""
        return "quorum" if self.arguments.get("x-queue-type") == "quorum" else "classic"

    def publish(self, message: Message) -> i64:
        """Put `message` at the tail; return its sequence."""
        self.published += 1
        size = message.size
        self.bytes_ready += size
        turn = self.turn
        turn.held_bytes += size
        turn.held_messages += 1
        if not self.listed:
            self.mark()
        return self.window.append(message)

    def ready_count(self) -> i64:
        """Return how many messages wait."""
        return self.window.count() + self.returns.count()

    def ready_bytes(self) -> i64:
        """Return the bytes of the messages that wait."""
        return self.bytes_ready

    def first(self) -> i64:
        """Return the sequence of the message that is next, or NOTHING."""
        returned = self.returns.first()
        if returned == NOTHING:
            return self.window.first()
        fresh = self.window.first()
        return returned if fresh == NOTHING or returned < fresh else fresh

    def take(self, sequence: i64) -> Message:
        """Return the message that `first` named and move on; sets `taken_count`."""
        count: i64 = 0
        if self.returns.first() == sequence:
            message = self.returns.take()
            count = self.returns.taken_count
        else:
            message = self.window.take()
        if count == 0 and sequence < self.redelivered_below:
            count = 1
        self.taken_count = count
        self.bytes_ready -= message.size
        return message

    def dispatch(self, limit: i64) -> bool:
        """Hand out up to `limit` messages, one to each ready consumer in turn."""
        if not self.consumers:
            return False
        handed: i64 = 0
        while handed < limit:
            sequence = self.first()
            if sequence == NOTHING:
                return False
            consumer = self.turns.next()
            if consumer is None:
                return False
            message = self.take(sequence)
            count = self.taken_count
            consumer.outlet.deliver(consumer, message, sequence, count)
            if consumer.no_ack:
                self.delivered_no_ack += 1
                self._let_go(sequence, message)
            else:
                self.delivered += 1
                self._hold(sequence, message, count)
            if count > 0:
                self.redelivered += 1
            handed += 1
        return self.first() != NOTHING

    def get(self, no_ack: bool) -> Message | None:
        """Take one message for basic.get; `taken_sequence` and `taken_count` go with it."""
        sequence = self.first()
        if sequence == NOTHING:
            return None
        message = self.take(sequence)
        self.taken_sequence = sequence
        self.got += 1
        if no_ack:
            self._let_go(sequence, message)
        else:
            self._hold(sequence, message, self.taken_count)
        if self.taken_count > 0:
            self.redelivered += 1
        return message

    def _hold(self, sequence: i64, message: Message, count: i64) -> None:
        """Count a message as handed out and not acked; a checkpoint must find persistent ones."""
        self.unacked_count += 1
        self.unacked_bytes += message.size
        if self.recorded and message.persistent:
            self.out[sequence] = Returned(sequence, message, count)

    def _let_go(self, sequence: i64, message: Message) -> None:
        turn = self.turn
        turn.held_bytes -= message.size
        turn.held_messages -= 1
        if self.recorded and message.persistent:
            turn.journal.ack(self.queue_id, sequence, sequence)
            if sequence <= self.chunked_through:
                self.dead.add(sequence, sequence)

    def ack(self, sequence: i64, message: Message) -> None:
        """Let go of a message that was handed out."""
        if self.deleted:
            return
        self.acked += 1
        self.unacked_count -= 1
        self.unacked_bytes -= message.size
        if self.out:
            self.out.pop(sequence, None)
        self._let_go(sequence, message)

    def requeue(self, sequence: i64, message: Message, count: i64) -> None:
        """Take a message back at its old place."""
        if self.deleted:
            return
        self.unacked_count -= 1
        self.unacked_bytes -= message.size
        self.bytes_ready += message.size
        self.returns.put(Returned(sequence, message, count + 1))
        if self.recorded and message.persistent:
            self.out.pop(sequence, None)
            self.turn.journal.requeue(self.queue_id, sequence, count + 1)
        if not self.listed:
            self.mark()

    def purge(self) -> i64:
        """Drop what waits, here and in the journal."""
        dropped = self.ready_count()
        window = self.window
        if self.recorded:
            journal = self.turn.journal
            for returned in self.returns.waiting():
                journal.ack(self.queue_id, returned.sequence, returned.sequence)
                self.dead.add(returned.sequence, returned.sequence)
            if window.count() > 0:
                journal.ack(self.queue_id, window.head_sequence, window.next_sequence - 1)
                self.dead.add(window.head_sequence, window.next_sequence - 1)
        self.turn.held_bytes -= self.bytes_ready
        self.turn.held_messages -= dropped
        self.bytes_ready = 0
        self.returns = Returns()
        window.restart(window.next_sequence)
        return dropped

    def drop(self) -> None:
        """Let go of everything; the journal is told by the record of the delete."""
        self.turn.held_bytes -= self.bytes_ready + self.unacked_bytes
        self.turn.held_messages -= self.ready_count() + self.unacked_count
        self.bytes_ready = 0
        self.returns = Returns()
        self.out.clear()
        self.chunks = []
        self.window.restart(self.window.next_sequence)

    # -- checkpoints ------------------------------------------------------------------------------

    def next_number(self) -> i64:
        """Return the sequence that the next message gets."""
        return self.window.next_sequence

    def live(self) -> list[Returned]:
        """Return the persistent messages, waiting and handed out, in the order of sequences."""
        live = list(self.out.values())
        live += [item for item in self.returns.waiting() if item.message.persistent]
        live.sort(key=_sequence)
        sequence: i64 = self.window.head_sequence
        fresh: list[Returned] = []
        for message in self.window.waiting():
            if message.persistent:
                fresh.append(Returned(sequence, message, 0))
            sequence += 1
        if live and fresh and live[-1].sequence > fresh[0].sequence:
            return sorted(live + fresh, key=_sequence)
        return live + fresh

    def holds(self, sequence: i64) -> bool:
        """Tell whether a persistent message that `live` named is there still."""
        if sequence >= self.window.head_sequence or sequence in self.out:
            return True
        return self.returns.holds(sequence)

    def keep_chunks(self, live: list[int]) -> None:
        """Forget the chunks of which nothing is among the live sequences."""
        kept: list[ChunkRef] = []
        for ref in self.chunks:
            place = bisect_left(live, int(ref.first))
            if place < len(live) and live[place] <= ref.last:
                kept.append(ref)
        self.chunks = kept
        self.dead.remove_below(kept[0].first if kept else self.chunked_through + 1)

    def chunked(self, ref: ChunkRef) -> None:
        """Know a new chunk; what went meanwhile is dead in it."""
        first = ref.first
        last = ref.last
        gone: i64 = first
        if last - first < 4 * ref.count:
            sequences = [place for place in range(int(first), int(last) + 1) if self.holds(place)]
        else:
            # Sparse: what there is is looked at, not every number between.
            sequences = [
                int(item.sequence) for item in self.live() if first <= item.sequence <= last
            ]
        for sequence in sequences:
            self.dead.add(gone, sequence - 1)
            gone = sequence + 1
        self.dead.add(gone, last)
        self.chunks.append(ref)
        self.chunked_through = max(self.chunked_through, ref.last)

    def redelivered_definition(self) -> dict[str, object]:
        """Return what the journal holds of messages that may have been handed out before."""
        return {"id": int(self.queue_id), "below": int(self.redelivered_below)}

    def restore(self, returned: list[Returned], next_sequence: i64, unclean: bool) -> None:
        """Start with what the journal held, in the order of the sequences."""
        self.returns.fill(returned)
        self.window.restart(next_sequence)
        size: i64 = 0
        for item in returned:
            size += item.message.size
        self.bytes_ready = size
        self.turn.held_bytes += size
        self.turn.held_messages += len(returned)
        if unclean:
            self.redelivered_below = next_sequence


def _sequence(item: Returned) -> int:
    return item.sequence
