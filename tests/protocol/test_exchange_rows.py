"""Behaviours 31-38 and 41: exchanges, bindings and the graph they make."""

from __future__ import annotations

from typing import Any

import pytest

from support.brokers.brokers import Broker, Client
from support.wire import raw
from support.wire.raw import Exchanges, bound_queue

DECLARE, DELETE = (40, 10), (40, 20)
KINDS = ["direct", "fanout", "topic", "headers"]


# -- 31, 32, 33, 34: declare and delete


def test_b31_declare_of_the_default_exchange_is_403(connection: raw.Connection) -> None:
    """31: it is there and cannot be declared."""
    connection.send(raw.method(1, "exchange.declare", exchange="", type="direct"))
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    connection.expect_channel_close(1, 403, text, DECLARE)


def test_b31_passive_declare_of_the_default_exchange_is_403(connection: raw.Connection) -> None:
    """31: nor passively."""
    connection.send(raw.method(1, "exchange.declare", exchange="", passive=True))
    connection.expect_channel_close(1, 403, "ACCESS_REFUSED", DECLARE)


def test_b31_new_reserved_name_is_403(connection: raw.Connection, name: str) -> None:
    """31: amq. is the broker's own prefix."""
    reserved = f"amq.{name}"
    connection.send(raw.method(1, "exchange.declare", exchange=reserved, type="direct"))
    text = f"ACCESS_REFUSED - exchange name '{reserved}' contains reserved prefix 'amq.*'"
    connection.expect_channel_close(1, 403, text, DECLARE)


@pytest.mark.parametrize(
    ("exchange", "type"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_b31_existing_reserved_exchanges(
    connection: raw.Connection, exchange: str, type: str
) -> None:
    """31: equal or passive declares of what is there are fine, unequal ones are 406."""
    connection.call(1, "exchange.declare", exchange=exchange, passive=True)
    connection.call(1, "exchange.declare", exchange=exchange, type=type, durable=True)
    connection.send(raw.method(1, "exchange.declare", exchange=exchange, type=type))
    connection.expect_channel_close(1, 406, "inequivalent arg 'durable' for exchange")


def test_b31_passive_declare_of_a_reserved_name_that_is_not_there_is_404(
    connection: raw.Connection, name: str
) -> None:
    """31: nothing is to be made, so the prefix does not matter."""
    connection.send(raw.method(1, "exchange.declare", exchange=f"amq.{name}", passive=True))
    connection.expect_channel_close(1, 404, "NOT_FOUND - no exchange 'amq.", DECLARE)


def test_b32_unknown_type(connection: raw.Connection, name: str, broker: Broker) -> None:
    """32: 406 of the channel as in RabbitMQ 4.3; 3.10 closes the connection with 503."""
    connection.send(raw.method(1, "exchange.declare", exchange=name, type="x-no-such"))
    if broker.is_rabbitmq:
        connection.expect_connection_close(503, "unknown exchange type 'x-no-such'", DECLARE)
        return
    text = "PRECONDITION_FAILED - unknown exchange type 'x-no-such'"
    connection.expect_channel_close(1, 406, text, DECLARE)


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"type": "fanout"}, "'type' {}: received 'fanout' but current is 'direct'"),
    ({"durable": True}, "'durable' {}: received 'true' but current is 'false'"),
    ({"auto_delete": True}, "'auto_delete' {}: received 'true' but current is 'false'"),
    ({"internal": True}, "'internal' {}: received 'true' but current is 'false'"),
    (
        {"arguments": {"alternate-exchange": "x"}},
        "'alternate-exchange' {}: received the value 'x' of type 'longstr' but current is none",
    ),
]


@pytest.mark.parametrize(("changed", "text"), CHANGES)
def test_b33_redeclare_with_another_property_is_406(
    connection: raw.Connection, exchanges: Exchanges, changed: dict[str, Any], text: str
) -> None:
    """33: what the exchange is may not change."""
    exchange = exchanges()
    values = {"exchange": exchange, "type": "direct"} | changed
    connection.send(raw.method(1, "exchange.declare", **values))
    where = f"for exchange '{exchange}' in vhost '/'"
    expected = "PRECONDITION_FAILED - inequivalent arg " + text.format(where)
    connection.expect_channel_close(1, 406, expected, DECLARE)


def test_b33_the_same_alternate_exchange_is_fine_and_another_is_406(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """33: it is compared, whether it is there or not."""
    exchange = exchanges(arguments={"alternate-exchange": "one"})
    values = {"exchange": exchange, "type": "direct"}
    connection.call(1, "exchange.declare", **values, arguments={"alternate-exchange": "one"})
    for arguments in ({"alternate-exchange": "two"}, {}):
        connection.open_channel(2)
        connection.send(raw.method(2, "exchange.declare", **values, arguments=arguments))
        text = "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange '"
        connection.expect_channel_close(2, 406, text, DECLARE)


def test_b33_other_arguments_are_ignored(connection: raw.Connection, exchanges: Exchanges) -> None:
    """33: RabbitMQ compares the alternate exchange only."""
    exchange = exchanges(arguments={"x-mine": 1})
    for arguments in ({"x-mine": 2}, {}, {"x-other": "o"}):
        values = {"exchange": exchange, "type": "direct", "arguments": arguments}
        connection.call(1, "exchange.declare", **values)


def test_b34_passive_declare_of_a_missing_exchange_is_404(
    connection: raw.Connection, name: str
) -> None:
    """34: with the text clients parse."""
    connection.send(raw.method(1, "exchange.declare", exchange=name, type="direct", passive=True))
    text = f"NOT_FOUND - no exchange '{name}' in vhost '/'"
    connection.expect_channel_close(1, 404, text, DECLARE)


def test_b34_passive_declare_looks_at_nothing_else(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """34: type and flags of a passive declare are ignored."""
    exchange = exchanges("topic", durable=True)
    connection.call(1, "exchange.declare", exchange=exchange, type="fanout", passive=True)
    connection.call(1, "exchange.declare", exchange=exchange, type="", passive=True)


def test_b34_delete_of_a_missing_exchange_is_fine(connection: raw.Connection, name: str) -> None:
    """34: it is gone, as was asked."""
    connection.call(1, "exchange.delete", exchange=name)
    connection.call(1, "exchange.delete", exchange=name, if_unused=True)


@pytest.mark.parametrize("exchange", ["amq.direct", "amq.topic", ""])
def test_b34_delete_of_a_reserved_exchange_is_403(
    connection: raw.Connection, exchange: str
) -> None:
    """34: amq.* and the default exchange stay."""
    connection.send(raw.method(1, "exchange.delete", exchange=exchange))
    connection.expect_channel_close(1, 403, "ACCESS_REFUSED", DELETE)


def test_b34_if_unused_while_bound_is_406(connection: raw.Connection, exchanges: Exchanges) -> None:
    """34: bound as a source; unbound it goes."""
    exchange = exchanges()
    connection.open_channel(2)
    queue = bound_queue(connection, exchange, "k")
    connection.send(raw.method(2, "exchange.delete", exchange=exchange, if_unused=True))
    text = f"PRECONDITION_FAILED - exchange '{exchange}' in vhost '/' in use"
    connection.expect_channel_close(2, 406, text, DELETE)
    values = {"queue": queue, "exchange": exchange, "routing_key": "k"}
    connection.call(1, "queue.unbind", **values)
    connection.call(1, "exchange.delete", exchange=exchange, if_unused=True)


def test_b34_if_unused_looks_at_bindings_from_it_only(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """34: an exchange that is a destination only is not in use."""
    inner, outer = exchanges(), exchanges("fanout")
    connection.call(1, "exchange.bind", destination=inner, source=outer)
    connection.call(1, "exchange.delete", exchange=inner, if_unused=True)
    connection.send(raw.method(1, "exchange.declare", exchange=inner, passive=True))
    connection.expect_channel_close(1, 404)


def test_b34_delete_takes_the_bindings(connection: raw.Connection, exchanges: Exchanges) -> None:
    """34: an exchange of the same name declared again is not bound."""
    exchange = exchanges("fanout")
    queue = bound_queue(connection, exchange, "k")
    connection.call(1, "exchange.delete", exchange=exchange)
    connection.call(1, "exchange.declare", exchange=exchange, type="fanout")
    connection.send(raw.publish(1, exchange, "k", b"x"))
    assert connection.drain(1, queue) == []


def test_b34_no_wait(connection: raw.Connection, name: str) -> None:
    """34: no reply to no-wait, for declare, bind, unbind and delete alike."""
    connection.declare(1, name, exclusive=True)
    bind = {"queue": name, "exchange": name, "routing_key": "k"}
    connection.send(
        raw.method(1, "exchange.declare", exchange=name, type="direct", no_wait=True),
        raw.method(1, "queue.bind", **bind, no_wait=True),
        raw.publish(1, name, "k", b"x"),
        raw.method(1, "exchange.delete", exchange=name, no_wait=True),
    )
    assert connection.drain(1, name) == [b"x"]


# -- 35, 36: bind and unbind


@pytest.mark.parametrize("method", ["queue.bind", "queue.unbind"])
def test_b35_binding_to_the_default_exchange_is_403(
    connection: raw.Connection, name: str, method: str
) -> None:
    """35: every queue is bound to it by its name and no otherwise."""
    connection.declare(1, name, exclusive=True)
    connection.send(raw.method(1, method, queue=name, exchange="", routing_key="k"))
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    connection.expect_channel_close(1, 403, text)


@pytest.mark.parametrize("ends", [("", "amq.fanout"), ("amq.fanout", "")])
def test_b35_default_exchange_in_exchange_bindings_is_403(
    connection: raw.Connection, ends: tuple[str, str]
) -> None:
    """35: on neither end."""
    connection.send(raw.method(1, "exchange.bind", destination=ends[0], source=ends[1]))
    connection.expect_channel_close(1, 403, "ACCESS_REFUSED")


def test_b35_missing_ends_are_404(connection: raw.Connection, name: str) -> None:
    """35: the queue's or the exchange's name is in the text; the channel dies."""
    queue: str = connection.declare(1, exclusive=True).queue
    missing = name
    cases: list[tuple[str, dict[str, str], str]] = [
        ("queue.bind", {"queue": missing, "exchange": "amq.direct"}, "queue"),
        ("queue.bind", {"queue": queue, "exchange": missing}, "exchange"),
        ("exchange.bind", {"destination": missing, "source": "amq.direct"}, "exchange"),
        ("exchange.bind", {"destination": "amq.direct", "source": missing}, "exchange"),
    ]
    for method, ends, kind in cases:
        connection.open_channel(2)
        connection.send(raw.method(2, method, **ends, routing_key="k"))
        text = f"NOT_FOUND - no {kind} '{missing}' in vhost '/'"
        connection.expect_channel_close(2, 404, text)


def test_b35_unbind_of_what_is_not_bound_is_fine(
    connection: raw.Connection, exchanges: Exchanges, name: str
) -> None:
    """35: missing binding, missing queue, missing exchange."""
    exchange = exchanges()
    queue: str = connection.declare(1, exclusive=True).queue
    for ends in ((queue, exchange), (name, exchange), (queue, name), (name, name)):
        connection.call(1, "queue.unbind", queue=ends[0], exchange=ends[1], routing_key="k")
    connection.call(1, "exchange.unbind", destination=name, source=exchange, routing_key="k")


def test_b35_another_connections_exclusive_queue_is_405(
    client: Client, connection: raw.Connection, exchanges: Exchanges
) -> None:
    """35: neither bound nor unbound by anybody else; where it is not bound there is nothing."""
    exchange, other = exchanges(), client()
    queue = bound_queue(connection, exchange, "k")
    values = {"queue": queue, "exchange": exchange, "routing_key": "k"}
    other.call(1, "queue.unbind", **values | {"routing_key": "another"})
    for method in ("queue.bind", "queue.unbind"):
        other.open_channel(2)
        other.send(raw.method(2, method, **values))
        other.expect_channel_close(2, 405, "RESOURCE_LOCKED - cannot obtain exclusive access")


def test_b36_one_copy_for_a_queue_of_two_bindings(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """36: another key is another binding, the same again is none; a queue gets one copy."""
    exchange = exchanges("topic")
    queue = bound_queue(connection, exchange, "a.*", "*.b", "#", "#")
    connection.send(raw.publish(1, exchange, "a.b", b"once"))
    assert connection.drain(1, queue) == [b"once"]
    connection.call(1, "queue.unbind", queue=queue, exchange=exchange, routing_key="#")
    connection.send(raw.publish(1, exchange, "c.c", b"none"), raw.publish(1, exchange, "a.c", b"y"))
    assert connection.drain(1, queue) == [b"y"]


def test_b36_arguments_are_part_of_the_identity(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """36: an unbind without them leaves the binding with them."""
    exchange = exchanges()
    queue = bound_queue(connection, exchange, "k", mine="1")
    bound = {"queue": queue, "exchange": exchange, "routing_key": "k"}
    connection.call(1, "queue.bind", **bound)
    connection.call(1, "queue.unbind", **bound)
    connection.send(raw.publish(1, exchange, "k", b"still"))
    assert connection.drain(1, queue) == [b"still"]
    connection.call(1, "queue.unbind", **bound, arguments={"mine": "1"})
    connection.send(raw.publish(1, exchange, "k", b"no more"))
    assert connection.drain(1, queue) == []


# -- 37, 38: exchange to exchange, alternate exchanges, auto-delete


def test_b37_cycles_end_and_copies_are_one(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """37: a ring of exchanges with a self-loop; the queue hangs on all of them."""
    ring = [exchanges("fanout") for _ in range(3)]
    queue = bound_queue(connection, ring[0])
    for i, source in enumerate(ring):
        connection.call(1, "exchange.bind", destination=ring[i - 1], source=source)
        connection.call(1, "exchange.bind", destination=source, source=source)
        connection.call(1, "queue.bind", queue=queue, exchange=source)
    connection.send(raw.publish(1, ring[1], "", b"once"))
    assert connection.drain(1, queue) == [b"once"]


def test_b37_each_exchange_on_the_way_matches_the_key(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """37: bindings between exchanges have keys too; unbound again nothing passes."""
    inner, outer = exchanges("topic"), exchanges("direct")
    connection.call(1, "exchange.bind", destination=inner, source=outer, routing_key="a.b")
    one, two = bound_queue(connection, inner, "a.*"), bound_queue(connection, inner, "b.*")
    connection.send(raw.publish(1, outer, "a.b", b"in"), raw.publish(1, outer, "a.c", b"out"))
    assert (connection.drain(1, one), connection.drain(1, two)) == ([b"in"], [])
    connection.call(1, "exchange.unbind", destination=inner, source=outer, routing_key="a.b")
    connection.send(raw.publish(1, outer, "a.b", b"in"))
    assert connection.drain(1, one) == []


def test_b37_alternate_exchange_takes_what_nothing_matches(
    connection: raw.Connection, exchanges: Exchanges, name: str
) -> None:
    """37: only then; what reaches a queue there is not returned."""
    other = exchanges("fanout")
    exchange = exchanges("direct", arguments={"alternate-exchange": other})
    matched, rest = bound_queue(connection, exchange, "k"), bound_queue(connection, other, "")
    connection.send(
        raw.publish(1, exchange, "k", b"matched", mandatory=True),
        raw.publish(1, exchange, name, b"rest", mandatory=True),
    )
    assert connection.drain(1, matched) == [b"matched"]
    assert connection.drain(1, rest) == [b"rest"]


def test_b37_alternate_exchange_cycles_end(
    connection: raw.Connection, exchanges: Exchanges, name: str
) -> None:
    """37: two that are each other's, and one that is missing: the message is unroutable."""
    first = exchanges(arguments={"alternate-exchange": name + "-x1"})
    second = exchanges(arguments={"alternate-exchange": first})
    third = exchanges(arguments={"alternate-exchange": name + "-missing"})
    for exchange in (first, second, third):
        connection.send(raw.publish(1, exchange, "k", b"x", mandatory=True))
        assert connection.expect(1, "basic.return").code == 312


def test_b37_an_alternate_exchange_may_be_internal(
    connection: raw.Connection, exchanges: Exchanges, name: str
) -> None:
    """37: clients cannot publish to it (19), the broker can."""
    other = exchanges("fanout", internal=True)
    exchange = exchanges("topic", arguments={"alternate-exchange": other})
    rest = bound_queue(connection, other, "")
    connection.send(raw.publish(1, exchange, name, b"rest", mandatory=True))
    assert connection.drain(1, rest) == [b"rest"]
    connection.send(raw.publish(1, other, name, b"x"))
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{other}' in vhost '/'"
    connection.expect_channel_close(1, 403, text, (60, 40))


def test_b37_alternate_exchanges_of_each_exchange_on_the_way(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """37: each is asked for its own; a match whose destination took nothing is one."""
    last = exchanges("fanout")
    inner = exchanges("direct", arguments={"alternate-exchange": last})
    never = exchanges("fanout")
    outer = exchanges("fanout", arguments={"alternate-exchange": never})
    connection.call(1, "exchange.bind", destination=inner, source=outer)
    one, two = bound_queue(connection, last, ""), bound_queue(connection, never, "")
    connection.send(raw.publish(1, outer, "unmatched", b"m"))
    assert (connection.drain(1, one), connection.drain(1, two)) == ([b"m"], [])


def test_b37_a_headers_exchange_behind_others_sees_the_headers(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """37, 40: bound, and as an alternate exchange."""
    inner = exchanges("headers")
    bound = exchanges("fanout")
    instead = exchanges("direct", arguments={"alternate-exchange": inner})
    connection.call(1, "exchange.bind", destination=inner, source=bound)
    queue = bound_queue(connection, inner, "", a=1)
    for source in (bound, instead):
        for value in (1, 2):
            body = b"%d" % value
            connection.send(raw.publish(1, source, "k", body, headers={"a": value}))
        assert connection.drain(1, queue) == [b"1"]


def test_b38_auto_delete_goes_with_its_last_binding(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """38: not before it had one; as a destination only it stays."""
    exchange, source = exchanges("direct", auto_delete=True), exchanges("fanout")
    bound = {"exchange": exchange, "queue": connection.declare(1, exclusive=True).queue}
    connection.call(1, "exchange.bind", destination=exchange, source=source)
    connection.call(1, "exchange.unbind", destination=exchange, source=source)
    connection.call(1, "exchange.declare", exchange=exchange, passive=True)
    connection.call(1, "queue.bind", **bound, routing_key="a")
    connection.call(1, "queue.bind", **bound, routing_key="b")
    connection.call(1, "queue.unbind", **bound, routing_key="a")
    connection.call(1, "exchange.declare", exchange=exchange, passive=True)
    connection.call(1, "queue.unbind", **bound, routing_key="b")
    connection.send(raw.method(1, "exchange.declare", exchange=exchange, passive=True))
    connection.expect_channel_close(1, 404)


def test_b38_auto_delete_goes_with_its_last_queue(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """38: deleting the destination removes the binding; a chain of them goes at once."""
    outer, inner = exchanges("fanout", auto_delete=True), exchanges("fanout", auto_delete=True)
    connection.call(1, "exchange.bind", destination=inner, source=outer)
    queue = bound_queue(connection, inner, "")
    connection.call(1, "queue.delete", queue=queue)
    for exchange in (inner, outer):
        connection.open_channel(2)
        connection.send(raw.method(2, "exchange.declare", exchange=exchange, passive=True))
        connection.expect_channel_close(2, 404)


# -- 41 and each type


def test_b41_cr_and_lf_are_stripped_from_names(connection: raw.Connection, name: str) -> None:
    """41: of queues and exchanges."""
    given = f"\r\n{name}\n"
    assert connection.declare(1, given, exclusive=True).queue == name
    connection.call(1, "exchange.declare", exchange=given, type="fanout", auto_delete=True)
    connection.call(1, "queue.bind", queue=given, exchange=given)
    connection.send(raw.publish(1, name, "", b"x"))
    assert connection.drain(1, name) == [b"x"]


def test_b41_cr_and_lf_are_stripped_where_names_are_used(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """41: in binds, unbinds and deletes of exchanges too."""
    inner, outer = exchanges("fanout"), exchanges("fanout")
    queue = bound_queue(connection, inner, "")
    ends = {"destination": f"{inner}\r\n", "source": f"\n{outer}"}
    connection.call(1, "exchange.bind", **ends)
    connection.send(raw.publish(1, outer, "", b"x"))
    assert connection.drain(1, queue) == [b"x"]
    connection.call(1, "exchange.unbind", **ends)
    connection.send(raw.publish(1, outer, "", b"x"))
    assert connection.drain(1, queue) == []
    connection.call(1, "exchange.delete", exchange=f"{inner}\n")
    connection.send(raw.method(1, "exchange.declare", exchange=inner, passive=True))
    connection.expect_channel_close(1, 404)


def test_direct_and_fanout(connection: raw.Connection, exchanges: Exchanges) -> None:
    """Sections 3.1.3.1 and 3.1.3.2: by the very key, and whatever the key."""
    direct, fanout = exchanges("direct"), exchanges("fanout")
    one, two = bound_queue(connection, direct, "a", "b"), bound_queue(connection, direct, "b")
    for queue in (one, two):
        connection.call(1, "queue.bind", queue=queue, exchange=fanout, routing_key="ignored")
    for key in ("a", "b", "c", "A"):
        connection.send(raw.publish(1, direct, key, key.encode()))
    connection.send(raw.publish(1, fanout, "any", b"all"))
    assert connection.drain(1, one) == [b"a", b"b", b"all"]
    assert connection.drain(1, two) == [b"b", b"all"]


def test_route_follows_bindings_of_other_connections(
    client: Client, connection: raw.Connection, exchanges: Exchanges
) -> None:
    """A route that was used before a bind, an unbind or a delete elsewhere is not used after."""
    exchange, other = exchanges("direct"), client()
    publish = raw.publish(1, exchange, "k", b"m")
    connection.send(publish)
    connection.sync(1)
    queue: str = other.declare(1, exclusive=True).queue
    bound = {"queue": queue, "exchange": exchange, "routing_key": "k"}
    other.call(1, "queue.bind", **bound)
    connection.send(publish, publish)
    connection.sync(1)
    assert other.drain(1, queue) == [b"m"] * 2
    other.call(1, "queue.unbind", **bound)
    connection.send(publish)
    connection.sync(1)
    assert other.drain(1, queue) == []
    other.call(1, "queue.bind", **bound)
    other.call(1, "queue.delete", queue=queue)
    connection.send(publish)
    connection.sync(1)
    other.call(1, "exchange.delete", exchange=exchange)
    connection.send(publish)
    connection.expect_channel_close(1, 404)
