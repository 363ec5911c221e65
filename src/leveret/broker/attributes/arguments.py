"""The known arguments of declares, their valid values, and the equivalence of declares.

This module only checks values.  Queues, exchanges and consumers implement the effects of arguments.
An unknown argument is stored and has no effect, as in RabbitMQ.

Source: behaviours 45 (inequivalent arguments) and 46 (bad arguments); the texts follow RabbitMQ,
because clients match on them.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import PreconditionFailed
from leveret.limits import (
    DEDUPLICATION_KEYS_MAX,
    SHORT_STRING_BYTES_MAX,
    TTL_MS_MAX,
)

Arguments = dict[str, object]

#: Queue types; `quorum` is treated as a durable classic queue.
QUEUE_TYPES: Final = ("classic", "quorum", "stream")

#: The largest number that can be set or requested in JSON.  Sums with it fit in 64 bits, and all
#: JSON parsers represent it exactly.
NUMBER_MAX: Final = 2**53 - 1

#: The argument of classic queues that quorum queues of earlier releases may have.
MAX_PRIORITY: Final = "x-max-priority"

#: The largest integer in a record and in the core.
_INTEGER_MAX: Final = 2**63 - 1

#: The minimum and the maximum of each number in the arguments of a queue.
QUEUE_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "x-expires": (1, TTL_MS_MAX),
    "x-message-ttl": (0, TTL_MS_MAX),
    "x-max-length": (0, _INTEGER_MAX),
    "x-max-length-bytes": (0, _INTEGER_MAX),
    "x-max-priority": (0, 255),
    # In RabbitMQ 4.3, -1 means that a quorum queue has no limit.
    "x-delivery-limit": (-1, _INTEGER_MAX),
    "x-stream-max-segment-size-bytes": (0, _INTEGER_MAX),
    "x-consumer-timeout": (0, _INTEGER_MAX),
    "x-deduplication-window-size": (1, DEDUPLICATION_KEYS_MAX),
    "x-deduplication-window-age": (1, _INTEGER_MAX),
    "x-retain-acked-bytes": (0, _INTEGER_MAX),
    "x-staging-batch": (0, _INTEGER_MAX),
    "x-delayed-retry-min": (0, TTL_MS_MAX),
    "x-delayed-retry-max": (0, TTL_MS_MAX),
}

_STRINGS: Final = (
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-overflow",
    "x-queue-type",
    "x-max-age",
    "x-dead-letter-strategy",
    "x-queue-leader-locator",
    "x-deduplication-header",
    "x-deduplication-scope",
    "x-retain-acked",
    "x-staging-sink",
    "x-staging-destination",
    "x-staging-exchange",
    "x-staging-routing-key",
    "x-delayed-retry-type",
)
#: All known arguments of queues.  Others are stored and have no effect.
KNOWN: Final = (
    *QUEUE_NUMBERS,
    *_STRINGS,
    "x-single-active-consumer",
    # It has no effect, and so may have any value, as in RabbitMQ 4.3.
    "x-queue-mode",
    "x-queue-version",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-initial-cluster-size",
    "x-quorum-initial-group-size",
    "x-staging-destination",
    "x-staging-exchange",
    "x-staging-routing-key",
)

#: Times in ms, which have a maximum.
_TIMES: Final = ("x-expires", "x-message-ttl", "x-delayed-retry-min", "x-delayed-retry-max")

#: How long a queue remembers a deduplication key: for a time window, or while the message is
#: queued.
DEDUPLICATION_SCOPES: Final = ("window", "queued")

#: The returned messages that a queue delays, in RabbitMQ 4.3's words.
DELAYED_RETRY_TYPES: Final = ("disabled", "all", "failed", "returned")

#: The valid values of an argument, and the error for any other.
_CHOICES: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "x-queue-type": (QUEUE_TYPES, "\"unsupported queue type '{}'\""),
    "x-overflow": (("drop-head", "reject-publish", "reject-publish-dlx"), "invalid_overflow"),
    "x-dead-letter-strategy": (("at-most-once", "at-least-once"), "invalid_dlx_strategy"),
    "x-deduplication-scope": (DEDUPLICATION_SCOPES, "it is 'window' or 'queued'"),
    "x-delayed-retry-type": (DELAYED_RETRY_TYPES, "it is disabled, all, failed or returned"),
}

#: Arguments that RabbitMQ refuses for a queue type, because the type does not support them.
#: Arguments that this broker does support, such as a delivery limit of a classic queue, are
#: accepted.  A stream has none of Leveret's own arguments, because acks remove nothing from it.
_NOT_OF_TYPE: Final = {
    "classic": (
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-initial-cluster-size",
        "x-quorum-initial-group-size",
    ),
    "quorum": (
        # A quorum queue has 32 levels, without an argument.
        MAX_PRIORITY,
        "x-queue-mode",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-staging-sink",
        "x-staging-batch",
        "x-staging-destination",
        "x-staging-exchange",
        "x-staging-routing-key",
    ),
    "stream": (
        "x-message-ttl",
        "x-expires",
        "x-max-length",
        "x-max-priority",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-overflow",
        "x-single-active-consumer",
        "x-delivery-limit",
        "x-deduplication-header",
        "x-deduplication-scope",
        "x-delayed-retry-type",
        "x-retain-acked",
        "x-retain-acked-bytes",
        "x-staging-sink",
        "x-staging-batch",
        "x-staging-destination",
        "x-staging-exchange",
        "x-staging-routing-key",
    ),
}

#: The arguments of a staging queue: its sink and its batch.
STAGING_SINK: Final = "x-staging-sink"
STAGING_BATCH: Final = "x-staging-batch"
#: The destination of the sink, which is a part of its identity; optional.
STAGING_DESTINATION: Final = "x-staging-destination"
#: The exchange and routing key for messages of the staging queue without such headers; optional.
STAGING_EXCHANGE: Final = "x-staging-exchange"
STAGING_ROUTING_KEY: Final = "x-staging-routing-key"

#: Arguments that a staging queue cannot have, because it keeps all staged messages, in order, and
#: has no consumers.
_NOT_OF_STAGING: Final = (
    "x-message-ttl",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-dead-letter-exchange",
    "x-single-active-consumer",
    "x-delivery-limit",
    "x-deduplication-header",
    "x-deduplication-scope",
    "x-delayed-retry-type",
    "x-retain-acked",
    "x-retain-acked-bytes",
)

#: Arguments that make a redeclare inequivalent when they differ (RabbitMQ checks only these).
_COMPARED: Final = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-type",
    "x-queue-mode",
    "x-single-active-consumer",
    "x-delivery-limit",
    "x-consumer-timeout",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-deduplication-header",
    "x-deduplication-scope",
    "x-deduplication-window-size",
    "x-deduplication-window-age",
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
    "x-retain-acked",
    "x-retain-acked-bytes",
    "x-staging-sink",
    "x-staging-batch",
    "x-staging-destination",
    "x-staging-exchange",
    "x-staging-routing-key",
)

_AGE_UNITS_SECONDS: Final = {
    "Y": 31_536_000,
    "M": 2_592_000,
    "D": 86_400,
    "h": 3600,
    "m": 60,
    "s": 1,
}

#: The longest age, about 10,000 years.  It must fit in 64 bits in milliseconds too.
_AGE_SECONDS_MAX: Final = 315_360_000_000


def is_int(value: object) -> bool:
    """Return whether `value` is an integer of any width (a Boolean is not).

    Call it before `isinstance(value, int)`, because compiled code then converts the value to a
    number.
    """
    return isinstance(value, int) and not isinstance(value, bool)


def age_seconds(text: str) -> int:
    """Return an age such as `7D` or `30s` in seconds.

    Raises: ValueError if `text` is not a number followed by one of Y M D h m s, or if the age is
    too long.
    """
    unit = _AGE_UNITS_SECONDS.get(text[-1:])
    number = text[:-1]
    if unit is None or not number.isascii() or not number.isdigit():
        raise ValueError(text)
    seconds = int(number) * unit
    if seconds > _AGE_SECONDS_MAX:
        raise ValueError(text)
    return seconds


def is_age(text: str) -> bool:
    """Return whether `age_seconds` accepts `text`."""
    try:
        age_seconds(text)
    except ValueError:
        return False
    return True


def int_argument(arguments: Arguments, name: str) -> int:
    """Return a checked integer argument, or -1 if it is absent."""
    value = arguments.get(name)
    return value if isinstance(value, int) else -1


def ack_limit_ms(arguments: Arguments) -> int:
    """Return `x-consumer-timeout` or -1; at most ten years, so that deadlines do not overflow."""
    return min(int_argument(arguments, "x-consumer-timeout"), TTL_MS_MAX)


def check_queue_arguments(arguments: Arguments, where: str) -> None:
    """Refuse invalid arguments of a queue; `where` names the queue in the error.

    Raises: PreconditionFailed (406).
    """
    kind = arguments.get("x-queue-type", "classic")
    for name in _NOT_OF_TYPE.get(kind, ()) if isinstance(kind, str) else ():
        if name in arguments:
            raise PreconditionFailed(
                f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue"
            )
    for name in QUEUE_NUMBERS:
        if name in arguments:
            check_count(arguments[name], name, where)
    for name in _STRINGS:
        if name in arguments and not isinstance(arguments[name], str):
            raise _not_a_string(name, where, type_name(arguments[name]))
    _check_choices(arguments, where)


def check_count(value: object, name: str, where: str) -> None:
    """Check the number of an argument.  Raises: PreconditionFailed (406)."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _invalid(name, where, f'"expected integer, got {type_name(value)}"')
    least, most = QUEUE_NUMBERS[name]
    if value < least:
        raise _invalid(
            name, where, "{value_" + ("zero" if value == 0 else "negative") + f",{value}}}"
        )
    if value > most:
        why = "value_too_large" if name in _TIMES else "max_value_exceeded"
        raise _invalid(name, where, f"{{{why},{value}}}")


def _check_choices(arguments: Arguments, where: str) -> None:
    for name, (choices, why) in _CHOICES.items():
        value = arguments.get(name)
        if isinstance(value, str) and value not in choices:
            raise _invalid(name, where, why.replace("{}", value))
    version = arguments.get("x-queue-version", 1)
    if not is_int(version):
        raise _invalid("x-queue-version", where, f'"expected integer, got {type_name(version)}"')
    if version not in (1, 2):
        raise _invalid("x-queue-version", where, f"\"unsupported queue version '{version}'\"")
    single = arguments.get("x-single-active-consumer", False)
    if not isinstance(single, bool):
        raise _invalid(
            "x-single-active-consumer", where, "{unacceptable_type," + type_name(single) + "}"
        )
    for name in ("x-max-age", "x-retain-acked"):
        age = arguments.get(name)
        if isinstance(age, str) and not is_age(age):
            raise _invalid(name, where, "invalid_max_age")
    for name in ("x-staging-sink", "x-staging-batch", "x-staging-destination"):
        if name in arguments:
            _check_staging(arguments, where)
            break
    key = arguments.get("x-dead-letter-routing-key")
    if (
        isinstance(key, str)
        and len(key.encode("utf-8", "surrogateescape")) > SHORT_STRING_BYTES_MAX
    ):
        # No message, and so no dead letter, can have such a routing key.
        why = f"a routing key has at most {SHORT_STRING_BYTES_MAX} bytes"
        raise _invalid("x-dead-letter-routing-key", where, why)
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise _invalid("x-dead-letter-routing-key", where, "routing_key_but_no_dlx_defined")


def _check_staging(arguments: Arguments, where: str) -> None:
    sink = arguments.get("x-staging-sink")
    if not isinstance(sink, str) or not 0 < len(sink.encode()) <= SHORT_STRING_BYTES_MAX:
        raise _invalid("x-staging-sink", where, "expected a name of 1 to 255 bytes")
    if "x-staging-batch" not in arguments:
        raise _invalid("x-staging-sink", where, "x-staging-batch is missing")
    destination = arguments.get("x-staging-destination")
    if isinstance(destination, str) and not 0 < len(destination.encode()) <= SHORT_STRING_BYTES_MAX:
        raise _invalid("x-staging-destination", where, "expected a name of 1 to 255 bytes")
    for name in (STAGING_EXCHANGE, STAGING_ROUTING_KEY):
        if (STAGING_EXCHANGE in arguments) != (STAGING_ROUTING_KEY in arguments):
            raise _invalid(name, where, "an exchange and a routing key must be given together")
        value = arguments.get(name, "")
        if isinstance(value, str) and len(value.encode()) > SHORT_STRING_BYTES_MAX:
            raise _invalid(name, where, "expected at most 255 bytes")
    for name in _NOT_OF_STAGING:
        if name in arguments:
            raise _invalid(name, where, "not supported for a staging queue")


def _not_a_string(name: str, where: str, kind: str) -> PreconditionFailed:
    if name == "x-dead-letter-exchange":
        return PreconditionFailed(f"invalid type '{kind}' for arg '{name}' in {where}")
    return _invalid(name, where, f"{{unacceptable_type,{kind}}}")


def _invalid(name: str, where: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{name}' for {where}: {why}")


#: RabbitMQ's names of types, except those of integers and of times.
_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    float: "double",
    str: "longstr",
    bytes: "binary",
    dict: "table",
    list: "array",
    type(None): "void",
}


def type_name(value: object) -> str:
    """Return RabbitMQ's name for the type of a table value, for error texts."""
    for kind, name in _TYPE_NAMES.items():
        if isinstance(value, kind):
            return name
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    return "timestamp"


def check_equivalent(current: Arguments, received: Arguments, where: str) -> None:
    """Refuse a redeclare with different known arguments; integers compare by value, not by width.

    Raises: PreconditionFailed (406).
    """
    is_quorum = current.get("x-queue-type") == "quorum"
    for name in _COMPARED:
        if is_quorum and name == MAX_PRIORITY:
            # As in RabbitMQ, applications may declare it or not.
            continue
        if name == "x-queue-type":
            # RabbitMQ 4.3 reports the default type for a declare without a type.
            check_same(name, where, received.get(name, "classic"), current.get(name, "classic"))
        else:
            check_same(name, where, received.get(name), current.get(name))


def check_same(name: str, where: str, received: object, current: object) -> None:
    """Refuse an argument that differs.  Raises: PreconditionFailed (406)."""
    integers = is_int(received) and is_int(current)
    if (integers or type_name(received) == type_name(current)) and received == current:
        return
    if received is not None and current is not None:
        raise differs(name, where, received, current)
    raise PreconditionFailed(
        f"inequivalent arg '{name}' for {where}: "
        f"received {_said(received)} but current is {_said(current)}"
    )


def _said(value: object) -> str:
    if value is None:
        return "none"
    return f"the value '{value}' of type '{type_name(value)}'"


def differs(name: str, where: str, received: object, current: object) -> PreconditionFailed:
    """Return the error for a redeclare with a different attribute `name`."""
    return PreconditionFailed(
        f"inequivalent arg '{name}' for {where}: "
        f"received '{_plain(received)}' but current is '{_plain(current)}'"
    )


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
