"""Who may use a queue and how long it lives: exclusive, auto-delete, named by the server."""

from __future__ import annotations

from typing import Any

import pytest

from core import Node, Peer
from raw_codec import method, publish

LOCKED: list[tuple[str, dict[str, Any]]] = [
    ("queue.declare", {"queue": "e", "exclusive": True}),
    ("queue.declare", {"queue": "e", "passive": True}),
    ("basic.consume", {"queue": "e"}),
    ("basic.get", {"queue": "e"}),
    ("queue.bind", {"queue": "e", "exchange": "amq.fanout"}),
    ("queue.unbind", {"queue": "e", "exchange": "amq.fanout"}),
    ("queue.purge", {"queue": "e"}),
    ("queue.delete", {"queue": "e"}),
]


@pytest.mark.parametrize(("name", "values"), LOCKED)
def test_an_exclusive_queue_is_its_owner_s(
    node: Node, peer: Peer, name: str, values: dict[str, Any]
) -> None:
    """Behaviour 44."""
    peer.declare("e", durable=False, exclusive=True)
    other = node.connect()
    other.send(method(1, name, **values))
    closed = other.expect(1, "channel.close")
    assert closed.code == 405
    assert "cannot obtain exclusive access to locked queue 'e' in vhost '/'" in closed.text
    assert peer.declare("e", durable=False, exclusive=True).queue == "e"


@pytest.mark.parametrize("durable", [True, False])
def test_an_exclusive_queue_ends_with_its_connection(node: Node, peer: Peer, durable: bool) -> None:
    """Behaviour 13: before close-ok, with its bindings; nothing of it is journaled."""
    node.sync()
    peer.declare("e", durable=durable, exclusive=True)
    peer.call(1, "queue.bind", queue="e", exchange="amq.fanout")
    peer.send(publish(1, "", "e", b"m", delivery_mode=2))
    assert not node.journal.has_records()
    peer.send(method(0, "connection.close"))
    assert peer.names() == ["connection.close-ok"]
    assert node.vhost.queues == {}
    assert node.vhost.exchanges["amq.fanout"].bindings == {}
    assert node.turn.held_messages == 0


def test_an_auto_delete_queue_goes_with_its_last_consumer(node: Node, peer: Peer) -> None:
    """Behaviour 48: only after there was one, by cancel, channel or connection, with bindings."""
    others = [node.connect() for _ in range(2)]
    for place, ending in enumerate(["cancel", "channel", "connection"]):
        queue = f"a{place}"
        peer.call(1, "queue.declare", queue=queue, auto_delete=True)
        peer.call(1, "queue.bind", queue=queue, exchange="amq.fanout")
        first, last = others
        for consumer in others:
            consumer.call(1, "basic.consume", queue=queue, consumer_tag=queue)
        first.call(1, "basic.cancel", consumer_tag=queue)
        assert queue in node.vhost.queues
        if ending == "cancel":
            last.call(1, "basic.cancel", consumer_tag=queue)
        elif ending == "channel":
            last.call(1, "channel.close")
            last.call(1, "channel.open")
        else:
            last.lose()
        assert queue not in node.vhost.queues
    assert node.vhost.exchanges["amq.fanout"].bindings == {}


def test_an_auto_delete_queue_lives_without_consumers_until_it_had_one(peer: Peer) -> None:
    peer.call(1, "queue.declare", queue="a", auto_delete=True)
    peer.send(publish(1, "", "a", b"m"))
    assert peer.call_get("a").body == b"m"


def test_messages_of_a_queue_that_goes_are_let_go(node: Node, peer: Peer) -> None:
    """Also those that are out: their acks later do nothing (behaviour 53)."""
    peer.declare("q")
    peer.send(*[publish(1, "", "q", b"m", delivery_mode=2) for _ in range(3)])
    peer.call_get("q")
    deleter = node.connect()
    assert deleter.call(1, "queue.delete", queue="q").message_count == 2
    assert (node.turn.held_messages, node.turn.held_bytes) == (0, 0)
    peer.send(method(1, "basic.ack", delivery_tag=1))
    peer.call(1, "basic.qos")
    assert (node.turn.held_messages, node.turn.held_bytes) == (0, 0)


def test_names_by_the_server(peer: Peer) -> None:
    """Behaviour 42."""
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


def test_no_name_where_nothing_was_declared(peer: Peer) -> None:
    peer.send(method(1, "basic.get"))
    closed = peer.expect(1, "channel.close")
    assert (closed.code, closed.text) == (404, "NOT_FOUND - no previously declared queue")


def test_an_auto_delete_exchange_goes_with_the_last_binding_from_it(node: Node, peer: Peer) -> None:
    """Behaviour 38, and a chain of them."""
    for name in ("x1", "x2"):
        values = {"exchange": name, "type": "fanout", "auto_delete": True}
        peer.call(1, "exchange.declare", **values)
    peer.declare("q", durable=False)
    peer.call(1, "exchange.bind", source="x1", destination="x2")
    peer.call(1, "queue.bind", queue="q", exchange="x2")
    assert {"x1", "x2"} <= set(node.vhost.exchanges)
    peer.call(1, "queue.delete", queue="q")
    assert not {"x1", "x2"} & set(node.vhost.exchanges)


def test_exclusive_consumers(node: Node, peer: Peer) -> None:
    """Behaviour 52."""
    peer.declare("q", durable=False)
    peer.call(1, "basic.consume", queue="q", consumer_tag="only", exclusive=True)
    other = node.connect()
    other.send(method(1, "basic.consume", queue="q"))
    assert other.expect(1, "channel.close").code == 403
    peer.call(1, "basic.cancel", consumer_tag="only")
    third = node.connect()
    third.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.send(method(1, "basic.consume", queue="q", exclusive=True))
    assert peer.expect(1, "channel.close").code == 403


def test_consumers_are_told_when_their_queue_goes(node: Node, peer: Peer) -> None:
    """Behaviour 54: those that said that they understand it."""
    peer.declare("q", durable=False)
    knowing = node.connect()
    simple = node.connect(consumer_cancel_notify=False)
    for consumer in (knowing, simple):
        consumer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.call(1, "queue.delete", queue="q")
    assert knowing.expect(1, "basic.cancel").consumer_tag == "c"
    assert simple.take() == []
    # The tag is free again.
    peer.declare("q", durable=False)
    knowing.call(1, "basic.consume", queue="q", consumer_tag="c")


def test_a_consumer_that_deletes_its_own_queue_hears_the_reply_first(peer: Peer) -> None:
    peer.declare("q", durable=False)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.send(method(1, "queue.delete", queue="q"))
    assert peer.names() == ["queue.delete-ok", "basic.cancel"]
