"""Bindings: what makes one itself, and what binding and unbinding the same again does.

Source: behaviours 35 (bind and unbind), 36 (binding identity), 41 (names lose CR and LF) and 42
(empty queue name).
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.exchanges.binding import binding_identity
from support.node.core import Peer
from support.wire.raw_codec import Typed, method, publish


@pytest.fixture
def bound(peer: Peer) -> Peer:
    """A connection that declared the transient queue `q`."""
    peer.call(1, "queue.declare", queue="q")
    return peer


def bind(peer: Peer, key: str = "k", **arguments: Any) -> None:
    """Bind `q` to amq.direct."""
    values = {"queue": "q", "exchange": "amq.direct", "routing_key": key}
    peer.call(1, "queue.bind", arguments=arguments, **values)


def unbind(peer: Peer, key: str = "k", **arguments: Any) -> None:
    """Unbind `q` from amq.direct."""
    values = {"queue": "q", "exchange": "amq.direct", "routing_key": key}
    peer.call(1, "queue.unbind", arguments=arguments, **values)


def count(peer: Peer) -> int:
    """How many bindings there are, seen from both ends."""
    vhost = peer.node.vhost
    both = (
        len(vhost.exchanges.by_name["amq.direct"].bindings),
        len(vhost.exchanges.bindings_to(vhost.queues.by_name["q"])),
    )
    assert both[0] == both[1]
    return both[0]


def test_the_same_binding_again_is_one(bound: Peer) -> None:
    """Behaviour 36 (binding identity)."""
    bind(bound)
    bind(bound)
    assert count(bound) == 1
    unbind(bound)
    assert count(bound) == 0
    bound.send(publish(1, "amq.direct", "k", b"x"))
    assert bound.call(1, "queue.purge", queue="q").message_count == 0


def test_key_and_arguments_are_part_of_it(bound: Peer) -> None:
    """Behaviour 36 (binding identity).

    The same pair with another key or arguments is a second binding.
    """
    bind(bound)
    bind(bound, "l")
    bind(bound, a=1)
    bind(bound, a=2)
    assert count(bound) == 4
    # A queue that two of them match gets one copy.
    bound.send(publish(1, "amq.direct", "k", b"x"))
    assert bound.call(1, "queue.purge", queue="q").message_count == 1
    unbind(bound, a=1)
    assert count(bound) == 3
    bound.send(publish(1, "amq.direct", "k", b"x"))
    assert bound.call(1, "queue.purge", queue="q").message_count == 1


def test_arguments_count_in_any_order(bound: Peer) -> None:
    bind(bound, a=1, b={"c": [1, "x"]})
    bind(bound, b={"c": [1, "x"]}, a=1)
    assert count(bound) == 1


def test_to_an_exchange_and_to_a_queue_of_one_name_are_two(bound: Peer) -> None:
    bound.call(1, "exchange.declare", exchange="q", type="fanout")
    bind(bound)
    bound.call(1, "exchange.bind", source="amq.direct", destination="q", routing_key="k")
    assert len(bound.node.vhost.exchanges.by_name["amq.direct"].bindings) == 2
    unbind(bound)
    (left,) = bound.node.vhost.exchanges.by_name["amq.direct"].bindings.values()
    assert left.exchange is bound.node.vhost.exchanges.by_name["q"]


def test_unbinding_what_is_not_bound_is_fine(bound: Peer) -> None:
    """Behaviour 35 (bind and unbind): whatever of it is missing."""
    bind(bound)
    unbind(bound, "other")
    unbind(bound, a=1)
    for values in ({"exchange": "none", "queue": "q"}, {"exchange": "amq.direct", "queue": "none"}):
        bound.call(1, "queue.unbind", routing_key="k", **values)
    for name in ("amq.direct", "none"):
        bound.call(1, "exchange.unbind", source=name, destination="amq.fanout")
    assert count(bound) == 1


MISSING: list[tuple[str, dict[str, str], int]] = [
    ("queue.bind", {"queue": "none", "exchange": "amq.direct"}, 404),
    ("queue.bind", {"queue": "q", "exchange": "none"}, 404),
    ("exchange.bind", {"source": "none", "destination": "amq.direct"}, 404),
    ("exchange.bind", {"source": "amq.direct", "destination": "none"}, 404),
    ("queue.bind", {"queue": "q", "exchange": ""}, 403),
    ("queue.unbind", {"queue": "q", "exchange": ""}, 403),
    ("exchange.bind", {"source": "", "destination": "amq.direct"}, 403),
    ("exchange.bind", {"source": "amq.direct", "destination": ""}, 403),
]


@pytest.mark.parametrize(("name", "values", "code"), MISSING)
def test_what_cannot_be_bound(bound: Peer, name: str, values: dict[str, str], code: int) -> None:
    """Behaviour 35 (bind and unbind)."""
    bound.send(method(1, name, **values))
    assert bound.expect(1, "channel.close").code == code


def test_an_x_match_that_is_none_leaves_no_binding(bound: Peer) -> None:
    """Behaviour 40 (headers exchange)."""
    values = {"queue": "q", "exchange": "amq.headers", "arguments": {"x-match": "some"}}
    bound.send(method(1, "queue.bind", **values))
    assert bound.expect(1, "channel.close").code == 406
    assert not bound.node.vhost.exchanges.by_name["amq.headers"].bindings
    assert not bound.node.vhost.exchanges.bindings_to(bound.node.vhost.queues.by_name["q"])
    peer = bound.node.connect()
    peer.send(publish(1, "amq.headers", "", b"x"))
    peer.call(1, "basic.qos")


def test_names_are_taken_without_line_ends(bound: Peer) -> None:
    """Behaviour 41 (names lose CR and LF)."""
    values = {"queue": "q\r\n", "exchange": "amq.\ndirect", "routing_key": "k"}
    bound.call(1, "queue.bind", **values)
    unbind(bound)
    assert count(bound) == 0


def test_no_name_is_the_last_queue(peer: Peer) -> None:
    """Behaviour 42 (empty queue name): with an empty key, its name is the key."""
    name = peer.call(1, "queue.declare").queue
    peer.call(1, "queue.bind", exchange="amq.direct")
    peer.send(publish(1, "amq.direct", name, b"x"))
    assert peer.call(1, "queue.purge").message_count == 1


def test_identity_tells_values_apart_as_the_wire_does(bound: Peer) -> None:
    """A number is no text and no truth; of what type a value came is of no matter to routing."""
    values: list[Any] = [1, 2, "1", True, 1.0, None, {}, []]
    identities = {binding_identity(True, "q", "k", {"a": value}) for value in values}
    assert len(identities) == len(values)
    bind(bound, a=Typed("b", 1))
    bind(bound, a=Typed("l", 1))
    assert count(bound) == 1
