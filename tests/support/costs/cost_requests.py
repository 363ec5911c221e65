"""Random requests to a world: all methods of clients, valid or not, and actions of operators.

A request is one `receive` of one connection: mostly one method, sometimes many of the same kind.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

from leveret.broker.parameters import OPERATOR_POLICY
from leveret.broker.stats.bindings import binding_rows
from leveret.broker.stats.stats import exchange_rows, queue_rows
from leveret.errors import AmqpError
from leveret.management.routes.lists import SLICE_ROWS
from support.costs.cost_gauge import QuickPeer
from support.costs.cost_hare import QuickHare, hare_request
from support.costs.cost_http import HttpClient, http_request
from support.costs.cost_operator import (
    export_request,
    import_request,
    rewind_request,
    user_request,
    vhost_request,
)
from support.costs.cost_readers import reader_request
from support.costs.cost_staging import commit_request, stage_request
from support.costs.cost_worlds import CHANNELS, KINDS, QUEUE_ARGUMENTS, QUOTAS, World, declare
from support.wire.raw_codec import METHOD, frame, header, method, properties, publish

#: Arguments that an exchange may be declared with.
_EXCHANGE_ARGUMENTS: Final[tuple[dict[str, Any], ...]] = (
    {}, {}, {"alternate-exchange": "all"}, {"x-delayed-type": "topic"}, {"hash-header": "a"},
    {"x-recent-history-length": 4_096}, {"alternate-exchange": "amq.fanout"},
    {"x-message-deduplication": True},
)  # fmt: skip

_CONSUMER_ARGUMENTS: Final[tuple[dict[str, Any], ...]] = (
    {}, {}, {}, {"x-priority": 7}, {"x-stream-offset": "first"}, {"x-stream-offset": 3},
    {"x-stream-offset": "last", "x-stream-filter": ["1", "2"]}, {"x-browse": {"position": 0}},
    {"x-browse": {"position": 1_000}}, {"x-browse": {"position": -5}},
    {"x-stream-offset": "first", "x-stream-filter": ["1"] * 256},
)  # fmt: skip

_DEFINITIONS: Final[tuple[dict[str, Any], ...]] = (
    {"message-ttl": 60_000}, {"max-length": 50}, {"expires": 5_000_000}, {"message-ttl": 1},
    {"max-length-bytes": 5_000}, {"dead-letter-exchange": "amq.fanout"}, {"max-length": 1_000_000},
    {"delivery-limit": 3},
)  # fmt: skip

_MANY_ARGUMENTS: Final = method(
    1, "queue.declare", queue="big", arguments={f"x{number}": number for number in range(4_000)}
)
_MANY_COPIES: Final = method(1, "basic.publish") + header(
    1, 0, properties(headers={"CC": ["k"] * 4_000})
)

#: Frames that are malformed, or expensive to parse.
_BROKEN: Final[tuple[Callable[[random.Random], bytes], ...]] = (
    lambda draw: frame(METHOD, 1, draw.randbytes(draw.choice([4, 100, 100_000]))),
    lambda _: method(1, "basic.publish", routing_key="deep") + header(1, 100_000),
    lambda _: frame(METHOD, 1, bytes(120_000))[:60_000],
    lambda _: method(9, "queue.declare"),
    lambda _: _MANY_ARGUMENTS,
    lambda _: _MANY_COPIES,
    lambda _: method(0, "connection.update-secret", new_secret="x"),
    lambda _: frame(8, 0, b""),
)


def one_request(world: World) -> None:
    """Make a request chosen by the world's seed, and run the broker."""
    draw = world.draw
    name = draw.choices(list(REQUESTS), weights=[weight for _, weight in REQUESTS.values()])[0]
    world.gauge.what = name
    world.gauge.number += 1
    REQUESTS[name][0](world)
    chance = draw.random()
    if chance < 0.3:
        world.node.sync()
    elif chance < 0.35:
        world.gauge.what = f"a tick after {name}"
        world.node.tick(draw.choice([1, 20, 1_000, 60_000]))
    _mend(world)


def _mend(world: World) -> None:
    """Reopen closed connections and channels, and resume reading on all clients."""
    for place, peer in enumerate(world.peers):
        if peer.over or peer.connection not in world.node.peers:
            peer.lose()
            world.peers[place] = world.connect(peer.connection.user or "guest")
            continue
        if not peer.reads and world.draw.random() < 0.05:
            peer.read_on()
        for channel in sorted(peer.closed):
            peer.closed.discard(channel)
            peer.tags[channel] = 0
            again = [method(channel, "channel.close-ok"), method(channel, "channel.open")]
            if channel == 2:
                again.append(method(2, "confirm.select", no_wait=True))
            if channel == 3:
                again.append(method(3, "tx.select"))
            peer.send(*again)


def _peer(world: World) -> QuickPeer:
    return world.draw.choices(world.peers, weights=[6, 2, 2, 1, 2])[0]


def _channel(world: World) -> int:
    return world.draw.choices(CHANNELS, weights=[6, 2, 1])[0]


def _often(draw: random.Random) -> int:
    """How often a method is sent at once."""
    return draw.choices([1, 3, 30], weights=[8, 2, 1])[0]


def _send(world: World, name: str, make: Callable[[], dict[str, Any]]) -> None:
    """Send a method, once or often, with values from `make`."""
    channel = _channel(world)
    frames = [method(channel, name, **make()) for _ in range(_often(world.draw))]
    _peer(world).send(*frames)


def _flag(world: World, chance: float = 0.2) -> bool:
    return world.draw.random() < chance


def _new_name(world: World, letter: str) -> str:
    return f"{letter}{world.draw.randrange(max(world.size, 4))}"


def _queue_declare(world: World) -> None:
    def make() -> dict[str, Any]:
        name = world.queue() if _flag(world, 0.4) else _new_name(world, "q")
        return {
            "queue": world.draw.choice([name, name, name, "", "super2"]),
            "passive": _flag(world), "durable": _flag(world, 0.4), "exclusive": _flag(world, 0.1),
            "auto_delete": _flag(world, 0.1), "no_wait": _flag(world),
            "arguments": world.draw.choice(QUEUE_ARGUMENTS),
        }  # fmt: skip

    _send(world, "queue.declare", make)


def _super_declare(world: World) -> None:
    count = world.draw.choice([1, 3, 100, 1_024])
    name = world.draw.choice(["super", "super2", f"super{count}"])
    if name not in world.exchanges:
        world.exchanges.append(name)
        world.queues.append(name)
    _peer(world).send(declare(name, {"x-super-stream-partitions": count}, durable=True))


def _exchange_declare(world: World) -> None:
    def make() -> dict[str, Any]:
        name = world.exchange() if _flag(world, 0.4) else _new_name(world, "e")
        if name not in world.exchanges:
            world.exchanges.append(name)
        return {
            "exchange": name, "type": world.draw.choice(KINDS), "passive": _flag(world, 0.1),
            "durable": _flag(world, 0.4), "auto_delete": _flag(world, 0.1),
            "internal": _flag(world, 0.05), "no_wait": _flag(world),
            "arguments": world.draw.choice(_EXCHANGE_ARGUMENTS),
        }  # fmt: skip

    _send(world, "exchange.declare", make)


def _binding(world: World) -> dict[str, Any]:
    key = world.draw.choice([world.key(), str(world.draw.randrange(200)), "#.a.#.b.#", "*.#.*"])
    match = {"x-match": world.draw.choice(["all", "any"]), "a": world.draw.randrange(9)}
    return {"routing_key": key, "arguments": world.draw.choice([{}, {}, match])}


def _queue_bind(world: World) -> None:
    def make() -> dict[str, Any]:
        ends = {"queue": world.queue(), "exchange": world.exchange(), "no_wait": _flag(world)}
        return ends | _binding(world)

    _send(world, "queue.bind", make)


def _queue_unbind(world: World) -> None:
    def make() -> dict[str, Any]:
        return {"queue": world.queue(), "exchange": world.exchange()} | _binding(world)

    _send(world, "queue.unbind", make)


def _exchange_bind(world: World) -> None:
    name = world.draw.choice(["exchange.bind", "exchange.bind", "exchange.unbind"])

    def make() -> dict[str, Any]:
        ends = {"destination": world.exchange(), "source": world.exchange()}
        return ends | _binding(world)

    _send(world, name, make)


def _queue_delete(world: World) -> None:
    def make() -> dict[str, Any]:
        flags = {"if_unused": _flag(world), "if_empty": _flag(world), "no_wait": _flag(world)}
        return {"queue": world.queue()} | flags

    _send(world, "queue.delete", make)


def _exchange_delete(world: World) -> None:
    def make() -> dict[str, Any]:
        return {"exchange": world.exchange(), "if_unused": _flag(world), "no_wait": _flag(world)}

    _send(world, "exchange.delete", make)


def _queue_purge(world: World) -> None:
    _send(world, "queue.purge", lambda: {"queue": world.queue(), "no_wait": _flag(world)})


def _copy_keys(world: World) -> list[str]:
    return [world.key() for _ in range(world.draw.choice([1, 3, 10, 300, 1_024]))]


def _one_publish(world: World, channel: int) -> bytes:
    draw = world.draw
    headers: dict[str, Any] = {}
    if _flag(world):
        headers |= {"a": draw.randrange(9), "x-delay": draw.choice([1, 1_000, 10**10])}
    if _flag(world, 0.05):
        headers["CC"] = _copy_keys(world)
    if _flag(world, 0.05):
        headers["BCC"] = _copy_keys(world)
    if _flag(world, 0.05):
        headers |= {"x-deduplication-header": str(draw.randrange(99)), "x-deduplication-ttl": 500}
    if _flag(world, 0.05):
        headers |= {f"h{number}": str(number) for number in range(draw.choice([10, 1_000]))}
    props: dict[str, Any] = {"delivery_mode": draw.randint(1, 2), "priority": draw.randrange(12)}
    if headers:
        props["headers"] = headers
    if _flag(world, 0.1):
        props["expiration"] = draw.choice(["0", "1", "5000", "x"])
    name = world.exchange()
    key = world.queue() if not name else world.key()
    body = bytes(draw.choice([0, 10, 1_000, 200_000 if _flag(world, 0.05) else 5]))
    return publish(channel, name, key, body, mandatory=_flag(world), **props)


def _publish(world: World) -> None:
    channel = _channel(world)
    _peer(world).send(*[_one_publish(world, channel) for _ in range(_often(world.draw))])


def _same_publish(world: World) -> None:
    """Publish the same message many times, which is the cheapest way to send much."""
    channel = _channel(world)
    _peer(world).send(_one_publish(world, channel) * 50)


def _consume(world: World) -> None:
    def make() -> dict[str, Any]:
        tag = world.draw.choice(["", _new_name(world, "c")])
        return {
            "queue": world.queue(), "consumer_tag": tag, "no_ack": _flag(world, 0.4),
            "exclusive": _flag(world, 0.05), "no_wait": _flag(world),
            "arguments": world.draw.choice(_CONSUMER_ARGUMENTS),
        }  # fmt: skip

    _send(world, "basic.consume", make)


def _cancel(world: World) -> None:
    def make() -> dict[str, Any]:
        tag = world.draw.choice(["holds", "back", _new_name(world, "c")])
        return {"consumer_tag": tag, "no_wait": _flag(world)}

    _send(world, "basic.cancel", make)


def _get(world: World) -> None:
    _send(world, "basic.get", lambda: {"queue": world.queue(), "no_ack": _flag(world)})


def _settle(world: World) -> None:
    """Ack, reject or nack one delivery, or all up to one, on the channel with the most."""
    peer = _peer(world)
    channel = max(CHANNELS, key=lambda channel: peer.tags[channel])
    name = world.draw.choice(["basic.ack", "basic.ack", "basic.nack", "basic.reject"])
    tag = world.draw.choice([0, 1, max(peer.tags[channel], 1), peer.tags[channel] // 2 + 1])
    values: dict[str, Any] = {"delivery_tag": tag}
    if name != "basic.reject":
        values["multiple"] = tag == 0 or _flag(world, 0.7)
    if name != "basic.ack":
        values["requeue"] = _flag(world, 0.5)
    peer.send(method(channel, name, **values))


def _recover(world: World) -> None:
    name = world.draw.choice(["basic.recover", "basic.recover-async"])
    _send(world, name, lambda: {"requeue": True})


def _qos(world: World) -> None:
    def make() -> dict[str, Any]:
        count = world.draw.choice([0, 1, 10, 1_000, 65_535])
        return {"prefetch_count": count, "global": _flag(world, 0.3)}

    _send(world, "basic.qos", make)


def _flow(world: World) -> None:
    _send(world, "channel.flow", lambda: {"active": _flag(world, 0.7)})


def _modes(world: World) -> None:
    name = world.draw.choice(["confirm.select", "tx.select", "access.request"])
    _send(world, name, dict)


def _end_transaction(world: World) -> None:
    peer = world.peers[0] if _flag(world, 0.6) else _peer(world)
    peer.send(method(3, world.draw.choice(["tx.commit", "tx.commit", "tx.rollback"])))


def _transaction(world: World) -> None:
    """Run a transaction with small and large messages, and acks; it may stay open."""
    draw, peer = world.draw, _peer(world)
    frames: list[bytes] = []
    for _ in range(draw.choice([1, 3, 30])):
        name = world.exchange()
        key = world.queue() if not name else world.key()
        body = bytes(draw.choice([0, 10, 1_000, 20_000, 70_000, 300_000]))
        one = publish(3, name, key, body, delivery_mode=draw.randint(1, 2))
        frames += [one] * (draw.choice([1, 1, 100]) if len(body) <= 1_000 else 1)
    if draw.random() < 0.5:
        queue = world.queue()
        frames += [method(3, "basic.get", queue=queue) for _ in range(draw.choice([1, 30]))]
        peer.send(*frames)
        frames = [method(3, "basic.ack", delivery_tag=peer.tags[3], multiple=True)]
    frames += draw.choice([[], [method(3, "tx.commit")], [method(3, "tx.rollback")]])
    peer.send(*frames)


def _close_channel(world: World) -> None:
    peer, channel = _peer(world), _channel(world)
    peer.send(method(channel, "channel.close", code=200))
    peer.send(method(channel, "channel.open"))
    peer.tags[channel] = 0


def _many_channels(world: World) -> None:
    first = world.draw.randrange(4, 1_000)
    opens = [method(number, "channel.open") for number in range(first, first + 30)]
    closes = [method(number, "channel.close", code=200) for number in range(first, first + 30)]
    _peer(world).send(*world.draw.choice([opens, closes]))


def _end_connection(world: World) -> None:
    peer = _peer(world)
    how = world.draw.randrange(3)
    if how == 0:
        peer.send(method(0, "connection.close", code=200))
    elif how == 1:
        peer.lose()
    else:
        world.node.measure("admin", lambda: peer.connection.force("asked for"))
        world.node.run()


def _unread(world: World) -> None:
    """Make a client stop reading."""
    world.draw.choice(world.peers[1:]).reads = False


def _broken_frames(world: World) -> None:
    _peer(world).send(world.draw.choice(_BROKEN)(world.draw))


def _policy(world: World) -> None:
    """Set or clear an operator policy, as the API does."""
    draw = world.draw
    name = f"p{draw.randrange(20)}"
    pattern = draw.choice([".*", "^q", "^deep", "^none$", "(a|b|c)+x"])
    value = {"pattern": pattern, "definition": draw.choice(_DEFINITIONS)}
    parameters = world.node.broker.parameters

    def change() -> None:
        with contextlib.suppress(AmqpError):
            if draw.random() < 0.6:
                parameters.set("/", OPERATOR_POLICY, name, value)
            else:
                parameters.clear("/", OPERATOR_POLICY, name)

    world.node.measure("admin", change)
    world.node.run()


def _rights(world: World) -> None:
    """Change the permissions of a user, which their connections must notice."""
    users = world.node.broker.users
    pattern = world.draw.choice([".*", "^q", "^$"])
    world.node.measure("admin", lambda: users.set_permission("narrow", "/", ".*", pattern, ".*"))
    world.node.run()


def _alarm(world: World) -> None:
    for on in (True, False):
        world.node.measure("admin", partial(world.node.broker.force_alarm, on))
        world.node.run()


def _hare(world: World) -> None:
    """Send a request of a HareMQ client, on a listener for the same vhost."""
    if not world.hare.is_open():
        world.hare = QuickHare(world.node)
    hare_request(world.hare, world.draw, world.queue(), world.exchange())


def _quotas(world: World) -> None:
    """Change the limits of a user or the vhost, which counts their objects."""
    draw = world.draw
    limits: dict[str, Any] = {draw.choice(QUOTAS): draw.choice([-1, 0, 10, 1_000, 1_000_000])}
    node = world.node

    def change() -> None:
        if draw.random() < 0.5:
            node.broker.users.set_limits("other", limits)
        else:
            node.vhost.limits.add(limits)

    node.measure("admin", change)
    node.run()
    # Existing objects stay, even if they exceed the new limits.
    few = {draw.choice(QUOTAS): draw.choice([0, 10, world.size, 1_000_000])}
    node.measure("admin", lambda: node.broker.users.set_limits("limited", few))
    node.run()
    if draw.random() < 0.8:
        # Otherwise few requests would succeed.
        node.broker.users.clear_limits("other")
        node.vhost.limits.set({})


def _listing(world: World) -> None:
    """Do the work of the API's listings between two polls of the sockets."""
    broker = world.node.broker
    rows: Iterator[object] = world.draw.choice((queue_rows, exchange_rows, binding_rows))(
        broker, None
    )
    for _ in range(3):
        world.node.measure("admin", lambda: _take(rows))


def _take(rows: Iterator[object]) -> None:
    for _ in islice(rows, SLICE_ROWS):
        pass


def _http(world: World) -> None:
    """Send an operator's request to any route of the HTTP API."""
    http = world.http
    if http is None:
        http = world.http = HttpClient(world.node)
    http_request(http, world.draw, world.queue(), world.exchange(), world.gauge)


#: The functions that make requests, with their relative frequencies.
REQUESTS: Final[dict[str, tuple[Callable[[World], None], int]]] = {
    "queue.declare": (_queue_declare, 10),
    "a super stream": (_super_declare, 2),
    "exchange.declare": (_exchange_declare, 8),
    "queue.bind": (_queue_bind, 10),
    "queue.unbind": (_queue_unbind, 6),
    "exchange.bind": (_exchange_bind, 5),
    "queue.delete": (_queue_delete, 4),
    "exchange.delete": (_exchange_delete, 4),
    "queue.purge": (_queue_purge, 4),
    "basic.publish": (_publish, 20),
    "the same basic.publish": (_same_publish, 5),
    "basic.consume": (_consume, 10),
    "basic.cancel": (_cancel, 4),
    "basic.get": (_get, 8),
    "a settlement": (_settle, 10),
    "basic.recover": (_recover, 3),
    "basic.qos": (_qos, 3),
    "channel.flow": (_flow, 1),
    "a mode": (_modes, 1),
    "the end of a transaction": (_end_transaction, 3),
    "a transaction": (_transaction, 4),
    "channel.close": (_close_channel, 3),
    "many channels": (_many_channels, 2),
    "the end of a connection": (_end_connection, 3),
    "a client that reads nothing": (_unread, 1),
    "broken frames": (_broken_frames, 3),
    "a policy": (_policy, 4),
    "permissions": (_rights, 1),
    "an alarm": (_alarm, 1),
    "a frame of HareMQ": (_hare, 12),
    "quotas": (_quotas, 2),
    "a listing": (_listing, 2),
    "definitions that are imported": (import_request, 2),
    "definitions that are exported": (export_request, 1),
    "a vhost": (vhost_request, 2),
    "a rewind": (rewind_request, 2),
    "a user": (user_request, 1),
    "a named consumer": (reader_request, 5),
    "a staged message": (stage_request, 3),
    "a commit": (commit_request, 3),
    "a request over HTTP": (_http, 12),
}
