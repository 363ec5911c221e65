"""Browsing and rewinding a queue over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from http_api import Api
from leveret.client import BasicProperties
from leveret.client.blocking import Channel

QUEUE = "/api/queues/%2F/q.messages"


@pytest.fixture
def queue(channel: Channel) -> str:
    """A queue that retains."""
    arguments = {"x-retain-acked": "1h"}
    channel.queue_delete("q.messages")
    return channel.queue_declare("q.messages", durable=True, arguments=arguments).queue


def ask(api: Api, path: str, **body: object) -> Any:
    """Return what a POST answers."""
    status, answer = api.ask("POST", f"{QUEUE}/{path}", body)
    assert status == 200, answer
    return answer


def payloads(page: Any) -> list[str]:
    """The bodies on a page."""
    return [message["payload"] for message in page["messages"]]


def test_pages_of_what_waits(api: Api, channel: Channel, queue: str) -> None:
    for number in range(5):
        headers: dict[str, object] = {"even": number % 2 == 0}
        channel.publish(
            b"%d" % number, routing_key=queue, properties=BasicProperties(headers=headers)
        )
    first = ask(api, "browse", count=3)
    assert payloads(first) == ["0", "1", "2"]
    last = ask(api, "browse", count=3, after=first["after"])
    assert (payloads(last), last["after"]) == (["3", "4"], None)
    assert payloads(ask(api, "browse", position=-2)) == ["3", "4"]
    assert payloads(ask(api, "browse", headers={"even": True})) == ["0", "2", "4"]
    assert payloads(ask(api, "browse", routing_key="other.#")) == []
    got = channel.get(queue)
    assert got is not None
    assert (got.body, got.redelivered) == (b"0", False)


def test_a_message_is_shown_whole_or_cut(api: Api, channel: Channel, queue: str) -> None:
    properties = BasicProperties(content_type="text/plain", headers={"n": 1}, priority=3)
    channel.publish("wörd".encode(), routing_key=queue, properties=properties)
    channel.publish(b"\xff" * 100_000, routing_key=queue)
    text, raw = ask(api, "browse")["messages"]
    assert text.pop("number") < raw["number"]
    assert text.pop("timestamp_ms") > 0
    assert text == {
        "exchange": "",
        "routing_key": "q.messages",
        "redelivered": False,
        "properties": {"content_type": "text/plain", "headers": {"n": 1}, "priority": 3},
        "payload": "wörd",
        "payload_bytes": 5,
        "payload_encoding": "string",
    }
    assert (raw["payload_bytes"], raw["payload_encoding"]) == (100_000, "base64")
    assert len(raw["payload"]) < 70_000
    assert ask(api, "browse", truncate=1, position=1)["messages"][0]["payload"] == "/w=="


def test_a_page_shows_so_many_bytes_and_no_more(api: Api, channel: Channel, queue: str) -> None:
    for _ in range(3):
        channel.publish(bytes(5 * 1024 * 1024), routing_key=queue)
    page = ask(api, "browse", truncate=2**40)
    assert len(page["messages"]) == 2
    assert len(ask(api, "browse", after=page["after"], truncate=2**40)["messages"]) == 1
    assert len(ask(api, "browse")["messages"]) == 3


def test_a_rewind_puts_back_what_is_retained(api: Api, channel: Channel, queue: str) -> None:
    for number in range(3):
        channel.publish(b"%d" % number, routing_key=queue)
        channel.get(queue, no_ack=True)
    assert channel.queue_declare(queue, passive=True).message_count == 0
    assert ask(api, "rewind", timestamp_ms=2**50) == {"messages": 0}
    assert ask(api, "rewind", timestamp_ms=0) == {"messages": 3}
    page = ask(api, "browse")
    assert payloads(page) == ["0", "1", "2"]
    assert [message["redelivered"] for message in page["messages"]] == [True] * 3
    ask(api, "rewind", timestamp_ms=0)


@pytest.mark.parametrize("path", ["browse", "rewind"])
def test_what_is_not_there_or_no_queue(api: Api, channel: Channel, path: str) -> None:
    body = {"timestamp_ms": 0}
    assert api.ask("POST", f"/api/queues/%2F/none/{path}", body)[0] == 404
    assert api.ask("POST", f"/api/queues/none/none/{path}", body)[0] == 404
    channel.queue_declare("s.messages", durable=True, arguments={"x-queue-type": "stream"})
    assert api.ask("POST", f"/api/queues/%2F/s.messages/{path}", body)[0] == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("browse", {"position": "1"}),
        ("browse", {"headers": []}),
        ("browse", {"headers": {"x-match": "most"}}),
        ("browse", {"routing_key": 1}),
        ("rewind", {}),
        ("rewind", {"timestamp_ms": "now"}),
    ],
)
def test_what_cannot_be_asked_is_400(api: Api, queue: str, path: str, body: object) -> None:
    assert queue
    assert api.ask("POST", f"{QUEUE}/{path}", body)[0] == 400
