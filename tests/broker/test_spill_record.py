"""The record of a spilled chunk says nothing that a crash could keep without what it follows from.

Of the group that was being written a crash may keep later records and lose an earlier one.
"""

from __future__ import annotations

from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer, all_waiting
from support.wire.raw_codec import method, publish

#: Bytes of a body that the disk did not get.
LOST = 40


def put(peer: Peer, queue: str, *bodies: bytes, channel: int = 1) -> None:
    """Publish persistent messages, one in each batch."""
    for body in bodies:
        peer.send(publish(channel, "", queue, body, delivery_mode=2))


def start_without(node: Node, part: bytes) -> Node:
    """Start after a crash that kept the newest group but for a part that holds these bytes."""
    node.run()
    assert node.begin_sync()
    node.write()
    path = max(path for path in node.image().files if path.startswith("journal"))
    image = node.image()
    data = bytearray(image.files[path])
    at = data.rindex(part)
    data[at : at + LOST] = bytes(LOST)
    image.files[path] = bytes(data)
    return Node(RecordingDisk(image), window_bytes=0, begin=False)


def bodies(node: Node, queue: str) -> list[bytes]:
    """The first byte of each body that waits."""
    return [item.message.body[:1] for item in all_waiting(node.classic(queue))]


def test_a_transaction_that_was_lost_leaves_nothing_in_chunks() -> None:
    node = Node(window_bytes=0)
    peer, other = node.connect(1, 2), node.connect()
    peer.declare("q")
    put(peer, "q", b"a")
    node.sync()
    peer.call(2, "tx.select")
    peer.send(method(2, "basic.get", queue="q"))
    peer.expect(2, "basic.get-ok")
    peer.send(method(2, "basic.ack", delivery_tag=1))
    put(peer, "q", *[b"%d" % number * 300 for number in range(8)], channel=2)
    peer.send(method(2, "tx.commit"))
    put(other, "q", b"x" * 300, b"y" * 300)
    again = start_without(node, b"1" * LOST)
    assert bodies(again, "q") == [b"a", b"x", b"y"]
