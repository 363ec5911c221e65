"""A deep queue against a plain list, whatever happens between two steps of its disk."""

from __future__ import annotations

import random

import pytest

from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.node.paged import exact, got, no_chance
from support.node.variants import few_of
from support.wire.raw_codec import method, publish

STEPS = 150


class Deep:
    """A node with one queue of persistent messages, and what should wait in it."""

    def __init__(self, seed: int, *, mixed: bool = False) -> None:
        #: With transient messages too.
        self.mixed = mixed
        self.transient: set[int] = set()
        self.chance = random.Random(seed)
        self.node = Node(window_bytes=0)
        self.peer: Peer = self.node.connect()
        self.peer.declare("q")
        self.expected: list[int] = []
        self.out: dict[int, int] = {}
        self.next = 0

    def publish(self) -> None:
        for _ in range(self.chance.randrange(1, 12)):
            mode = 1 if self.mixed and self.chance.random() < 0.4 else 2
            if mode == 1:
                self.transient.add(self.next)
            self.peer.send(publish(1, "", "q", b"%d" % self.next, delivery_mode=mode))
            self.expected.append(self.next)
            self.next += 1

    def get(self) -> None:
        for _ in range(min(self.chance.randrange(1, 9), len(self.expected))):
            message = self.peer.call_get("q")
            assert int(message.body) == self.expected.pop(0)
            self.out[message.delivery_tag] = int(message.body)

    def settle(self) -> None:
        for tag in self.chance.sample(sorted(self.out), len(self.out) // 2):
            number = self.out.pop(tag)
            requeue = self.chance.random() < 0.3
            self.peer.send(method(1, "basic.nack", delivery_tag=tag, requeue=requeue))
            if requeue:
                self.expected = sorted([*self.expected, number])

    def purge(self) -> None:
        if self.chance.random() < 0.2:
            self.peer.call(1, "queue.purge", queue="q")
            self.expected = []

    def write(self) -> None:
        self.node.hold_spill = self.chance.random() < 0.7
        self.node.write_batch()

    def evict(self) -> None:
        """As where the memory is full; what came back leaves it too."""
        queue = self.node.classic("q")
        while queue.evict() and self.chance.random() < 0.8:
            continue

    def checkpoint(self) -> None:
        self.node.step_checkpoint(self.chance.randrange(1, 30))
        self.node.sync()

    def restart(self) -> None:
        self.node.sync()
        crash = self.chance.random() < 0.5
        image = self.node.crashed(no_chance)[0] if crash else self.node.stop()
        self.node = Node(RecordingDisk(image), window_bytes=0)
        self.peer = self.node.connect()
        left = {*self.expected, *self.out.values()} - self.transient
        self.expected = sorted(left)
        self.out = {}


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", few_of(range(12), 6))
def test_a_deep_queue_is_a_list(seed: int, mixed: bool) -> None:
    deep = Deep(seed, mixed=mixed)
    steps = [deep.publish, deep.publish, deep.get, deep.settle, deep.purge, deep.write,
             deep.evict, deep.checkpoint, deep.checkpoint, deep.restart]  # fmt: skip
    for _ in range(STEPS):
        deep.chance.choice(steps)()
        exact(deep.node)
        assert deep.node.classic("q").ready_count() == len(deep.expected)
    deep.restart()
    assert got(deep.peer) == deep.expected
    exact(deep.node)
