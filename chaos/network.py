"""A network that fails between clients and broker: resets, black holes, half-open sockets (R20).

Publishers with confirms and consumers with acks reach one broker through a proxy of their own each,
and one of these after the other does what a bad network does:

    reset      both sockets are reset, with what is on its way
    blackhole  both stay open and nothing more goes through: heartbeats must tell
    half-open  the client's socket is closed, the broker is not told: heartbeats must tell
    dribble    bytes go through one by one for a while

A client that was cut off connects again and goes on; what was not confirmed is not sent again.  At
the end all queues are drained: each confirmed message must have come, whole, and each that came
twice must have said so.  What a consumer held must be back within two heartbeats and the second
that the broker's clock ticks in; no connection, channel or descriptor may be left.

Invariant: what is sent is noted before, a confirm and a delivery when it is heard.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from chaos.accounts import message, name_of
from chaos.board import Row
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.wire import raw
from support.wire.raw_codec import method
from support.wire.raw_stream import Inbox

NAME: Final = "network"

#: Faults; one in a second or so is an hour.
RUNS: Final = 3600

KINDS: Final = ("reset", "blackhole", "half-open", "dribble")
PUBLISHERS: Final = 3
CONSUMERS: Final = 3
QUEUE: Final = "wire"
HEARTBEAT_SECONDS: Final = 2
#: Two silent intervals, and the tick in which the broker sees it.
BACK_SECONDS_MAX: Final = 2 * HEARTBEAT_SECONDS + 1.0
#: How much longer a busy machine may take.
LATE_SECONDS_MAX: Final = 2.0
WINDOW: Final = 20
PREFETCH: Final = 20
#: Between two windows, in seconds: it is no throughput that is measured.
REST: Final = (0.1, 0.4)
#: Between two faults, in seconds.
PAUSE: Final = (0.2, 1.5)
DRIBBLE_SECONDS: Final = 1.0


@dataclass
class Book:
    """What was sent, confirmed and delivered; all clients share it under its lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: set[tuple[int, int]] = field(default_factory=set)
    confirmed: set[tuple[int, int]] = field(default_factory=set)
    delivered: set[tuple[int, int]] = field(default_factory=set)
    repeats: int = 0
    unmarked: int = 0
    altered: int = 0
    phantom: int = 0
    problems: list[str] = field(default_factory=list)

    def take(self, got: raw.Method) -> None:
        """Note a delivery."""
        name = name_of(got.body)
        with self.lock:
            if name is None or name not in self.sent:
                self.phantom += 1
                return
            properties, body = message(*name)
            self.altered += (got.properties, got.body) != (properties, body)
            if name in self.delivered:
                self.repeats += 1
                self.unmarked += not got.redelivered
            self.delivered.add(name)


class BadProxy:
    """One client's way to the broker, which does what a bad network does."""

    def __init__(self, port: int) -> None:
        self.target = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.pair: tuple[socket.socket, socket.socket] | None = None
        self.hole = threading.Event()
        self.slow_until = 0.0
        #: Sockets that nobody reads any more, to be closed at the end.
        self.held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                broker = socket.create_connection(self.target)
                self.hole = hole = threading.Event()
                self.pair = (client, broker)
                for source, target in ((client, broker), (broker, client)):
                    arguments = (source, target, hole)
                    threading.Thread(target=self._forward, args=arguments, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, hole: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if hole.is_set():
                    return
                while data and time.monotonic() < self.slow_until and not hole.is_set():
                    target.sendall(data[:1])
                    data = data[1:]
                    time.sleep(0.001)
                target.sendall(data)
        if not hole.is_set():
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)

    def fail(self, kind: str) -> None:
        """Do what a bad network does."""
        if kind == "dribble":
            self.slow_until = time.monotonic() + DRIBBLE_SECONDS
            return
        if self.pair is None:
            return
        client, broker = self.pair
        self.pair = None
        self.hole.set()
        if kind == "reset":
            for one in (client, broker):
                reset(one)
        else:
            self.held.append(broker)
            if kind == "half-open":
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            self.held.append(client)

    def close(self) -> None:
        """Close all that is left."""
        self.listener.close()
        for one in (*self.held, *(self.pair or ())):
            one.close()


def reset(one: socket.socket) -> None:
    """Close a socket by a reset; a thread that reads it ends too."""
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.shutdown(socket.SHUT_RD)
    one.close()


class Client(threading.Thread):
    """Connects through its proxy, works until it is cut off, and connects again."""

    def __init__(self, proxy: BadProxy, book: Book, number: int, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.proxy = proxy
        self.book = book
        self.number = number
        self.chance = chance
        self.stopping = threading.Event()
        self.connections = 0

    def run(self) -> None:
        """Work until told to stop."""
        while not self.stopping.is_set():
            try:
                with raw.Connection("127.0.0.1", self.proxy.port) as connection:
                    # A silent broker is as good as none after two heartbeats.
                    connection.socket.settimeout(2.0 * HEARTBEAT_SECONDS)
                    connection.handshake(raw.Login(heartbeat=HEARTBEAT_SECONDS))
                    connection.open_channel(1)
                    self.connections += 1
                    self.work(connection)
            except (OSError, raw.Closed):
                continue
            except AssertionError as error:
                # A stream that ends in the middle is no fault of the broker's; others are.
                self.book.problems.append(
                    f"{type(self).__name__} {self.number}: {str(error)[:200]}"
                )

    def work(self, connection: raw.Connection) -> None:
        """Do what this client does until it is cut off or told to stop."""
        raise RuntimeError("a client works")


class Publisher(Client):
    """Publishes with confirms."""

    numbers: itertools.count[int]

    def work(self, connection: raw.Connection) -> None:
        """Publish `WINDOW` messages and wait for their confirms, again and again."""
        connection.call(1, "confirm.select")
        tag = 0
        while not self.stopping.is_set():
            names = [(self.number, next(self.numbers)) for _ in range(WINDOW)]
            with self.book.lock:
                self.book.sent.update(names)
            frames = []
            for name in names:
                properties, body = message(*name)
                frames += [
                    method(1, "basic.publish", exchange="", routing_key=QUEUE),
                    raw.content(1, body, properties),
                ]
            connection.send(*frames)
            waiting = dict(enumerate(names, tag + 1))
            tag += len(names)
            while waiting:
                got = connection.expect(1, "basic.ack")
                upto = got.delivery_tag
                done = [one for one in waiting if one == upto or (got.multiple and one < upto)]
                with self.book.lock:
                    self.book.confirmed.update(waiting.pop(one) for one in done)
            time.sleep(self.chance.uniform(*REST))


class Consumer(Client):
    """Consumes and acks."""

    def work(self, connection: raw.Connection) -> None:
        """Take, hold a while, and ack."""
        connection.call(1, "basic.qos", prefetch_count=PREFETCH)
        connection.send(method(1, "basic.consume", queue=QUEUE, consumer_tag="c"))
        connection.expect(1, "basic.consume-ok")
        inbox = Inbox()
        held = 0
        data = connection.buffer
        while not self.stopping.is_set():
            for got in inbox.feed(data):
                assert got.name == "basic.deliver", got
                self.book.take(got)
                held = got.delivery_tag
                if held % (PREFETCH // 2) == 0:
                    connection.send(method(1, "basic.ack", delivery_tag=held, multiple=True))
            # Heartbeats come at least so often.
            connection.send(raw.frame(raw.HEARTBEAT, 0, b""))
            data = connection.socket.recv(65_536)
            if not data:
                raise raw.Closed("the proxy closed the socket")


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Fail so many times, then let all end and judge."""
    chance = random.Random(seed)
    book = Book()
    with (
        tempfile.TemporaryDirectory(prefix="chaos-network-") as place,
        BrokerProcess(Path(place) / "data") as broker,
    ):
        with raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            connection.declare(1, QUEUE, durable=True)
        Api(broker.data_dir / "management.sock").ask("GET", "/api/overview")
        before = psutil.Process(broker.pid).num_fds()
        back = work(broker, book, chance, runs, say)
        left = leftovers(broker, before)
        drain(broker, book)
        if broker.terminate() != 0:
            book.problems.append(f"the broker's end: {broker.output[-2000:]}")
    book.problems += left
    for problem in book.problems[:20]:
        say(problem)
    lost = len(book.confirmed - book.delivered)
    late = max(back, default=0.0)
    return [
        Row("network faults", runs, runs, len(book.confirmed), lost, book.phantom, book.altered,
            book.unmarked + len(book.problems),
            note=f"{book.repeats:,} repeats marked; held messages back after {late:.1f} s at most "
            f"(heartbeat {HEARTBEAT_SECONDS} s)")
    ]  # fmt: skip


def work(
    broker: BrokerProcess, book: Book, chance: random.Random, runs: int, say: Callable[[str], None]
) -> list[float]:
    """Let the clients work while the network fails; return when held messages were back."""
    proxies = [BadProxy(broker.port) for _ in range(PUBLISHERS + CONSUMERS)]
    clients: list[Client] = []
    for number, proxy in enumerate(proxies):
        kind = Publisher if number < PUBLISHERS else Consumer
        clients.append(kind(proxy, book, number, random.Random(chance.getrandbits(32))))
        if isinstance(clients[-1], Publisher):
            clients[-1].numbers = itertools.count(1)
    for client in clients:
        client.start()
    back = []
    for number in range(runs):
        time.sleep(chance.uniform(*PAUSE))
        kind_of_fault = KINDS[number % len(KINDS)]
        chance.choice(proxies).fail(kind_of_fault)
        if number % 50 == 25:
            back.append(time_to_return(broker, book, kind_of_fault))
        if number % 500 == 499:
            say(f"{number + 1:,} faults, {len(book.confirmed):,} confirmed")
    back.append(time_to_return(broker, book, "half-open"))
    for client in clients:
        client.stopping.set()
    for client in clients:
        client.join()
    for proxy in proxies:
        proxy.close()
    return back


def time_to_return(broker: BrokerProcess, book: Book, kind: str) -> float:
    """Cut off a consumer that holds a message of a queue of its own; see when it is back."""
    kind = "blackhole" if kind == "dribble" else kind
    proxy = BadProxy(broker.port)
    with (
        raw.connect(broker.uri) as watcher,
        raw.Connection("127.0.0.1", proxy.port) as holder,
    ):
        watcher.open_channel(1)
        watcher.declare(1, "held")
        watcher.send(raw.publish(1, "", "held", b"x"))
        holder.handshake(raw.Login(heartbeat=HEARTBEAT_SECONDS)).open_channel(1)
        while holder.get(1, "held", no_ack=False) is None:
            pass
        begun = time.monotonic()
        proxy.fail(kind)
        while watcher.declare(1, "held", passive=True).message_count == 0:
            if time.monotonic() - begun > BACK_SECONDS_MAX + 10 * LATE_SECONDS_MAX:
                break
            time.sleep(0.02)
        took = time.monotonic() - begun
        watcher.call(1, "queue.delete", queue="held")
        watcher.close()
    proxy.close()
    if took > BACK_SECONDS_MAX + LATE_SECONDS_MAX:
        book.problems.append(f"{kind}: a held message was back after {took:.1f} s")
    return took


def leftovers(broker: BrokerProcess, before: int) -> list[str]:
    """Return what is left when all clients are gone, two heartbeats later at most."""
    api = Api(broker.data_dir / "management.sock")
    end = time.monotonic() + BACK_SECONDS_MAX + 5 * LATE_SECONDS_MAX
    while True:
        _, connections = api.ask("GET", "/api/connections")
        _, queue = api.ask("GET", f"/api/queues/%2F/{QUEUE}")
        assert isinstance(connections, list)
        assert isinstance(queue, dict)
        descriptors = psutil.Process(broker.pid).num_fds()
        found = {
            "connections": len(connections),
            "unacked": int(queue["messages_unacknowledged"]),
            "consumers": int(queue["consumers"]),
            # Segments of what waits and the one that asks are open too.
            "descriptors beyond before": max(0, descriptors - before - 16),
        }
        left = [f"left behind: {count} {what}" for what, count in found.items() if count]
        if not left or time.monotonic() > end:
            api.close()
            return left
        time.sleep(0.1)


def drain(broker: BrokerProcess, book: Book) -> None:
    """Take what waits."""
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        while (got := connection.get(1, QUEUE)) is not None:
            book.take(got)
        connection.close()
