"""Very many messages that are handed out, or come back: no call moves or settles all of them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from core import Node, Peer
from leveret.limits import (
    DEFINING_METHOD_STEPS,
    METHOD_STEPS,
    STEPS_PER_SLICE,
)
from raw_codec import method, publish

#: Messages that are more than a few slices.
MANY = 20_000

#: What a request may take beyond its slice.
SPARE = 1024 + DEFINING_METHOD_STEPS + METHOD_STEPS

#: Entries of a dict, or a set, which grows in a moment.
ENTRIES_MAX = 5_000


def largest(*roots: object) -> int:
    """Return the entries of the largest dict or set that objects consist of."""
    most = 0
    seen: set[int] = set()
    left: list[Any] = list(roots)
    while left:
        found = left.pop()
        if id(found) in seen or isinstance(found, type):
            continue
        seen.add(id(found))
        if isinstance(found, dict | set):
            most = max(most, len(found))
        left += gc.get_referents(found)
    return most


@pytest.fixture
def node() -> Node:
    return Node(window_bytes=-1)


def filled(node: Node, arguments: dict[str, Any]) -> Peer:
    """A connection without a message of its own; the queue `q` has very many."""
    peer = node.connect(1, 2)
    peer.declare("q", arguments=arguments)
    for first in range(0, MANY, 500):
        peer.send(
            *[
                publish(2, "", "q", b"m", delivery_mode=2, priority=number % 7)
                for number in range(first, first + 500)
            ]
        )
    node.sync()
    peer.take()
    return peer


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 7}], ids=["plain", "priorities"])
def test_nothing_that_grows_moves_all_of_them(node: Node, arguments: dict[str, Any]) -> None:
    peer = filled(node, arguments)
    queue = node.classic("q")
    assert largest(queue.ready) < ENTRIES_MAX
    peer.send(method(1, "basic.consume", queue="q", consumer_tag="c"))
    node.sync()
    assert queue.unacked_count == queue.out.count == MANY
    assert largest(queue.out) < ENTRIES_MAX
    peer.send(method(1, "basic.cancel", consumer_tag="c"))
    peer.send(method(1, "basic.recover", requeue=True))
    node.sync()
    assert queue.ready_count() == MANY
    assert largest(queue.ready, queue.out) < ENTRIES_MAX
