"""Super streams over the HTTP API."""

from __future__ import annotations

import contextlib
import json
from http.client import HTTPConnection
from typing import Any

import pytest

from leveret.client.blocking import Channel
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.http.http_streams import basic, http_port

PATH = "/api/super-streams/%2F/sales"
BAD_REQUEST, NOT_FOUND = 400, 404


def test_one_is_declared_shown_and_deleted(api: Api, channel: Channel) -> None:
    body = {"partitions": 3, "arguments": {"x-max-age": "7D"}}
    assert api.change("PUT", PATH, body) == 201
    assert api.change("PUT", PATH, body) == 204
    channel.confirm_select()
    for number in range(9):
        channel.publish(b"12345", "sales", f"key-{number}")
    expected: dict[str, Any] = {
        "name": "sales", "vhost": "/", "partitions": ["sales-0", "sales-1", "sales-2"],
        "arguments": {"x-queue-type": "stream", "x-max-age": "7D"},
        "messages": 9, "message_bytes": 9 * 8, "consumers": 0,
    }  # fmt: skip
    assert api.ask("GET", "/api/super-streams/%2F") == (200, [expected])
    channel.qos(prefetch_count=1)
    with channel.consume("sales"):
        assert api.ask("GET", PATH) == (200, expected | {"consumers": 3})
        assert api.ask("DELETE", f"{PATH}?if-unused=true")[0] == BAD_REQUEST
    assert api.ask("DELETE", f"{PATH}?if-empty=true")[0] == BAD_REQUEST
    assert api.change("DELETE", f"{PATH}?if-unused=true") == 204
    assert api.ask("GET", PATH)[0] == NOT_FOUND
    assert api.ask("GET", "/api/queues/%2F/sales-0")[0] == NOT_FOUND
    assert api.ask("DELETE", PATH)[0] == NOT_FOUND


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"partitions": 0},
        {"partitions": 1025},
        {"partitions": "3"},
        {"partitions": 2, "arguments": [1]},
        {"partitions": 2, "arguments": {"x-max-length": 5}},
        {"partitions": 2, "arguments": {"x-queue-type": "classic"}},
        {"partitions": 2, "arguments": {"y": 2**70}},
    ],
    ids=repr,
)
def test_a_mistake_is_refused_whole(api: Api, body: dict[str, Any]) -> None:
    assert api.ask("PUT", PATH, body)[0] == BAD_REQUEST
    assert api.ask("GET", PATH)[0] == NOT_FOUND
    assert api.ask("GET", "/api/queues/%2F/sales-0")[0] == NOT_FOUND


def test_what_is_not_there(api: Api) -> None:
    assert api.ask("GET", "/api/super-streams/none")[0] == NOT_FOUND
    assert api.ask("GET", "/api/super-streams/none/sales")[0] == NOT_FOUND
    assert api.ask("PUT", "/api/super-streams/none/sales", {"partitions": 1})[0] == NOT_FOUND
    assert api.ask("GET", "/api/super-streams/%2F/amq.topic")[0] == NOT_FOUND


def asked(port: int, user: str, method: str, path: str, body: object = None) -> int:
    """The status of what a user asks over TCP."""
    http = HTTPConnection("127.0.0.1", port, timeout=120)
    with contextlib.closing(http):
        http.request(method, path, None if body is None else json.dumps(body), basic(user, user))
        response = http.getresponse()
        response.read()
        return response.status


def test_users_may_over_tcp_what_they_may_over_amqp(api: Api, broker: BrokerProcess) -> None:
    port = http_port(broker)
    rights = {
        "owner": ("^sales", "^sales", "^sales"),
        "reader": ("", "", "^sales"),
        "part": ("^sales(-0)?$", ".*", ".*"),
        "nobody": ("", "", ""),
    }
    for user, (configure, write, read) in rights.items():
        api.change("PUT", f"/api/users/{user}", {"password": user, "tags": ""})
        given = {"configure": configure, "write": write, "read": read}
        api.change("PUT", f"/api/permissions/%2F/{user}", given)
    refused = 403
    body = {"partitions": 2}
    for user in ("nobody", "reader", "part"):
        assert asked(port, user, "PUT", PATH, body) == refused, user
    assert asked(port, "owner", "PUT", PATH, body) == 201
    assert {user: asked(port, user, "GET", PATH) for user in rights} == {
        "owner": 200, "reader": 200, "part": 200, "nobody": refused,
    }  # fmt: skip
    assert asked(port, "owner", "GET", "/api/super-streams") == NOT_FOUND
    consumer = "/api/streams/%2F/sales-0/consumers/app"
    assert asked(port, "nobody", "PUT", consumer, {"offset": 0}) == refused
    assert asked(port, "reader", "PUT", consumer, {"offset": 0}) == 201
    assert asked(port, "nobody", "GET", "/api/streams/%2F/sales-0/consumers") == refused
    assert asked(port, "nobody", "DELETE", consumer) == refused
    for user in ("nobody", "reader", "part"):
        assert asked(port, user, "DELETE", PATH) == refused, user
    assert asked(port, "owner", "DELETE", PATH) == 204
    for user in rights:
        api.change("DELETE", f"/api/users/{user}")
