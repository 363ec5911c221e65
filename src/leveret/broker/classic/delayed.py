"""Delayed messages: what an exchange keeps until the time that a message's `x-delay` header asks.

A delayed exchange, declared as `x-delayed-message` or made so by the policy `delayed-message`, has
a store: a queue of its own that is not among the vhost's, has no consumers, and gives its messages
back to the exchange when they are due.  A message is published into it as into any queue, so that
confirms, transactions and the journal need know nothing of delays.

A deadline follows from the message alone, the time it was taken plus its delay, so that nothing
about it is stored.  When it comes the message is routed, its header negated as the plugin does, and
leaves the store and enters its queues by one record of the journal.

A message's id is its sequence in the store: it stays the same over restarts.

Source: RabbitMQ's plugin rabbitmq_delayed_message_exchange.

Invariant: the heap holds the deadline of every message that is there; entries of messages that are
gone are passed by, and sorted out when they are the most.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.backlog.source import Returned
from leveret.broker.classic.chunked import ChunkedQueue
from leveret.broker.core.timers import Timed
from leveret.broker.core.turn import Turn
from leveret.broker.values.copies import blinded
from leveret.broker.values.delay import due_ms, undelayed
from leveret.broker.values.letters import shared
from leveret.limits import SLICE_MESSAGES
from leveret.message import ALL_LETTERS, Address, Message

if TYPE_CHECKING:
    from leveret.broker.queue.queue import Queue

#: Entries of the heap beyond twice what is there that are worth sorting out.
_SORT_OUT_AT: Final = 1024


def _with_letters(message: Message, letters_left: i64) -> Message:
    """Return a message that dead-lettering may make so many more copies of by itself."""
    address = message.address
    limited = Address(address.exchange, address.routing_key, address.blind, letters_left)
    return message.copied(limited, message.properties, message.timestamp_ms)


@final
class DueTimer(Timed):
    """The timer of one store."""

    def __init__(self, store: DelayedMessages) -> None:
        super().__init__()
        self.store = store

    def due(self, now_ms: i64) -> None:
        """Let go what is due."""
        self.store.release(now_ms)


@final
class DelayedMessages(ChunkedQueue):
    """The store of one delayed exchange; every message in it is journaled, persistent or not."""

    def __init__(self, turn: Turn, queue_id: i64, exchange_name: str, durable: bool) -> None:
        super().__init__(turn, queue_id, "", durable, False, False, {})
        self.keeps_all = True
        self.exchange_name = exchange_name
        self.messages: dict[i64, Message] = {}
        self.heap: list[tuple[int, int]] = []
        self.next_sequence: i64 = 1
        self.bytes_held: i64 = 0
        self.timer = DueTimer(self)

    @property
    def kind(self) -> str:
        """Return what it is, for those who print it."""
        return "delayed"

    def publish(self, message: Message) -> i64:
        """Keep `message` until it is due; return its id."""
        self.published += 1
        sequence = self.next_sequence
        self.next_sequence += 1
        self._keep(sequence, message)
        self._arm()
        return sequence

    def _keep(self, sequence: i64, message: Message) -> None:
        self.messages[sequence] = message
        self.bytes_held += message.size
        self.turn.held_bytes += message.size
        self.turn.held_messages += 1
        heap = self.heap
        heapq.heappush(heap, (int(due_ms(message)), int(sequence)))
        size: i64 = len(heap)
        if size > _SORT_OUT_AT and size > 2 * len(self.messages):
            self.heap = [entry for entry in heap if entry[1] in self.messages]
            heapq.heapify(self.heap)

    def _arm(self) -> None:
        """Have the timer come when the first message is due."""
        heap = self.heap
        while heap and heap[0][1] not in self.messages:
            heapq.heappop(heap)
        if heap:
            self.turn.timers.set(self.timer, heap[0][0])
        else:
            self.turn.timers.cancel(self.timer)

    def release(self, now_ms: i64) -> None:
        """Hand what is due to the exchange, a slice at most; the rest waits for the next turn."""
        released: i64 = 0
        heap = self.heap
        turn = self.turn
        while heap and heap[0][0] <= now_ms and released < SLICE_MESSAGES and turn.timed_steps > 0:
            sequence: i64 = heapq.heappop(heap)[1]
            message = self.messages.get(sequence)
            if message is not None:
                released += 1
                self._hand_over(sequence, message, now_ms)
        self._arm()

    def _hand_over(self, sequence: i64, message: Message, now_ms: i64) -> None:
        vhost = self.vhost
        if vhost is not None:
            letter = undelayed(blinded(message), now_ms)
            queues = vhost.destinations(self.exchange_name, letter)
            left = message.address.letters_left
            if left != ALL_LETTERS and len(queues) > 1:
                # A dead letter that was delayed: more queues than one count as if it died here.
                queues = self._within(queues, left + 1)
                letter = _with_letters(letter, shared(left + 1, len(queues)))
            self.turn.timed_steps -= 1 + len(queues)
            vhost.move(self, sequence, message, letter, queues)

    def _within(self, queues: list[Queue], most: i64) -> list[Queue]:
        """Return the queues that a dead letter may go to; what that leaves out is counted."""
        if len(queues) > most:
            dropped = self.turn.letters_dropped
            dropped.copies += len(queues) - most
            dropped.vhost = self.vhost.name if self.vhost is not None else ""
            dropped.queue = ""
            return queues[:most]
        return queues

    def let_go(self, sequence: i64, message: Message) -> None:
        """Forget a message for good, here and in the journal."""
        self.moved(sequence, message, False)

    def moved(self, sequence: i64, message: Message, recorded: bool) -> None:
        """Forget a message that left; `recorded` tells that the journal knows it."""
        del self.messages[sequence]
        self.bytes_held -= message.size
        self.turn.held_bytes -= message.size
        self.turn.held_messages -= 1
        if self.recorded and not recorded:
            self.turn.journal.ack(self.queue_id, sequence, sequence)
        if sequence <= self.stored.through:
            self.stored.forget(sequence)

    def cancel(self, sequence: i64) -> bool:
        """Drop a message; tell whether it was there."""
        message = self.messages.get(sequence)
        if message is None:
            return False
        self.turn.changes += 1
        self.let_go(sequence, message)
        self._arm()
        return True

    def purge(self) -> i64:
        """Drop all messages; return their number."""
        dropped = self.ready_count()
        self.turn.changes += 1
        for sequence, message in list(self.messages.items()):
            self.let_go(sequence, message)
        self._arm()
        return dropped

    def drop(self) -> None:
        """Drop all messages, because the exchange is deleted; its record stands for them."""
        self.deleted = True
        self.turn.held_bytes -= self.bytes_held
        self.turn.held_messages -= len(self.messages)
        self.bytes_held = 0
        self.messages.clear()
        self.heap.clear()
        self.stored.clear()
        self.turn.timers.cancel(self.timer)
        if self.publishers is not None:
            self.publishers.drop()

    def ready_count(self) -> i64:
        """Return how many messages wait for their time."""
        return len(self.messages)

    def ready_bytes(self) -> i64:
        """Return the bytes of the messages that wait."""
        return self.bytes_held

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the store as its journal record holds it: a queue without a name."""
        return super().definition(vhost) | {"delays": self.exchange_name}

    # -- checkpoints ------------------------------------------------------------------------------

    def next_number(self) -> i64:
        """Return the sequence that the next message gets."""
        return self.next_sequence

    def live(self) -> list[Returned]:
        """Return all messages in the order of their sequences."""
        return [Returned(sequence, message, 0) for sequence, message in self.messages.items()]

    def holds(self, sequence: i64) -> bool:
        """Return whether a message is still here."""
        return sequence in self.messages

    def restore(self, returned: list[Returned], next_sequence: i64, unclean: bool) -> None:
        """Start with what the journal held; what is due by now goes with the first turn."""
        for item in returned:
            self._keep(item.sequence, item.message)
        self.next_sequence = next_sequence
        self._arm()
