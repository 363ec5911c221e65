"""A flood of wrong logins keeps no right one out, counted in passwords that are verified."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.users.users import ARGON2, User, Users
from leveret.limits import (
    LOGINS_WAITING_MAX,
    LOGINS_WAITING_PER_NETWORK_MAX,
    LOGINS_WAITING_PER_USER_MAX,
    SHORT_STRING_BYTES_MAX,
)
from leveret.server.authentication import THREADS, PasswordAuthenticator, hash_argon2
from leveret.server.backoff import (
    HALVES_SECONDS,
    LOGIN_BACKOFF_MAX,
    LOGIN_NETWORKS_KNOWN_MAX,
    LOGIN_PAIRS_KNOWN_MAX,
    LOGINS_KNOWN_SECONDS,
    NETWORK_REFUSALS,
    PAIR_REFUSALS,
    LoginThrottle,
)
from leveret.server.login_queue import NETWORK_KNOWN, PAIR_KNOWN, UNKNOWN, LoginQueue
from leveret.session.authentication import Authenticator, Login
from leveret.session.states import CLOSED
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.node.core import Node, Peer
from support.wire import raw
from support.wire.raw_codec import PROTOCOL_HEADER, method

RIGHT = hash_argon2(b"right")

#: As many passwords are verified while a refused login waits: 20 ms each, in 3 s.
DELAY_STEPS = 150


class Judge(PasswordAuthenticator):
    """Verifies one password after the other when it is told to, and counts them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, users: Users) -> None:
        super().__init__(loop, users, lambda: None)
        self.steps = threading.Semaphore(0)
        self.heard = asyncio.Event()
        #: Who comes again, and after how many verified passwords.
        self.returning: list[tuple[int, Login]] = []

    def _answer(self, place: bytes, password_hash: bytes, right: bool | None) -> None:
        super()._answer(place, password_hash, right)
        self.heard.set()

    async def step(self) -> None:
        """Verify one password; those whose delay is over by then come again."""
        before = self.passwords_verified
        self.steps.release()
        while self.passwords_verified == before:
            await self.heard.wait()
            self.heard.clear()
        due = [login for at, login in self.returning if at <= self.passwords_verified]
        self.returning = [one for one in self.returning if one[0] > self.passwords_verified]
        for login in due:
            self.begin(login)
        await asyncio.sleep(0)

    def verify_slowly(self, password_hash: bytes, password: bytes) -> bool:
        self.steps.acquire()
        return password == b"right"


@pytest.fixture
def users() -> Users:
    users = Node().broker.users
    for name in ("right", "other"):
        users.put(User(name, RIGHT, [], ARGON2))
    return users


def play(users: Users, scene: Callable[[Judge], Awaitable[None]]) -> None:
    """Play a scene on a loop of its own."""

    async def run() -> None:
        judge = Judge(asyncio.get_running_loop(), users)
        try:
            await scene(judge)
        finally:
            judge.steps.release(10_000)
            judge.stop()

    asyncio.run(run())


class Flooder(Login):
    """One of a flood, who tries again as soon as he hears that he was refused."""

    def __init__(self, judge: Judge, network: str, user: str, number: int) -> None:
        super().__init__(user, b"wrong %d" % number, network)
        self.judge = judge
        self.number = number

    def go_on(self) -> None:
        again = Flooder(self.judge, self.network, self.user, self.number + 1_000_000)
        self.judge.returning.append((self.judge.passwords_verified + DELAY_STEPS, again))


async def steps_of(judge: Judge, asked: asyncio.Future[bool | None]) -> int:
    """Verify one password after the other until an answer is there; return how many."""
    await asyncio.sleep(0)
    for count in range(10_000):
        if asked.done():
            return count
        await judge.step()
    raise AssertionError("no answer")


def flood(judge: Judge, network: Callable[[int], str], user: Callable[[int], str]) -> None:
    """Have 1,000 log in at once with wrong passwords."""
    for number in range(1000):
        judge.begin(Flooder(judge, network(number), user(number), number))


FLOODS: dict[str, tuple[Callable[[int], str], Callable[[int], str], int]] = {
    # From where, for whom, and how many are verified before the right one at most.
    "elsewhere": (lambda _: "2.2.2.2", lambda _: "right", 4),
    "elsewhere-many-users": (lambda _: "2.2.2.2", lambda n: f"u{n}", 4),
    "ten-addresses": (lambda n: f"2.2.2.{n % 10}", lambda _: "right", 4),
    "many-addresses": (lambda n: f"2.2.{n // 250}.{n % 250}", lambda _: "right", 4),
    "same-address-other-user": (lambda _: "1.1.1.1", lambda _: "other", 4),
    "same-address-many-users": (lambda _: "1.1.1.1", lambda n: f"u{n}", 4),
    "same-address-same-user": (lambda _: "1.1.1.1", lambda _: "right", 4),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_right_login_behind_a_flood(users: Users, kind: str) -> None:
    """Who is refused hears so after the delay and tries again; the right one waited for all."""
    network, user, most = FLOODS[kind]

    async def scene(judge: Judge) -> None:
        flood(judge, network, user)
        asked = asyncio.ensure_future(judge.judge("right", b"right", "1.1.1.1"))
        assert await steps_of(judge, asked) <= most + THREADS
        assert asked.result() is True

    play(users, scene)


@pytest.mark.parametrize("kind", FLOODS)
def test_who_has_logged_in_before_waits_for_few(users: Users, kind: str) -> None:
    """Also when what is remembered of his password is gone, and whatever comes after him."""
    network, user, _ = FLOODS[kind]
    if kind == "same-address-same-user":
        # That is a flood of his own pair.
        return

    async def scene(judge: Judge) -> None:
        judge.steps.release()
        assert await judge.judge("right", b"right", "1.1.1.1")
        judge.remembered.clear()
        flood(judge, network, user)
        asked = asyncio.ensure_future(judge.judge("right", b"right", "1.1.1.1"))
        await asyncio.sleep(0)
        flood(judge, network, user)
        assert await steps_of(judge, asked) <= 3 + THREADS
        assert asked.result() is True

    play(users, scene)


def test_an_address_from_which_somebody_came_has_turns_of_its_own(users: Users) -> None:
    """Behind many addresses from which nobody ever logged in, though more come after him."""

    async def scene(judge: Judge) -> None:
        judge.steps.release()
        assert await judge.judge("other", b"right", "1.1.1.1")
        network, user, _ = FLOODS["many-addresses"]
        flood(judge, network, user)
        asked = asyncio.ensure_future(judge.judge("right", b"right", "1.1.1.1"))
        await asyncio.sleep(0)
        flood(judge, network, user)
        assert await steps_of(judge, asked) <= 3 + THREADS
        assert asked.result() is True

    play(users, scene)


def test_what_is_remembered_waits_for_nobody(users: Users) -> None:
    async def scene(judge: Judge) -> None:
        judge.steps.release()
        assert await judge.judge("right", b"right", "1.1.1.1")
        flood(judge, lambda _: "1.1.1.1", lambda _: "right")
        before = judge.passwords_verified
        assert await judge.judge("right", b"right", "3.3.3.3")
        assert judge.passwords_verified == before

    play(users, scene)


def test_a_flood_is_turned_away_and_counted(users: Users) -> None:
    """Nobody waits for ever, and no more wait than may."""

    class Counted(Login):
        def go_on(self) -> None:
            answers.append(self.turned_away)

    answers: list[bool] = []

    async def scene(judge: Judge) -> None:
        for number in range(1000):
            judge.begin(Counted("right", b"wrong %d" % number, "2.2.2.2"))
        await asyncio.sleep(0)
        waiting = LOGINS_WAITING_PER_USER_MAX + THREADS
        assert judge.counts() == {
            "logins_waiting": LOGINS_WAITING_PER_USER_MAX,
            "logins_refused": 0,
            "logins_turned_away": 1000 - waiting,
            "passwords_verified": 0,
            "amqp_logins_accepted": 0,
            "amqp_logins_refused": 0,
            "http_logins_accepted": 0,
            "http_logins_refused": 0,
        }
        assert answers == [True] * (1000 - waiting)
        assert len(judge.asked) == waiting
        for _ in range(waiting):
            await judge.step()
        assert len(answers) == 1000
        assert judge.counts()["logins_refused"] == judge.passwords_verified == waiting
        assert judge.asked == {}

    play(users, scene)


def test_one_password_from_two_addresses_is_verified_once(users: Users) -> None:
    """In the turn of whichever address has its first."""

    async def scene(judge: Judge) -> None:
        flood(judge, lambda _: "2.2.2.2", lambda _: "right")
        asked = [
            asyncio.ensure_future(judge.judge("right", b"right", network))
            for network in ("2.2.2.2", "1.1.1.1")
        ]
        assert await steps_of(judge, asked[1]) <= 4 + THREADS
        assert [await one for one in asked] == [True, True]

    play(users, scene)


# -- the queue ------------------------------------------------------------------------------------


def test_addresses_and_users_take_turns() -> None:
    queue = LoginQueue()
    for number in range(3):
        for network in ("a", "b"):
            for user in ("u", "v"):
                queue.put(network, user, b"%s %d" % ((network + user).encode(), number), UNKNOWN)
    order = [queue.take() for _ in range(12)]
    assert queue.take() is None
    assert len(queue) == 0
    # The newest of all, then of the address whose turn it is the newest, or of whose turn it is.
    assert [entry.place.decode() for entry in order if entry is not None] == [
        "bv 2", "av 2", "bu 2", "bv 1", "au 2", "au 1",
        "bu 1", "bu 0", "av 1", "av 0", "bv 0", "au 0",
    ]  # fmt: skip


def test_known_pairs_take_turns_with_all_others() -> None:
    queue = LoginQueue()
    for number in range(4):
        queue.put("a", "u", b"a %d" % number, UNKNOWN)
        queue.put("n", "u", b"n %d" % number, NETWORK_KNOWN)
        queue.put("k", "u", b"k %d" % number, PAIR_KNOWN)
    order = [queue.take() for _ in range(12)]
    assert "".join(entry.network for entry in order if entry is not None) == "kna" * 4


def test_who_has_the_most_is_turned_away() -> None:
    queue = LoginQueue()
    quiet = [queue.put("quiet", "u", b"%d" % number, UNKNOWN) for number in range(3)]
    assert quiet == [[]] * 3
    away = []
    for number in range(100 * LOGINS_WAITING_MAX):
        network = f"flood {number % 50}"
        away += queue.put(network, f"u{number % 7}", b"f %d" % number, UNKNOWN)
    assert len(queue) == LOGINS_WAITING_MAX
    assert not any(entry.network == "quiet" for entry in away)


PUTS = st.lists(
    st.one_of(
        st.tuples(
            st.integers(0, 4), st.integers(0, 3), st.integers(0, 400), st.integers(0, 2)
        ),
        st.none(),
    ),
    max_size=600,
)  # fmt: skip


@given(PUTS)
def test_nothing_is_lost_in_the_queue(puts: list[tuple[int, int, int, int] | None]) -> None:
    """Each that waits is taken once or turned away once, and no more wait than may."""
    queue = LoginQueue()
    waiting: dict[tuple[str, bytes], str] = {}
    for one in puts:
        if one is None:
            entry = queue.take()
            assert (entry is None) == (not waiting)
            if entry is not None:
                assert waiting.pop((entry.network, entry.place)) == entry.user
            continue
        network, user, number, standing = str(one[0]), str(one[1]), one[2], one[3]
        place = b"%s %d" % (user.encode(), number)
        waiting[network, place] = user
        for entry in queue.put(network, user, place, standing):
            del waiting[entry.network, entry.place]
        assert len(queue) == len(waiting)
    while (entry := queue.take()) is not None:
        del waiting[entry.network, entry.place]
    assert waiting == {}


def test_limits_of_an_address() -> None:
    queue = LoginQueue()
    for number in range(10 * LOGINS_WAITING_PER_NETWORK_MAX):
        queue.put("a", f"u{number % 20}", b"%d" % number, UNKNOWN)
    assert len(queue) == LOGINS_WAITING_PER_NETWORK_MAX
    queue = LoginQueue()
    for number in range(10 * LOGINS_WAITING_PER_USER_MAX):
        queue.put("a", "u", b"%d" % number, UNKNOWN)
    assert len(queue) == LOGINS_WAITING_PER_USER_MAX


# -- back-off -------------------------------------------------------------------------------------


class Seconds:
    """A clock by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_refusals_make_the_next_one_wait() -> None:
    """Of the pair, and of the address; never of the user alone, and not for ever."""
    seconds = Seconds()
    backoff = LoginThrottle(seconds)
    assert backoff.factor("a", "u") == 1
    for _ in range(PAIR_REFUSALS):
        backoff.refused("a", "u")
    assert backoff.factor("a", "u") == 2
    assert backoff.factor("a", "v") == 1
    assert backoff.factor("b", "u") == 1
    for _ in range(NETWORK_REFUSALS):
        backoff.refused("a", "w")
    assert backoff.factor("a", "v") == 2
    for _ in range(1000):
        backoff.refused("a", "u")
    assert backoff.factor("a", "u") == LOGIN_BACKOFF_MAX
    seconds.now += 10 * HALVES_SECONDS
    assert backoff.factor("a", "u") == 1


def test_a_right_login_forgives_its_pair() -> None:
    backoff = LoginThrottle(Seconds())
    for _ in range(50):
        backoff.refused("a", "u")
    backoff.accepted("a", "u")
    assert backoff.factor("a", "u") == 1


def test_names_that_nobody_can_have_are_kept_as_long_as_one_can_be() -> None:
    """A stranger's names may have kilobytes, and each refused one is remembered."""
    backoff = LoginThrottle(lambda: 0.0)
    for number in range(PAIR_REFUSALS):
        backoff.refused("10.0.0.1", "x" * SHORT_STRING_BYTES_MAX + str(number))
    assert len(backoff.pairs) == 1
    assert backoff.factor("10.0.0.1", "x" * 4000) == 2
    assert backoff.factor("10.0.0.1", "x" * (SHORT_STRING_BYTES_MAX - 1)) == 1


def test_what_is_remembered_of_logins_is_bounded() -> None:
    seconds = Seconds()
    backoff = LoginThrottle(seconds)
    for number in range(2 * LOGIN_PAIRS_KNOWN_MAX):
        backoff.refused(str(number), "u")
        backoff.accepted(str(number), "u")
        backoff.refused(str(number), "v")
    assert len(backoff.networks) == LOGIN_NETWORKS_KNOWN_MAX
    assert len(backoff.pairs) == LOGIN_PAIRS_KNOWN_MAX
    last = str(2 * LOGIN_PAIRS_KNOWN_MAX - 1)
    assert backoff.standing("0", "u") == UNKNOWN
    assert backoff.standing(last, "u") == PAIR_KNOWN
    assert backoff.standing(last, "v") == NETWORK_KNOWN
    seconds.now += LOGINS_KNOWN_SECONDS
    assert backoff.standing(last, "u") == UNKNOWN


# -- a connection ---------------------------------------------------------------------------------


class Verdict(Authenticator):
    """Turns each login away, or refuses it with a back-off."""

    def __init__(self, backoff: int) -> None:
        super().__init__()
        self._backoff = backoff

    def begin(self, login: Login) -> None:
        if self._backoff == 0:
            login.turn_away()
        else:
            login.backoff = self._backoff
            login.answer(False)


def asked(node: Node, backoff: int, tell: bool) -> Peer:
    """Log in at who judges so."""
    node.logins = Verdict(backoff)
    peer = node.dial()
    peer.send(PROTOCOL_HEADER)
    peer.expect(0, "connection.start")
    client = {"capabilities": {"authentication_failure_close": tell}}
    values = {"client_properties": client, "response": b"\0guest\0wrong", "locale": "en_US"}
    peer.send(method(0, "connection.start-ok", mechanism="PLAIN", **values))
    return peer


@pytest.mark.parametrize(("backoff", "seconds"), [(0, 3), (2, 3), (8, 21)])
def test_an_answer_comes_late_after_many_refusals(backoff: int, seconds: int) -> None:
    """To a client that wants to be told; usually it is told at once.

    Source: behaviour 3 (refused logins).
    """
    node = Node()
    peer = asked(node, backoff, tell=True)
    for _ in range(seconds - 1):
        node.tick(1000)
    assert peer.take() == []
    node.tick(1000)
    close = peer.expect(0, "connection.close")
    if backoff == 0:
        assert close.code == 320
        assert "too many logins wait" in close.text
        assert "try again later" in close.text
    else:
        assert close.code == 403
    peer.send(method(0, "connection.close-ok"))
    assert peer.connection.state == CLOSED


@pytest.mark.parametrize(("backoff", "seconds"), [(0, 3), (1, 3), (8, 24)])
def test_silence_lasts_longer_after_many_refusals(backoff: int, seconds: int) -> None:
    node = Node()
    peer = asked(node, backoff, tell=False)
    for _ in range(seconds - 1):
        node.tick(1000)
    assert peer.connection.state != CLOSED
    node.tick(1000)
    assert peer.connection.state == CLOSED
    assert peer.take() == []


# -- a real broker --------------------------------------------------------------------------------


def start_ok(user: str, password: str) -> bytes:
    response = f"\0{user}\0{password}".encode()
    values = {"client_properties": {}, "response": response, "locale": "en_US"}
    return PROTOCOL_HEADER + method(0, "connection.start-ok", mechanism="PLAIN", **values)


def counts(broker: BrokerProcess) -> dict[str, int]:
    """Return what the broker counts."""
    api = Api(broker.data_dir / "management.sock")
    _, nodes, _ = api.answer("/api/nodes")
    api.close()
    assert isinstance(nodes, list)
    found: dict[str, int] = nodes[0]
    return found


@pytest.mark.parametrize("over_http", [False, True], ids=["amqp", "http"])
@pytest.mark.parametrize("elsewhere", ["127.0.0.1", "127.0.0.2"])
def test_a_user_logs_in_while_strangers_guess(
    tmp_path: Path, over_http: bool, elsewhere: str
) -> None:
    """500 at once, from his own address too; he has never logged in before."""
    # Who is refused waits for long, so that it stays one flood.
    with (
        BrokerProcess(tmp_path / "data", settings={"login_failure_delay_ms": "60000"}) as broker,
        contextlib.ExitStack() as opened,
    ):
        http = int(broker.expect_line("listening on http://").rsplit(":", 1)[1])
        api = Api(broker.data_dir / "management.sock")
        user = {"password": "late", "tags": ""}
        assert api.change("PUT", "/api/users/late", user) == 201
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        assert api.change("PUT", "/api/permissions/%2F/late", everything) == 201
        api.close()
        for number in range(500):
            place = ("127.0.0.1", http if over_http else broker.port)
            sock = socket.create_connection(place, source_address=(elsewhere, 0))
            opened.callback(sock.close)
            if over_http:
                sock.sendall(
                    b"GET /api/streams/%2F HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic "
                    + _basic(f"guest:{number}") + b"\r\n\r\n"
                )  # fmt: skip
            else:
                sock.sendall(start_ok("guest", str(number)))
        before = counts(broker)["passwords_verified"]
        raw.connect(broker.uri, raw.Login("late", "late")).close()
        assert counts(broker)["passwords_verified"] - before <= LOGINS_WAITING_PER_NETWORK_MAX
        assert counts(broker)["logins_turned_away"] > 0


def _basic(text: str) -> bytes:
    return base64.b64encode(text.encode())
