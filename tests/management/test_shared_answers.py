"""Pages that ask for the same within a moment are told the same; everybody else is told what is."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

from leveret.management.sampling.sampler import (
    SHARED_ANSWER_MS_MAX,
    SHARED_ANSWERS_MAX,
    SharedAnswers,
)
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.http.http_streams import HttpUser, basic, http_port

PAGE = {**basic("guest", "guest"), "X-Requested-With": "leveret"}


class Clock:
    """The wall time, as a test sets it."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def test_an_answer_is_shared_up_to_its_age() -> None:
    clock = Clock()
    answers = SharedAnswers(clock.now_ms)
    kept = answers.keep("/api/overview", b"[1]")
    clock.ms += SHARED_ANSWER_MS_MAX - 1
    assert answers.find("/api/overview") is kept
    assert answers.find("/api/overview?columns=node") is None
    clock.ms += 1
    assert answers.find("/api/overview") is None


def test_no_answer_is_shared_after_the_clock_was_set_back() -> None:
    clock = Clock()
    answers = SharedAnswers(clock.now_ms)
    answers.keep("/api/overview", b"[1]")
    clock.ms -= 1
    assert answers.find("/api/overview") is None


def test_there_are_so_many_answers_at_most() -> None:
    clock = Clock()
    answers = SharedAnswers(clock.now_ms)
    for number in range(SHARED_ANSWERS_MAX):
        answers.keep(f"/{number}", b"")
    assert len(answers) == SHARED_ANSWERS_MAX
    assert answers.find("/0") is not None
    answers.keep("/more", b"")
    assert len(answers) == SHARED_ANSWERS_MAX
    assert answers.find("/0") is None
    clock.ms += SHARED_ANSWER_MS_MAX
    answers.keep("/alone", b"")
    assert len(answers) == 1


def test_an_answer_is_compressed_once() -> None:
    answer = SharedAnswers(Clock().now_ms).keep("/", b"[1]" * 1000)
    assert gzip.decompress(answer.compressed) == answer.body
    assert answer.compressed is answer.compressed


@pytest.fixture
def user(broker: BrokerProcess) -> Iterator[HttpUser]:
    with HttpUser(http_port(broker)) as user:
        yield user


def queues(user: HttpUser, headers: dict[str, str]) -> int:
    status, _, body = user.get("/api/overview", headers)
    assert status == 200
    return int(json.loads(body)["object_totals"]["queues"])


def test_pages_get_the_answer_of_a_moment_ago_and_others_a_new_one(
    user: HttpUser, api: Api
) -> None:
    # How long the moment is on this machine does not matter: an age of 0 to the limit is told by
    # the test above.  Here what pages hear is one of the two counts, and what others hear is new.
    before = queues(user, PAGE)
    assert api.change("PUT", "/api/queues/%2F/q.shared", {"durable": True}) == 201
    assert queues(user, basic("guest", "guest")) == before + 1
    assert queues(user, PAGE) in (before, before + 1)
    assert api.change("DELETE", "/api/queues/%2F/q.shared") == 204


def test_a_shared_answer_is_gzip_for_who_takes_it(user: HttpUser) -> None:
    for path in ("/api/overview", "/api/nodes"):
        status, headers, plain = user.get(path, PAGE)
        assert (status, headers["Content-Encoding"]) == (200, None)
        status, headers, body = user.get(path, {**PAGE, "Accept-Encoding": "br, gzip"})
        assert (status, headers["Content-Encoding"]) == (200, "gzip")
        assert headers["Vary"] == "Accept-Encoding"
        assert json.loads(gzip.decompress(body)).__class__ is json.loads(plain).__class__
        status, headers, _ = user.get(path, {**basic("guest", "guest"), "Accept-Encoding": "gzip"})
        assert (status, headers["Content-Encoding"]) == (200, None)


def test_who_sees_some_vhosts_only_is_not_told_what_others_are(user: HttpUser, api: Api) -> None:
    assert api.change("PUT", "/api/users/few", {"password": "few", "tags": "management"}) == 201
    assert api.change("PUT", "/api/queues/%2F/q.unseen", {"durable": True}) == 201
    few = {**basic("few", "few"), "X-Requested-With": "leveret"}
    assert queues(user, basic("guest", "guest")) >= 1
    assert user.get("/api/overview", PAGE)[0] == 200
    assert queues(user, few) == 0
    assert api.change("DELETE", "/api/queues/%2F/q.unseen") == 204
    assert api.change("DELETE", "/api/users/few") == 204


def test_a_fault_in_the_request_is_not_shared(user: HttpUser) -> None:
    for _ in range(2):
        assert user.get("/api/overview?msg_rates_age=0&msg_rates_incr=5", PAGE)[0] == 400
