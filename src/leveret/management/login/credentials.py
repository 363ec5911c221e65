"""What a request says of who asks: Basic credentials (RFC 7617), or the two fields of a form."""

from __future__ import annotations

import base64
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import hdrs, web

from leveret.clock import Clock
from leveret.limits import HTTP_LOGIN_BYTES_MAX
from leveret.management.login.reading import read_whole

#: The longest credentials that are looked at: two AMQP short strings fit many times.
_CREDENTIALS_CHARACTERS_MAX: Final = 4096

#: What is in the body of a form.
_FORM: Final = "application/x-www-form-urlencoded"

#: What every refused login is told.
WRONG: Final = "the user or the password is wrong, or not allowed from here"


class Unauthorized(Exception):
    """A request without right credentials (401); the text says no more than the client may know."""


def basic(request: web.Request) -> tuple[str, bytes]:
    """Return user and password of a request.  Raises: Unauthorized (401)."""
    header = request.headers.get(hdrs.AUTHORIZATION)
    if header is None:
        raise Unauthorized("this needs a user and a password")
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _CREDENTIALS_CHARACTERS_MAX:
        raise Unauthorized("credentials are of the scheme Basic")
    try:
        raw = base64.b64decode(encoded.strip(), validate=True)
        name, colon, password = raw.partition(b":")
        user = name.decode()
    except ValueError:
        # Base 64 that is none, a header or a name that is no text: errors of three kinds.
        raise Unauthorized("the credentials cannot be read") from None
    if not colon:
        raise Unauthorized("the credentials have no password")
    return user, password


def has_form(request: web.Request) -> bool:
    """Tell whether a request says who asks by a form, and not by credentials."""
    return hdrs.AUTHORIZATION not in request.headers and request.content_type == _FORM


async def form(request: web.Request, clock: Clock) -> tuple[str, bytes]:
    """Return `username` and `password` of a form.

    The body is of somebody who is not known yet, so it is short and says how long it is.

    Raises: Unauthorized (401); HTTPRequestTimeout (408): it does not come in time.
    """
    length = request.content_length
    if length is None or length > HTTP_LOGIN_BYTES_MAX:
        raise Unauthorized(f"a form to log in tells its length: {HTTP_LOGIN_BYTES_MAX} at most")
    await read_whole(request, clock)
    try:
        text = (await request.read()).decode()
        fields = dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=8))
    except ValueError:
        raise Unauthorized("the form cannot be read") from None
    if "username" not in fields or "password" not in fields:
        raise Unauthorized("the form needs the fields username and password")
    return fields["username"], fields["password"].encode()
