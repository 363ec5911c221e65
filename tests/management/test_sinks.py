"""Sinks over the HTTP API."""

from __future__ import annotations

import json

import pytest

from leveret.client import BasicProperties
from leveret.client.blocking import Channel, connect
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import unique
from support.http.http_api import Api
from support.http.http_streams import HttpUser, http_port

OK, NO_CONTENT, NOT_FOUND = 200, 204, 404


def test_a_sink_is_listed_and_forgotten(api: Api, channel: Channel) -> None:
    channel.queue_declare("target", durable=True)
    arguments: dict[str, object] = {"x-staging-sink": "job", "x-staging-batch": 7}
    channel.queue_declare("staged", durable=True, arguments=arguments)
    channel.confirm_select()
    for key in ("target", "nobody"):
        headers: dict[str, object] = {"x-staged-exchange": "", "x-staged-routing-key": key}
        channel.publish(b"m", routing_key="staged", properties=BasicProperties(headers=headers))
    commit = {"sink": "job", "batch": 7, "queues": ["staged"], "unroutable": "drop"}
    channel.publish(json.dumps(commit).encode(), routing_key="amq.leveret.commit")
    found = channel.get("target", no_ack=True)
    while found is None:
        found = channel.get("target", no_ack=True)
    assert (found.body, found.properties) == (b"m", BasicProperties(delivery_mode=2))
    row = None
    while row is None or row["releasing"]:
        status, rows = api.ask("GET", "/api/sinks/%2F")
        assert status == OK
        assert isinstance(rows, list)
        (row,) = rows
    assert row.pop("last") > 1_700_000_000_000
    assert row == {
        "sink": "job", "destination": None, "vhost": "/", "batch": 7, "releasing": 0, "messages": 0,
        "owner": "guest", "owner_deleted": False,
        "staging": {"queues": 0, "messages": 0, "message_bytes": 0, "age_ms": 0, "owners": []},
        "message_stats": {"released": 1, "unroutable": 1, "dropped": 0, "repeated_commits": 0},
    }  # fmt: skip
    assert api.change("DELETE", "/api/sinks/%2F/job") == NO_CONTENT
    assert api.ask("DELETE", "/api/sinks/%2F/job")[0] == NOT_FOUND
    assert api.ask("GET", "/api/sinks/%2F") == (OK, [])
    assert api.ask("GET", "/api/sinks/none")[0] == NOT_FOUND
    channel.queue_delete("target")


@pytest.fixture
def user(api: Api) -> str:
    """A user who may configure what begins with `job-a`, read `q-a`, and commit."""
    name = unique("u")
    api.change("PUT", f"/api/users/{name}", {"password": "secret", "tags": ""})
    rights = {"configure": "^job-a", "write": "^amq.default$", "read": "^q-a"}
    api.change("PUT", f"/api/permissions/%2F/{name}", rights)
    return name


def test_users_see_over_tcp_what_is_theirs(
    api: Api, broker: BrokerProcess, channel: Channel, user: str
) -> None:
    channel.confirm_select()
    for name in ("a", "b"):
        commit = {"sink": f"job-{name}", "batch": 0, "queues": []}
        channel.publish(json.dumps(commit).encode(), routing_key="amq.leveret.commit")
        channel.queue_declare(f"q-{name}", durable=True)
    with HttpUser(http_port(broker), user, "secret") as http:
        listed = http.json("/api/sinks/%2F")
        assert isinstance(listed, list)
        assert [row["sink"] for row in listed] == ["job-a"]
        assert http.json("/api/publishers/%2F/q-a") == []
        assert http.get("/api/publishers/%2F/q-b")[0] == 403
        with connect(broker.uri_of(user, "secret")) as connection:
            own = connection.channel()
            own.confirm_select()
            commit = {"sink": "job-a-own", "batch": 0, "queues": []}
            own.publish(json.dumps(commit).encode(), routing_key="amq.leveret.commit")
        # What he may configure he sees; what he owns he forgets.
        for name, status in (("job-b", 403), ("job-a", 403), ("job-a-own", NO_CONTENT)):
            assert http.ask("DELETE", f"/api/sinks/%2F/{name}")[0] == status
    for name in ("a", "b"):
        channel.queue_delete(f"q-{name}")
        assert api.change("DELETE", f"/api/sinks/%2F/job-{name}") == NO_CONTENT
