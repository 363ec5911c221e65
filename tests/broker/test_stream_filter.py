"""Filters of a stream's consumers: by filter value, routing key and headers.

Sources: RabbitMQ 4.3's `x-stream-filter` and `x-stream-match-unfiltered`; the rest is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.stream.filter import STREAM_FILTER_KEYS_KNOWN_MAX, StreamFilter, stream_filter
from leveret.errors import PreconditionFailed
from leveret.limits import SLICE_MESSAGES, STREAM_FILTER_VALUES_MAX, STREAM_FILTER_WORDS_MAX
from leveret.message import Address, Message
from leveret.wire.basic_properties import BasicProperties
from support.node.core import Node, Peer
from support.wire.raw_codec import Typed, method, publish

WHERE = "queue 's' in vhost '/'"


def message(key: str = "", headers: dict[str, object] | None = None) -> Message:
    """A message with that routing key and those headers."""
    properties = BasicProperties(headers=headers).encode()
    return Message(Address(b"x", key.encode()), properties, b"", 0, True)


def wanted(**arguments: Any) -> StreamFilter:
    """The filter of a consumer with arguments `x-stream-...`."""
    named = {f"x-stream-{name.replace('_', '-')}": value for name, value in arguments.items()}
    found = stream_filter(named, WHERE)
    assert found is not None
    return found


def lets(found: StreamFilter, values: Sequence[object], **headers: object) -> list[object]:
    """Which filter values it lets through."""
    through = []
    for value in values:
        own = {} if value is None else {"x-stream-filter-value": value}
        if found.matches(message("k", headers | own)):
            through.append(value)
    return through


VALUES = ["a", "b", "", None, 5, True, b"a"]


def test_a_value_is_matched_exactly() -> None:
    """What is no text is unfiltered, as in RabbitMQ."""
    assert lets(wanted(filter="a"), VALUES) == ["a"]
    assert lets(wanted(filter=["a", "b", "ab"]), VALUES) == ["a", "b"]
    assert lets(wanted(filter=""), VALUES) == [""]
    both = wanted(filter="b", match_unfiltered=True)
    assert lets(both, VALUES, other=1) == ["b", None, 5, True, b"a"]


def test_the_name_of_the_header_in_another_header_means_nothing() -> None:
    found = wanted(filter="a")
    assert not found.matches(message("", {"note": "\x15x-stream-filter-valueS\0\0\0\1a"}))
    assert not found.matches(message("", {"t": {"x-stream-filter-value": "a"}}))


def test_match_unfiltered_alone_filters_nothing() -> None:
    assert stream_filter({"x-stream-match-unfiltered": True}, WHERE) is None
    assert stream_filter({"x-stream-offset": 1}, WHERE) is None


def test_routing_keys_are_matched_as_by_a_topic_exchange() -> None:
    keys = ["", "a", "a.b", "a.b.c", "b"]

    def matched(patterns: object) -> list[str]:
        found = wanted(filter_routing_key=patterns)
        first, again = ([k for k in keys if found.matches(message(k))] for _ in range(2))
        assert first == again, "the second time from its memory"
        return first

    assert matched("a") == ["a"]
    assert matched("a.*") == ["a.b"]
    assert matched("a.#") == ["a", "a.b", "a.b.c"]
    assert matched("#") == keys
    assert matched(["b", "*.b"]) == ["a.b", "b"]


def test_what_is_remembered_of_routing_keys_is_bounded() -> None:
    found = wanted(filter_routing_key="k.*")
    for number in range(STREAM_FILTER_KEYS_KNOWN_MAX * 2 + 1):
        assert found.matches(message(f"k.{number}"))
        assert not found.matches(message(f"{number}"))
    assert len(found.known_keys) <= STREAM_FILTER_KEYS_KNOWN_MAX


def test_headers_are_matched_as_by_a_headers_exchange() -> None:
    both = wanted(filter_headers={"a": 1, "b": "x"})
    one = wanted(filter_headers={"a": 1, "b": "x", "x-match": "any"})
    cases: list[dict[str, object] | None] = [{"a": 1, "b": "x"}, {"a": 1}, {"a": 2}, None]
    assert [both.matches(message("", case)) for case in cases] == [True, False, False, False]
    assert [one.matches(message("", case)) for case in cases] == [True, True, False, False]


def test_all_conditions_must_hold() -> None:
    found = wanted(filter="a", filter_routing_key="k", filter_headers={"h": 1})
    good: dict[str, object] = {"x-stream-filter-value": "a", "h": 1}
    assert found.matches(message("k", good))
    assert not found.matches(message("j", good))
    assert not found.matches(message("k", good | {"h": 2}))
    assert not found.matches(message("k", good | {"x-stream-filter-value": "b"}))
    assert not found.matches(message("k", {"h": 1}))


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "", None]), st.sampled_from(["k", "j"]))))
def test_memory_changes_no_verdict(stream: list[tuple[str | None, str]]) -> None:
    found = wanted(filter=["a", ""], filter_routing_key="k")
    for value, key in stream:
        headers: dict[str, object] = {} if value is None else {"x-stream-filter-value": value}
        expected = key == "k" and value in ("a", "")
        assert found.matches(message(key, headers)) == expected


BAD: dict[str, list[object]] = {
    "x-stream-filter": [5, True, None, {}, [], ["a", 1], [["a"]], b"\xff"],
    "x-stream-match-unfiltered": [1, "true", None],
    "x-stream-filter-routing-key": [5, [], [5]],
    "x-stream-filter-headers": ["a", 5, [], {"x-match": "some"}],
}
ABSENT_WHEN_VOID = {"x-stream-filter", "x-stream-filter-routing-key", "x-stream-filter-headers"}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_a_filter_that_is_none_is_refused(name: str, value: object) -> None:
    if value is None and name in ABSENT_WHEN_VOID:
        assert stream_filter({name: value}, WHERE) is None
        return
    with pytest.raises(PreconditionFailed):
        stream_filter({name: value}, WHERE)


@pytest.mark.parametrize("name", ["filter", "filter_routing_key"])
def test_a_filter_has_so_many_values_at_most(name: str) -> None:
    many = [str(number) for number in range(STREAM_FILTER_VALUES_MAX)]
    wanted(**{name: many})
    with pytest.raises(PreconditionFailed, match="at most 256"):
        wanted(**{name: [*many, "one more"]})


def test_a_filter_has_so_many_words_behind_a_hash_at_most() -> None:
    """Each word of a routing key may lead to each of them."""
    words = STREAM_FILTER_WORDS_MAX // 4
    many = [f"{number}.#" + ".a" * words for number in range(4)]
    found = wanted(filter_routing_key=many)
    found.matches(message(key="0" + ".a" * 126))
    assert words * 32 < found.cost <= words * 64
    # Those before it cost a key no more than they are.
    wanted(filter_routing_key=[*many, "a." * 100 + "*"])
    with pytest.raises(PreconditionFailed, match="at most 256 words may follow"):
        wanted(filter_routing_key=[*many, "b.#.c"])


# -- in a stream -----------------------------------------------------------------------------------


@pytest.fixture
def peer(node: Node) -> Peer:
    """A connection that declared the stream `s`."""
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    return peer


def put(peer: Peer, *values: str) -> None:
    """Publish messages with these filter values, their numbers as bodies, and sync."""
    for number, value in enumerate(values):
        headers = {"x-stream-filter-value": value} if value else {}
        peer.send(publish(1, "", "s", b"%d" % number, headers=headers))
    peer.node.sync()


def consume(node: Node, prefetch: int = 100, **arguments: Any) -> Peer:
    """A connection that consumes the stream from its first message."""
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=prefetch)
    named = {f"x-stream-{name.replace('_', '-')}": value for name, value in arguments.items()}
    reader.call(1, "basic.consume", queue="s", arguments={"x-stream-offset": "first"} | named)
    return reader


def test_a_consumer_gets_what_it_wants_with_the_offsets(node: Node, peer: Peer) -> None:
    put(peer, "a", "b", "", "a", "b")
    assert consume(node, filter="a").bodies() == [b"0", b"3"]
    assert consume(node, filter=["b"]).bodies() == [b"1", b"4"]
    assert consume(node, filter="b", match_unfiltered=True).bodies() == [b"1", b"2", b"4"]
    assert consume(node, filter_headers={"x-match": "all-with-x", "x-stream-filter-value": "a"}
                   ).bodies() == [b"0", b"3"]  # fmt: skip
    assert consume(node, filter_routing_key="other").bodies() == []
    assert node.stream("s").delivered == 9


def test_what_is_filtered_out_costs_no_credit(node: Node, peer: Peer) -> None:
    reader = consume(node, prefetch=2, filter="a")
    put(peer, "a", *["b"] * 50, "a", "a", "b")
    assert reader.bodies() == [b"0", b"51"]
    reader.send(method(1, "basic.ack", delivery_tag=1))
    assert reader.bodies() == [b"52"]


def test_a_long_run_that_nobody_wants_is_taken_in_slices(node: Node, peer: Peer) -> None:
    count = SLICE_MESSAGES * 2 + 10
    peer.send(*[publish(1, "", "s", b"x") for _ in range(count)])
    put(peer, "a")
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=10)
    arguments = {"x-stream-offset": "first", "x-stream-filter": "a"}
    reader.receive(method(1, "basic.consume", queue="s", arguments=arguments))
    (place,) = node.stream("s").readers.values()
    places = []
    for _ in range(3):
        node.settle()
        node.read_wanted()
        places.append(int(place.offset))
    assert places == [SLICE_MESSAGES, SLICE_MESSAGES * 2, count + 1]
    node.run()
    reader.expect(1, "basic.consume-ok")
    assert reader.bodies() == [b"0"]


def test_a_filter_that_is_none_closes_the_channel(node: Node, peer: Peer) -> None:
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=1)
    arguments = {"x-stream-filter": Typed("I", 5)}
    reader.send(method(1, "basic.consume", queue="s", arguments=arguments))
    closed = reader.expect(1, "channel.close")
    assert closed.code == 406
    assert "invalid arg 'x-stream-filter' for queue 's' in vhost '/'" in closed.text
    assert not node.stream("s").readers
    assert not node.stream("s").consumers
