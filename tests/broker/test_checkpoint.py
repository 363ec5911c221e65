"""Checkpoints of a broker: what a restart finds when the journal before them is gone.

The state machine in `test_recovery` meets most of it by chance; here is what it meets too seldom.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.limits import SPILL_BYTES_MAX
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer, held
from support.wire.raw_codec import method, publish


def fill(peer: Peer, count: int) -> None:
    """Publish persistent messages, each with a body of its own, and a transient one between."""
    start = int(peer.node.vhost.queues.by_name["q"].target.published)
    for number in range(start, start + count):
        peer.send(publish(1, "", "q", b"%d" % number, delivery_mode=2))


def hold(peer: Peer, count: int, *, no_ack: bool = False) -> None:
    """Take messages out."""
    for _ in range(count):
        peer.call_get("q", no_ack=no_ack)


def settle(peer: Peer, name: str, **values: bool) -> None:
    """Take three messages and settle the middle one; the others stay out."""
    tags = [peer.call_get("q").delivery_tag for _ in range(3)]
    peer.send(method(1, name, delivery_tag=tags[1], **values))


def purge(peer: Peer) -> None:
    """Drop what waits."""
    peer.call(1, "queue.purge", queue="q")


def content(node: Node) -> list[bytes]:
    """The bodies in the queue, waiting and out, in order."""
    return [item.message.body for item in held(node.classic("q"))]


#: Steps by name; each leaves chunked messages in another state.
CASES: dict[str, list[Callable[[Peer], None]]] = {
    "get and hold": [lambda peer: hold(peer, 2)],
    "ack": [lambda peer: settle(peer, "basic.ack")],
    "requeue": [lambda peer: settle(peer, "basic.nack", requeue=True)],
    "reject": [lambda peer: settle(peer, "basic.reject")],
    "take without ack": [lambda peer: hold(peer, 2, no_ack=True)],
    "hold two and purge": [lambda peer: hold(peer, 2), purge],
    "purge": [purge],
    "requeue, hold one and purge": [
        lambda peer: settle(peer, "basic.nack", requeue=True),
        lambda peer: hold(peer, 1),
        purge,
    ],
    "publish more": [lambda peer: fill(peer, 3)],
}


@pytest.mark.parametrize("second", CASES)
@pytest.mark.parametrize("first", CASES)
def test_chunked_messages_that_went_stay_away(first: str, second: str) -> None:
    """Every pair of steps between three checkpoints, then a crash: no journal tells of them."""
    node = Node()
    peer = node.connect()
    peer.declare("q")
    fill(peer, 8)
    node.take_checkpoint()
    for step in CASES[first]:
        step(peer)
    node.sync()
    node.take_checkpoint()
    if node.vhost.queues.by_name["q"].ready_count() < 3:
        fill(peer, 3)
    for step in CASES[second]:
        step(peer)
    # What is not sealed when a checkpoint begins is replayed over it, and would hide its faults.
    node.sync()
    node.take_checkpoint()
    node.sync()
    expected = content(node)
    again = Node(RecordingDisk(node.image()))
    assert again.report.records < 3, "only the start is in the journal"
    assert content(again) == expected
    # And once more: what the second start knows of its chunks is enough for its own checkpoint.
    again.take_checkpoint()
    again.sync()
    assert content(Node(RecordingDisk(again.image()))) == expected


@pytest.mark.in_memory
def test_what_happens_between_the_slices_is_found(node_with_queue: Node) -> None:
    """Acks, requeues and publishes while a checkpoint hands over, one message a slice."""
    node = node_with_queue
    peer = node.connect()
    fill(peer, 30)
    tags = [peer.call_get("q").delivery_tag for _ in range(10)]
    place = 0
    while not node.step_checkpoint(1):
        if place < 10:
            name = "basic.ack" if place % 3 else "basic.reject"
            values = {} if place % 3 else {"requeue": True}
            peer.send(method(1, name, delivery_tag=tags[place], **values))
            fill(peer, 1)
        place += 1
        node.sync()
    node.sync()
    expected = content(node)
    assert len(expected) == 30 + 10 - 6
    assert content(Node(RecordingDisk(node.image()))) == expected


@pytest.fixture
def node_with_queue() -> Node:
    """A broker with the durable queue `q`."""
    node = Node()
    node.connect().declare("q")
    return node


def test_a_queue_deleted_between_the_slices_is_gone(node_with_queue: Node) -> None:
    node = node_with_queue
    peer = node.connect()
    fill(peer, 20)
    node.step_checkpoint(12)
    peer.call(1, "queue.delete", queue="q")
    node.take_checkpoint()
    again = Node(RecordingDisk(node.image()))
    assert "q" not in again.vhost.queues.by_name
    assert again.orphaned == []


def test_numbers_of_deleted_queues_are_not_given_again(node_with_queue: Node) -> None:
    node = node_with_queue
    peer = node.connect()
    used = int(node.vhost.queues.by_name["q"].queue_id)
    peer.call(1, "queue.delete", queue="q")
    for _ in range(2):
        node.take_checkpoint()
    again = Node(RecordingDisk(node.image()))
    again.connect().declare("q")
    assert again.vhost.queues.by_name["q"].queue_id > used


def test_the_journal_gets_short(node_with_queue: Node) -> None:
    node = node_with_queue
    peer = node.connect()
    for _ in range(4):
        fill(peer, 20)
        node.sync()
        before = node.image()
        node.take_checkpoint()
    journals = [name for name in node.image().files if name.startswith("journal/")]
    assert len(journals) == 2, "the last one and the one before the last checkpoint"
    assert len([name for name in before.files if name.startswith("state/")]) == 2


def test_a_stream_keeps_its_start_and_its_offsets() -> None:
    """What retention dropped stays away, and an emptied journal does not begin again at 0."""
    node = Node()
    peer = node.connect()
    arguments = {"x-queue-type": "stream", "x-max-length-bytes": 300_000}
    peer.declare("s", arguments=arguments)
    for number in range(10):
        peer.send(publish(1, "", "s", b"%d." % number + bytes(100_000)))
        node.sync()
    stream = node.stream("s")
    first, end = stream.first_offset, stream.next_offset
    assert 0 < first < end == 10
    for _ in range(2):
        node.take_checkpoint()
    again = Node(RecordingDisk(node.image()))
    stream = again.stream("s")
    assert (stream.first_offset, stream.next_offset, stream.visible_end) == (first, end, end)
    assert again.core.memory.held_messages == 0, "what lies in chunks is not in memory"


def test_what_a_checkpoint_closed_before_its_sync_may_leave_memory_with_it() -> None:
    """Else each checkpoint would keep what was under way at its beginning, for good."""
    node = Node()
    cache = node.core.stream_cache
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    for _ in range(3):
        peer.send(*[publish(1, "", "s", b"m") for _ in range(5)])
        assert not node.step_checkpoint()
        node.run()
        assert not cache.blocks, "not seen yet: a reader will want it from memory"
        assert node.core.memory.held_messages == 5
        node.take_checkpoint()
        node.sync()
        (block,) = cache.blocks
        cache.drop(block)
        assert (node.core.memory.held_messages, node.core.memory.held_bytes) == (0, 0)
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=20)
    values = {"queue": "s", "consumer_tag": "c", "arguments": {"x-stream-offset": "first"}}
    reader.call(1, "basic.consume", **values)
    assert reader.bodies() == [b"m"] * 15


def test_a_checkpoint_waits_while_very_much_is_to_be_written() -> None:
    """The last blocks of many streams are copied to be written, and must not fill the memory."""
    node = Node()
    peer = node.connect()
    for number in range(90):
        peer.declare(f"s{number}", arguments={"x-queue-type": "stream"})
        peer.send(publish(1, "", f"s{number}", bytes(250_000)))
    node.sync()
    node.hold_spill = True
    for _ in range(10):
        assert not node.step_checkpoint()
    assert node.spill.overfull
    assert node.spill.unwritten_bytes < 2 * SPILL_BYTES_MAX + 300_000
    while not node.step_checkpoint():
        node.write_batch()
        node.sync()
    assert node.checkpoint is None
    assert node.core.memory.unchunked_bytes == 0


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_vhost_that_is_deleted_meanwhile_leaves_nothing_behind(steps: int) -> None:
    """Messages published since the checkpoint began belong to queues that it never hands over."""
    node = Node()
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    peer = node.connect_as("guest", vhost="v")
    peer.declare("q")
    arguments = {"x-delayed-type": "fanout"}
    peer.call(1, "exchange.declare", exchange="late", type="x-delayed-message", durable=True,
              arguments=arguments)  # fmt: skip
    for _ in range(steps):
        node.step_checkpoint(1)
    peer.send(publish(1, "", "q", b"m", delivery_mode=2))
    peer.send(publish(1, "late", "", b"m", delivery_mode=2, headers={"x-delay": 60_000}))
    node.sync()
    node.broker.delete_vhost("v")
    node.sync()
    node.take_checkpoint()
    again = Node(RecordingDisk(node.image()))
    assert again.orphaned == []
    assert list(again.broker.vhosts) == ["/"]
    assert not again.vhost.queues.by_name


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_a_vhost_that_is_made_anew_meanwhile_keeps_its_queues(steps: int, kind: str) -> None:
    """The snapshot may hold the new ones, and the deletion is replayed over it."""
    node = Node()
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    node.connect_as("guest", vhost="v").declare("q")
    node.sync()
    for _ in range(steps):
        node.step_checkpoint(1)
    node.broker.delete_vhost("v")
    node.run()
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    peer = node.connect_as("guest", vhost="v")
    # Nothing of it is synced before the checkpoint has its boundary.
    arguments = {"x-queue-type": kind}
    declare = method(1, "queue.declare", queue="new", durable=True, arguments=arguments)
    peer.receive(declare + publish(1, "", "new", b"m", delivery_mode=2))
    node.run()
    node.take_checkpoint()
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert again.orphaned == []
    queues = again.broker.vhosts["v"].queues
    assert list(queues.by_name) == ["new"]
    if kind == "classic":
        assert again.connect_as("guest", vhost="v").call_get("new").body == b"m"


def test_a_deletion_of_a_vhost_in_an_older_journal_takes_every_queue() -> None:
    """It says no id of a queue."""
    node = Node()
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    node.connect_as("guest", vhost="v").declare("q", durable=True)
    node.core.journal.delete("vhost", {"name": "v"})
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert list(again.broker.vhosts) == ["/"]
    assert again.orphaned == []
