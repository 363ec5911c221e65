"""Why a message was dead-lettered, in RabbitMQ's words: the `reason` of an entry of `x-death`."""

from __future__ import annotations

from typing import Final

EXPIRED: Final = "expired"
REJECTED: Final = "rejected"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"
