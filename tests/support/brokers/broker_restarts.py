"""The ways in which a broker in memory comes back: after a stop, a kill, and from a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node


def stopped(node: Node) -> Node:
    """A broker after a stop in order."""
    return Node(RecordingDisk(node.stop()))


def killed(node: Node) -> Node:
    """A broker after a kill, when all was synced."""
    node.sync()
    return Node(RecordingDisk(node.image()))


def checkpointed(node: Node) -> Node:
    """A broker after a kill, when only a snapshot tells of what was before."""
    node.sync()
    for _ in range(2):
        node.take_checkpoint()
        node.sync()
    return Node(RecordingDisk(node.image()))


RESTARTS: Final[list[Callable[[Node], Node]]] = [stopped, killed, checkpointed]
