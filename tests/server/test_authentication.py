"""Judging logins beside the loop: what is verified, how often, and what is remembered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from leveret.broker.users.users import ARGON2, SHA256, User, Users, check_hash, hash_password
from leveret.server.authentication import (
    LANES,
    LOGINS_REMEMBERED_MAX,
    LOGINS_REMEMBERED_SECONDS,
    MEMORY_KIB,
    NOBODY,
    ROUNDS,
    PasswordAuthenticator,
    hash_argon2,
    verify_argon2,
)
from leveret.session.authentication import Login
from support.node.core import Node
from support.wire.raw_codec import PROTOCOL_HEADER, method

SLOW = hash_argon2(b"right")
BLANK = hash_argon2(b"")


class Loop(asyncio.SelectorEventLoop):
    """A loop whose clock a test can set forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Judge(PasswordAuthenticator):
    """Counts what the threads verify; `gate` holds them back while it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, users: Users) -> None:
        self.runs = 0
        self.verified = 0
        self.through = 0
        self.heard = asyncio.Event()
        self.gate = threading.Event()
        self.gate.set()
        super().__init__(loop, users, self._count_run)

    def _count_run(self) -> None:
        self.runs += 1
        self.heard.set()

    def _verify(self, place: bytes, password_hash: bytes, password: bytes) -> None:
        self.gate.wait()
        self.verified += 1
        super()._verify(place, password_hash, password)
        self.through += 1


@pytest.fixture
def users() -> Users:
    """`slow` has an Argon2id hash, `fast` one of RabbitMQ's, both of `right`.

    `empty` has no password, and `blank` the Argon2id hash of an empty one.
    """
    users = Node().broker.users
    users.put(User("slow", SLOW, [], ARGON2))
    users.put(User("fast", hash_password(b"salt", b"right"), []))
    users.put(User("empty", b"", []))
    users.put(User("blank", BLANK, [], ARGON2))
    return users


def run(users: Users, scene: Callable[[Judge, Loop], Awaitable[None]]) -> None:
    """Play a scene on a loop of its own."""
    loop = Loop()
    try:
        judge = Judge(loop, users)
        loop.run_until_complete(scene(judge, loop))
        judge.stop()
    finally:
        loop.close()


def test_own_hashes_are_argon2id_at_owasps_minimum() -> None:
    assert (MEMORY_KIB, ROUNDS, LANES) == (19 * 1024, 2, 1)
    assert SLOW.startswith(b"$argon2id$v=19$m=19456,t=2,p=1$")
    check_hash(ARGON2, SLOW)
    assert hash_argon2(b"right") != SLOW
    assert verify_argon2(SLOW, b"right")
    assert not verify_argon2(SLOW, b"wrong")
    assert not verify_argon2(b"$argon2id$v=19$m=19456,t=2,p=1$x$x", b"right")


def test_nobodys_hash_costs_what_ours_do() -> None:
    check_hash(ARGON2, NOBODY)
    assert NOBODY.split(b"$")[:4] == SLOW.split(b"$")[:4]
    assert len(NOBODY) == len(SLOW)


def test_right_passwords_are_verified_once(users: Users) -> None:
    async def scene(judge: Judge, loop: Loop) -> None:
        assert await judge.judge("slow", b"right")
        assert await judge.judge("slow", b"right")
        assert await judge.judge("fast", b"right")
        assert judge.verified == 1
        assert judge.runs == 1

    run(users, scene)


@pytest.mark.parametrize("user", ["slow", "fast", "empty", "blank", "nobody"])
@pytest.mark.parametrize("password", [b"wrong", b"", b"\xff" * 300])
def test_each_failure_costs_one_slow_hash(users: Users, user: str, password: bytes) -> None:
    async def scene(judge: Judge, loop: Loop) -> None:
        for number in (1, 2):
            assert not await judge.judge(user, password)
            assert judge.verified == number

    run(users, scene)


def test_user_and_password_are_kept_apart(users: Users) -> None:
    users.put(User("slowr", hash_argon2(b"ight"), [], ARGON2))

    async def scene(judge: Judge, loop: Loop) -> None:
        assert await judge.judge("slow", b"right")
        assert await judge.judge("slowr", b"ight")
        assert not await judge.judge("slowri", b"ght")
        assert judge.verified == 3

    run(users, scene)


def test_many_logins_at_once_cost_one_hash(users: Users) -> None:
    async def scene(judge: Judge, loop: Loop) -> None:
        judge.gate.clear()
        asked = [asyncio.ensure_future(judge.judge("slow", b"right")) for _ in range(1000)]
        await asyncio.sleep(0)
        judge.gate.set()
        assert all(await asyncio.gather(*asked))
        assert judge.verified == 1

    run(users, scene)


def test_memory_ends_with_the_password_and_the_user(users: Users) -> None:
    async def scene(judge: Judge, loop: Loop) -> None:
        assert await judge.judge("slow", b"right")
        users.change_password("slow", hash_argon2(b"other"), ARGON2)
        assert not await judge.judge("slow", b"right")
        assert await judge.judge("slow", b"other")
        users.delete("slow")
        assert not await judge.judge("slow", b"other")
        users.put(User("slow", hash_password(b"salt", b"third"), [], SHA256))
        assert not await judge.judge("slow", b"other")

    run(users, scene)


def test_change_while_a_thread_verifies(users: Users) -> None:
    async def scene(judge: Judge, loop: Loop) -> None:
        judge.gate.clear()
        asked = asyncio.ensure_future(judge.judge("slow", b"right"))
        await asyncio.sleep(0)
        users.delete("slow")
        judge.gate.set()
        assert not await asked

    run(users, scene)


def test_memory_ends_with_time(users: Users) -> None:
    async def scene(judge: Judge, loop: Loop) -> None:
        assert await judge.judge("slow", b"right")
        loop.ahead += LOGINS_REMEMBERED_SECONDS - 1
        assert await judge.judge("slow", b"right")
        assert judge.verified == 1
        loop.ahead += 2
        assert await judge.judge("slow", b"right")
        assert judge.verified == 2

    run(users, scene)


def test_memory_is_bounded_and_forgets_the_oldest(users: Users) -> None:
    async def scene(judge: Judge, loop: Loop) -> None:
        assert await judge.judge("slow", b"right")
        for number in range(LOGINS_REMEMBERED_MAX):
            judge.remember(f"user {number}", b"right", SLOW)
        assert len(judge.remembered) == LOGINS_REMEMBERED_MAX
        assert await judge.judge("slow", b"right")
        assert judge.verified == 2

    run(users, scene)


class Gone(Login):
    """A login whose connection is gone before a thread has time for it."""

    there = False

    def go_on(self) -> None:
        pass

    def wanted(self) -> bool:
        return self.there


def test_who_comes_after_all_others_went_is_judged(users: Users) -> None:
    async def scene(judge: Judge, loop: Loop) -> None:
        judge.gate.clear()
        gone = Gone("slow", b"right")
        judge.begin(gone)
        judge.gate.set()
        # The thread finds nobody who waits; by the time the loop hears of it somebody does.
        while judge.through == 0:
            continue
        assert await judge.judge("slow", b"right")
        assert not gone.answered or gone.accepted

    run(users, scene)


def test_nothing_is_verified_for_nobody(users: Users) -> None:
    async def scene(judge: Judge, loop: Loop) -> None:
        gone = Gone("slow", b"wrong")
        judge.begin(gone)
        await judge.heard.wait()
        assert not gone.answered
        assert judge.asked == {}

    run(users, scene)


def test_hashing_beside_the_loop(users: Users) -> None:
    async def scene(judge: Judge, loop: Loop) -> None:
        assert verify_argon2(await judge.hash(b"new"), b"new")

    run(users, scene)


class Broken(Judge):
    """A judge that meets what nobody expects."""

    def verify_slowly(self, password_hash: bytes, password: bytes) -> bool:
        raise ZeroDivisionError("no hash")


def test_what_nobody_expected_ends_the_login_and_no_other(users: Users) -> None:
    async def scene() -> None:
        judge = Broken(asyncio.get_running_loop(), users)
        for _ in range(2):
            # The second one is judged anew, and does not wait for the first for ever.
            with pytest.raises(ZeroDivisionError, match="no hash"):
                await judge.judge("slow", b"right")
        assert await judge.judge("fast", b"right")
        node = Node()
        node.logins = judge
        peer = node.dial()
        peer.send(PROTOCOL_HEADER)
        peer.expect(0, "connection.start")
        judge.heard.clear()
        response = b"\0slow\0right"
        peer.send(
            method(0, "connection.start-ok", mechanism="PLAIN", response=response, locale="en_US")
        )
        await judge.heard.wait()
        node.run()
        assert peer.expect(0, "connection.close").code == 541
        judge.stop()

    asyncio.run(scene())
