"""A delayed exchange `e` for tests: declare it, publish to it, inspect its messages."""

from __future__ import annotations

from typing import Any

from leveret.broker.delayed.delayed import DelayedMessages
from leveret.broker.stats.stats import DelayedStats, delayed_rows
from leveret.message import Message
from leveret.store.disks.recording import Image, RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import publish


def declare(
    peer: Peer, type: str = "direct", *, durable: bool = True, arguments: Any = None
) -> None:
    """Declare the delayed exchange `e`."""
    arguments = {"x-delayed-type": type} | (arguments or {})
    values = {"type": "x-delayed-message", "durable": durable, "arguments": arguments}
    peer.call(1, "exchange.declare", exchange="e", **values)


def bind(peer: Peer, queue: str = "q", key: str = "k", arguments: Any = None) -> None:
    """Declare a durable queue and bind it to `e`."""
    peer.declare(queue)
    values = {"queue": queue, "exchange": "e", "routing_key": key, "arguments": arguments or {}}
    peer.call(1, "queue.bind", **values)


def delay(peer: Peer, ms: Any, body: bytes = b"m", *, key: str = "k", **props: Any) -> None:
    """Publish to `e` with a delay."""
    headers = props.pop("headers", {}) | {"x-delay": ms}
    props = {"delivery_mode": 2} | props
    peer.send(publish(1, "e", key, body, headers=headers, **props))


def drain(peer: Peer, queue: str = "q") -> list[bytes]:
    """Take all messages of a queue."""
    bodies: list[bytes] = []
    while peer.node.vhost.queues.by_name[queue].ready_count() > 0:
        bodies.append(peer.call_get(queue, no_ack=True).body)
    return bodies


def store_of(node: Node) -> DelayedMessages:
    """The delayed messages of `e`."""
    store = node.vhost.exchanges.by_name["e"].delayed
    assert store is not None
    return store


def kept(store: DelayedMessages) -> list[tuple[int, Message]]:
    """The ids and messages of a store, in memory and on the disk."""
    found: list[tuple[int, Message]] = []
    start = 1
    while start > 0:
        rows, start = store.pages.rows_from(start, 3)
        found += [(int(sequence), delayed.message) for sequence, delayed in rows]
    return found


def ids(store: DelayedMessages) -> list[int]:
    """The ids of the messages of a store."""
    return [sequence for sequence, _ in kept(store)]


def listed(node: Node) -> list[DelayedStats]:
    """The management snapshots of `e`."""
    exchange = node.vhost.exchanges.by_name.get("e")
    return [] if exchange is None else list(delayed_rows("/", exchange))


def started(image: Image, like: Node) -> Node:
    """A broker on that disk, at the time of day of `like`."""
    return Node(RecordingDisk(image), clock=like.clock)


def restarted(node: Node) -> Node:
    """Kill the broker after syncing everything, and start it again."""
    node.sync()
    return started(node.image(), node)
