"""Behaviours 39 and 40: topic keys and headers."""

from __future__ import annotations

from typing import Any

import pytest

from support.brokers.brokers import Broker, Client, unique
from support.wire import raw
from support.wire.raw import Exchanges, bound_queue

TOPICS = [
    ("a.b", ["a.b"], ["a", "a.c", "a.b.c", ""]),
    ("a.*", ["a.b", "a."], ["a", "a.b.c", "b.a"]),
    ("a.#", ["a", "a.b", "a.b.c", "a."], ["b", "b.a", "aa"]),
    ("#", ["", "a", "a.b.c", "..."], []),
    ("#.#", ["", "a", "a.b"], []),
    ("*.#", ["a", "a.b", ".", "a.b.c"], [""]),
    ("#.*", ["a", "a.b", ".", "a.b.c"], [""]),
    ("*", ["a", "word"], ["", "a.b", "."]),
    ("*.*", [".", "a.", ".a", "a.b"], ["", "a", "a.b.c"]),
    ("#.b", ["b", "a.b", "a.b.b"], ["", "a", "b.a"]),
    ("a.#.b", ["a.b", "a.x.b", "a.x.y.b", "a.b.b"], ["a", "b", "a.b.c"]),
    ("", [""], ["a", "."]),
    ("a.", ["a."], ["a", "a.b", "a.."]),
    ("a.*.#.c", ["a.b.c", "a.b.x.c"], ["a.c", "a.b"]),
    ("a*.b", ["a*.b"], ["ab.b", "a.b"]),
    ("é.ü", ["é.ü"], ["e.u"]),
]


@pytest.mark.parametrize(("binding_key", "hits", "misses"), TOPICS)
def test_b39_topic_keys(
    connection: raw.Connection,
    exchanges: Exchanges,
    binding_key: str,
    hits: list[str],
    misses: list[str],
) -> None:
    """39: "" has no words, "a." two with an empty second one, which `*` matches."""
    exchange = exchanges("topic")
    queue = bound_queue(connection, exchange, binding_key)
    connection.send(*[raw.publish(1, exchange, key, key.encode()) for key in hits + misses])
    assert connection.drain(1, queue) == [key.encode() for key in hits]


def test_b39_many_hashes_answer_at_once(whole: Client, broker: Broker) -> None:
    """39: 20 times # against 100 words hung RabbitMQ's channel for more than 20 s."""
    if broker.process is None:
        pytest.skip("hangs RabbitMQ 3.10's channel")
    connection = whole()
    exchange = unique("hashes")
    values = {"exchange": exchange, "type": "topic", "auto_delete": True}
    connection.call(1, "exchange.declare", **values)
    bound_queue(connection, exchange, ".".join("#a" if i % 2 else "#" for i in range(20)) + ".b")
    queue = bound_queue(connection, exchange, ".".join(["#"] * 20) + ".b")
    assert broker.process is not None
    before = broker.process.processor_seconds
    connection.send(raw.publish(1, exchange, ".".join("a" * 100), b"no"))
    connection.send(raw.publish(1, exchange, ".".join("a" * 100) + ".b", b"yes"))
    assert connection.drain(1, queue) == [b"yes"]
    assert broker.process.processor_seconds - before < 2


# -- 40: headers


def publish_headers(connection: raw.Connection, exchange: str, *headers: dict[str, Any]) -> None:
    """Publish one message for each, its body being its index."""
    for i, values in enumerate(headers):
        connection.send(raw.publish(1, exchange, "", b"%d" % i, headers=values))


HEADERS: list[tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]] = [
    ({"x-match": "all", "a": 1, "b": "s"}, [{"a": 1, "b": "s"}, {"a": 1, "b": "s", "c": 2}],
     [{"a": 1}, {"a": 1, "b": "t"}, {}]),
    ({"x-match": "any", "a": 1, "b": "s"}, [{"a": 1}, {"b": "s", "a": 7}],
     [{"a": 2, "b": "t"}, {}]),
    ({"a": 1, "b": 2}, [{"a": 1, "b": 2}], [{"a": 1}]),
    ({"x-match": "all"}, [{}, {"a": 1}], []),
    ({"x-match": "any"}, [], [{}, {"a": 1}]),
    ({"x-match": "all", "x-h": 1}, [{}, {"x-h": 2}], []),
    ({"x-match": "any", "x-h": 1}, [], [{"x-h": 1}]),
    ({"a": None}, [{"a": 1}, {"a": "s"}, {"a": None}], [{}, {"b": 1}]),
    ({"a": 1}, [{"a": raw.Typed("b", 1)}, {"a": raw.Typed("l", 1)}, {"a": raw.Typed("s", 1)}],
     [{"a": "1"}, {"a": True}, {"a": None}]),
    ({"a": 1.5}, [{"a": 1.5}, {"a": raw.Typed("f", 1.5)}], [{"a": 1}, {"a": "1.5"}]),
    ({"a": True}, [{"a": True}], [{"a": 1}, {"a": False}, {"a": "true"}]),
    ({"a": "s"}, [{"a": "s"}, {"a": b"s"}], [{"a": "S"}, {"a": ["s"]}]),
    ({"a": {"n": 1}}, [{"a": {"n": 1}}], [{"a": {"n": 2}}, {"a": {}}]),
    ({"a": [1, 2]}, [{"a": [1, 2]}], [{"a": [2, 1]}, {"a": [1]}]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "hits", "misses"), HEADERS)
def test_b40_headers(
    connection: raw.Connection,
    exchanges: Exchanges,
    arguments: dict[str, Any],
    hits: list[dict[str, Any]],
    misses: list[dict[str, Any]],
) -> None:
    """40: values are compared strictly but not by the width of their type; void is presence."""
    exchange = exchanges("headers")
    queue = connection.declare(1, exclusive=True).queue
    connection.call(1, "queue.bind", queue=queue, exchange=exchange, arguments=arguments)
    publish_headers(connection, exchange, *hits, *misses)
    assert connection.drain(1, queue) == [b"%d" % i for i in range(len(hits))]


@pytest.mark.parametrize(
    ("match", "hits", "misses"),
    [
        ("all-with-x", [{"x-h": 1, "a": 1}], [{"a": 1}, {"x-h": 1}]),
        ("any-with-x", [{"x-h": 1}, {"a": 1}], [{}, {"x-h": 2}]),
    ],
)
def test_b40_headers_with_x(
    connection: raw.Connection,
    exchanges: Exchanges,
    match: str,
    hits: list[dict[str, Any]],
    misses: list[dict[str, Any]],
) -> None:
    """40: the -with-x forms look at x- headers too."""
    exchange = exchanges("headers")
    queue = connection.declare(1, exclusive=True).queue
    arguments = {"x-match": match, "x-h": 1, "a": 1}
    connection.call(1, "queue.bind", queue=queue, exchange=exchange, arguments=arguments)
    publish_headers(connection, exchange, *hits, *misses)
    assert connection.drain(1, queue) == [b"%d" % i for i in range(len(hits))]


@pytest.mark.parametrize("match", ["some", "", "ALL", 1, None])
def test_b40_invalid_x_match_is_406(
    connection: raw.Connection, exchanges: Exchanges, match: object
) -> None:
    """40: refused when binding."""
    exchange = exchanges("headers")
    queue = connection.declare(1, exclusive=True).queue
    arguments = {"x-match": match}
    values = {"queue": queue, "exchange": exchange, "arguments": arguments}
    connection.send(raw.method(1, "queue.bind", **values))
    connection.expect_channel_close(1, 406, "PRECONDITION_FAILED - ", (50, 20))


@pytest.mark.parametrize(
    ("match", "hits", "misses"),
    [
        ("all-with-x", [{"x-h": 1}, {"x-h": "s", "b": 2}], [{}, {"h": 1}]),
        ("any-with-x", [{"x-h": None}], [{}, {"x-other": 1}]),
    ],
)
def test_b40_void_with_x_is_presence(
    connection: raw.Connection,
    exchanges: Exchanges,
    match: str,
    hits: list[dict[str, Any]],
    misses: list[dict[str, Any]],
) -> None:
    """40: a void argument asks for the header only, one that begins with x- too."""
    exchange = exchanges("headers")
    queue = connection.declare(1, exclusive=True).queue
    arguments = {"x-match": match, "x-h": None}
    connection.call(1, "queue.bind", queue=queue, exchange=exchange, arguments=arguments)
    publish_headers(connection, exchange, *hits, *misses)
    assert connection.drain(1, queue) == [b"%d" % i for i in range(len(hits))]


@pytest.mark.parametrize(("match", "found"), [("all-with-x", [b"0"]), ("any-with-x", [])])
def test_b40_with_x_and_no_arguments(
    connection: raw.Connection, exchanges: Exchanges, match: str, found: list[bytes]
) -> None:
    """40: `x-match` itself is none of the arguments: all of none match, any of none does not."""
    exchange = exchanges("headers")
    queue = bound_queue(connection, exchange, "", **{"x-match": match})
    publish_headers(connection, exchange, {"x-match": match, "a": 1})
    assert connection.drain(1, queue) == found


def test_b40_a_queue_of_several_bindings_gets_one_copy(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """40, 36: and loses only the one that is unbound, which its arguments name."""
    exchange = exchanges("headers")
    queue = bound_queue(connection, exchange, "", a=1)
    values = {"queue": queue, "exchange": exchange, "arguments": {"b": 2}}
    connection.call(1, "queue.bind", **values)
    publish_headers(connection, exchange, {"a": 1, "b": 2}, {"b": 2})
    assert connection.drain(1, queue) == [b"0", b"1"]
    connection.call(1, "queue.unbind", **values)
    publish_headers(connection, exchange, {"a": 1, "b": 2}, {"b": 2})
    assert connection.drain(1, queue) == [b"0"]


def test_b40_the_routing_key_does_not_matter(
    connection: raw.Connection, exchanges: Exchanges
) -> None:
    """40: nor does the binding key."""
    exchange = exchanges("headers")
    queue = bound_queue(connection, exchange, "binding key", a=1)
    connection.send(raw.publish(1, exchange, "routing key", b"m", headers={"a": 1}))
    assert connection.drain(1, queue) == [b"m"]


def test_b40_message_without_headers(connection: raw.Connection, exchanges: Exchanges) -> None:
    """40: is as one with none."""
    exchange = exchanges("headers")
    everything = bound_queue(connection, exchange, "", **{"x-match": "all"})
    some = bound_queue(connection, exchange, "", a=1)
    connection.send(raw.publish(1, exchange, "", b"m"))
    assert (connection.drain(1, everything), connection.drain(1, some)) == ([b"m"], [])


def test_b40_an_integer_is_no_float(
    connection: raw.Connection, exchanges: Exchanges, broker: Broker
) -> None:
    """40: 1 is not 1.0 in RabbitMQ 4.3, which compares by =:=; 3.10 compares by ==."""
    exchange = exchanges("headers")
    queue = bound_queue(connection, exchange, "", a=1)
    publish_headers(connection, exchange, {"a": 1.0}, {"a": 1})
    assert connection.drain(1, queue) == ([b"0", b"1"] if broker.is_rabbitmq else [b"1"])
