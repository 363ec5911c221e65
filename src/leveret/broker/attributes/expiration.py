"""The property `expiration`, the TTL of a single message, and the resulting deadline.

The property is a string, which must be a number of milliseconds.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.chunk import NEVER
from leveret.clock import NO_DEADLINE
from leveret.errors import PreconditionFailed
from leveret.limits import EXPIRATION_MS_MAX
from leveret.message import Message
from leveret.wire.properties import EXPIRATION, find_property, property_expiration

#: The flag of the property `expiration` in the first byte of the property flags.
EXPIRATION_FLAG: Final = 0x01

_PLUS: Final = 0x2B
_MINUS: Final = 0x2D
_ZERO: Final = 0x30

#: The length of the largest valid number.
_DIGITS_MAX: Final = len(str(EXPIRATION_MS_MAX))


def expiration_ms(properties: bytes) -> i64:
    """Return the expiration in valid property bytes in ms, or -1 if absent or not a number.

    In publishes from clients, it is a valid number (`check_expiration`).
    """
    at = find_property(properties, EXPIRATION)
    if at < 0:
        return -1
    position: i64 = at + 1
    end: i64 = position + i64(properties[at])
    negative = False
    if position < end and properties[position] in (_PLUS, _MINUS):
        negative = properties[position] == _MINUS
        position += 1
    if position == end:
        return -1
    if end - position > _DIGITS_MAX:
        # Strip leading zeros, which may be most of the string, because each queue reads it.
        properties = properties[position:end].lstrip(b"0")
        position = 0
        end = len(properties)
    number: i64 = 0
    while position < end:
        digit: i64 = i64(properties[position]) - _ZERO
        number = number * 10 + digit
        if digit < 0 or digit > 9 or number > EXPIRATION_MS_MAX:
            return -1
        position += 1
    return -1 if negative and number > 0 else number


def deadline_of(message: Message, queue_ttl_ms: i64) -> i64:
    """Return the time (ms) at which `message` expires in a queue with a TTL, or NO_DEADLINE."""
    ttl = queue_ttl_ms
    if message.properties[0] & EXPIRATION_FLAG:
        own = expiration_ms(message.properties)
        if own >= 0:
            ttl = own if ttl < 0 else min(ttl, own)
    return NO_DEADLINE if ttl < 0 else message.timestamp_ms + ttl


def own_expiry(message: Message) -> i64:
    """Return the time (ms) at which a message expires by its own expiration, or NEVER."""
    if message.properties[0] & EXPIRATION_FLAG == 0:
        return NEVER
    deadline = deadline_of(message, -1)
    return NEVER if deadline == NO_DEADLINE else deadline


def check_expiration(properties: bytes) -> None:
    """Check the expiration in valid property bytes, if there is one.

    Raises: PreconditionFailed (406) for anything but a whole number from 0 to ten years, in
    RabbitMQ's words (behaviour 21: bad expiration).
    """
    if expiration_ms(properties) >= 0:
        return
    text = property_expiration(properties)
    if text is not None:
        raise PreconditionFailed(f"invalid expiration '{text}': {_why(text)}")


def _why(text: str) -> str:
    """Return the error in an expiration, in the words of RabbitMQ's parser."""
    sign = 1 if text[:1] in ("-", "+") else 0
    end = sign
    while end < len(text) and "0" <= text[end] <= "9":
        end += 1
    if end == sign:
        return "no_integer"
    if end < len(text):
        return f'{{leftover_string,"{text[end:]}"}}'
    return f"{{{'value_negative' if text[0] == '-' else 'value_too_large'},{int(text)}}}"
