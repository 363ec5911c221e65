"""The arguments of declares: what they may hold, and when two declares are the same.

Source: behaviours 45 (inequivalent arguments) and 46 (bad arguments).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.attributes.arguments import age_seconds
from leveret.limits import TTL_MS_MAX
from support.node.core import Node, Peer
from support.wire.raw_codec import Typed, method

WHERE = "queue 'q' in vhost '/'"


def refusal(peer: Peer, arguments: dict[str, Any], **values: Any) -> str | None:
    """Declare the queue `q`; return the text of its refusal, or None."""
    peer.send(method(1, "queue.declare", queue="q", arguments=arguments, **values))
    peer.node.sync()
    (got,) = peer.take()
    if got.name == "queue.declare-ok":
        return None
    assert (got.name, got.code) == ("channel.close", 406)
    text: str = got.text
    return text.removeprefix("PRECONDITION_FAILED - ")


GOOD: list[dict[str, Any]] = [
    {"x-expires": 1},
    {"x-message-ttl": 0},
    {"x-message-ttl": TTL_MS_MAX, "x-expires": TTL_MS_MAX},
    {"x-max-length": 0, "x-max-length-bytes": 2**62, "x-overflow": "drop-head"},
    {"x-max-length": Typed("b", 1), "x-overflow": "reject-publish"},
    {"x-max-priority": 255},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"},
    {"x-single-active-consumer": True, "x-queue-mode": "lazy"},
    {"x-queue-mode": "any", "x-queue-type": ""},
    {"x-queue-mode": 5},
    {"x-queue-type": "classic"},
    {"unknown": [1, {"of": None}], "x-unknown": Typed("D", (2, 314))},
]


@pytest.mark.parametrize("arguments", GOOD, ids=str)
def test_what_may_be(peer: Peer, arguments: dict[str, Any]) -> None:
    """Behaviour 46 (bad arguments); the same again is the same."""
    assert refusal(peer, arguments) is None
    assert refusal(peer, arguments) is None


BAD: list[tuple[dict[str, Any], str]] = [
    ({"x-expires": 0}, "'x-expires' for {}: {{value_zero,0}}"),
    ({"x-expires": -1}, "'x-expires' for {}: {{value_negative,-1}}"),
    (
        {"x-message-ttl": TTL_MS_MAX + 1},
        "'x-message-ttl' for {}: {{value_too_large,315360000001}}",
    ),
    ({"x-expires": TTL_MS_MAX + 1}, "'x-expires' for {}: {{value_too_large,315360000001}}"),
    ({"x-message-ttl": "1"}, "'x-message-ttl' for {}: \"expected integer, got longstr\""),
    ({"x-message-ttl": True}, "'x-message-ttl' for {}: \"expected integer, got bool\""),
    ({"x-max-length": 1.0}, "'x-max-length' for {}: \"expected integer, got double\""),
    ({"x-max-length-bytes": -5}, "'x-max-length-bytes' for {}: {{value_negative,-5}}"),
    ({"x-max-priority": 256}, "'x-max-priority' for {}: {{max_value_exceeded,256}}"),
    ({"x-dead-letter-routing-key": 1}, "'x-dead-letter-routing-key' for {}: {{unacceptable_type,"),
    ({"x-dead-letter-routing-key": "k"}, "'x-dead-letter-routing-key' for {}: routing_key_but_no_"),
    ({"x-overflow": "drop-tail"}, "'x-overflow' for {}: invalid_overflow"),
    ({"x-queue-version": 3}, "'x-queue-version' for {}: \"unsupported queue version '3'\""),
    ({"x-max-age": "1D"}, "'x-max-age' for {} of queue type rabbit_classic_queue"),
    ({"x-queue-type": "fast"}, "'x-queue-type' for {}: \"unsupported queue type 'fast'\""),
    ({"x-queue-type": "stream", "x-max-age": "1w"}, "'x-max-age' for {}: invalid_max_age"),
    (
        {"x-queue-type": "stream", "x-max-age": 7},
        "'x-max-age' for {}: {{unacceptable_type,signedint}}",
    ),
    (
        {"x-queue-type": "stream", "x-max-age": "9" * 18 + "Y"},
        "'x-max-age' for {}: invalid_max_age",
    ),
]


@pytest.mark.parametrize(("arguments", "text"), BAD, ids=str)
def test_what_may_not_be(peer: Peer, arguments: dict[str, Any], text: str) -> None:
    """Behaviour 46 (bad arguments); the texts are RabbitMQ's."""
    said = refusal(peer, arguments)
    assert said is not None
    assert said.startswith("invalid arg " + text.format(WHERE))
    assert "q" not in peer.node.vhost.queues.by_name


DIFFERENT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"x-message-ttl": 1}, {"x-message-ttl": 2},
        "'x-message-ttl' for {}: received '2' but current is '1'",
    ),
    (
        {"x-message-ttl": 1}, {},
        "'x-message-ttl' for {}: received none but current is the value '1' of type 'signedint'",
    ),
    (
        {"x-consumer-timeout": 1000}, {"x-consumer-timeout": 2000},
        "'x-consumer-timeout' for {}: received '2000' but current is '1000'",
    ),
    (
        {"x-consumer-timeout": 1000}, {},
        (
            "'x-consumer-timeout' for {}: received none but current is the value '1000' of type "
            "'signedint'"
        ),
    ),
    (
        {}, {"x-dead-letter-exchange": "d"},
        (
            "'x-dead-letter-exchange' for {}: received the value 'd' of type 'longstr' "
            "but current is none"
        ),
    ),
    (
        {}, {"x-queue-type": "stream"},
        "'x-queue-type' for {}: received 'stream' but current is 'classic'",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("first", "then", "text"), DIFFERENT, ids=str)
def test_what_is_not_the_same(
    peer: Peer, first: dict[str, Any], then: dict[str, Any], text: str
) -> None:
    """Behaviour 45 (inequivalent arguments)."""
    assert refusal(peer, first) is None
    assert refusal(peer, then) == "inequivalent arg " + text.format(WHERE)


@pytest.mark.parametrize("flag", ["durable", "auto_delete"])
def test_flags_that_are_not_the_same(peer: Peer, flag: str) -> None:
    """Behaviour 45 (inequivalent arguments)."""
    assert refusal(peer, {}) is None
    said = refusal(peer, {}, **{flag: True})
    assert said == f"inequivalent arg '{flag}' for {WHERE}: received 'true' but current is 'false'"


@pytest.mark.parametrize("tag", list("bBsuIilL"))
def test_numbers_are_the_same_whatever_their_width(peer: Peer, tag: str) -> None:
    """Behaviour 45 (inequivalent arguments)."""
    assert refusal(peer, {"x-max-length": 100}) is None
    assert refusal(peer, {"x-max-length": Typed(tag, 100)}) is None


@pytest.mark.parametrize("kind", ["classic", ""])
def test_classic_and_no_type_are_the_same(peer: Peer, kind: str) -> None:
    assert refusal(peer, {}) is None
    assert refusal(peer, {"x-queue-type": kind}) is None


def test_arguments_that_mean_nothing_are_not_compared(peer: Peer) -> None:
    """As in RabbitMQ."""
    assert refusal(peer, {"mine": 1}) is None
    assert refusal(peer, {"mine": 2, "other": "x"}) is None


NAMES = [
    "x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority",
    "x-overflow", "x-queue-type", "x-max-age", "x-queue-mode", "x-single-active-consumer",
    "x-delivery-limit", "x-stream-max-segment-size-bytes", "x-dead-letter-exchange",
    "x-dead-letter-routing-key", "alternate-exchange", "x-match",
]  # fmt: skip

values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.builds(Typed, st.just("L"), st.integers(0, 2**64 - 1)),
    st.builds(Typed, st.just("T"), st.integers(0, 2**64 - 1)),
    st.builds(Typed, st.just("D"), st.tuples(st.integers(0, 255), st.integers(-9, 9))),
    st.sampled_from(["stream", "quorum", "classic", "drop-head", "1D", "999999999999Y", "", "any"]),
    st.binary(max_size=3),
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.just([1]) | st.just({"a": 1}),
)


@given(st.dictionaries(st.sampled_from(NAMES), values, max_size=4), st.booleans())
def test_any_arguments_are_taken_or_refused(arguments: dict[str, Any], stream: bool) -> None:
    """Of queues, exchanges, bindings and consumers: never an error of the broker's own."""
    if stream:
        arguments = {"x-queue-type": "stream"} | arguments
    peer = Node().connect(1, 2, 3, 4)
    where = {"arguments": arguments}
    peer.call(1, "queue.declare", queue="r")
    peer.send(
        method(1, "queue.declare", queue="q", durable=True, **where),
        method(2, "exchange.declare", exchange="e", type="topic", **where),
        method(3, "queue.bind", queue="r", exchange="amq.headers", **where),
        method(4, "basic.consume", queue="r", **where),
    )
    peer.node.sync()
    replies = peer.take()
    assert {got.channel for got in replies} == {1, 2, 3, 4}
    assert all(got.name.endswith("-ok") or got.code in {406, 540} for got in replies), replies
    assert not [text for _, text in peer.connection.log if "internal error" in text]


@given(st.integers(0, 10**6), st.sampled_from("YMDhms"))
def test_an_age_is_a_number_and_a_unit(number: int, unit: str) -> None:
    seconds = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3600, "m": 60, "s": 1}[unit]
    if number * seconds <= 315_360_000_000:
        assert age_seconds(f"{number}{unit}") == number * seconds
    else:
        with pytest.raises(ValueError, match=unit):
            age_seconds(f"{number}{unit}")


@pytest.mark.parametrize(
    "text", ["", "s", "7", "-7s", "+7s", "7 s", "7S", "7ms", "\u0667s", "7.5h"]
)
def test_an_age_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text.replace('+', '.')}$"):
        age_seconds(text)
