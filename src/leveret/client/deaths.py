"""The dead-letterings of a received message, from its header `x-death`.

Leveret and RabbitMQ write the header alike, but a publisher may have written anything into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leveret.client.times import moment_of
from leveret.wire.tables import Timestamp

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class DeadLettering:
    """How often a message was dead-lettered from a queue for a reason."""

    #: The queue.
    queue: str
    #: The reason: `rejected`, `expired`, `maxlen` or `delivery_limit`.
    reason: str
    #: How often.
    count: int
    #: The time of the first dead-lettering, or None if it is missing or beyond the year 9999.
    time: datetime | None
    #: The exchange to which the message was published when it reached the queue.
    exchange: str
    #: The routing keys with which the message reached the queue.
    routing_keys: tuple[str, ...]
    #: The expiration that dead-lettering removed from the message, in milliseconds as text, or
    #: None.
    expiration: str | None


def deaths_of(headers: dict[str, object]) -> tuple[DeadLettering, ...]:
    """Return the entries of `x-death` that are tables; other values count as none."""
    listed = headers.get("x-death")
    if not isinstance(listed, list):
        return ()
    return tuple(_death(entry) for entry in listed if isinstance(entry, dict))


def _death(entry: dict[str, object]) -> DeadLettering:
    """Read an entry; a missing field, or one of another type, is empty."""
    count = entry.get("count")
    time = entry.get("time")
    keys = entry.get("routing-keys")
    expiration = entry.get("original-expiration")
    return DeadLettering(
        _text(entry.get("queue")),
        _text(entry.get("reason")),
        count if isinstance(count, int) else 0,
        moment_of(time.seconds) if isinstance(time, Timestamp) else None,
        _text(entry.get("exchange")),
        tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else (),
        expiration if isinstance(expiration, str) else None,
    )


def _text(value: object) -> str:
    """Return a text, or the empty text for another value."""
    return value if isinstance(value, str) else ""
