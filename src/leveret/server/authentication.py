"""Judging logins: Argon2id in threads beside the loop, and a short memory of what was verified.

An Argon2id hash costs 19 MiB and some 20 ms on purpose.  So it is verified in a thread or two
(the C code lets go of the GIL), a login that is verified already under way waits for that one, and
what was verified is remembered for some minutes: a thousand connections of one application cost one
hash.  The memory holds no password but a BLAKE2b of user and password under a key of this process.

Who fails pays the same price whether the user is there, or not, or has one of RabbitMQ's hashes:
where there is no hash that is slow, one of nobody is verified.

Invariants: a memory counts only for the very hash that it was verified against, so that a changed
password, a deleted user or one of the same name is verified anew; refusals are not remembered.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from leveret.broker.users import ARGON2, User, Users
from leveret.limits import LOGINS_REMEMBERED_MAX, LOGINS_REMEMBERED_SECONDS
from leveret.session.settings import Authenticator, Login

#: OWASP's minimum for Argon2id: memory in KiB, rounds, lanes.
MEMORY_KIB: Final = 19_456
ROUNDS: Final = 2
LANES: Final = 1

#: Threads that verify; each holds `MEMORY_KIB` while it does.  They keep no more than half of the
#: cores busy, so that a flood of wrong passwords leaves the broker its own.
THREADS: Final = max(1, min(2, len(os.sched_getaffinity(0)) // 2))

_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32

#: A hash of no password, for users that are not there.
NOBODY: Final = (
    b"$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA"
    b"$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


def hash_argon2(password: bytes) -> bytes:
    """Return the Argon2id hash of `password` under a salt of chance; it takes some 20 ms."""
    from argon2.low_level import Type, hash_secret

    salt = secrets.token_bytes(_SALT_BYTES)
    return hash_secret(password, salt, ROUNDS, MEMORY_KIB, LANES, _HASH_BYTES, Type.ID)


def verify_argon2(password_hash: bytes, password: bytes) -> bool:
    """Tell whether `password_hash` is one of `password`; it takes some 20 ms."""
    from argon2.exceptions import Argon2Error
    from argon2.low_level import Type, verify_secret

    try:
        return verify_secret(password_hash, password, Type.ID)
    except Argon2Error:
        return False


class PasswordAuthenticator(Authenticator):
    """Judges logins by the users of one broker, for the loop that the broker runs in."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, users: Users, run: Callable[[], None]
    ) -> None:
        """Call `run` after answers that come later: the broker has effects to do then."""
        super().__init__()
        self._loop = loop
        self._users = users
        self._run = run
        self._key = secrets.token_bytes(64)
        self._threads = ThreadPoolExecutor(THREADS, "login")
        #: What was verified: the hash that it was verified against, and until when it counts.
        self.remembered: dict[bytes, tuple[bytes, float]] = {}
        #: What is being verified, and who waits for it.
        self.asked: dict[bytes, list[Login]] = {}

    def stop(self) -> None:
        """Verify nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def hash(self, password: bytes) -> bytes:
        """Return the Argon2id hash of `password`, made in a thread."""
        return await self._loop.run_in_executor(self._threads, hash_argon2, password)

    async def judge(self, name: str, password: bytes) -> bool:
        """Tell whether `password` is the user's, for those who can wait."""
        waiting: asyncio.Future[bool] = self._loop.create_future()
        self.begin(_AwaitedLogin(name, password, waiting))
        return await waiting

    def begin(self, login: Login) -> None:
        """Answer at once where that is cheap, else after a thread has verified the password."""
        user = self._users.by_name.get(login.user)
        place = self._place(login.user, login.password)
        if user is not None and (user.verify_fast(login.password) or self._knows(place, user)):
            login.answer(True)
            return
        waiting = self.asked.get(place)
        if waiting is not None:
            waiting.append(login)
            return
        self.asked[place] = [login]
        try:
            self._submit(place, login, user)
        except BaseException:
            # Nobody would ever answer those that came to wait beside it.
            del self.asked[place]
            raise

    def _submit(self, place: bytes, login: Login, user: User | None) -> None:
        slow = user is not None and user.algorithm == ARGON2 and bool(user.password_hash)
        password_hash = user.password_hash if user is not None and slow else NOBODY
        self._threads.submit(self._verify, place, password_hash, login.password)

    def _place(self, user: str, password: bytes) -> bytes:
        """Return where a login is remembered; it tells nothing to who does not know the key."""
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
        """Remember that `password_hash` is one of the user's password."""
        place = self._place(user, password)
        if len(self.remembered) >= LOGINS_REMEMBERED_MAX:
            del self.remembered[next(iter(self.remembered))]
        until = self._loop.time() + LOGINS_REMEMBERED_SECONDS
        self.remembered[place] = (password_hash, until)

    def _verify(self, place: bytes, password_hash: bytes, password: bytes) -> None:
        """Verify in a thread, unless nobody waits any more."""
        try:
            wanted = any(login.wanted() for login in tuple(self.asked[place]))
            right = self.verify_slowly(password_hash, password) if wanted else None
        except Exception as bug:  # noqa: BLE001 (who asked hears of it)
            self._loop.call_soon_threadsafe(self._fail, place, bug)
        else:
            self._loop.call_soon_threadsafe(self._answer, place, password_hash, right)

    def verify_slowly(self, password_hash: bytes, password: bytes) -> bool:
        """Tell whether a hash is one of the password; in a thread."""
        return verify_argon2(password_hash, password)

    def _fail(self, place: bytes, bug: Exception) -> None:
        """Tell those who wait that nobody knows."""
        for login in self.asked.pop(place):
            login.fail(bug)
        self._run()

    def _answer(self, place: bytes, password_hash: bytes, right: bool | None) -> None:
        """Tell those who wait, and remember what is right; None was not verified at all."""
        waiting = self.asked[place]
        user = self._users.by_name.get(waiting[0].user)
        if right is None:
            waiting = [login for login in waiting if login.wanted()]
            if waiting:
                # Came when the thread had found that nobody waits.
                self.asked[place] = waiting
                self._submit(place, waiting[0], user)
                return
        del self.asked[place]
        # The user may have been deleted or got another password meanwhile.
        accepted = user is not None and bool(right) and user.password_hash == password_hash
        if accepted:
            self.remember(waiting[0].user, waiting[0].password, password_hash)
        for login in waiting:
            login.answer(accepted)
        self._run()


class _AwaitedLogin(Login):
    """A login for who awaits its answer."""

    def __init__(self, name: str, password: bytes, waiting: asyncio.Future[bool]) -> None:
        super().__init__(name, password)
        self._waiting = waiting

    def fail(self, bug: Exception) -> None:
        if not self._waiting.done():
            self._waiting.set_exception(bug)

    def go_on(self) -> None:
        if not self._waiting.done():
            self._waiting.set_result(self.accepted)

    def wanted(self) -> bool:
        return not self._waiting.done()
