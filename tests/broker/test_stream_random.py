"""A stream against a plain list, whatever happens between two steps of its disk."""

from __future__ import annotations

import random

import pytest

from leveret.broker.stream.stream import Stream
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.node.paged import no_chance
from support.node.variants import few_of
from support.wire.raw_codec import decode_properties, method, publish

STEPS = 150

ARGUMENTS: tuple[dict[str, object], ...] = (
    {},
    {"x-max-length-bytes": 900},
    {"x-max-length-bytes": 900, "x-stream-max-segment-size-bytes": 300},
    {"x-max-age": "3s"},
    {"x-max-age": "3s", "x-max-length-bytes": 2000, "x-stream-max-segment-size-bytes": 200},
)


class Reading:
    """A consumer and what it was given."""

    def __init__(self, peer: Peer, start: int) -> None:
        self.peer = peer
        self.next = start


class Log:
    """A node with one stream, its disk held back at random, and the times of its messages."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.arguments = {"x-queue-type": "stream", **self.chance.choice(ARGUMENTS)}
        self.times: list[int] = []
        self.synced = 0
        self.begin(Node())

    def begin(self, node: Node) -> None:
        """Go on with a node."""
        self.node = node
        node.core.memory.page_bytes = 60
        node.core.stream_cache.bytes_max = self.chance.choice((0, 2000, 10_000))
        self.peer = node.connect()
        self.peer.declare("s", arguments=self.arguments)
        self.readings: list[Reading] = []

    @property
    def stream(self) -> Stream:
        queue = self.node.vhost.queues.existing(Name("s"), None)
        assert isinstance(queue, Stream)
        return queue

    def publish(self) -> None:
        for _ in range(self.chance.randrange(1, 15)):
            body = b"%d:" % len(self.times) + bytes(self.chance.choice((0, 1, 20, 90)))
            mode = self.chance.choice((1, 2))
            self.peer.send(publish(1, "", "s", body, delivery_mode=mode))
            self.times.append(self.node.clock.wall_ms())

    def sync(self) -> None:
        self.node.sync()
        self.synced = len(self.times)

    def wait(self) -> None:
        self.node.tick(self.chance.choice((1, 10, 700)))

    def write(self) -> None:
        self.node.hold_spill = self.chance.random() < 0.7
        self.node.write_batch()

    def read(self) -> None:
        self.node.hold_reads = self.chance.random() < 0.5
        if self.chance.random() < 0.7:
            self.node.read_wanted()
            self.node.run()

    def consume(self) -> None:
        start = self.chance.randrange(0, len(self.times) + 2)
        reader = self.node.connect()
        reader.call(1, "basic.qos", prefetch_count=self.chance.choice((1, 3, 50)))
        reader.call(1, "basic.consume", queue="s", arguments={"x-stream-offset": start})
        self.readings.append(Reading(reader, start))

    def ack(self) -> None:
        for reading in self.readings:
            if self.chance.random() < 0.7:
                reading.peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))

    def hear(self) -> None:
        """Judge what the readers were given: all of it, in order, but for what retention took."""
        for reading in self.readings:
            for got in reading.peer.take():
                if got.name != "basic.deliver":
                    continue
                offset = int(decode_properties(got.properties)["headers"]["x-stream-offset"])
                assert int(got.body.split(b":")[0]) == offset < self.stream.visible_end
                # It passes by what is gone, never more.
                assert reading.next <= offset <= max(reading.next, int(self.stream.first_offset))
                reading.next = offset + 1

    def find(self) -> None:
        wanted = self.node.clock.wall_ms() - self.chance.randrange(-5, 4000)
        if self.times and self.chance.random() < 0.7:
            wanted = self.chance.choice(self.times) + self.chance.choice((0, 0, 1))
        first, end = int(self.stream.first_offset), int(self.stream.visible_end)
        found = [offset for offset in range(first, end) if self.times[offset] >= wanted]
        assert self.stream.offset_at(wanted) == (found[0] if found else end)
        before = [offset for offset in range(first, end) if self.times[offset] < wanted]
        assert self.stream.end_at(wanted) == (before[-1] + 1 if before else first)

    def checkpoint(self) -> None:
        self.node.step_checkpoint(self.chance.randrange(1, 30))
        self.sync()

    def compact(self) -> None:
        if self.node.checkpoint is None:
            self.release()
            self.node.compact()
            self.synced = len(self.times)

    def release(self) -> None:
        self.node.hold_spill = self.node.hold_reads = False
        self.node.run()
        self.node.read_wanted()
        self.node.run()

    def restart(self) -> None:
        """Stop or crash; what was not synced may be gone."""
        self.hear()
        if self.chance.random() < 0.5:
            self.release()
            image = self.node.stop()
            self.synced = len(self.times)
        else:
            image = self.node.crashed(no_chance)[0]
        first = int(self.stream.first_offset)
        clock = self.node.clock
        self.begin(Node(RecordingDisk(image), clock=clock))
        del self.times[self.synced :]
        assert self.stream.next_offset == self.synced
        assert self.stream.first_offset <= first
        self.whole()

    def whole(self) -> None:
        """Read all there is and count it."""
        self.release()
        reader = self.node.connect()
        reader.call(1, "basic.qos", prefetch_count=60_000)
        reader.call(1, "basic.consume", queue="s", arguments={"x-stream-offset": "first"})
        first, end = int(self.stream.first_offset), int(self.stream.visible_end)
        bodies = reader.bodies()
        assert [int(body.split(b":")[0]) for body in bodies] == list(range(first, end))
        reader.lose()

    def exact(self) -> None:
        """Judge what the broker counts."""
        stream, core = self.stream, self.node.core
        held = [block for block in stream.blocks if block.messages is not None]
        assert core.memory.held_messages == sum(block.count for block in held)
        assert core.memory.held_bytes == sum(block.size for block in held)
        assert core.memory.unchunked_bytes == stream.last.size
        assert stream.size == sum(block.size for block in stream.blocks)
        live = sum(block.ref.size // block.ref.count * block.ref.count for block in stream.blocks
                   if block.ref is not None)  # fmt: skip
        assert core.spill.use.bytes_live == live
        cached = set(core.stream_cache.blocks)
        assert cached <= set(held)
        for block in stream.blocks[:-1]:
            assert block.ref is not None
            assert block in held or block.written
            assert block in held or block.end <= stream.visible_end
            assert block.end == stream.blocks[stream.blocks.index(block) + 1].first


@pytest.mark.parametrize("seed", few_of(range(20), 8))
def test_a_stream_is_a_list(seed: int) -> None:
    log = Log(seed)
    steps = [log.publish, log.publish, log.publish, log.sync, log.sync, log.wait, log.write,
             log.read, log.consume, log.ack, log.ack, log.find, log.checkpoint, log.checkpoint,
             log.compact, log.restart]  # fmt: skip
    weights = [1] * (len(steps) - 2) + [0.3, 0.3]
    for _ in range(STEPS):
        log.chance.choices(steps, weights)[0]()
        log.hear()
        log.exact()
    log.sync()
    log.whole()
    log.restart()
