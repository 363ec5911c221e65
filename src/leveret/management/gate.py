"""The gate of the HTTP API on TCP: authentication and authorization of requests.

Users and passwords are those of AMQP, as Basic credentials with each request (RFC 7617).  A correct
password costs a slow hash once every few minutes, because the result is cached.  The refusal of a
wrong password is delayed as over AMQP, which slows down guessing.  A browser sends the password
once, to `LOGIN`, and uses the cookie of a session after that (`login.sessions`).

The right that a route declares (`api_route`) is checked before its handler runs.  A handler checks
permissions on a queue or an exchange with `may_read`, `may_write`, `may_configure` or `may_see`,
before it looks the object up, and filters lists with `seen_vhosts` and `only_of`.  All of these
allow everything to the operator, on the Unix socket.

A request is allowed only as long as its credentials and permissions are valid.  When the user, the
password or the permissions change so that the request would now be refused, the request ends at
once, even if it waits or its answer has begun (`Visit`).  A request that has begun to change the
broker is not interrupted.

Invariants: loopback users can connect only from the broker's own machine; a refusal does not
reveal whether the user exists.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from aiohttp import hdrs, web

from leveret.broker.ownership import Owner, foreign
from leveret.broker.users.access import Access
from leveret.broker.users.permissions import READ
from leveret.broker.users.users import ADMINISTRATOR, RightsWatcher
from leveret.clock import Clock
from leveret.errors import AccessRefused, AmqpError, NotFound
from leveret.limits import (
    HTTP_API_REQUESTS_PER_USER_MAX,
    HTTP_HEAVY_REQUESTS_PER_USER_MAX,
    HTTP_REQUESTS_PER_USER_MAX,
)
from leveret.management.api_route import route_of
from leveret.management.connections.connection import HttpConnection
from leveret.management.login.credentials import (
    WRONG,
    Unauthorized,
    basic,
    form,
    has_form,
)
from leveret.management.login.host import Misdirected, check_host
from leveret.management.login.origin import check_origin, check_session
from leveret.management.login.sessions import LoginSession, Sessions, cookie_of
from leveret.management.requests.share import Booking, RequestShare
from leveret.management.rights import MANAGING, USER, Right
from leveret.names import Name

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.broker.users.users import User
    from leveret.management.keeper import GateKeeper

#: The request key of the user's permissions; not set for the operator.
ACCESS: Final = web.RequestKey("access", Access)

#: The header of an answer that requests credentials.
CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="Leveret", charset="UTF-8"'}

#: The route that begins a session; it also accepts the credentials as a form.
LOGIN: Final = ("POST", "/api/login")


class TurnedAway(Exception):
    """The broker is too busy for a request (503); the text gives the reason."""


class Barred(AccessRefused):
    """The user lacks the tag for a request, or access to its vhost (401)."""


class Visit:
    """One admitted request, until it is answered; `task` answers it."""

    def __init__(
        self,
        gate: Gate,
        access: Access,
        right: Right,
        user: User,
        task: asyncio.Task[object] | None,
        session: LoginSession | None = None,
    ) -> None:
        self.access: Final = access
        #: The session that the request uses, or None if it sends credentials.
        self.session: Final[LoginSession | None] = session
        #: The right that its route requires.
        self.right: Final[Right] = right
        self.gate: Final[Gate] = gate
        #: The memory for its body and its answer.
        self.booking: Final = Booking(gate.share, access.user)
        self.login: Final = (user.password_hash, user.algorithm)
        self._task = task
        #: The permission checks that the request passed; `look` repeats them.
        self.asked: list[Callable[[], None]] = []
        #: True once the answer has begun and can no longer be replaced.
        self.begun = False
        #: Whether the request may be cancelled; false while it changes the broker.
        self.ends = True
        #: The reason why the gate cancelled the request.
        self.refusal: Exception | None = None

    def look(self) -> None:
        """Cancel the request if its login, right or permissions are no longer valid."""
        self.access.forget()
        try:
            self.gate.check_login(self.access.user, self.login)
            self.gate.check_goes_on(self.session)
            self.gate.check_right(self.access.user, self.right, self.access.vhost or None)
            for ask in self.asked:
                ask()
        except (Unauthorized, AmqpError) as refusal:
            if self.refusal is None and self.ends and self._task is not None:
                self.refusal = refusal
                self._task.cancel()

    def book(self, size: int) -> None:
        """Book bytes of memory until the request is answered.

        Raises: TurnedAway (503) if requests already use all of their share of the memory.
        """
        if not self.booking.add(size):
            raise TurnedAway(
                "the requests in progress use all of their share of the memory: try again later, "
                "or request fewer objects or messages at a time"
            )

    def over(self) -> Exception | None:
        """Return why the gate cancelled the request, or None if it did not."""
        if self.refusal is not None and self._task is not None:
            self._task.uncancel()
        return self.refusal

    def left(self) -> None:
        """Drop the task: its result, the answer, references the request and thus this visit."""
        self._task = None


#: The request key of its visit.
VISIT: Final = web.RequestKey("visit", Visit)


class Gate(RightsWatcher):
    """Authenticates and authorizes the requests of one broker."""

    def __init__(
        self,
        broker: Broker,
        keeper: GateKeeper,
        log: Callable[[str, str], None],
        clock: Clock,
        requests_per_user: int = HTTP_REQUESTS_PER_USER_MAX,
        api_requests_per_user: int = HTTP_API_REQUESTS_PER_USER_MAX,
    ) -> None:
        super().__init__()
        self._broker = broker
        #: The admitted requests, and the number of them by user.
        self.visits: set[Visit] = set()
        self._visits_of: Counter[str] = Counter()
        #: The number of admitted requests that require a tag, by user.
        self._tagged_of: Counter[str] = Counter()
        self._requests_per_user = requests_per_user
        self._api_requests_per_user = api_requests_per_user
        broker.users.watchers.append(self)
        self._keeper = keeper
        self._log = log
        self._clock = clock
        self._sessions = Sessions(clock)
        #: The memory that requests use.
        self.share: Final = RequestShare(broker.core.accounts)
        #: Limits the heavy requests, by user.
        self._heavy: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def close(self) -> None:
        """Stop watching the users."""
        if self in self._broker.users.watchers:
            self._broker.users.watchers.remove(self)

    def rights_changed(self, user: str) -> None:
        """Cancel requests that the user may no longer make, and end sessions of an old password."""
        known = self._broker.users.by_name.get(user)
        login = None if known is None else (known.password_hash, known.algorithm)
        self._sessions.keep_only(user, login)
        for visit in list(self.visits):
            if visit.access.user == user:
                visit.look()

    def left(self, visit: Visit) -> None:
        """Release the resources of an answered request."""
        if visit in self.visits:
            visit.left()
            self.visits.remove(visit)
            visit.booking.end()
            user = visit.access.user
            for counter in (self._visits_of, self._tagged_of)[: 1 + bool(visit.right.tags)]:
                counter[user] -= 1
                if not counter[user]:
                    del counter[user]

    @contextlib.asynccontextmanager
    async def heavy(self, user: str) -> AsyncIterator[None]:
        """Wait until the user has fewer heavy requests in progress than the limit."""
        places = self._heavy.get(user)
        if places is None:
            places = self._heavy[user] = asyncio.Semaphore(HTTP_HEAVY_REQUESTS_PER_USER_MAX)
        async with places:
            yield

    async def _refuse(self, user: str, peer: str, verdict: bool | None, allowed: bool) -> None:
        """Log and delay a refusal.  Raises: TurnedAway (503) if the password was not verified."""
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
        """Admit a request, and attach the permissions of its user in the vhost of its path.

        Raises: Unauthorized (401) without valid credentials; TurnedAway (503) if too many logins
        wait or the user has too many requests open; AccessRefused (403) for a request from another
        site's page; Misdirected (421) for a host that is not allowed; the errors of `check_right`.
        """
        check_origin(request)
        token = None if hdrs.AUTHORIZATION in request.headers else cookie_of(request)
        route = route_of(request)
        # For a path without a route, any user gets a 404.
        right = USER if route is None else route.right
        login = route is not None and (route.method, route.path) == LOGIN
        if token is None or login:
            session = None
            user, known = await self._judged(request, login)
        else:
            session = self._session_of(request, token)
            user, known = session.user, self._broker.users.get(session.user)
        vhost = request.match_info.get("vhost")
        self.check_right(user, right, vhost)
        # Always set, because routes treat a request without permissions as the operator's.
        access = Access(self._broker.users, user, vhost or "")
        self._check_open(user, self._visits_of, self._requests_per_user)
        if right.tags:
            self._check_open(user, self._tagged_of, self._api_requests_per_user)
            self._tagged_of[user] += 1
        visit = Visit(self, access, right, known, asyncio.current_task(), session)
        self.visits.add(visit)
        self._visits_of[user] += 1
        request[ACCESS] = access
        request[VISIT] = visit
        return visit

    async def _judged(self, request: web.Request, login: bool) -> tuple[str, User]:
        """Verify the credentials of a request and return its user; `login` allows a form.

        Raises: Unauthorized (401); TurnedAway (503) if too many logins wait; AccessRefused (403)
        for a form that a page of another site may have sent; Misdirected (421).
        """
        if login and has_form(request):
            check_session(request)
            user, password = await form(request, self._clock)
        else:
            user, password = basic(request)
        peer = request.remote or ""
        allowed = self._may_come_from(user, peer)
        if allowed:
            # Checked before the password, so that another site's page cannot guess passwords.
            self._check_host(request, user)
        known = self._broker.users.by_name.get(user)
        verdict = await self._keeper.judge(user, password, peer) if allowed else False
        if not verdict or known is None:
            connection = request.protocol
            if isinstance(connection, HttpConnection):
                connection.refused()
            await self._refuse(user, peer, verdict, allowed)
            raise Unauthorized(WRONG)
        # The password may have changed while it was being verified.
        self.check_login(user, (known.password_hash, known.algorithm))
        return user, known

    def _session_of(self, request: web.Request, token: str) -> LoginSession:
        """Return the session of a request.

        Raises: Unauthorized (401) if the session is over; AccessRefused (403) for a request from
        another page; Misdirected (421).
        """
        session = self._sessions.find(token)
        connection = request.protocol
        if session is None or not self._may_come_from(session.user, request.remote or ""):
            if isinstance(connection, HttpConnection):
                connection.refused()
            raise Unauthorized("the session is over; log in again")
        self.check_login(session.user, session.login)
        self._check_host(request, session.user)
        check_session(request)
        return session

    def _may_come_from(self, user: str, peer: str) -> bool:
        return user not in self._keeper.loopback_users or self._keeper.is_local(peer)

    def _check_host(self, request: web.Request, user: str) -> None:
        """Check that the `Host` in a loopback user's request is this machine.

        Raises: Misdirected (421).
        """
        if user not in self._keeper.loopback_users:
            return
        try:
            check_host(request, user, self._keeper.names)
        except Misdirected as refusal:
            connection = request.protocol
            if isinstance(connection, HttpConnection):
                connection.refused()
            self._log("warning", f"HTTP login refused: {refusal}")
            raise

    def begin_session(self, visit: Visit, peer: str) -> str:
        """Begin a session for the user of a request, and return the token."""
        user = visit.access.user
        self._log("info", f"HTTP session begins: user '{user}' from {peer}")
        token = self._sessions.begin(user, visit.login)
        # The new session may have replaced another one, whose requests end with it.
        self._end_visits(visit)
        return token

    def end_session(self, visit: Visit) -> None:
        """End the session of a request, if it has one, and the session's other requests."""
        session = visit.session
        if session is not None:
            self._log("info", f"HTTP session ends: user '{session.user}'")
            self._sessions.end(session)
            self._end_visits(visit)

    def _end_visits(self, visit: Visit) -> None:
        """End the requests of sessions that are over, except `visit`."""
        for other in list(self.visits):
            session = other.session
            if other is not visit and session is not None and not self._sessions.holds(session):
                other.look()

    def check_goes_on(self, session: LoginSession | None) -> None:
        """Check that a session is not over; None passes.  Raises: Unauthorized (401)."""
        if session is not None and not self._sessions.holds(session):
            raise Unauthorized("the session is over; log in again")

    def _check_open(self, user: str, visits: Counter[str], most: int) -> None:
        """Check that a user may open another request.  Raises: TurnedAway (503)."""
        if visits[user] >= most:
            raise TurnedAway(
                f"user '{user}' has {most} requests open, which is the limit; try again when some "
                "are answered"
            )

    def check_login(self, name: str, login: tuple[bytes, str]) -> None:
        """Check that a user still has this password.  Raises: Unauthorized (401)."""
        user = self._broker.users.by_name.get(name)
        if user is None or login != (user.password_hash, user.algorithm):
            raise Unauthorized(WRONG)

    def check_right(self, user: str, right: Right, vhost: str | None) -> None:
        """Check that a user has the right for a route, in the vhost of its path if it has one.

        Raises: Barred (401), which does not reveal whether the vhost exists; the errors of
        `check_vhost` for a route that requires no tag.
        """
        users = self._broker.users
        if right.tags and not self._has_any(user, MANAGING):
            raise Barred("Not management user")
        if right.tags and not self._has_any(user, right.tags):
            raise Barred(right.lacking)
        if vhost is None or self._has_any(user, right.everywhere):
            return
        if not right.tags:
            self.check_vhost(user, vhost)
        elif (user, vhost) not in users.permissions:
            raise Barred("User not authorised to access virtual host")

    def sees_all(self, user: str, right: Right) -> bool:
        """Return whether a route's lists show a user all vhosts."""
        return self._has_any(user, right.everywhere)

    def check_sees_all(self, user: str, right: Right) -> None:
        """Check that a route's lists show a user all vhosts.  Raises: Barred (401)."""
        if not self.sees_all(user, right):
            raise Barred(right.lacking or "Not management user")

    def vhosts_of(self, user: str) -> list[str]:
        """Return the vhosts that a user has access to."""
        return [name for name in self._broker.vhosts if self.may_enter(user, name)]

    def may_enter(self, user: str, vhost: str) -> bool:
        """Return whether a user has a permission in a vhost."""
        return (user, vhost) in self._broker.users.permissions

    def check_vhosts(self, user: str, vhosts: list[str]) -> None:
        """Check that a user has access to those of the vhosts that still exist.

        Raises: Barred (401).
        """
        for vhost in vhosts:
            if vhost in self._broker.vhosts and not self.may_enter(user, vhost):
                raise Barred("User not authorised to access virtual host")

    def _has_any(self, user: str, tags: tuple[str, ...]) -> bool:
        return any(self._broker.users.has_tag(user, tag) for tag in tags)

    def check_vhost(self, user: str, vhost: str) -> None:
        """Check that a user has access to a vhost.

        Raises: AccessRefused (403), whether or not the vhost exists; NotFound (404) for an
        administrator if it does not exist.
        """
        users = self._broker.users
        if (user, vhost) in users.permissions:
            return
        if vhost not in self._broker.vhosts and users.has_tag(user, ADMINISTRATOR):
            raise NotFound(f"no vhost '{vhost}'")
        raise AccessRefused(f"access to vhost '{vhost}' refused for user '{user}'")


def may_read(request: web.Request, name: Name, kind: str = "queue") -> None:
    """Check that the user may read from a queue or stream, or from an exchange (`kind`).

    Raises: AccessRefused (403 or 401 in HTTP).
    """
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.read, kind, name))


def may_write(request: web.Request, name: Name, kind: str = "queue") -> None:
    """Check that the user may write to a queue or exchange.

    Raises: AccessRefused (403 or 401 in HTTP).
    """
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.write, kind, name))


def may_see(request: web.Request, name: Name, kind: str = "queue") -> None:
    """Check that the user has any permission on a queue or exchange.

    Raises: AccessRefused (403 or 401 in HTTP).
    """
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.see, kind, name))


def may_configure(request: web.Request, name: Name, kind: str = "queue") -> None:
    """Check that the user may declare and delete a queue or exchange of that name.

    Raises: AccessRefused (403 or 401 in HTTP).
    """
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.configure, kind, name))


def seen_vhosts(request: web.Request) -> list[str] | None:
    """Return the vhosts that a list may show to the user, or None for all.

    The request ends when the user loses access to one of these vhosts.
    """
    visit: Visit | None = request.get(VISIT)
    if visit is None:
        return None
    gate, user = visit.gate, visit.access.user
    if gate.sees_all(user, visit.right):
        visit.asked.append(partial(gate.check_sees_all, user, visit.right))
        return None
    names = gate.vhosts_of(user)
    visit.asked.append(partial(gate.check_vhosts, user, names))
    return names


def sees_vhost(request: web.Request, vhost: str) -> bool:
    """Return whether a list may show a vhost to the user."""
    visit: Visit | None = request.get(VISIT)
    if visit is None:
        return True
    user = visit.access.user
    return visit.gate.sees_all(user, visit.right) or visit.gate.may_enter(user, vhost)


def only_of(request: web.Request) -> str | None:
    """Return the caller if they may see only their own connections and channels, or None."""
    visit: Visit | None = request.get(VISIT)
    if visit is None:
        return None
    gate, user = visit.gate, visit.access.user
    if not gate.sees_all(user, visit.right):
        return user
    visit.asked.append(partial(gate.check_sees_all, user, visit.right))
    return None


def book(request: web.Request, size: int) -> None:
    """Book bytes of memory until a request is answered; the Unix socket has no limit.

    Raises: TurnedAway (503).
    """
    visit: Visit | None = request.get(VISIT)
    if visit is not None:
        visit.book(size)


def access_of(request: web.Request) -> Access | None:
    """Return the user's permissions in the vhost of the path, or None for the operator."""
    return request.get(ACCESS)


def must_administer(request: web.Request) -> None:
    """Check that the caller is the operator or an administrator.  Raises: Barred (401)."""
    if not is_administrator(request):
        raise Barred("Not administrator user")


@contextlib.contextmanager
def looking(request: web.Request) -> Iterator[None]:
    """Allow the request to be cancelled in the `with` block, which only prepares a change.

    Raises: Barred (401) if the user ceased to be an administrator during the block.
    """
    visit: Visit | None = request.get(VISIT)
    if visit is None:
        yield
        return
    administers = is_administrator(request)
    visit.ends = True
    yield
    visit.ends = False
    if administers:
        must_administer(request)


def _ask(request: web.Request, ask: Callable[[], None]) -> None:
    """Check a permission; the request ends when the user loses it.

    Raises: AccessRefused (403); NotFound (404) for an administrator if the vhost does not exist.
    """
    try:
        ask()
    except AccessRefused:
        visit: Visit = request[VISIT]
        with contextlib.suppress(AccessRefused):
            visit.gate.check_vhost(visit.access.user, visit.access.vhost)
        raise
    request[VISIT].asked.append(ask)


def is_administrator(request: web.Request) -> bool:
    """Return whether the caller is the operator, or a user with the tag `administrator`."""
    access = request.get(ACCESS)
    return access is None or access.has_tag(ADMINISTRATOR)


def asking_owner(request: web.Request) -> Owner | None:
    """Return the user of a request as an owner, or None for the operator."""
    access = request.get(ACCESS)
    return None if access is None else access.owner


def may_change(request: web.Request, owner: Owner | None, label: str, command: str) -> None:
    """Check that the caller is the `owner` of an object, or an administrator.

    Only administrators may change an object without an owner.  `label` and `command` are as in
    `check_owned`.

    Raises: AccessRefused (403 in HTTP).
    """
    by = asking_owner(request)
    if not is_administrator(request) and (owner is None or not owner.is_same(by)):
        raise AccessRefused(foreign(label, command))


def can_read(request: web.Request, queue: Name) -> bool:
    """Return whether the user may read a queue or stream, without ending the request later."""
    access = request.get(ACCESS)
    return access is None or access.allows(READ, queue)
