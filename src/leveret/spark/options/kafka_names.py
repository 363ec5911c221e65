"""Replacements for the options of Spark's Kafka source and sink.

Options with the same meaning have the same name in both sources and are not listed here.  All
others are refused with a text that names the replacement, or says why none is needed.
"""

from __future__ import annotations

import json
from typing import Final

from leveret.spark.offsets import Place, partition_number

_LOGIN: Final = "put user and password into the option 'uri', or the password into 'passwordEnv'"
_TLS: Final = (
    "begin the option 'uri' with amqps://; 'caFile', 'certificateFile' and 'keyFile' are PEM files"
)
_NO_GROUPS: Final = (
    "leave it out: a query needs no consumer group, because its offsets are in its checkpoint"
)
_PREFETCH: Final = "set the option 'prefetch'"
_WAIT: Final = "set the option 'pollTimeoutMs', or 'confirmTimeoutMs' for a write"
_RETRIES: Final = "set the options 'retryTimeoutMs' and 'numRetries'"
_WINDOW: Final = "set the option 'maxInFlight'"

#: Advice for each of Kafka's options, in lower case.  A name that ends in `.` is a prefix.
INSTEAD: Final = {
    "kafka.bootstrap.servers": "set the option 'uri': amqp://user:password@host:5672/vhost",
    "kafka.security.protocol": _TLS,
    "kafka.ssl.": _TLS,
    "kafka.sasl.": _LOGIN,
    "kafka.group.id": _NO_GROUPS,
    "groupidprefix": _NO_GROUPS,
    "kafka.client.id": "leave it out: a connection is named after its stream",
    "kafka.auto.offset.reset": "set the option 'startingOffsets'",
    "kafka.isolation.level": "leave it out: only committed messages are read",
    "kafka.max.poll.records": _PREFETCH,
    "kafka.max.partition.fetch.bytes": _PREFETCH,
    "kafka.fetch.": _PREFETCH,
    "kafka.request.timeout.ms": _WAIT,
    "kafkaconsumer.polltimeoutms": "set the option 'pollTimeoutMs'",
    "fetchoffset.numretries": "set the option 'numRetries'",
    "fetchoffset.retryintervalms": "set the option 'retryTimeoutMs'",
    "includeheaders": "leave it out: a column 'headers' is written wherever there is one",
    "kafka.acks": "leave it out: a write ends when the broker has stored every row",
    "kafka.enable.idempotence": "leave it out, or set the option 'dedup': a row is written once",
    "kafka.transactional.id": "set the option 'writeId' for a batch save; a query has its own id",
    "kafka.retries": _RETRIES,
    "kafka.delivery.timeout.ms": "set the option 'confirmTimeoutMs'",
    "kafka.batch.size": _WINDOW,
    "kafka.linger.ms": _WINDOW,
    "kafka.compression.type": "leave it out: bodies are stored as they are",
    "kafka.": "leave it out: it belongs to Kafka's own client",
}


def instead_of(option: str) -> str | None:
    """Return the advice for one of Kafka's options, or None for any other name."""
    name = option.lower()
    fitting = [k for k in INSTEAD if k == name or (k.endswith(".") and name.startswith(k))]
    return INSTEAD[max(fitting, key=len)] if fitting else None


def assigned(text: str) -> tuple[Place, ...]:
    """Parse Kafka's `assign`: `{"orders": [0, 2]}`.  Raises: ValueError."""
    wanted = 'a JSON object of topics and lists of partitions is wanted: {"orders": [0, 1]}'
    try:
        topics = json.loads(text)
    except ValueError:
        raise ValueError(wanted) from None
    if not isinstance(topics, dict) or not topics:
        raise ValueError(wanted)
    places: list[Place] = []
    for topic, numbers in topics.items():
        if not topic or not isinstance(numbers, list) or not numbers:
            raise ValueError(wanted)
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool):
                raise ValueError(wanted)  # noqa: TRY004  all faults of a value are ValueErrors
            places.append((topic, partition_number(str(number))))
    if len(set(places)) < len(places):
        raise ValueError("a partition is named twice")
    return tuple(places)
