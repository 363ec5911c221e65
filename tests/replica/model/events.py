"""What can happen next in a cluster, within the bounds of a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replica.model.cluster import CRASHES, OF_MESSAGES, OF_OPERATORS, Cluster, Event
from replica.model.faults import Fault
from replica.model.leader import Leader
from replica.model.node import Node


def possible(cluster: Cluster, kind: str) -> Sequence[Event]:
    """Return the events of a kind that can happen now."""
    if kind in OF_MESSAGES:
        if kind == "double" and not cluster.has_room():
            return ()
        return [Event(kind, place) for place in range(len(cluster.network))]
    if kind in OF_OPERATORS:
        return [Event(kind, 0)] if cluster.changes < cluster.bounds.changes else []
    if kind in CRASHES:
        return list(_crashes(cluster, kind))
    if kind == "sync":
        return [Event(kind, n.number) for n in cluster.nodes if n.synced < len(n.log)]
    if kind == "stand":
        return list(_elections(cluster))
    if kind == "resume":
        return list(_resumes(cluster))
    return [
        event
        for node in cluster.nodes
        if node.leader is not None
        for event in _of_leader(cluster, kind, node, node.leader)
    ]


def _of_leader(cluster: Cluster, kind: str, node: Node, leader: Leader) -> Iterator[Event]:
    number = node.number
    if kind == "write":
        if len(node.log) < cluster.bounds.groups:
            yield Event(kind, number)
    elif kind == "commit":
        if leader.reach(node.log, node.synced) > leader.committed:
            yield Event(kind, number)
    elif kind == "checkpoint":
        if leader.checkpoint_end(node.synced) > node.checkpoint:
            yield Event(kind, number)
    elif not cluster.has_room():
        return
    elif kind in {"hello", "start-over", "append"}:
        for other in range(len(cluster.nodes)):
            if other != number and (
                kind == "hello"
                or (kind == "append" and leader.has_next(node.log, other))
                or (kind == "start-over" and leader.may_start_over(other))
            ):
                yield Event(kind, number, other)
    elif cluster.changes < cluster.bounds.changes:
        if kind == "settle":
            if leader.unclear or leader.epoch != cluster.registry.state.epoch:
                yield Event(kind, number)
        elif not leader.unclear:
            yield from _changes(kind, leader)


def _changes(kind: str, leader: Leader) -> Iterator[Event]:
    members = sorted(member.node for member in leader.in_sync if member.node != leader.node)
    if kind == "shrink":
        if leader.may_shrink():
            yield from (Event(kind, leader.node, member) for member in members)
        return
    for joining in sorted(leader.sessions):
        if not leader.may_grow(joining):
            continue
        if kind == "grow":
            yield Event(kind, leader.node, joining)
        elif joining not in members or leader.may_shrink():
            for member in members:
                if member != joining:
                    yield Event(kind, leader.node, joining, member)


def _elections(cluster: Cluster) -> Iterator[Event]:
    state = cluster.registry.state
    if cluster.has_room() and state.epoch < cluster.bounds.epochs:
        yield from (Event("stand", n.number) for n in cluster.nodes if n.may_stand(state))


def _resumes(cluster: Cluster) -> Iterator[Event]:
    state = cluster.registry.state
    node = cluster.nodes[state.leader]
    if (
        cluster.setting.fault is Fault.SAME_EPOCH_AFTER_RESTART
        and node.log
        and node.may_stand(state)
    ):
        yield Event("resume", node.number)


def _crashes(cluster: Cluster, kind: str) -> Iterator[Event]:
    bounds = cluster.bounds
    if cluster.crashes >= bounds.crashes or (kind == "disk" and cluster.disks >= bounds.disks):
        return
    for node in cluster.nodes:
        if kind == "kill":
            yield Event(kind, node.number)
        else:
            least = node.synced if kind == "power" else 0
            yield from (Event(kind, node.number, kept) for kept in range(least, len(node.log) + 1))
