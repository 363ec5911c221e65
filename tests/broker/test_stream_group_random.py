"""Random steps of consumers that read under one name, against what a client may rely on.

When a message comes, all before it are done, or the same consumer was given them since it became
active; the stored offset never lies behind a message that is not done; in the end all were done.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from leveret.broker.stream.offsets import STREAM_OFFSETS_MS
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import decode_properties, method, publish

STEPS = 150


@dataclass(eq=False)
class Client:
    """A connection with one consumer of the name."""

    peer: Peer
    #: Deliveries by their tag: stream and offset.
    out: dict[int, tuple[str, int]] = field(default_factory=dict)
    #: What it was given since it became active in a stream.
    given: dict[str, set[int]] = field(default_factory=dict)
    consuming: bool = True


class World:
    """A stream, or a super stream, with clients that come and go."""

    def __init__(self, seed: int, partitions: int) -> None:
        self.chance = random.Random(seed)
        self.node = Node(RecordingDisk(), seed=seed)
        self.partitions = partitions
        self.clients: list[Client] = []
        self.done: dict[str, set[int]] = {}
        self.active: dict[str, Client] = {}
        self.sent = 0
        peer = self.node.connect()
        arguments: dict[str, Any] = {"x-queue-type": "stream"}
        if partitions:
            arguments["x-super-stream-partitions"] = partitions
        peer.declare("s", arguments=arguments)
        self.publisher = peer

    @property
    def streams(self) -> list[str]:
        """The names of the streams."""
        return [f"s-{number}" for number in range(self.partitions)] or ["s"]

    # -- steps -------------------------------------------------------------------------------------

    def publish(self) -> None:
        for _ in range(self.chance.randint(1, 30)):
            self.sent += 1
            exchange, key = ("s", f"k{self.sent}") if self.partitions else ("", "s")
            self.publisher.send(publish(1, exchange, key, b""))
        self.node.sync()

    def come(self) -> None:
        if len(self.clients) < 5:
            peer = self.node.connect()
            peer.call(1, "basic.qos", prefetch_count=self.chance.randint(1, 12))
            arguments = {
                "x-stream-consumer": "app",
                "x-stream-offset": "first",
                "x-priority": self.chance.choice((0, 0, 0, 1)),
            }
            peer.send(method(1, "basic.consume", queue="s", consumer_tag="c", arguments=arguments))
            peer.expect(1, "basic.consume-ok")
            self.clients.append(Client(peer))

    def some(self) -> Client | None:
        """Any of the clients."""
        return self.chance.choice(self.clients) if self.clients else None

    def settle(self) -> None:
        client = self.some()
        for tag in self.chance.sample(sorted(client.out), len(client.out)) if client else []:
            assert client is not None
            if self.chance.random() < 0.3:
                continue
            stream, offset = client.out.pop(tag)
            if self.chance.random() < 0.05:
                client.peer.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
                continue
            name = "basic.ack" if self.chance.random() < 0.9 else "basic.reject"
            # Before it is sent: what it lets come is judged by it.
            self.done.setdefault(stream, set()).add(offset)
            client.peer.send(method(1, name, delivery_tag=tag))

    def cancel(self) -> None:
        client = self.some()
        if client is not None and client.consuming:
            client.consuming = False
            client.peer.send(method(1, "basic.cancel", consumer_tag="c"))
            self.node.sync()
            self.hear(client, "basic.cancel-ok")

    def leave(self) -> None:
        client = self.some()
        if client is not None:
            self.clients.remove(client)
            client.peer.lose()

    def wait(self) -> None:
        self.node.tick(self.chance.choice((10, STREAM_OFFSETS_MS)))

    def checkpoint(self) -> None:
        self.node.take_checkpoint()

    def kill(self) -> None:
        """Kill the broker; what was acked since the last record may come again."""
        image = self.node.image()
        self.node = Node(RecordingDisk(image), clock=self.node.clock)
        self.publisher = self.node.connect()
        self.clients.clear()
        self.active.clear()
        self.check_stored()

    # -- what must hold ----------------------------------------------------------------------------

    def hear(self, client: Client, *also: str) -> None:
        """Judge what a client was given."""
        for one in client.peer.take():
            if one.name in also:
                continue
            assert one.name == "basic.deliver", one
            headers = decode_properties(one.properties)["headers"]
            stream, offset = headers.get("x-stream-name", "s"), headers["x-stream-offset"]
            if self.active.get(stream) is not client:
                self.active[stream] = client
                client.given[stream] = set()
            done = self.done.get(stream, set())
            mine = client.given[stream]
            missed = [before for before in range(offset) if before not in done | mine]
            assert not missed, f"{offset} of {stream} came before {missed}"
            mine.add(offset)
            client.out[one.delivery_tag] = (stream, offset)
            holders = [c for c in self.clients if (stream, offset) in c.out.values()]
            assert holders == [client], "two hold it"

    def check_stored(self) -> None:
        for stream in self.streams:
            done = self.done.get(stream, set())
            stored = self.node.stream(stream).offsets.stored.get("app", 0)
            first = next(offset for offset in range(len(done) + 1) if offset not in done)
            assert stored <= first, f"{stream} is stored at {stored}, and {first} is not done"

    def step(self) -> None:
        """Do something, and judge."""
        steps = {
            self.publish: 8, self.come: 4, self.settle: 14, self.cancel: 1, self.leave: 2,
            self.wait: 3, self.checkpoint: 1, self.kill: 1,
        }  # fmt: skip
        self.chance.choices(list(steps), list(steps.values()))[0]()
        for client in list(self.clients):
            self.hear(client)
        self.check_stored()

    def finish(self) -> None:
        """Let all go and one read all that is left."""
        while self.clients:
            self.leave()
        self.come()
        (client,) = self.clients
        self.hear(client)
        while client.out:
            for tag in sorted(client.out):
                stream, offset = client.out.pop(tag)
                self.done.setdefault(stream, set()).add(offset)
                client.peer.send(method(1, "basic.ack", delivery_tag=tag))
            self.hear(client)
        for stream in self.streams:
            end = int(self.node.stream(stream).visible_end)
            assert self.done.get(stream, set()) == set(range(end)), stream


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_passed_over_and_nobody_shares_a_message(seed: int, partitions: int) -> None:
    world = World(seed, partitions)
    for _ in range(STEPS):
        world.step()
    world.finish()
