"""A change of permissions looks at consumers in turns, and a client cannot ask for such a look."""

from __future__ import annotations

import pytest

from support.node.core import Node, Peer
from support.node.variants import few_of
from support.wire.raw_codec import method

CONSUMERS = 3000


@pytest.fixture
def node() -> Node:
    """A broker with the user `u`, who may do everything."""
    node = Node()
    node.add_user("u", configure=".*", write=".*", read=".*")
    return node


def readers(node: Node, connections: int = 1) -> list[Peer]:
    """Clients of `u` that share `CONSUMERS`, each of theirs of another queue."""
    node.connect().send(
        *[
            method(1, "queue.declare", queue=f"q{number}", no_wait=True)
            for number in range(CONSUMERS // connections)
        ]
    )
    peers = []
    for _ in range(connections):
        peer = node.connect_as("u")
        peer.send(
            *[
                method(1, "basic.consume", queue=f"q{n}", consumer_tag=f"{n}", no_wait=True)
                for n in range(CONSUMERS // connections)
            ]
        )
        peers.append(peer)
    node.sync()
    return peers


def consumers_of(node: Node) -> int:
    queues = node.vhost.queues.by_name
    return sum(len(node.classic(name).consumers) for name in queues)


@pytest.mark.parametrize("connections", few_of([1, 100], 1))
@pytest.mark.parametrize("pattern", ["^(q|[0-9])*7$", "", ".*"])
def test_consumers_are_looked_at_in_turns(node: Node, connections: int, pattern: str) -> None:
    peers = readers(node, connections)
    node.broker.users.set_permission("u", "/", ".*", ".*", pattern)
    assert not node.rests()
    node.rest()
    left = {"": 0, ".*": CONSUMERS}.get(pattern, CONSUMERS // 10)
    assert consumers_of(node) == left
    for peer in peers:
        peer.flush()
        names = peer.names()
        assert set(names) <= {"basic.cancel"}
        assert len(names) == (CONSUMERS - left) // connections


def test_a_few_consumers_are_looked_at_at_once(node: Node) -> None:
    node.connect().declare("q0")
    peer = node.connect_as("u")
    peer.call(1, "basic.consume", queue="q0", consumer_tag="c")
    node.broker.users.set_permission("u", "/", ".*", ".*", "")
    assert consumers_of(node) == 0


def test_another_change_looks_at_all_of_them_again(node: Node) -> None:
    readers(node)
    users = node.broker.users
    users.set_permission("u", "/", ".*", ".*", ".*")
    assert not node.rests()
    users.set_permission("u", "/", ".*", ".*", "")
    node.run()
    assert consumers_of(node) == 0


def test_a_connection_that_is_lost_meanwhile_has_none(node: Node) -> None:
    peers = readers(node)
    node.broker.users.set_permission("u", "/", ".*", ".*", ".*$")
    assert not node.rests()
    peers[0].lose()
    node.run()
    assert consumers_of(node) == 0
    assert node.rests()


def test_a_client_that_updates_its_secret_has_its_consumers_left_alone(node: Node) -> None:
    peer = readers(node)[0]
    update = method(0, "connection.update-secret", new_secret=b"x", reason="r")
    peer.receive(update * 10)
    # The broker has looked at none of them, nor has it begun to.
    assert node.rests()
    assert peer.connection.access.revision == 0
