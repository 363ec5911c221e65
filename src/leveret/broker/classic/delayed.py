"""Delayed messages: what an exchange keeps until the time that a message's `x-delay` header asks.

A delayed exchange, declared as `x-delayed-message` or made so by the policy `delayed-message`, has
a store: a queue of its own that is not among the vhost's, has no consumers, and gives its messages
back to the exchange when they are due.  A message is published into it as into any queue, so that
confirms, transactions and the journal need know nothing of delays.

A deadline follows from the message alone, the time it was taken plus its delay, so that the journal
has nothing more about it.  When it comes the message is routed, its header negated as the plugin
does, and leaves the store and enters its queues by one record of the journal.

What memory has no room for lies on the disk until it is due soon (`delayed_pages.py`).

A message's id is its sequence in the store: it stays the same over restarts.

Source: RabbitMQ's plugin rabbitmq_delayed_message_exchange.

Invariant: messages leave in the order of their times, and of their ids where these are the same,
whether they lie in memory or on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, final

from mypy_extensions import i64

from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.backlog.window import Returned, WindowPart
from leveret.broker.classic.delayed_memory import Delayed, DelayedMemory
from leveret.broker.classic.delayed_pages import DelayedPages
from leveret.broker.classic.waiting import WaitingQueue
from leveret.broker.core.core import Core
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.target import RECORDS_ALL, RECORDS_NONE, Target
from leveret.broker.scheduler.costs import DELAYED_MESSAGE
from leveret.broker.scheduler.timers import Timed
from leveret.broker.values.copies import blinded
from leveret.broker.values.delay import due_ms, undelayed
from leveret.broker.values.letters import shared
from leveret.broker.values.queue_attributes import QueueAttributes
from leveret.chunk import NEVER
from leveret.clock import NO_DEADLINE
from leveret.limits import (
    BODY_APART_BYTES,
    DELAYED_EVICTED_MS,
    SPILL_BATCH_BYTES,
    TABLE_BYTES_PER_COST,
)
from leveret.message import ALL_LETTERS, Address, Message


def _with_letters(message: Message, letters_left: i64) -> Message:
    """Return a message that dead-lettering may make so many more copies of by itself."""
    address = message.address
    limited = Address(address.exchange, address.routing_key, address.blind, letters_left)
    return message.copied(limited, message.properties, message.timestamp_ms)


#: What a look at the first message costs that finds only some that have left the memory.
_PASSED: Final = 64


def _within(store: DelayedMessages, queues: list[Target], most: i64) -> list[Target]:
    """Return the queues that a dead letter may go to; what that leaves out is counted."""
    if len(queues) > most:
        dropped = store.core.letters_dropped
        dropped.copies += len(queues) - most
        dropped.vhost = store.vhost.name if store.vhost is not None else ""
        dropped.queue = ""
        return queues[:most]
    return queues


def _hand_over(store: DelayedMessages, sequence: i64, message: Message) -> int:
    """Route a message that is due; return what that costs, the search for its queues apart."""
    vhost = store.vhost
    cost = 0
    if vhost is not None:
        core = store.core
        letter = undelayed(blinded(message), core.now_ms)
        queues = vhost.destinations(store.exchange_name, letter)
        left = message.address.letters_left
        if left != ALL_LETTERS and len(queues) > 1:
            # A dead letter that was delayed: more queues than one count as if it died here.
            queues = _within(store, queues, left + 1)
            letter = _with_letters(letter, shared(left + 1, len(queues)))
        cost = DELAYED_MESSAGE + len(queues) + len(message.properties) // TABLE_BYTES_PER_COST
        if store.quota is not None:
            store.quota.leaves(message.size)
        vhost.move(store, sequence, message, letter, queues)
    return cost


@final
class DueTimer(Timed):
    """The timer of one store."""

    def __init__(self, store: DelayedMessages) -> None:
        super().__init__()
        #: None once the store is deleted.
        self.store: DelayedMessages | None = store

    def due(self, now_ms: i64) -> None:
        """Let go what is due."""
        if self.store is not None:
            self.store.release()


@final
class DelayedMessages(Queue):
    """The store of one delayed exchange; every message in it is journaled, persistent or not."""

    def __init__(self, core: Core, queue_id: i64, exchange_name: str, durable: bool) -> None:
        super().__init__(core, queue_id, "", QueueAttributes(durable))
        self.stored = StoredChunks(core.spill)
        self.stored.keeps_all = True
        self.exchange_name = exchange_name
        self.memory = DelayedMemory(core)
        self.pages = DelayedPages(self)
        self.next_sequence: i64 = 1
        #: True while messages that are due are handed over.
        self._releases = False
        self.timer = DueTimer(self)
        self.target = DelayedTarget(self)

    @property
    def kind(self) -> str:
        """Return what it is, for those who print it."""
        return "delayed"

    def put(self, message: Message) -> i64:
        """Keep `message` until it is due; return its id."""
        sequence = self.next_sequence
        self.next_sequence += 1
        known = self.vhost.known_delay if self.vhost is not None else None
        due: i64
        if known is not None and message.properties is known.properties:
            due = message.timestamp_ms + known.delay_ms
        else:
            due = due_ms(message)
            # All headers were read for that.
            self.core.scheduler.spent += i64(len(message.properties)) // TABLE_BYTES_PER_COST
        self.memory.add_fresh(sequence, Delayed(message, due))
        if (sequence & self.core.memory.window_mask) == 0 or message.size >= BODY_APART_BYTES:
            self.pages.bound()
        if self.timer.deadline_ms == NO_DEADLINE or due < self.timer.deadline_ms:
            self._arm()
        return sequence

    def go_on(self) -> None:
        """Write what memory has no room for, and come again when the first message is due."""
        if not self.deleted:
            self.pages.bound()
            self._arm()

    def _arm(self) -> None:
        """Have the timer come when the first message is due, or a page is to be read."""
        pages = self.pages
        deadline = pages.deadline_ms()
        first = self.memory.first()
        if first is not None and not pages.precedes(first[0], first[1]):
            deadline = min(deadline, first[0])
        if deadline == NEVER:
            self.core.timers.cancel(self.timer)
        else:
            self.core.timers.set(self.timer, deadline)

    def dispatch(self, limit: i64) -> bool:
        """Deliver nothing: nobody consumes what is delayed."""
        return False

    def release(self) -> None:
        """Begin to hand what is due to the exchange."""
        self.pages.bound()
        if self.core.scheduler.is_writing_much():
            self._arm()
        elif not self._releases:
            self._releases = True
            self.core.scheduler.start_later(self._release())

    def _release(self) -> Iterator[int]:
        """Hand what is due to the exchange, unless the disk is too slow for it."""
        core = self.core
        memory = self.memory
        while not core.scheduler.is_writing_much():
            first = memory.first()
            if first is None or first[0] > core.now_ms:
                break
            sequence: i64 = first[1]
            if self.pages.precedes(first[0], sequence):
                break
            memory.pop()
            delayed = memory.get(sequence)
            # Where it has left the memory, so have many before it.
            yield _PASSED if delayed is None else _hand_over(self, sequence, delayed.message)
        self._releases = False
        if not self.deleted:
            self.pages.fetch()
            self._arm()

    def moved(self, sequence: i64, message: Message, recorded: bool) -> None:
        """Forget a message that left; `recorded` tells that the journal knows it."""
        self.memory.remove(sequence)
        if self.recorded and not recorded:
            self.core.journal.ack(self.queue_id, sequence, sequence)
        self.pages.forget(sequence)

    def cancel(self, sequence: i64) -> bool:
        """Drop a message; tell whether it was there.  One on the disk is read for its size."""
        delayed = self.memory.get(sequence)
        is_away = delayed is None
        if is_away:
            delayed = self.pages.look(sequence)
        if delayed is None:
            return False
        self.core.scheduler.changes += 1
        if is_away:
            self.pages.count_away(sequence, delayed.message.size)
        self.moved(sequence, delayed.message, False)
        self._arm()
        return True

    def purge(self) -> i64:
        """Drop all messages; return their number."""
        dropped = self.ready_count()
        self.core.scheduler.changes += 1
        if self.recorded:
            self.core.journal.purge(self.queue_id, self.next_sequence)
        self._clear()
        self.stored.clear()
        return dropped

    def _clear(self) -> None:
        self.memory.clear()
        self.pages.clear()
        self.core.timers.cancel(self.timer)

    def drop(self) -> None:
        """Drop all messages, because the exchange is deleted; its record stands for them."""
        self.mark_deleted()
        self._clear()
        self.stored.free(self.core)
        self.target.drop_publishers()

    def untie(self) -> None:
        """Let go of the parts that know the store, which was dropped."""
        super().untie()
        self.pages.untie()
        self.timer.store = None

    def ready_count(self) -> i64:
        """Return how many messages wait for their time."""
        return self.memory.count() + self.pages.away

    def ready_bytes(self) -> i64:
        """Return the bytes of the messages that wait."""
        return self.memory.bytes + self.pages.away_bytes

    def evict(self) -> bool:
        """Move to the disk what is not due very soon; return whether there is more to do."""
        pages = self.pages
        if self.memory.fresh and self.core.spill.unwritten_bytes < SPILL_BATCH_BYTES:
            pages.cut()
            return True
        pages.unload_after(self.core.now_ms + DELAYED_EVICTED_MS)
        self._arm()
        return False

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the store as its journal record holds it: a queue without a name."""
        own: dict[str, object] = {"delays": self.exchange_name}
        return super().definition(vhost) | own | self.pages.definition()

    # -- checkpoints ------------------------------------------------------------------------------

    def next_number(self) -> i64:
        """Return the sequence that the next message gets."""
        return self.next_sequence

    def settle_pages(self, boundary: i64) -> bool:
        """Write a chunk of what none has; return whether there was any below `boundary`."""
        for sequence in self.memory.fresh:
            if sequence >= boundary:
                return False
            self.pages.cut()
            return True
        return False

    def live_parts(self, parts: list[WindowPart]) -> list[list[Returned | None]]:
        """Return nothing: `settle_pages` has written what a checkpoint must find."""
        return []

    def holds(self, sequence: i64) -> bool:
        """Return whether a message is still here."""
        return sequence in self.memory.fresh or self.stored.holds(sequence)

    def restore(self, returned: list[Returned], next_sequence: i64, unclean: bool) -> None:
        """Start with what the journal held; what is due by now goes with the first turn.

        The pages are there before.
        """
        for item in returned:
            self.memory.add_fresh(item.sequence, Delayed(item.message, due_ms(item.message)))
        self.next_sequence = next_sequence
        self.go_on()


@final
class DelayedTarget(Target):
    """What an exchange routes a message to that asks for a delay."""

    def __init__(self, store: DelayedMessages) -> None:
        records_from = RECORDS_ALL if store.recorded else RECORDS_NONE
        super().__init__(store.core, store.name, store.queue_id, records_from)
        self._store: Final = store

    def publish(self, message: Message) -> i64:
        """Keep `message` until it is due; return its id."""
        self.published += 1
        sequence = self._store.put(message)
        if self.share is not None:
            self.share.note()
        return sequence


#: A queue whose messages wait in memory and in stored chunks.
ChunkedQueue: TypeAlias = WaitingQueue | DelayedMessages
