"""A connection that is over leaves nothing in memory that only the collector of cycles would free.

It may have been there for long, and what is old is nearly never collected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from support.node.core import Node, Peer
from support.node.uncollected import no_collector, objects_of
from support.wire.raw_codec import method, publish

#: Where the objects of a connection are defined.
ROOMS = ("leveret.session.", "leveret.wire.")


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    with no_collector():
        yield


def in_memory() -> Counter[str]:
    """How many objects of connections there are, by their types."""
    return objects_of(*ROOMS)


def idle(peer: Peer) -> None:
    """It has only logged in."""


def consuming(peer: Peer) -> None:
    peer.send(publish(1, "", "q", b"m") * 3)
    peer.call(1, "basic.qos", prefetch_count=2)
    peer.call(1, "basic.consume", queue="q", consumer_tag="t")


def holding_much(peer: Peer) -> None:
    """It has a queue of its own, a transaction, confirms and more than one channel."""
    peer.call(2, "channel.open")
    peer.call(2, "tx.select")
    peer.send(publish(2, "", "q", b"held"))
    peer.call(1, "queue.declare", queue="own", exclusive=True)
    peer.call(1, "confirm.select")
    peer.send(publish(1, "", "q", b"m"))


def closed(peer: Peer) -> None:
    peer.send(method(0, "connection.close", code=200))
    assert peer.take()[-1].name == "connection.close-ok"


def closed_by_the_broker(peer: Peer) -> None:
    peer.connection.force("shutdown")


def cut_off(peer: Peer) -> None:
    peer.send(publish(1, "", "q", bytes(100_000))[:50_000])


@pytest.mark.parametrize("use", [idle, consuming, holding_much])
@pytest.mark.parametrize("end", [closed, closed_by_the_broker, cut_off])
def test_it_leaves_nothing(use: Callable[[Peer], None], end: Callable[[Peer], None]) -> None:
    node = Node()
    before: Counter[str] = Counter()
    # What is kept of the first one serves all others.
    for _ in range(3):
        before = in_memory()
        peer = node.connect()
        peer.declare("q")
        use(peer)
        end(peer)
        node.sync()
        peer.lose()
        del peer
        node.sync()
        node.tick()
    assert in_memory() - before == Counter()
