"""What happens to a stream while its chunks are sent: it moves, loses its front, is deleted.

The broker is in memory, and so is its disk; only the socket is real.  A test does what it likes
before each read of the disk.
"""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Callable
from typing import Any

import pytest

from leveret.broker.stream.stream import Stream
from leveret.limits import HTTP_WRITE_BYTES_MAX
from leveret.management.api import make_runner
from leveret.management.chunk_source import ChunkSource
from leveret.management.connections.connection import OperatorConnections
from leveret.management.metrics.totals import Walks
from leveret.management.operator import Operator
from leveret.management.sampling.sampler import Sampler
from leveret.session.admission import Admission
from leveret.store.segments.segments import ChunkRef, moved_ref, read_part_if_readable
from support.http.http_streams import bodies, split
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

#: What is done before the read of that number.
Doings = dict[int, Callable[[], object]]


class Reads:
    """Reads of the disk, each after what the test does before it."""

    def __init__(self, node: Node, doings: Doings) -> None:
        self._node = node
        self._doings = doings
        self.count = 0

    async def read(self, _owner: int, ref: ChunkRef, at: int, size: int) -> bytes:
        self._doings.get(self.count, int)()
        self.count += 1
        return read_part_if_readable(self._node.disk, ref, at, size)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def peer(node: Node) -> Peer:
    """A connection that declared the stream `s`."""
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream", "x-max-length-bytes": 10_000_000})
    return peer


@pytest.fixture
def stream(node: Node, peer: Peer) -> Stream:
    """The stream `s` with four stored chunks of ten messages and one more message."""
    for first in range(0, 40, 10):
        put(peer, first, first + 10)
        node.take_checkpoint()
    put(peer, 40, 41)
    stream = node.stream("s")
    assert [int(block.first) for block in stream.blocks] == [0, 10, 20, 30, 40]
    return stream


def put(peer: Peer, first: int, end: int) -> None:
    peer.send(*[publish(1, "", "s", b"%d" % number) for number in range(first, end)])
    peer.node.sync()


def asked(node: Node, reads: Reads) -> tuple[bytes, http.client.HTTPMessage]:
    """Return what comes of the stream, over a socket."""

    def ask(port: int) -> tuple[bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.request("GET", "/api/streams/%2F/s/chunks")
            answer = connection.getresponse()
            return answer.read(), answer.headers
        finally:
            connection.close()

    async def nothing(*_: object) -> bytes:
        return b""

    async def run() -> tuple[bytes, http.client.HTTPMessage]:
        sampler = Sampler(Walks(node.broker, node.clock))
        hands: Any = (node.now, nothing, nothing, nothing, node.now, repr, sampler)
        operator = Operator(*hands)
        runner = make_runner(
            node.broker, operator, ChunkSource(reads.read), node.clock, lambda *_: None
        )
        await runner.setup()
        assert runner.server is not None
        connections = OperatorConnections(runner.server, Admission(8), lambda *_: None)
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: connections.make("")[0], "127.0.0.1", 0)
        try:
            return await asyncio.to_thread(ask, listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
            await runner.cleanup()

    return asyncio.run(run())


def numbers(first: int, end: int) -> dict[int, bytes]:
    return {number: b"%d" % number for number in range(first, end)}


def test_nothing_happens(node: Node, stream: Stream) -> None:
    reads = Reads(node, {})
    body, headers = asked(node, reads)
    assert bodies(split(body)) == numbers(0, 41)
    assert reads.count == 4
    assert headers["Leveret-End-Offset"] == "41"


def test_a_chunk_that_moves_is_read_where_it_lies_then(node: Node, stream: Stream) -> None:
    """As compaction does: another place, and nothing where it was."""
    block = stream.blocks[1]
    ref = block.ref
    assert ref is not None
    data = read_part_if_readable(node.disk, ref, 0, int(ref.size))
    elsewhere = moved_ref(ref, 99, 8)

    def move() -> None:
        file = node.disk.open(elsewhere.path, create=True)
        file.append([bytes(8), data])
        file.close()
        block.ref = elsewhere
        node.disk.unlink(ref.path)

    same_file = [other for other in stream.blocks if other.ref is not None and other is not block]
    assert all(other.ref is not None and other.ref.path != ref.path for other in same_file)
    reads = Reads(node, {1: move})
    body, _ = asked(node, reads)
    assert bodies(split(body)) == numbers(0, 41)
    assert reads.count == 5
    assert not node.core.damaged


def test_what_retention_takes_is_left_out(node: Node, stream: Stream) -> None:
    def retain() -> None:
        stream.configure({"x-max-length-bytes": 60})
        stream.retain()
        for ref in refs[:3]:
            node.disk.unlink(ref.path)

    refs = [block.ref for block in stream.blocks if block.ref is not None]
    body, headers = asked(node, Reads(node, {1: retain}))
    assert stream.first_offset == 30
    assert bodies(split(body)) == numbers(0, 10) | numbers(30, 41)
    assert headers["Leveret-First-Offset"] == "0"
    assert not node.core.damaged


def test_an_answer_does_not_look_whole_when_its_stream_is_deleted(
    node: Node, peer: Peer, stream: Stream
) -> None:
    reads = Reads(node, {1: lambda: peer.send(method(1, "queue.delete", queue="s"))})
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        asked(node, reads)


def test_a_chunk_that_cannot_be_read_is_left_out_and_told(node: Node, stream: Stream) -> None:
    ref = stream.blocks[2].ref
    assert ref is not None
    body, headers = asked(node, Reads(node, {2: lambda: node.disk.unlink(ref.path)}))
    assert bodies(split(body)) == numbers(0, 20) | numbers(30, 41)
    assert headers["Leveret-End-Offset"] == "41"
    assert [damaged.ref for damaged in node.core.damaged] == [ref]


def test_a_large_chunk_that_ends_early_does_not_look_whole(node: Node, peer: Peer) -> None:
    body = b"x" * (3 * HTTP_WRITE_BYTES_MAX)
    peer.send(publish(1, "", "s", body))
    peer.node.sync()
    node.take_checkpoint()
    stream = node.stream("s")
    ref = stream.blocks[0].ref
    assert ref is not None
    whole, _ = asked(node, Reads(node, {}))
    assert bodies(split(whole)) == {0: body}
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        asked(node, Reads(node, {2: lambda: node.disk.unlink(ref.path)}))
