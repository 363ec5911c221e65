"""Policy keys: their names, their valid values, and their merging with a queue's arguments.

The keys are RabbitMQ's.  Keys for replicas have no effect, and are accepted so that definitions can
be moved between brokers.  An invalid value is refused when the policy is set, so that values need
no check when they are applied to a queue.

Definitions of another broker may have keys of missing features, such as federation.  Such keys are
stored and exported, but have no effect: `in_force` omits them.

Source: RabbitMQ's rabbit_policies and the callers of args_policy_lookup, also for the texts.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.attributes.arguments import (
    DEDUPLICATION_SCOPES,
    DELAYED_RETRY_TYPES,
    NUMBER_MAX,
    Arguments,
    is_age,
    is_int,
)
from leveret.errors import PreconditionFailed
from leveret.limits import DEDUPLICATION_KEYS_MAX, SHORT_STRING_BYTES_MAX, TTL_MS_MAX

_SEGMENT_BYTES_MAX: Final = 3_000_000_000

#: The maximum number of names in `ha-params`, which must fit into a journal record.
_NODES_MAX: Final = 255

#: The minimum and maximum of each numeric key, and a name for its value in errors.
POLICY_NUMBERS: Final[dict[str, tuple[int, int, str]]] = {
    "message-ttl": (0, TTL_MS_MAX, "message TTL"),
    "expires": (1, TTL_MS_MAX, "queue expiry"),
    "max-length": (0, NUMBER_MAX, "maximum length"),
    "max-length-bytes": (0, NUMBER_MAX, "maximum length in bytes"),
    "max-in-memory-length": (0, NUMBER_MAX, "maximum memory in bytes"),
    "max-in-memory-bytes": (0, NUMBER_MAX, "maximum memory in bytes"),
    "delivery-limit": (-1, NUMBER_MAX, "delivery limit"),
    "consumer-timeout": (0, NUMBER_MAX, "consumer timeout"),
    "consumer-disconnected-timeout": (0, NUMBER_MAX, "consumer disconnected timeout"),
    "deduplication-window-size": (1, DEDUPLICATION_KEYS_MAX, "deduplication window size"),
    "deduplication-window-age": (1, NUMBER_MAX, "deduplication window age"),
    "delayed-retry-min": (0, TTL_MS_MAX, "delay of a retry"),
    "delayed-retry-max": (0, TTL_MS_MAX, "delay of a retry"),
    "retain-acked-bytes": (0, NUMBER_MAX, "size of retained messages"),
    "stream-max-segment-size-bytes": (0, _SEGMENT_BYTES_MAX, "segment size"),
    "stream-filter-size-bytes": (16, 255, "filter size"),
    "initial-cluster-size": (1, NUMBER_MAX, "cluster size"),
    "target-group-size": (1, NUMBER_MAX, "group size"),
    "ha-sync-batch-size": (1, NUMBER_MAX, "batch size"),
    "queue-version": (1, 2, "queue-version value"),
}

#: The valid words of each of these keys, and a name for its value in errors.
_WORDS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "overflow": (("drop-head", "reject-publish", "reject-publish-dlx"), "overflow value"),
    "dead-letter-strategy": (("at-most-once", "at-least-once"), "dead letter strategy"),
    "delayed-retry-type": (DELAYED_RETRY_TYPES, "delayed retry type"),
    "deduplication-scope": (DEDUPLICATION_SCOPES, "deduplication scope"),
    "queue-mode": (("default", "lazy"), "queue-mode value"),
    "queue-leader-locator": (
        ("client-local", "balanced", "random", "least-leaders"),
        "queue leader locator value",
    ),
    "queue-master-locator": (
        ("client-local", "min-masters", "random"),
        "queue master locator value",
    ),
    "ha-mode": (("all", "exactly", "nodes"), "ha-mode value"),
    "ha-sync-mode": (("automatic", "manual"), "ha-sync-mode value"),
    "ha-promote-on-shutdown": (("always", "when-synced"), "ha-promote-on-shutdown value"),
    "ha-promote-on-failure": (("always", "when-synced"), "ha-promote-on-failure value"),
}

#: Keys with a name as their value, and a name for that value in errors.
_NAMES: Final[dict[str, str]] = {
    "alternate-exchange": "alternate exchange name",
    "dead-letter-exchange": "dead letter exchange name",
    "dead-letter-routing-key": "dead letter routing key",
    "deduplication-header": "deduplication header",
}

#: Keys with an age such as `7D` as their value, and a name for that value in errors.
_AGES: Final[dict[str, str]] = {
    "max-age": "max age",
    "retain-acked": "age of retained messages",
}

_OTHERS: Final = ("ha-params", "delayed-message")

#: All keys that a policy may have.
POLICY_KEYS: Final = (*POLICY_NUMBERS, *_WORDS, *_NAMES, *_AGES, *_OTHERS)

#: All keys that an operator policy may have.
OPERATOR_KEYS: Final = (
    "expires",
    "message-ttl",
    "max-length",
    "max-length-bytes",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "delivery-limit",
    "queue-version",
    "overflow",
)

#: Keys for exchanges; the others are for queues.
EXCHANGE_KEYS: Final = ("alternate-exchange", "delayed-message")

#: For these keys, the minimum of policy, operator policy and argument applies.
_LEAST: Final = (
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "delivery-limit",
    "consumer-timeout",
    "consumer-disconnected-timeout",
)

_OF_STREAMS: Final = ("max-age", "stream-max-segment-size-bytes", "stream-filter-size-bytes")
_OF_MIRRORS: Final = (
    "ha-mode",
    "ha-params",
    "ha-sync-mode",
    "ha-promote-on-shutdown",
    "ha-promote-on-failure",
    "queue-master-locator",
)

#: A policy with one of these keys does not apply to a queue of that type, as in RabbitMQ.  But a
#: classic queue may have a delivery limit and a dead-letter strategy.
_UNSUPPORTED: Final[dict[str, tuple[str, ...]]] = {
    "classic": (*_OF_STREAMS, "queue-leader-locator", "initial-cluster-size"),
    "quorum": (*_OF_STREAMS, *_OF_MIRRORS, "queue-mode", "initial-cluster-size"),
    "stream": (
        *_OF_MIRRORS,
        "queue-mode",
        "expires",
        "message-ttl",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "max-length",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "overflow",
        "delivery-limit",
        "delayed-retry-type",
        "delayed-retry-min",
        "delayed-retry-max",
        "deduplication-header",
        "deduplication-scope",
        "deduplication-window-size",
        "deduplication-window-age",
        "retain-acked",
        "retain-acked-bytes",
    ),
}


def check_definition(definition: Arguments, operator: bool, others: bool = False) -> None:
    """Refuse a definition that is invalid for a policy, or an operator policy.

    `others` allows unknown keys, without checking whether they can be stored.

    Raises: PreconditionFailed (406).
    """
    if not definition:
        raise PreconditionFailed("Validation failed: no policy provided")
    for key, value in definition.items():
        if is_known_key(key, operator):
            fault = _fault(key, value)
            if fault:
                raise PreconditionFailed(f"Validation failed: {fault}")
        elif not others:
            kind = "operator policy" if operator else "policy"
            raise PreconditionFailed(f"Validation failed: '{key}' is not a recognised {kind} key")


def is_known_key(key: str, operator: bool) -> bool:
    """Return whether a key can have an effect in a policy, or an operator policy."""
    return key in (OPERATOR_KEYS if operator else POLICY_KEYS)


def in_force(definition: Arguments, operator: bool) -> Arguments:
    """Return the part of a definition that has an effect.

    Unknown keys and invalid values are omitted.  An earlier version may have stored a key that was
    unknown to it, with an invalid value.
    """
    return {
        key: value
        for key, value in definition.items()
        if is_known_key(key, operator) and not _fault(key, value)
    }


def _fault(key: str, value: object) -> str:
    """Return the error in the value of a known key, or an empty string."""
    number = POLICY_NUMBERS.get(key)
    words = _WORDS.get(key)
    if number is not None:
        good = is_int(value) and isinstance(value, int) and number[0] <= value <= number[1]
        called = number[2]
    elif words is not None:
        good = isinstance(value, str) and value in words[0]
        called = words[1]
    elif key in _AGES:
        good = isinstance(value, str) and is_age(value)
        called = _AGES[key]
    elif key == "delayed-message":
        good = isinstance(value, bool)
        called = "delayed-message value"
    elif key == "ha-params":
        good = _are_nodes(value)
        called = "ha-params value"
    else:
        good = isinstance(value, str) and _is_short(value)
        called = _NAMES[key]
    if good:
        return ""
    said = f"'{value}'" if isinstance(value, str) else str(value)
    return f"{said} is not a valid {called}"


def _are_nodes(value: object) -> bool:
    """Return whether a value is a number of nodes, or their names."""
    if not isinstance(value, list):
        return is_int(value) and isinstance(value, int) and 0 < value <= NUMBER_MAX
    if len(value) > _NODES_MAX:
        return False
    return all(isinstance(name, str) and _is_short(name) for name in value)


def _is_short(text: str) -> bool:
    """Return whether `text` fits a short string of AMQP."""
    return utf8_size(text) <= SHORT_STRING_BYTES_MAX


def utf8_size(text: str) -> int:
    """Return the length in bytes.  Raises: PreconditionFailed (406) for invalid Unicode."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise PreconditionFailed("a text is not Unicode: it has an unpaired surrogate") from None


def suits(definition: Arguments, queue_type: str) -> bool:
    """Return whether a policy with this definition can apply to a queue of that type."""
    return definition.keys().isdisjoint(_UNSUPPORTED.get(queue_type, ()))


def merge_operator(definition: Arguments, operator: Arguments) -> Arguments:
    """Return a policy's definition with an operator policy's values, or with the lower limits."""
    merged = dict(definition)
    for key, value in operator.items():
        merged[key] = _least(key, definition[key], value) if key in definition else value
    return merged


def _least(key: str, one: object, other: object) -> object:
    """Return the smaller value if the key is in `_LEAST`, or else `other`."""
    if key not in _LEAST or not isinstance(one, int) or not isinstance(other, int):
        return other
    if key == "delivery-limit" and (one < 0 or other < 0):
        return max(one, other)  # a negative value means no limit, so the other value is lower
    return min(one, other)


def merge_queue_arguments(
    arguments: Arguments, policy: Arguments, operator: Arguments, queue_type: str
) -> Arguments:
    """Return a queue's arguments with its policies applied.

    For numeric limits, the minimum applies.  Otherwise the queue's own argument applies, except
    that policies take precedence for some keys of streams, for `overflow` of quorum queues, and for
    an operator's `overflow`.
    """
    merged = dict(arguments)
    for key, value in merge_operator(policy, operator).items():
        if key in EXCHANGE_KEYS:
            continue
        name = "x-" + key
        if name not in arguments or _policy_wins(key, queue_type, operator):
            merged[name] = value
        elif key in _LEAST:
            merged[name] = _least(key, arguments[name], value)
    return merged


def _policy_wins(key: str, queue_type: str, operator: Arguments) -> bool:
    if key == "overflow":
        return queue_type == "quorum" or key in operator
    return queue_type == "stream" and (key in _OF_STREAMS or key == "max-length-bytes")


def merge_exchange_arguments(arguments: Arguments, policy: Arguments) -> Arguments:
    """Return an exchange's arguments with its policy applied; its arguments take precedence."""
    merged = dict(arguments)
    for key in EXCHANGE_KEYS:
        if key in policy and key not in arguments:
            merged[key] = policy[key]
    return merged
