"""What recovery does with a queue of which a chunk was found damaged."""

from __future__ import annotations

from core import Node
from leveret.broker.broker import Broker
from leveret.broker.classic import ClassicQueue
from leveret.broker.restore import Restore
from leveret.message import Address, Message
from leveret.store.disks.recording import RecordingDisk
from leveret.store.journal import Journal
from leveret.store.segments import ChunkRef
from raw_codec import publish

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

    queue = broker.vhost("/").queue("q", None)
    assert isinstance(queue, ClassicQueue)
    assert [stored.ref.first for stored in queue.stored.items] == [1, 5]
    assert [int(item.sequence) for item in queue.unstored(1000)] == [3]
    assert queue.ready_count() == 5


def test_a_chunk_that_the_disk_will_not_give_costs_its_messages_only() -> None:
    """A reader of the stream goes on behind it, and the broker goes on too."""
    node = Node()
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.send(publish(1, "", "s", b"stored"))
    node.sync()
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
    assert len(again.turn.damaged) == 1
