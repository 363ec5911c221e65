"""A stream as chunks: stored ones as they lie, the tail built, and who waits at the end."""

from __future__ import annotations

import pytest

from leveret.broker.stream.chunks import StreamPart, next_part
from leveret.broker.stream.stream import Stream, StreamWatcher
from leveret.chunk import Chunk
from leveret.names import Name
from leveret.store.segments.segments import read_chunk_bytes
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def peer(node: Node) -> Peer:
    """A connection that declared the stream `s`."""
    peer = node.connect()
    peer.declare("s", arguments=STREAM)
    return peer


def stream(node: Node) -> Stream:
    """The stream `s`."""
    queue = node.vhost.queues.existing(Name("s"), None)
    assert isinstance(queue, Stream)
    return queue


def put(peer: Peer, first: int, end: int) -> None:
    """Publish numbers to the stream and sync."""
    peer.send(*[publish(1, "", "s", b"%d" % number) for number in range(first, end)])
    peer.node.sync()


def read(node: Node, part: StreamPart) -> list[tuple[int, int]]:
    """The offsets and bodies of a part, as numbers."""
    data = part.data if part.ref is None else read_chunk_bytes(node.disk, part.ref)
    chunk = Chunk(data)
    assert (chunk.owner, chunk.last + 1) == (stream(node).queue_id, part.end)
    assert not chunk.damaged()
    rows = range(int(chunk.count))
    return [(int(chunk.sequence(row)), int(chunk.message(row).body)) for row in rows]


def read_from(node: Node, offset: int) -> list[list[tuple[int, int]]]:
    """All parts from an offset on."""
    parts = []
    while (part := next_part(stream(node), offset)) is not None:
        assert part.end > offset
        parts.append(read(node, part))
        offset = int(part.end)
    return parts


def pairs(first: int, end: int) -> list[tuple[int, int]]:
    """What was put at these offsets."""
    return [(number, number) for number in range(first, end)]


def test_the_tail_is_built_from_the_offset_on(node: Node, peer: Peer) -> None:
    put(peer, 0, 10)
    assert read_from(node, 0) == [pairs(0, 10)]
    assert read_from(node, 7) == [pairs(7, 10)]
    assert read_from(node, 10) == []
    assert read_from(node, 99) == []


def test_what_is_not_synced_is_not_handed_out(node: Node, peer: Peer) -> None:
    put(peer, 0, 3)
    peer.send(publish(1, "", "s", b"3"))
    assert read_from(node, 0) == [pairs(0, 3)]
    assert next_part(stream(node), 3) is None
    node.sync()
    assert read_from(node, 3) == [pairs(3, 4)]


def test_a_stored_chunk_comes_whole_and_as_it_lies(node: Node, peer: Peer) -> None:
    put(peer, 0, 10)
    node.take_checkpoint()
    put(peer, 10, 12)
    part = next_part(stream(node), 4)
    assert part is not None
    assert part.ref is not None
    assert read(node, part) == pairs(0, 10)
    assert read_from(node, 0) == [pairs(0, 10), pairs(10, 12)]


def test_an_empty_stream_has_no_part(node: Node, peer: Peer) -> None:
    assert read_from(node, 0) == []


class Watcher(StreamWatcher):
    """Counts how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def moved(self) -> None:
        """Count."""
        self.calls += 1


def test_who_watches_is_called_once_when_more_is_seen(node: Node, peer: Peer) -> None:
    watcher, gone = Watcher(), Watcher()
    stream(node).watch(watcher)
    stream(node).watch(gone)
    stream(node).unwatch(gone)
    stream(node).unwatch(gone)
    peer.send(publish(1, "", "s", b"0"))
    assert watcher.calls == 0
    node.sync()
    put(peer, 1, 2)
    assert (watcher.calls, gone.calls) == (1, 0)


def test_who_watches_hears_of_the_end_of_the_stream(node: Node, peer: Peer) -> None:
    watcher = Watcher()
    stream(node).watch(watcher)
    peer.send(method(1, "queue.delete", queue="s"))
    assert watcher.calls == 1
