"""Sessions of the broker's page: a token in a cookie stands for a login that was judged once.

A session is of one user with the password that he had: it ends with the password, with the user,
with the process, when it is unused for an hour, and after eight hours.  Tokens are kept as hashes,
so that who reads the memory of a session has none, and so that a look-up tells nothing by its time.

Invariant: there are never more sessions than the limits say.  Of who has the most, the one unused
for the longest goes: a few users who log in again and again end nobody's sessions but their own.
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

#: A longer cookie is none of ours.
_TOKEN_CHARACTERS_MAX: Final = 64

#: What a user's password is known by: its hash and the algorithm.
Login = tuple[bytes, str]


@dataclass
class Session:
    """One login of a browser; times are wall times in milliseconds."""

    user: str
    login: Login
    key: bytes
    begun_ms: int
    used_ms: int


class Sessions:
    """The sessions of one broker, the longest unused first."""

    def __init__(
        self,
        clock: Clock,
        most: int = HTTP_SESSIONS_MAX,
        most_of_user: int = HTTP_SESSIONS_PER_USER_MAX,
    ) -> None:
        self._clock = clock
        self._most = most
        self._most_of_user = most_of_user
        self._by_key: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def begin(self, user: str, login: Login) -> str:
        """Begin a session of a user and return its token, which is not kept."""
        self._make_room(user)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        now = self._clock.wall_ms()
        session = Session(user, login, _key(token), now, now)
        self._by_key[session.key] = session
        return token

    def find(self, token: str) -> Session | None:
        """Return the session of a token, which is used by that; None when it is over."""
        if len(token) > _TOKEN_CHARACTERS_MAX:
            return None
        session = self._by_key.pop(_key(token), None)
        now = self._clock.wall_ms()
        if session is None or self._is_over(session, now):
            return None
        session.used_ms = now
        self._by_key[session.key] = session
        return session

    def holds(self, session: Session) -> bool:
        """Tell whether a session goes on."""
        return session.key in self._by_key and not self._is_over(session, self._clock.wall_ms())

    def end(self, session: Session) -> None:
        """End a session; no effect when it is over."""
        self._by_key.pop(session.key, None)

    def keep_only(self, user: str, login: Login | None) -> None:
        """End the sessions of a user but those of a login; all for None."""
        for session in [one for one in self._by_key.values() if one.user == user]:
            if session.login != login:
                self.end(session)

    def _is_over(self, session: Session, now: int) -> bool:
        return (
            now - session.used_ms >= HTTP_SESSION_IDLE_SECONDS_MAX * 1000
            or now - session.begun_ms >= HTTP_SESSION_SECONDS_MAX * 1000
        )

    def _make_room(self, user: str) -> None:
        """End what is over, and what is too much with one more of a user."""
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
    # What a client sends as a header need not be text.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def cookie_name(request: web.Request) -> str:
    """Return the name of the cookie, which has the port in it: browsers tell hosts apart only."""
    transport = request.transport
    place = transport.get_extra_info("sockname") if transport is not None else None
    port = place[1] if isinstance(place, tuple) else 0
    return f"leveret-session-{port}"


def cookie_of(request: web.Request) -> str | None:
    """Return the token that a request brings; None without one."""
    return request.cookies.get(cookie_name(request))


def set_cookie(request: web.Request, token: str | None) -> str:
    """Return the header that has the browser keep a token, or forget it for None.

    No path is named: the browser then sends it to what is beside `login` alone, which is the API,
    also behind a proxy that has other things on the same host.
    """
    secure = request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    parts = [f"{cookie_name(request)}={token or ''}", "HttpOnly", "SameSite=Strict"]
    if secure:
        parts.append("Secure")
    if token is None:
        parts.append("Max-Age=0")
    return "; ".join(parts)
