"""A small reference broker: the expected state of the real one after any operations.

It has queues, streams, exchanges, bindings, deliveries and one transaction, all as plain lists and
dicts, and no journals, chunks or bytes.  `durable` returns the part that survives a stop.

Invariants: the messages of a queue are stored by a growing number, so that requeued messages keep
their position; nothing is shared between a model and its `durable` copy.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

DEFAULT = ""


@dataclass
class ModelMessage:
    """A message in a queue; `count` counts deliveries, and is `uncertain` after a crash."""

    body: bytes
    persistent: bool
    count: int = 0
    uncertain: bool = False

    @property
    def taken_count(self) -> int:
        """The count of earlier deliveries, as a delivery reports it."""
        return self.count or int(self.uncertain)


@dataclass(eq=False)
class ModelQueue:
    """A queue or a stream; `uid` distinguishes it from earlier ones of the same name."""

    uid: int
    name: str
    durable: bool
    stream: bool
    messages: dict[int, ModelMessage] = field(default_factory=dict)
    out: set[int] = field(default_factory=set)
    next_number: int = 0

    def ready(self) -> list[int]:
        """The numbers of the ready messages."""
        return [number for number in sorted(self.messages) if number not in self.out]

    def put(self, message: ModelMessage) -> None:
        """Append a message."""
        self.messages[self.next_number] = message
        self.next_number += 1

    def requeue(self, number: int) -> None:
        """Requeue a message."""
        message = self.messages[number]
        message.count += 1
        self.out.remove(number)

    def drop(self, number: int) -> None:
        """Remove a message."""
        self.out.discard(number)
        del self.messages[number]


@dataclass(frozen=True)
class ModelBinding:
    """A binding from an exchange to a queue (by its uid) or to an exchange (by its name)."""

    source: str
    to_queue: bool
    destination: str
    key: str


@dataclass
class Delivery:
    """An unacked message."""

    queue: ModelQueue
    number: int


@dataclass
class Transaction:
    """The publishes and acks that wait for a commit."""

    publishes: list[tuple[ModelMessage, list[ModelQueue]]] = field(default_factory=list)
    settles: list[tuple[Delivery, bool]] = field(default_factory=list)


class Model:
    """The whole state."""

    def __init__(self) -> None:
        self.queues: dict[str, ModelQueue] = {}
        self.exchanges: dict[str, tuple[str, bool]] = {"amq.fanout": ("fanout", True)}
        self.bindings: dict[ModelBinding, None] = {}
        #: The unacked deliveries by delivery tag.
        self.out: dict[int, Delivery] = {}
        self.last_uid = 0
        self.tx = Transaction()

    # -- definitions -------------------------------------------------------------------------------

    def declare(self, name: str, *, durable: bool, stream: bool) -> None:
        """Make a queue."""
        self.last_uid += 1
        self.queues[name] = ModelQueue(self.last_uid, name, durable, stream)

    def delete(self, name: str) -> None:
        """Delete a queue with its bindings and unacked deliveries."""
        del self.queues[name]
        gone = [b for b in self.bindings if b.to_queue and b.destination == name]
        for binding in gone:
            del self.bindings[binding]

    def delete_exchange(self, name: str) -> None:
        """Delete an exchange with the bindings from and to it."""
        del self.exchanges[name]
        for binding in list(self.bindings):
            if binding.source == name or (not binding.to_queue and binding.destination == name):
                del self.bindings[binding]

    def lives(self, queue: ModelQueue) -> bool:
        """Whether a queue still exists."""
        return self.queues.get(queue.name) is queue

    # -- messages ----------------------------------------------------------------------------------

    def route(self, exchange: str, key: str) -> list[ModelQueue]:
        """The queues that a message reaches: over all exchanges, each once."""
        if exchange == DEFAULT:
            return [self.queues[key]] if key in self.queues else []
        found: dict[ModelQueue, None] = {}
        seen = {exchange}
        todo = [exchange]
        while todo:
            current = todo.pop()
            fanout = self.exchanges[current][0] == "fanout"
            for binding in self.bindings:
                if binding.source != current or not (fanout or binding.key == key):
                    continue
                if binding.to_queue:
                    found[self.queues[binding.destination]] = None
                elif binding.destination not in seen:
                    seen.add(binding.destination)
                    todo.append(binding.destination)
        return list(found)

    def publish(self, body: bytes, persistent: bool, queues: list[ModelQueue]) -> None:
        """Put a message into those queues that still exist."""
        for queue in queues:
            if self.lives(queue):
                queue.put(ModelMessage(body, persistent))

    def get(self, name: str, tag: int) -> ModelMessage | None:
        """Get the first message; `tag` 0 stands for no_ack."""
        queue = self.queues[name]
        ready = queue.ready()
        if not ready:
            return None
        number = ready[0]
        message = copy.copy(queue.messages[number])
        if tag:
            queue.out.add(number)
            self.out[tag] = Delivery(queue, number)
        else:
            queue.drop(number)
        return message

    def settle(self, delivery: Delivery, *, requeue: bool) -> None:
        """Ack or requeue a delivery, if its queue still exists."""
        if self.lives(delivery.queue):
            if requeue:
                delivery.queue.requeue(delivery.number)
            else:
                delivery.queue.drop(delivery.number)

    def purge(self, name: str) -> int:
        """Drop the ready messages."""
        queue = self.queues[name]
        ready = queue.ready()
        for number in ready:
            queue.drop(number)
        return len(ready)

    def commit(self) -> None:
        """Commit the transaction."""
        tx, self.tx = self.tx, Transaction()
        for message, queues in tx.publishes:
            self.publish(message.body, message.persistent, queues)
        for delivery, requeue in tx.settles:
            self.settle(delivery, requeue=requeue)

    def lose(self) -> None:
        """End the connection: all unacked messages are requeued."""
        for delivery, _ in self.tx.settles:
            self.settle(delivery, requeue=True)
        self.tx = Transaction()
        for delivery in self.out.values():
            self.settle(delivery, requeue=True)
        self.out.clear()

    # -- what a stop leaves ------------------------------------------------------------------------

    def durable(self) -> Model:
        """A copy of the state on disk when everything is synced."""
        left = Model()
        left.last_uid = self.last_uid
        left.exchanges = {name: kind for name, kind in self.exchanges.items() if kind[1]}
        for name, queue in self.queues.items():
            if queue.durable:
                kept = ModelQueue(queue.uid, name, True, queue.stream)
                kept.next_number = queue.next_number
                kept.messages = {
                    number: copy.copy(message)
                    for number, message in queue.messages.items()
                    if message.persistent or queue.stream
                }
                left.queues[name] = kept
        for binding in self.bindings:
            ends = left.queues if binding.to_queue else left.exchanges
            if binding.source in left.exchanges and binding.destination in ends:
                left.bindings[binding] = None
        return left

    def crashed(self) -> None:
        """Mark delivery counts as uncertain: the crash may have lost them."""
        for queue in self.queues.values():
            for message in queue.messages.values():
                message.uncertain = not queue.stream
