"""The HTTP API over a real broker: RabbitMQ's JSON and errors.

Field names and conventions: RabbitMQ's management API, and what Flower, KEDA, rabbitmq_exporter
and rabbit-hole read of it.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import quote

import pytest

from leveret.client import BasicProperties
from leveret.client.blocking import Channel, Connection
from leveret.config import MANAGEMENT_SOCKET
from leveret.management import unix_socket
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

#: What a message without properties counts beside its body: the flags.
PROPERTIES_BYTES = 3


def ok(api: Api, path: str) -> Any:
    """Return what a path holds."""
    status, body, headers = api.answer(path)
    assert status == 200, body
    assert headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-cache"
    return body


def named(rows: Any, name: str) -> dict[str, Any]:
    """Return the one row of a name."""
    (row,) = [row for row in rows if row["name"] == name]
    found: dict[str, Any] = row
    return found


def test_a_queue_is_shown_with_its_messages(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.stats", durable=True, arguments={"x-expires": 60000, "x-b": b"\xff"})
    channel.confirm_select()
    for body in (b"12345", b"678", b"9"):
        channel.publish(body, "", "q.stats")
    message = channel.get("q.stats")
    assert message is not None
    queue = ok(api, "/api/queues/%2F/q.stats")
    rates = {name: value for name, value in queue["message_stats"].items() if "_details" in name}
    assert rates["publish_details"] == {"rate": 0.0}
    queue["message_stats"] = {n: v for n, v in queue["message_stats"].items() if n not in rates}
    expected = {
        "name": "q.stats",
        "vhost": "/",
        "type": "classic",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {"x-expires": 60000, "x-b": "/w=="},
        "policy": None,
        "operator_policy": None,
        "effective_policy_definition": {},
        "state": "running",
        "consumers": 0,
        "messages": 3,
        "messages_ready": 2,
        "messages_unacknowledged": 1,
        "messages_delayed": 0,
        "messages_retained": 0,
        "message_bytes": 9 + 3 * PROPERTIES_BYTES,
        "message_bytes_ready": 4 + 2 * PROPERTIES_BYTES,
        "message_bytes_unacknowledged": 5 + PROPERTIES_BYTES,
        "message_bytes_retained": 0,
        "message_stats": {
            "publish": 3,
            "deliver": 0,
            "deliver_no_ack": 0,
            "deliver_get": 1,
            "get": 1,
            "get_no_ack": 0,
            "get_empty": 0,
            "redeliver": 0,
            "ack": 0,
            "deduplicated": 0,
            "rewound": 0,
        },
    }
    assert {name: queue[name] for name in expected} == expected
    message.ack()
    channel.consume("q.stats", no_ack=True)
    queue = ok(api, "/api/queues/%2F/q.stats")
    assert (queue["messages"], queue["consumers"]) == (0, 1)
    assert queue["message_stats"]["deliver_no_ack"] == 2
    assert queue["message_stats"]["ack"] == 1


def test_a_quorum_queue_tells_when_what_comes_back_goes(api: Api, channel: Channel) -> None:
    delayed = {"x-delayed-retry-type": "failed", "x-delayed-retry-min": 200}
    for arguments, limit, retry in (
        ({}, 20, "disabled"),
        ({"x-delivery-limit": -1, **delayed}, "unlimited", "failed (min: 200ms, max: 200ms)"),
    ):
        kind = {"x-queue-type": "quorum"}
        channel.queue_declare("q.limits", durable=True, arguments={**kind, **arguments})
        queue = ok(api, "/api/queues/%2F/q.limits")
        assert (queue["delivery_limit"], queue["delayed_retry"]) == (limit, retry)
        channel.queue_delete("q.limits")


def test_what_a_queue_retains_and_drops_is_counted_apart(api: Api, channel: Channel) -> None:
    arguments = {"x-retain-acked": "1h", "x-deduplication-header": "id"}
    channel.queue_declare("q.retains", arguments=arguments)
    properties = BasicProperties(headers={"id": "same"})
    for _ in range(3):
        channel.publish(b"12345", "", "q.retains", properties)
    channel.get("q.retains", no_ack=True)
    queue = ok(api, "/api/queues/%2F/q.retains")
    assert (queue["messages"], queue["messages_retained"]) == (0, 1)
    assert queue["message_bytes_retained"] > 5
    assert queue["message_stats"]["deduplicated"] == 2
    channel.queue_delete("q.retains")


def test_queues_are_listed_for_all_and_for_a_vhost(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.list", durable=True)
    channel.queue_declare("s.list", durable=True, arguments={"x-queue-type": "stream"})
    for path in ("/api/queues", "/api/queues/%2F"):
        rows = ok(api, path)
        assert named(rows, "q.list")["type"] == "classic"
        assert named(rows, "s.list")["type"] == "stream"


def test_a_name_may_hold_anything(api: Api, channel: Channel) -> None:
    name = 'a/b %2F "ü" +&?{1}'
    channel.queue_declare(name, durable=True)
    assert ok(api, f"/api/queues/%2F/{quote(name, safe='')}")["name"] == name


def test_a_long_listing_comes_whole(api: Api, channel: Channel) -> None:
    names = {f"many-{number}" for number in range(1203)}
    for name in names:
        channel.queue_declare(name, auto_delete=True)
    assert names <= {row["name"] for row in ok(api, "/api/queues")}
    assert names <= {row["destination"] for row in ok(api, "/api/bindings")}
    for name in names:
        channel.queue_delete(name)
    assert not names & {row["name"] for row in ok(api, "/api/queues/%2F")}


def test_exchanges_are_listed_with_the_default_one_under_no_name(
    api: Api, channel: Channel
) -> None:
    arguments = {"alternate-exchange": "amq.fanout"}
    channel.exchange_declare("x.stats", "topic", durable=True, arguments=arguments)
    channel.confirm_select()
    channel.publish(b"", "x.stats", "k")
    for path in ("/api/exchanges", "/api/exchanges/%2F"):
        rows = ok(api, path)
        default = named(rows, "")
        assert (default["type"], default["durable"]) == ("direct", True)
        assert named(rows, "x.stats") == {
            "name": "x.stats",
            "vhost": "/",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": arguments,
            "policy": None,
            "message_stats": {"publish_in": 1},
        }
        assert {"amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"} <= {
            row["name"] for row in rows
        }


def test_bindings_are_listed_with_those_of_the_default_exchange(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.bound", durable=True)
    channel.exchange_declare("x.bound", "headers", durable=True)
    channel.exchange_declare("x.source", "topic", durable=True)
    channel.queue_bind("q.bound", "x.source", "a.~ #")
    channel.queue_bind("q.bound", "x.source", "")
    channel.queue_bind("q.bound", "x.bound", "", {"n": 1})
    channel.queue_bind("q.bound", "x.bound", "", {"n": 2})
    channel.exchange_bind("x.bound", "x.source", "k")
    for path in ("/api/bindings", "/api/bindings/%2F"):
        rows = [r for r in ok(api, path) if r["destination"] in {"q.bound", "x.bound"}]
        by_key = {(r["source"], r["routing_key"], r["properties_key"]): r for r in rows}
        assert len(rows) == len(by_key) == 6
        assert by_key["", "q.bound", "q.bound"]["destination_type"] == "queue"
        assert by_key["x.source", "a.~ #", "a.%7E+%23"]["arguments"] == {}
        assert ("x.source", "", "~") in by_key
        assert by_key["x.source", "k", "k"]["destination_type"] == "exchange"
        numbers = [r["arguments"] for r in rows if r["source"] == "x.bound"]
        assert sorted(numbers, key=str) == [{"n": 1}, {"n": 2}]


def test_a_connection_is_shown(api: Api, connection: Connection, channel: Channel) -> None:
    rows = ok(api, "/api/connections")
    (row,) = [row for row in rows if row.get("user_provided_name") == "tester"]
    assert row["name"] == f"{row['peer_host']}:{row['peer_port']} -> {row['host']}:{row['port']}"
    assert (row["user"], row["vhost"], row["state"]) == ("guest", "/", "running")
    assert (row["protocol"], row["auth_mechanism"]) == ("AMQP 0-9-1", "PLAIN")
    assert row["channels"] == 1
    assert row["client_properties"]["connection_name"] == "tester"
    assert min(row["recv_oct"], row["send_oct"], row["connected_at"], row["frame_max"]) > 0
    connection.close()
    assert "tester" not in str(ok(api, "/api/connections"))


def test_the_overview_counts(api: Api, channel: Channel) -> None:
    before = ok(api, "/api/overview")
    channel.queue_declare("q.overview", durable=True)
    channel.confirm_select()
    channel.publish(b"x", "", "q.overview")
    channel.consume("q.overview")
    after = ok(api, "/api/overview")
    assert after["product_name"] == "Leveret"

    def grown(group: str, name: str) -> int:
        return int(after[group][name]) - int(before[group][name])

    assert grown("object_totals", "queues") == 1
    assert grown("object_totals", "consumers") == 1
    assert grown("object_totals", "connections") == 0
    assert grown("queue_totals", "messages") == 1
    assert grown("queue_totals", "messages_unacknowledged") == 1


@pytest.mark.parametrize(
    "path",
    [
        "/api/queues/nowhere",
        "/api/exchanges/nowhere",
        "/api/bindings/nowhere",
        "/api/queues/%2F/nothing",
        "/api/queues/nowhere/nothing",
        "/api/unheard-of",
        "/ui/",
    ],
)
def test_what_is_not_there_is_not_found(api: Api, path: str) -> None:
    status, body, _ = api.answer(path)
    assert isinstance(body, dict)
    # RabbitMQ's fields, and beside them what is missing.
    assert body.pop("detail").startswith(("no vhost 'nowhere'", "no queue", "the API has no path"))
    assert (status, body) == (404, {"error": "Object Not Found", "reason": "Not Found"})


def test_a_slash_at_the_end_of_a_path_is_left_out(api: Api, channel: Channel) -> None:
    channel.queue_declare("slashed", exclusive=True)
    for path in ("/api/queues", "/api/queues/%2F", "/api/queues/%2F/slashed", "/metrics"):
        for asked in (path, f"{path}/"):
            api.request("GET", asked)
            response = api.getresponse()
            assert (response.status, b"slashed" in response.read()) == (200, path != "/metrics")
    status, body, _ = api.answer("/api/queues/?page=1&name=slashed&columns=name")
    assert isinstance(body, dict)
    assert (status, body["items"]) == (200, [{"name": "slashed"}])
    assert api.change("PUT", "/api/vhosts/slashed/") == 201
    assert api.change("DELETE", "/api/vhosts/slashed/") == 204


@pytest.mark.parametrize(
    "path",
    [
        "/api/queues//",
        "/api//queues",
        "/api/queues/%2F//",
        "/api/queues/%2F/%2F",
        "/api/",
        "/api//",
    ],
)
def test_a_second_slash_is_a_name_without_characters(api: Api, path: str) -> None:
    assert api.answer(path)[0] == 404


def test_what_cannot_be_done_is_told(api: Api) -> None:
    status, body, headers = api.answer("/api/queues", "DELETE")
    assert status == 405
    assert body == {"error": "method_not_allowed", "reason": "Method Not Allowed"}
    assert "GET" in headers["allow"]


def test_an_answer_before_the_body_has_come_says_that_its_connection_ends(
    broker: BrokerProcess,
) -> None:
    """Else a client would lose its next request, and not know why."""
    with unix_socket.connect(broker.data_dir / MANAGEMENT_SOCKET, 60) as client:
        head = b"PUT /api/feature-flags/quorum_queue/enable HTTP/1.1\r\nHost: x\r\n"
        client.sendall(head + b"Content-Length: 2\r\n\r\n")
        answer = b"".join(iter(partial(client.recv, 4096), b""))
    assert answer.startswith(b"HTTP/1.1 204 ")
    assert b"\r\nconnection: close\r\n" in answer.lower()
