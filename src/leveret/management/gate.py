"""The gate of the HTTP API on TCP: who comes in, and what he may do there.

Users and passwords are those of AMQP, as Basic credentials with each request (RFC 7617).  A right
one costs a slow hash once in some minutes, because who judges them remembers; a wrong one waits as
it does over AMQP, so that guessing is slow.

A route that is served on TCP asks `may_read` or `may_see` before it answers; for who operates the
broker, on the Unix socket, they let everything through.

Invariants: who may log in from the broker's own machine only may do so here too; a refusal does not
tell whether the user is there.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from leveret.broker.access import Access
from leveret.errors import AccessRefused, NotFound

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.management.keeper import Keeper

#: Where a request keeps what its user may do; nothing is there for who operates the broker.
ACCESS: Final = web.RequestKey("access", Access)

#: What an answer says that asks for credentials.
CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="Leveret", charset="UTF-8"'}

#: The longest credentials that are looked at: two AMQP short strings fit many times.
_CREDENTIALS_CHARACTERS_MAX: Final = 4096


class Unauthorized(Exception):
    """A request without right credentials (401); the text says no more than the client may know."""


class Gate:
    """Judges the requests of one broker."""

    def __init__(self, broker: Broker, keeper: Keeper, log: Callable[[str, str], None]) -> None:
        self._broker = broker
        self._keeper = keeper
        self._log = log

    async def enter(self, request: web.Request) -> None:
        """Let a request in and note what its user may do in the vhost of its path.

        Raises: Unauthorized (401) without right credentials; AccessRefused (403 in HTTP) where
        the user may not enter the vhost; NotFound (404) where there is none.
        """
        user, password = _credentials(request)
        keeper = self._keeper
        peer = request.remote or ""
        allowed = user not in keeper.loopback_users or keeper.is_local(peer)
        if not allowed or not await keeper.judge(user, password):
            why = "invalid credentials" if allowed else "can only connect via localhost"
            self._log("warning", f"HTTP login refused: user '{user}' from {peer} - {why}")
            await asyncio.sleep(keeper.login_failure_delay_ms / 1000)
            raise Unauthorized("the user or the password is wrong, or not allowed from here")
        users = self._broker.users
        vhost = request.match_info.get("vhost")
        if vhost is None:
            # Without it a route would take who asks for the one who operates the broker.
            request[ACCESS] = Access(users, user, "")
            return
        if (user, vhost) not in users.permissions:
            if vhost not in self._broker.vhosts:
                raise NotFound(f"no vhost '{vhost}'")
            raise AccessRefused(f"access to vhost '{vhost}' refused for user '{user}'")
        request[ACCESS] = Access(users, user, vhost)


def may_read(request: web.Request, queue: str) -> None:
    """Check that who asks may read a queue or a stream.  Raises: AccessRefused (403 in HTTP)."""
    access = request.get(ACCESS)
    if access is not None:
        access.read("queue", queue)


def may_see(request: web.Request, queue: str) -> None:
    """Check that who asks may do anything with a queue.  Raises: AccessRefused (403)."""
    access = request.get(ACCESS)
    if access is not None:
        access.see("queue", queue)


def may_configure(request: web.Request, name: str) -> None:
    """Check that who asks may declare or delete a queue of that name.

    Raises: AccessRefused (403 in HTTP).
    """
    access = request.get(ACCESS)
    if access is not None:
        access.configure("queue", name)


def can_read(request: web.Request, queue: str) -> bool:
    """Tell whether who asks may read a queue or a stream."""
    try:
        may_read(request, queue)
    except AccessRefused:
        return False
    return True


def _credentials(request: web.Request) -> tuple[str, bytes]:
    """Return user and password of a request.  Raises: Unauthorized (401)."""
    header = request.headers.get("Authorization")
    if header is None:
        raise Unauthorized("this needs a user and a password")
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _CREDENTIALS_CHARACTERS_MAX:
        raise Unauthorized("credentials are of the scheme Basic")
    try:
        raw = base64.b64decode(encoded.strip(), validate=True)
        name, colon, password = raw.partition(b":")
        user = name.decode()
    except (binascii.Error, UnicodeDecodeError):
        raise Unauthorized("the credentials cannot be read") from None
    if not colon:
        raise Unauthorized("the credentials have no password")
    return user, password
