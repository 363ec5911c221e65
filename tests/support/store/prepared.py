"""A data directory with users and vhosts, made before the broker starts on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from leveret.store.disk import RealDisk
from support.node.core import Node


def prepare(data_dir: Path, change: Callable[[Node], None]) -> None:
    """Apply `change` to a broker in memory, and write its state to `data_dir`."""
    data_dir.mkdir(parents=True, exist_ok=True)
    disk = RealDisk(str(data_dir))
    node = Node(disk)
    change(node)
    node.sync()
    node.broker.journal_stop(node.clock.wall_ms())
    node.sync()
    disk.close()
