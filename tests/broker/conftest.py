"""Fixtures of the broker tests: a broker in memory and a client of it."""

from __future__ import annotations

import pytest

from support.node.core import Node, Peer


@pytest.fixture
def node() -> Node:
    """A broker on an empty disk in memory."""
    return Node()


@pytest.fixture
def peer(node: Node) -> Peer:
    """A connection with channel 1 open."""
    return node.connect()
