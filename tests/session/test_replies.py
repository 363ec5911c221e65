"""Direct reply-to and the checks of properties, where a socket shows too little.

Sources: behaviours 22 (user_id) and 65 (direct reply-to).
"""

from __future__ import annotations

import pytest

from leveret.limits import OUTPUT_BYTES_HIGH
from support.brokers.broker_restarts import stopped
from support.node.core import Node, Peer
from support.wire.raw import Method
from support.wire.raw_codec import decode_properties, method, publish

REPLY_TO = "amq.rabbitmq.reply-to"
LARGE = bytes(100 * 1024)


def waits(peer: Peer) -> str:
    """Have channel 1 wait for replies; return its address."""
    peer.call(1, "basic.consume", queue=REPLY_TO, consumer_tag="r", no_ack=True)
    queue = peer.call(1, "queue.declare", exclusive=True).queue
    peer.send(publish(1, "", queue, b"request", reply_to=REPLY_TO))
    address: str = decode_properties(peer.call_get(queue, no_ack=True).properties)["reply_to"]
    return address


@pytest.fixture
def requester(node: Node) -> Peer:
    """A connection with channel 1 open."""
    return node.connect()


@pytest.fixture
def address(requester: Peer) -> str:
    """The address of the requester's channel 1."""
    return waits(requester)


def reply_goes_nowhere(peer: Peer, address: str) -> Method:
    peer.send(publish(1, "", address, b"reply", mandatory=True))
    return peer.expect(1, "basic.return")


@pytest.mark.in_memory
def test_replies_for_a_requester_that_does_not_read_wait_in_memory(
    node: Node, requester: Peer, address: str
) -> None:
    """They count, and go with the requester."""
    requester.reads = False
    server = node.connect()
    count = 4 * OUTPUT_BYTES_HIGH // len(LARGE)
    server.send(*[publish(1, "", address, LARGE)] * count)
    assert OUTPUT_BYTES_HIGH < len(requester.waiting) < 2 * OUTPUT_BYTES_HIGH
    assert node.core.memory.held_bytes > 2 * OUTPUT_BYTES_HIGH
    requester.lose()
    assert (node.core.memory.held_bytes, node.core.memory.held_messages) == (0, 0)
    reply_goes_nowhere(server, address)


def test_replies_that_waited_come_in_order(node: Node, requester: Peer, address: str) -> None:
    requester.reads = False
    server = node.connect()
    bodies = [b"%d" % number + LARGE for number in range(4 * OUTPUT_BYTES_HIGH // len(LARGE))]
    server.send(*[publish(1, "", address, body) for body in bodies])
    requester.read_on()
    assert requester.bodies() == bodies
    assert (node.core.memory.held_bytes, node.core.memory.held_messages) == (0, 0)


def test_nothing_of_a_reply_is_recorded(node: Node, requester: Peer, address: str) -> None:
    node.sync()
    server = node.connect()
    server.call(1, "confirm.select")
    server.send(publish(1, "", address, b"reply", delivery_mode=2))
    assert server.names() == ["basic.ack"]
    assert not node.journal.has_records()
    assert requester.bodies() == [b"reply"]


def test_an_address_is_in_no_list_of_queues(node: Node, requester: Peer, address: str) -> None:
    assert all(not name.startswith(REPLY_TO) for name in node.vhost.queues.by_name)
    assert list(node.vhost.queues.replies.queues) == [address]
    requester.call(1, "channel.close")
    assert node.vhost.queues.replies.queues == {}


def test_an_address_leads_nowhere_in_another_vhost(
    node: Node, requester: Peer, address: str
) -> None:
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    other = node.connect_as("guest", vhost="v")
    reply_goes_nowhere(other, address)
    other.send(method(1, "queue.declare", queue=address, passive=True))
    assert other.expect(1, "channel.close").code == 404


def test_an_address_leads_nowhere_after_a_restart(node: Node, address: str) -> None:
    reply_goes_nowhere(stopped(node).connect(), address)


def test_a_failed_consume_leaves_no_address(node: Node, requester: Peer) -> None:
    """The tag is in use: the connection ends, and what it had opened with it."""
    requester.declare("q", durable=False)
    requester.call(1, "basic.consume", queue="q", consumer_tag="t")
    requester.send(
        method(1, "basic.consume", queue=REPLY_TO, consumer_tag="t", no_ack=True),
    )
    assert requester.expect(0, "connection.close").code == 530
    assert node.vhost.queues.replies.queues == {}


def test_replies_need_no_right_to_read(node: Node) -> None:
    """And a change of permissions does not end them."""
    node.add_user("u", configure=".*", write=".*", read="^amq.gen-")
    requester = node.connect_as("u")
    address = waits(requester)
    node.broker.users.set_permission("u", "/", ".*", ".*", "^nothing$")
    node.run()
    node.connect().send(publish(1, "", address, b"reply"))
    assert requester.bodies() == [b"reply"]


def test_an_impersonator_may_write_any_user_id(node: Node) -> None:
    """Behaviour 22 (user_id)."""
    node.add_user("u", "impersonator", configure=".*", write=".*", read=".*")
    peer = node.connect_as("u")
    peer.declare("q", durable=False)
    peer.send(publish(1, "", "q", b"x", user_id="somebody"))
    assert decode_properties(peer.call_get("q").properties) == {"user_id": "somebody"}


@pytest.mark.parametrize("expiration", ["+1000", "001000", "1000"])
def test_an_expiration_counts_as_it_is_read(node: Node, peer: Peer, expiration: str) -> None:
    """Behaviour 21 (bad expiration): what is taken as a number is one."""
    peer.declare("q", durable=False)
    peer.send(publish(1, "", "q", b"x", expiration=expiration))
    node.tick(900)
    assert node.classic("q").ready_count() == 1
    node.tick(200)
    assert node.classic("q").ready_count() == 0


@pytest.mark.parametrize("copies", [2, 3])
def test_copies_of_a_dead_letter_follow_its_keys(node: Node, peer: Peer, copies: int) -> None:
    """Behaviour 70 (missing dead-letter exchange).

    An alternate exchange takes what none of the keys brought anywhere.
    """
    alternate = {"alternate-exchange": "rest"}
    peer.call(1, "exchange.declare", exchange="rest", type="fanout")
    peer.call(1, "exchange.declare", exchange="dead", type="direct", arguments=alternate)
    peer.declare("q", durable=False, arguments={"x-dead-letter-exchange": "dead"})
    for queue, exchange in (("k2", "dead"), ("unrouted", "rest")):
        peer.declare(queue, durable=False)
        peer.call(1, "queue.bind", queue=queue, exchange=exchange, routing_key=queue)
    keys = [f"k{number}" for number in range(1, copies)]
    peer.send(publish(1, "", "q", b"x", expiration="0", headers={"CC": keys}))
    node.tick(1)
    counts = [node.classic(queue).ready_count() for queue in ("k2", "unrouted")]
    assert counts == ([1, 0] if copies == 3 else [0, 1])
