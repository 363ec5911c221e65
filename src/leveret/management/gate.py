"""The gate of the HTTP API on TCP: who comes in, and what he may do there.

Users and passwords are those of AMQP, as Basic credentials with each request (RFC 7617).  A right
one costs a slow hash once in some minutes, because who judges them remembers; a wrong one waits as
it does over AMQP, so that guessing is slow.

A route that is served on TCP asks `may_read` or `may_see` before it answers; for who operates the
broker, on the Unix socket, they let everything through.

Each request is a login of its own, and it holds no longer than what it rests on: when the user, his
password or his permissions change so that he might not ask again, a request that waits or is being
answered ends at once (`Visit`).  A change that the request makes itself is not torn apart.

Invariants: who may log in from the broker's own machine only may do so here too; a refusal does not
tell whether the user is there.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp import web

from leveret.broker.core.ownership import Owner, foreign
from leveret.broker.node.access import Access
from leveret.broker.node.users import ADMINISTRATOR, RightsWatcher
from leveret.broker.values.permission import READ
from leveret.errors import AccessRefused, AmqpError, NotFound
from leveret.limits import HTTP_REQUESTS_PER_USER_MAX
from leveret.management.listening.connection import HttpConnection
from leveret.names import Name

if TYPE_CHECKING:
    from leveret.broker.node.broker import Broker
    from leveret.broker.node.users import User
    from leveret.management.keeper import Keeper

#: Where a request keeps what its user may do; nothing is there for who operates the broker.
ACCESS: Final = web.RequestKey("access", Access)

#: What an answer says that asks for credentials.
CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="Leveret", charset="UTF-8"'}

#: What every refused login is told.
WRONG: Final = "the user or the password is wrong, or not allowed from here"

#: The longest credentials that are looked at: two AMQP short strings fit many times.
_CREDENTIALS_CHARACTERS_MAX: Final = 4096


class Unauthorized(Exception):
    """A request without right credentials (401); the text says no more than the client may know."""


class TurnedAway(Exception):
    """A request that has no place now (503); the text says why."""


class Visit:
    """One request that was let in, until it is answered; `task` answers it."""

    def __init__(self, access: Access, user: User, task: asyncio.Task[object] | None) -> None:
        self.access: Final = access
        self._login: Final = (user.password_hash, user.algorithm)
        self._task = task
        #: What it may do, as it was asked for.
        self.asked: list[Callable[[], None]] = []
        #: True once the answer has begun, so that no other one can be given.
        self.begun = False
        #: False while it changes the broker.
        self.ends = True
        #: Why it was ended.
        self.refusal: Exception | None = None

    def look(self, gate: Gate) -> None:
        """End it if it would not be let in any more, or not be allowed what it does."""
        self.access.forget()
        try:
            gate.check_login(self.access.user, self._login)
            if self.access.vhost:
                gate.check_vhost(self.access.user, self.access.vhost)
            for ask in self.asked:
                ask()
        except (Unauthorized, AmqpError) as refusal:
            if self.refusal is None and self.ends and self._task is not None:
                self.refusal = refusal
                self._task.cancel()

    def over(self) -> Exception | None:
        """Return why the request was ended, once its task heard of it; None if that was not us."""
        if self.refusal is not None and self._task is not None:
            self._task.uncancel()
        return self.refusal


#: Where a request keeps its visit.
VISIT: Final = web.RequestKey("visit", Visit)


class Gate(RightsWatcher):
    """Judges the requests of one broker."""

    def __init__(
        self,
        broker: Broker,
        keeper: Keeper,
        log: Callable[[str, str], None],
        requests_per_user: int = HTTP_REQUESTS_PER_USER_MAX,
    ) -> None:
        super().__init__()
        self._broker = broker
        #: The requests that are being answered, and how many are each user's.
        self.visits: set[Visit] = set()
        self._visits_of: Counter[str] = Counter()
        self._requests_per_user = requests_per_user
        broker.users.watchers.append(self)
        self._keeper = keeper
        self._log = log

    def close(self) -> None:
        """Watch nothing more."""
        if self in self._broker.users.watchers:
            self._broker.users.watchers.remove(self)

    def rights_changed(self, user: str) -> None:
        """End what a user may not ask for any more."""
        for visit in list(self.visits):
            if visit.access.user == user:
                visit.look(self)

    def left(self, visit: Visit) -> None:
        """Hear that a request is answered."""
        if visit in self.visits:
            self.visits.remove(visit)
            user = visit.access.user
            self._visits_of[user] -= 1
            if not self._visits_of[user]:
                del self._visits_of[user]

    async def _refuse(self, user: str, peer: str, verdict: bool | None, allowed: bool) -> None:
        """Log a refusal and let it wait.  Raises: TurnedAway (503): nobody looked at it."""
        keeper = self._keeper
        if verdict is None:
            why = "too many logins wait for their passwords to be verified"
            self._log("warning", f"HTTP login turned away: user '{user}' from {peer} - {why}")
            await asyncio.sleep(keeper.login_failure_delay_ms / 1000)
            raise TurnedAway(f"{why}; try again later")
        why = "invalid credentials" if allowed else "can only connect via localhost"
        self._log("warning", f"HTTP login refused: user '{user}' from {peer} - {why}")
        times = keeper.backoff(user, peer)
        await asyncio.sleep(times * keeper.login_failure_delay_ms / 1000)

    async def enter(self, request: web.Request) -> Visit:
        """Let a request in and note what its user may do in the vhost of its path.

        Raises: Unauthorized (401) without right credentials; TurnedAway (503) when too many wait,
        or the user has too many requests open; AccessRefused (403 in HTTP) where the user may not
        enter the vhost, or there is none; an administrator is told which (NotFound, 404).
        """
        user, password = _credentials(request)
        keeper = self._keeper
        peer = request.remote or ""
        allowed = user not in keeper.loopback_users or keeper.is_local(peer)
        known = self._broker.users.by_name.get(user)
        verdict = await keeper.judge(user, password, peer) if allowed else False
        if not verdict or known is None:
            connection = request.protocol
            if isinstance(connection, HttpConnection):
                connection.refused()
            await self._refuse(user, peer, verdict, allowed)
            raise Unauthorized(WRONG)
        # The password may have been changed since the judge answered.
        self.check_login(user, (known.password_hash, known.algorithm))
        vhost = request.match_info.get("vhost")
        if vhost is not None:
            self.check_vhost(user, vhost)
        # Without it a route would take who asks for the one who operates the broker.
        access = Access(self._broker.users, user, vhost or "")
        if self._visits_of[user] >= self._requests_per_user:
            raise TurnedAway(
                f"user '{user}' has {self._requests_per_user} requests open, which is the limit; "
                "try again when some are answered"
            )
        visit = Visit(access, known, asyncio.current_task())
        self.visits.add(visit)
        self._visits_of[user] += 1
        request[ACCESS] = access
        request[VISIT] = visit
        return visit

    def check_login(self, name: str, login: tuple[bytes, str]) -> None:
        """Check that a login is still the user's.  Raises: Unauthorized (401)."""
        user = self._broker.users.by_name.get(name)
        if user is None or login != (user.password_hash, user.algorithm):
            raise Unauthorized(WRONG)

    def check_vhost(self, user: str, vhost: str) -> None:
        """Check that a user may enter a vhost.

        Raises: AccessRefused (403), whether it is there or not; NotFound (404) for an administrator
        where it is not.
        """
        users = self._broker.users
        if (user, vhost) in users.permissions:
            return
        if vhost not in self._broker.vhosts and users.has_tag(user, ADMINISTRATOR):
            raise NotFound(f"no vhost '{vhost}'")
        raise AccessRefused(f"access to vhost '{vhost}' refused for user '{user}'")


def may_read(request: web.Request, queue: Name) -> None:
    """Check that who asks may read a queue or a stream.  Raises: AccessRefused (403 in HTTP)."""
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.read, "queue", queue))


def may_see(request: web.Request, queue: Name) -> None:
    """Check that who asks may do anything with a queue.  Raises: AccessRefused (403)."""
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.see, "queue", queue))


def may_configure(request: web.Request, name: Name) -> None:
    """Check that who asks may declare or delete a queue of that name.

    Raises: AccessRefused (403 in HTTP).
    """
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.configure, "queue", name))


def _ask(request: web.Request, ask: Callable[[], None]) -> None:
    """Check a right, and remember that the request rests on it.  Raises: AccessRefused (403)."""
    ask()
    request[VISIT].asked.append(ask)


def is_administrator(request: web.Request) -> bool:
    """Tell whether who asks operates the broker, or is a user with the tag `administrator`."""
    access = request.get(ACCESS)
    return access is None or access.has_tag(ADMINISTRATOR)


def asking_owner(request: web.Request) -> Owner | None:
    """Return the user who asks, as the owner of things; None for who operates the broker."""
    access = request.get(ACCESS)
    return None if access is None else access.owner


def may_change(request: web.Request, owner: Owner | None, label: str, command: str) -> None:
    """Check that who asks may change a thing of `owner`: he owns it, or is an administrator.

    What nobody owns yet is for administrators.  `label` and `command` are as of `check_owned`.

    Raises: AccessRefused (403 in HTTP).
    """
    by = asking_owner(request)
    if not is_administrator(request) and (owner is None or not owner.is_same(by)):
        raise AccessRefused(foreign(label, command))


def can_read(request: web.Request, queue: Name) -> bool:
    """Tell whether who asks may read a queue or a stream; the request does not rest on it."""
    access = request.get(ACCESS)
    return access is None or access.allows(READ, queue)


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
    except ValueError:
        # Base 64 that is none, a header or a name that is no text: errors of three kinds.
        raise Unauthorized("the credentials cannot be read") from None
    if not colon:
        raise Unauthorized("the credentials have no password")
    return user, password
