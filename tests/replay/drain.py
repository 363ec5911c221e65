"""Draining a recovered broker as a client does: all comes in order, once, and nothing is left.

It is the look from outside: what `found.py` saw in the broker must be what a consumer is given.
"""

from __future__ import annotations

from leveret.broker.queue.classic import ClassicQueue
from leveret.clock import ManualClock
from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.records.record import RETAINED_COUNT
from replay.account import Content
from replay.found import Found, recovered
from support.node.core import Node, Peer
from support.wire.raw_codec import decode_properties, method

PREFETCH = 7


def drain(image: Image, found: Found, clock: ManualClock) -> list[str]:
    """Start on an image, consume all classic queues of the default vhost, start again."""
    disk = RecordingDisk(image)
    node = Node(disk, clock=clock)
    problems = []
    queues = [
        queue for queue in node.vhost.queues.by_name.values() if isinstance(queue, ClassicQueue)
    ]
    for queue in queues:
        problems += _drain_one(node, node.connect(), queue, found)
    node.sync()
    left, _ = recovered(disk.image(), clock)
    drained = {int(queue.queue_id) for queue in queues}
    problems += [
        f"I3 {key} was drained, and acked, and is there again"
        for key in left.holding.messages
        if key[0] in drained and left.holding.messages[key][1] != RETAINED_COUNT
    ]
    return problems


def _drain_one(node: Node, peer: Peer, queue: ClassicQueue, found: Found) -> list[str]:
    expected = _expected(queue, found)
    peer.call(1, "basic.qos", prefetch_count=PREFETCH)
    peer.send(method(1, "basic.consume", queue=queue.name, consumer_tag="drain"))
    peer.expect(1, "basic.consume-ok")
    got: list[bytes] = []
    marks = set()
    while batch := peer.take():
        for one in batch:
            assert one.name == "basic.deliver", one
            got.append(one.body)
            marks.add(one.redelivered)
        peer.send(method(1, "basic.ack", delivery_tag=batch[-1].delivery_tag, multiple=True))
    problems = []
    if got != expected:
        same = [a == b for a, b in zip(got, expected, strict=False)]
        place = same.index(False) if False in same else len(same)
        told = f"{len(got)} for {len(expected)}, other at {place}"
        problems.append(f"I4 draining '{queue.name}' gave {told}")
    if got and not found.clean and marks != {True}:
        problems.append(f"I3 '{queue.name}' gave messages that are not marked as redelivered")
    if queue.ready_count() or queue.ready_bytes():
        said = f"{queue.ready_count()} messages, {queue.ready_bytes()} bytes"
        problems.append(f"I10 '{queue.name}' was drained and says {said}")
    return problems


def _expected(queue: ClassicQueue, found: Found) -> list[bytes]:
    """Return the bodies in the order in which they must come."""
    level = int(queue.settings.priority_max)
    of_queue = [
        (-_priority(kept, level), key[1], kept[3])
        for key, (kept, count) in found.holding.messages.items()
        if key[0] == queue.queue_id and count != RETAINED_COUNT
    ]
    return [body for _, _, body in sorted(of_queue)]


def _priority(kept: Content, level: int) -> int:
    if level <= 0:
        return 0
    return min(int(decode_properties(kept[2]).get("priority", 0)), level)
