"""Clients that stage batches and commit them, for the tests of staging."""

from __future__ import annotations

import json
import struct
from typing import Any

from leveret.broker.scheduler.task import Task
from leveret.broker.sinks.claims import Claim, forget_sinks
from leveret.broker.sinks.commit import COMMIT_KEY
from leveret.broker.sinks.sinks import Sinks
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import publish


def stage_queue(
    peer: Peer,
    name: str,
    batch: int = 1,
    sink: str = "s",
    expires_ms: int = 0,
    destination: str = "",
) -> None:
    """Declare a staging queue."""
    arguments: dict[str, object] = {"x-staging-sink": sink, "x-staging-batch": batch}
    if destination:
        arguments["x-staging-destination"] = destination
    if expires_ms:
        arguments["x-expires"] = expires_ms
    peer.node.sync()
    peer.take()
    peer.declare(name, arguments=arguments)


def start(node: Node, *queues: str, mode: str = "confirm.select", batch: int = 1) -> Peer:
    """A connection with the target `q`, staging queues, and channel 1 in that mode."""
    peer = node.connect()
    peer.declare("q")
    for name in queues:
        stage_queue(peer, name, batch)
    if mode:
        peer.call(1, mode)
    return peer


def stage(
    peer: Peer, queue: str, *bodies: bytes, exchange: str = "", key: str = "q", **more: Any
) -> None:
    """Publish to a staging queue."""
    headers = {"x-staged-exchange": exchange, "x-staged-routing-key": key}
    headers |= more.pop("headers", {})
    props: dict[str, Any] = {"delivery_mode": 2, **more, "headers": headers}
    for body in bodies:
        peer.send(publish(1, "", queue, body, **props))


def packed(*bodies: bytes, properties: bytes = b"\x10\x00\x02") -> bytes:
    """Return the body of a publish with many messages of the same properties."""
    count = len(bodies)
    sizes = [len(properties)] * count + [len(body) for body in bodies]
    numbers = [count, count * len(properties), *sizes]
    return struct.pack(f"<{len(numbers)}I", *numbers) + properties * count + b"".join(bodies)


def stage_packed(peer: Peer, queue: str, body: bytes) -> None:
    """Publish many messages at once to a staging queue."""
    peer.send(publish(1, "", queue, body, headers={"x-staged-batch": True}))


def commit(peer: Peer, *queues: str, batch: int = 1, sink: str = "s", **more: Any) -> None:
    """Publish a commit, without waiting for its outcome."""
    mandatory = more.pop("mandatory", False)
    body = json.dumps({"sink": sink, "batch": batch, "queues": queues, **more}).encode()
    peer.send(publish(1, "", COMMIT_KEY, body, mandatory=mandatory))


def claimed(sinks: Sinks, name: str, destination: str | None = None) -> list[Claim]:
    """Return the sinks of a name, or the one of a destination, with all permissions."""
    return [Claim(sink) for sink in sinks.named(name, destination)]


def forget(node: Node, name: str, destination: str | None = None) -> Task:
    """Begin to forget these sinks."""
    sinks = node.staging.sinks
    return forget_sinks(sinks, name, claimed(sinks, name, destination))


def released(peer: Peer, *queues: str, **more: Any) -> list[str]:
    """Commit, sync and return the names of the received methods."""
    peer.node.sync()
    peer.take()
    commit(peer, *queues, **more)
    peer.node.sync()
    return peer.names()


def bodies(node: Node, queue: str = "q") -> list[bytes]:
    """Take all messages of a queue."""
    node.sync()
    peer = node.connect()
    found = []
    while node.vhost.queues.by_name[queue].ready_count():
        found.append(peer.call_get(queue, no_ack=True).body)
    peer.lose()
    return found


def killed(node: Node) -> Node:
    """The node after a kill; unsynced data, which could be lost, is kept here."""
    return Node(RecordingDisk(node.image()), clock=node.clock)


def checkpointed(node: Node) -> Node:
    node.take_checkpoint()
    return killed(node)


def stopped(node: Node) -> Node:
    return Node(RecordingDisk(node.stop()), clock=node.clock)
