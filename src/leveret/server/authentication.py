"""Verifies logins with Argon2id, in threads outside the event loop, and caches successes briefly.

An Argon2id hash costs 19 MiB and about 20 ms on purpose.  So it is verified in one or two threads
(the C code releases the GIL), identical logins share one verification, and a successful login is
cached for some minutes.  A thousand connections of one application cost one hash.  The cache
contains no passwords but BLAKE2b hashes of user and password with a secret key of this process.

A failed login takes the same time whether the user exists, does not exist, or has one of RabbitMQ's
hashes, because a dummy hash is verified if the user has no slow one.

Excess logins wait in a queue that a flood cannot block (`login_queue`), and repeated refusals
lengthen the delay of the next refusal (`backoff`).  AMQP and HTTP share both.

Invariants: a cache entry is valid only for the hash that the password was verified against, so a
login is verified again if the password was changed or the user was deleted or created again;
refusals are not cached; each thread verifies one password at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from leveret import machine
from leveret.broker.users.users import ARGON2, User, Users
from leveret.server.backoff import LoginThrottle
from leveret.server.login_queue import LoginQueue, PendingLogin
from leveret.session.authentication import Authenticator, Login

#: The maximum number of cached successful logins, and how long they are cached; beyond the number,
#: the oldest is dropped.
LOGINS_REMEMBERED_MAX: Final = 4096
LOGINS_REMEMBERED_SECONDS: Final = 300


#: OWASP's minimum parameters for Argon2id.
MEMORY_KIB: Final = 19_456
ROUNDS: Final = 2
LANES: Final = 1

#: The number of threads that verify passwords, each of which needs `MEMORY_KIB`.  They use at most
#: half of the cores, so that a flood of wrong passwords leaves the other half to the broker.
THREADS: Final = max(1, min(2, machine.processors().amount // 2))

_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32

#: A hash that matches no password, verified for users without a slow hash.
NOBODY: Final = (
    b"$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA"
    b"$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


def hash_argon2(password: bytes) -> bytes:
    """Return the Argon2id hash of `password` with a random salt; takes about 20 ms."""
    from argon2.low_level import Type, hash_secret

    salt = secrets.token_bytes(_SALT_BYTES)
    return hash_secret(password, salt, ROUNDS, MEMORY_KIB, LANES, _HASH_BYTES, Type.ID)


def verify_argon2(password_hash: bytes, password: bytes) -> bool:
    """Return whether `password_hash` is a hash of `password`; takes about 20 ms."""
    from argon2.exceptions import Argon2Error
    from argon2.low_level import Type, verify_secret

    try:
        return verify_secret(password_hash, password, Type.ID)
    except Argon2Error:
        return False


def has_password(user: User, password: bytes) -> bool:
    """Return whether a password is the user's; takes about 20 ms."""
    if user.algorithm == ARGON2:
        return verify_argon2(user.password_hash, password)
    return user.verify_fast(password)


class PasswordAuthenticator(Authenticator):
    """Verifies logins against the users of one broker, in the broker's event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, users: Users, run: Callable[[], None]
    ) -> None:
        """`run` is called after deferred answers, to run the effects of the core."""
        super().__init__()
        self._loop = loop
        self._users = users
        self._run = run
        self._key = secrets.token_bytes(64)
        self._threads = ThreadPoolExecutor(THREADS, "login")
        #: The cache: by key of a login, the hash it was verified against, and when it expires.
        self.remembered: dict[bytes, tuple[bytes, float]] = {}
        #: The logins that wait for each password in the queue or being verified.
        self.asked: dict[bytes, list[Login]] = {}
        self.queue = LoginQueue()
        self.backoff = LoginThrottle(loop.time)
        self._verifying: set[bytes] = set()
        # Counters.
        self.passwords_verified = 0
        self.refused = 0
        self.turned_away = 0
        #: The number of successful and of failed logins, by protocol.
        self.judged: dict[str, tuple[int, int]] = {"amqp091": (0, 0), "http": (0, 0)}

    def stop(self) -> None:
        """Stop verifying, and wait (about 20 ms) for hashes in progress."""
        self._threads.shutdown(cancel_futures=True)

    async def hash(self, password: bytes) -> bytes:
        """Return the Argon2id hash of `password`, computed in a thread."""
        return await self._loop.run_in_executor(self._threads, hash_argon2, password)

    async def judge(self, name: str, password: bytes, network: str = "") -> bool | None:
        """Return whether `password` is the user's, or None if too many logins wait."""
        waiting: asyncio.Future[bool | None] = self._loop.create_future()
        self.begin(_AwaitedLogin(name, password, network, waiting))
        return await waiting

    def begin(self, login: Login) -> None:
        """Answer a login at once by a fast hash or the cache, or after a thread has verified it."""
        user = self._users.by_name.get(login.user)
        place = self._place(login.user, login.password)
        if user is not None and (user.verify_fast(login.password) or self._knows(place, user)):
            self.backoff.accepted(login.network, login.user)
            self._count(login, True)
            login.answer(True)
            return
        self.asked.setdefault(place, []).append(login)
        self._wait(place, login)
        self._go_on()

    def _wait(self, place: bytes, login: Login) -> None:
        """Queue a password, unless it is already being verified."""
        if place in self._verifying:
            return
        standing = self.backoff.standing(login.network, login.user)
        for entry in self.queue.put(login.network, login.user, place, standing):
            # Deferred, because the rejected session may be in the middle of its own work.
            self._loop.call_soon(self._turn_away, entry)

    def _turn_away(self, entry: PendingLogin) -> None:
        """Reject the logins of an entry that was removed from the full queue."""
        waiting = self.asked.get(entry.place, [])
        if entry.place in self._verifying:
            return
        gone = [login for login in waiting if login.network == entry.network]
        for login in gone:
            waiting.remove(login)
        if gone and not waiting:
            del self.asked[entry.place]
        self.turned_away += len(gone)
        for login in gone:
            login.turn_away()
        self._run()

    def _go_on(self) -> None:
        """Submit the next passwords to free threads."""
        while len(self._verifying) < THREADS:
            entry = self.queue.take()
            if entry is None:
                return
            waiting = self.asked.get(entry.place)
            if waiting and entry.place not in self._verifying:
                self._begin(entry.place, waiting[0])

    def _begin(self, place: bytes, login: Login) -> None:
        self._verifying.add(place)
        try:
            self._submit(place, login, self._users.by_name.get(login.user))
        except BaseException:
            # Otherwise the waiting logins would never be answered.
            self._verifying.discard(place)
            del self.asked[place]
            raise

    def _submit(self, place: bytes, login: Login, user: User | None) -> None:
        slow = user is not None and user.algorithm == ARGON2 and bool(user.password_hash)
        # An empty password allows no login, even if the hash is one of it.
        known = user is not None and slow and bool(login.password)
        password_hash = user.password_hash if user is not None and known else NOBODY
        self._threads.submit(self._verify, place, password_hash, login.password)

    def _place(self, user: str, password: bytes) -> bytes:
        """Return the cache key of a login, which reveals nothing without the process's secret."""
        name = user.encode()
        text = len(name).to_bytes(4, "big") + name + password
        return hashlib.blake2b(text, digest_size=32, key=self._key).digest()

    def _knows(self, place: bytes, user: User) -> bool:
        remembered = self.remembered.get(place)
        if remembered is None:
            return False
        password_hash, until = remembered
        if password_hash == user.password_hash and self._loop.time() < until:
            return True
        del self.remembered[place]
        return False

    def remember(self, user: str, password: bytes, password_hash: bytes) -> None:
        """Cache that a user's password was verified against `password_hash`."""
        place = self._place(user, password)
        if len(self.remembered) >= LOGINS_REMEMBERED_MAX:
            del self.remembered[next(iter(self.remembered))]
        until = self._loop.time() + LOGINS_REMEMBERED_SECONDS
        self.remembered[place] = (password_hash, until)

    def _verify(self, place: bytes, password_hash: bytes, password: bytes) -> None:
        """Verify a password, unless no login waits for it any more; runs in a thread."""
        try:
            wanted = any(login.wanted() for login in tuple(self.asked[place]))
            right = self.verify_slowly(password_hash, password) if wanted else None
        except Exception as bug:  # noqa: BLE001 (the waiting logins receive it)
            self._loop.call_soon_threadsafe(self._fail, place, bug)
        else:
            self._loop.call_soon_threadsafe(self._answer, place, password_hash, right)

    def verify_slowly(self, password_hash: bytes, password: bytes) -> bool:
        """Return whether `password_hash` is a hash of `password`; runs in a thread."""
        return verify_argon2(password_hash, password)

    def _fail(self, place: bytes, bug: Exception) -> None:
        """Report an unexpected exception to the waiting logins."""
        self._verifying.discard(place)
        for login in self.asked.pop(place):
            login.fail(bug)
        self._go_on()
        self._run()

    def _answer(self, place: bytes, password_hash: bytes, right: bool | None) -> None:
        """Answer the waiting logins, and cache a success; `right` is None if not verified."""
        self._verifying.discard(place)
        waiting = self.asked[place]
        if right is None:
            waiting = [login for login in waiting if login.wanted()]
            if waiting:
                # These arrived after the thread had found no waiting login.
                self.asked[place] = waiting
                self._wait(place, waiting[0])
                self._go_on()
                return
        del self.asked[place]
        self.passwords_verified += right is not None
        user = self._users.by_name.get(waiting[0].user) if waiting else None
        # The user may have been deleted, or the password changed, during the verification.
        accepted = user is not None and bool(right) and user.password_hash == password_hash
        if accepted:
            self.remember(waiting[0].user, waiting[0].password, password_hash)
        for login in waiting:
            self._answer_login(login, accepted)
        self._go_on()
        self._run()

    def _count(self, login: Login, accepted: bool) -> None:
        right, wrong = self.judged.get(login.protocol, (0, 0))
        self.judged[login.protocol] = (right + 1, wrong) if accepted else (right, wrong + 1)

    def _answer_login(self, login: Login, accepted: bool) -> None:
        self._count(login, accepted)
        if accepted:
            self.backoff.accepted(login.network, login.user)
        else:
            self.refused += 1
            login.backoff = self.backoff.factor(login.network, login.user)
            self.backoff.refused(login.network, login.user)
        login.answer(accepted)

    def counts(self) -> dict[str, int]:
        """Return the counters of logins by their names in the API."""
        return {
            "logins_waiting": len(self.queue),
            "logins_refused": self.refused,
            "logins_turned_away": self.turned_away,
            "passwords_verified": self.passwords_verified,
            "amqp_logins_accepted": self.judged["amqp091"][0],
            "amqp_logins_refused": self.judged["amqp091"][1],
            "http_logins_accepted": self.judged["http"][0],
            "http_logins_refused": self.judged["http"][1],
        }


class _AwaitedLogin(Login):
    """A login of a caller that awaits the answer."""

    def __init__(
        self, name: str, password: bytes, network: str, waiting: asyncio.Future[bool | None]
    ) -> None:
        super().__init__(name, password, network)
        self.protocol = "http"
        self._waiting = waiting

    def fail(self, bug: Exception) -> None:
        if not self._waiting.done():
            self._waiting.set_exception(bug)

    def go_on(self) -> None:
        if not self._waiting.done():
            self._waiting.set_result(None if self.turned_away else self.accepted)

    def wanted(self) -> bool:
        return not self._waiting.done()
