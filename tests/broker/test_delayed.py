"""Delayed messages: they come when they are due, to where they belong then.

Source: RabbitMQ's plugin rabbitmq_delayed_message_exchange.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.policies.policy import make_policy
from leveret.limits import DELAY_MS_MAX, SLICE_MESSAGES
from leveret.wire.properties import property_headers
from support.node.core import Node, Peer
from support.node.delayed import bind, declare, delay, drain, listed, restarted, store_of
from support.wire.raw import Method
from support.wire.raw_codec import Typed, method, properties, publish

DAY_MS = 86_400_000


def header_of(got: Method) -> object:
    """The delay that a delivered message says."""
    return (property_headers(got.properties) or {}).get("x-delay")


@pytest.fixture
def ready(peer: Peer) -> Peer:
    """A peer with `e`, direct, and `q` bound to it."""
    declare(peer)
    bind(peer)
    return peer


# -- when ------------------------------------------------------------------------------------------


def test_a_message_comes_when_it_is_due_and_not_before(ready: Peer) -> None:
    delay(ready, 5000)
    ready.node.tick(4999)
    assert drain(ready) == []
    ready.node.tick(1)
    assert drain(ready) == [b"m"]
    ready.node.tick(10_000)
    assert drain(ready) == []


def test_messages_come_in_the_order_of_their_times(ready: Peer) -> None:
    """The plugin's own test; equal ones in the order of their publishes."""
    for ms in (500, 100, 300, 200, 100, 400):
        delay(ready, ms, b"%d" % ms)
    for _ in range(5):
        ready.node.tick(100)
    assert drain(ready) == [b"100", b"100", b"200", b"300", b"400", b"500"]
    for number in range(20):
        delay(ready, 50, b"%d" % number)
    ready.node.tick(50)
    assert drain(ready) == [b"%d" % number for number in range(20)]


def test_a_shorter_delay_passes_a_longer_one(ready: Peer) -> None:
    delay(ready, DELAY_MS_MAX, b"years")
    delay(ready, DAY_MS, b"day")
    delay(ready, 1000, b"second")
    ready.node.tick(1000)
    assert drain(ready) == [b"second"]
    ready.node.tick(DAY_MS)
    assert drain(ready) == [b"day"]


def test_ten_years(ready: Peer) -> None:
    delay(ready, DELAY_MS_MAX)
    ready.node.tick(DELAY_MS_MAX - 1)
    again = restarted(ready.node)
    peer = again.connect()
    assert drain(peer) == []
    again.tick(1)
    got = peer.call_get("q")
    assert (got.body, header_of(got)) == (b"m", -DELAY_MS_MAX)


def test_one_past_ten_years_is_refused(ready: Peer) -> None:
    delay(ready, DELAY_MS_MAX + 1)
    closed = ready.expect(1, "channel.close")
    text = f"PRECONDITION_FAILED - an x-delay of {DELAY_MS_MAX + 1} ms exceeds {DELAY_MS_MAX}"
    assert (closed.code, closed.text, closed.class_id, closed.method_id) == (406, text, 60, 40)
    assert store_of(ready.node).ready_count() == 0


@pytest.mark.parametrize("ms", [0, -1, -5000, "", "soon", "1.5", True, None, [1], float("nan")])
def test_what_is_no_delay_goes_at_once_and_stays_as_it_is(ready: Peer, ms: object) -> None:
    sent = properties(headers={"x-delay": ms}, delivery_mode=2)
    delay(ready, ms)
    got = ready.call_get("q")
    assert (got.body, got.properties) == (b"m", sent)


def test_without_headers_it_goes_at_once(ready: Peer) -> None:
    ready.send(publish(1, "e", "k", b"1"))
    ready.send(publish(1, "e", "k", b"2", headers={"x-delay-not": 1}))
    assert drain(ready) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("ms", "negated"),
    [
        (700, -700),
        ("700", -700),
        ("+700", -700),
        (700.9, -700),
        (Typed("b", 100), -100),
        (Typed("l", 700), -700),
        (Typed("f", 700.5), -700),
    ],
)
def test_the_forms_of_a_delay_and_its_negation(ready: Peer, ms: Any, negated: int) -> None:
    delay(ready, ms, headers={"a": 1}, message_id="7")
    ready.node.tick(-negated - 1)
    assert drain(ready) == []
    ready.node.tick(1)
    got = ready.call_get("q")
    assert property_headers(got.properties) == {"a": 1, "x-delay": negated}
    assert (got.exchange, got.routing_key, got.redelivered) == ("e", "k", False)


def test_more_due_at_once_than_a_turn_takes(ready: Peer) -> None:
    many = SLICE_MESSAGES + 10
    ready.send(*[publish(1, "e", "k", b"", headers={"x-delay": 5})] * many)
    assert len(listed(ready.node)) == many
    ready.node.tick(5)
    assert ready.call(1, "queue.purge", queue="q").message_count == many
    assert ready.node.core.memory.held_messages == 0


# -- where -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "keys", "hits"),
    [
        ("topic", ["a.b.c", "a.*.c", "a.#"], ["a.b.c", "a.z.c", "a.j.k"]),
        ("direct", ["a.z.c"], ["a.z.c"]),
        ("fanout", [""], ["a.b.c", "a.z.c", "a.j.k", "b.b.c"]),
        ("x-consistent-hash", ["1"], ["a.b.c", "a.z.c", "a.j.k", "b.b.c"]),
        ("x-random", [""], ["a.b.c", "a.z.c", "a.j.k", "b.b.c"]),
    ],
)
@pytest.mark.parametrize("ms", [0, 10])
def test_the_type_within(peer: Peer, type: str, keys: list[str], hits: list[str], ms: int) -> None:
    declare(peer, type)
    for key in keys:
        bind(peer, key=key)
    for key in ("a.b.c", "a.z.c", "a.j.k", "b.b.c"):
        delay(peer, ms, key.encode(), key=key)
    peer.node.tick(10)
    assert drain(peer) == [key.encode() for key in hits]


def test_headers_within(peer: Peer) -> None:
    declare(peer, "headers")
    bind(peer, arguments={"x-match": "all", "a": 1})
    for value in (1, 2):
        delay(peer, 10, b"%d" % value, headers={"a": value})
    peer.node.tick(10)
    assert drain(peer) == [b"1"]


@pytest.mark.parametrize("type", ["", "x-no-such", "x-delayed-message", 1, None])
def test_a_type_within_that_is_none(peer: Peer, type: object) -> None:
    arguments = {} if type is None else {"x-delayed-type": type}
    values = {"exchange": "e", "type": "x-delayed-message", "arguments": arguments}
    peer.send(method(1, "exchange.declare", **values))
    closed = peer.expect(1, "channel.close")
    why = "Invalid argument, 'x-delayed-type' must be an existing exchange type"
    assert (closed.code, closed.text) == (406, f"PRECONDITION_FAILED - {why}")


def test_declared_again(ready: Peer) -> None:
    """With the same type it is fine, whatever the type within, else 406.

    Source: behaviour 33 (inequivalent exchange).
    """
    declare(ready)
    declare(ready, "topic")
    ready.send(method(1, "exchange.declare", exchange="e", type="direct", durable=True))
    assert ready.expect(1, "channel.close").code == 406


def test_bindings_count_when_it_is_due(ready: Peer) -> None:
    delay(ready, 10)
    ready.call(1, "queue.unbind", queue="q", exchange="e", routing_key="k")
    bind(ready, "late")
    ready.node.tick(10)
    assert (drain(ready), drain(ready, "late")) == ([], [b"m"])


def test_behind_another_exchange_and_before_one(ready: Peer) -> None:
    ready.call(1, "exchange.bind", source="amq.fanout", destination="e")
    ready.call(1, "exchange.bind", source="e", destination="amq.direct", routing_key="k")
    for queue, source in (("direct", "amq.fanout"), ("behind", "amq.direct")):
        ready.declare(queue)
        ready.call(1, "queue.bind", queue=queue, exchange=source, routing_key="k")
    ready.send(publish(1, "amq.fanout", "k", b"m", headers={"x-delay": 10}))
    assert [drain(ready, queue) for queue in ("direct", "q", "behind")] == [[b"m"], [], []]
    ready.node.tick(10)
    assert [drain(ready, queue) for queue in ("direct", "q", "behind")] == [[], [b"m"], [b"m"]]


def test_through_two_delayed_exchanges_it_waits_once(ready: Peer) -> None:
    values = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}}
    ready.call(1, "exchange.declare", exchange="first", **values)
    ready.call(1, "exchange.bind", source="first", destination="e")
    ready.send(publish(1, "first", "k", b"m", headers={"x-delay": 10}))
    ready.node.tick(10)
    assert drain(ready) == [b"m"]


def test_an_alternate_exchange_takes_what_nothing_matches_then(peer: Peer) -> None:
    declare(peer, arguments={"alternate-exchange": "amq.fanout"})
    peer.declare("rest")
    peer.call(1, "queue.bind", queue="rest", exchange="amq.fanout")
    delay(peer, 10, mandatory=True)
    assert drain(peer, "rest") == []
    peer.node.tick(10)
    assert drain(peer, "rest") == [b"m"]


def test_what_is_unroutable_then_goes_for_good(peer: Peer) -> None:
    """Its publisher may be gone: nothing is returned, at no time."""
    declare(peer)
    delay(peer, 10, mandatory=True)
    assert listed(peer.node)
    peer.node.tick(10)
    assert (peer.names(), listed(peer.node)) == ([], [])
    assert peer.node.core.memory.held_messages == 0
    assert not listed(restarted(peer.node))


def test_a_copy_for_each_key(ready: Peer) -> None:
    bind(ready, "copy", "other")
    delay(ready, 10, headers={"CC": ["other"]})
    ready.node.tick(10)
    assert (drain(ready), drain(ready, "copy")) == ([b"m"], [b"m"])


def test_a_ttl_counts_from_the_end_of_the_delay(peer: Peer) -> None:
    declare(peer)
    peer.declare("q", arguments={"x-message-ttl": 100})
    peer.call(1, "queue.bind", queue="q", exchange="e", routing_key="k")
    delay(peer, 5000, expiration="70")
    peer.node.tick(5000)
    peer.node.tick(69)
    assert peer.node.vhost.queues.by_name["q"].ready_count() == 1
    peer.node.tick(2)
    assert peer.node.vhost.queues.by_name["q"].ready_count() == 0


def test_a_dead_letter_waits_too(ready: Peer) -> None:
    """A retry with a delay: what was delayed before is not delayed again."""
    arguments = {"x-dead-letter-exchange": "e", "x-dead-letter-routing-key": "k"}
    ready.declare("work", arguments=arguments)
    ready.send(publish(1, "", "work", b"m", headers={"x-delay": 10}, delivery_mode=2))
    tag = ready.call_get("work").delivery_tag
    ready.send(method(1, "basic.reject", delivery_tag=tag))
    assert drain(ready) == []
    node = restarted(ready.node)
    node.tick(10)
    assert drain(node.connect()) == [b"m"]


# -- confirms and transactions ---------------------------------------------------------------------


def test_a_confirm_means_that_the_delay_is_stored(ready: Peer) -> None:
    ready.call(1, "confirm.select")
    delay(ready, 10)
    assert ready.names() == []
    ready.node.sync()
    assert ready.names() == ["basic.ack"]


def test_a_transaction_delays_with_its_commit(ready: Peer) -> None:
    ready.call(1, "tx.select")
    delay(ready, 10, b"rolled back")
    ready.call(1, "tx.rollback")
    delay(ready, 10, b"committed")
    assert listed(ready.node) == []
    ready.call(1, "tx.commit")
    node = restarted(ready.node)
    node.tick(10)
    assert drain(node.connect()) == [b"committed"]


# -- by policy -------------------------------------------------------------------------------------


def set_policy(node: Node, **definition: Any) -> None:
    """Set the policy `p` for all exchanges."""
    node.vhost.policies.set(make_policy("p", ".*", dict(definition), 0, "exchanges", False))
    node.run()


def test_a_policy_makes_an_exchange_delay(peer: Peer) -> None:
    """As LavinMQ's `delayed-message`; what waits comes, also when the policy is gone."""
    peer.call(1, "exchange.declare", exchange="e", type="direct", durable=True)
    bind(peer)
    delay(peer, 10, b"before")
    assert drain(peer) == [b"before"]
    set_policy(peer.node, **{"delayed-message": True})
    delay(peer, 10, b"delayed")
    assert drain(peer) == []
    node = restarted(peer.node)
    peer = node.connect()
    assert [stats.id for stats in listed(node)] == [1]
    delay(peer, 10, b"too")
    node.vhost.policies.clear("p")
    delay(peer, 10, b"at once")
    assert drain(peer) == [b"at once"]
    node = restarted(node)
    node.tick(10)
    assert drain(node.connect()) == [b"delayed", b"too"]


def test_a_policy_makes_the_predeclared_exchanges_delay(peer: Peer) -> None:
    set_policy(peer.node, **{"delayed-message": True})
    peer.declare("q")
    peer.call(1, "queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    peer.send(publish(1, "amq.topic", "k", b"m", headers={"x-delay": 10}, delivery_mode=2))
    peer.send(publish(1, "", "q", b"default", headers={"x-delay": 10}, delivery_mode=2))
    assert drain(peer) == [b"default"], "no policy is for the default exchange"
    node = restarted(peer.node)
    node.take_checkpoint()
    node.tick(10)
    assert drain(node.connect()) == [b"m"]


def test_a_policy_names_an_alternate_exchange(peer: Peer) -> None:
    peer.call(1, "exchange.declare", exchange="e", type="direct", durable=True)
    peer.declare("q")
    peer.call(1, "queue.bind", queue="q", exchange="amq.fanout")
    peer.send(publish(1, "e", "k", b"lost"))
    set_policy(peer.node, **{"alternate-exchange": "amq.fanout"})
    peer.send(publish(1, "e", "k", b"found"))
    node = restarted(peer.node)
    peer = node.connect()
    peer.send(publish(1, "e", "k", b"again"))
    assert drain(peer) == [b"again"]
