"""Login sessions of the broker's page: a token in a cookie replaces the password.

A session belongs to one user and the password used at login.  It ends when the password changes,
when the user is deleted, when the process ends, after an hour without use, and after eight hours.
Tokens are stored as hashes, so that a memory dump contains no token and the time of a look-up
reveals nothing.

Invariant: the sessions never exceed the limits.  To make room, the least recently used session of
the user with the most sessions is ended, so a few users who log in repeatedly end only their own
sessions.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from leveret.clock import Clock
from leveret.limits import (
    HTTP_SESSION_IDLE_SECONDS_MAX,
    HTTP_SESSION_SECONDS_MAX,
    HTTP_SESSIONS_MAX,
    HTTP_SESSIONS_PER_USER_MAX,
)

_TOKEN_BYTES: Final = 32

#: The maximum length of a cookie that is looked up.
_TOKEN_CHARACTERS_MAX: Final = 64

#: Identifies a user's password: its hash and the algorithm.
Login = tuple[bytes, str]


@dataclass
class LoginSession:
    """The login of one browser; times are wall times in milliseconds."""

    user: str
    login: Login
    key: bytes
    begun_ms: int
    used_ms: int


class Sessions:
    """The sessions of one broker, the least recently used first."""

    def __init__(
        self,
        clock: Clock,
        most: int = HTTP_SESSIONS_MAX,
        most_of_user: int = HTTP_SESSIONS_PER_USER_MAX,
    ) -> None:
        self._clock = clock
        self._most = most
        self._most_of_user = most_of_user
        self._by_key: dict[bytes, LoginSession] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def begin(self, user: str, login: Login) -> str:
        """Begin a session of a user and return its token, which is not stored."""
        self._make_room(user)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        now = self._clock.wall_ms()
        session = LoginSession(user, login, _key(token), now, now)
        self._by_key[session.key] = session
        return token

    def find(self, token: str) -> LoginSession | None:
        """Return the session of a token and mark it as used, or return None if it is over."""
        if len(token) > _TOKEN_CHARACTERS_MAX:
            return None
        session = self._by_key.pop(_key(token), None)
        now = self._clock.wall_ms()
        if session is None or self._is_over(session, now):
            return None
        session.used_ms = now
        self._by_key[session.key] = session
        return session

    def holds(self, session: LoginSession) -> bool:
        """Return whether a session is still valid."""
        return session.key in self._by_key and not self._is_over(session, self._clock.wall_ms())

    def end(self, session: LoginSession) -> None:
        """End a session; no effect if it has ended."""
        self._by_key.pop(session.key, None)

    def keep_only(self, user: str, login: Login | None) -> None:
        """End the sessions of a user that did not begin with `login`; None ends all."""
        for session in [one for one in self._by_key.values() if one.user == user]:
            if session.login != login:
                self.end(session)

    def _is_over(self, session: LoginSession, now: int) -> bool:
        return (
            now - session.used_ms >= HTTP_SESSION_IDLE_SECONDS_MAX * 1000
            or now - session.begun_ms >= HTTP_SESSION_SECONDS_MAX * 1000
        )

    def _make_room(self, user: str) -> None:
        """End expired sessions, and one more if a new session of the user would exceed a limit."""
        now = self._clock.wall_ms()
        for session in [one for one in self._by_key.values() if self._is_over(one, now)]:
            self.end(session)
        own = [one for one in self._by_key.values() if one.user == user]
        if len(own) >= self._most_of_user:
            self.end(own[0])
        elif len(self) >= self._most:
            counts = Counter(one.user for one in self._by_key.values())
            most = max(counts.values())
            self.end(next(one for one in self._by_key.values() if counts[one.user] == most))


def _key(token: str) -> bytes:
    # The client's header may contain invalid UTF-8.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def cookie_name(request: web.Request) -> str:
    """Return the name of the cookie, with the port, since browsers share cookies between ports."""
    transport = request.transport
    place = transport.get_extra_info("sockname") if transport is not None else None
    port = place[1] if isinstance(place, tuple) else 0
    return f"leveret-session-{port}"


def cookie_of(request: web.Request) -> str | None:
    """Return the token in the cookie of a request, or None if it has no cookie."""
    return request.cookies.get(cookie_name(request))


def set_cookie(request: web.Request, token: str | None) -> str:
    """Return the Set-Cookie header that stores a token in the browser; None deletes it.

    Without a path, the browser sends the cookie only to siblings of `login`, that is to the API,
    even behind a proxy that serves other things on the same host.
    """
    secure = request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    parts = [f"{cookie_name(request)}={token or ''}", "HttpOnly", "SameSite=Strict"]
    if secure:
        parts.append("Secure")
    if token is None:
        parts.append("Max-Age=0")
    return "; ".join(parts)
