"""Compaction: what lives in mostly dead files is copied forward, and the old files go."""

from __future__ import annotations

import random

import pytest

from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer, held
from support.wire.raw_codec import method, publish

DEEP = 0


def fill(peer: Peer, count: int, queue: str = "q", start: int = 0) -> None:
    for number in range(start, start + count):
        peer.send(publish(1, "", queue, b"%04d" % number + b"." * 60, delivery_mode=2))
    peer.node.sync()


def bodies(node: Node, queue: str = "q") -> list[bytes]:
    return [item.message.body[:4] for item in held(node.classic(queue))]


def ack_some(peer: Peer, keep: int) -> None:
    """Get everything; ack all but each `keep`-th, which returns."""
    for number in range(peer.node.classic("q").ready_count()):
        tag = peer.call_get("q").delivery_tag
        if number % keep:
            peer.send(method(1, "basic.ack", delivery_tag=tag))
    peer.call(1, "basic.recover", requeue=True)


def segments(node: Node) -> set[str]:
    return {path for path in node.image().files if path.startswith("segments/")}


def filled(count: int = 60) -> tuple[Node, Peer]:
    node = Node(window_bytes=DEEP)
    peer = node.connect()
    peer.declare("q")
    fill(peer, count)
    return node, peer


def test_what_lives_is_moved_and_the_old_files_go() -> None:
    node, peer = filled()
    ack_some(peer, 7)
    before = bodies(node)
    old = segments(node)
    assert len(before) == 9
    assert node.compact() > 0
    assert bodies(node) == before
    for _ in range(3):
        node.take_checkpoint()
        node.sync()
    assert not old & segments(node)
    use = node.spill.use
    assert use.dead() * 2 < use.bytes_total
    again = Node(RecordingDisk(node.image()))
    assert again.report.damages == []
    assert bodies(again) == before


def test_no_more_is_copied_than_there_is_room_for() -> None:
    """The old files go only later: on a disk that is nearly full the copies must fit first."""
    node, peer = filled()
    ack_some(peer, 7)
    before = bodies(node)
    assert node.compact(room=0) == 0
    assert node.compact(room=100) == 0
    assert node.compact(room=1_000_000) > 0
    assert bodies(node) == before


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_a_crash_after_a_move_finds_all(checkpoints: int) -> None:
    """The old files are there as long as a snapshot or a record of the journal names them."""
    node, peer = filled()
    ack_some(peer, 5)
    before = bodies(node)
    node.compact()
    for _ in range(checkpoints):
        node.take_checkpoint()
        node.sync()
    draw = random.Random(checkpoints).randrange
    for image in node.crashed(draw):
        again = Node(RecordingDisk(image))
        assert again.report.damages == []
        assert again.core.damaged == []
        assert bodies(again) == before


def test_acks_while_a_chunk_moves_are_not_undone() -> None:
    node, peer = filled()
    ack_some(peer, 3)
    tag = peer.call_get("q").delivery_tag
    expected = bodies(node)[1:]
    node.compact()
    peer.send(method(1, "basic.ack", delivery_tag=tag))
    node.sync()
    for _ in range(2):
        assert bodies(node) == expected
        node.take_checkpoint()
        node.sync()
        assert bodies(Node(RecordingDisk(node.image()))) == expected


def test_a_purged_queue_gives_its_files_back() -> None:
    node, peer = filled()
    peer.call(1, "queue.purge", queue="q")
    for _ in range(3):
        node.take_checkpoint()
        node.sync()
    assert segments(node) == set()
    assert node.spill.use.bytes_total == 0
    assert node.spill.use.bytes_live == 0


def test_a_stream_beside_it_is_moved_as_it_is() -> None:
    node, peer = filled(10)
    peer.declare("s", arguments={"x-queue-type": "stream"})
    fill(peer, 20, "s")
    node.take_checkpoint()
    peer.call(1, "queue.purge", queue="q")
    old = segments(node)
    node.compact()
    for _ in range(3):
        node.take_checkpoint()
        node.sync()
    assert not old & segments(node) or node.spill.use.dead() == 0
    again = Node(RecordingDisk(node.image()))
    reader = again.connect(5)
    reader.call(5, "basic.qos", prefetch_count=100)
    values = {"queue": "s", "arguments": {"x-stream-offset": "first"}, "consumer_tag": "c"}
    reader.call(5, "basic.consume", **values)
    assert [body[:4] for body in reader.bodies()] == [b"%04d" % number for number in range(20)]
