"""Sessions of the broker's page: whose they are, when they end, and who else could use them."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.clock import ManualClock
from leveret.limits import (
    HTTP_LOGIN_BYTES_MAX,
    HTTP_SESSION_IDLE_SECONDS_MAX,
    HTTP_SESSION_SECONDS_MAX,
    HTTP_SESSIONS_MAX,
    HTTP_SESSIONS_PER_USER_MAX,
)
from leveret.management.login.sessions import Sessions
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import unique
from support.brokers.secure import read_all
from support.http.http_api import Api
from support.http.http_streams import basic, http_port

PAGE = {"X-Requested-With": "leveret"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Browser:
    """A connection that keeps the cookie it is told."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.cookie = ""
        self.headers: http.client.HTTPMessage

    def ask(
        self, method: str, path: str, body: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Return status and JSON of an answer; a name of a header has `_` for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent.setdefault("Cookie", self.cookie)
        self.http.request(method, path, body, sent)
        answer = self.http.getresponse()
        self.headers = answer.headers
        text = answer.read()
        return answer.status, json.loads(text) if text else None

    def log_in(self, user: str, password: str, **headers: str) -> tuple[int, Any]:
        """Send the form, and keep the cookie."""
        body = urllib.parse.urlencode({"username": user, "password": password})
        self.cookie = ""
        status, answer = self.ask("POST", "/api/login", body, **{**FORM, **PAGE, **headers})
        self.cookie = self.headers.get("Set-Cookie", "").partition(";")[0]
        return status, answer


@pytest.fixture
def browser(broker: BrokerProcess) -> Iterator[Browser]:
    found = Browser(http_port(broker))
    yield found
    found.http.close()


@pytest.fixture
def user(api: Api) -> Iterator[str]:
    """An administrator with the password `secret`."""
    name = unique("Ünicode:user")
    assert api.change("PUT", place(name), {"password": "secret", "tags": "administrator"}) == 201
    yield name
    api.ask("DELETE", place(name))


def place(name: str) -> str:
    return f"/api/users/{urllib.parse.quote(name, safe='')}"


def test_a_form_begins_a_session_and_its_cookie_stands_for_the_password(
    browser: Browser, user: str
) -> None:
    assert browser.log_in(user, "secret") == (
        200,
        {"name": user, "tags": ["administrator"], "is_internal_user": True},
    )
    cookie = browser.headers["Set-Cookie"]
    assert cookie.startswith(f"leveret-session-{browser.port}=")
    words = set(cookie.split("; ")[1:])
    assert words == {"HttpOnly", "SameSite=Strict"}
    status, answer = browser.ask("GET", "/api/whoami")
    assert (status, answer["name"]) == (200, user)
    body = json.dumps({"value": 1})
    assert browser.ask("PUT", "/api/global-parameters/tried", body, **PAGE)[0] in (201, 204)
    assert browser.ask("DELETE", "/api/global-parameters/tried", **PAGE)[0] == 204


def test_credentials_begin_one_too(browser: Browser) -> None:
    assert browser.ask("POST", "/api/login", **basic("guest", "guest"))[0] == 200
    browser.cookie = browser.headers["Set-Cookie"].partition(";")[0]
    assert browser.ask("GET", "/api/whoami")[1]["name"] == "guest"


OUR_HOSTS = (
    "localhost",
    "LocalHost.:15672",
    "broker.localhost:1",
    "127.0.0.1",
    "192.0.2.7:15672",
    "[::1]:15672",
    "[2001:db8::1]",
    socket.gethostname(),
)

#: Of other sites, or of none.
THEIR_HOSTS = (
    "evil.example",
    "Evil.Example.:15672",
    "localhost.evil.example",
    "evillocalhost",
    "127.0.0.1.evil.example",
    "guest@localhost",
    "localhost:port",
    "[::1",
    "[evil.example]",
    "2130706433",
    "localhost, evil.example",
    # As one byte, which is no UTF-8.
    "\xbblocalhost",
)


def test_loopback_users_ask_for_a_host_that_is_this_machine(
    browser: Browser, user: str, broker: BrokerProcess
) -> None:
    """A page whose name leads to 127.0.0.1 is of the broker's own site to a browser."""
    guest = basic("guest", "guest")
    for host in OUR_HOSTS:
        assert browser.ask("GET", "/api/overview", Host=host, **guest)[0] == 200, host
    for host in THEIR_HOSTS:
        status, answer = browser.ask("GET", "/api/overview", Host=host, **guest)
        assert (status, answer["error"]) == (421, "misdirected_request"), host
        assert "http_hosts" in answer["reason"]
    evil = {
        "Host": "evil.example",
        "Origin": "http://evil.example",
        "Sec-Fetch-Site": "same-origin",
    }
    assert browser.log_in("guest", "guest", **evil)[0] == 421
    # Passwords cannot be tried either, and what has no user is for everybody.
    assert browser.ask("GET", "/api/whoami", **evil, **basic("guest", "wrong"))[0] == 421
    assert browser.ask("PUT", "/api/vhosts/evil", "{}", **evil, **guest)[0] == 421
    assert browser.log_in(user, "secret", **evil)[0] == 200
    assert browser.ask("GET", "/api/overview", **evil)[0] == 200
    assert browser.log_in("guest", "guest")[0] == 200
    assert browser.ask("GET", "/api/whoami", **evil)[0] == 421
    assert browser.ask("GET", "/api/whoami")[0] == 200
    assert "user 'guest'" in broker.expect_line("HTTP login refused: ")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET http://evil.example/api/whoami HTTP/1.1\r\nHost: localhost", b"421"),
        ("GET http://localhost/api/whoami HTTP/1.1\r\nHost: evil.example", b"421"),
        ("GET http://u@localhost/api/whoami HTTP/1.1\r\nHost: localhost", b"421"),
        ("GET http://localhost/api/whoami HTTP/1.1\r\nHost: localhost", b"200"),
        ("GET /api/whoami HTTP/1.0", b"200"),
    ],
)
def test_a_target_names_a_host_too_and_no_browser_names_none(
    broker: BrokerProcess, head: str, status: bytes
) -> None:
    login = basic("guest", "guest")["Authorization"]
    with socket.create_connection(("127.0.0.1", http_port(broker)), 120) as client:
        client.sendall(f"{head}\r\nAuthorization: {login}\r\nConnection: close\r\n\r\n".encode())
        assert read_all(client).split(b" ")[1] == status


def test_the_cookie_is_for_tls_alone_where_tls_ends_before_the_broker(browser: Browser) -> None:
    assert browser.log_in("guest", "guest", X_Forwarded_Proto="https")[0] == 200
    assert "; Secure" in browser.headers["Set-Cookie"]


def test_credentials_count_more_than_a_cookie(browser: Browser, user: str) -> None:
    browser.log_in(user, "secret")
    assert browser.ask("GET", "/api/whoami", **basic("guest", "guest"))[1]["name"] == "guest"
    assert browser.ask("GET", "/api/whoami", **basic("guest", "wrong"))[0] == 401


@pytest.mark.parametrize(
    "body",
    [
        "", "username=guest", "password=guest", "username=guest&password=guest&" + "a=1&" * 8,
        "username=%ff&password=guest", "username=guest&password=wrong", "username=&password=",
        "username=guest&password=" + "x" * HTTP_LOGIN_BYTES_MAX, "{}",
    ],
)  # fmt: skip
def test_what_is_no_login_is_refused(browser: Browser, body: str) -> None:
    assert browser.ask("POST", "/api/login", body, **FORM, **PAGE)[0] == 401
    assert browser.headers["Set-Cookie"] is None
    assert browser.headers["WWW-Authenticate"] is None


@pytest.mark.parametrize("size", [HTTP_LOGIN_BYTES_MAX, HTTP_LOGIN_BYTES_MAX + 1])
def test_a_form_has_a_limit(browser: Browser, size: int) -> None:
    body = "username=guest&password=guest&more="
    body += "x" * (size - len(body))
    status, _ = browser.ask("POST", "/api/login", body, **FORM, **PAGE)
    assert status == (200 if size <= HTTP_LOGIN_BYTES_MAX else 401)


def test_a_form_counts_for_a_login_alone(browser: Browser) -> None:
    body = "username=guest&password=guest"
    for path in ("/api/logout", "/api/definitions", "/api/queues/%2F/x/get"):
        assert browser.ask("POST", path, body, **FORM, **PAGE)[0] == 401, path


def test_a_page_is_not_asked_for_credentials_by_the_browser(browser: Browser) -> None:
    assert browser.ask("GET", "/api/whoami")[0] == 401
    assert browser.headers["WWW-Authenticate"].startswith("Basic")
    for headers in (PAGE, {"Sec-Fetch-Dest": "empty"}, {"Accept": "text/event-stream"}):
        assert browser.ask("GET", "/api/whoami", **headers)[0] == 401
        assert browser.headers["WWW-Authenticate"] is None


FORGED = "/api/global-parameters/forged"
VALUE = '{"value": 1}'


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"X-Requested-With": ""},
        {**PAGE, "Origin": "http://evil.example"}, {**PAGE, "Origin": "null"},
        {**PAGE, "Origin": "http://127.0.0.1:1"}, {**PAGE, "Origin": "http://[broken"},
        {**PAGE, "Sec-Fetch-Site": "cross-site"}, {**PAGE, "Sec-Fetch-Site": "same-site"},
    ],
)  # fmt: skip
def test_another_sites_page_changes_nothing_by_a_session(
    browser: Browser, api: Api, headers: dict[str, str]
) -> None:
    assert browser.log_in("guest", "guest")[0] == 200
    assert browser.ask("PUT", FORGED, VALUE, **headers)[0] == 403
    assert browser.ask("POST", "/api/logout", **headers)[0] == 403
    assert api.ask("GET", FORGED)[0] == 404
    assert browser.ask("GET", "/api/whoami")[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_sites_page_reads_nothing_by_a_session(browser: Browser, site: str) -> None:
    assert browser.log_in("guest", "guest")[0] == 200
    assert browser.ask("GET", "/api/whoami", Sec_Fetch_Site=site)[0] == 403


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_it_changes_nothing_by_credentials_that_a_browser_keeps(
    browser: Browser, headers: dict[str, str]
) -> None:
    assert browser.ask("PUT", FORGED, VALUE, **basic("guest", "guest"), **headers)[0] == 403


def test_it_cannot_log_somebody_in(browser: Browser) -> None:
    body = "username=guest&password=guest"
    assert browser.ask("POST", "/api/login", body, **FORM)[0] == 403
    assert browser.ask("POST", "/api/login", body, **FORM, **PAGE, Origin="http://x")[0] == 403
    assert browser.headers["Set-Cookie"] is None


def test_the_page_itself_changes_things_also_behind_a_proxy(browser: Browser) -> None:
    assert browser.log_in("guest", "guest", Origin=f"http://127.0.0.1:{browser.port}")[0] == 200
    for headers in (
        {"Origin": f"http://127.0.0.1:{browser.port}"},
        {"Origin": "https://broker.example", "X-Forwarded-Host": "broker.example"},
        {"Origin": "https://broker.example", "Sec-Fetch-Site": "same-origin"},
    ):
        assert browser.ask("PUT", FORGED, VALUE, **PAGE, **headers)[0] in (201, 204)
    assert browser.ask("DELETE", FORGED, **PAGE)[0] == 204


def test_a_logout_ends_the_session_and_no_other(browser: Browser) -> None:
    browser.log_in("guest", "guest")
    other = browser.cookie
    browser.log_in("guest", "guest")
    assert browser.ask("POST", "/api/logout", **PAGE)[0] == 204
    assert "Max-Age=0" in browser.headers["Set-Cookie"]
    assert browser.ask("GET", "/api/whoami", **PAGE)[0] == 401
    assert browser.ask("GET", "/api/whoami", Cookie=other)[0] == 200


def test_a_session_ends_with_the_password_and_with_the_user(
    browser: Browser, api: Api, user: str
) -> None:
    browser.log_in(user, "secret")
    body = {"password": "secret", "tags": "administrator"}
    assert api.change("PUT", place(user), body) == 204
    # Even the same password: it was set anew.
    assert browser.ask("GET", "/api/whoami")[0] == 401
    browser.log_in(user, "secret")
    assert api.change("DELETE", place(user)) == 204
    assert api.change("PUT", place(user), body) == 201
    assert browser.ask("GET", "/api/whoami")[0] == 401


def test_a_session_has_the_rights_that_its_user_has_now(
    browser: Browser, api: Api, user: str
) -> None:
    browser.log_in(user, "secret")
    assert browser.ask("GET", "/api/users")[0] == 200
    hashed = api.ask("GET", place(user))[1]
    assert isinstance(hashed, dict)
    body = {key: hashed[key] for key in ("password_hash", "hashing_algorithm")}
    assert api.change("PUT", place(user), {**body, "tags": "management"}) == 204
    assert browser.ask("GET", "/api/users")[0] == 401


def test_no_other_token_is_a_session(browser: Browser) -> None:
    browser.log_in("guest", "guest")
    name, _, token = browser.cookie.partition("=")
    for other in ("", "x", token[:-1], token + "x", "x" * 5000, f"{token}\xff", '"'):
        assert browser.ask("GET", "/api/whoami", Cookie=f"{name}={other}")[0] == 401, other


def test_what_a_session_reads_ends_where_another_takes_its_place(
    browser: Browser, user: str
) -> None:
    browser.log_in(user, "secret")
    asked = {"Cookie": browser.cookie, "Accept": "text/event-stream"}
    log = http.client.HTTPConnection("127.0.0.1", browser.port, timeout=120)
    log.request("GET", "/api/log/stream", headers=asked)
    stream = log.getresponse()
    assert stream.status == 200
    for _ in range(HTTP_SESSIONS_PER_USER_MAX):
        assert browser.log_in(user, "secret")[0] == 200
    # Chunked: an end that nobody announced is an error.
    with pytest.raises((http.client.HTTPException, OSError)):
        stream.read()
    log.close()


# -- when they end -------------------------------------------------------------------------------

LOGIN = (b"hash", "algorithm")


def test_a_session_ends_unused() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    token = sessions.begin("u", LOGIN)
    clock.advance(HTTP_SESSION_IDLE_SECONDS_MAX * 1000 - 1)
    session = sessions.find(token)
    assert session is not None
    clock.advance(HTTP_SESSION_IDLE_SECONDS_MAX * 1000 - 1)
    assert sessions.holds(session)
    clock.advance(1)
    assert not sessions.holds(session)
    assert sessions.find(token) is None
    assert len(sessions) == 0


def test_a_session_ends_however_much_it_is_used() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    token = sessions.begin("u", LOGIN)
    step = HTTP_SESSION_IDLE_SECONDS_MAX * 1000 // 2
    for _ in range(HTTP_SESSION_SECONDS_MAX * 1000 // step - 1):
        clock.advance(step)
        assert sessions.find(token) is not None
    clock.advance(step)
    assert sessions.find(token) is None


def test_one_more_session_of_a_user_ends_the_one_that_he_used_least() -> None:
    sessions = Sessions(ManualClock())
    first, second = sessions.begin("u", LOGIN), sessions.begin("u", LOGIN)
    other = sessions.begin("other", LOGIN)
    for _ in range(HTTP_SESSIONS_PER_USER_MAX - 2):
        sessions.begin("u", LOGIN)
    assert sessions.find(first) is not None
    sessions.begin("u", LOGIN)
    assert sessions.find(second) is None
    assert sessions.find(first) is not None
    assert sessions.find(other) is not None


def test_there_are_no_more_sessions_than_the_limit() -> None:
    sessions = Sessions(ManualClock())
    tokens = [sessions.begin(f"user-{number}", LOGIN) for number in range(HTTP_SESSIONS_MAX)]
    assert sessions.find(tokens[0]) is not None
    sessions.begin("one more", LOGIN)
    assert len(sessions) == HTTP_SESSIONS_MAX
    assert sessions.find(tokens[1]) is None
    assert sessions.find(tokens[0]) is not None


def test_users_with_many_sessions_end_their_own_and_not_those_of_others() -> None:
    sessions = Sessions(ManualClock())
    token = sessions.begin("operator", LOGIN)
    for number in range(2 * HTTP_SESSIONS_MAX):
        sessions.begin(f"user-{number % (HTTP_SESSIONS_MAX // 8)}", LOGIN)
    assert len(sessions) == HTTP_SESSIONS_MAX
    assert sessions.find(token) is not None
