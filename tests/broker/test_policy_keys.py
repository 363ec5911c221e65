"""What a policy may hold, and how it meets the arguments of a queue, by RabbitMQ's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.broker.attributes.arguments import NUMBER_MAX, Arguments
from leveret.broker.policies.keys import (
    OPERATOR_KEYS,
    POLICY_KEYS,
    check_definition,
    merge_exchange_arguments,
    merge_operator,
    merge_queue_arguments,
    suits,
)
from leveret.errors import PreconditionFailed
from leveret.limits import TTL_MS_MAX

GOOD: list[tuple[str, list[object]]] = [
    ("message-ttl", [0, TTL_MS_MAX]),
    ("expires", [1, TTL_MS_MAX]),
    ("max-length", [0, NUMBER_MAX]),
    ("max-length-bytes", [0]),
    ("max-in-memory-length", [0]),
    ("max-in-memory-bytes", [0]),
    ("delivery-limit", [-1, 0, 20]),
    ("consumer-timeout", [0]),
    ("consumer-disconnected-timeout", [0]),
    ("stream-max-segment-size-bytes", [3_000_000_000]),
    ("stream-filter-size-bytes", [16, 255]),
    ("initial-cluster-size", [1]),
    ("target-group-size", [3]),
    ("queue-version", [1, 2]),
    ("overflow", ["drop-head", "reject-publish", "reject-publish-dlx"]),
    ("dead-letter-strategy", ["at-most-once", "at-least-once"]),
    ("dead-letter-exchange", ["", "dlx"]),
    ("dead-letter-routing-key", ["", "key"]),
    ("alternate-exchange", ["ae"]),
    ("queue-mode", ["lazy"]),
    ("queue-leader-locator", ["balanced", "client-local"]),
    ("queue-master-locator", ["min-masters"]),
    ("max-age", ["7D"]),
    ("delayed-message", [True, False]),
    ("delayed-retry-type", ["disabled", "all", "failed", "returned"]),
    ("delayed-retry-min", [0]),
    ("delayed-retry-max", [0]),
    ("deduplication-header", ["id"]),
    ("deduplication-scope", ["window", "queued"]),
    ("deduplication-window-size", [1]),
    ("deduplication-window-age", [1]),
    ("retain-acked", ["1h"]),
    ("retain-acked-bytes", [0]),
    ("ha-mode", ["all"]),
    ("ha-params", [2, ["rabbit@a"]]),
    ("ha-sync-mode", ["automatic"]),
    ("ha-sync-batch-size", [5]),
    ("ha-promote-on-shutdown", ["always"]),
    ("ha-promote-on-failure", ["when-synced"]),
]

BAD: list[tuple[str, object, str]] = [
    ("message-ttl", -1, "-1 is not a valid message TTL"),
    ("message-ttl", TTL_MS_MAX + 1, "message TTL"),
    ("expires", 0, "0 is not a valid queue expiry"),
    ("max-length", -1, "-1 is not a valid maximum length"),
    ("max-length", "a", "'a' is not a valid maximum length"),
    ("max-length", 1.5, "1.5 is not a valid maximum length"),
    ("max-length", True, "True is not a valid maximum length"),
    ("max-length-bytes", None, "maximum length in bytes"),
    ("delivery-limit", -2, "-2 is not a valid delivery limit"),
    ("stream-max-segment-size-bytes", 5_000_000_000, "is not a valid segment size"),
    ("stream-filter-size-bytes", 15, "filter size"),
    ("queue-version", 3, "3 is not a valid queue-version value"),
    ("overflow", "x", "'x' is not a valid overflow value"),
    ("overflow", 1, "1 is not a valid overflow value"),
    ("dead-letter-exchange", 1, "1 is not a valid dead letter exchange name"),
    ("dead-letter-routing-key", "k" * 256, "is not a valid dead letter routing key"),
    ("alternate-exchange", {}, "is not a valid alternate exchange name"),
    ("dead-letter-strategy", "x", "'x' is not a valid dead letter strategy"),
    ("queue-mode", "x", "'x' is not a valid queue-mode value"),
    ("max-age", "1x", "'1x' is not a valid max age"),
    ("max-age", 7, "7 is not a valid max age"),
    ("ha-mode", "x", "'x' is not a valid ha-mode value"),
    ("ha-params", 0, "ha-params"),
    ("ha-params", [5], "ha-params"),
    ("ha-params", True, "ha-params"),
    ("ha-params", ["rabbit@a"] * 256, "ha-params"),
    ("expires", True, "True is not a valid queue expiry"),
    ("delayed-message", 1, "delayed-message"),
    ("ha-params", {}, "ha-params"),
    ("queue-leader-locator", "x", "'x' is not a valid queue leader locator value"),
    ("max-priority", 5, "'max-priority' is not a recognised policy key"),
    ("federation-upstream-set", "all", "not a recognised policy key"),
    ("", 1, "not a recognised policy key"),
]


@pytest.mark.parametrize(("key", "values"), GOOD, ids=str)
def test_what_a_policy_may_hold(key: str, values: list[object]) -> None:
    for value in values:
        check_definition({key: value}, False)


@pytest.mark.parametrize(("key", "value", "text"), BAD, ids=lambda value: str(value)[:20])
def test_what_it_may_not(key: str, value: object, text: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        check_definition({"max-length-bytes": 1, key: value}, False)
    assert text in caught.value.text


def test_a_policy_holds_something() -> None:
    with pytest.raises(PreconditionFailed, match="no policy provided"):
        check_definition({}, False)


@pytest.mark.parametrize("key", [key for key, _ in GOOD])
def test_an_operator_policy_holds_few_keys(key: str) -> None:
    value = dict(GOOD)[key][0]
    if key in OPERATOR_KEYS:
        check_definition({key: value}, True)
        return
    with pytest.raises(PreconditionFailed, match="not a recognised operator policy key"):
        check_definition({key: value}, True)


def test_a_policy_is_for_the_queue_types_that_have_all_its_keys() -> None:
    assert suits({"message-ttl": 1, "overflow": "drop-head"}, "classic")
    assert suits({"delivery-limit": 1}, "classic"), "other than in RabbitMQ"
    assert not suits({"message-ttl": 1, "max-age": "1D"}, "classic")
    assert suits({"max-age": "1D", "max-length-bytes": 5}, "stream")
    assert not suits({"max-length-bytes": 5, "message-ttl": 1}, "stream")
    assert suits({"delivery-limit": 1}, "quorum")
    assert not suits({"ha-mode": "all"}, "quorum")
    assert suits({"alternate-exchange": "x"}, "stream")


def test_an_operator_policy_replaces_or_takes_the_least() -> None:
    policy: Arguments = {
        "max-length": 5,
        "message-ttl": 10,
        "overflow": "drop-head",
        "max-age": "1D",
    }
    operator: Arguments = {
        "max-length": 3,
        "message-ttl": 20,
        "overflow": "reject-publish",
        "expires": 9,
    }
    assert merge_operator(policy, operator) == {
        "max-length": 3,
        "message-ttl": 10,
        "overflow": "reject-publish",
        "max-age": "1D",
        "expires": 9,
    }


#: Queue type, arguments, policy, operator policy, what the queue then follows.
MERGES: list[tuple[str, Arguments, Arguments, Arguments, Arguments]] = [
    ("classic", {}, {"max-length": 5}, {}, {"x-max-length": 5}),
    ("classic", {"x-max-length": 3}, {"max-length": 5}, {}, {"x-max-length": 3}),
    ("classic", {"x-max-length": 7}, {"max-length": 5}, {}, {"x-max-length": 5}),
    ("classic", {"x-max-length": 7}, {"max-length": 5}, {"max-length": 4}, {"x-max-length": 4}),
    ("classic", {"x-max-length": 2}, {}, {"max-length": 4}, {"x-max-length": 2}),
    ("classic", {"x-message-ttl": 7}, {"expires": 5}, {}, {"x-message-ttl": 7, "x-expires": 5}),
    ("classic", {"x-delivery-limit": 7}, {"delivery-limit": -1}, {}, {"x-delivery-limit": 7}),
    ("classic", {"x-consumer-timeout": 7}, {"consumer-timeout": 5}, {}, {"x-consumer-timeout": 5}),
    (
        "classic",
        {"x-dead-letter-exchange": "mine"},
        {"dead-letter-exchange": "theirs", "dead-letter-routing-key": "k"},
        {},
        {"x-dead-letter-exchange": "mine", "x-dead-letter-routing-key": "k"},
    ),
    (
        "classic",
        {"x-overflow": "drop-head"},
        {"overflow": "reject-publish"},
        {},
        {"x-overflow": "drop-head"},
    ),
    (
        "quorum",
        {"x-overflow": "drop-head"},
        {"overflow": "reject-publish"},
        {},
        {"x-overflow": "reject-publish"},
    ),
    (
        "classic",
        {"x-overflow": "drop-head"},
        {},
        {"overflow": "reject-publish"},
        {"x-overflow": "reject-publish"},
    ),
    ("stream", {"x-max-age": "1D"}, {"max-age": "7D"}, {}, {"x-max-age": "7D"}),
    (
        "stream",
        {"x-max-length-bytes": 5},
        {"max-length-bytes": 9},
        {"max-length-bytes": 7},
        {"x-max-length-bytes": 7},
    ),
    ("classic", {"x-max-priority": 5}, {"alternate-exchange": "a"}, {}, {"x-max-priority": 5}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "arguments", "policy", "operator", "merged"), MERGES)
def test_arguments_and_policies_meet(
    kind: str, arguments: Arguments, policy: Arguments, operator: Arguments, merged: Arguments
) -> None:
    before = dict(arguments)
    assert merge_queue_arguments(arguments, policy, operator, kind) == merged
    assert arguments == before, "a queue's own arguments stay"


def test_an_exchange_follows_its_own_argument_first() -> None:
    policy: Arguments = {"alternate-exchange": "b", "max-length": 5}
    assert merge_exchange_arguments({}, policy) == {"alternate-exchange": "b"}
    own: Arguments = {"alternate-exchange": "a"}
    assert merge_exchange_arguments(own, policy) == own


@pytest.mark.parametrize("key", ["max-length", "message-ttl", "expires", "delivery-limit"])
def test_a_boolean_is_no_number(key: str) -> None:
    with pytest.raises(PreconditionFailed):
        check_definition({key: True}, operator=False)


def test_every_key_is_tried_here_and_listed_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/operation/policies.md").read_text()
    assert sorted(POLICY_KEYS) == sorted(key for key, _ in GOOD)
    assert [key for key in POLICY_KEYS if f"`{key}`" not in page] == []
    operators = page.split("## Operator policies")[1]
    assert [key for key in OPERATOR_KEYS if f"`{key}`" not in operators] == []
