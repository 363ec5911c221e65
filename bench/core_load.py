"""A load on the broker's core without sockets, for a tool that counts instructions.

    valgrind --tool=callgrind --zero-before=getppid --dump-before=getpgrp \
        .venv/bin/python bench/core_load.py confirms

One connection publishes, and another one consumes, both by the bytes that sockets would bring.  The
calls of `getppid` and `getpgrp` mark the beginning and the end of what counts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from leveret.store.disks.memory import MemoryDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

#: The messages of one read from the publisher's socket, and the reads that warm up and that count.
BATCH: Final = 500
WARM: Final = 2
COUNTED: Final = 6

MESSAGES: Final = BATCH * COUNTED


@dataclass(frozen=True)
class Load:
    """What the clients do: acks and confirms, or neither; durable or not."""

    acks: bool
    durable: bool


LOADS: Final = {
    "auto-ack": Load(acks=False, durable=False),
    "confirms": Load(acks=True, durable=False),
    "durable": Load(acks=True, durable=True),
}


def prepared(load: Load) -> Callable[[], None]:
    """Connect the clients to a broker; return what publishes and delivers one batch."""
    node = Node(MemoryDisk())
    publisher, consumer = node.connect(), node.connect()
    publisher.declare("q", durable=load.durable)
    if load.acks:
        publisher.call(1, "confirm.select")
    consumer.call(1, "basic.qos", prefetch_count=2 * BATCH)
    consumer.call(1, "basic.consume", queue="q", no_ack=not load.acks)
    mode: dict[str, Any] = {"delivery_mode": 2} if load.durable else {}
    publishes = publish(1, "", "q", b"x" * 16, **mode) * BATCH
    delivered = 0

    def batch() -> None:
        nonlocal delivered
        feed(node, publisher, publishes)
        delivered += BATCH
        if load.acks:
            ack = method(1, "basic.ack", delivery_tag=delivered, multiple=True)
            feed(node, consumer, ack)

    return batch


def feed(node: Node, peer: Peer, data: bytes) -> None:
    """Pass bytes to the broker as its event loop does, sync, and discard the output."""
    peer.connection.receive(data, 0)
    work(node)
    group = node.journal.seal()
    if group is not None:
        node.files.write(group)
        node.core.syncs.synced(group.number)
        work(node)


def work(node: Node) -> None:
    """Run the core until it is idle, and discard the output."""
    core = node.core
    while True:
        node.broker.settle(True)
        woken = core.take_woken(512)
        for link in woken:
            node.peers[link].connection.take_output()
            node.peers[link].connection.flushed(False)
        if not woken and not core.scheduler.must_go_on():
            return


def main() -> None:
    """Run the load that the command line names."""
    batch = prepared(LOADS[sys.argv[1]])
    for _ in range(WARM):
        batch()
    os.getppid()
    for _ in range(COUNTED):
        batch()
    os.getpgrp()


if __name__ == "__main__":
    main()
