"""The property expiration: a message's own time to live, text that must be a number of ms."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.limits import EXPIRATION_MS_MAX
from leveret.wire.properties import EXPIRATION, find_property, property_expiration

_PLUS: Final = 0x2B
_MINUS: Final = 0x2D
_ZERO: Final = 0x30


def expiration_ms(properties: bytes) -> i64:
    """Return the expiration in legal property bytes, in ms; -1 where there is none, or no number.

    What clients publish is a number (`check_expiration`).
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
    number: i64 = 0
    while position < end:
        digit: i64 = i64(properties[position]) - _ZERO
        number = number * 10 + digit
        if digit < 0 or digit > 9 or number > EXPIRATION_MS_MAX:
            return -1
        position += 1
    return -1 if negative and number > 0 else number


def check_expiration(properties: bytes) -> None:
    """Check the expiration in legal property bytes, if there is one.

    Raises: PreconditionFailed (406) for what is no whole number from 0 to ten years, in RabbitMQ's
    words (behaviour 21).
    """
    if expiration_ms(properties) >= 0:
        return
    text = property_expiration(properties)
    if text is not None:
        raise PreconditionFailed(f"invalid expiration '{text}': {_why(text)}")


def _why(text: str) -> str:
    """Return what is wrong with an expiration, as RabbitMQ's parser says it."""
    sign = 1 if text[:1] in ("-", "+") else 0
    end = sign
    while end < len(text) and "0" <= text[end] <= "9":
        end += 1
    if end == sign:
        return "no_integer"
    if end < len(text):
        return f'{{leftover_string,"{text[end:]}"}}'
    return f"{{{'value_negative' if text[0] == '-' else 'value_too_large'},{int(text)}}}"
