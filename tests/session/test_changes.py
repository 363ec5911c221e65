"""Who changes what clients share counts it first: so a fault knows whether anything is half done.

Each operation runs between two pictures of the state.  Where they differ, one of the counts that
`Connection` compares after a fault must have moved; where only a question was asked, none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.broker.delayed.delayed import DelayedMessages
from leveret.broker.policies.policy import Policy, make_policy
from leveret.broker.stream.stream import Stream
from leveret.broker.users.users import User, hash_password
from leveret.names import Name
from support.node.core import Node, Peer
from support.node.delayed import ids
from support.node.exporting import export_definitions
from support.node.tags import set_tags
from support.wire.raw_codec import method, publish

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def peer() -> Peer:
    """A client of a broker with something of everything; two of its messages are out."""
    node = Node()
    peer = node.connect(1, 2, 3)
    node.broker.add_vhost("other")
    node.add_user("other", configure=".*", write=".*", read=".*")
    node.broker.users.set_limits("other", {"max-channels": 9})
    node.broker.users.set_topic_permission("other", "/", "amq.topic", ".*", ".*")
    node.vhost.policies.set(policy("p", "^nothing$"))
    node.broker.parameters.set_global("known", "value")
    node.broker.parameters.set("/", "federation", "known", {"uri": "x"}, True)
    peer.declare("q")
    peer.declare("s", arguments=STREAM)
    peer.declare("kept", arguments={"x-retain-acked": "1h"})
    peer.call(1, "queue.declare", queue="t")
    peer.call(1, "exchange.declare", exchange="x", type="fanout", durable=True)
    peer.call(1, "exchange.declare", exchange="late", type="x-delayed-message",
              arguments={"x-delayed-type": "fanout"}, durable=True)  # fmt: skip
    peer.call(1, "queue.bind", queue="q", exchange="x")
    peer.call(2, "basic.qos", prefetch_count=5)
    peer.call(2, "basic.consume", queue="s", consumer_tag="c")
    peer.call(3, "tx.select")
    for queue in ("q", "q", "q", "t", "t", "s", "kept"):
        peer.send(publish(1, "", queue, b"m", delivery_mode=2))
    peer.send(publish(1, "late", "", b"m", headers={"x-delay": 60_000}))
    node.sync()
    peer.take()
    peer.call_get("q")
    peer.call_get("t")
    peer.call_get("kept", no_ack=True)
    node.stream("s").offsets.set("reader", 0)
    node.sync()
    return peer


def late(node: Node) -> DelayedMessages:
    """What the exchange `late` delays."""
    store = node.vhost.exchanges.by_name["late"].delayed
    assert store is not None
    return store


def policy(name: str, pattern: str) -> Policy:
    """A policy that limits queues."""
    return make_policy(name, pattern, {"max-length": 9}, 0, "queues", False)


def picture(node: Node) -> list[object]:
    """What clients share, as far as questions tell it."""
    queues = [*node.vhost.queues.by_name.values(), *node.vhost.queues.replies.queues.values()]
    stream = node.vhost.queues.by_name.get("s")
    return [
        str(export_definitions(node.broker)),
        [
            (queue.name, queue.target.published, int(queue.ready_count()), int(queue.unacked_count),
             int(queue.retained_count()), len(queue.consumers))
            for queue in queues
        ],
        int(late(node).ready_count()),
        sorted(node.broker.users.limits.items()),
        sorted(node.broker.users.topic_permissions),
        stream.offsets.stored.copy() if isinstance(stream, Stream) else {},
    ]  # fmt: skip


def counts(peer: Peer) -> tuple[int, int, int]:
    """What a connection compares after a fault."""
    core = peer.node.core
    return (
        int(core.scheduler.changes),
        int(core.journal.unsynced_bytes),
        int(peer.connection.published),
    )


def sent(name: str, channel: int = 1, **values: Any) -> Callable[[Peer], None]:
    """The operation that a method asks for."""

    def operation(peer: Peer) -> None:
        peer.connection.receive(method(channel, name, **values), peer.node.now())

    return operation


def published(queue: str, channel: int = 1, **values: Any) -> Callable[[Peer], None]:
    """The operation that a publish asks for."""

    def operation(peer: Peer) -> None:
        peer.connection.receive(publish(channel, "", queue, b"m", **values), peer.node.now())

    return operation


def committed(peer: Peer) -> None:
    """Publish in a transaction and commit it."""
    peer.connection.receive(publish(3, "", "t", b"m"), peer.node.now())
    peer.connection.receive(method(3, "tx.commit"), peer.node.now())


CHANGES: dict[str, Callable[[Peer], object]] = {
    "publish": published("t"),
    "publish persistent": published("q", delivery_mode=2),
    "tx.commit": committed,
    "basic.ack": sent("basic.ack", delivery_tag=1),
    "basic.ack of a transient": sent("basic.ack", delivery_tag=2),
    "basic.ack of all": sent("basic.ack", delivery_tag=0, multiple=True),
    "basic.nack": sent("basic.nack", delivery_tag=2, requeue=True),
    "basic.reject": sent("basic.reject", delivery_tag=2, requeue=False),
    "basic.recover": sent("basic.recover", requeue=True),
    "basic.get": sent("basic.get", queue="t"),
    "basic.get without ack": sent("basic.get", queue="q", no_ack=True),
    "basic.consume": sent("basic.consume", queue="t"),
    "basic.consume replies": sent("basic.consume", queue="amq.rabbitmq.reply-to", no_ack=True),
    "basic.cancel": sent("basic.cancel", 2, consumer_tag="c"),
    "queue.declare": sent("queue.declare", queue="new"),
    "queue.declare named by the server": sent("queue.declare", queue="", exclusive=True),
    "queue.declare durable": sent("queue.declare", queue="new", durable=True),
    "queue.bind": sent("queue.bind", queue="t", exchange="x"),
    "queue.bind durable": sent("queue.bind", queue="q", exchange="amq.direct", routing_key="k"),
    "queue.unbind": sent("queue.unbind", queue="q", exchange="x"),
    "queue.purge": sent("queue.purge", queue="t"),
    "queue.delete": sent("queue.delete", queue="t"),
    "exchange.declare": sent("exchange.declare", exchange="new", type="topic"),
    "exchange.delete": sent("exchange.delete", exchange="x"),
    "exchange.bind": sent("exchange.bind", source="x", destination="amq.fanout"),
    "channel.close": sent("channel.close", code=200),
    "connection.close": sent("connection.close", 0, code=200),
    "add_vhost": lambda peer: peer.node.broker.add_vhost("new"),
    "delete_vhost": lambda peer: peer.node.broker.delete_vhost("other"),
    "vhost metadata": lambda peer: peer.node.vhost.metadata.set({"description": "new"}),
    "vhost limits": lambda peer: peer.node.vhost.limits.add({"max-queues": 9}),
    "put user": lambda peer: peer.node.broker.users.put(
        User("new", hash_password(b"salt", b"new"), [])
    ),
    "set_tags": lambda peer: set_tags(peer.node.broker.users, "other", ["management"]),
    "delete user": lambda peer: peer.node.broker.users.delete("other"),
    "set_permission": lambda peer: peer.node.broker.users.set_permission("other", "/", "", "", ""),
    "clear_permission": lambda peer: peer.node.broker.users.clear_permission("other", "/"),
    "set_topic_permission": lambda peer: peer.node.broker.users.set_topic_permission(
        "guest", "/", "amq.topic", "", ""
    ),
    "clear_topic_permission": lambda peer: peer.node.broker.users.clear_topic_permission(
        "other", "/"
    ),
    "set user limits": lambda peer: peer.node.broker.users.set_limits("guest", {"max-channels": 5}),
    "clear user limits": lambda peer: peer.node.broker.users.clear_limits("other"),
    "set_policy": lambda peer: peer.node.vhost.policies.set(policy("new", ".*")),
    "clear_policy": lambda peer: peer.node.vhost.policies.clear("p"),
    "set parameter": lambda peer: peer.node.broker.parameters.set(
        "/", "shovel", "n", {"a": 1}, True
    ),
    "clear parameter": lambda peer: peer.node.broker.parameters.clear("/", "federation", "known"),
    "set_global": lambda peer: peer.node.broker.parameters.set_global("new", 1),
    "clear_global": lambda peer: peer.node.broker.parameters.clear_global("known"),
    "cancel_delayed": lambda peer: peer.node.vhost.exchanges.cancel_delayed(
        Name("late"),
        ids(late(peer.node))[0],
    ),
    "purge_delayed": lambda peer: peer.node.vhost.exchanges.purge_delayed(Name("late")),
    "rewind": lambda peer: peer.node.classic("kept").rewind(0),
    "set an offset": lambda peer: peer.node.stream("s").offsets.set("new", 1),
    "forget an offset": lambda peer: peer.node.stream("s").offsets.forget("reader"),
}

QUESTIONS: dict[str, Callable[[Peer], object]] = {
    "queue.declare passive": sent("queue.declare", queue="q", passive=True),
    "queue.declare again": sent("queue.declare", queue="q", durable=True),
    "queue.declare otherwise": sent("queue.declare", queue="q", durable=False),
    "queue.bind again": sent("queue.bind", queue="q", exchange="x"),
    "queue.delete of none": sent("queue.delete", queue="none"),
    "exchange.declare passive": sent("exchange.declare", exchange="x", passive=True),
    "basic.qos": sent("basic.qos", prefetch_count=3),
    "confirm.select": sent("confirm.select"),
    "channel.flow": sent("channel.flow", active=True),
    "an unknown tag of a consumer": sent("basic.cancel", 2, consumer_tag="none"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_counted(peer: Peer, name: str) -> None:
    before = picture(peer.node), counts(peer)
    CHANGES[name](peer)
    after = picture(peer.node), counts(peer)
    assert after[0] != before[0], "nothing was changed"
    assert after[1] != before[1]


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_none(peer: Peer, name: str) -> None:
    before = picture(peer.node), counts(peer)
    QUESTIONS[name](peer)
    assert peer.connection.state
    soft = bool(
        peer.connection.channels.by_number.get(1) and peer.connection.channels.by_number[1].closing
    )
    after = picture(peer.node), counts(peer)
    if not soft:
        # The end of a channel requeues what is out.
        assert after == before
