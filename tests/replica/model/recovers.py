"""What happens when faults end: the cluster must confirm again.

No node fails any more, every message arrives, and each node does what the protocol lets it do.  If
one member of the in-sync set has its disk, a leader is elected, members without their disks are
replaced, and a new group is confirmed, without an operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from replica.model.cluster import Cluster, Event
from replica.model.leader import Leader, Session
from replica.model.node import Following, Node
from replica.model.promises import Promise, Violation

#: A cluster that can recover needs fewer.
ROUNDS_MAX: Final = 20


def recover(cluster: Cluster) -> Iterator[Event]:
    """Yield the events of a cluster without further faults, each for the state after the last.

    Raises: Violation, when nothing new is confirmed in the end.
    """
    for _ in range(ROUNDS_MAX):
        yield from _settled(cluster)
        if not any(node.member in cluster.registry.state.in_sync for node in cluster.nodes):
            return
        node = _present_leader(cluster)
        if node is None:
            yield from _elect(cluster)
            continue
        assert node.leader is not None, "it leads"
        before = len(cluster.witness.confirmed)
        yield from _lead(cluster, node, node.leader)
        if len(cluster.witness.confirmed) > before and node.leader.committed == len(node.log):
            return
    raise Violation(Promise.RECOVERS, f"the in-sync set is {cluster.registry.state.in_sync}")


def _settled(cluster: Cluster) -> Iterator[Event]:
    """Deliver all messages, and sync all logs."""
    unsynced = True
    while cluster.network or unsynced:
        while cluster.network:
            yield Event("deliver", 0)
        unsynced = False
        for node in cluster.nodes:
            if node.synced < len(node.log):
                unsynced = True
                yield Event("sync", node.number)


def _present_leader(cluster: Cluster) -> Node | None:
    epoch = cluster.registry.state.epoch
    for node in cluster.nodes:
        if node.leader is not None and node.leader.epoch == epoch:
            return node
    return None


def _elect(cluster: Cluster) -> Iterator[Event]:
    """Let deposed leaders learn that they are, and a member stand for election."""
    for node in cluster.nodes:
        if node.leader is not None:
            yield Event("settle", node.number)
    for node in cluster.nodes:
        if node.may_stand(cluster.registry.state):
            yield Event("stand", node.number)
            return


def _lead(cluster: Cluster, node: Node, leader: Leader) -> Iterator[Event]:
    """Write a group, ship what others lack, commit, and let one of them join."""
    if leader.unclear:
        yield Event("settle", node.number)
        return
    if leader.committed >= leader.first and leader.committed == len(node.log):
        yield Event("write", node.number)
    for other in cluster.nodes:
        if other is not node:
            yield from _ship(cluster, node, leader, other)
    if leader.reach(node.log, node.synced) > leader.committed:
        yield Event("commit", node.number)
        return
    for other in cluster.nodes:
        if other is not node and leader.may_grow(other.number):
            yield Event("grow", node.number, other.number)
            return


def _ship(cluster: Cluster, node: Node, leader: Leader, other: Node) -> Iterator[Event]:
    number = other.number
    session = leader.sessions.get(number, Session(0))
    present = Following(leader.epoch, session.number, node.number)
    lost = session.sent > len(other.log) or session.acked < other.synced
    if other.following != present or session.incarnation is None or lost:
        yield Event("hello", node.number, number)
        yield from _settled(cluster)
    while leader.has_next(node.log, number):
        yield Event("append", node.number, number)
        yield from _settled(cluster)
