"""What recovery does with a queue of which a chunk was found damaged."""

from __future__ import annotations

import pytest

from leveret.broker.broker import Broker
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.recovery.restore import Restore
from leveret.message import Address, Message
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from leveret.store.journal.journal import Journal
from leveret.store.segments.segments import ChunkRef
from support.node.core import Node
from support.wire.raw_codec import method, publish

QUEUE_ID = 7


def chunk(first: int, last: int) -> ChunkRef:
    count = last - first + 1
    return ChunkRef(1, first * 100, 100, first, last, count, 0, 0, count, count, count)


def message(sequence: int) -> Message:
    return Message(Address(b"", b"q"), b"\0\0", b"%d" % sequence, 0, True)


def test_a_damaged_chunk_is_not_kept() -> None:
    """What is left of it is in memory, for the next checkpoint to write."""
    broker = Broker(Journal(), 1 << 30)
    restore = Restore(broker)
    restore.define("vhost", {"name": "/"})
    restore.define("queue", {"vhost": "/", "name": "q", "id": QUEUE_ID, "arguments": {}})
    for first, last in ((1, 2), (3, 4), (5, 6)):
        assert not restore.chunk(QUEUE_ID, chunk(first, last))
    restore.chunk_lost(QUEUE_ID, chunk(3, 4))
    # The older part of the journal still had one message of the damaged chunk.
    restore.publish(message(3), [(QUEUE_ID, 3)])
    restore.finish(unclean=True)

    queue = broker.vhost("/").queues.existing(Name("q"), None)
    assert isinstance(queue, ClassicQueue)
    assert [stored.ref.first for stored in queue.stored.items] == [1, 5]
    assert [int(item.sequence) for part in queue.live_parts([]) for item in part if item] == [3]
    assert queue.ready_count() == 5


@pytest.mark.parametrize("checkpoints", [1, 2, 3])
@pytest.mark.parametrize("harmed", [[3], [4], [3, 4], [3, 9], [2, 3, 4, 5]])
def test_damage_to_what_is_gone_costs_nothing(checkpoints: int, harmed: list[int]) -> None:
    """Messages 3 and 4 were acked when a bit of theirs turned in their chunk."""
    node = Node()
    peer = node.connect()
    peer.declare("q")
    peer.send(*[publish(1, "", "q", b"<%d>" % number, delivery_mode=2) for number in range(10)])
    node.sync()
    node.take_checkpoint()
    peer.send(*[method(1, "basic.get", queue="q") for _ in range(5)])
    tags = {got.body: got.delivery_tag for got in peer.take()}
    for body in (b"<3>", b"<4>"):
        peer.send(method(1, "basic.ack", delivery_tag=tags[body]))
    node.sync()
    for _ in range(checkpoints - 1):
        node.take_checkpoint()
        node.sync()
    image = node.image()
    for path, data in image.files.items():
        if path.startswith("segments/"):
            for number in harmed:
                data = data.replace(b"<%d>" % number, b"<?>")  # noqa: PLW2901
            image.files[path] = data
    for _ in range(2):
        node = Node(RecordingDisk(image))
        again = node.connect()
        again.send(*[method(1, "basic.get", queue="q") for _ in range(12)])
        bodies = [got.body for got in again.take() if got.name == "basic.get-ok"]
        whole = [b"<%d>" % number for number in range(10) if number not in (3, 4)]
        # What a chunk has lost an older journal may tell still.
        assert [body for body in whole if body in bodies] == bodies
        assert set(whole) - set(bodies) <= {b"<%d>" % number for number in harmed}
        image = node.image()
        node.take_checkpoint()
        node.sync()
        kept = Node(RecordingDisk(node.image())).connect()
        kept.send(*[method(1, "basic.get", queue="q") for _ in range(12)])
        assert [got.body for got in kept.take() if got.name == "basic.get-ok"] == bodies


def test_a_chunk_that_the_disk_will_not_give_costs_its_messages_only() -> None:
    """A reader of the stream goes on behind it, and the broker goes on too."""
    node = Node()
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.send(publish(1, "", "s", b"stored"))
    node.sync()
    for _ in range(2):
        # The journal that has it too is removed.
        node.take_checkpoint()
    peer.send(publish(1, "", "s", b"kept"))
    node.sync()
    image = node.image()
    for name in [name for name in image.files if name.startswith("segments/")]:
        del image.files[name]
    again = Node(RecordingDisk(image))
    reader = again.connect()
    reader.call(1, "basic.qos", prefetch_count=10)
    values = {"queue": "s", "arguments": {"x-stream-offset": "first"}, "consumer_tag": "c"}
    reader.call(1, "basic.consume", **values)
    assert reader.bodies() == [b"kept"]
    assert again.report.lost_records == 1
