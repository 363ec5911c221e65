"""Bodies of requests have a share of the memory: what is large waits for another time."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.broker.scheduler.accounts import Accounts
from leveret.limits import REQUEST_SHARE
from leveret.management.requests.share import HTTP_BODY_SMALL_BYTES, Booking, RequestShare
from support.brokers.broker_process import BrokerProcess
from support.http.http_streams import http_port

#: The limit of the broker's memory, and what a large body takes of its share.
MEMORY_BYTES = 8 << 20
LARGE = MEMORY_BYTES // REQUEST_SHARE * 3 // 4

CREDENTIALS = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


@pytest.fixture
def accounts() -> Accounts:
    accounts = Accounts()
    accounts.request_bytes_max = 1_000_000
    return accounts


def test_large_bodies_have_the_share_together_and_a_user_half_of_it(accounts: Accounts) -> None:
    share = RequestShare(accounts)
    assert share.take("a", 300_000)
    assert not share.take("a", 200_001)
    assert share.take("a", 200_000)
    assert share.take("b", 500_000)
    assert not share.take("c", 100_000)
    share.give_back("a", 300_000)
    assert share.take("c", 300_000)
    assert accounts.request_bytes == 1_000_000
    share.give_back("a", 200_000)
    share.give_back("b", 500_000)
    share.give_back("c", 300_000)
    assert accounts.request_bytes == 0


def test_one_that_is_larger_than_the_share_has_its_time_alone(accounts: Accounts) -> None:
    share = RequestShare(accounts)
    assert share.take("a", 2_000_000)
    assert not share.take("a", 100_000)
    assert not share.take("b", 100_000)
    share.give_back("a", 2_000_000)
    assert share.take("b", 100_000)
    assert not share.take("a", 2_000_000)


def test_small_bodies_are_booked_and_never_refused(accounts: Accounts) -> None:
    share = RequestShare(accounts)
    assert share.take("a", 2_000_000)
    assert share.take("b", HTTP_BODY_SMALL_BYTES)
    assert not share.take("b", HTTP_BODY_SMALL_BYTES + 1)
    assert accounts.request_bytes == 2_000_000 + HTTP_BODY_SMALL_BYTES
    share.give_back("b", HTTP_BODY_SMALL_BYTES)
    assert accounts.request_bytes == 2_000_000


def test_a_request_grows_into_what_others_leave_of_the_share(accounts: Accounts) -> None:
    """What it has already is not held against it: alone, it may be as large as it likes."""
    share = RequestShare(accounts)
    one, other, of_another = Booking(share, "a"), Booking(share, "a"), Booking(share, "b")
    assert one.add(HTTP_BODY_SMALL_BYTES)
    assert other.add(HTTP_BODY_SMALL_BYTES)
    assert one.add(400_000)
    assert other.add(1) is False
    assert of_another.add(500_000)
    assert of_another.add(100_000) is False
    assert one.add(100_000) is False
    one.end()
    other.end()
    assert accounts.request_bytes == 500_000
    assert of_another.add(2_000_000)
    of_another.end()
    assert accounts.request_bytes == 0
    assert share.take("c", 1_000_000)


def test_without_a_limit_all_are_booked() -> None:
    accounts = Accounts()
    share = RequestShare(accounts)
    assert all(share.take("a", 1 << 30) for _ in range(3))
    assert accounts.total() == 3 << 30


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of HTTP of a broker with little memory."""
    settings = {"memory_bytes_max": str(MEMORY_BYTES)}
    with BrokerProcess(tmp_path, settings=settings) as broker:
        yield http_port(broker)


def ask(port: int, body: bytes | None) -> tuple[int, http.client.HTTPMessage]:
    """Set a global parameter; return status and headers of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("PUT", "/api/global-parameters/p", body, CREDENTIALS)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.headers


def requests_row(port: int) -> int:
    """What the account says of bodies."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/api/memory", None, CREDENTIALS)
    rows = json.loads(connection.getresponse().read())
    connection.close()
    (found,) = [row["bytes"] for row in rows if row["kind"] == "requests"]
    return int(found)


def test_a_large_body_that_comes_slowly_keeps_others_out_and_is_booked(port: int) -> None:
    slow = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    slow.putrequest("PUT", "/api/global-parameters/slow")
    slow.putheader("Authorization", CREDENTIALS["Authorization"])
    slow.putheader("Content-Length", str(LARGE))
    slow.putheader("Expect", "100-continue")
    slow.endheaders()
    # The broker tells it to send when the body is booked.
    assert slow.sock.recv(100).startswith(b"HTTP/1.1 100 ")
    assert requests_row(port) == LARGE
    status, headers = ask(port, b" " * LARGE)
    assert (status, headers["Retry-After"]) == (503, "5")
    assert ask(port, b'{"value": 1}')[0] in (201, 204)
    slow.send(b" " * LARGE)
    answer = slow.getresponse()
    answer.read()
    assert answer.status == 400
    assert requests_row(port) == 0
    assert ask(port, b" " * LARGE)[0] == 400
    slow.close()
