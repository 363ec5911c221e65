"""Restarts of a broker in memory: after a stop, after a kill, and from a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node


def stopped(node: Node) -> Node:
    """A broker restarted after a graceful stop."""
    return Node(RecordingDisk(node.stop()))


def killed(node: Node) -> Node:
    """A broker restarted after a kill with everything synced."""
    node.sync()
    return Node(RecordingDisk(node.image()))


def checkpointed(node: Node) -> Node:
    """A broker restarted after a kill, from a snapshot only."""
    node.sync()
    for _ in range(2):
        node.take_checkpoint()
        node.sync()
    return Node(RecordingDisk(node.image()))


RESTARTS: Final[list[Callable[[Node], Node]]] = [stopped, killed, checkpointed]
