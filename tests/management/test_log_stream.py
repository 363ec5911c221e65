"""The log over HTTP: the last lines, and those that follow, for who may see the whole broker."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from contextlib import ExitStack
from typing import Any, Self

import pytest

from leveret.limits import LOG_TAIL_READERS_MAX, LOG_TAIL_READERS_PER_USER_MAX
from leveret.management.sampling.recent_log import (
    LOG_LINE_CHARACTERS_MAX,
    LOG_LINES_KEPT,
    RecentLog,
)
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import unique
from support.http.http_api import Api
from support.http.http_streams import basic, http_port

STREAM = "/api/log/stream"
EVENTS = {"Accept": "text/event-stream"}


class Events:
    """A connection that reads the log as events."""

    def __init__(self, port: int, **headers: str) -> None:
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        self.http.request("GET", STREAM, headers={**EVENTS, **basic("guest", "guest"), **sent})
        self.answer = self.http.getresponse()

    def next(self) -> tuple[str, dict[str, Any]]:
        """Return id and data of the next event."""
        found = {}
        while line := self.answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            found[name] = value
        return (found["id"], json.loads(found["data"])) if "data" in found else self.next()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up, so that a test that fails leaves no reader to the tests after it."""
        self.answer.close()
        self.http.close()

    def find(self, *texts: str) -> tuple[str, str]:
        """Return the id of the next event that has one of some texts in it, and that text.

        The broker logs what it likes in between, such as the state of the disk.
        """
        while True:
            number, data = self.next()
            for text in texts:
                if text in data["text"]:
                    return number, text


def test_the_last_lines_are_a_list(broker: BrokerProcess, api: Api) -> None:
    name = unique("told")
    assert api.change("PUT", f"/api/global-parameters/{name}", {"value": 1}) == 201
    broker.expect_line(name)
    status, lines, _ = api.answer(STREAM)
    assert status == 200
    assert isinstance(lines, list)
    last = lines[-1]
    assert last.keys() == {"time", "level", "text"}
    assert last["level"] == "info"
    assert f"PUT /api/global-parameters/{name}" in last["text"]
    assert last["time"] in broker.output


def test_lines_come_as_they_are_logged_and_once(broker: BrokerProcess, api: Api) -> None:
    names = [unique("told") for _ in range(3)]
    port = http_port(broker)
    with Events(port) as events:
        assert events.answer.headers["Content-Type"] == "text/event-stream"
        api.change("PUT", f"/api/global-parameters/{names[0]}", {"value": 1})
        number, _ = events.find(names[0])
    for name in names[1:]:
        api.change("PUT", f"/api/global-parameters/{name}", {"value": 1})
    # Who comes again hears what he missed.
    with Events(port, Last_Event_ID=number) as again:
        assert [again.find(*names)[1] for _ in names[1:]] == names[1:]


@pytest.mark.parametrize("number", ["x", "other-5", "-", "é", "1" * 5000])
def test_an_id_that_is_none_of_ours_begins_anew(broker: BrokerProcess, number: str) -> None:
    with Events(http_port(broker), Last_Event_ID=number) as events:
        assert "starting" in events.next()[1]["text"]


def test_a_line_with_line_feeds_is_one_event(broker: BrokerProcess, api: Api) -> None:
    name = "evil%0A%0Adata:%20forged%0D%1B"
    assert api.ask("PUT", f"/api/vhosts/{name}", {})[0] == 400
    mark = unique("mark")
    user = http.client.HTTPConnection("127.0.0.1", http_port(broker), timeout=120)
    user.request("GET", "/api/whoami", headers=basic(f"{mark}\n\ndata: forged\x1b[31m", "wrong"))
    assert user.getresponse().status == 401
    user.close()
    with Events(http_port(broker)) as events:
        text = ""
        while mark not in text:
            text = events.next()[1]["text"]
            assert "\n" not in text
            assert "\x1b" not in text
            assert text != "forged"


def test_who_does_not_see_the_whole_broker_reads_no_log(broker: BrokerProcess, api: Api) -> None:
    for tag, status in (("management", 401), ("policymaker", 401), ("monitoring", 200)):
        name = unique(tag)
        api.change("PUT", f"/api/users/{name}", {"password": "x", "tags": tag})
        user = http.client.HTTPConnection("127.0.0.1", http_port(broker), timeout=120)
        user.request("GET", STREAM, headers=basic(name, "x"))
        answer = user.getresponse()
        assert answer.status == status, tag
        answer.read()
        user.close()


def test_a_stream_ends_with_the_right_to_it(broker: BrokerProcess, api: Api) -> None:
    name = unique("watcher")
    api.change("PUT", f"/api/users/{name}", {"password": "guest", "tags": "monitoring"})
    with Events(http_port(broker), **basic(name, "guest")) as events:
        events.next()
        assert api.change("DELETE", f"/api/users/{name}") == 204
        # Chunked: an end that nobody announced is an error, and no end of the log.
        with pytest.raises((http.client.HTTPException, OSError)):
            events.answer.read()


def test_one_user_does_not_take_the_places_of_all(broker: BrokerProcess, api: Api) -> None:
    port = http_port(broker)
    name = unique("watcher")
    api.change("PUT", f"/api/users/{name}", {"password": "guest", "tags": "monitoring"})
    with ExitStack() as readers:
        for _ in range(LOG_TAIL_READERS_PER_USER_MAX):
            reader = readers.enter_context(Events(port))
            assert reader.answer.status == 200
            reader.next()
        refused = readers.enter_context(Events(port))
        assert refused.answer.status == 503
        assert b"of the same user" in refused.answer.read()
        other = readers.enter_context(Events(port, **basic(name, "guest")))
        assert other.answer.status == 200


def test_there_are_no_more_readers_than_the_limit(broker: BrokerProcess, api: Api) -> None:
    port = http_port(broker)
    users = [basic("guest", "guest")]
    while len(users) * LOG_TAIL_READERS_PER_USER_MAX <= LOG_TAIL_READERS_MAX:
        name = unique("watcher")
        api.change("PUT", f"/api/users/{name}", {"password": "x", "tags": "monitoring"})
        users.append(basic(name, "x"))
    with ExitStack() as readers:
        for number in range(LOG_TAIL_READERS_MAX):
            user = users[number // LOG_TAIL_READERS_PER_USER_MAX]
            reader = readers.enter_context(Events(port, **user))
            assert reader.answer.status == 200
            reader.next()
        refused = readers.enter_context(Events(port, **users[-1]))
        assert refused.answer.status == 503
        assert b"the limit" in refused.answer.read()
        assert refused.answer.headers["Retry-After"]


def test_no_more_lines_are_kept_than_the_limit() -> None:
    recent = RecentLog()
    for number in range(1, LOG_LINES_KEPT + 2):
        recent.add("now", "info", str(number))
    gone, lines = recent.after(0)
    assert (gone, len(lines)) == (1, LOG_LINES_KEPT)
    assert recent.after(1)[0] == 0
    assert recent.after(LOG_LINES_KEPT + 1) == (0, [])
    assert recent.after(LOG_LINES_KEPT + 100) == (0, [])


@pytest.mark.parametrize("size", [LOG_LINE_CHARACTERS_MAX, LOG_LINE_CHARACTERS_MAX + 1])
def test_a_line_is_no_longer_than_the_limit(size: int) -> None:
    recent = RecentLog()
    recent.add("now", "info", "x" * size)
    recent.add("now", "info", "\n" * size)
    first, second = recent.after(0)[1]
    assert len(first.text) == len(second.text) == LOG_LINE_CHARACTERS_MAX
    assert first.text.endswith("…") == (size > LOG_LINE_CHARACTERS_MAX)


def test_a_line_of_a_thread_wakes_who_waits() -> None:
    recent = RecentLog()

    async def waited() -> None:
        adding = threading.Thread(target=recent.add, args=("now", "info", "x"))
        waiting = asyncio.create_task(recent.grown(0, 120))
        adding.start()
        await waiting
        adding.join()

    asyncio.run(waited())
    assert [line.text for line in recent.after(0)[1]] == ["x"]
