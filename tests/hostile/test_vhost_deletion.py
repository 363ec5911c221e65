"""The deletion of a vhost, and the end of many connections, cost a slice at a time.

A vhost that is being deleted is not there any more: nobody enters it and nothing is declared in it,
and a crash between two slices leaves nothing of it.
"""

from __future__ import annotations

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.broker import Broker
from leveret.broker.definitions.imports import import_definitions
from leveret.broker.scheduler.costs import CONNECTION_CLOSED, SLICE
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import NotFound, PreconditionFailed
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import PROTOCOL_HEADER, method, publish

#: Queues that are more than some slices.
MANY = SLICE


@pytest.fixture
def node() -> Node:
    return Node()


def filled(node: Node, count: int = MANY) -> Vhost:
    """A vhost with durable queues that are bound, an exchange that delays, and user `guest`."""
    vhost = node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    for number in range(count):
        name = Name(f"q{number}")
        vhost.queues.create(name, QueueAttributes(True, arguments={}))
        vhost.exchanges.bind(Name("amq.direct"), name, True, f"k{number}", {}, None)
        if number % 8 == 0:
            vhost.exchanges.create(Name(f"e{number}"), "fanout", True, False, False, {})
            vhost.exchanges.bind(Name(f"e{number}"), name, True, "", {}, None)
    late: dict[str, object] = {"x-delayed-type": "fanout"}
    vhost.exchanges.create(Name("late"), "x-delayed-message", True, False, False, late)
    node.sync()
    return vhost


def sync(node: Node) -> None:
    """Sync what was recorded, without a turn."""
    group = node.journal.seal()
    if group is not None:
        node.files.write(group)
        node.core.syncs.synced(group.number)


def is_gone(broker: Broker) -> bool:
    """Whether nothing of the vhost is left."""
    return "v" not in broker.vhosts and not broker.dissolving


def test_nobody_finds_a_vhost_that_is_being_deleted(node: Node) -> None:
    vhost = filled(node)
    peer = node.dial()
    peer.send(PROTOCOL_HEADER)
    peer.send(method(0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0guest"))
    peer.send(method(0, "connection.tune-ok", channel_max=1, frame_max=131_072, heartbeat=0))
    peer.take()
    work = node.broker.delete_vhost("v")
    peer.receive(method(0, "connection.open", vhost="v"))
    assert not work.over
    assert vhost.queues.by_name
    peer.flush()
    assert peer.expect(0, "connection.close").code == 530
    with pytest.raises(PreconditionFailed, match="vhost 'v' is being deleted"):
        node.broker.put_vhost("v", {}, {})
    with pytest.raises(NotFound):
        node.broker.delete_vhost("v")
    with pytest.raises(NotFound):
        vhost.queues.declare(None, Name("new"), QueueAttributes(True, arguments={}))
    with pytest.raises(NotFound):
        vhost.exchanges.declare(Name("new"), "fanout", True, False, False, {})
    with pytest.raises(NotFound):
        node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    node.sync()
    # The name is free, and the new vhost is empty.
    assert not node.broker.put_vhost("v", {}, {}).queues.by_name
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert list(again.broker.vhosts) == ["/", "v"]
    assert not again.broker.vhost("v").queues.by_name


def test_an_import_into_it_is_refused_and_changes_nothing(node: Node) -> None:
    filled(node)
    node.broker.delete_vhost("v")
    definitions = {"vhosts": [{"name": "new"}, {"name": "v"}]}
    with pytest.raises(PreconditionFailed, match="vhost 'v' is being deleted"):
        import_definitions(node.broker, definitions, b"")
    assert list(node.broker.vhosts) == ["/"]


@pytest.mark.parametrize("checkpoint", ["none", "between", "around"])
def test_a_crash_between_two_slices_leaves_nothing(checkpoint: str) -> None:
    node = Node()
    filled(node, MANY // 2)
    peer = node.connect_as("guest", vhost="v")
    for number in range(8):
        peer.send(publish(1, "", f"q{number}", b"m", delivery_mode=2))
        peer.send(publish(1, "late", "", b"m", delivery_mode=2, headers={"x-delay": 60_000}))
    node.sync()
    if checkpoint == "around":
        for _ in range(3):
            node.step_checkpoint(1)
    node.broker.delete_vhost("v")
    crashes = 0
    while not node.rests():
        node.settle()
        sync(node)
        if checkpoint == "between":
            while not node.step_checkpoint():
                sync(node)
        elif checkpoint == "around" and node.checkpoint is not None:
            node.step_checkpoint()
        crashes += 1
        again = Node(RecordingDisk(node.image()))
        assert is_gone(again.broker)
        assert again.orphaned == []
        assert ("guest", "v") not in again.broker.users.permissions
        # Whoever makes it anew has a new one, also after another start.
        again.broker.add_vhost("v")
        again.sync()
        third = Node(RecordingDisk(again.image()))
        assert not third.broker.vhost("v").queues.by_name
        again.take_checkpoint()
        fourth = Node(RecordingDisk(again.image()))
        assert not fourth.broker.vhost("v").queues.by_name
        assert fourth.orphaned == []
    assert crashes > 1


def test_a_stop_ends_a_deletion(node: Node) -> None:
    filled(node)
    node.broker.delete_vhost("v")
    assert node.broker.dissolving
    again = Node(RecordingDisk(node.stop()))
    assert again.report.clean_stop
    assert is_gone(again.broker)


def many(node: Node, user: str, vhost: str, count: int) -> list[Peer]:
    """Open connections."""
    return [node.connect_as(user, vhost=vhost) for _ in range(count)]


def test_the_connections_in_a_vhost_are_closed_in_turns(node: Node) -> None:
    vhost = filled(node, 8)
    count = 2 * SLICE // CONNECTION_CLOSED
    peers = many(node, "guest", "v", count)
    stays = node.connect()
    node.broker.delete_vhost("v")
    # The last one is still open: what it asks for meanwhile is refused, and changes nothing.
    last = peers[-1]
    last.receive(method(1, "queue.declare", queue="new"))
    assert "new" not in vhost.queues.by_name
    node.sync()
    for peer in peers[:-1]:
        assert peer.expect(0, "connection.close").code == 320
    assert last.expect(1, "channel.close").code == 403
    assert last.expect(0, "connection.close").code == 320
    assert stays.declare("q").queue == "q"
    assert is_gone(node.broker)


def test_the_connections_of_a_deleted_user_are_closed_and_no_others(node: Node) -> None:
    """Those of a new user of the same name stay."""
    allowed = {"configure": ".*", "write": ".*", "read": ".*"}
    node.add_user("u", **allowed)
    count = 2 * SLICE // CONNECTION_CLOSED
    peers = many(node, "u", "/", count)
    closing = node.broker.users.delete("u")
    at_once = closing.over
    assert not at_once
    node.add_user("u", **allowed)
    node.run()
    assert closing.over
    new = node.connect_as("u")
    node.sync()
    for peer in peers:
        assert peer.expect(0, "connection.close").code == 320
    assert new.declare("q").queue == "q"
