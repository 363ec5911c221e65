"""The clients of a crash test: raw connections that write to the ledger before each action.

They run in one thread over non-blocking reads, so that a seed decides everything but the broker's
behaviour.  The broker is killed inside the handler of the confirm that completes the count; output
that it had sent by then still arrives and still counts.
"""

from __future__ import annotations

import random
import selectors
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from support.crash.kill_book import GONE, TRIED, Book, Sent, Unit, digest_of, seen_of
from support.wire import raw
from support.wire.raw_codec import content, method, properties
from support.wire.raw_stream import Inbox

#: The test fails if a running broker sends nothing for this long.
SILENCE_SECONDS_MAX: Final = 120.0

CLASSIC: Final = ("q1", "q2", "q3", "work", "marks")
STREAM: Final = "s"

#: The queues reached by the keys of the topic exchange `t`; `q2` matches `a.b` by two bindings.
TOPICS: Final = {"a.b": ("q1", "q2"), "a.c": ("q1",), "x.b": ("q2",), "z": ()}
FANOUT: Final = ("q1", "q3", STREAM)


class Pumped:
    """One connection: `pump` sends the next methods, `hear` handles a received one."""

    def __init__(self, uri: str, seed: int, *channels: int) -> None:
        self.random = random.Random(seed)
        self.raw = raw.connect(uri)
        for channel in channels:
            self.raw.open_channel(channel)
        self.inbox = Inbox()
        self.dead = False

    def send(self, *parts: bytes) -> None:
        """Send, unless the broker was killed."""
        if not self.dead:
            try:
                self.raw.send(*parts)
            except OSError:
                self.dead = True

    def begin(self) -> None:
        """Handle input that followed the last reply of the set-up."""
        data, self.raw.buffer = self.raw.buffer, b""
        for got in self.inbox.feed(data):
            self.hear(got)

    def read(self) -> bool:
        """Handle the received input; return whether there may be more later."""
        try:
            data = self.raw.socket.recv(262_144, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionError:
            data = b""
        for got in self.inbox.feed(data):
            self.hear(got)
        return bool(data)

    def drain(self) -> None:
        """After the kill, handle the remaining output of the broker."""
        self.dead = True
        self.raw.socket.settimeout(raw.SECONDS_MAX)
        data = b"-"
        while data:
            try:
                data = self.raw.socket.recv(262_144)
            except ConnectionError:
                data = b""
            for got in self.inbox.feed(data):
                self.hear(got)
        self.raw.socket.close()

    def pump(self) -> None:
        """Send the methods that can be sent now."""

    def hear(self, got: raw.Method) -> None:
        """Handle a received method."""
        raise AssertionError(f"nothing should come here: {got}")


class Client(Pumped):
    """A connection that records its messages in the book."""

    def __init__(self, uri: str, book: Book, seed: int, *channels: int) -> None:
        super().__init__(uri, seed, *channels)
        self.book = book

    # -- messages ----------------------------------------------------------------------------------

    def make(self, publisher: str, queues: tuple[str, ...], lasting: bool) -> tuple[Sent, bytes]:
        """Make a new message for `queues`; return its entry in the book and its content frames."""
        number = self.book.next_number(publisher)
        size = self.random.choice([0, 20, 20, 100, 100, 100, 1500, 3000, 20_000, 90_000])
        body = self.random.randbytes(size)
        props = properties(
            headers={"publisher": publisher, "n": number, "long": 1 << 40, "raw": body[:9]},
            delivery_mode=2 if lasting else 1,
            message_id=f"{publisher}-{number}",
        )
        one = Sent(f"{publisher}-{number}", publisher, number, digest_of(props, body), lasting)
        one.places = dict.fromkeys(queues, TRIED)
        return one, content(1, body, props)


def address(channel: int, exchange: str, key: str, *, mandatory: bool = False) -> bytes:
    """The method of a publish."""
    values = {"exchange": exchange, "routing_key": key, "mandatory": mandatory}
    return method(channel, "basic.publish", **values)


class Publisher(Client):
    """Publishes with confirms, several in flight."""

    window = 25

    def __init__(self, uri: str, book: Book, seed: int, name: str) -> None:
        super().__init__(uri, book, seed, 1)
        self.name = name
        self.raw.call(1, "confirm.select")
        self.waiting: deque[Unit] = deque()
        self.first_tag = 1
        self.returned: set[str] = set()

    def pump(self) -> None:
        """Fill the window when half of it is free."""
        if len(self.waiting) > self.window // 2:
            return
        while len(self.waiting) < self.window and not self.dead:
            self.publish()

    def publish(self) -> None:
        """Publish one message to one of the topics, the fanout, the work queue or the stream."""
        way = self.random.randrange(8)
        mandatory = self.random.randrange(4) == 0
        lasting = self.random.randrange(8) != 0
        if way < 4:
            exchange = "t"
            key = self.random.choice(sorted(TOPICS))
            queues = TOPICS[key]
        elif way < 6:
            exchange, key, queues = "f", "", FANOUT
            lasting = True
        else:
            exchange = ""
            key = self.random.choice(["work", STREAM])
            queues = (key,)
            lasting = True
        one, frames = self.make(self.name, queues, lasting)
        unit = Unit([one])
        self.book.tried(unit)
        self.waiting.append(unit)
        self.send(address(1, exchange, key, mandatory=mandatory), frames)
        if mandatory and not queues:
            self.returned.add(one.id)

    def hear(self, got: raw.Method) -> None:
        """Handle a confirm, or a return, which must come first."""
        if got.name == "basic.return":
            self.returned.remove(seen_of(got.properties, got.body, False).id)
            return
        assert got.name == "basic.ack", got
        while self.first_tag <= got.delivery_tag:
            unit = self.waiting.popleft()
            self.first_tag += 1
            assert unit.sent[0].id not in self.returned, "a confirm before its return"
            self.book.kept(unit)
        assert got.multiple or self.first_tag == got.delivery_tag + 1


class Transactor(Client):
    """Gets from `work`, publishes to others, and commits or rolls back all of it together."""

    def __init__(self, uri: str, book: Book, seed: int) -> None:
        super().__init__(uri, book, seed, 1)
        self.raw.call(1, "tx.select")
        self.idle = True
        self.unit: Unit | None = None

    def pump(self) -> None:
        """Begin the next transaction with a basic.get."""
        if self.idle and not self.dead:
            self.idle = False
            self.send(method(1, "basic.get", queue="work"))

    def hear(self, got: raw.Method) -> None:
        """Continue after the get, or after the end of the transaction."""
        if got.name == "tx.commit-ok":
            assert self.unit is not None
            self.book.kept(self.unit)
            self.unit = None
            self.idle = True
        elif got.name == "tx.rollback-ok":
            self.idle = True
        elif got.name == "basic.get-ok":
            seen = seen_of(got.properties, got.body, got.redelivered)
            self.book.check("work", seen)
            self.transact(seen.id, got.delivery_tag)
        else:
            assert got.name == "basic.get-empty", got
            self.transact("", 0)

    def transact(self, id_: str, tag: int) -> None:
        """Publish some messages, ack the one from the get, and commit or roll back."""
        frames: list[bytes] = []
        sent: list[Sent] = []
        for _ in range(self.random.randrange(1, 4)):
            key = self.random.choice(["a.b", "x.b"])
            one, content_frames = self.make("tx", TOPICS[key], True)
            sent.append(one)
            frames += [address(1, "t", key), content_frames]
        one, content_frames = self.make("tx", FANOUT, True)
        sent.append(one)
        frames += [address(1, "f", ""), content_frames]
        if tag:
            frames.append(method(1, "basic.ack", delivery_tag=tag))
        if self.random.randrange(4) == 0:
            unit = Unit(sent)
            self.book.tried(unit)
            self.book.open.remove(unit)
            for one in sent:
                one.places = dict.fromkeys(one.places, GONE)
            self.send(*frames, method(1, "tx.rollback"))
            return
        self.unit = Unit(sent, [("work", id_)] if tag else [])
        self.book.tried(self.unit)
        self.send(*frames, method(1, "tx.commit"))


class Taker(Client):
    """Consumes `q1`, acks, and learns from confirms on the same connection which are durable."""

    def __init__(self, uri: str, book: Book, seed: int) -> None:
        super().__init__(uri, book, seed, 1, 2)
        self.raw.call(1, "basic.qos", prefetch_count=20)
        self.raw.call(2, "confirm.select")
        self.send(method(1, "basic.consume", queue="q1", consumer_tag="c"))
        self.raw.expect(1, "basic.consume-ok")
        self.held: list[tuple[int, str]] = []
        self.requeued: set[str] = set()
        self.marks: deque[tuple[Unit, list[str]]] = deque()
        self.confirmed = 0

    def hear(self, got: raw.Method) -> None:
        """Handle a delivery, or the confirm of a mark."""
        if got.name == "basic.ack":
            while self.confirmed < got.delivery_tag:
                unit, acked = self.marks.popleft()
                self.confirmed += 1
                self.book.kept(unit)
                self.book.gone("q1", acked)
            return
        assert got.name == "basic.deliver", got
        seen = seen_of(got.properties, got.body, got.redelivered)
        self.book.check_order("q1", seen)
        assert seen.redelivered or seen.id not in self.requeued, "a repeat that does not say so"
        if self.random.randrange(12) == 0 and not self.dead:
            self.requeued.add(seen.id)
            self.send(method(1, "basic.nack", delivery_tag=got.delivery_tag, requeue=True))
            return
        self.held.append((got.delivery_tag, seen.id))
        if len(self.held) >= self.random.randrange(1, 9) and not self.dead:
            self.settle()

    def settle(self) -> None:
        """Ack the unacked deliveries, all at once or one by one, and then send a mark."""
        ids = [id_ for _, id_ in self.held]
        tags = [tag for tag, _ in self.held]
        self.held.clear()
        self.book.leaving("q1", ids)
        if self.random.randrange(2):
            self.send(method(1, "basic.ack", delivery_tag=tags[-1], multiple=True))
        else:
            self.send(*[method(1, "basic.ack", delivery_tag=tag) for tag in tags])
        one, frames = self.make("taker", ("marks",), True)
        unit = Unit([one])
        self.book.tried(unit)
        self.marks.append((unit, ids))
        # The frames are made for channel 1; the same on channel 2.
        self.send(address(2, "", "marks"), on_channel(frames, 2))


def on_channel(frames: bytes, channel: int) -> bytes:
    """The same frames on another channel."""
    out = bytearray(frames)
    at = 0
    while at < len(out):
        out[at + 1 : at + 3] = channel.to_bytes(2)
        at += 8 + int.from_bytes(out[at + 3 : at + 7])
    return bytes(out)


class Definer(Client):
    """Declares durable queues, binds them, deletes older ones; one step at a time."""

    def __init__(self, uri: str, book: Book, seed: int, names: dict[str, str]) -> None:
        super().__init__(uri, book, seed, 1)
        #: The state of each queue: declaring, bound, deleting, deleted.
        self.names = names
        self.step: Callable[[], None] | None = None
        self.idle = True
        self.name = ""

    def pump(self) -> None:
        """Begin with a declare, or with the delete of a bound queue."""
        if not self.idle or self.dead:
            return
        self.idle = False
        bound = [name for name, state in self.names.items() if state == "bound"]
        if bound and self.random.randrange(3) == 0:
            self.name = self.random.choice(bound)
            self.note("-", "deleting")
            self.send(method(1, "queue.delete", queue=self.name))
            return
        self.name = f"d{len(self.names)}"
        self.note("+", "declaring")
        self.send(method(1, "queue.declare", queue=self.name, durable=True))

    def note(self, mark: str, state: str) -> None:
        """Record a step in the ledger and the table."""
        self.book.ledger.note(mark, self.name)
        self.names[self.name] = state

    def hear(self, got: raw.Method) -> None:
        """Continue with the next step."""
        if got.name == "queue.declare-ok":
            self.note("+ok", "declared")
            values = {"queue": self.name, "exchange": "d", "routing_key": self.name}
            self.send(method(1, "queue.bind", **values))
            return
        if got.name == "queue.bind-ok":
            self.note("+ok", "bound")
        else:
            assert got.name == "queue.delete-ok", got
            self.note("-ok", "deleted")
        self.idle = True


def run_until(clients: Sequence[Pumped], done: Callable[[], bool]) -> None:
    """Run the clients until `done`, which is checked after each piece of input."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.raw.socket, selectors.EVENT_READ, client)
            client.begin()
        while True:
            for client in clients:
                client.pump()
            ready = selector.select(SILENCE_SECONDS_MAX)
            assert ready, "the broker runs and says nothing"
            for key, _ in ready:
                client = key.data
                assert client.read(), "the broker closed a connection"
                if done():
                    return
