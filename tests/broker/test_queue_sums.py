"""The sums over all queues, beside a walk over their messages and a ledger kept by hand."""

from __future__ import annotations

import asyncio
import random

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.stats.metrics import QueueLevels, QueueWalk
from leveret.broker.stats.stats import queues_in_turn
from leveret.broker.stats.totals import QueueSums
from leveret.broker.stream.stream import Stream
from leveret.management.metrics.totals import Walks
from leveret.message import Address, Message
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer, all_waiting
from support.wire.raw_codec import method, publish

_MESSAGE = Message(Address(b"", b"q"), b"\x10\x00\x01", b"body", 0, False)


def summed(node: Node) -> QueueSums:
    """The sums over the queues that are there."""
    sums = QueueSums()
    for _, queue in queues_in_turn(node.broker, None):
        sums.add(queue)
    return sums


def check(node: Node, published: int, acked: int) -> None:
    """Compare the sums with the messages that are there, and with what was done by the ledger."""
    sums = summed(node)
    queues = [
        queue
        for vhost in node.broker.vhosts.values()
        for queue in vhost.queues.by_name.values()
        if not queue.hidden
    ]
    waiting = 0
    for queue in queues:
        if isinstance(queue, WaitingQueue):
            waiting += len(all_waiting(queue))
        elif isinstance(queue, Stream):
            waiting += int(queue.visible_end - queue.first_offset)
    assert (sums.queues, sums.ready) == (len(queues), waiting)
    held = 0
    for peer in node.peers.values():
        for channel in peer.connection.channels.by_number.values():
            held += int(channel.unacked.count)
    assert sums.unacked == held
    # The walk for metrics finds the same, and what deleted queues did.
    walked = asyncio.run(Walks(node.broker, node.clock).totals()).sums
    assert (walked.done.published, walked.done.acked) == (published, acked)
    assert (walked.queues, walked.consumers, walked.unacked) == (
        sums.queues,
        sums.consumers,
        sums.unacked,
    )
    assert walked.ready == sums.ready
    walk = QueueWalk(node.broker, node.core.counts.begin_walk())
    for _ in walk.see_all():
        pass
    found = walk.finish().values()
    assert sum(int(counts.published) for counts in found) == published
    assert sum(int(counts.acked) for counts in found) == acked
    levels = walk.levels
    assert (levels.queues, levels.ready, levels.unacked) == (len(queues), waiting, held)


def put(peer: Peer, queue: str, count: int) -> None:
    peer.send(*[publish(1, "", queue, b"m", delivery_mode=2) for _ in range(count)])


def test_sums_follow_whatever_becomes_of_messages_and_queues(node: Node, peer: Peer) -> None:
    check(node, 0, 0)
    peer.call(1, "queue.declare", queue="q", durable=True)
    put(peer, "q", 5)
    check(node, 5, 0)
    for _ in range(3):
        peer.call_get("q")
    check(node, 5, 0)
    peer.send(method(1, "basic.ack", delivery_tag=1))
    peer.send(method(1, "basic.reject", delivery_tag=2, requeue=True))
    check(node, 5, 1)
    peer.call(1, "queue.purge", queue="q")
    check(node, 5, 1)

    # What a time to live ends is published once more, to the queue of the dead letters.
    peer.call(1, "queue.declare", queue="letters", durable=True)
    dying = {
        "x-message-ttl": 10,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "letters",
    }
    peer.call(1, "queue.declare", queue="dying", durable=True, arguments=dying)
    put(peer, "dying", 4)
    check(node, 9, 1)
    node.tick(20)
    node.sync()
    check(node, 13, 1)
    assert len(all_waiting(node.waiting("letters"))) == 4

    # A queue that nobody uses goes with what it holds, and leaves what it did.
    peer.call(1, "queue.declare", queue="short", durable=True, arguments={"x-expires": 100})
    put(peer, "short", 2)
    check(node, 15, 1)
    node.tick(200)
    node.sync()
    assert "short" not in node.vhost.queues.by_name
    check(node, 15, 1)

    peer.call(1, "queue.delete", queue="dying")
    check(node, 15, 1)

    vhost = node.broker.add_vhost("v")
    queue = vhost.queues.create(Name("q"), QueueAttributes(True, arguments={}))
    for _ in range(3):
        vhost.publish(_MESSAGE, [queue.target], None)
    check(node, 18, 1)
    node.broker.delete_vhost("v")
    node.run()
    check(node, 18, 1)

    # A restart counts anew, and has what was durable: the letters, and what was unacked in `q`.
    node.sync()
    again = Node(RecordingDisk(node.stop()))
    check(again, 0, 0)
    assert summed(again).ready == 5


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_a_walk_after_random_operations(seed: int) -> None:
    rng = random.Random(seed)
    node = Node()
    peer = node.connect()
    names = [f"q{number}" for number in range(4)]
    published = acked = 0
    tags: list[int] = []
    last = 0
    for _ in range(120):
        name = rng.choice(names)
        peer.call(1, "queue.declare", queue=name)
        act = rng.choice(["put", "put", "get", "ack", "requeue", "purge", "delete"])
        if act == "put":
            count = rng.randrange(4)
            put(peer, name, count)
            published += count
        elif act == "get" and node.classic(name).ready_count() > 0:
            peer.call_get(name)
            last += 1
            tags.append(last)
        elif act in ("ack", "requeue") and tags:
            tag = tags.pop(rng.randrange(len(tags)))
            if act == "ack":
                peer.send(method(1, "basic.ack", delivery_tag=tag))
                acked += 1
            else:
                peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=True))
        elif act == "purge":
            peer.call(1, "queue.purge", queue=name)
        elif act == "delete" and not tags:
            peer.call(1, "queue.delete", queue=name)
        node.run()
        check(node, published, acked)


def test_what_waits_for_its_next_try_is_not_ready_in_a_listing() -> None:
    levels = QueueLevels()
    levels.queues, levels.ready, levels.retried, levels.unacked = 1, 5, 2, 1
    sums = QueueSums()
    sums.add_levels(levels)
    assert (sums.queues, sums.ready, sums.unacked) == (1, 3, 1)
