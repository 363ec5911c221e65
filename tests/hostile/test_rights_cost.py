"""A change of permissions looks at consumers in slices, and a client cannot ask for such a look."""

from __future__ import annotations

import pytest

from leveret.broker.scheduler.costs import ROUND, SLICE
from support.node.core import Node, Peer
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


def permit(node: Node, read: str) -> list[int]:
    """Set what `u` may read; return the steps of this and of each call after it."""
    before = int(node.core.scheduler.spent)
    node.broker.users.set_permission("u", "/", ".*", ".*", read)
    steps = [int(node.core.scheduler.spent) - before]
    while node.core.scheduler.tasks:
        before = int(node.core.scheduler.spent)
        node.broker.settle()
        steps.append(int(node.core.scheduler.spent) - before)
        assert len(steps) < CONSUMERS
    return steps


def consumers_of(node: Node) -> int:
    queues = node.vhost.queues.by_name
    return sum(len(node.classic(name).consumers) for name in queues)


@pytest.mark.parametrize("connections", [1, 100])
@pytest.mark.parametrize("pattern", ["^(q|[0-9])*7$", "", ".*"])
def test_consumers_are_looked_at_in_slices(node: Node, connections: int, pattern: str) -> None:
    peers = readers(node, connections)
    steps = permit(node, pattern)
    # Each slice may end with a name, and several works have one in a turn.
    assert steps[0] <= SLICE + 2 * CONSUMERS // 16 + connections
    assert max(steps) <= ROUND
    assert sum(steps) >= CONSUMERS
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
    assert not node.core.scheduler.tasks
    assert consumers_of(node) == 0


def test_another_change_looks_at_all_of_them_again(node: Node) -> None:
    readers(node)
    users = node.broker.users
    users.set_permission("u", "/", ".*", ".*", ".*")
    assert node.core.scheduler.tasks
    users.set_permission("u", "/", ".*", ".*", "")
    node.run()
    assert consumers_of(node) == 0


def test_a_connection_that_is_lost_meanwhile_has_none(node: Node) -> None:
    peers = readers(node)
    node.broker.users.set_permission("u", "/", ".*", ".*", ".*$")
    assert node.core.scheduler.tasks
    peers[0].lose()
    node.run()
    assert consumers_of(node) == 0
    assert not node.core.scheduler.tasks


def test_a_client_that_updates_its_secret_has_its_consumers_left_alone(node: Node) -> None:
    peer = readers(node)[0]
    before = int(node.core.scheduler.spent)
    update = method(0, "connection.update-secret", new_secret=b"x", reason="r")
    peer.connection.receive(update * 10, node.now())
    assert int(node.core.scheduler.spent) - before < CONSUMERS // 10
    assert peer.connection.access.revision == 0
