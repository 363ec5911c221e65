"""What a snapshot leaves out is told by a check, and brought back by a salvage.

A checkpoint whose hand-over ends too early stands for one that went on after an exception, as those
of earlier releases did: the snapshot is whole as far as checksums go.
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterator
from pathlib import Path

from leveret.broker.policies.policy import make_policy
from leveret.broker.recovery.checkpoint import BrokerCheckpoint
from leveret.broker.stream.stream import Stream
from leveret.limits import SLICE_MESSAGES
from leveret.store.checkpoint.checkpoint import CheckpointOutput, CheckpointSource, NewChunk
from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.survey.salvage import Salvage, write_salvage
from leveret.store.survey.survey import Survey
from support.node.core import Node, all_waiting
from support.node.exporting import export_definitions
from support.wire.raw_codec import publish

#: A directory that 06a8cc1 left after some checkpoints that met a limit that cannot be written.
SPECIMEN = Path(__file__).parent.parent / "kept" / "06a8cc1-left-out.zip"

UUID = bytes(range(16, 32))


class Forgetful(CheckpointSource):
    """A hand-over, an item at a time, that ends after so many of them."""

    def __init__(self, source: CheckpointSource, items: int) -> None:
        self.left = items
        self._source = source

    def begin(self, group: int) -> None:
        self._source.begin(group)

    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        for _ in self._source.hand_over(out):
            self.left -= 1
            if self.left == 0:
                return
            yield SLICE_MESSAGES
        self.left -= 1

    def chunked(self, chunk: NewChunk) -> None:
        self._source.chunked(chunk)


def filled() -> Node:
    """Return a broker with some of everything, a part of it in a checkpoint."""
    node = Node()
    node.add_user("other", "monitoring", configure=".*")
    node.broker.users.set_limits("other", {"max-channels": 7})
    node.broker.users.set_topic_permission("other", "/", "amq.topic", ".*", "")
    node.broker.add_vhost("empty")
    peer = node.connect()
    fill(node)
    node.take_checkpoint()
    node.vhost.policies.set(make_policy("late", "^none$", {"max-length": 5}, 0, "queues", False))
    node.broker.parameters.set_global("late", 1)
    for number in range(4):
        peer.send(publish(1, "", "q", b"late %d" % number, delivery_mode=2))
        peer.send(publish(1, "", "s", b"late %d" % number))
    peer.declare("later")
    peer.call(1, "queue.bind", queue="later", exchange="amq.direct", routing_key="k")
    peer.send(publish(1, "amq.direct", "k", b"routed", delivery_mode=2))
    peer.call_get("q", no_ack=True)
    node.sync()
    return node


def fill(node: Node) -> None:
    """Declare a queue and a stream and publish to them."""
    peer = node.connect()
    peer.declare("q")
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.call(1, "exchange.declare", exchange="x", type="fanout", durable=True)
    peer.call(1, "queue.bind", queue="q", exchange="x")
    for number in range(4):
        peer.send(publish(1, "x", "", b"early %d" % number, delivery_mode=2))
        peer.send(publish(1, "", "s", b"early %d" % number))
    node.sync()


def seen(node: Node) -> tuple[object, dict[str, list[bytes]]]:
    """Return definitions and messages."""
    definitions = export_definitions(node.broker)
    bodies: dict[str, list[bytes]] = {}
    for name in node.vhost.queues.by_name:
        queue = node.vhost.queues.by_name[name]
        if isinstance(queue, Stream):
            bodies[name] = [b"%d" % (queue.visible_end - queue.first_offset)]
        else:
            bodies[name] = [item.message.body for item in all_waiting(node.classic(name))]
    return {name: _sorted(definitions[name]) for name in sorted(definitions)}, bodies


def _sorted(value: object) -> object:
    return sorted(map(str, value)) if isinstance(value, list) else value


def surveyed(image: Image, *, keep: bool = False) -> Survey:
    """Return a survey of what lies on a disk."""
    survey = Survey(RecordingDisk(image), keep)
    for _ in survey.run():
        pass
    return survey


def test_whatever_a_snapshot_leaves_out_is_told_and_salvaged() -> None:
    for items in itertools.count(1):
        node = filled()
        before = seen(node)
        source = Forgetful(BrokerCheckpoint(node.broker), items)
        now_ms = node.clock.wall_ms()
        node.checkpoint = node.checkpoints.begin(node.journal, source, now_ms)
        node.take_checkpoint()
        image = node.image()
        after = seen(Node(RecordingDisk(image)))
        survey = surveyed(image)
        told = [str(damage) for damage in survey.damages]
        assert bool(told) == (after != before), (items, told)
        assert survey.costly == bool(told)
        saved = surveyed(image, keep=True)
        assert not saved.costly
        disk = RecordingDisk()
        for _ in write_salvage(disk, Salvage(saved), UUID, now_ms):
            pass
        assert seen(Node(RecordingDisk(disk.image()))) == before, (items, told)
        if source.left > 0:
            break
    assert items > 20


def test_a_snapshot_that_was_not_completed_is_named_and_is_no_damage() -> None:
    node = filled()
    node.step_checkpoint(1)
    node.step_checkpoint(1)
    survey = surveyed(node.image())
    assert [found.path for found in survey.torn] == ["state/0000000000000002.new"]
    assert survey.damages == []


def test_a_directory_of_an_earlier_release_that_lost_a_queue_is_not_called_whole() -> None:
    with zipfile.ZipFile(SPECIMEN) as kept:
        files = {name: kept.read(name) for name in kept.namelist()}
    image = Image(files, {"journal", "state", "segments", "quarantine"})
    survey = surveyed(image)
    assert survey.state_whole
    told = [damage.what for damage in survey.damages]
    assert told == [
        "679 messages of the unexplained queue 1 are missing",
        "the unexplained queue 1 has messages but no definition",
    ]
    assert survey.lost == 680
    saved = Salvage(surveyed(image, keep=True))
    disk = RecordingDisk()
    for _ in write_salvage(disk, saved, UUID, 0):
        pass
    node = Node(RecordingDisk(disk.image()))
    waiting = all_waiting(node.classic("leveret.recovered.1"))
    numbers = [int(item.message.body.partition(b".")[0]) for item in waiting]
    # All that the generation before it still has, and not only what the newest journal has.
    assert numbers == list(range(4000 - 679 - 564, 4000))
