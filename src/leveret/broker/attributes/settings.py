"""The settings of a queue from its arguments and policies, as typed values.

They are read from one table: the queue's arguments with its policies applied.  The values have been
checked before (`arguments`, `policies`).

Source: behaviours 46 (bad arguments) and 63 to 69 (delivery limit to dead-letter cycles).  The
default delivery limit of quorum queues is that of RabbitMQ 4.3.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import Arguments, ack_limit_ms, age_seconds, int_argument
from leveret.limits import (
    DELIVERY_LIMIT_QUORUM,
    SHORT_STRING_BYTES_MAX,
)

#: The value of a setting that is absent.
UNSET: Final = -1

#: Overflow of a full queue: it drops its oldest message, refuses the new message, or refuses and
#: dead-letters it.
DROP_HEAD: Final = 0
REJECT_PUBLISH: Final = 1
REJECT_PUBLISH_DLX: Final = 2

#: The deduplication scope that ends with the message.
QUEUED: Final = "queued"

_OVERFLOWS: Final = {
    "drop-head": DROP_HEAD,
    "reject-publish": REJECT_PUBLISH,
    "reject-publish-dlx": REJECT_PUBLISH_DLX,
}


def _fit(key: str) -> str:
    """Cut a dead-letter routing key to the maximum length, which earlier releases did not check."""
    if len(key) * 4 <= SHORT_STRING_BYTES_MAX:
        return key
    raw = key.encode("utf-8", "surrogateescape")
    return raw[:SHORT_STRING_BYTES_MAX].decode("utf-8", "ignore")


@final
class QueueSettings:
    """The settings of one queue; absent numbers are UNSET."""

    def __init__(self, merged: Arguments) -> None:
        self.message_ttl_ms: i64 = int_argument(merged, "x-message-ttl")
        self.expires_ms: i64 = int_argument(merged, "x-expires")
        self.length_max: i64 = int_argument(merged, "x-max-length")
        #: Bytes of bodies, as in RabbitMQ.
        self.bytes_max: i64 = int_argument(merged, "x-max-length-bytes")
        overflow = merged.get("x-overflow")
        self.overflow: i64 = _OVERFLOWS.get(overflow, 0) if isinstance(overflow, str) else 0
        exchange = merged.get("x-dead-letter-exchange")
        #: The exchange for dead letters: None to drop them, `""` for the default exchange.
        self.dead_letter_exchange: str | None = exchange if isinstance(exchange, str) else None
        key = merged.get("x-dead-letter-routing-key")
        self.dead_letter_routing_key: str | None = _fit(key) if isinstance(key, str) else None
        #: True to keep a dead letter until a queue has confirmed it.
        self.at_least_once = merged.get("x-dead-letter-strategy") == "at-least-once"
        self.delivery_limit: i64 = _delivery_limit(merged)
        self.consumer_timeout_ms: i64 = ack_limit_ms(merged)
        self.priority_max: i64 = int_argument(merged, "x-max-priority")
        header = merged.get("x-deduplication-header")
        #: The header with the deduplication key, or None for no deduplication.
        self.deduplication_header: str | None = header if isinstance(header, str) else None
        #: True if a key is remembered only while its message is in the queue.
        self.deduplication_queued = merged.get("x-deduplication-scope") == QUEUED
        self.deduplication_size: i64 = int_argument(merged, "x-deduplication-window-size")
        self.deduplication_age_ms: i64 = int_argument(merged, "x-deduplication-window-age")
        #: The returned messages that are delayed, and their delay.
        self.retries_failed = merged.get("x-delayed-retry-type") in ("all", "failed")
        self.retries_returned = merged.get("x-delayed-retry-type") in ("all", "returned")
        self.retry_min_ms: i64 = int_argument(merged, "x-delayed-retry-min")
        self.retry_max_ms: i64 = int_argument(merged, "x-delayed-retry-max")
        age = merged.get("x-retain-acked")
        #: The time for which acked messages are retained after their publish, and their maximum
        #: bytes.
        self.retain_acked_ms: i64 = age_seconds(age) * 1000 if isinstance(age, str) else UNSET
        self.retain_acked_bytes: i64 = int_argument(merged, "x-retain-acked-bytes")

    def retry_delay_ms(self, failures: i64, failed: bool) -> i64:
        """Return the delay of a returned message after `failures` failures, or 0.

        Without a maximum it is always the minimum.  Without a minimum nothing is delayed.
        """
        least: i64 = self.retry_min_ms
        if least <= 0 or not (self.retries_failed if failed else self.retries_returned):
            return 0
        most: i64 = self.retry_max_ms
        return min(least * max(failures, 1), most if most > 0 else least)

    def retains(self) -> bool:
        """Return whether acked messages are retained."""
        return self.retain_acked_ms >= 0 or self.retain_acked_bytes >= 0


def _delivery_limit(merged: Arguments) -> i64:
    """Return the number of times a message may be returned, or UNSET for no limit."""
    if "x-delivery-limit" in merged:
        return int_argument(merged, "x-delivery-limit")
    return DELIVERY_LIMIT_QUORUM if merged.get("x-queue-type") == "quorum" else UNSET
