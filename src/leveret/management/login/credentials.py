"""Reads the credentials of a request: Basic credentials (RFC 7617), or a login form."""

from __future__ import annotations

import base64
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import hdrs, web

from leveret.clock import Clock
from leveret.limits import HTTP_LOGIN_BYTES_MAX
from leveret.management.login.reading import read_whole

#: The maximum length of credentials, many times that of two AMQP short strings.
_CREDENTIALS_CHARACTERS_MAX: Final = 4096

#: The content type of a form.
_FORM: Final = "application/x-www-form-urlencoded"

#: The text of the answer to every refused login.
WRONG: Final = "the user or the password is wrong, or not allowed from here"


class Unauthorized(Exception):
    """A request has no valid credentials (401); the text reveals no secret."""


def basic(request: web.Request) -> tuple[str, bytes]:
    """Return the user and the password of Basic credentials.  Raises: Unauthorized (401)."""
    header = request.headers.get(hdrs.AUTHORIZATION)
    if header is None:
        raise Unauthorized("a user and a password are required")
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _CREDENTIALS_CHARACTERS_MAX:
        raise Unauthorized("the credentials must use the scheme Basic")
    try:
        raw = base64.b64decode(encoded.strip(), validate=True)
        name, colon, password = raw.partition(b":")
        user = name.decode()
    except ValueError:
        # Invalid base64, or a name that is not UTF-8.
        raise Unauthorized("the credentials cannot be read") from None
    if not colon:
        raise Unauthorized("the credentials have no password")
    return user, password


def has_form(request: web.Request) -> bool:
    """Return whether a request has a form instead of Basic credentials."""
    return hdrs.AUTHORIZATION not in request.headers and request.content_type == _FORM


async def form(request: web.Request, clock: Clock) -> tuple[str, bytes]:
    """Return the user and the password of a form.

    The sender is not authenticated yet, so the body must be short and announce its length.

    Raises: Unauthorized (401); HTTPRequestTimeout (408) if the body does not arrive in time.
    """
    length = request.content_length
    if length is None or length > HTTP_LOGIN_BYTES_MAX:
        raise Unauthorized(f"a login form needs a Content-Length of at most {HTTP_LOGIN_BYTES_MAX}")
    await read_whole(request, clock)
    try:
        text = (await request.read()).decode()
        fields = dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=8))
    except ValueError:
        raise Unauthorized("the form cannot be read") from None
    if "username" not in fields or "password" not in fields:
        raise Unauthorized("the form needs the fields username and password")
    return fields["username"], fields["password"].encode()
