"""The long operations, each with the request that starts it and a world in which it is long.

A row makes its world in the vhost `v`, where a client of the user `u` is at work, and then asks.
The worlds are small: just so large that the operation stops a few times where it can.  Names are
the same in all rows, so that whoever disturbs an operation knows what it works on: the queue `q`,
the exchange `x`, the client's channel 1.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from leveret.broker.definitions.imports import add_definitions
from leveret.broker.policies.policy import make_policy
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.sinks.area import area_of
from leveret.broker.sinks.claims import forget_sinks
from leveret.broker.sinks.commit import COMMIT_KEY
from leveret.broker.sinks.giving import give_sinks
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AmqpError, NotFound
from leveret.haremq.connection import HareShared
from leveret.haremq.protobuf_codec import ProtobufCodec
from leveret.limits import FAN_OUT_COPIES, LARGE_MESSAGE_BYTES, RING_WEIGHT_MAX
from leveret.session.settings import SessionSettings
from leveret.store.disks.recording import Image
from leveret.wire.content.output import OUTPUT_APART_BYTES
from model.stepped import SteppedNode
from support.node.core import Peer
from support.node.staged import claimed
from support.wire.hare import HarePeer
from support.wire.hare import frame as hare_frame
from support.wire.raw_codec import BODY, PROTOCOL_HEADER, frame, header, method, publish

VHOST: Final = "v"
USER: Final = "u"

#: What nobody in the tests may harm: confirmed messages of a queue beside.
KEPT: Final = "kept"
KEPT_COUNT: Final = 3

#: Channels of those who disturb: an error closes only the one.
CHANNELS: Final = tuple(range(1, 13))

#: What a client hears that is not taken for one of RabbitMQ's.
STRICT: Final = SessionSettings("test", compatible=False)

#: The name of a publish session.
SESSION: Final = "0123456789abcdef" * 2


@dataclass
class Scene:
    """A broker with the vhost, a client `client`, and another one who may disturb."""

    node: SteppedNode
    client: Peer
    other: Peer
    #: How many of each thing make an operation long: of queues, of what costs a step each, and of
    #: what is cheap.
    few: int
    many: int
    very_many: int
    #: The weight of a binding to a ring.
    weight: int = 1
    #: What there was, and what lay on the disk, when the broker was stopped.
    stopped: tuple[set[tuple[Any, ...]], Image] | None = None
    #: Who else is connected.
    more: list[Any] = field(default_factory=list)

    @property
    def vhost(self) -> Vhost:
        """The vhost, which must be there."""
        return self.node.broker.vhost(VHOST)

    def node_queue(self) -> ClassicQueue:
        """The classic queue `q`."""
        queue = self.vhost.queues.by_name["q"]
        assert isinstance(queue, ClassicQueue)
        return queue

    def ask(self, *frames: bytes) -> None:
        """Have the client send something, which must lead to no error."""
        self.client.send(*frames)
        self.node.sync()
        for got in self.client.take():
            assert got.name not in ("channel.close", "connection.close"), got


def end_all(at: Scene) -> None:
    """End all that is in the vhost, with all connections."""
    node = at.node
    for peer in list(node.peers.values()):
        peer.lose()
    with contextlib.suppress(NotFound):
        node.broker.delete_vhost(VHOST)
    node.sync()
    node.tick(1)
    del at.client, at.other, at.more


def scene(window_bytes: int = -1, scale: int = 1) -> Scene:
    """Return a broker with nothing in the vhost but what must be kept."""
    node = SteppedNode(window_bytes=window_bytes)
    broker = node.broker
    broker.put_vhost(VHOST, {}, {})
    node.add_user(USER)
    for user in (USER, "guest"):
        broker.users.set_permission(user, VHOST, ".*", ".*", ".*")
    node.sync()
    client = node.connect_as(USER, 1, 2, vhost=VHOST)
    other = node.connect_as("guest", *CHANNELS, vhost=VHOST)
    made = Scene(node, client, other, 40 * scale, 300 * scale, 1_200 * scale)
    made.ask(declare(KEPT), *[message("", KEPT, number) for number in range(KEPT_COUNT)])
    return made


# -- frames ----------------------------------------------------------------------------------------


def declare(queue: str, **arguments: Any) -> bytes:
    """The declare of a durable queue."""
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    return method(1, "queue.declare", queue=queue, durable=True, arguments=named, no_wait=True)


def exchange(name: str, kind: str = "fanout", **arguments: Any) -> bytes:
    """The declare of a durable exchange."""
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    return method(
        1, "exchange.declare", exchange=name, type=kind, durable=True, arguments=named,
        no_wait=True,
    )  # fmt: skip


def bind(queue: str, source: str = "x", key: str = "k") -> bytes:
    """A bind of a queue."""
    return method(1, "queue.bind", queue=queue, exchange=source, routing_key=key, no_wait=True)


def message(source: str, key: str, number: int = 0, **props: Any) -> bytes:
    """The publish of a persistent message with a body of its own."""
    return publish(1, source, key, b"%d" % number, **{"delivery_mode": 2} | props)


def messages(count: int, key: str = "q", source: str = "", **props: Any) -> list[bytes]:
    """So many of them."""
    return [message(source, key, number, **props) for number in range(count)]


def consume(queue: str = "q", tag: str = "t", channel: int = 1, **values: Any) -> bytes:
    """A consume."""
    named = {"queue": queue, "consumer_tag": tag, "no_wait": True} | values
    return method(channel, "basic.consume", **named)


# -- worlds ----------------------------------------------------------------------------------------


def _deep(at: Scene, count: int = 0, **arguments: Any) -> None:
    """A queue with many messages."""
    at.ask(declare("q", **arguments), *messages(count or at.many))


def _deeper(at: Scene) -> None:
    """A queue with very many."""
    _deep(at, at.very_many)


def _unacked(at: Scene, count: int = 0, **arguments: Any) -> None:
    """The same, whose messages all wait for an ack of the client."""
    _deep(at, count, **arguments)
    at.ask(consume())
    # Nobody gets them a second time.
    at.ask(method(1, "basic.cancel", consumer_tag="t", no_wait=True))


def _very_unacked(at: Scene) -> None:
    """The same, with very many."""
    _unacked(at, at.very_many)


def _prioritized(at: Scene) -> None:
    """The same, with priorities."""
    _deep(at, x_max_priority=5)


def _large(at: Scene) -> None:
    """A queue with large messages, whose memory takes long to let go."""
    at.node.core.memory.window_bytes = 1 << 40
    at.ask(declare("q"))
    for _ in range(at.few // 4):
        at.client.send(publish(1, "", "q", bytes(4 * LARGE_MESSAGE_BYTES)))
    at.node.sync()


def _large_unacked(at: Scene) -> None:
    """The same, which wait for an ack of the client."""
    _large(at)
    at.ask(consume())
    at.client.forget_sent()
    at.ask(method(1, "basic.cancel", consumer_tag="t", no_wait=True))


def _large_expiring(at: Scene) -> None:
    """Large messages that expire all at once."""
    at.node.core.memory.window_bytes = 1 << 40
    at.ask(declare("q", x_message_ttl=50_000))
    for _ in range(at.few // 4):
        at.client.send(publish(1, "", "q", bytes(4 * LARGE_MESSAGE_BYTES)))
    at.node.sync()


def _unfinished(at: Scene) -> None:
    """Large bodies of which most has come, on a channel each."""
    size = 4 * LARGE_MESSAGE_BYTES
    for channel in range(3, 3 + at.few // 4):
        at.client.call(channel, "channel.open")
        begun = method(channel, "basic.publish", routing_key=KEPT) + header(channel, size)
        at.client.send(begun, *[frame(BODY, channel, bytes(100_000))] * (size // 2 // 100_000))


def _large_delayed(at: Scene) -> None:
    """Large messages that a delayed exchange keeps."""
    at.node.core.memory.window_bytes = 1 << 40
    at.ask(exchange("x", "x-delayed-message", x_delayed_type="fanout"))
    for _ in range(at.few // 4):
        body = bytes(4 * LARGE_MESSAGE_BYTES)
        at.client.send(publish(1, "x", "", body, headers={"x-delay": 600_000}))
    at.node.sync()


def _parked(at: Scene) -> None:
    """Messages that came back and wait for their retry."""
    _unacked(at, at.very_many, x_delayed_retry_type="all", x_delayed_retry_min=1_000_000)
    at.ask(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))


def _exclusive(at: Scene) -> None:
    """Many exclusive queues of the client."""
    for number in range(at.many):
        at.client.send(method(1, "queue.declare", queue=f"q{number}", exclusive=True, no_wait=True))
    at.node.sync()


def _chained(at: Scene) -> None:
    """Exchanges that end with their last binding, one after the other, and a queue at the end."""
    at.ask(declare("q"))
    ends = ["q", *(f"x{number}" for number in range(at.many))]
    for last, name in pairwise(ends):
        at.client.send(
            method(
                1,
                "exchange.declare",
                exchange=name,
                type="fanout",
                durable=True,
                auto_delete=True,
                no_wait=True,
            )
        )
        if last == "q":
            at.client.send(bind("q", name))
        else:
            at.client.send(method(1, "exchange.bind", destination=last, source=name, no_wait=True))
    at.node.sync()


def _expiring(at: Scene) -> None:
    """A queue with very many messages that expire soon."""
    _deep(at, at.very_many, x_message_ttl=50_000)


def _letters(at: Scene) -> None:
    """The same, where rejected messages go to another queue."""
    at.ask(exchange("dead"), declare("letters"), bind("letters", "dead"))
    _unacked(at, at.very_many, x_dead_letter_exchange="dead")


def _bound(at: Scene, kind: str = "fanout", count: int = 0) -> None:
    """An exchange to which many queues are bound, `q` as one of them."""
    at.ask(exchange("x", kind), declare("q"), bind("q", "x", "1"))
    at.ask(
        *[
            frame
            for one in range(count or at.few)
            for frame in (declare(f"q{one}"), bind(f"q{one}"))
        ]
    )


def _fan(at: Scene) -> None:
    """An exchange to which thousands of queues are bound; few of them are durable."""
    _bound(at, count=5)
    many = range(FAN_OUT_COPIES)
    at.ask(*[method(1, "queue.declare", queue=f"t{one}", no_wait=True) for one in many])
    at.ask(*[bind(f"t{one}") for one in many])


def _fan_at_once(at: Scene) -> None:
    """The same, with a client for whom the flag `immediate` is what AMQP says."""
    at.node.settings = STRICT
    at.client = at.node.connect_as(USER, vhost=VHOST)
    _fan(at)


def _fan_of_letters(at: Scene) -> None:
    """The same, to which the dead letters of a queue go; the client holds one of its messages."""
    _fan(at)
    at.ask(declare("dying", x_dead_letter_exchange="x"), message("", "dying"), consume("dying"))


def _one_queue(at: Scene, kind: str = "direct") -> None:
    """A queue with many bindings of an exchange."""
    at.ask(exchange("x", kind), declare("q"))
    at.ask(*[bind("q", "x", str(number)) for number in range(at.many)])


def _topics(at: Scene) -> None:
    """The same of a topic exchange, whose index is a trie."""
    _one_queue(at, "topic")


def _rings(at: Scene) -> None:
    """A queue with a part of several rings."""
    at.ask(declare("q"))
    weight = str(min(at.many, RING_WEIGHT_MAX))
    for name in ("x", "x1", "x2"):
        at.ask(exchange(name, "x-consistent-hash"), bind("q", name, weight))


def _ring(at: Scene, weight: int = 0) -> None:
    """A ring of an exchange of hashes, on which one queue has a large part."""
    at.weight = min(at.many, RING_WEIGHT_MAX)
    at.ask(
        exchange("x", "x-consistent-hash"), declare("q"), bind("q", "x", str(weight or at.weight))
    )


def _consumed(at: Scene) -> None:
    """A queue with many consumers."""
    at.ask(declare("q"), *[consume("q", f"t{number}") for number in range(at.many)])


def _readers(at: Scene) -> None:
    """Many queues with a consumer each."""
    for number in range(at.few):
        at.client.send(declare(f"q{number}"), consume(f"q{number}", f"t{number}"))
    at.ask(declare("q"))


def _many_queues(at: Scene, **arguments: Any) -> None:
    """Many queues with a message each, `q` as one of them."""
    for name in ("q", *(f"q{number}" for number in range(at.few))):
        at.client.send(declare(name, **arguments), message("", name))
    at.node.sync()
    at.client.take()


def _super_stream(at: Scene) -> None:
    """A super stream."""
    at.client.call(
        1, "queue.declare", queue="q", durable=True, arguments={"x-super-stream-partitions": at.few}
    )
    at.ask(method(1, "basic.qos", prefetch_count=9))


def _read_super_stream(at: Scene) -> None:
    """A super stream that many consumers read whole, so that each is in all its partitions."""
    _super_stream(at)
    at.ask(*[consume("q", f"t{number}") for number in range(at.few // 4)])


def _bound_super_stream(at: Scene) -> None:
    """A super stream with messages, whose partitions have bindings of other exchanges."""
    _super_stream(at)
    at.ask(exchange("x", "topic"))
    for number in range(at.few):
        for key in range(20):
            at.client.send(bind(f"q-{number}", "x", f"{key}.{number}"))
        at.client.send(*messages(10, f"q-{number}"))
    at.node.sync()


def _stream(at: Scene, **arguments: Any) -> None:
    """A stream of many blocks."""
    at.ask(declare("q", x_queue_type="stream", **arguments))
    body = bytes(60_000)
    for _ in range(at.few):
        at.client.send(publish(1, "", "q", body, delivery_mode=2))
        at.node.sync()
    at.client.take()


def _named_readers(at: Scene) -> None:
    """A stream that many read by a name; each has come further than is stored."""
    at.ask(declare("q", x_queue_type="stream"), *messages(5))
    at.ask(method(1, "basic.qos", prefetch_count=3))
    for number in range(at.few):
        named = {"x-stream-consumer": f"n{number}", "x-stream-offset": "first"}
        at.client.send(consume("q", f"n{number}", arguments=named))
    at.ask(method(1, "basic.ack", delivery_tag=at.few * 2, multiple=True))


def _named(at: Scene) -> None:
    """A stream with many stored offsets, and nobody who reads it."""
    _named_readers(at)
    at.node.tick(60_000)
    at.ask(*[method(1, "basic.cancel", consumer_tag=f"n{n}", no_wait=True) for n in range(at.few)])


def _stream_readers(at: Scene) -> None:
    """A stream with many consumers that wait for what comes."""
    at.ask(declare("q", x_queue_type="stream"), method(1, "basic.qos", prefetch_count=9))
    at.ask(*[consume("q", f"t{number}") for number in range(at.few)])


def _delayed(at: Scene) -> None:
    """Many messages that wait in a delayed exchange."""
    at.ask(exchange("x", "x-delayed-message", x_delayed_type="direct"), declare("q"), bind("q"))
    for number in range(at.many):
        at.client.send(message("x", "k", number, headers={"x-delay": 100_000 + number}))
    at.node.sync()


def _retained(at: Scene) -> None:
    """Many acked messages that a queue retains."""
    _unacked(at, x_retain_acked="1D")
    at.ask(method(1, "basic.ack", delivery_tag=0, multiple=True))


def _links(at: Scene) -> None:
    """Many connections of the user, each with unacked messages."""
    _deep(at)
    for _ in range(at.few // 3):
        one = at.node.connect_as(USER, vhost=VHOST)
        one.send(method(1, "basic.qos", prefetch_count=5), consume())
        at.more.append(one)
    at.node.sync()


def _deep_staged(at: Scene) -> None:
    """A batch of very many messages that one task has staged for the queue `q`."""
    at.ask(declare("q"), declare("staged", x_staging_sink="s", x_staging_batch=1))
    staged = {"x-staged-exchange": "", "x-staged-routing-key": "q"}
    at.ask(*messages(at.very_many, "staged", headers=staged))


def _staged(at: Scene, batches: tuple[int, ...] = (1,), sink: str = "s") -> None:
    """Batches that many tasks have staged for the queue `q`."""
    at.ask(declare("q"))
    staged = {"x-staged-exchange": "", "x-staged-routing-key": "q"}
    for batch in batches:
        for task in range(at.few):
            name = f"staged.{batch}.{task}"
            at.client.send(declare(name, x_staging_sink=sink, x_staging_batch=batch))
            at.client.send(*messages(10, name, headers=staged))
    at.node.sync()
    at.client.take()


def _transaction(at: Scene) -> None:
    """A transaction with many messages and acks."""
    _bound(at, count=20)
    at.ask(method(1, "tx.select"), *messages(20, "k", "x"))


def _transaction_again(at: Scene) -> None:
    """A transaction whose user has other rights now."""
    _transaction(at)
    at.node.broker.users.set_permission(USER, VHOST, ".*", "^.*$", ".*")
    at.node.run()


def _nothing(at: Scene) -> None:
    """Nothing but the queue."""
    at.ask(exchange("x"), declare("q"), bind("q"))


def open_hare(at: Scene, user: str = USER) -> HarePeer:
    """A client of HareMQ's protocol, in the vhost."""
    peer = HarePeer(at.node, HareShared(ProtobufCodec(), user, VHOST))
    assert peer.open()
    at.more.append(peer)
    return peer


def _hare_unacked(at: Scene) -> None:
    """Messages that a client of HareMQ's was sent and has not acked."""
    _deep(at)
    peer = open_hare(at)
    assert peer.consume("q")
    peer.pushes()


def _hare_bound(at: Scene) -> None:
    """A pair with many bindings."""
    _one_queue(at)
    open_hare(at)


def _hare_fan(at: Scene) -> None:
    """An exchange to which many queues are bound."""
    _fan(at)
    open_hare(at)


def _hare_long(at: Scene) -> None:
    """A client of HareMQ's that waits for a message, and a long one."""
    _nothing(at)
    peer = open_hare(at)
    assert peer.consume("q", auto_ack=True)
    # It gets nothing in its first moments.
    assert peer.pushes() == []


def _session(at: Scene) -> None:
    """A publish to many queues by a client whose session has a name, and who is lost then."""
    _fan(at)
    at.client = at.node.dial()
    at.client.session = SESSION
    at.client.login(user=USER, vhost=VHOST)
    at.client.send(method(1, "channel.open", reserved1="1"), method(1, "confirm.select"))
    at.node.sync()


def _stuck(at: Scene) -> None:
    """A client with many consumers that reads nothing."""
    for number in range(at.few):
        at.client.send(declare(f"q{number}"), consume(f"q{number}", f"t{number}"))
    at.ask(declare("q"))
    at.client.reads = False
    copied = bytes(OUTPUT_APART_BYTES - 1)
    at.client.send(*[publish(1, "", "q0", copied) for _ in range(450)])
    at.node.sync()
    assert at.client.full


def _deadlines(at: Scene) -> None:
    """Messages that all expire late, of which the client may ack many."""
    _unacked(at, at.very_many, x_message_ttl=1_000_000)


def _timed(at: Scene) -> None:
    """Messages that all wait for an ack of the client, whose time for it is over soon."""
    _deep(at, at.very_many, x_consumer_timeout=1000)
    at.ask(consume())


def _late_acks(at: Scene) -> None:
    """Many channels with deliveries for which there is a time limit; each is looked at whole."""
    at.ask(declare("q", x_consumer_timeout=60_000), *messages(10 * at.few))
    for channel in range(100, 100 + at.few):
        at.ask(method(channel, "channel.open"), method(channel, "basic.qos", prefetch_count=10))
        at.ask(consume(channel=channel))


# -- requests --------------------------------------------------------------------------------------


def _sends(*frames: bytes) -> Callable[[Scene], None]:
    return lambda at: at.client.send(*frames)


def _multiple(name: str, **values: Any) -> Callable[[Scene], None]:
    return _sends(method(1, name, delivery_tag=0, multiple=True, **values))


def _loses(at: Scene) -> None:
    at.client.lose()


def _operator(change: Callable[[Scene], object]) -> Callable[[Scene], None]:
    """Let the operator change something, and the core do what follows."""

    def asks(at: Scene) -> None:
        change(at)
        at.node.run()

    return asks


def _imports(at: Scene) -> None:
    durable_ = {"durable": True, "auto_delete": False}
    names = [f"i{number}" for number in range(at.few)]
    definitions: dict[str, object] = {
        "queues": [{"name": name, "arguments": {}, **durable_} for name in names],
        "exchanges": [
            {"name": "y", "type": "topic", "internal": False, "arguments": {}, **durable_}
        ],
        "bindings": [
            {
                "source": "y", "destination": name, "destination_type": "queue",
                "routing_key": name, "arguments": {},
            }
            for name in names
        ],
    }  # fmt: skip
    asked = add_definitions(at.node.broker, definitions, b"salt", VHOST)
    at.node.core.scheduler.start(_answered(asked))


def _answered(asked: Iterator[int]) -> Iterator[int]:
    """Do an operation of the operator's, who hears of an error."""
    with contextlib.suppress(AmqpError):
        yield from asked


def _policy(definition: dict[str, object]) -> Callable[[Scene], None]:
    return _operator(lambda at: at.vhost.policies.set(make_policy("p", "^q", definition)))


def _shorter(at: Scene) -> None:
    """Keep no more than the newest of a stream, and look at it."""
    at.vhost.policies.set(make_policy("p", "^q", {"max-length-bytes": 1}))
    at.node.tick(20_000)


def _ticks(by_ms: int) -> Callable[[Scene], None]:
    return lambda at: at.node.tick(by_ms)


def _commits(at: Scene, batch: int = 1, **more: Any) -> None:
    queues = [f"staged.{batch}.{task}" for task in range(at.few)]
    command = {"sink": "s", "batch": batch, "queues": queues} | more
    at.client.send(publish(1, "", COMMIT_KEY, json.dumps(command).encode(), delivery_mode=2))


def _hare_asks(name: str, **fields: Any) -> Callable[[Scene], None]:
    """Have the client of HareMQ's ask for something."""
    return lambda at: at.more[0].send(hare_frame(name, rid="r", cid="c1", **fields))


def _opens_again(at: Scene) -> None:
    """Lose the connection in the middle of a publish, and come back at once."""
    lost = at.client
    lost.connection.receive(message("x", "k"), at.node.now())
    del at.node.peers[lost.connection]
    lost.connection.lost()
    at.client = at.node.dial()
    at.client.send(
        PROTOCOL_HEADER,
        method(
            0, "connection.start-ok", client_properties={"leveret-session": SESSION},
            locale="en_US", mechanism="PLAIN", response=f"\0{USER}\0{USER}".encode(),
        ),
        method(0, "connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0),
        method(0, "connection.open", vhost=VHOST),
        method(1, "channel.open", reserved1="2:1"),
    )  # fmt: skip


def _staged_again(at: Scene) -> None:
    """A batch that was committed and is staged once more."""
    _staged(at)
    _commits(at)
    at.node.sync()
    _staged(at)


def _staged_in_tx(at: Scene) -> None:
    """The same, asked for in a transaction."""
    _staged_again(at)
    at.ask(method(1, "tx.select"))
    _commits(at)


def _late(asks: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Ask when much has expired that no deadline has dropped yet."""

    def later(at: Scene) -> None:
        at.node.clock.advance(60_000)
        asks(at)

    return later


def _forgets(at: Scene) -> None:
    """Forget a sink with many destinations."""
    sinks = area_of(at.vhost).sinks
    forget_sinks(sinks, "s", claimed(sinks, "s"))


def _gives(at: Scene) -> None:
    """Give it to somebody else."""
    area = area_of(at.vhost)
    give_sinks(area, "s", claimed(area.sinks, "s"), at.node.broker.users.owner("guest"))


def _sinks(at: Scene) -> None:
    """A sink with many destinations, each with a committed batch and a staged one."""
    at.ask(declare("q"))
    area = area_of(at.vhost)
    for number in range(at.few):
        area.decide("s", f"d{number}", 1, [], "fail", at.client.connection.as_owner)
        at.client.send(
            declare(
                f"staged.{number}", x_staging_sink="s", x_staging_batch=2,
                x_staging_destination=f"d{number}",
            )
        )  # fmt: skip
    at.node.sync()


@dataclass(frozen=True)
class Row:
    """One operation; `window_bytes` is what a queue may hold in memory."""

    world: Callable[[Scene], None]
    request: Callable[[Scene], None]
    window_bytes: int = -1
    #: The most steps that the core may do between two stops, however large the world: a portion,
    #: and what the method itself takes.
    most: int = 160
    #: A reply that promises nothing of what is recorded meanwhile.
    tells: str = ""
    #: Whether it is judged first, and dropped where nobody waits for it any more.
    judged: bool = False
    #: Whether its world takes long to build, so that not all is tried at it.
    heavy: bool = False

    def begin(self, scale: int = 1) -> Scene:
        """Return a scene in which all is ready for the request."""
        made = scene(self.window_bytes, scale)
        self.world(made)
        made.node.sync()
        made.client.take()
        return made


#: Every long operation has a row in which it is long; some have several, for what it works on.
ROWS: Final[dict[str, Row]] = {
    "purge": Row(_deeper, _sends(method(1, "queue.purge", queue="q")), most=576),
    "purge of pages": Row(_deep, _sends(method(1, "queue.purge", queue="q")), 0),
    "delete of a deep queue": Row(_deeper, _sends(method(1, "queue.delete", queue="q"))),
    "delete of a queue with pages": Row(_deep, _sends(method(1, "queue.delete", queue="q")), 0),
    "delete of a queue with pages of priorities": Row(
        _prioritized, _sends(method(1, "queue.delete", queue="q")), 0
    ),
    "purge of parked messages": Row(_parked, _sends(method(1, "queue.purge", queue="q")), most=576),
    "delete of parked messages": Row(_parked, _sends(method(1, "queue.delete", queue="q"))),
    "delete of retained messages": Row(_retained, _sends(method(1, "queue.delete", queue="q"))),
    "purge of large messages": Row(
        _large, _sends(method(1, "queue.purge", queue="q")), most=2_112, heavy=True
    ),
    "delete of large messages": Row(
        _large, _sends(method(1, "queue.delete", queue="q")), most=2_112, heavy=True
    ),
    "ack of large messages": Row(_large_unacked, _multiple("basic.ack"), most=4_160, heavy=True),
    "delete of large delayed messages": Row(
        _large_delayed, _sends(method(1, "exchange.delete", exchange="x")), most=2_112, heavy=True
    ),
    "expiry of large messages": Row(_large_expiring, _ticks(60_000), most=2_112, heavy=True),
    "loss of unfinished bodies": Row(_unfinished, _loses, heavy=True),
    "loss of exclusive queues": Row(_exclusive, _loses),
    "end of a chain of exchanges": Row(_chained, _sends(method(1, "queue.delete", queue="q"))),
    "close of a channel with many consumers": Row(
        _consumed, _sends(method(1, "channel.close", code=200))
    ),
    "delete of a bound queue": Row(_one_queue, _sends(method(1, "queue.delete", queue="q"))),
    "delete of a queue on rings": Row(
        _rings, _sends(method(1, "queue.delete", queue="q")), most=1_312
    ),
    "delete of a topic exchange": Row(_topics, _sends(method(1, "exchange.delete", exchange="x"))),
    "delete of a vhost with bindings": Row(
        _topics, _operator(lambda at: at.node.broker.delete_vhost(VHOST))
    ),
    "delete of a consumed queue": Row(_consumed, _sends(method(1, "queue.delete", queue="q"))),
    "delete of an exchange": Row(_bound, _sends(method(1, "exchange.delete", exchange="x"))),
    "delete of a ring": Row(_ring, _sends(method(1, "exchange.delete", exchange="x"))),
    "unbind from a ring": Row(
        _ring,
        lambda at: at.client.send(
            method(1, "queue.unbind", queue="q", exchange="x", routing_key=str(at.weight))
        ),
        most=576,
    ),
    "bind to a ring": Row(
        lambda at: _ring(at, 1),
        lambda at: at.client.send(
            method(1, "queue.bind", queue=KEPT, exchange="x", routing_key=str(at.weight))
        ),
        most=576,
    ),
    "ack of many": Row(_very_unacked, _multiple("basic.ack"), most=1_056),
    "ack of many, paged": Row(_very_unacked, _multiple("basic.ack"), 0, most=1_056),
    "requeue of many": Row(_very_unacked, _multiple("basic.nack", requeue=True), most=576),
    "reject of many": Row(_letters, _multiple("basic.nack", requeue=False), most=2_624),
    "recover": Row(_very_unacked, _sends(method(1, "basic.recover", requeue=True)), most=576),
    "close of a channel": Row(
        _very_unacked, _sends(method(1, "channel.close", code=200)), most=576
    ),
    "error of a channel": Row(
        _very_unacked, _sends(method(1, "queue.declare", queue="", passive=True)), most=576
    ),
    "close of a connection": Row(
        _very_unacked, _sends(method(0, "connection.close", code=200)), most=576
    ),
    "loss of a connection": Row(_very_unacked, _loses, most=576),
    "fan-out": Row(_fan, _sends(message("x", "k", 7)), heavy=True, most=2_368),
    "fan-out of a dead letter": Row(
        _fan_of_letters,
        _sends(method(1, "basic.reject", delivery_tag=1, requeue=False)),
        most=2_368,
        heavy=True,
    ),
    "immediate fan-out": Row(
        _fan_at_once, _sends(publish(1, "x", "k", b"i", immediate=True)), heavy=True, most=2_312
    ),
    "get past expired messages": Row(
        _expiring, _late(_sends(method(1, "basic.get", queue="q"))), most=2_560
    ),
    "commit after a change of rights": Row(
        _transaction_again, _sends(method(1, "tx.commit")), most=448, judged=True
    ),
    "declare of a super stream": Row(
        _nothing,
        lambda at: at.client.send(
            method(
                1,
                "queue.declare",
                queue="super",
                durable=True,
                arguments={"x-super-stream-partitions": at.few},
            )
        ),
        most=9_216,
    ),
    "delete of a super stream": Row(
        _super_stream, _sends(method(1, "queue.delete", queue="q")), most=512
    ),
    "delete of a super stream that is read": Row(
        _read_super_stream, _sends(method(1, "queue.delete", queue="q", no_wait=True)), most=704
    ),
    "delete of a super stream with bindings and messages": Row(
        _bound_super_stream, _sends(method(1, "queue.delete", queue="q")), most=512
    ),
    "delete of a partition that is read": Row(
        _read_super_stream, _sends(method(1, "queue.delete", queue="q-0", no_wait=True)), most=6_144
    ),
    "permission of consumers of a super stream": Row(
        _read_super_stream,
        _operator(
            lambda at: at.node.broker.users.set_permission(
                USER, VHOST, ".*", ".*", "^(q|kept)(-[0-9]+)*$"
            )
        ),
        most=320,
    ),
    "consume of a super stream": Row(
        _super_stream,
        lambda at: at.client.send(consume("q", "s", no_wait=False)),
        most=1_312,
        judged=True,
    ),
    "delete of a vhost": Row(_links, _operator(lambda at: at.node.broker.delete_vhost(VHOST))),
    "delete of a user": Row(_links, _operator(lambda at: at.node.broker.users.delete(USER))),
    "import": Row(_nothing, _operator(_imports), most=4_160),
    "policy": Row(_many_queues, _policy({"max-length": 9})),
    "policy that drops": Row(_deep, _policy({"max-length": 9})),
    "policy of a TTL": Row(_deep, _policy({"message-ttl": 50_000})),
    "permission": Row(
        _readers,
        _operator(
            lambda at: at.node.broker.users.set_permission(USER, VHOST, ".*", ".*", "^q1.*|^q$")
        ),
    ),
    "quota": Row(
        _many_queues,
        _operator(lambda at: at.node.broker.users.set_limits(USER, {"max-messages": at.few + 9})),
    ),
    "eviction": Row(
        _many_queues,
        _operator(lambda at: at.node.broker.eviction.configure(1 << 40, 1)),
        window_bytes=1 << 40,
    ),
    "rewind": Row(_retained, _operator(lambda at: at.node_queue().rewind(0))),
    "delete of a stream": Row(_stream, _sends(method(1, "queue.delete", queue="q"))),
    "retention": Row(
        lambda at: _many_queues(at, x_queue_type="stream", x_max_age="1s"), _ticks(20_000)
    ),
    "shorter retention": Row(_stream, _shorter),
    "delete of offsets": Row(_named, _sends(method(1, "queue.delete", queue="q"))),
    "delete of a stream that is read": Row(
        _named_readers, _sends(method(1, "queue.delete", queue="q", no_wait=True))
    ),
    "store of offsets": Row(_named_readers, _ticks(60_000), most=64),
    "message for many readers": Row(_stream_readers, _sends(message("", "q"))),
    "delete of delays": Row(_delayed, _sends(method(1, "exchange.delete", exchange="x"))),
    "commit of a deep queue": Row(
        _deep_staged, lambda at: _commits(at, queues=["staged"]), most=8_704, judged=True
    ),
    "commit": Row(_staged, _commits, judged=True),
    "repeated commit": Row(_staged_again, _commits, judged=True),
    "repeated commit in a transaction": Row(
        _staged_in_tx, _sends(method(1, "tx.commit")), tells="tx.commit-ok", most=224, judged=True
    ),
    "commit over a lower batch": Row(
        lambda at: _staged(at, (1, 2)), lambda at: _commits(at, 2, lower="drop"), judged=True
    ),
    "forget of sinks": Row(_sinks, _operator(_forgets), most=352),
    "give of sinks": Row(_sinks, _operator(_gives), most=352),
    "loss of HareMQ's client": Row(_hare_unacked, lambda at: at.more[0].lose()),
    "cancel of HareMQ's client": Row(
        _hare_unacked, _hare_asks("basicCancelRequest", consumer_tag="t", queue_name="q")
    ),
    "close of HareMQ's channel": Row(_hare_unacked, _hare_asks("closeChannelRequest")),
    "list of HareMQ's client": Row(_hare_bound, _hare_asks("basicQueryRequest"), most=2_048),
    "unbind of HareMQ's client": Row(
        _hare_bound, _hare_asks("unbindRequest", exchange_name="x", queue_name="q")
    ),
    "publish of HareMQ's client": Row(
        _hare_fan,
        _hare_asks(
            "basicPublishRequest",
            exchange_name="x",
            body="m",
            properties={"id": "i", "delivery_mode": 2, "routing_key": "k"},
        ),
        heavy=True,
        most=2_368,
    ),
    "long push to HareMQ's client": Row(
        _hare_long, lambda at: at.client.send(publish(1, "", "q", b"\xff" * 400_000)), most=2_304
    ),
    "open of a lost channel": Row(_session, _opens_again, heavy=True, most=2_368),
    "read of full output": Row(_stuck, lambda at: at.client.read_on(), most=704),
    "end of a consumer that is late with its acks": Row(_timed, _ticks(2000), most=1_184),
    "check of late acks": Row(_late_acks, _ticks(60_000), most=224),
    "ack of many with deadlines": Row(_deadlines, _multiple("basic.ack"), most=1_056),
}
