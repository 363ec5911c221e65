"""Helpers for tests of deep queues."""

from __future__ import annotations

from leveret.broker.backlog.pages import RETURN_COUNT_BYTES
from leveret.broker.queue.classic import ClassicQueue
from support.node.core import Node, Peer, all_waiting
from support.wire.raw_codec import method


def no_chance(most: int) -> int:
    """Draw the minimum: everything unsynced is lost."""
    return 0 * most


def got(peer: Peer, queue: str = "q") -> list[int]:
    """Get and ack all ready messages."""
    found: list[int] = []
    while True:
        peer.send(method(1, "basic.get", queue=queue, no_ack=True))
        reply = peer.take()[-1]
        if reply.name == "basic.get-empty":
            return found
        found.append(int(reply.body))


def exact(node: Node) -> None:
    """Check that the counts match the actual messages."""
    held_bytes = held_messages = 0
    for queue in node.vhost.queues.by_name.values():
        assert isinstance(queue, ClassicQueue)
        waiting = all_waiting(queue)
        assert queue.ready_count() == len(waiting), queue.name
        assert queue.ready_bytes() == sum(item.message.size for item in waiting)
        assert queue.ready.bodies == sum(len(item.message.body) for item in waiting)
        memory = queue.ready.waiting()
        held_bytes += sum(int(item.message.size) for item in memory) + int(queue.unacked_bytes)
        held_messages += len(memory) + int(queue.unacked_count)
        pages = queue.ready.pages
        if pages is not None:
            held_bytes += len(pages.counts) * int(RETURN_COUNT_BYTES)
        retained = queue.retained
        if retained is not None:
            held_bytes += sum(int(one.size) for one in retained.messages.values())
            held_messages += len(retained.messages)
    assert (node.core.memory.held_bytes, node.core.memory.held_messages) == (
        held_bytes,
        held_messages,
    )
