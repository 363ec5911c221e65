"""The gate of the HTTP API on TCP: who comes in, and what he may do there.

Users and passwords are those of AMQP, as Basic credentials with each request (RFC 7617).  A right
one costs a slow hash once in some minutes, because who judges them remembers; a wrong one waits as
it does over AMQP, so that guessing is slow.  A browser says them once, to `LOGIN`, and has a cookie
from then on, which stands for a session (`login.sessions`).

What a route asks of the user's tags and of the vhost in its path is declared (`rights`), and judged
before it hears of a request.  What it does with a queue or an exchange it asks for by `may_read`,
`may_write`, `may_configure` or `may_see` before it looks whether the thing is there; what it lists,
by `seen_vhosts` and `only_of`.  For who operates the broker, on the Unix socket, all of these let
everything through.

Each request is a login of its own, and it holds no longer than what it rests on: when the user, his
password or his permissions change so that he might not ask again, a request that waits or is being
answered ends at once (`Visit`).  A change that the request makes itself is not torn apart.

Invariants: who may log in from the broker's own machine only may do so here too; a refusal does not
tell whether the user is there.
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

from leveret.broker.core.ownership import Owner, foreign
from leveret.broker.node.access import Access
from leveret.broker.node.users import ADMINISTRATOR, RightsWatcher
from leveret.broker.values.permission import READ
from leveret.clock import Clock
from leveret.errors import AccessRefused, AmqpError, NotFound
from leveret.limits import (
    HTTP_API_REQUESTS_PER_USER_MAX,
    HTTP_HEAVY_REQUESTS_PER_USER_MAX,
    HTTP_REQUESTS_PER_USER_MAX,
)
from leveret.management.listening.connection import HttpConnection
from leveret.management.login.credentials import (
    WRONG,
    Unauthorized,
    basic,
    form,
    has_form,
)
from leveret.management.login.host import Misdirected, check_host
from leveret.management.login.origin import check_origin, check_session
from leveret.management.login.sessions import Session, Sessions, cookie_of
from leveret.management.requests.share import Booking, RequestShare
from leveret.management.rights import MANAGING, USER, Right, is_heavy, right_of
from leveret.names import Name

if TYPE_CHECKING:
    from leveret.broker.node.broker import Broker
    from leveret.broker.node.users import User
    from leveret.management.keeper import Keeper

#: Where a request keeps what its user may do; nothing is there for who operates the broker.
ACCESS: Final = web.RequestKey("access", Access)

#: What an answer says that asks for credentials.
CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="Leveret", charset="UTF-8"'}

#: Where a user begins a session: there he may say who he is by a form.
LOGIN: Final = "POST /api/login"


class TurnedAway(Exception):
    """A request that has no place now (503); the text says why."""


class Barred(AccessRefused):
    """A request whose user has no tag for it, or may not enter its vhost (401)."""


class Visit:
    """One request that was let in, until it is answered; `task` answers it."""

    def __init__(
        self,
        gate: Gate,
        access: Access,
        right: Right,
        user: User,
        task: asyncio.Task[object] | None,
        session: Session | None = None,
    ) -> None:
        self.access: Final = access
        #: The session that it rests on; None with credentials.
        self.session: Final[Session | None] = session
        #: What its route asks for.
        self.right: Final[Right] = right
        self.gate: Final[Gate] = gate
        #: The memory that its body and its answer take.
        self.booking: Final = Booking(gate.share, access.user)
        self.login: Final = (user.password_hash, user.algorithm)
        self._task = task
        #: What it may do, as it was asked for.
        self.asked: list[Callable[[], None]] = []
        #: True once the answer has begun, so that no other one can be given.
        self.begun = False
        #: False while it changes the broker.
        self.ends = True
        #: Why it was ended.
        self.refusal: Exception | None = None

    def look(self) -> None:
        """End it if it would not be let in any more, or not be allowed what it does."""
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

        Raises: TurnedAway (503) if requests already take all of their share of the memory.
        """
        if not self.booking.add(size):
            raise TurnedAway(
                "the requests that are being answered take all of their share of the memory: try "
                "again when they are answered, or request fewer objects or messages at a time"
            )

    def over(self) -> Exception | None:
        """Return why the request was ended, once its task heard of it; None if that was not us."""
        if self.refusal is not None and self._task is not None:
            self._task.uncancel()
        return self.refusal

    def left(self) -> None:
        """Drop the task: its result, the answer, refers to the request and so to this visit."""
        self._task = None


#: Where a request keeps its visit.
VISIT: Final = web.RequestKey("visit", Visit)


class Gate(RightsWatcher):
    """Judges the requests of one broker."""

    def __init__(
        self,
        broker: Broker,
        keeper: Keeper,
        log: Callable[[str, str], None],
        clock: Clock,
        requests_per_user: int = HTTP_REQUESTS_PER_USER_MAX,
        api_requests_per_user: int = HTTP_API_REQUESTS_PER_USER_MAX,
    ) -> None:
        super().__init__()
        self._broker = broker
        #: The requests that are being answered, and how many are each user's.
        self.visits: set[Visit] = set()
        self._visits_of: Counter[str] = Counter()
        #: Of these, those that need a tag.
        self._tagged_of: Counter[str] = Counter()
        self._requests_per_user = requests_per_user
        self._api_requests_per_user = api_requests_per_user
        broker.users.watchers.append(self)
        self._keeper = keeper
        self._log = log
        self._clock = clock
        self._sessions = Sessions(clock)
        #: The memory that requests take.
        self.share: Final = RequestShare(broker.core.accounts)
        #: Limits the heavy requests of each user who has some.
        self._heavy: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def close(self) -> None:
        """Watch nothing more."""
        if self in self._broker.users.watchers:
            self._broker.users.watchers.remove(self)

    def rights_changed(self, user: str) -> None:
        """End what a user may not ask for any more, and his sessions with an older password."""
        known = self._broker.users.by_name.get(user)
        login = None if known is None else (known.password_hash, known.algorithm)
        self._sessions.keep_only(user, login)
        for visit in list(self.visits):
            if visit.access.user == user:
                visit.look()

    def left(self, visit: Visit) -> None:
        """Hear that a request is answered."""
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
        """Wait until fewer than the limit of the user's heavy requests are being answered."""
        places = self._heavy.get(user)
        if places is None:
            places = self._heavy[user] = asyncio.Semaphore(HTTP_HEAVY_REQUESTS_PER_USER_MAX)
        async with places:
            yield

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
        or the user has too many requests open; AccessRefused (403) for one that another site's
        page sends; Misdirected (421) for a host that is not allowed; what `check_right` raises.
        """
        check_origin(request)
        token = None if hdrs.AUTHORIZATION in request.headers else cookie_of(request)
        right = _right(request)
        login = f"{request.method} {_route(request)}" == LOGIN
        if token is None or login:
            session = None
            user, known = await self._judged(request, login)
        else:
            session = self._session_of(request, token)
            user, known = session.user, self._broker.users.get(session.user)
        vhost = request.match_info.get("vhost")
        self.check_right(user, right, vhost)
        # Without it a route would take who asks for the one who operates the broker.
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
        """Return the user whose name and password a request has; that of `login` may have a form.

        Raises: Unauthorized (401); TurnedAway (503) when too many wait; AccessRefused (403) for a
        form that a page of another site may have sent; Misdirected (421).
        """
        if login and has_form(request):
            check_session(request)
            user, password = await form(request, self._clock)
        else:
            user, password = basic(request)
        peer = request.remote or ""
        allowed = self._may_come_from(user, peer)
        if allowed:
            # Before the password, so that a page of another site cannot try passwords.
            self._check_host(request, user)
        known = self._broker.users.by_name.get(user)
        verdict = await self._keeper.judge(user, password, peer) if allowed else False
        if not verdict or known is None:
            connection = request.protocol
            if isinstance(connection, HttpConnection):
                connection.refused()
            await self._refuse(user, peer, verdict, allowed)
            raise Unauthorized(WRONG)
        # The password may have been changed since the judge answered.
        self.check_login(user, (known.password_hash, known.algorithm))
        return user, known

    def _session_of(self, request: web.Request, token: str) -> Session:
        """Return the session that a request rests on.

        Raises: Unauthorized (401) when it is over; AccessRefused (403) where another page asks;
        Misdirected (421).
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
        """Check that a request of a loopback user names a host of this machine.

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
        """Begin a session of who asks, and return its token."""
        user = visit.access.user
        self._log("info", f"HTTP session begins: user '{user}' from {peer}")
        token = self._sessions.begin(user, visit.login)
        # It may have taken the place of another one, whose requests end with it.
        self._end_visits(visit)
        return token

    def end_session(self, visit: Visit) -> None:
        """End the session that a request rests on, with its other requests; no effect for none."""
        session = visit.session
        if session is not None:
            self._log("info", f"HTTP session ends: user '{session.user}'")
            self._sessions.end(session)
            self._end_visits(visit)

    def _end_visits(self, visit: Visit) -> None:
        """End the requests of sessions that are over; `visit` is the one that is being answered."""
        for other in list(self.visits):
            session = other.session
            if other is not visit and session is not None and not self._sessions.holds(session):
                other.look()

    def check_goes_on(self, session: Session | None) -> None:
        """Check that a session, if it is one, is not over.  Raises: Unauthorized (401)."""
        if session is not None and not self._sessions.holds(session):
            raise Unauthorized("the session is over; log in again")

    def _check_open(self, user: str, visits: Counter[str], most: int) -> None:
        """Check that a user has a request left.  Raises: TurnedAway (503)."""
        if visits[user] >= most:
            raise TurnedAway(
                f"user '{user}' has {most} requests open, which is the limit; try again when some "
                "are answered"
            )

    def check_login(self, name: str, login: tuple[bytes, str]) -> None:
        """Check that a login is still the user's.  Raises: Unauthorized (401)."""
        user = self._broker.users.by_name.get(name)
        if user is None or login != (user.password_hash, user.algorithm):
            raise Unauthorized(WRONG)

    def check_right(self, user: str, right: Right, vhost: str | None) -> None:
        """Check that a user has what a route asks for; `vhost` is that of the path, if it has one.

        Raises: Barred (401), which does not tell whether the vhost is there; for a route of any
        user what `check_vhost` raises.
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
        """Tell whether a user sees all vhosts in the lists of a route."""
        return self._has_any(user, right.everywhere)

    def check_sees_all(self, user: str, right: Right) -> None:
        """Check that he does.  Raises: Barred (401)."""
        if not self.sees_all(user, right):
            raise Barred(right.lacking or "Not management user")

    def vhosts_of(self, user: str) -> list[str]:
        """Return the vhosts that a user may enter."""
        return [name for name in self._broker.vhosts if self.may_enter(user, name)]

    def may_enter(self, user: str, vhost: str) -> bool:
        """Tell whether a user has a permission in a vhost."""
        return (user, vhost) in self._broker.users.permissions

    def check_vhosts(self, user: str, vhosts: list[str]) -> None:
        """Check that a user may enter those vhosts, as far as they are there.

        Raises: Barred (401).
        """
        for vhost in vhosts:
            if vhost in self._broker.vhosts and not self.may_enter(user, vhost):
                raise Barred("User not authorised to access virtual host")

    def _has_any(self, user: str, tags: tuple[str, ...]) -> bool:
        return any(self._broker.users.has_tag(user, tag) for tag in tags)

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


def _right(request: web.Request) -> Right:
    """Return what the route of a request asks for; a path that has none may be asked for by all."""
    path = _route(request)
    return right_of(request.method, path) if path else USER


def _route(request: web.Request) -> str:
    """Return the path as its route declares it; empty for a path that has no route."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


def may_read(request: web.Request, name: Name, kind: str = "queue") -> None:
    """Check that who asks may read from a queue, a stream or (`kind`) an `exchange`.

    Raises: AccessRefused (403 or 401 in HTTP).
    """
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.read, kind, name))


def may_write(request: web.Request, name: Name, kind: str = "queue") -> None:
    """Check that who asks may write to it.  Raises: AccessRefused (403 or 401 in HTTP)."""
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.write, kind, name))


def may_see(request: web.Request, name: Name, kind: str = "queue") -> None:
    """Check that who asks may do anything with it.  Raises: AccessRefused (403 or 401 in HTTP)."""
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.see, kind, name))


def may_configure(request: web.Request, name: Name, kind: str = "queue") -> None:
    """Check that who asks may declare or delete a queue, or an `exchange`, of that name.

    Raises: AccessRefused (403 or 401 in HTTP).
    """
    access = request.get(ACCESS)
    if access is not None:
        _ask(request, partial(access.configure, kind, name))


def seen_vhosts(request: web.Request) -> list[str] | None:
    """Return the vhosts that a list may show to who asks; None for all that there are.

    The request ends when he may see one of them no more.
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
    """Tell whether a list may show a vhost to who asks."""
    visit: Visit | None = request.get(VISIT)
    if visit is None:
        return True
    user = visit.access.user
    return visit.gate.sees_all(user, visit.right) or visit.gate.may_enter(user, vhost)


def only_of(request: web.Request) -> str | None:
    """Return the user whose connections and channels alone who asks may see; None for all."""
    visit: Visit | None = request.get(VISIT)
    if visit is None:
        return None
    gate, user = visit.gate, visit.access.user
    if not gate.sees_all(user, visit.right):
        return user
    visit.asked.append(partial(gate.check_sees_all, user, visit.right))
    return None


def book(request: web.Request, size: int) -> None:
    """Book bytes of memory until a request is answered; there is no limit on the Unix socket.

    Raises: TurnedAway (503).
    """
    visit: Visit | None = request.get(VISIT)
    if visit is not None:
        visit.book(size)


def heavy_route(request: web.Request) -> bool:
    """Return whether the work of a request grows with the number of objects or messages."""
    return is_heavy(request.method, _route(request))


def access_of(request: web.Request) -> Access | None:
    """Return what who asks may do in the vhost of the path; None for who operates the broker."""
    return request.get(ACCESS)


def must_administer(request: web.Request) -> None:
    """Check that who asks operates the broker or is an administrator.  Raises: Barred (401)."""
    if not is_administrator(request):
        raise Barred("Not administrator user")


@contextlib.contextmanager
def looking(request: web.Request) -> Iterator[None]:
    """Let a request that is to change something end with its rights, while it only looks yet.

    Raises: Barred (401) for who was an administrator and is none any more.
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
    """Check a right, and remember that the request rests on it.

    Raises: AccessRefused (403); NotFound (404) for an administrator where there is no such vhost.
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
