"""Publishing and getting over HTTP, as RabbitMQ's API does it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from leveret.client.blocking import Channel
from leveret.limits import HTTP_MESSAGES_BYTES_MAX
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import unique
from support.http.http_api import Api

PUBLISH = "/api/exchanges/%2F/amq.default/publish"


def message(key: str, payload: str = "text", encoding: str = "string", **more: object) -> Any:
    """Return the body of a publish."""
    return {
        "routing_key": key,
        "payload": payload,
        "payload_encoding": encoding,
        "properties": more,
    }


def wanted(ackmode: str = "ack_requeue_false", **more: object) -> Any:
    """Return the body of a get."""
    return {"count": 10, "ackmode": ackmode, "encoding": "auto", **more}


def got(api: Api, queue: str, body: object) -> list[dict[str, Any]]:
    """Return the messages of a get."""
    status, rows = api.ask("POST", f"/api/queues/%2F/{queue}/get", body)
    assert status == 200, rows
    assert isinstance(rows, list)
    return rows


@pytest.mark.parametrize("properties", [[], {"headers": []}])
def test_an_empty_list_is_an_empty_object(
    api: Api, channel: Channel, properties: dict[str, object]
) -> None:
    """PHP writes an empty table so."""
    channel.queue_declare("q.php")
    sent = {**message("q.php", "x"), "properties": properties}
    assert api.ask("POST", PUBLISH, sent) == (200, {"routed": True})
    channel.queue_delete("q.php")


def test_a_message_comes_back_as_it_was_published(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.http", durable=True)
    headers = {"n": 1, "t": "x", "l": [True, None]}
    sent = message("q.http", "grüße", delivery_mode=2, headers=headers, content_type="text/plain")
    assert api.ask("POST", PUBLISH, sent) == (200, {"routed": True})
    assert got(api, "q.http", wanted()) == [
        {
            "payload_bytes": 7,
            "redelivered": False,
            "exchange": "",
            "routing_key": "q.http",
            "message_count": 0,
            "properties": {"content_type": "text/plain", "headers": headers, "delivery_mode": 2},
            "payload": "grüße",
            "payload_encoding": "string",
        }
    ]
    assert got(api, "q.http", wanted()) == []
    channel.queue_delete("q.http")


def test_what_no_queue_takes_is_not_routed(api: Api) -> None:
    assert api.ask("POST", PUBLISH, message("q.none")) == (200, {"routed": False})


def test_bytes_are_base_64(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.bytes")
    # It is decoded in more than one piece.
    raw = base64.b64encode(b"\xff\x00" * 500_000).decode()
    assert api.ask("POST", PUBLISH, message("q.bytes", raw, "base64"))[1] == {"routed": True}
    (row,) = got(api, "q.bytes", wanted("ack_requeue_true"))
    assert (row["payload"], row["payload_encoding"]) == (raw, "base64")
    (row,) = got(api, "q.bytes", wanted(truncate=2))
    assert (row["payload_bytes"], row["payload"]) == (1_000_000, "/wA=")
    assert api.ask("POST", PUBLISH, message("q.bytes", "plain"))[0] == 200
    (row,) = got(api, "q.bytes", {**wanted(), "encoding": "base64"})
    assert (row["payload"], row["payload_encoding"]) == ("cGxhaW4=", "base64")
    padded = base64.b64encode(bytes(786_431)).decode()
    assert len(padded) == 1024 * 1024
    assert api.ask("POST", PUBLISH, message("q.bytes", padded + "AAAA", "base64"))[0] == 400
    assert api.ask("POST", PUBLISH, message("q.bytes", padded + "A", "base64"))[0] == 400
    channel.queue_delete("q.bytes")


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        # Pieces of a body end within a character, and within three bytes of base64.
        ('ä\t\n\r"\\'.encode() * 70_000 + b"x", "string"),
        (b"\x00" * 500_000, "base64"),
        (b"a" * 400_000 + b"\x1b[31m\0", "string"),
        ("ä".encode() * 200_000 + b"\xc3", "base64"),
        (b"", "string"),
    ],
)
def test_a_body_is_text_or_base64_and_the_same_in_pieces(
    api: Api, channel: Channel, body: bytes, encoding: str
) -> None:
    queue = unique("q.body")
    channel.queue_declare(queue)
    channel.confirm_select()
    channel.publish(body, "", queue, mandatory=True)
    channel.wait_for_confirms()
    (row,) = got(api, queue, wanted("ack_requeue_true"))
    status, page = api.ask("POST", f"/api/queues/%2F/{queue}/browse", {})
    assert status == 200
    assert isinstance(page, dict)
    (seen,) = page["items"]
    for one in (row, seen):
        assert (one["payload_encoding"], one["payload_bytes"]) == (encoding, len(body))
        text = one["payload"]
        assert (base64.b64decode(text) if encoding == "base64" else text.encode()) == body


def test_an_answer_ends_before_it_has_too_much_and_a_large_message_is_alone(
    api: Api, channel: Channel
) -> None:
    queue = unique("q.large")
    channel.queue_declare(queue)
    sizes = [HTTP_MESSAGES_BYTES_MAX // 2, HTTP_MESSAGES_BYTES_MAX // 2 + 1, 1, 1]
    sizes += [HTTP_MESSAGES_BYTES_MAX + 1, 1]
    channel.confirm_select()
    for size in sizes:
        channel.publish(b"m" * size, "", queue, mandatory=True)
    channel.wait_for_confirms()
    browsed: list[list[int]] = []
    after: int | None = None
    while not browsed or after is not None:
        body: dict[str, object] = {} if after is None else {"after": after}
        status, page = api.ask("POST", f"/api/queues/%2F/{queue}/browse", body)
        assert status == 200
        assert isinstance(page, dict)
        browsed.append([row["payload_bytes"] for row in page["items"]])
        after = page["after"]
    answers = []
    while rows := got(api, queue, wanted()):
        answers.append([row["payload_bytes"] for row in rows])
    assert answers == browsed == [sizes[:1], sizes[1:4], sizes[4:5], sizes[5:]]


@pytest.mark.parametrize(
    ("ackmode", "left"),
    [
        ("ack_requeue_true", 2),
        ("reject_requeue_true", 2),
        ("ack_requeue_false", 0),
        ("reject_requeue_false", 0),
    ],
)
def test_what_becomes_of_messages(api: Api, channel: Channel, ackmode: str, left: int) -> None:
    channel.queue_declare("q.modes", durable=True)
    for payload in ("a", "b"):
        api.ask("POST", PUBLISH, message("q.modes", payload, delivery_mode=2))
    rows = got(api, "q.modes", wanted(ackmode))
    assert [row["payload"] for row in rows] == ["a", "b"]
    assert [row["message_count"] for row in rows] == [1, 0]
    assert channel.queue_declare("q.modes", passive=True).message_count == left
    assert [r["redelivered"] for r in got(api, "q.modes", wanted())] == [True] * left
    channel.queue_delete("q.modes")


def test_what_cannot_be_asked(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.asked")
    path = "/api/queues/%2F/q.asked/get"
    for body in (
        {},
        wanted("keep"),
        {**wanted(), "count": -1},
        {**wanted(), "count": "many"},
        {**wanted(), "count": "9" * 100},
        {**wanted(), "encoding": "hex"},
    ):
        assert api.ask("POST", path, body)[0] == 400
    for body in (
        {},
        message("q.asked", "?", "base64"),
        message("q.asked", "x", "rot13"),
        message("q.asked", headers=5),
        message("q.asked", delivery_mode="two"),
        message("q.asked", priority=1000),
        message("q.asked", user_id="somebody"),
    ):
        assert api.ask("POST", PUBLISH, body)[0] == 400, body
    assert api.ask("POST", "/api/queues/%2F/q.none/get", wanted())[0] == 404
    assert api.ask("POST", "/api/exchanges/%2F/x.none/publish", message("k"))[0] == 404
    assert got(api, "q.asked", wanted()) == []
    channel.queue_delete("q.asked")


def test_numbers_may_be_text(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.text")
    assert api.ask("POST", PUBLISH, message("q.text", "long"))[0] == 200
    (row,) = got(api, "q.text", {**wanted(), "count": "1", "truncate": "2"})
    assert (row["payload"], row["payload_bytes"]) == ("lo", 4)
    channel.queue_delete("q.text")


def test_a_queue_that_is_full_refuses(api: Api, channel: Channel) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare("q.full", arguments=arguments)
    assert api.ask("POST", PUBLISH, message("q.full")) == (200, {"routed": True})
    status, answer = api.ask("POST", PUBLISH, message("q.full"))
    assert isinstance(answer, dict)
    assert (status, answer["error"]) == (400, "bad_request")
    channel.queue_delete("q.full")


def test_nothing_of_it_stays(api: Api, broker: BrokerProcess) -> None:
    assert api.ask("POST", PUBLISH, message("q.none"))[0] == 200
    _, rows, _ = api.answer("/api/connections")
    assert isinstance(rows, list)
    assert not [row for row in rows if row["name"].startswith("direct:")]


def test_a_browse_cuts_bodies(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.cut", durable=True)
    channel.publish("grüße".encode(), routing_key="q.cut")
    channel.publish(b"", routing_key="q.cut")
    for truncate, shown in ((-1, "grüße"), (0, ""), (2, "gr"), (100, "grüße")):
        body = {"count": 5, "truncate": truncate}
        status, page = api.ask("POST", "/api/queues/%2F/q.cut/browse", body)
        assert status == 200
        assert isinstance(page, dict)
        assert [one["payload"] for one in page["items"]] == [shown, ""]
        assert [one["payload_bytes"] for one in page["items"]] == [7, 0]
    channel.queue_delete("q.cut")


def test_an_exchange_tells_its_alternate_one_by_a_policy_too(api: Api, channel: Channel) -> None:
    channel.exchange_declare("x.alternate", "direct")
    path = "/api/exchanges/%2F/x.alternate"
    policy = {"pattern": "^x.alternate$", "definition": {"alternate-exchange": "amq.fanout"}}
    assert api.answer(path)[1]["alternate_exchange"] == ""  # type: ignore[index]
    assert api.change("PUT", "/api/policies/%2F/alternate", policy) == 201
    assert api.answer(path)[1]["alternate_exchange"] == "amq.fanout"  # type: ignore[index]
    assert api.change("DELETE", "/api/policies/%2F/alternate") == 204
    assert api.answer(path)[1]["alternate_exchange"] == ""  # type: ignore[index]
    channel.exchange_delete("x.alternate")
