"""What was set over the management socket and answered is there after a SIGKILL the next moment.

Users, vhosts, permissions, policies, limits and parameters are set, replaced and deleted in an
order that a seed chooses.  The kill comes right behind an answer, or while a request is on its way:
that one change may have happened or not, and nothing else may have changed.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.http.http_api import Api
from support.wire import raw

SHORT: Final = {"journal_bytes_max": "65536"}
VHOSTS: Final = ("%2F", "v1", "v2")
USERS: Final = ("guest", "u1", "u2")
#: Some password's hash, as RabbitMQ makes them.
HASH: Final = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
NAMES: Final = ("a", "b")

#: A body, or None where there is nothing at a path.
Body = dict[str, Any] | None

#: What is asked for all of an owner, and answered as a list.
LISTED: Final = ("topic-permissions", "vhost-limits", "user-limits")


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


class Operator:
    """Sets and deletes what there may be, and knows what there is, by path."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.there: dict[str, Body] = {"vhosts/%2F": {}, "users/guest": {}}

    def change(self) -> tuple[str, str, Body]:
        """Choose a change that can be done: method, path and body."""
        path = self.random.choice(self.paths())
        if path in self.there and self.random.randrange(3) == 0:
            return "DELETE", path, None
        return "PUT", path, self.body(path)

    def paths(self) -> list[str]:
        """All that can be set now; the owners that are there from the start stay as they are."""
        vhosts = [name for name in VHOSTS if f"vhosts/{name}" in self.there]
        users = [name for name in USERS if f"users/{name}" in self.there]
        return paths_of(vhosts, users[1:])

    def body(self, path: str) -> dict[str, Any]:
        """A new body for a path."""
        number = self.random.randrange(1, 1000)
        policy = {"pattern": f"^{number}", "definition": {"max-length": number}, "priority": 1}
        policy["apply-to"] = "queues"
        bodies: dict[str, dict[str, Any]] = {
            "vhosts": {"description": f"of {number}"},
            "users": {
                "password_hash": HASH,
                "tags": [f"{number}"],
            },
            "permissions": {"configure": f"^{number}", "write": ".*", "read": ""},
            "topic-permissions": {"exchange": "amq.topic", "write": f"^{number}", "read": ""},
            "policies": policy,
            "operator-policies": policy,
            "parameters": {"value": policy},
        }
        return bodies.get(kind_of(path), {"value": number})

    def changed(self, method: str, path: str, body: Body) -> None:
        """Note a change that happened; what belongs to a deleted owner goes with it."""
        if method == "PUT":
            self.there[path] = body
            return
        del self.there[path]
        kind, owner = path.split("/")[:2]
        if kind in ("vhosts", "users"):
            for other in [one for one in self.there if owner in one.split("/")[1:]]:
                del self.there[other]

    def judge(self, api: Api, open_change: tuple[str, str, Body] | None) -> None:
        """Ask for all there may be; the change on its way may have happened or not."""
        if open_change is not None:
            method, path, body = open_change
            found = shown(api, path, body or self.there[path] or {})
            if found == body:
                self.changed(method, path, body)
        for path in paths_of(list(VHOSTS), list(USERS[1:])):
            body = self.there.get(path)
            found = shown(api, path, body or {})
            assert found == body, f"{path}: {found}, set {body}"


def paths_of(vhosts: list[str], users: list[str]) -> list[str]:
    """All that can be set where there are these vhosts and users."""
    paths = [f"vhosts/{name}" for name in VHOSTS[1:]] + [f"users/{name}" for name in USERS[1:]]
    paths += [f"global-parameters/{name}" for name in NAMES]
    paths += [f"user-limits/{user}/max-channels" for user in users]
    for vhost in vhosts:
        paths += [f"vhost-limits/{vhost}/max-queues", f"parameters/operator_policy/{vhost}/c"]
        for kind in ("policies", "operator-policies"):
            paths += [f"{kind}/{vhost}/{name}" for name in NAMES]
        for kind in ("permissions", "topic-permissions"):
            paths += [f"{kind}/{vhost}/{user}" for user in users]
    return paths


def kind_of(path: str) -> str:
    """The first word of a path."""
    return path.partition("/")[0]


def shown(api: Api, path: str, like: dict[str, Any]) -> Body:
    """What the API shows at a path, of the fields of `like`; None where nothing is there."""
    asked = path.rpartition("/")[0] if path.endswith(("max-queues", "max-channels")) else path
    status, answer = api.ask("GET", f"/api/{asked}")
    if status == 404:
        return None
    if kind_of(path) in LISTED:
        assert isinstance(answer, list)
        if not answer:
            return None
        answer = answer[0]
        if asked != path:
            return {"value": answer["value"][path.rpartition("/")[2]]}
    assert isinstance(answer, dict)
    return {name: answer[name] for name in like}


def fatten(uri: str, count: int, login: raw.Login | None = None) -> None:
    """Publish so much that the journal is full soon."""
    with raw.connect(uri, login) as connection:
        connection.open_channel(1)
        connection.declare(1, "fat", durable=True)
        connection.call(1, "confirm.select")
        for _ in range(count):
            connection.send(raw.publish(1, "", "fat", bytes(20_000), delivery_mode=2))
        while connection.expect(1, "basic.ack").delivery_tag < count:
            pass


@pytest.mark.parametrize(("seed", "settings"), [(1, {}), (2, SHORT)], ids=["long", "short"])
def test_answered_changes_are_there(tmp_path: Path, seed: int, settings: dict[str, str]) -> None:
    operator = Operator(seed)
    checkpoints = 0
    with BrokerProcess(tmp_path, settings=settings) as broker:
        for number in range(4):
            api = Api(tmp_path / "management.sock")
            if settings:
                fatten(broker.uri, 4)
            for _ in range(operator.random.randrange(5, 40)):
                change = operator.change()
                assert api.change(change[0], f"/api/{change[1]}", change[2]) in (201, 204)
                operator.changed(*change)
            open_change = None
            if number % 2:
                open_change = method, path, body = operator.change()
                api.request(method, f"/api/{path}", json.dumps(body) if body else None)
            broker.kill()
            api.close()
            checkpoints += broker.output.count("checkpoint")
            broker.start()
            api = Api(tmp_path / "management.sock")
            operator.judge(api, open_change)
            api.close()
    assert not settings or checkpoints >= 2


def test_who_was_let_in_is_let_in(tmp_path: Path) -> None:
    """A password, rights and a policy that were answered a moment before count after the kill."""
    rights = {"configure": "^ann", "write": ".*", "read": ".*"}
    policy = {"pattern": "^ann", "definition": {"max-length": 2}}
    login = raw.Login(user="ann", password="s3cret", vhost="own")
    changes: list[tuple[str, dict[str, Any]]] = [
        ("vhosts/own", {}),
        ("users/ann", {"password": "s3cret", "tags": ""}),
        ("permissions/own/ann", rights),
        ("policies/own/short", policy),
    ]
    with BrokerProcess(tmp_path) as broker:
        for path, body in changes:
            api = Api(tmp_path / "management.sock")
            assert api.change("PUT", f"/api/{path}", body) == 201
            broker.crash()
            api.close()
        with raw.connect(broker.uri, login) as connection:
            connection.open_channel(1)
            connection.declare(1, "ann-queue", durable=True)
            connection.send(*[raw.publish(1, "", "ann-queue", b"%d" % n) for n in range(5)])
            assert connection.drain(1, "ann-queue") == [b"3", b"4"]
            connection.send(raw.method(1, "queue.declare", queue="other"))
            connection.expect_channel_close(1, 403)


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "on its way"])
def test_a_vhost_goes_whole(tmp_path: Path, answered: bool) -> None:
    """A deleted vhost takes its queues, bindings and messages along, in one record."""
    rights = dict.fromkeys(("configure", "write", "read"), ".*")
    login = raw.Login(vhost="own")
    with BrokerProcess(tmp_path, settings=SHORT) as broker:
        for _ in range(2):
            api = Api(tmp_path / "management.sock")
            assert api.change("PUT", "/api/vhosts/own", {}) in (201, 204)
            assert api.change("PUT", "/api/permissions/own/guest", rights) in (201, 204)
            fatten(broker.uri, 10, login)
            api.request("DELETE", "/api/vhosts/own")
            if answered:
                assert api.getresponse().status == 204
            broker.kill()
            api.close()
            broker.start()
            api = Api(tmp_path / "management.sock")
            there = api.ask("GET", "/api/vhosts/own")[0] == 200
            assert not (there and answered)
            if there:
                _, queue = api.ask("GET", "/api/queues/own/fat")
                assert isinstance(queue, dict)
                assert queue["messages"] == 10
                assert api.change("DELETE", "/api/vhosts/own") == 204
            assert api.ask("GET", "/api/permissions/own/guest")[0] == 404
            _, queues = api.ask("GET", "/api/queues")
            assert queues == []
            api.close()
