"""A broker on one data directory that is killed again and again, under all kinds of work at once.

Publishers, transactions, acks and definitions record their attempts and the broker's confirms in a
fsynced ledger; `verify` checks the state after a restart against it (`kill_book`), and raises
`Violation`.
"""

from __future__ import annotations

import random
from typing import Final

from support.brokers.broker_process import BrokerProcess
from support.crash.kill_book import Book, Seen, seen_of
from support.crash.kill_load import (
    CLASSIC,
    STREAM,
    Client,
    Definer,
    Publisher,
    Taker,
    Transactor,
    address,
    run_until,
)
from support.crash.ledger import Ledger
from support.wire import raw

#: A journal of 64 KiB, which causes a checkpoint about every 100 messages.
SHORT: Final = {"journal_bytes_max": "65536"}

#: The same, with little memory for each queue: the rest is in chunks, which are often compacted.
DEEP: Final = SHORT | {
    "queue_window_bytes": "8192",
    "compact_records_min": "10",
    "compact_live_percent": "90",
}


class Scenario:
    """One data directory, killed again and again."""

    def __init__(self, seed: int, broker: BrokerProcess, ledger: Ledger) -> None:
        self.random = random.Random(seed)
        self.broker = broker
        self.book = Book(seed, ledger)
        self.names: dict[str, str] = {}
        self.checkpoints = 0

    # -- set up ------------------------------------------------------------------------------------

    def define(self) -> None:
        """Declare the objects that all rounds use."""
        with raw.connect(self.broker.uri) as connection:
            connection.open_channel(1)
            for exchange, type_ in (("t", "topic"), ("f", "fanout"), ("d", "direct")):
                values = {"exchange": exchange, "type": type_, "durable": True}
                connection.call(1, "exchange.declare", **values)
            for queue in CLASSIC:
                connection.declare(1, queue, durable=True)
            connection.declare(1, STREAM, durable=True, arguments={"x-queue-type": "stream"})
            for queue, exchange, key in (
                ("q1", "t", "a.#"), ("q2", "t", "*.b"), ("q2", "t", "#.b"),
                ("q1", "f", ""), ("q3", "f", ""), (STREAM, "f", ""),
            ):  # fmt: skip
                values = {"queue": queue, "exchange": exchange, "routing_key": key}
                connection.call(1, "queue.bind", **values)

    # -- a round -----------------------------------------------------------------------------------

    def load(self, confirms: int) -> None:
        """Work until that many confirms arrived, kill the broker, and read its remaining output."""
        uri, book = self.broker.uri, self.book
        seeds = [self.random.getrandbits(32) for _ in range(5)]
        clients: list[Client] = [
            Publisher(uri, book, seeds[0], "p1"),
            Publisher(uri, book, seeds[1], "p2"),
            Transactor(uri, book, seeds[2]),
            Taker(uri, book, seeds[3]),
            Definer(uri, book, seeds[4], self.names),
        ]
        end = book.confirms + confirms
        run_until(clients, lambda: book.confirms >= end)
        self.broker.kill()
        self.checkpoints += self.broker.output.count("checkpoint")
        book.ledger.note("K", f"confirms={book.confirms}")
        for client in clients:
            client.drain()

    def verify(self, *, crashed: bool) -> None:
        """Check everything after a restart; ack some of the messages and requeue the rest."""
        with raw.connect(self.broker.uri) as connection:
            connection.open_channel(1)
            connection.open_channel(2)
            connection.call(2, "confirm.select")
            queues = {}
            tags: dict[str, list[int]] = {}
            for queue in CLASSIC:
                queues[queue], tags[queue] = read_queue(connection, queue)
            queues[STREAM] = read_stream(connection)
            self.book.judge(queues, crashed=crashed)
            self.verify_definitions(connection)
            for queue in CLASSIC:
                self.let_go(connection, queue, queues[queue], tags[queue])
            self.book.ledger.note("V", *[f"{name}={len(seen)}" for name, seen in queues.items()])

    def let_go(
        self, connection: raw.Connection, queue: str, seen: list[Seen], tags: list[int]
    ) -> None:
        """Ack about half of a queue, at random, and make the acks durable by a confirm."""
        chosen = [place for place in range(len(seen)) if self.random.randrange(2)]
        if not chosen:
            return
        ids = [seen[place].id for place in chosen]
        self.book.leaving(queue, ids)
        frames = [raw.method(1, "basic.ack", delivery_tag=tags[place]) for place in chosen]
        connection.send(*frames, address(2, "", "d-mark"), raw.content(2, b"", MARK))
        connection.expect(2, "basic.ack")
        self.book.gone(queue, ids)

    def verify_definitions(self, connection: raw.Connection) -> None:
        """Check queues and bindings by passive declares and mandatory publishes."""
        connection.open_channel(3)
        if "d-mark" not in self.names:
            connection.declare(3, "d-mark", durable=True)
            self.names["d-mark"] = "kept"
        for name, state in list(self.names.items()):
            exists = queue_exists(connection, name)
            if state in ("declared", "bound", "kept") and not exists:
                self.book.fail(f"the durable queue {name} is gone", name)
            if state == "deleted" and exists:
                self.book.fail(f"the deleted queue {name} is back", name)
            if state == "kept":
                continue
            routed = exists and is_routed(connection, name)
            if state == "bound" and not routed:
                self.book.fail(f"the binding of {name} is gone", name)
            self.names[name] = "bound" if exists and routed else "kept" if exists else "deleted"


#: The properties of a persistent mark; its confirm shows that earlier acks are durable.
MARK = raw.properties(delivery_mode=2)


def read_queue(connection: raw.Connection, queue: str) -> tuple[list[Seen], list[int]]:
    """All messages of a queue, unacked, with their tags."""
    count = connection.declare(1, queue, durable=True).message_count
    connection.send(raw.method(1, "basic.consume", queue=queue, consumer_tag=queue))
    connection.expect(1, "basic.consume-ok")
    seen, tags = [], []
    for _ in range(count):
        got = connection.expect(1, "basic.deliver")
        seen.append(seen_of(got.properties, got.body, got.redelivered))
        tags.append(got.delivery_tag)
    connection.send(raw.method(1, "basic.cancel", consumer_tag=queue))
    connection.expect(1, "basic.cancel-ok")
    return seen, tags


def read_stream(connection: raw.Connection) -> list[Seen]:
    """All messages of the stream."""
    connection.open_channel(4)
    arguments = {"x-queue-type": "stream"}
    count = connection.declare(4, STREAM, durable=True, arguments=arguments).message_count
    connection.call(4, "basic.qos", prefetch_count=200)
    values = {"queue": STREAM, "consumer_tag": "s", "arguments": {"x-stream-offset": "first"}}
    connection.call(4, "basic.consume", **values)
    seen = []
    for number in range(1, count + 1):
        got = connection.expect(4, "basic.deliver")
        seen.append(seen_of(got.properties, got.body, got.redelivered))
        if number % 100 == 0:
            connection.send(raw.method(4, "basic.ack", delivery_tag=number, multiple=True))
    connection.call(4, "channel.close", code=200)
    return seen


def queue_exists(connection: raw.Connection, name: str) -> bool:
    """Whether the queue exists; if not, channel 3 is opened again."""
    connection.send(raw.method(3, "queue.declare", queue=name, passive=True))
    got = connection.next_method()
    if got.name == "queue.declare-ok":
        return True
    assert (got.name, got.code) == ("channel.close", 404), got
    connection.send(raw.method(3, "channel.close-ok"))
    connection.open_channel(3)
    return False


def is_routed(connection: raw.Connection, name: str) -> bool:
    """Whether the exchange `d` routes to the queue; the messages sent for this are purged."""
    connection.send(raw.publish(3, "d", name, b"?", mandatory=True))
    connection.send(raw.method(3, "queue.purge", queue=name))
    got = connection.next_method()
    if got.name == "basic.return":
        connection.expect(3, "queue.purge-ok")
        return False
    assert got.name == "queue.purge-ok", got
    return True
