"""Reads JSON objects in the bodies of requests, and checks the types of their fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import web

from leveret.broker.attributes.arguments import NUMBER_MAX
from leveret.errors import PreconditionFailed

#: The maximum size of a body, the default of RabbitMQ's `management.http.max_body_size`.
BODY_BYTES_MAX: Final = 20 * 1024 * 1024

#: The maximum length of a number that an error quotes; Python formats at most 4,300 digits.
_BITS_QUOTED_MAX: Final = 256

#: A whole number as text, and its maximum length.
_WRITTEN: Final = re.compile(r"-?[0-9]+")
_DIGITS_MAX: Final = 20


async def object_of(request: web.Request) -> dict[str, object]:
    """Return the JSON object in the body of a request, or an empty object for an empty body.

    Raises: PreconditionFailed (400 in HTTP) for any other body.
    """
    raw = await request.read()
    if not raw:
        return {}
    try:
        # Python's own reader accepts lone surrogates, which cannot be stored.
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise PreconditionFailed("the body is not JSON") from None
    if not isinstance(found, dict):
        raise PreconditionFailed("the body is not a JSON object")
    return found


def text_of(body: Mapping[str, object], name: str, default: str | None = None) -> str:
    """Return a field of type text.  Raises: PreconditionFailed (400 in HTTP)."""
    value = body.get(name, default)
    if not isinstance(value, str):
        raise PreconditionFailed(f"the field '{name}' must be text")
    return value


def number_of(body: Mapping[str, object], name: str, default: int | None = None) -> int:
    """Return a field of type integer.  Raises: PreconditionFailed (400 in HTTP)."""
    value = body.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise PreconditionFailed(f"the field '{name}' must be a whole number")
    if abs(value) > NUMBER_MAX:
        raise PreconditionFailed(
            f"the field '{name}' is too large: {number_said(value)}; use a number from "
            f"-{NUMBER_MAX} to {NUMBER_MAX}"
        )
    return value


def written_number_of(body: Mapping[str, object], name: str, default: int | None = None) -> int:
    """Return an integer field, which RabbitMQ's own client also sends as text.

    Raises: PreconditionFailed (400 in HTTP).
    """
    value = body.get(name)
    if isinstance(value, str) and len(value) <= _DIGITS_MAX and _WRITTEN.fullmatch(value):
        return number_of({name: int(value)}, name)
    return number_of(body, name, default)


def number_said(value: int) -> str:
    """Return a number as text for an error; for a very long number, only its length."""
    bits = value.bit_length()
    return str(value) if bits <= _BITS_QUOTED_MAX else f"a number of {bits} bits"


def table_of(body: Mapping[str, object], name: str) -> dict[str, object]:
    """Return a field of type object; also accept `[]`, which PHP writes for an empty object.

    Raises: PreconditionFailed (400 in HTTP).
    """
    value = body.get(name)
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise PreconditionFailed(f"the field '{name}' must be an object")
    return value


def flag_of(body: Mapping[str, object], name: str) -> bool:
    """Return a boolean field, which clients also send as text; the default is false.

    Raises: PreconditionFailed (400 in HTTP).
    """
    value = body.get(name)
    if value in (None, False, "false", ""):
        return False
    if value is True or value == "true":
        return True
    raise PreconditionFailed(f"the field '{name}' must be true or false")


def table_or_none(body: Mapping[str, object], name: str) -> dict[str, object] | None:
    """Return a field of type object, or None if it is missing or null.

    Raises: PreconditionFailed (400 in HTTP).
    """
    return None if body.get(name) is None else table_of(body, name)
