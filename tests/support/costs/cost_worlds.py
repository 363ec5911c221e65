"""Random topologies of a broker, small and large, for measuring the cost of requests to them.

A world has a few connections of two users, and some of the parts below, in numbers that depend on
its size: bindings of each type of exchange, deep queues, consumers, unacked deliveries, open
transactions, streams, delays, policies.  All of it is created by methods that clients send.

Invariant: one seed gives one world.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from leveret.broker.users.users import User
from support.costs.cost_gauge import Gauge, GaugedNode, QuickPeer
from support.costs.cost_hare import QuickHare
from support.costs.cost_http import HttpClient
from support.wire.raw_codec import method, publish

#: The open channels of each connection: 1 is plain, 2 in confirm mode, 3 transactional.
CHANNELS: Final = (1, 2, 3)

#: The bytes passed to one `receive` while a world is built.
_PIECE_BYTES: Final = 262_144

#: The limits of a user or a vhost.
QUOTAS: Final = ("max-queues", "max-bindings", "max-messages", "max-message-bytes")

KINDS: Final = (
    "direct", "fanout", "topic", "headers", "x-consistent-hash", "x-modulus-hash", "x-random",
    "x-recent-history", "x-delayed-message",
)  # fmt: skip

QUEUE_ARGUMENTS: Final[tuple[dict[str, Any], ...]] = (
    {}, {}, {}, {"x-message-ttl": 50}, {"x-message-ttl": 3_600_000}, {"x-max-length": 10},
    {"x-max-length": 1_000, "x-overflow": "reject-publish"}, {"x-max-length-bytes": 20_000},
    {"x-max-priority": 10}, {"x-expires": 100}, {"x-expires": 3_600_000},
    {"x-dead-letter-exchange": "amq.fanout"}, {"x-single-active-consumer": True},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "deep", "x-message-ttl": 20},
    {"x-queue-type": "quorum"}, {"x-queue-type": "quorum", "x-delivery-limit": 1},
    {"x-max-length": 5, "x-dead-letter-exchange": "all"}, {"x-queue-type": "stream"},
    {"x-queue-type": "stream", "x-max-length-bytes": 10_000}, {"x-message-deduplication": True},
)  # fmt: skip


#: The sink of the staged batches.
SINK: Final = "sink0"

#: The staging queues, one for each task, of the batch that is staged while a world is built.
_STAGING_QUEUES_MAX: Final = 1_000


class World:
    """A broker with content, and its clients."""

    def __init__(self, seed: int, size: int, gauge: Gauge) -> None:
        """Open the connections; `build` makes parts with about `size` items each."""
        self.draw = random.Random(seed)
        self.size = size
        self.gauge = gauge
        self.node = GaugedNode(gauge)
        self.node.add_user("other", configure=".*", write=".*", read=".*")
        self.node.add_user("narrow", configure="^(x|q[0-9])", write=".*1", read="q(1|2)*.*")
        self.queues = ["deep", "amq.gen-none"]
        self.exchanges = ["", "amq.direct", "amq.fanout", "amq.topic", "amq.headers"]
        self.keys = ["deep", "k", "1", "a.b.c", ".".join("a" * 100), ""]
        self.hare = QuickHare(self.node)
        #: The operator of the broker over HTTP, from the first request on.
        self.http: HttpClient | None = None
        #: The staging queues of each batch, and the current batch.
        self.staged: dict[int, list[str]] = {}
        self.batch = 1
        self.node.add_user("limited", configure=".*", write=".*", read=".*")
        self.node.broker.users.set_limits("limited", dict.fromkeys(QUOTAS, size))
        users = ("guest", "guest", "other", "narrow", "limited")
        self.peers = [self.connect(user) for user in users]

    def close(self) -> None:
        """End the background tasks."""
        if self.http is not None:
            self.http.close()
            self.http = None

    def some_parts(self) -> list[str]:
        """Choose the parts of the world."""
        return self.draw.sample(sorted(PARTS), self.draw.randint(1, 4))

    def build(self, part: str) -> None:
        """Build one part, without counting its lines, because that is much slower."""
        self.gauge.what = f"building {part} of {self.size}"
        with self.gauge.unmeasured():
            self.feed(self.peers[0], PARTS[part](self))
            self.node.sync()

    def connect(self, user: str, vhost: str = "/") -> QuickPeer:
        """A connection with all channels open."""
        peer = QuickPeer(self.node)
        client = {"product": "costs", "capabilities": peer.capabilities}
        peer.send(b"AMQP\x00\x00\x09\x01")
        peer.send(
            method(
                0, "connection.start-ok", client_properties=client, mechanism="PLAIN",
                response=f"\0{user}\0{user}".encode(), locale="en_US",
            )
        )  # fmt: skip
        peer.send(
            method(0, "connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0),
            method(0, "connection.open", vhost=vhost),
            *[method(channel, "channel.open") for channel in CHANNELS],
            method(2, "confirm.select", no_wait=True),
            method(3, "tx.select"),
        )
        return peer

    def feed(self, peer: QuickPeer, frames: Iterator[bytes]) -> None:
        """Send frames in large pieces."""
        piece: list[bytes] = []
        size = 0
        for one in frames:
            piece.append(one)
            size += len(one)
            if size > _PIECE_BYTES:
                peer.send(*piece)
                self.node.sync()
                piece, size = [], 0
        peer.send(*piece)
        self.node.sync()

    def queue(self) -> str:
        """A queue's name."""
        return self.draw.choice(self.queues)

    def exchange(self) -> str:
        """An exchange's name, more often one of the newest four."""
        recent = self.exchanges[-4:] if self.draw.random() < 0.6 else self.exchanges
        return self.draw.choice(recent)

    def key(self) -> str:
        """A routing key."""
        return self.draw.choice(self.keys)

    # -- parts ------------------------------------------------------------------------------------

    def some_queues(self, count: int, **arguments: Any) -> Iterator[bytes]:
        """Declares of `q0` and so on."""
        for number in range(count):
            yield declare(f"q{number}", arguments)
        self.queues += [f"q{number}" for number in range(0, count, max(count // 20, 1))]

    def bound(self, name: str, kind: str, count: int, **arguments: Any) -> Iterator[bytes]:
        """An exchange with bindings to `count` queues."""
        yield from self.some_queues(count)
        yield from self.exchange_of(name, kind, **arguments)
        for number in range(count):
            yield bind(f"q{number}", name, f"{number % 50}")

    def exchange_of(self, name: str, kind: str, **arguments: Any) -> Iterator[bytes]:
        """An exchange."""
        self.exchanges.append(name)
        yield method(
            1, "exchange.declare", exchange=name, type=kind, no_wait=True, arguments=arguments,
            durable=self.draw.random() < 0.5,
        )  # fmt: skip


def declare(queue: str, arguments: dict[str, Any], **flags: Any) -> bytes:
    """A declare without an answer."""
    durable = "x-queue-type" in arguments
    return method(
        1, "queue.declare", queue=queue, no_wait=True, arguments=arguments,
        **({"durable": durable} | flags),
    )  # fmt: skip


def bind(queue: str, exchange: str, key: str = "", **arguments: Any) -> bytes:
    """A bind without an answer."""
    return method(
        1, "queue.bind", queue=queue, exchange=exchange, routing_key=key, no_wait=True,
        arguments=arguments,
    )  # fmt: skip


def staging_queue(world: World, batch: int) -> tuple[str, bytes]:
    """Return a new staging queue of a batch of the sink, and the frames that declare it."""
    queues = world.staged.setdefault(batch, [])
    name = f"leveret.staging.{SINK}.{batch}.{len(queues)}"
    queues.append(name)
    return name, declare(name, {"x-staging-sink": SINK, "x-staging-batch": batch}, durable=True)


def stage(queue: str, exchange: str, key: str, body: bytes) -> bytes:
    """A publish into a staging queue; it contains its destination after the commit."""
    headers = {"x-staged-exchange": exchange, "x-staged-routing-key": key}
    return publish(1, "", queue, body, headers=headers, delivery_mode=2)


def _queues(world: World) -> Iterator[bytes]:
    yield from world.some_queues(world.size)


def _exclusive(world: World) -> Iterator[bytes]:
    world.queues.append("x0")
    for number in range(world.size):
        yield declare(f"x{number}", {}, exclusive=True)


def _fanout(world: World) -> Iterator[bytes]:
    yield from world.bound("all", "fanout", world.size)


def _direct(world: World) -> Iterator[bytes]:
    yield from world.bound("direct", "direct", world.size)


def _one_queue(world: World) -> Iterator[bytes]:
    yield declare("q0", {})
    world.queues.append("q0")
    for kind in ("direct", "topic", "fanout", "headers"):
        name = f"many-{kind}"
        yield from world.exchange_of(name, kind)
        for number in range(world.size // 4):
            yield bind("q0", name, f"k.{number}", number=number)


def _topic(world: World) -> Iterator[bytes]:
    yield from world.exchange_of("ways", "topic")
    words = ["a", "b", "*", "#"]
    for number in range(world.size):
        key = ".".join(world.draw.choices(words, weights=[1, 1, 1, 2], k=world.draw.randint(1, 60)))
        queue = f"q{number % 100}"
        if number < 100:
            yield declare(queue, {})
        yield bind(queue, "ways", key[:255])
    world.queues += ["q0", "q1"]


def _hashes(world: World) -> Iterator[bytes]:
    yield from world.exchange_of("ring", "x-consistent-hash")
    count = min(world.size, 1_000)
    yield from world.some_queues(count)
    for number in range(count):
        yield bind(f"q{number}", "ring", str(world.draw.randint(1, max(10_000 // count, 1))))


def _modulus(world: World) -> Iterator[bytes]:
    yield from world.bound("modulus", "x-modulus-hash", world.size)
    yield from world.exchange_of("any", "x-random")
    for number in range(world.size):
        yield bind(f"q{number}", "any")


def _headers(world: World) -> Iterator[bytes]:
    yield from world.some_queues(min(world.size, 200))
    yield from world.exchange_of("headers", "headers")
    for number in range(world.size):
        match = world.draw.choice(["all", "any", "any-with-x"])
        table = {"x-match": match, "a": number % 7, f"h{number % 30}": str(number)}
        yield bind(f"q{number % 200}", "headers", "", **table)


def _chain(world: World) -> Iterator[bytes]:
    yield declare("q0", {})
    world.queues.append("q0")
    for number in range(world.size):
        yield from world.exchange_of(f"e{number}", ("fanout", "topic", "direct")[number % 3])
        yield method(
            1, "exchange.bind", destination=f"e{number - 1}" if number else "amq.fanout",
            source=f"e{number}", routing_key="k", no_wait=True,
        )  # fmt: skip
    yield bind("q0", "e0", "k")
    if world.draw.random() < 0.5:
        # A ring.
        last = f"e{world.size - 1}"
        yield method(1, "exchange.bind", destination=last, source="e0", routing_key="k")


def _tree(world: World) -> Iterator[bytes]:
    yield from world.some_queues(world.size)
    yield from world.exchange_of("root", "topic")
    for number in range(max(world.size // 50, 1)):
        yield from world.exchange_of(f"branch{number}", "fanout", **{"alternate-exchange": "root"})
        yield method(
            1, "exchange.bind", destination=f"branch{number}", source="root", routing_key="#",
            no_wait=True,
        )  # fmt: skip
        for place in range(number * 50, number * 50 + 50):
            yield bind(f"q{place}", f"branch{number}", "")


def _super_streams(world: World) -> Iterator[bytes]:
    count = max(min(world.size, 1_024), 1)
    yield declare("super", {"x-super-stream-partitions": count}, durable=True)
    world.exchanges.append("super")
    world.queues += ["super", "super-0"]


def _deep(world: World, **arguments: Any) -> Iterator[bytes]:
    name = f"deep{len(world.queues)}"
    yield declare(name, arguments, durable=world.draw.random() < 0.5)
    world.queues.append(name)
    for number in range(world.size):
        props: dict[str, Any] = {}
        if number % 7 == 0:
            props["expiration"] = str(world.draw.choice([1, 100, 10_000_000]))
        if number % 5 == 0:
            props["priority"] = number % 10
        if number % 11 == 0:
            props["headers"] = {"x-deduplication-header": str(number), "a": 1}
        props["delivery_mode"] = 1 + (number % 3 == 0)
        yield publish(1, "", name, b"m" * (number % 60), **props)


def _deep_queue(world: World) -> Iterator[bytes]:
    yield from _deep(world)


def _expiring(world: World) -> Iterator[bytes]:
    yield from _deep(world, **{"x-message-ttl": 30, "x-dead-letter-exchange": "amq.fanout"})


def _priorities(world: World) -> Iterator[bytes]:
    yield from _deep(world, **{"x-max-priority": 255})


def _deduplicated(world: World) -> Iterator[bytes]:
    yield from _deep(world, **{"x-message-deduplication": True})


def _returned(world: World) -> Iterator[bytes]:
    """Requeued messages: taken, and put back in another order."""
    yield from _deep(world)
    queue = world.queues[-1]
    yield method(1, "basic.consume", queue=queue, consumer_tag="back", no_wait=True)
    yield method(1, "basic.cancel", consumer_tag="back", no_wait=True)
    yield method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)


def _unacked(world: World) -> Iterator[bytes]:
    yield from _deep(world)
    yield method(1, "basic.consume", queue=world.queues[-1], consumer_tag="holds", no_wait=True)


def _window(world: World) -> Iterator[bytes]:
    """Many more unacked deliveries, on two channels."""
    yield declare("wide", {})
    world.queues.append("wide")
    for channel in (1, 2):
        yield method(channel, "basic.consume", queue="wide", no_wait=True)
    for number in range(8 * world.size):
        yield publish(1, "", "wide", b"w", delivery_mode=1 + number % 2)


def _retained(world: World) -> Iterator[bytes]:
    """Acked messages that are retained, so that they can be put back."""
    world.feed(world.peers[0], iter([declare("kept", {"x-retain-acked": "1D"}, durable=True)]))
    world.queues.append("kept")
    messages = (
        publish(1, "", "kept", b"k", delivery_mode=1 + number % 2)
        for number in range(4 * world.size)
    )
    world.feed(world.peers[0], messages)
    consume = method(1, "basic.consume", queue="kept", consumer_tag="keeps", no_wait=True)
    # Deliver all messages before they are acked.
    world.feed(world.peers[0], iter([consume]))
    yield method(1, "basic.cancel", consumer_tag="keeps", no_wait=True)
    yield method(1, "basic.ack", delivery_tag=0, multiple=True)


def _delayed(world: World) -> Iterator[bytes]:
    kind = world.draw.choice(["direct", "fanout", "topic"])
    yield from world.exchange_of("later", "x-delayed-message", **{"x-delayed-type": kind})
    yield declare("q0", {})
    yield bind("q0", "later", "k")
    for number in range(world.size):
        delay = world.draw.choice([50, 1_000, 10_000_000_000])
        yield publish(1, "later", "k", b"d", headers={"x-delay": delay + number})


def _stream(world: World) -> Iterator[bytes]:
    yield declare("stream", {"x-queue-type": "stream"})
    world.queues.append("stream")
    for number in range(world.size):
        headers = {"x-stream-filter-value": str(number % 9)}
        yield publish(1, "", "stream", b"s" * (number % 90), headers=headers)


def _readers(world: World) -> Iterator[bytes]:
    """Many named consumers of one stream, each ahead of its stored offset."""
    yield declare("stream", {"x-queue-type": "stream"})
    world.queues.append("stream")
    for number in range(10):
        yield publish(1, "", "stream", b"s" * number)
    yield method(1, "basic.qos", prefetch_count=3)
    for number in range(world.size):
        yield method(
            1, "basic.consume", queue="stream", consumer_tag=f"n{number}", no_wait=True,
            arguments={"x-stream-consumer": f"n{number}", "x-stream-offset": "first"},
        )  # fmt: skip
    # Ack half of the deliveries of each.
    yield method(1, "basic.ack", delivery_tag=world.size, multiple=True)


def _staged(world: World) -> Iterator[bytes]:
    """A batch that many tasks, or one, have staged."""
    yield declare("deep", {}, durable=True)
    tasks = world.draw.choice([1, min(world.size, _STAGING_QUEUES_MAX)])
    names: list[str] = []
    for _ in range(tasks):
        name, declares = staging_queue(world, 1)
        names.append(name)
        yield declares
    for number in range(world.size):
        exchange, key = ("", "deep") if number % 3 else ("amq.fanout", "k")
        yield stage(names[number % tasks], exchange, key, b"s" * (number % 60))


def _limited(world: World) -> Iterator[bytes]:
    """A user just below their limits."""
    count = world.size
    half = [declare(f"l{number}", {}) for number in range(count // 2)]
    messages = (publish(1, "", f"l{number % (count // 2 or 1)}", b"m") for number in range(count))
    world.feed(world.peers[4], iter(half))
    world.feed(world.peers[4], messages)
    world.queues += ["l0", "l1"]
    yield method(1, "basic.qos", prefetch_count=0)


def _history(world: World) -> Iterator[bytes]:
    length = min(world.size, 4_096)
    yield from world.exchange_of(
        "history", "x-recent-history", **{"x-recent-history-length": length}
    )
    for _ in range(length):
        yield publish(1, "history", "k", b"h")


def _consumers(world: World) -> Iterator[bytes]:
    single = {"x-single-active-consumer": True} if world.draw.random() < 0.3 else {}
    yield declare("busy", single)
    world.queues.append("busy")
    for number in range(world.size):
        arguments = {"x-priority": number % 100} if world.draw.random() < 0.5 else {}
        yield method(
            1 + number % 2, "basic.consume", queue="busy", consumer_tag=f"c{number}", no_wait=True,
            arguments=arguments, no_ack=number % 3 == 0,
        )  # fmt: skip


def _transaction(world: World) -> Iterator[bytes]:
    yield declare("deep", {})
    for number in range(min(world.size, 16_000)):
        yield publish(3, "", "deep", b"t", delivery_mode=1 + number % 2)


def _channels(world: World) -> Iterator[bytes]:
    for number in range(4, min(world.size, 2_000)):
        yield method(number, "channel.open")
        yield method(number, "basic.consume", queue="deep", no_wait=True)


def _publishers(world: World) -> Iterator[bytes]:
    yield declare("deep", {}, durable=True)
    for number in range(world.size):
        headers = {"x-leveret-publisher": f"p{number}", "x-leveret-sequence": 1}
        yield publish(1, "", "deep", b"", headers=headers, delivery_mode=2)


def _users(world: World) -> Iterator[bytes]:
    """Many users with permissions in a vhost that may be deleted."""
    broker = world.node.broker
    broker.put_vhost("more0", {}, {})
    for number in range(world.size):
        name = f"user{number}"
        broker.users.put(User(name, b"", []))
        broker.users.set_permission(name, "more0", ".*", ".*", ".*")
    yield method(1, "basic.qos", prefetch_count=0)


def _links(world: World) -> Iterator[bytes]:
    """Many connections, some in a vhost that may be deleted."""
    world.node.broker.put_vhost("more1", {}, {})
    world.node.broker.users.set_permission("other", "more1", ".*", ".*", ".*")
    for number in range(min(world.size // 2, 1_000)):
        world.connect("other", "more1" if number % 2 else "/")
    yield method(1, "basic.qos", prefetch_count=0)


def _policies(world: World) -> Iterator[bytes]:
    yield from world.some_queues(min(world.size, 1_000))
    parameters = world.node.broker.parameters
    for number in range(min(world.size, 1_000)):
        pattern = world.draw.choice([f"^q{number}$", "^none", ".*", "(a|b|q)*[0-9]+"])
        value = {"pattern": pattern, "definition": {"max-length": 100_000}, "priority": number}
        parameters.set("/", "operator_policy", f"p{number}", value)


PARTS: Final[dict[str, Callable[[World], Iterator[bytes]]]] = {
    made.__name__[1:]: made
    for made in (
        _queues, _exclusive, _fanout, _direct, _one_queue, _topic, _hashes, _modulus, _headers,
        _chain, _tree, _super_streams, _deep_queue, _expiring, _priorities, _deduplicated,
        _returned, _unacked, _delayed, _stream, _history, _consumers, _transaction, _channels,
        _publishers, _policies, _window, _retained, _users, _links,
        _readers, _staged, _limited,
    )
}  # fmt: skip
