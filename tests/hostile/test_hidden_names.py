"""Who has no right to a thing hears the same whether it is there or not."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.users.users import User, hash_password
from leveret.names import Name
from support.hostile.hostile_node import HostileNode, Tally
from support.node.core import Node
from support.wire.raw_codec import method

#: A name that is taken by each kind of thing, and one that is free.
_KINDS = ("a", "stream", "super", "exchange", "amq.own", "amq.topic", "none", "amq.none")


@pytest.fixture
def node() -> Node:
    """A broker with a thing of each kind, and `outsider`, who may do nothing with any of them."""
    node = Node()
    guest = node.connect()
    guest.declare("a")
    guest.declare("stream", arguments={"x-queue-type": "stream"})
    guest.declare("super", arguments={"x-super-stream-partitions": 2})
    guest.call(1, "exchange.declare", exchange="exchange", type="topic")
    node.broker.vhosts["/"].queues.create(Name("amq.own"), QueueAttributes(True))
    node.add_user("outsider", configure="^mine$", write="^mine$", read="^mine$")
    node.add_user("stranger")
    node.add_user("tagged", "administrator")
    node.broker.add_vhost("there")
    node.broker.add_vhost("full").limits.set({"max-connections": 0})
    return node


def answers(node: Node, name: str, field: str, values: dict[str, Any]) -> set[str]:
    """What `outsider` hears of each name, with the name itself taken out."""
    heard = set()
    for kind in _KINDS:
        peer = node.connect_as("outsider")
        peer.send(method(1, name, **{**values, field: kind}))
        node.sync()
        (got,) = peer.take()
        heard.add(f"{got.name} {got.fields}".replace(f"'{kind}'", "'*'"))
    return heard


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("queue.declare", "queue", {"passive": True}),
        ("queue.purge", "queue", {}),
        ("queue.delete", "queue", {}),
        ("queue.bind", "queue", {"exchange": "mine", "routing_key": ""}),
        ("queue.bind", "exchange", {"queue": "mine", "routing_key": ""}),
        ("queue.unbind", "queue", {"exchange": "mine", "routing_key": ""}),
        ("basic.get", "queue", {}),
        ("basic.consume", "queue", {}),
        ("exchange.declare", "exchange", {"type": "topic", "passive": True}),
        ("exchange.bind", "source", {"destination": "mine", "routing_key": ""}),
        ("exchange.bind", "destination", {"source": "mine", "routing_key": ""}),
    ],
)
def test_a_name_is_told_by_nobody(
    node: Node, name: str, field: str, values: dict[str, Any]
) -> None:
    assert len(answers(node, name, field, values)) == 1


@pytest.mark.parametrize("arguments", [{}, {"x-super-stream-partitions": 2}])
def test_a_declare_tells_nothing_but_that_a_name_is_reserved(
    node: Node, arguments: dict[str, object]
) -> None:
    heard = answers(node, "queue.declare", "queue", {"arguments": arguments})
    assert len(heard) == 2
    assert any("reserved prefix" in text for text in heard)


def entered(node: Node, user: str, vhost: str) -> str:
    """What who opens a vhost hears."""
    peer = node.dial()
    peer.ask_open(user, vhost)
    return str(peer.expect(0, "connection.close").text).replace(f"'{vhost}'", "'*'")


def test_a_vhost_is_told_by_nobody_but_to_an_administrator(node: Node) -> None:
    assert len({entered(node, "stranger", name) for name in ("there", "full", "/", "none")}) == 1
    assert entered(node, "tagged", "none") == "NOT_ALLOWED - vhost none not found"


def test_a_vhost_is_told_by_nobody_over_http(tmp_path: Path) -> None:
    async def run() -> set[bytes]:
        hostile = HostileNode(tmp_path, Tally())
        users = hostile.node.broker.users
        for name, tag in (("stranger", "management"), ("tagged", "administrator")):
            users.put(User(name, hash_password(b"salt", name.encode()), [tag]))
        heard = set()
        async with hostile.serving():
            for vhost in (b"h", b"%2F", b"none"):
                asked = b"Basic " + base64.b64encode(b"stranger:stranger")
                path = b"/api/streams/%s/s" % vhost
                status, body = await hostile.tcp.ask("GET", path, None, asked)
                shown = vhost.replace(b"%2F", b"/")
                heard.add(b"%d %s" % (status, body.replace(b"'%s'" % shown, b"'*'")))
            asked = b"Basic " + base64.b64encode(b"tagged:tagged")
            status, _ = await hostile.tcp.ask("GET", b"/api/streams/none/s", None, asked)
            assert status == 404
        return heard

    assert len(asyncio.run(run())) == 1
