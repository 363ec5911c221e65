"""Delayed messages: an exchange stores them for the time in their `x-delay` header.

A delayed exchange, declared as `x-delayed-message` or made so by the policy `delayed-message`, has
a store.  This is a queue that is not listed in the vhost, has no consumers, and returns its
messages to the exchange when they are due.  A message is published into it as into any queue, so
confirms, transactions and the journal need no support for delays.

A message is due at the time it was taken plus its delay, so the journal need not contain the due
time.  The exchange then routes the message with its header negated, as the plugin does, and the
message moves from the store to its queues in one record of the journal.

Messages that do not fit into memory are on disk until they are due soon (`pages.py`).

A message's id is its sequence in the store, which stays the same across restarts.

Source: RabbitMQ's plugin rabbitmq_delayed_message_exchange.

Invariant: messages leave in the order of their due times, and then of their ids, whether they are
in memory or on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, final

from mypy_extensions import i64

from leveret.broker.attributes.cc_bcc import blinded
from leveret.broker.attributes.dead_letter_copies import shared
from leveret.broker.attributes.delay import due_ms, undelayed
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.backlog.window import RequeuedMessage, WindowPart
from leveret.broker.core import Core
from leveret.broker.delayed.memory import Delayed, DelayedMemory
from leveret.broker.delayed.pages import DelayedPages
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.target import RECORDS_ALL, RECORDS_NONE, Target
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.scheduler.costs import DELAYED_MESSAGE
from leveret.broker.scheduler.timers import Timed
from leveret.chunk import NEVER
from leveret.clock import NO_DEADLINE
from leveret.limits import BODY_APART_BYTES, SPILL_BATCH_BYTES, TABLE_BYTES_PER_COST
from leveret.message import ALL_LETTERS, Address, Message

#: If memory is short, only delayed messages due within this time stay in memory, because they would
#: be read again at once.
_DELAYED_EVICTED_MS: Final = 1000


def _with_letters(message: Message, letters_left: i64) -> Message:
    """Return a message that may become `letters_left` more copies by dead-lettering."""
    address = message.address
    limited = Address(address.exchange, address.routing_key, address.blind, letters_left)
    return message.copied(limited, message.properties, message.timestamp_ms)


#: The cost of skipping some entries of messages that have left memory.
_PASSED: Final = 64


def _within(store: DelayedMessages, queues: list[Target], most: i64) -> list[Target]:
    """Return the queues that a dead-lettered message may go to; count the others as dropped."""
    if len(queues) > most:
        dropped = store.core.letters_dropped
        dropped.copies += len(queues) - most
        dropped.vhost = store.vhost.name if store.vhost is not None else ""
        dropped.queue = ""
        return queues[:most]
    return queues


def _hand_over(store: DelayedMessages, sequence: i64, message: Message) -> int:
    """Route a message that is due; return the cost, without the cost of routing."""
    vhost = store.vhost
    cost = 0
    if vhost is not None:
        core = store.core
        letter = undelayed(blinded(message), core.now_ms)
        queues = vhost.destinations(store.exchange_name, letter)
        left = message.address.letters_left
        if left != ALL_LETTERS and len(queues) > 1:
            # Routing a delayed dead letter to several queues counts like another death.
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
        """Release the messages that are due."""
        if self.store is not None:
            self.store.release()


@final
class DelayedMessages(Queue):
    """The store of one delayed exchange.  All its messages are journaled, even transient ones."""

    def __init__(self, core: Core, queue_id: i64, exchange_name: str, durable: bool) -> None:
        super().__init__(core, queue_id, "", QueueAttributes(durable))
        self.stored = StoredChunks(core.spill)
        self.stored.keeps_all = True
        self.exchange_name = exchange_name
        self.memory = DelayedMemory(core)
        self.pages = DelayedPages(self)
        self.next_sequence: i64 = 1
        #: True while a task releases messages that are due.
        self._releases = False
        self.timer = DueTimer(self)
        self.target = DelayedTarget(self)

    @property
    def kind(self) -> str:
        """Return the queue type to print."""
        return "delayed"

    def put(self, message: Message) -> i64:
        """Store `message` until it is due; return its id."""
        sequence = self.next_sequence
        self.next_sequence += 1
        known = self.vhost.known_delay if self.vhost is not None else None
        due: i64
        if known is not None and message.properties is known.properties:
            due = message.timestamp_ms + known.delay_ms
        else:
            due = due_ms(message)
            # Reading the delay has decoded all headers.
            self.core.scheduler.spent += i64(len(message.properties)) // TABLE_BYTES_PER_COST
        self.memory.add_fresh(sequence, Delayed(message, due))
        if (sequence & self.core.memory.window_mask) == 0 or message.size >= BODY_APART_BYTES:
            self.pages.bound()
        if self.timer.deadline_ms == NO_DEADLINE or due < self.timer.deadline_ms:
            self._arm()
        return sequence

    def go_on(self) -> None:
        """Write messages that do not fit into memory, and set the timer."""
        if not self.deleted:
            self.pages.bound()
            self._arm()

    def _arm(self) -> None:
        """Set the timer to when the first message is due or a page has to be read."""
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
        """Deliver nothing, because delayed messages have no consumers."""
        return False

    def release(self) -> None:
        """Start a task that returns due messages to the exchange."""
        self.pages.bound()
        if self.core.scheduler.is_writing_much():
            self._arm()
        elif not self._releases:
            self._releases = True
            self.core.scheduler.start_later(self._release())

    def _release(self) -> Iterator[int]:
        """Return due messages to the exchange, unless the disk is too slow."""
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
            # If this message has left memory, many before it have too.
            yield _PASSED if delayed is None else _hand_over(self, sequence, delayed.message)
        self._releases = False
        if not self.deleted:
            self.pages.fetch()
            self._arm()

    def moved(self, sequence: i64, message: Message, recorded: bool) -> None:
        """Forget a message that left; `recorded` is True if the journal records this."""
        self.memory.remove(sequence)
        if self.recorded and not recorded:
            self.core.journal.ack(self.queue_id, sequence, sequence)
        self.pages.forget(sequence)

    def cancel(self, sequence: i64) -> bool:
        """Drop a message; return whether it existed.  Read a message on disk for its size."""
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
        """Drop all messages.  In the journal, the record of the exchange's deletion covers them."""
        self.mark_deleted()
        self._clear()
        self.stored.free(self.core)
        self.target.drop_publishers()

    def untie(self) -> None:
        """Drop the parts that refer to the store, after it was dropped."""
        super().untie()
        self.pages.untie()
        self.timer.store = None

    def ready_count(self) -> i64:
        """Return the number of delayed messages."""
        return self.memory.count() + self.pages.away

    def ready_bytes(self) -> i64:
        """Return the bytes of the delayed messages."""
        return self.memory.bytes + self.pages.away_bytes

    def evict(self) -> bool:
        """Move messages that are not due soon to disk; return whether another call is needed."""
        pages = self.pages
        if self.memory.fresh and self.core.spill.unwritten_bytes < SPILL_BATCH_BYTES:
            pages.cut()
            return True
        pages.unload_after(self.core.now_ms + _DELAYED_EVICTED_MS)
        self._arm()
        return False

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the content of the store's journal record, that of a queue without a name."""
        own: dict[str, object] = {"delays": self.exchange_name}
        return super().definition(vhost) | own | self.pages.definition()

    # -- checkpoints ------------------------------------------------------------------------------

    def next_number(self) -> i64:
        """Return the sequence that the next message gets."""
        return self.next_sequence

    def settle_pages(self, boundary: i64) -> bool:
        """Write a chunk of fresh messages; return whether there were any below `boundary`."""
        for sequence in self.memory.fresh:
            if sequence >= boundary:
                return False
            self.pages.cut()
            return True
        return False

    def live_parts(self, parts: list[WindowPart]) -> list[list[RequeuedMessage | None]]:
        """Return nothing, because `settle_pages` has written all messages for the checkpoint."""
        return []

    def holds(self, sequence: i64) -> bool:
        """Return whether a message is still in the store."""
        return sequence in self.memory.fresh or self.stored.holds(sequence)

    def restore(self, returned: list[RequeuedMessage], next_sequence: i64, unclean: bool) -> None:
        """Restore the messages of the journal, and route due messages at once.

        The pages have already been restored.
        """
        for item in returned:
            self.memory.add_fresh(item.sequence, Delayed(item.message, due_ms(item.message)))
        self.next_sequence = next_sequence
        self.go_on()


@final
class DelayedTarget(Target):
    """The target to which an exchange routes messages with a delay."""

    def __init__(self, store: DelayedMessages) -> None:
        records_from = RECORDS_ALL if store.recorded else RECORDS_NONE
        super().__init__(store.core, store.name, store.queue_id, records_from)
        self._store: Final = store

    def publish(self, message: Message) -> i64:
        """Store `message` until it is due; return its id."""
        self.published += 1
        sequence = self._store.put(message)
        if self.share is not None:
            self.share.note()
        return sequence


#: A queue whose messages wait in memory and in stored chunks.
ChunkedQueue: TypeAlias = WaitingQueue | DelayedMessages
