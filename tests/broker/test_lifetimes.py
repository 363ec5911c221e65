"""What the end of a queue leaves behind: no record, no memory, no binding."""

from __future__ import annotations

import pytest

from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish


@pytest.mark.parametrize("durable", [True, False])
def test_an_exclusive_queue_ends_with_its_connection(node: Node, peer: Peer, durable: bool) -> None:
    """Behaviour 13 (exclusive queues).

    Before close-ok, with its bindings; nothing of it is journaled.
    """
    node.sync()
    peer.declare("e", durable=durable, exclusive=True)
    peer.call(1, "queue.bind", queue="e", exchange="amq.fanout")
    peer.send(publish(1, "", "e", b"m", delivery_mode=2))
    assert not node.journal.has_records()
    peer.send(method(0, "connection.close"))
    assert peer.names() == ["connection.close-ok"]
    assert len(node.vhost.queues.by_name) == 0
    assert node.vhost.exchanges.by_name["amq.fanout"].bindings == {}
    assert node.core.memory.held_messages == 0


def test_messages_of_a_queue_that_goes_are_let_go(node: Node, peer: Peer) -> None:
    """Also those that are out: their acks later do nothing (behaviour 53: basic.cancel)."""
    peer.declare("q")
    peer.send(*[publish(1, "", "q", b"m", delivery_mode=2) for _ in range(3)])
    peer.call_get("q")
    deleter = node.connect()
    assert deleter.call(1, "queue.delete", queue="q").message_count == 2
    assert (node.core.memory.held_messages, node.core.memory.held_bytes) == (0, 0)
    peer.send(method(1, "basic.ack", delivery_tag=1))
    peer.call(1, "basic.qos")
    assert (node.core.memory.held_messages, node.core.memory.held_bytes) == (0, 0)


def test_names_by_the_server(peer: Peer) -> None:
    """Behaviour 42 (empty queue name)."""
    first = peer.declare("", durable=False).queue
    second = peer.declare("", durable=False).queue
    assert first.startswith("amq.gen-")
    assert second.startswith("amq.gen-")
    assert first != second
    # Without a name, the last one is meant, and its name is the key of a bind without one.
    peer.call(1, "queue.bind", exchange="amq.direct")
    peer.send(publish(1, "amq.direct", second, b"m"))
    peer.send(method(1, "basic.get", no_ack=True))
    assert peer.expect(1, "basic.get-ok").body == b"m"
