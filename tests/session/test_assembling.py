"""Contents that are not complete and open transactions are bounded for each connection (506)."""

from __future__ import annotations

import tracemalloc

import pytest

from leveret.session.channel.content import BODY_AHEAD_BYTES
from support.node.core import Node, Peer
from support.wire.raw_codec import frame, header, method, properties, publish

MOST = 1000
BODY = 3


def body(channel: int, data: bytes) -> bytes:
    return frame(BODY, channel, data)


@pytest.fixture
def small(node: Node) -> Peer:
    """A connection that may hold `MOST` bytes, with channels 1 and 2 open."""
    peer = node.connect(1, 2)
    peer.connection.assembling_bytes_max = MOST
    return peer


def begin(channel: int, size: int) -> bytes:
    return method(channel, "basic.publish", routing_key="q") + header(channel, size)


def test_contents_of_all_channels_count(small: Peer) -> None:
    """At the limit it goes on; one byte past it the connection ends."""
    small.send(begin(1, 700), body(1, bytes(600)), begin(2, 700), body(2, bytes(400)))
    assert small.connection.assembling_bytes == MOST
    small.send(body(1, b"x"))
    assert small.expect(0, "connection.close").fields["code"] == 506


def test_what_is_complete_counts_no_more(small: Peer) -> None:
    small.send(begin(1, 700), body(1, bytes(600)), body(1, bytes(100)))
    assert small.connection.assembling_bytes == 0


def test_a_closed_channel_counts_no_more(small: Peer) -> None:
    small.send(begin(1, 700), body(1, bytes(600)))
    small.send(method(2, "channel.close", code=200))
    assert small.connection.assembling_bytes == 600
    small.node.run()
    small.lose()
    assert small.connection.assembling_bytes == 0


def test_transactions_count_until_they_end(small: Peer) -> None:
    small.call(1, "tx.select")
    small.send(publish(1, "", "q", bytes(600)))
    assert 600 <= small.connection.assembling_bytes <= MOST
    small.call(1, "tx.rollback")
    assert small.connection.assembling_bytes == 0
    small.send(publish(1, "", "q", bytes(600)), publish(1, "", "q", bytes(600)))
    assert small.expect(0, "connection.close").fields["code"] == 506


@pytest.mark.parametrize("sizes", [[3], [1, 2], [0, 3], [0, 1, 0, 2], [1, 0, 1, 1]])
def test_a_body_is_whole_however_it_comes(node: Node, sizes: list[int]) -> None:
    """In as many frames as the client likes, also empty ones, and one body after the other."""
    peer = node.connect()
    peer.declare("q")
    for text in (b"abc", b"def"):
        peer.send(begin(1, 3))
        at = 0
        for size in sizes:
            peer.send(body(1, text[at : at + size]))
            at += size
        assert peer.call_get("q").body == text
    assert node.core.memory.assembling_bytes == 0


def test_a_large_body_is_in_memory_once(node: Node) -> None:
    """Neither its assembling nor its deliveries nor the journal make a copy of it.

    Of a larger one, the journal has a limited number of bytes more until they are synced.
    """
    peer = node.connect()
    peer.declare("q")
    size = BODY_AHEAD_BYTES - 1
    piece = bytes(range(256)) * 400
    tracemalloc.start()
    try:
        peer.send(method(1, "basic.publish", routing_key="q"))
        peer.send(header(1, size, properties(delivery_mode=2)))
        for start in range(0, size, len(piece)):
            peer.send(body(1, piece[: size - start]))
        node.begin_sync()
        assert node.group is not None
        parts = [b"".join(peer.connection.take_output()), *node.group.parts]
        assert max(len(part) for part in parts) == size
        for _ in range(3):
            getter = node.connect()
            getter.reads = False
            getter.receive(method(1, "basic.get", queue="q"))
            assert sum(len(part) for part in getter.connection.take_output()) > size
            getter.lose()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # BytesIO grows by an eighth at a time.
    assert peak < 1.5 * size


@pytest.mark.parametrize("piece_bytes", [100, 4103, 5000, 10_007, 65_536])
def test_messages_come_whole_and_in_order_whatever_pieces_they_come_in(
    peer: Peer, piece_bytes: int
) -> None:
    sizes = [number * 379 % 7000 for number in range(100)]
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    peer.declare("q")
    peer.call(1, "confirm.select")
    peer.call(1, "basic.consume", queue="q", no_ack=True)
    raw = b"".join(publish(1, "", "q", body) for body in bodies)
    for at in range(0, len(raw), piece_bytes):
        peer.send(raw[at : at + piece_bytes])
    peer.node.run()
    heard = peer.take()
    assert [one.body for one in heard if one.name == "basic.deliver"] == bodies
    assert max(one.delivery_tag for one in heard if one.name == "basic.ack") == len(bodies)
    assert peer.connection.input_bytes_held() == 0


def test_a_large_body_counts_whole_when_a_quarter_of_it_has_come(node: Node) -> None:
    """From then on its memory is taken; none of it counts when the connection is lost."""
    size = 20 * 1024 * 1024
    piece = body(1, bytes(131_064))
    quarter = size // 4 // 131_064
    peer = node.connect(1)
    # The limit of a connection is for what it has sent.
    peer.connection.assembling_bytes_max = (quarter + 1) * 131_064
    peer.send(begin(1, size))
    for _ in range(quarter):
        peer.send(piece)
    assert node.core.memory.assembling_bytes == quarter * 131_064 < size // 4
    peer.send(piece)
    assert node.core.memory.assembling_bytes == size
    assert peer.connection.assembling_bytes == peer.connection.assembling_bytes_max
    peer.send(piece)
    assert peer.expect(0, "connection.close").fields["code"] == 506
    peer.lose()
    assert peer.connection.assembling_bytes == node.core.memory.assembling_bytes == 0
