"""Changing a broker over the HTTP API: users, vhosts, permissions, policies, parameters.

What a change means is shown where the core is tested; here are the paths, the statuses and that a
change lasts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leveret.client.blocking import connect
from leveret.errors import AmqpError, PreconditionFailed
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

BAD_REQUEST, NOT_FOUND = 400, 404


def test_a_vhost_comes_changes_and_goes(api: Api) -> None:
    assert api.change("PUT", "/api/vhosts/made", {"description": "first", "tags": "a, b"}) == 201
    assert api.change("PUT", "/api/vhosts/made", {"strict_keys": True}) == 204
    _, found = api.ask("GET", "/api/vhosts/made")
    assert isinstance(found, dict)
    assert found["description"] == "first"
    assert found["tags"] == ["a", "b"]
    assert found["metadata"]["strict_keys"] is True
    assert api.change("DELETE", "/api/vhosts/made") == 204
    assert api.ask("GET", "/api/vhosts/made")[0] == NOT_FOUND


def test_a_deleted_vhost_is_gone_when_that_is_answered(api: Api) -> None:
    """However much was in it: its name is free at once."""
    queues = [
        {"name": f"q{number}", "vhost": "full", "durable": True, "arguments": {}}
        for number in range(4000)
    ]
    definitions = {"vhosts": [{"name": "full"}], "queues": queues}
    assert api.ask("POST", "/api/definitions", definitions)[0] == 200
    assert api.change("DELETE", "/api/vhosts/full") == 204
    assert api.change("PUT", "/api/vhosts/full", {}) == 201
    assert api.ask("GET", "/api/queues/full")[1] == []
    api.change("DELETE", "/api/vhosts/full")


def test_vhost_limits(api: Api, broker: BrokerProcess) -> None:
    api.change("PUT", "/api/vhosts/limited")
    api.change("PUT", "/api/permissions/limited/guest", dict.fromkeys(RIGHTS, ".*"))
    assert api.change("PUT", "/api/vhost-limits/limited/max-queues", {"value": 1}) == 204
    assert api.ask("GET", "/api/vhost-limits/limited")[1] == [
        {"vhost": "limited", "value": {"max-queues": 1}}
    ]
    with connect(broker.uri.replace("%2F", "limited")) as connection:
        channel = connection.channel()
        channel.queue_declare("one")
        with pytest.raises(PreconditionFailed, match="queue limit"):
            channel.queue_declare("two")
    assert api.change("DELETE", "/api/vhost-limits/limited/max-queues") == 204
    assert api.ask("GET", "/api/vhost-limits/limited")[1] == []
    api.change("DELETE", "/api/vhosts/limited")


RIGHTS = ("configure", "write", "read")


def test_a_user_logs_in_and_may_what_he_may(api: Api, broker: BrokerProcess) -> None:
    user = {"password": "s3cret", "tags": "management,policymaker"}
    assert api.change("PUT", "/api/users/ann", user) == 201
    assert api.change("PUT", "/api/users/ann", user) == 204
    _, found = api.ask("GET", "/api/users/ann")
    assert isinstance(found, dict)
    assert found["tags"] == ["management", "policymaker"]
    assert "s3cret" not in str(found)
    uri = broker.uri.replace("guest:guest", "ann:s3cret")
    with pytest.raises(AmqpError, match="access to vhost '/' refused"):
        connect(uri)
    rights = {"configure": "^ann", "write": "^ann", "read": "^ann"}
    assert api.change("PUT", "/api/permissions/%2F/ann", rights) == 201
    with connect(uri) as connection:
        connection.channel().queue_declare("ann-queue")
        with pytest.raises(AmqpError, match="configure access to queue 'other'"):
            connection.channel().queue_declare("other")
    assert api.ask("GET", "/api/users/ann/permissions")[1] == [
        {"user": "ann", "vhost": "/", **rights}
    ]
    assert api.change("DELETE", "/api/permissions/%2F/ann") == 204
    assert api.ask("GET", "/api/permissions/%2F/ann")[0] == NOT_FOUND
    assert api.change("DELETE", "/api/users/ann") == 204
    assert api.ask("DELETE", "/api/users/ann")[0] == NOT_FOUND


def test_a_hash_of_rabbitmq_is_taken(api: Api, broker: BrokerProcess) -> None:
    """The hash is that of `test12` under the salt 908DC60A, from RabbitMQ's documentation."""
    given = {"password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "tags": ""}
    assert api.change("PUT", "/api/users/old", given) == 201
    api.change("PUT", "/api/permissions/%2F/old", dict.fromkeys(RIGHTS, ".*"))
    connect(broker.uri.replace("guest:guest", "old:test12")).close()
    api.change("DELETE", "/api/users/old")


def test_user_limits_and_topic_permissions(api: Api) -> None:
    api.change("PUT", "/api/users/bob", {"tags": ""})
    assert api.change("PUT", "/api/user-limits/bob/max-channels", {"value": 3}) == 204
    assert api.ask("GET", "/api/user-limits/bob")[1] == [
        {"user": "bob", "value": {"max-channels": 3}}
    ]
    assert api.change("DELETE", "/api/user-limits/bob/max-channels") == 204
    topic = {"exchange": "amq.topic", "write": "^a", "read": "^b"}
    assert api.change("PUT", "/api/topic-permissions/%2F/bob", topic) == 201
    assert api.ask("GET", "/api/topic-permissions/%2F/bob")[1] == [
        {"user": "bob", "vhost": "/", **topic}
    ]
    assert api.change("DELETE", "/api/topic-permissions/%2F/bob/amq.topic") == 204
    assert api.ask("GET", "/api/topic-permissions/%2F/bob")[0] == NOT_FOUND
    assert api.ask("GET", "/api/users/bob/topic-permissions") == (200, [])
    api.change("DELETE", "/api/users/bob")


@pytest.mark.parametrize("of", ["users", "vhosts"])
@pytest.mark.parametrize("what", ["permissions", "topic-permissions"])
def test_there_are_no_permissions_of_nobody(api: Api, of: str, what: str) -> None:
    assert api.ask("GET", f"/api/{of}/nobody/{what}")[0] == NOT_FOUND


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_a_policy_counts_at_once(api: Api, broker: BrokerProcess, kind: str) -> None:
    policy = {"pattern": f"^{kind}", "definition": {"max-length": 2}, "apply-to": "queues"}
    with connect(broker.uri) as connection:
        channel = connection.channel()
        channel.queue_declare(kind)
        assert api.change("PUT", f"/api/{kind}/%2F/short", policy) == 201
        assert api.change("PUT", f"/api/{kind}/%2F/short", policy | {"priority": 7}) == 204
        for number in range(5):
            channel.publish(b"%d" % number, routing_key=kind)
        assert channel.queue_declare(kind, passive=True).message_count == 2
        _, queue = api.ask("GET", f"/api/queues/%2F/{kind}")
        assert isinstance(queue, dict)
        assert queue["effective_policy_definition"] == {"max-length": 2}
        assert (queue["policy"], queue["operator_policy"]) == (
            ("short", None) if kind == "policies" else (None, "short")
        )
        channel.queue_delete(kind)
    _, found = api.ask("GET", f"/api/{kind}/%2F/short")
    assert found == {"vhost": "/", "name": "short", "priority": 7, **policy}
    assert api.change("DELETE", f"/api/{kind}/%2F/short") == 204
    assert api.ask("GET", f"/api/{kind}/%2F/short")[0] == NOT_FOUND


def test_parameters(api: Api) -> None:
    value = {"pattern": "^x", "definition": {"expires": 1000}, "priority": 0, "apply-to": "queues"}
    path = "/api/parameters/operator_policy/%2F/as-parameter"
    assert api.change("PUT", path, {"value": value}) == 201
    found = api.ask("GET", path)[1]
    assert isinstance(found, dict)
    assert found["value"] == value
    assert api.change("DELETE", path) == 204
    assert api.ask("GET", path)[0] == NOT_FOUND
    assert api.change("PUT", "/api/global-parameters/note", {"value": [1, "two"]}) == 201
    assert api.ask("GET", "/api/global-parameters/note")[1] == {"name": "note", "value": [1, "two"]}
    assert api.change("DELETE", "/api/global-parameters/note") == 204


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/api/users/x", {"password": 1}, "the field 'password' must be text"),
        ("/api/users/x", {"password_hash": "?"}, "base 64"),
        ("/api/users/x", {"password": "p", "password_hash": ""}, "not both"),
        ("/api/permissions/%2F/guest", {"configure": ".*"}, "the field 'write' must be text"),
        ("/api/policies/%2F/x", {"pattern": "("}, "'definition' must be an object"),
        ("/api/policies/%2F/x", {"pattern": "(", "definition": {"expires": 1}}, ""),
        ("/api/vhost-limits/%2F/max-queues", {"value": "1"}, "must be a whole number"),
        ("/api/parameters/policy/%2F/x", {"value": 1}, "policies may not be set"),
        ("/api/vhosts/x", ["no object"], "the body is not a JSON object"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    api: Api, path: str, body: Any, reason: str
) -> None:
    status, answer = api.ask("PUT", path, body)
    assert status == BAD_REQUEST
    assert isinstance(answer, dict)
    assert answer["error"] == "bad_request"
    assert reason in answer["reason"]


def test_changes_last(tmp_path: Path) -> None:
    """A kill right after the answer loses nothing: it came after the sync."""
    policy = {"pattern": ".*", "definition": {"message-ttl": 1000}}
    with BrokerProcess(tmp_path) as process:
        api = Api(tmp_path / "management.sock")
        api.change("PUT", "/api/vhosts/kept", {"description": "kept"})
        api.change("PUT", "/api/users/kept", {"password": "kept"})
        api.change("PUT", "/api/permissions/kept/kept", dict.fromkeys(RIGHTS, "k"))
        api.change("PUT", "/api/policies/kept/kept", policy)
        api.close()
        process.crash()
        api = Api(tmp_path / "management.sock")
        for path in ("vhosts/kept", "users/kept", "permissions/kept/kept", "policies/kept/kept"):
            assert api.ask("GET", f"/api/{path}")[0] == 200, path
        api.close()
