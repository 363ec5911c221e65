"""The keys of BCC, and of CC, of delayed messages: they count when the delay is over."""

from __future__ import annotations

import pytest

from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.node.paged import no_chance
from support.wire.raw_codec import decode_properties, method, publish

HEADERS = {"CC": ["two"], "BCC": ["three", "four"], "x-delay": 1000}


def declare(node: Node) -> Peer:
    """A client of four queues that are bound by their names to a delaying exchange."""
    peer = node.connect()
    peer.call(
        1, "exchange.declare", exchange="d", type="x-delayed-message", durable=True,
        arguments={"x-delayed-type": "direct"},
    )  # fmt: skip
    for name in ("one", "two", "three", "four"):
        peer.declare(name)
        peer.call(1, "queue.bind", queue=name, exchange="d", routing_key=name)
    return peer


def check(peer: Peer, *names: str) -> None:
    """Each of these queues has the message, whose BCC nobody sees."""
    for name in names:
        got = peer.call_get(name, no_ack=True)
        headers = decode_properties(got.properties)["headers"]
        assert (got.body, "BCC" in headers, headers["CC"]) == (b"m", False, ["two"])
    for name in ("one", "two", "three", "four"):
        assert peer.node.vhost.queues.by_name[name].ready_count() == 0


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("restart", ["none", "stop", "crash", "checkpoint"])
def test_copies_go_out_when_the_message_is_due(restart: str, mode: int) -> None:
    node = Node()
    peer = declare(node)
    peer.send(publish(1, "d", "one", b"m", headers=HEADERS, delivery_mode=mode))
    node.sync()
    if restart != "none":
        if restart == "checkpoint":
            node.take_checkpoint()
        image = node.stop() if restart == "stop" else node.crashed(no_chance)[0]
        node = Node(RecordingDisk(image), clock=node.clock)
        peer = node.connect()
    assert peer.node.vhost.queues.by_name["three"].ready_count() == 0
    node.tick(1000)
    check(peer, "one", "two", "three", "four")


def test_in_a_transaction_too() -> None:
    node = Node()
    peer = declare(node)
    peer.call(1, "tx.select")
    peer.send(publish(1, "d", "one", b"m", headers=HEADERS, mandatory=True))
    peer.send(method(1, "tx.commit"))
    node.sync()
    peer.expect(1, "tx.commit-ok")
    node.tick(1000)
    check(peer, "one", "two", "three", "four")


def test_who_gets_it_at_once_sees_no_bcc() -> None:
    """An exchange that hands one copy to a queue and another to the one that delays."""
    node = Node()
    peer = declare(node)
    peer.call(1, "exchange.bind", destination="d", source="amq.fanout")
    peer.call(1, "queue.bind", queue="one", exchange="amq.fanout")
    peer.call(1, "confirm.select")
    peer.send(publish(1, "amq.fanout", "x", b"m", headers=HEADERS, delivery_mode=2))
    node.sync()
    assert peer.expect(1, "basic.ack").delivery_tag == 1
    check(peer, "one")
    node.tick(1000)
    check(peer, "two", "three", "four")


def test_without_a_delay_they_count_at_once() -> None:
    node = Node()
    peer = declare(node)
    peer.send(publish(1, "d", "one", b"m", headers=HEADERS | {"x-delay": 0}))
    check(peer, "one", "two", "three", "four")
