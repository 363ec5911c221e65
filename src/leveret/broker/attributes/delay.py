"""The header `x-delay`: the time for which an exchange delays a message before routing it.

Source: RabbitMQ's plugin rabbitmq_delayed_message_exchange.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final, final

from mypy_extensions import i64

from leveret.limits import DELAY_MS_MAX
from leveret.message import Message
from leveret.wire.edit import edit_headers
from leveret.wire.properties import property_headers

_DELAY: Final = "x-delay"

_INTEGER: Final = re.compile("[+-]?[0-9]{1,30}")


def delay_of(headers: dict[str, object]) -> int:
    """Return the delay in ms that `headers` request, or 0.

    As in the plugin, it may be an integer, a string of an integer, or a number with a fraction.
    """
    value = headers.get(_DELAY)
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) is not None else 0
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else 0
    return int(value) if isinstance(value, Decimal) else 0


@final
class KnownDelay:
    """The delay that was already read from a message being put into a store."""

    def __init__(self) -> None:
        #: The properties of that message, or empty.
        self.properties = b""
        self.delay_ms: i64 = 0


def due_ms(message: Message) -> i64:
    """Return the due time of a message in a store, in ms; a delay is at most `DELAY_MS_MAX`."""
    delay = delay_of(property_headers(message.properties) or {})
    return message.timestamp_ms + max(0, min(delay, DELAY_MS_MAX))


def undelayed(message: Message, now_ms: i64) -> Message:
    """Return the message to route from its store, with the current time and a negated delay."""
    delay = delay_of(property_headers(message.properties) or {})
    negated: dict[str, object] = {_DELAY: -min(delay, DELAY_MS_MAX)}
    properties = edit_headers(message.properties, [_DELAY.encode()], negated)
    return message.copied(message.address, properties, now_ms)
