"""Behaviours 6, 14, 73 and 74 while connections are open: rights and vhosts that come and go.

What the operator does has no AMQP method, so the broker is one in memory, with the bytes of its
sessions at both ends.
"""

from __future__ import annotations

import pytest

from support.node.core import Node, Peer
from support.wire.raw_codec import decode_properties, method, publish

ALL = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture
def node() -> Node:
    """A broker with the user `u`, who may do all in `/` and in `v`."""
    node = Node()
    node.broker.add_vhost("v")
    node.add_user("u", **ALL)
    node.broker.users.set_permission("u", "v", ".*", ".*", ".*")
    node.sync()
    return node


def permit(node: Node, configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
    """Change what `u` may do in `/`."""
    node.broker.users.set_permission("u", "/", configure, write, read)
    node.run()


def closed(peer: Peer, code: int, text: str) -> None:
    """Expect the connection's close, which has no method at fault."""
    got = peer.expect(0, "connection.close")
    assert (got.code, got.text, got.class_id, got.method_id) == (code, text, 0, 0)
    peer.send(method(0, "connection.close-ok"))
    assert peer.connection.finished


# -- 74: revoked rights


def test_b74_revoked_write_reaches_an_open_channel(node: Node) -> None:
    """74: the next publish is refused, though its route is remembered."""
    peer = node.connect_as("u")
    peer.declare("q")
    peer.send(publish(1, "", "q", body=b"one"))
    permit(node, write="^other$")
    peer.send(publish(1, "", "q", body=b"two"))
    got = peer.expect(1, "channel.close")
    assert got.code == 403
    assert got.text.startswith("ACCESS_REFUSED - write access to exchange 'amq.default'")
    assert node.classic("q").ready_count() == 1


def test_b74_granted_write_reaches_an_open_channel(node: Node) -> None:
    """74: a refusal is not remembered either."""
    permit(node, write="")
    peer = node.connect_as("u", 1, 2)
    peer.declare("q")
    peer.send(publish(2, "", "q", body=b"one"))
    peer.expect(2, "channel.close")
    permit(node)
    peer.send(publish(1, "", "q", body=b"two"))
    assert peer.names() == []
    assert node.classic("q").ready_count() == 1


def test_b74_revoked_topic_permission_reaches_an_open_channel(node: Node) -> None:
    """74: by routing key."""
    peer = node.connect_as("u")
    peer.send(publish(1, exchange="amq.topic", routing_key="a.b", body=b"one"))
    node.broker.users.set_topic_permission("u", "/", "amq.topic", "^c", ".*")
    peer.send(publish(1, exchange="amq.topic", routing_key="a.b", body=b"two"))
    assert "write access to topic 'a.b'" in peer.expect(1, "channel.close").text
    node.broker.users.clear_topic_permission("u", "/", "amq.topic")
    peer = node.connect_as("u")
    peer.send(publish(1, exchange="amq.topic", routing_key="a.b", body=b"three"))
    assert peer.names() == []


def test_b74_revoked_read_cancels_the_consumer(node: Node) -> None:
    """74: nothing more is delivered; what is unacked stays so, and other consumers go on."""
    peer = node.connect_as("u")
    for queue in ("kept", "lost"):
        peer.declare(queue)
        peer.call(1, "basic.consume", queue=queue, consumer_tag=queue)
    for queue in ("kept", "lost"):
        peer.send(publish(1, "", queue, body=b"one"))
    assert peer.bodies() == [b"one", b"one"]
    permit(node, read="^kept$")
    assert peer.expect(1, "basic.cancel").consumer_tag == "lost"
    for queue in ("kept", "lost"):
        peer.send(publish(1, "", queue, body=b"two"))
    assert peer.bodies() == [b"two"]
    assert (node.classic("lost").ready_count(), node.classic("lost").unacked_count) == (1, 1)
    assert node.classic("lost").consumers == []


def test_b74_revoked_read_ends_a_consumer_that_is_not_told(node: Node) -> None:
    """74: also for a client that did not announce `consumer_cancel_notify`."""
    peer = node.connect_as("u", consumer_cancel_notify=False)
    peer.declare("q")
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    permit(node, read="")
    peer.send(publish(1, "", "q", body=b"one"))
    assert peer.names() == []
    assert node.classic("q").ready_count() == 1


def test_b74_revoked_read_takes_an_auto_delete_queue_along(node: Node) -> None:
    """74: its last consumer is gone."""
    peer = node.connect_as("u")
    peer.declare("q", auto_delete=True)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    permit(node, read="")
    assert peer.names() == ["basic.cancel"]
    assert "q" not in node.vhost.queues.by_name


def test_b74_revoked_read_leaves_the_channels_own_replies(node: Node) -> None:
    """74: direct reply-to asks for no permission, so a change takes none away."""
    peer = node.connect_as("u")
    reply_to = "amq.rabbitmq.reply-to"
    peer.call(1, "basic.consume", queue=reply_to, consumer_tag="c", no_ack=True)
    permit(node, read="")
    peer.declare("q")
    peer.send(publish(1, "", "q", body=b"ask", reply_to=reply_to))
    server = node.connect()
    asked = server.call_get("q")
    address = decode_properties(asked.properties)["reply_to"]
    server.send(publish(1, "", address, body=b"answer"))
    assert peer.bodies() == [b"answer"]


def test_b74_one_vhosts_change_leaves_the_others(node: Node) -> None:
    """74: and so does another user's."""
    other = node.connect_as("u", vhost="v")
    guest = node.connect()
    for peer in (other, guest):
        peer.declare("q")
        peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    node.broker.users.clear_permission("u", "/")
    node.run()
    for peer in (other, guest):
        peer.send(publish(1, "", "q", body=b"one"))
        assert peer.bodies() == [b"one"]


def test_b74_no_permission_left_allows_nothing(node: Node) -> None:
    """74: the connection stays, as in RabbitMQ, and may do nothing."""
    peer = node.connect_as("u", 1, 2)
    peer.declare("q")
    node.broker.users.clear_permission("u", "/")
    node.run()
    for channel, passive in ((1, True), (2, False)):
        peer.send(method(channel, "queue.declare", queue="q", passive=passive, durable=True))
        assert peer.expect(channel, "channel.close").code == 403


def test_b74_deleted_user_is_320(node: Node) -> None:
    """74: the connections of a deleted user are closed, wherever they are."""
    peers = [node.connect_as("u"), node.connect_as("u", vhost="v")]
    guest = node.connect()
    node.broker.users.delete("u")
    node.run()
    for peer in peers:
        closed(peer, 320, "CONNECTION_FORCED - user 'u' is deleted")
    guest.declare("q")


def test_b74_user_of_the_same_name_has_no_old_rights(node: Node) -> None:
    """74: permissions go with the user."""
    node.broker.users.delete("u")
    node.add_user("u")
    peer = node.dial()
    peer.ask_open("u", "/")
    assert peer.expect(0, "connection.close").code == 530


def test_b74_user_deleted_between_login_and_open(node: Node) -> None:
    """74: who is not in yet does not get in."""
    peer = node.dial()
    peer.connection.user = "u"
    node.broker.users.delete("u")
    assert peer.connection.finished


# -- 14: update-secret looks at the permissions again


def test_b14_update_secret_is_answered_and_keeps_what_is_allowed(node: Node) -> None:
    """14: consumers that may go on do."""
    peer = node.connect_as("u")
    peer.declare("q")
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.call(0, "connection.update-secret", new_secret=b"u", reason="r")
    peer.send(publish(1, "", "q", body=b"one"))
    assert peer.bodies() == [b"one"]


def test_b14_update_secret_does_not_bring_back_what_was_taken(node: Node) -> None:
    """14: neither a permission that was revoked nor a user who was deleted."""
    peer = node.connect_as("u")
    peer.declare("q")
    permit(node, read="^other$")
    peer.call(0, "connection.update-secret", new_secret=b"u", reason="r")
    peer.send(method(1, "basic.get", queue="q"))
    assert peer.expect(1, "channel.close").code == 403
    node.broker.users.delete("u")
    node.run()
    closed(peer, 320, "CONNECTION_FORCED - user 'u' is deleted")
    peer = node.connect_as("guest")
    node.broker.users.delete("guest")
    peer.send(method(0, "connection.update-secret", new_secret=b"guest", reason="r"))
    assert peer.names() == ["connection.close"]
    assert "guest" not in node.broker.users.by_name


def test_b14_update_secret_changes_nothing_that_is_stored(node: Node) -> None:
    """14: the user's record stays as it is, and no byte of the journal is written."""
    peer = node.connect_as("u")
    node.sync()
    before = node.broker.users.get("u").definition()
    for secret in (b"u", b"another"):
        peer.call(0, "connection.update-secret", new_secret=secret, reason="r")
    assert node.broker.users.get("u").definition() == before
    assert not node.core.journal.has_records()


# -- 73: vhosts


def test_b73_deleted_vhost_closes_its_connections(node: Node) -> None:
    """73: 320, in RabbitMQ 4.3's words; other vhosts go on."""
    gone = node.connect_as("u", vhost="v")
    gone.declare("q")
    gone.call(1, "basic.consume", queue="q", consumer_tag="c")
    gone.send(publish(1, "", "q", body=b"x" * 1000, delivery_mode=2))
    gone.take()
    kept = node.connect_as("u")
    kept.declare("q")
    held = node.core.memory.held_bytes
    node.broker.delete_vhost("v")
    node.run()
    closed(gone, 320, "CONNECTION_FORCED - vhost 'v' is deleted")
    assert node.core.memory.held_bytes <= held - 1000
    kept.send(publish(1, "", "q", body=b"one"))
    assert kept.call_get("q").body == b"one"


def test_b73_deleted_vhost_is_not_there_and_a_new_one_is_empty(node: Node) -> None:
    """73: nor do permissions outlive it."""
    node.connect_as("u", vhost="v").declare("q")
    node.broker.delete_vhost("v")
    peer = node.dial()
    peer.ask_open("u", "v")
    assert "access to vhost 'v' refused" in peer.expect(0, "connection.close").text
    peer = node.dial()
    peer.ask_open("guest", "v")
    assert peer.expect(0, "connection.close").text == "NOT_ALLOWED - vhost v not found"
    node.broker.add_vhost("v")
    peer = node.dial()
    peer.ask_open("u", "v")
    assert "access to vhost 'v' refused" in peer.expect(0, "connection.close").text
    node.broker.users.set_permission("u", "v", ".*", ".*", ".*")
    peer = node.connect_as("u", vhost="v")
    peer.send(method(1, "queue.declare", queue="q", passive=True))
    assert peer.expect(1, "channel.close").code == 404


def test_b73_exclusive_queue_of_a_deleted_vhost(node: Node) -> None:
    """73: it goes with its connection before the vhost does."""
    peer = node.connect_as("u", vhost="v")
    peer.declare("q", exclusive=True)
    node.broker.delete_vhost("v")
    node.run()
    closed(peer, 320, "CONNECTION_FORCED - vhost 'v' is deleted")
    peer.lose()


# -- 6: limits


def refused_open(node: Node, vhost: str) -> str:
    """The text of a refused connection.open."""
    peer = node.dial()
    peer.ask_open("u", vhost)
    got = peer.expect(0, "connection.close")
    assert got.code == 530
    text: str = got.text
    return text


@pytest.mark.parametrize("most", [0, 1])
def test_b06_vhost_limit_of_connections_is_530(node: Node, most: int) -> None:
    """6: at the limit and one past it; 0 lets nobody in, a negative number everybody."""
    node.broker.vhost("v").limits.by_name["max-connections"] = most
    peers = [node.connect_as("u", vhost="v") for _ in range(most)]
    text = "access to vhost 'v' refused for user 'u'"
    assert refused_open(node, "v") == f"NOT_ALLOWED - {text}: connection limit ({most}) is reached"
    node.connect_as("u")
    for peer in peers:
        peer.lose()
        node.connect_as("u", vhost="v")
    node.broker.vhost("v").limits.by_name["max-connections"] = -1
    node.connect_as("u", vhost="v")


def test_b06_user_limit_of_connections_is_over_all_vhosts(node: Node) -> None:
    """6: a connection that has said goodbye counts no more, though its socket is still there."""
    node.broker.users.set_limits("u", {"max-connections": 2})
    first = node.connect_as("u")
    node.connect_as("u", vhost="v")
    assert "user connection limit (2) is reached" in refused_open(node, "/")
    node.connect()
    first.send(method(0, "connection.close", code=200, text="bye"))
    node.connect_as("u")
    node.broker.users.clear_limits("u", "max-connections")
    node.connect_as("u")


def test_b06_user_limit_of_channels_counts_what_is_open(node: Node) -> None:
    """6: at the limit and one past it, over two connections."""
    node.broker.users.set_limits("u", {"max-channels": 2})
    one = node.connect_as("u")
    two = node.connect_as("u")
    one.call(1, "channel.close", code=200, text="bye")
    two.call(2, "channel.open")
    one.send(method(1, "channel.open"))
    got = one.expect(0, "connection.close")
    text = "number of channels opened for user 'u' has reached the maximum allowed user limit of 2"
    assert (got.code, got.text) == (530, f"NOT_ALLOWED - {text}")
