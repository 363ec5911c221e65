"""The header `x-delay`: how long an exchange keeps a message before it routes it.

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
    """Return the delay in ms that `headers` ask for; 0 if none.

    As in the plugin, it may be an integer, a string with one, or a number with a fraction.
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
    """The delay of a message on its way to a store, already read from it."""

    def __init__(self) -> None:
        #: The properties of that message; empty if none.
        self.properties = b""
        self.delay_ms: i64 = 0


def due_ms(message: Message) -> i64:
    """Return when a message in a store is due, in ms; a delay is at most `DELAY_MS_MAX`."""
    delay = delay_of(property_headers(message.properties) or {})
    return message.timestamp_ms + max(0, min(delay, DELAY_MS_MAX))


def undelayed(message: Message, now_ms: i64) -> Message:
    """Return a message as it leaves its store: with the current time, and its delay negated."""
    delay = delay_of(property_headers(message.properties) or {})
    negated: dict[str, object] = {_DELAY: -min(delay, DELAY_MS_MAX)}
    properties = edit_headers(message.properties, [_DELAY.encode()], negated)
    return message.copied(message.address, properties, now_ms)
