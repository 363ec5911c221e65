"""Exchanges: what each type matches, the way over several of them, and when they go.

Sources: AMQP 0-9-1 section 3.1.3 and behaviours 31 to 40 (exchanges and bindings).
"""

from __future__ import annotations

from typing import Any

import pytest

from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

TYPES = ["direct", "fanout", "topic", "headers"]


def exchange(peer: Peer, name: str, type: str = "fanout", **values: Any) -> None:
    """Declare a transient exchange."""
    peer.call(1, "exchange.declare", exchange=name, type=type, **values)


def queue(
    peer: Peer, name: str, source: str = "", key: str = "", match: dict[str, Any] | None = None
) -> None:
    """Declare a transient queue, and bind it where a source is named."""
    peer.call(1, "queue.declare", queue=name)
    if source:
        values = {"queue": name, "exchange": source, "routing_key": key}
        peer.call(1, "queue.bind", arguments=match or {}, **values)


def chain(peer: Peer, source: str, destination: str, key: str = "") -> None:
    """Bind an exchange to an exchange."""
    peer.call(1, "exchange.bind", source=source, destination=destination, routing_key=key)


def alternate(name: str) -> dict[str, Any]:
    """The argument that names an alternate exchange."""
    return {"alternate-exchange": name}


def reached(peer: Peer, source: str, key: str = "", **props: Any) -> list[str]:
    """Publish and tell which queues got it, by name, once for each copy."""
    peer.send(publish(1, source, key, b"x", **props))
    got: list[str] = []
    for name in sorted(peer.node.vhost.queues.by_name):
        got += [name] * peer.call(1, "queue.purge", queue=name).message_count
    return got


# -- types -----------------------------------------------------------------------------------------


def test_direct_matches_the_key(peer: Peer) -> None:
    for name, key in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "")):
        queue(peer, name, "amq.direct", key)
    assert reached(peer, "amq.direct", "x") == ["a", "b"]
    assert reached(peer, "amq.direct", "y") == ["c"]
    assert reached(peer, "amq.direct", "") == ["d"]
    assert reached(peer, "amq.direct", "X") == []


def test_fanout_matches_all(peer: Peer) -> None:
    for name in "abc":
        queue(peer, name, "amq.fanout", name)
    assert reached(peer, "amq.fanout", "anything") == ["a", "b", "c"]


def test_topic_matches_words(peer: Peer) -> None:
    """Behaviour 39 (topic exchange)."""
    keys = {"a": "log.*", "b": "log.#", "c": "#", "d": "*.error", "e": "log.error"}
    for name, key in keys.items():
        queue(peer, name, "amq.topic", key)
    assert reached(peer, "amq.topic", "log.error") == ["a", "b", "c", "d", "e"]
    assert reached(peer, "amq.topic", "log") == ["b", "c"]
    assert reached(peer, "amq.topic", "log.error.disk") == ["b", "c"]
    assert reached(peer, "amq.topic", "") == ["c"]


@pytest.mark.parametrize("name", ["amq.headers", "amq.match"])
def test_headers_matches_each_message_on_its_own(peer: Peer, name: str) -> None:
    """Behaviour 40 (headers exchange).

    Nothing of one message's route is remembered for the next.
    """
    queue(peer, "all", name, "", {"x-match": "all", "a": 1, "b": "two"})
    queue(peer, "any", name, "", {"x-match": "any", "a": 1, "b": "two"})
    routes: list[tuple[dict[str, Any], list[str]]] = [
        ({"a": 1, "b": "two"}, ["all", "any"]),
        ({"a": 1}, ["any"]),
        ({"b": "one"}, []),
        ({"a": 1, "b": "two", "c": 3}, ["all", "any"]),
        ({}, []),
    ]
    for headers, expected in [*routes, *routes]:
        assert reached(peer, name, "key", headers=headers) == expected
    assert reached(peer, name, "key") == []


def test_headers_behind_other_exchanges_matches_each_message_too(peer: Peer) -> None:
    """Whether it is reached by a binding or as an alternate."""
    queue(peer, "h", "amq.headers", "", {"x-match": "all", "a": 1})
    chain(peer, "amq.fanout", "amq.headers")
    exchange(peer, "empty", arguments=alternate("amq.headers"))
    for source in ("amq.fanout", "empty"):
        assert reached(peer, source, "k", headers={"a": 1}) == ["h"]
        assert reached(peer, source, "k", headers={"a": 2}) == []
        assert reached(peer, source, "k", headers={"a": 1}) == ["h"]


def test_the_default_exchange_is_every_queue_by_its_name(peer: Peer) -> None:
    queue(peer, "a")
    assert reached(peer, "", "a") == ["a"]
    assert reached(peer, "", "b") == []
    queue(peer, "b")
    assert reached(peer, "", "b") == ["b"]


# -- exchange to exchange --------------------------------------------------------------------------


def test_a_queue_gets_one_copy_over_the_whole_way(peer: Peer) -> None:
    """Behaviours 36 (binding identity) and 37 (cycles and alternates)."""
    for name in ("top", "left", "right"):
        exchange(peer, name)
    for name in ("left", "right"):
        chain(peer, "top", name)
        queue(peer, "q", name)
    queue(peer, "q", "top", "one key")
    queue(peer, "q", "top", "another key")
    assert reached(peer, "top") == ["q"]


@pytest.mark.parametrize("length", [1, 2, 5])
def test_cycles_end(peer: Peer, length: int) -> None:
    """Behaviour 37 (cycles and alternates)."""
    for number in range(length):
        exchange(peer, f"e{number}")
        queue(peer, f"q{number}", f"e{number}")
    for number in range(length):
        chain(peer, f"e{number}", f"e{(number + 1) % length}")
    for number in range(length):
        assert reached(peer, f"e{number}") == [f"q{one}" for one in range(length)]


def test_each_exchange_on_the_way_judges_the_key(peer: Peer) -> None:
    exchange(peer, "first", "topic")
    exchange(peer, "second", "direct")
    chain(peer, "first", "second", "log.#")
    queue(peer, "q", "second", "log.error")
    assert reached(peer, "first", "log.error") == ["q"]
    assert reached(peer, "first", "log.info") == []
    assert reached(peer, "first", "error") == []


# -- alternates ------------------------------------------------------------------------------------


def test_an_alternate_gets_what_nothing_matched(peer: Peer) -> None:
    """Behaviour 37 (cycles and alternates)."""
    exchange(peer, "main", "direct", arguments=alternate("rest"))
    exchange(peer, "rest")
    queue(peer, "known", "main", "known")
    queue(peer, "other", "rest")
    assert reached(peer, "main", "known") == ["known"]
    assert reached(peer, "main", "unknown") == ["other"]


def test_an_alternate_may_come_later_and_go(peer: Peer) -> None:
    exchange(peer, "main", "direct", arguments=alternate("rest"))
    assert reached(peer, "main", "k") == []
    exchange(peer, "rest")
    queue(peer, "q", "rest")
    assert reached(peer, "main", "k") == ["q"]
    peer.call(1, "exchange.delete", exchange="rest")
    assert reached(peer, "main", "k") == []


def test_alternates_in_a_cycle_end(peer: Peer) -> None:
    """Behaviour 37 (cycles and alternates); what nobody takes is returned once."""
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        exchange(peer, name, "direct", arguments=alternate(other))
    peer.send(publish(1, "a", "k", b"x", mandatory=True))
    assert peer.names() == ["basic.return"]
    queue(peer, "q", "c", "k")
    for name in "abc":
        assert reached(peer, name, "k") == ["q"]


def test_the_alternate_of_an_exchange_on_the_way_is_asked(peer: Peer) -> None:
    exchange(peer, "second", "direct", arguments=alternate("rest"))
    exchange(peer, "rest")
    chain(peer, "amq.fanout", "second")
    queue(peer, "q", "rest")
    assert reached(peer, "amq.fanout", "k") == ["q"]


# -- when they go ----------------------------------------------------------------------------------


def test_an_auto_delete_exchange_goes_with_its_last_binding(peer: Peer) -> None:
    """Behaviour 38 (auto-delete exchange).

    Never before it had one, and bindings to it do not count.
    """
    exchange(peer, "e", auto_delete=True)
    chain(peer, "amq.fanout", "e")
    values = {"source": "amq.fanout", "destination": "e"}
    peer.call(1, "exchange.unbind", **values)
    queue(peer, "q", "e", "one")
    queue(peer, "q", "e", "two")
    peer.call(1, "queue.unbind", queue="q", exchange="e", routing_key="one")
    assert "e" in peer.node.vhost.exchanges.by_name
    peer.call(1, "queue.delete", queue="q")
    assert "e" not in peer.node.vhost.exchanges.by_name


def test_auto_delete_exchanges_go_one_after_the_other(peer: Peer) -> None:
    exchange(peer, "a", auto_delete=True)
    exchange(peer, "b", auto_delete=True)
    chain(peer, "a", "b")
    chain(peer, "b", "a")
    peer.call(1, "exchange.unbind", source="a", destination="b")
    assert not {"a", "b"} & set(peer.node.vhost.exchanges.by_name)


def test_delete_if_unused_refuses_while_it_is_bound(peer: Peer) -> None:
    """Behaviour 34 (delete when missing)."""
    exchange(peer, "e")
    queue(peer, "q", "e")
    peer.send(method(1, "exchange.delete", exchange="e", if_unused=True))
    closed = peer.expect(1, "channel.close")
    text = "PRECONDITION_FAILED - exchange 'e' in vhost '/' in use"
    assert (closed.code, closed.text) == (406, text)


def test_a_deleted_exchange_takes_its_bindings_with_it(peer: Peer) -> None:
    """Those from it and those to it; another of that name begins without."""
    exchange(peer, "e")
    queue(peer, "q", "e")
    chain(peer, "amq.fanout", "e")
    peer.call(1, "exchange.delete", exchange="e")
    assert not peer.node.vhost.exchanges.by_name["amq.fanout"].bindings
    assert not peer.node.vhost.exchanges.bindings_to(peer.node.vhost.queues.by_name["q"])
    exchange(peer, "e")
    assert reached(peer, "e") == []
    assert reached(peer, "amq.fanout") == []


# -- remembered routes -----------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["the publisher", "another connection"])
def test_a_remembered_route_follows_every_change(node: Node, peer: Peer, by: str) -> None:
    """Each step publishes with the same exchange and key, of which the route is remembered."""
    other = peer if by == "the publisher" else node.connect()
    assert reached(peer, "amq.direct", "k") == []
    queue(other, "a", "amq.direct", "k")
    assert reached(peer, "amq.direct", "k") == ["a"]
    queue(other, "b", "amq.direct", "k")
    assert reached(peer, "amq.direct", "k") == ["a", "b"]
    other.call(1, "queue.unbind", queue="a", exchange="amq.direct", routing_key="k")
    assert reached(peer, "amq.direct", "k") == ["b"]
    other.call(1, "queue.delete", queue="b")
    assert reached(peer, "amq.direct", "k") == []
    queue(other, "b", "amq.direct", "k")
    exchange(other, "e")
    chain(other, "amq.direct", "e", "k")
    queue(other, "c", "e")
    assert reached(peer, "amq.direct", "k") == ["b", "c"]
    other.call(1, "exchange.unbind", source="amq.direct", destination="e", routing_key="k")
    assert reached(peer, "amq.direct", "k") == ["b"]


def test_a_remembered_exchange_that_is_gone_is_not_found(node: Node, peer: Peer) -> None:
    """Behaviour 18 (missing exchange); and one that is declared anew is a new one."""
    exchange(peer, "e")
    queue(peer, "a", "e")
    assert reached(peer, "e") == ["a"]
    other = node.connect()
    other.call(1, "exchange.delete", exchange="e")
    exchange(other, "e", "direct")
    queue(other, "b", "e", "")
    assert reached(peer, "e") == ["b"]
    other.call(1, "exchange.delete", exchange="e")
    peer.send(publish(1, "e", "", b"x"))
    assert peer.expect(1, "channel.close").code == 404


def test_a_remembered_route_to_a_queue_by_name(peer: Peer) -> None:
    assert reached(peer, "", "q") == []
    queue(peer, "q")
    assert reached(peer, "", "q") == ["q"]
    peer.call(1, "queue.delete", queue="q")
    peer.send(publish(1, "", "q", b"x", mandatory=True))
    assert peer.names() == ["basic.return"]
    queue(peer, "q")
    assert reached(peer, "", "q") == ["q"]


def test_more_routes_than_are_remembered(peer: Peer) -> None:
    queue(peer, "q", "amq.topic", "#")
    peer.send(*[publish(1, "amq.topic", f"k{number}", b"x") for number in range(3000)])
    assert peer.call(1, "queue.purge", queue="q").message_count == 3000
    assert len(peer.connection.publisher.cache.known) <= 1024


# -- declaring -------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", TYPES)
def test_the_same_again_is_fine_and_another_type_is_not(peer: Peer, type: str) -> None:
    """Behaviour 33 (inequivalent exchange)."""
    exchange(peer, "e", type, arguments={"unknown": 1})
    exchange(peer, "e", type)
    other = TYPES[TYPES.index(type) - 1]
    peer.send(method(1, "exchange.declare", exchange="e", type=other))
    closed = peer.expect(1, "channel.close")
    text = f"inequivalent arg 'type' for exchange 'e' in vhost '/': received '{other}' but current"
    assert (closed.code, closed.text) == (406, f"PRECONDITION_FAILED - {text} is '{type}'")


def test_an_internal_exchange_is_reached_by_bindings_only(peer: Peer) -> None:
    """Behaviour 19 (internal exchange)."""
    exchange(peer, "inner", internal=True)
    chain(peer, "amq.fanout", "inner")
    queue(peer, "q", "inner")
    assert reached(peer, "amq.fanout") == ["q"]
    peer.send(publish(1, "inner", "", b"x"))
    assert peer.expect(1, "channel.close").code == 403


# -- strict keys -----------------------------------------------------------------------------------


def test_strict_keys_are_asked_of_bindings_and_publishes_of_topic_exchanges(peer: Peer) -> None:
    """A setting of the vhost; other types take any key, and what was bound before stays."""
    queue(peer, "q", "amq.topic", "old.#.#")
    assert reached(peer, "amq.topic", "old.x-y") == ["q"]
    peer.node.vhost.metadata.set({"strict_keys": True})
    queue(peer, "q", "amq.topic", "log.*.disk_1.#")
    queue(peer, "q", "amq.direct", "a-b")
    assert reached(peer, "amq.topic", "log.error.disk_1") == ["q"]
    assert reached(peer, "amq.direct", "a-b") == ["q"]
    peer.call(1, "queue.unbind", queue="q", exchange="amq.topic", routing_key="old.#.#")
    rule = "breaks the vhost's rule of strict keys"
    peer.send(publish(1, "amq.topic", "old.x-y", b"x"))
    closed = peer.expect(1, "channel.close")
    why = "the word 'x-y' contains more than letters, digits and '_'"
    assert (closed.code, closed.text) == (
        406,
        f"PRECONDITION_FAILED - routing key 'old.x-y' {rule}: {why}",
    )
    peer.call(2, "channel.open")
    values = {"queue": "q", "exchange": "amq.topic", "routing_key": "a.#.*"}
    peer.send(method(2, "queue.bind", **values))
    closed = peer.expect(2, "channel.close")
    why = "'#.*' must not be adjacent"
    assert (closed.code, closed.text) == (
        406,
        f"PRECONDITION_FAILED - binding key 'a.#.*' {rule}: {why}",
    )


def test_a_remembered_route_follows_strict_keys(peer: Peer) -> None:
    queue(peer, "q", "amq.topic", "#")
    assert reached(peer, "amq.topic", "a-b") == ["q"]
    peer.node.vhost.metadata.set({"strict_keys": True})
    peer.send(publish(1, "amq.topic", "a-b", b"x"))
    assert peer.expect(1, "channel.close").code == 406
