"""Where a consumer of a stream begins: `x-stream-offset` beyond what `test_stream` has of it.

Sources: RabbitMQ's streams over AMQP 0-9-1; negative offsets as LavinMQ.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.clock import ManualClock
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import Typed, method, publish


@pytest.fixture
def peer(node: Node) -> Peer:
    """A connection that declared the stream `s`."""
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    return peer


def put(peer: Peer, *bodies: bytes) -> None:
    """Publish to the stream and sync."""
    peer.send(*[publish(1, "", "s", body) for body in bodies])
    peer.node.sync()


def consume(node: Node, offset: Any, prefetch: int = 1000) -> Peer:
    """A new connection that consumes the stream from `offset`."""
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=prefetch)
    reader.call(1, "basic.consume", queue="s", arguments={"x-stream-offset": offset})
    return reader


def numbers(reader: Peer) -> list[int]:
    """The bodies that came, as numbers."""
    return [int(body) for body in reader.bodies()]


def test_a_negative_offset_counts_from_the_end(node: Node, peer: Peer) -> None:
    """Of what is seen: what is not synced yet does not count."""
    put(peer, *[b"%d" % number for number in range(10)])
    peer.send(publish(1, "", "s", b"10"))
    starts = {-1: 9, -3: 7, -10: 0, -11: 0, -(2**63): 0}
    readers = {at: consume(node, at) for at in starts}
    node.sync()
    for at, start in starts.items():
        assert numbers(readers[at]) == list(range(start, 11)), at


def test_behind_a_timestamp_all_is_read_though_a_clock_was_set_back(node: Node, peer: Peer) -> None:
    put(peer, b"0")
    node.tick(60_000)
    put(peer, b"1")
    image = node.stop()
    again = Node(RecordingDisk(image), clock=ManualClock(node.clock.wall_ms() - 50_000))
    put(again.connect(), b"2")
    again.tick(50_000)
    assert numbers(consume(again, "10s")) == [1, 2]


def test_a_timestamp_in_a_chunk_on_the_disk_is_found_by_a_reader_without_room(
    node: Node, peer: Peer
) -> None:
    """What is passed over costs no credit: the first message that comes is the one wanted."""
    for number in range(20):
        put(peer, b"%d" % number)
        node.tick(1000)
    node.take_checkpoint()
    reader = consume(node, Typed("T", node.clock.wall_ms() // 1000 - 7), prefetch=1)
    assert numbers(reader) == [13]
    reader.send(method(1, "basic.ack", delivery_tag=1))
    assert numbers(reader) == [14]
