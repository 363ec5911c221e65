"""Where messages go in a topology, by the type of exchange; a broker is asked in tests/spark."""

from __future__ import annotations

import pytest

from leveret.pipelines.route.matchers import MessageKey
from leveret.pipelines.route.router import (
    INTERNAL,
    NO_BINDING,
    NO_EXCHANGE,
    NOT_STRICT,
    Router,
    copies,
)
from leveret.pipelines.route.topology import TopologyError, read_topology

Rows = list[dict[str, object]]

EXCHANGES: Rows = [
    {"name": "direct", "type": "direct", "arguments": {"alternate-exchange": "rest"}},
    {"name": "topic", "type": "topic"},
    {"name": "rest", "type": "fanout", "internal": True},
    {"name": "headers", "type": "headers"},
    {"name": "ring", "type": "x-consistent-hash", "arguments": {"hash-header": "tenant"}},
    {"name": "any", "type": "x-random"},
]
QUEUES: Rows = [{"name": name} for name in ("a", "b", "c")]
BINDINGS: Rows = [
    {"source": "direct", "destination": "a", "routing_key": "k"},
    {
        "source": "direct",
        "destination": "topic",
        "destination_type": "exchange",
        "routing_key": "t",
    },
    {"source": "topic", "destination": "b", "routing_key": "#"},
    {
        "source": "topic",
        "destination": "direct",
        "destination_type": "exchange",
        "routing_key": "t",
    },
    {"source": "rest", "destination": "c"},
    {"source": "headers", "destination": "a", "arguments": {"n": 1, "ok": True}},
    {"source": "headers", "destination": "b", "arguments": {"x-match": "any", "n": 2, "v": None}},
    {"source": "any", "destination": "a"},
    {"source": "any", "destination": "b"},
    {"source": "ring", "destination": "a", "routing_key": "2"},
    {"source": "ring", "destination": "b", "routing_key": "2"},
    {"source": "ring", "destination": "c", "routing_key": "2"},
]


def router(**more: object) -> Router:
    held = {"queues": QUEUES, "exchanges": EXCHANGES, "bindings": BINDINGS, **more}
    return Router(read_topology(held))


def queues(exchange: str, key: str, **headers: str | None) -> str:
    return "".join(
        "abc"[n] for n in sorted(ROUTER.route(MessageKey(exchange, key, headers)).queues)
    )


ROUTER = router()


def test_keys_go_by_the_type_of_the_exchange() -> None:
    assert queues("direct", "k") == "a"
    assert queues("topic", "x.y") == "b"
    assert queues("", "c") == "c"


def test_exchanges_may_be_bound_in_a_circle() -> None:
    assert queues("direct", "t") == "b"
    assert queues("topic", "t") == "b"


def test_what_matches_nothing_goes_to_the_alternate_exchange() -> None:
    assert queues("direct", "none") == "c"


def test_headers_are_compared_as_text() -> None:
    assert queues("headers", "", n="1", ok="true") == "a"
    assert queues("headers", "", n="1") == ""
    assert queues("headers", "", n="2") == "b"
    assert queues("headers", "", v=None) == "b"
    assert queues("headers", "", v="whatever") == "b"


def test_a_ring_takes_one_queue_and_the_same_again() -> None:
    chosen = {queues("ring", str(n), tenant="t7") for n in range(50)}
    assert len(chosen) == 1
    spread = {queues("ring", "", tenant=f"t{n}") for n in range(200)}
    assert spread == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({}, ["a", "a", "b", "a"]), ({"x-super-stream-partitions": 3}, ["b", "a", "b", ""])],
    ids=["counted", "declared"],
)
def test_a_super_stream_takes_the_partition_of_the_key(
    arguments: dict[str, object], expected: list[str]
) -> None:
    """As the broker does: a partition that is missing gets nothing where it is known of."""
    exchange = {"name": "sales", "type": "x-super-stream", "arguments": arguments}
    bindings = [
        {"source": "sales", "destination": queue, "routing_key": str(number)}
        for number, queue in enumerate("ab")
    ]
    asked = router(exchanges=[exchange], bindings=bindings)
    found = [asked.route(MessageKey("sales", f"hello{number}")).queues for number in (1, 2, 3, 4)]
    assert ["".join("abc"[n] for n in one) for one in found] == expected


def test_of_a_random_exchange_each_queue_gets_its_share() -> None:
    outcome = ROUTER.route(MessageKey("any", "k"))
    assert outcome.queues == {0: 0.5, 1: 0.5}


def test_copies_are_more_keys() -> None:
    assert queues("direct", "k", CC='["t", "none"]') == "ab"
    assert queues("", "a", CC='["b", 7]') == "ab"
    assert copies("no array") == []
    assert copies("[") == []
    assert copies('{"a": 1}') == []


def test_it_is_said_why_a_message_goes_nowhere() -> None:
    def reason(exchange: str, key: str) -> str:
        return ROUTER.route(MessageKey(exchange, key)).reason

    assert reason("direct", "k") == ""
    assert reason("gone", "k") == NO_EXCHANGE
    assert reason("rest", "k") == INTERNAL
    assert reason("headers", "") == NO_BINDING
    assert reason("", "gone") == NO_BINDING
    strict = router(metadata={"strict_keys": True})
    assert strict.route(MessageKey("topic", "a b")).reason == NOT_STRICT
    assert strict.route(MessageKey("topic", "a.b")).reason == ""


def test_bindings_that_matched_are_told() -> None:
    outcome = ROUTER.route(MessageKey("direct", "t"))
    assert set(outcome.bindings) == {1, 2, 3}


def test_the_headers_that_count_are_told() -> None:
    assert ROUTER.header_names() == {"CC", "n", "ok", "v", "x-match", "tenant"}
    assert ROUTER.property_names() == set()


@pytest.mark.parametrize(
    ("exchange", "key", "text"),
    [
        ({"type": "x-jms-topic"}, "", "the type 'x-jms-topic' cannot be routed here"),
        ({"type": "x-consistent-hash"}, "many", "the key should be a weight"),
        ({"type": "x-super-stream"}, "-1", "the key should be a partition's number"),
        (
            {"type": "x-consistent-hash", "arguments": {"hash-property": "app_id"}},
            "1",
            "there is no hash-property 'app_id'",
        ),
        (
            {
                "type": "x-consistent-hash",
                "arguments": {"hash-property": "message_id", "hash-header": "h"},
            },
            "1",
            "mutually exclusive",
        ),
    ],
)
def test_what_cannot_be_routed_through_is_refused(
    exchange: dict[str, object], key: str, text: str
) -> None:
    held = {
        "queues": QUEUES,
        "exchanges": [{"name": "x", **exchange}],
        "bindings": [{"source": "x", "destination": "a", "routing_key": key}],
    }
    with pytest.raises(TopologyError, match=text):
        Router(read_topology(held))
    bad = {"source": "amq.match", "destination": "a", "arguments": {"x-match": "some"}}
    with pytest.raises(TopologyError, match="Invalid x-match"):
        router(bindings=[bad])
