"""What each kind of user may ask for on TCP, by RabbitMQ's tags."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from leveret.client.blocking import connect
from leveret.limits import HTTP_BODY_BYTES_MAX
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import unique
from support.http.http_api import Api
from support.http.http_streams import HttpUser, http_port

OK, CREATED, NO_CONTENT, BAD_REQUEST, REFUSED, NOT_FOUND = 200, 201, 204, 400, 401, 404

KINDS = ("", "management", "policymaker", "monitoring", "administrator", "impersonator")


class World:
    """Two vhosts, in one of which there is a user of each kind."""

    def __init__(self, broker: BrokerProcess, api: Api, stack: ExitStack) -> None:
        self.broker = broker
        self.mine, self.other = unique("mine"), unique("other")
        self.users: dict[str, HttpUser] = {}
        self.names: dict[str, str] = {}
        for vhost in (self.mine, self.other):
            assert api.change("PUT", f"/api/vhosts/{vhost}") == CREATED
            self.permit(api, "guest", vhost, ".*")
            with connect(self.uri("guest", "guest", vhost)) as connection:
                connection.channel().queue_declare(f"queue-{vhost}", durable=True)
            body = {"pattern": "x", "definition": {"max-length": 5}}
            assert api.change("PUT", f"/api/policies/{vhost}/policy-{vhost}", body) == CREATED
        for kind in KINDS:
            name = self.names[kind] = unique(kind or "plain")
            assert api.change("PUT", f"/api/users/{name}", {"password": "x", "tags": kind}) == 201
            self.permit(api, name, self.mine, "^may-.*")
            user = HttpUser(http_port(broker), name, "x")
            self.users[kind] = stack.enter_context(user)

    def permit(self, api: Api, user: str, vhost: str, pattern: str) -> None:
        rights = dict.fromkeys(("configure", "write", "read"), pattern)
        assert api.change("PUT", f"/api/permissions/{vhost}/{user}", rights) in (201, 204)

    def uri(self, user: str, password: str, vhost: str) -> str:
        return f"amqp://{user}:{password}@127.0.0.1:{self.broker.port}/{vhost}"

    def statuses(self, method: str, path: str, body: object = None) -> dict[str, int]:
        return {kind: user.ask(method, path, body)[0] for kind, user in self.users.items()}


@pytest.fixture
def world(broker: BrokerProcess, api: Api) -> Iterator[World]:
    with ExitStack() as stack:
        made = World(broker, api, stack)
        yield made
        for vhost in (made.mine, made.other):
            assert api.change("DELETE", f"/api/vhosts/{vhost}") == NO_CONTENT
        for name in made.names.values():
            api.change("DELETE", f"/api/users/{name}")


def allowed(*kinds: str) -> dict[str, int]:
    return {kind: OK if kind in kinds else REFUSED for kind in KINDS}


MANAGING = ("management", "policymaker", "monitoring", "administrator")
SEEING = ("monitoring", "administrator")


def test_who_may_look_at_what(world: World) -> None:
    for path in ("overview", "vhosts", "queues", "exchanges", "bindings", "connections"):
        assert world.statuses("GET", f"/api/{path}") == allowed(*MANAGING), path
    for path in ("nodes", "quotas"):
        assert world.statuses("GET", f"/api/{path}") == allowed(*SEEING), path
    for path in ("policies", "parameters", "global-parameters"):
        found = world.statuses("GET", f"/api/{path}")
        assert found == allowed("policymaker", "administrator"), path
    for path in ("users", "permissions", "user-limits", "operator-policies", "definitions"):
        assert world.statuses("GET", f"/api/{path}") == allowed("administrator"), path


def test_a_vhost_that_a_user_may_not_enter(world: World) -> None:
    for path in ("queues/{}", "queues/{}/queue-{}", "exchanges/{}", "bindings/{}", "vhosts/{}"):
        mine, other = (f"/api/{path}".replace("{}", name) for name in (world.mine, world.other))
        assert world.statuses("GET", mine) == allowed(*MANAGING), mine
        assert world.statuses("GET", other) == allowed(*SEEING), other
    found = world.statuses("GET", f"/api/policies/{world.other}/policy-{world.other}")
    assert found == allowed("administrator")
    # Who may not enter does not learn whether it is there.
    user = world.users["management"]
    assert user.get(f"/api/queues/{world.other}")[2] == user.get("/api/queues/gone")[2]
    assert world.users["administrator"].ask("GET", "/api/queues/gone")[0] == NOT_FOUND


def test_lists_have_what_a_user_may_see(world: World) -> None:
    for path, prefix in (("queues", "queue"), ("vhosts", ""), ("policies", "policy")):
        for kind in MANAGING:
            if path == "policies" and kind in ("management", "monitoring"):
                continue
            rows: Any = world.users[kind].json(f"/api/{path}")
            text = repr(rows)
            sees = kind == "administrator" or (kind == "monitoring" and path != "policies")
            assert (f"{prefix}-{world.other}".strip("-") in text) == sees, (path, kind)
            assert f"{prefix}-{world.mine}".strip("-") in text, (path, kind)
    of_user: Any = world.users["management"].json("/api/overview")
    assert of_user["object_totals"]["queues"] == 1
    of_all: Any = world.users["monitoring"].json("/api/overview")
    assert of_all["object_totals"]["queues"] >= 2


def test_a_user_sees_his_own_connections(world: World) -> None:
    name = world.names["management"]
    # The broker's own port of AMQP: a client of the user, and one of another.
    with (
        connect(world.uri(name, "x", world.mine)),
        connect(world.uri("guest", "guest", world.other)),
    ):
        rows: Any = world.users["management"].json("/api/connections")
        assert [row["user"] for row in rows] == [name]
        rows = world.users["policymaker"].json("/api/connections")
        assert rows == []
        totals: Any = world.users["management"].json("/api/overview")
        assert totals["object_totals"]["connections"] == 1
        rows = world.users["monitoring"].json("/api/connections")
        assert {"guest", name} <= {row["user"] for row in rows}


def test_changes_ask_for_permissions_as_amqp_does(world: World, api: Api) -> None:
    user = world.users["management"]
    queue = f"/api/queues/{world.mine}/queue-{world.mine}"
    for method, path in (("DELETE", queue), ("DELETE", f"{queue}/contents")):
        status, text = user.ask(method, path)
        assert (status, "ACCESS_REFUSED - " in text) == (REFUSED, True)
        # The same is said of what is not there.
        gone = path.replace("queue-", "gone-")
        assert user.ask(method, gone) == (status, text.replace("queue-", "gone-"))
    with connect(world.uri("guest", "guest", world.mine)) as connection:
        connection.channel().queue_declare("may-go", durable=True)
    assert world.users[""].ask("DELETE", f"/api/queues/{world.mine}/may-go")[0] == REFUSED
    assert user.ask("DELETE", f"/api/queues/{world.mine}/may-go/contents")[0] == NO_CONTENT
    assert user.ask("DELETE", f"/api/queues/{world.mine}/may-go")[0] == NO_CONTENT
    assert api.answer(f"/api/queues/{world.mine}/may-go")[0] == NOT_FOUND


def test_administrators_send_long_definitions(world: World) -> None:
    exchanges = [
        {"name": f"{number}-{'x' * 200}", "type": "topic", "durable": True, "auto_delete": False,
         "internal": False, "arguments": {}}
        for number in range(4_000)
    ]  # fmt: skip
    path, body = f"/api/definitions/{world.mine}", {"exchanges": exchanges}
    assert len(json.dumps(body)) > HTTP_BODY_BYTES_MAX
    assert world.users["administrator"].ask("POST", path, body)[0] == OK
    # Nobody else has a body read that is for administrators.
    for kind in ("", "policymaker"):
        with HttpUser(http_port(world.broker), world.names[kind], "x") as user:
            assert user.ask("POST", path, {"exchanges": []})[0] == REFUSED
    long = {"pattern": "x" * HTTP_BODY_BYTES_MAX, "definition": {"max-length": 5}}
    with HttpUser(http_port(world.broker), world.names["policymaker"], "x") as user:
        status, said = user.ask("PUT", f"/api/policies/{world.mine}/long", long)
        assert status == 413
        assert str(HTTP_BODY_BYTES_MAX) in str(said)


def test_who_makes_policies_binds_nobody_else(world: World) -> None:
    user = world.users["policymaker"]
    body = {"pattern": "y", "definition": {"max-length": 7}}
    assert user.ask("PUT", f"/api/policies/{world.mine}/new", body)[0] == CREATED
    assert user.ask("PUT", f"/api/policies/{world.other}/new", body)[0] == REFUSED
    assert user.ask("PUT", f"/api/operator-policies/{world.mine}/new", body)[0] == REFUSED
    value = {"value": {"max-queues": 1}}
    path = f"/api/parameters/vhost-limits/{world.mine}/limits"
    assert user.ask("PUT", path, value)[0] == REFUSED
    assert world.users["administrator"].ask("PUT", path, value)[0] in (CREATED, NO_CONTENT)
    assert user.ask("DELETE", path)[0] == REFUSED
    path = f"/api/parameters/operator_policy/{world.mine}/new"
    assert user.ask("PUT", path, {"value": body})[0] == REFUSED
    path = f"/api/parameters/shovel/{world.mine}/new"
    assert user.ask("PUT", path, {"value": {}})[0] == BAD_REQUEST
    assert user.ask("PUT", "/api/global-parameters/default_user_limits", value)[0] == REFUSED


def test_an_administrator_administers(world: World, broker: BrokerProcess) -> None:
    user, name = world.users["administrator"], unique("made")
    assert user.ask("PUT", f"/api/users/{name}", {"password": "x", "tags": ""})[0] == CREATED
    rights = dict.fromkeys(("configure", "write", "read"), ".*")
    assert user.ask("PUT", f"/api/permissions/{world.other}/{name}", rights)[0] == CREATED
    assert user.ask("PUT", f"/api/vhosts/{name}")[0] == CREATED
    # The user who makes a vhost may use it at once.
    assert user.ask("PUT", f"/api/queues/{name}/q", {})[0] == CREATED
    assert user.ask("DELETE", f"/api/vhosts/{name}")[0] == NO_CONTENT
    # Administrators may know that there is no such vhost, whatever they ask of it.
    for path in (f"queues/{name}/q", f"queues/{name}/q/contents", f"exchanges/{name}/x"):
        assert user.ask("DELETE", f"/api/{path}")[0] == NOT_FOUND
    assert user.ask("DELETE", f"/api/users/{name}")[0] == NO_CONTENT
    who = f"by user '{world.names['administrator']}' from 127.0.0.1:"
    assert broker.expect_line(f"administrative change: PUT /api/users/{name} {who}")
    assert broker.expect_line(f"administrative change: DELETE /api/vhosts/{name} {who}")
    for kind in KINDS:
        if kind != "administrator":
            assert world.users[kind].ask("PUT", f"/api/users/{name}", {})[0] == REFUSED


def test_limits_of_all_users_are_for_administrators(world: World, api: Api) -> None:
    name = unique("global")
    assert api.change("PUT", f"/api/global-parameters/{name}", {"value": 1}) == CREATED
    limits = "/api/global-parameters/default_user_limits"
    assert api.answer(limits)[0] == OK
    assert world.users["administrator"].ask("GET", limits)[0] == OK
    assert world.users["policymaker"].ask("GET", limits)[0] == NOT_FOUND
    status, text = world.users["policymaker"].ask("GET", "/api/global-parameters")
    named = {row["name"] for row in json.loads(text)}
    assert (status, name in named, "default_user_limits" in named) == (OK, True, False)
    assert api.change("DELETE", f"/api/global-parameters/{name}") == NO_CONTENT
