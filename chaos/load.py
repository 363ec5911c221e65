"""The load of the kills and the power cuts, for any broker: four publishers and two consumers.

Each publisher sends persistent messages of 1 KiB with confirms, `WINDOW` of them in flight: three
of them to one queue or the other, one to both by a fanout.  The consumers take from one queue and
ack; behind its acks each sends a mark with a confirm, which tells that they are durable.  The other
queue is left to grow until all is drained.

Invariants: whatever is sent is in the accounts before, and whatever the broker had sent before it
died is heard after; nobody returns or rejects a message.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, Self

from chaos.accounts import Accounts, message
from support.crash.kill_load import Pumped, address, run_until
from support.wire import raw
from support.wire.raw_codec import content, method

PUBLISHERS: Final = 4
CONSUMERS: Final = 2
WINDOW: Final = 60
PREFETCH: Final = 100

#: How long the first confirm after a start may take.
FIRST_SECONDS_MAX: Final = 2.0

QUEUES: Final = ("one", "two")
MARKS: Final = "marks"
FANOUT: Final = "both"

MARK_PROPERTIES: Final = raw.properties(delivery_mode=2)


class Broker(Protocol):
    """What is killed: a process on a directory."""

    @property
    def uri(self) -> str:
        """Where it listens."""

    def start(self) -> Self:
        """Start on what the directory holds, and wait until it serves."""

    def kill(self) -> None:
        """SIGKILL."""


class Publisher(Pumped):
    """Publishes with confirms."""

    def __init__(self, uri: str, accounts: Accounts, seed: int, number: int) -> None:
        super().__init__(uri, seed, 1)
        self.accounts = accounts
        self.number = number
        self.raw.call(1, "confirm.select")
        #: By delivery tag, in order: a message's number and its queues.
        self.waiting: deque[tuple[int, int, tuple[str, ...]]] = deque()
        self.tag = 0

    def first(self, tries: int) -> None:
        """Publish one message and wait for its confirm: its queues serve then.

        Raises: TimeoutError where none of so many is confirmed in time.
        """
        self.raw.socket.settimeout(FIRST_SECONDS_MAX)
        for left in reversed(range(tries)):
            self.publish(1)
            try:
                self.hear(self.raw.next_method())
                break
            except TimeoutError:
                if not left:
                    raise
        self.raw.socket.settimeout(raw.SECONDS_MAX)

    def pump(self) -> None:
        """Fill the window when half of it is free."""
        if not self.dead and len(self.waiting) <= WINDOW // 2:
            self.publish(WINDOW - len(self.waiting))

    def publish(self, count: int) -> None:
        """Publish so many messages."""
        frames = []
        for _ in range(count):
            queues: tuple[str, ...] = QUEUES
            exchange, key = FANOUT, ""
            if self.number != 0:
                exchange, key = "", self.random.choice(QUEUES)
                queues = (key,)
            number = self.accounts.tried(self.number, queues)
            properties, body = message(self.number, number)
            frames += [address(1, exchange, key), content(1, body, properties)]
            self.tag += 1
            self.waiting.append((self.tag, number, queues))
        self.send(*frames)

    def hear(self, got: raw.Method) -> None:
        """Take a confirm; a nack leaves its messages as they are, sent and no more."""
        assert got.name in ("basic.ack", "basic.nack"), got
        left: deque[tuple[int, int, tuple[str, ...]]] = deque()
        while self.waiting and self.waiting[0][0] <= got.delivery_tag:
            tag, number, queues = self.waiting.popleft()
            if tag != got.delivery_tag and not got.multiple:
                left.append((tag, number, queues))
            elif got.name == "basic.ack":
                self.accounts.confirmed(self.number, number, queues)
        self.waiting.extendleft(reversed(left))


class Consumer(Pumped):
    """Takes from queues and acks."""

    def __init__(self, uri: str, accounts: Accounts, seed: int, queues: Sequence[str]) -> None:
        super().__init__(uri, seed, 1, 2)
        self.accounts = accounts
        self.raw.call(1, "basic.qos", prefetch_count=PREFETCH)
        self.raw.call(2, "confirm.select")
        for queue in queues:
            self.send(method(1, "basic.consume", queue=queue, consumer_tag=queue))
        self.batch = 1
        self.taken = dict.fromkeys(QUEUES, 0)
        self.held: list[tuple[str, tuple[int, int]]] = []
        self.last_tag = 0
        self.marks: deque[list[tuple[str, tuple[int, int]]]] = deque()
        self.confirmed = 0

    def hear(self, got: raw.Method) -> None:
        """Take a delivery, or the confirm of a mark."""
        if got.name == "basic.consume-ok":
            return
        if got.name == "basic.ack":
            while self.confirmed < got.delivery_tag:
                self.confirmed += 1
                for queue, name in self.marks.popleft():
                    self.accounts.gone(queue, [name])
            return
        assert got.name == "basic.deliver", got
        queue = got.consumer_tag
        self.taken[queue] += 1
        self.last_tag = got.delivery_tag
        found = self.accounts.delivered(self, queue, got.properties, got.body, got.redelivered)
        if found is not None:
            self.held.append((queue, found))
        if len(self.held) >= self.batch:
            self.settle()

    def settle(self) -> None:
        """Ack all that is held, and send a mark behind it."""
        if self.dead or self.last_tag == 0:
            return
        for queue, name in self.held:
            self.accounts.leaving(queue, [name])
        self.marks.append(self.held)
        self.held = []
        self.batch = self.random.randrange(1, PREFETCH // 2)
        self.send(
            method(1, "basic.ack", delivery_tag=self.last_tag, multiple=True),
            address(2, "", MARKS),
            content(2, b"", MARK_PROPERTIES),
        )


def define(broker: Broker, arguments: Mapping[str, object]) -> None:
    """Declare the queues and the fanout; all are durable, `arguments` are the queues'."""
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        values = {"exchange": FANOUT, "type": "fanout", "durable": True}
        connection.call(1, "exchange.declare", **values)
        connection.declare(1, MARKS, durable=True)
        for queue in QUEUES:
            connection.declare(1, queue, durable=True, arguments=dict(arguments))
            connection.call(1, "queue.bind", queue=queue, exchange=FANOUT)
        connection.close()


def work_and_die(
    broker: Broker, accounts: Accounts, chance: random.Random, seconds: float, tries: int = 1
) -> None:
    """Work for so long, kill the broker in the middle of it, and hear what it had sent.

    `tries` is how many first messages may stay without a confirm, less one: RabbitMQ says that it
    serves before its quorum queues do, and forgets what is published to them meanwhile.

    Raises: AssertionError, OSError where the broker does what it must not, or falls silent.
    """
    publishers = [
        Publisher(broker.uri, accounts, chance.getrandbits(32), number)
        for number in range(PUBLISHERS)
    ]
    publishers[0].first(tries)
    end = time.monotonic() + seconds
    clients: list[Pumped] = [*publishers]
    clients += [
        Consumer(broker.uri, accounts, chance.getrandbits(32), QUEUES[:1]) for _ in range(CONSUMERS)
    ]
    run_until(clients, lambda: time.monotonic() >= end)
    broker.kill()
    for client in clients:
        client.drain()
    accounts.crashed()


def drain(broker: Broker, accounts: Accounts, quiet: float) -> None:
    """Take all that the queues hold, ack it durably, and settle the accounts.

    With `quiet` 0 the broker's own counts say how much that is, and must be right.  Otherwise all
    is taken when nothing came for so many seconds: RabbitMQ counts late after a start.

    Raises: AssertionError, OSError as `work_and_die`.
    """
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        counts = {queue: count(connection, queue) for queue in QUEUES}
        consumer = Consumer(broker.uri, accounts, 0, QUEUES)
        if quiet:
            take_until_quiet(consumer, quiet)
        else:
            take(consumer, counts)
        consumer.raw.socket.close()
        connection.call(1, "queue.purge", queue=MARKS)
        left = {queue: count(connection, queue) for queue in QUEUES}
        if any(left.values()) and not quiet:
            accounts.counts.other += 1
            accounts.counts.fault(f"after {counts} were taken the queues hold {left}")
        connection.close()
    accounts.settle()


def take(consumer: Consumer, counts: Mapping[str, int]) -> None:
    """Take so many messages of each queue, no more and no less, and ack them durably."""

    def done() -> bool:
        if consumer.taken != counts:
            return False
        if consumer.held:
            consumer.settle()
        return not consumer.marks

    if any(counts.values()):
        run_until([consumer], done)


def take_until_quiet(consumer: Consumer, quiet: float) -> None:
    """Take messages and ack them durably until nothing came for so many seconds."""
    consumer.begin()
    consumer.raw.socket.settimeout(quiet)
    while True:
        try:
            data = consumer.raw.socket.recv(262_144)
        except TimeoutError:
            if not consumer.held:
                break
            consumer.settle()
            continue
        assert data, "the broker closed a connection"
        for got in consumer.inbox.feed(data):
            consumer.hear(got)


def count(connection: raw.Connection, queue: str) -> int:
    """Return how many messages are ready."""
    got = connection.call(1, "queue.declare", queue=queue, passive=True)
    return int(got.message_count)
