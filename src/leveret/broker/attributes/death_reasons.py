"""The reasons for dead-lettering, in RabbitMQ's words: the `reason` of an entry of `x-death`."""

from __future__ import annotations

from typing import Final

REASON_EXPIRED: Final = "expired"
REASON_REJECTED: Final = "rejected"
REASON_MAXLEN: Final = "maxlen"
REASON_DELIVERY_LIMIT: Final = "delivery_limit"
