"""Requests of tools that are written in Go, as they send them: KEDA's scaler, Terraform's provider.

The tools themselves are not run here.  What is sent and which fields are read is what their sources
do: their client for Terraform (rabbit-hole) puts a slash behind the names of lists, sends the body
of a binding with all its fields, and takes the key of the binding from the header Location.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import pytest

from leveret.client.blocking import Channel, connect
from support.brokers.broker_process import BrokerProcess
from support.http.http_streams import HttpUser, http_port

VHOST = "a b/c"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of these tests' own."""
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


@pytest.fixture
def tool(broker: BrokerProcess) -> Iterator[Tool]:
    """A tool that logs in as guest, with a vhost."""
    with HttpUser(http_port(broker)) as user:
        tool = Tool(user)
        tool.put(f"vhosts/{path(VHOST)}", {"description": "", "tags": "", "tracing": False}, 201)
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        tool.put(f"permissions/{path(VHOST)}/guest", everything, 204)
        yield tool
        tool.delete(f"vhosts/{path(VHOST)}")


@pytest.fixture
def channel(broker: BrokerProcess, tool: Tool) -> Iterator[Channel]:
    """A channel in that vhost."""
    with connect(f"amqp://guest:guest@127.0.0.1:{broker.port}/{path(VHOST)}") as connection:
        yield connection.channel()


def path(name: str) -> str:
    """Return a name as Go's `url.PathEscape` writes it."""
    return quote(name, safe="$&+=:@")


class Tool:
    """Sends requests as Go's clients do, and reads the answers."""

    def __init__(self, user: HttpUser) -> None:
        self._user = user

    def get(self, where: str) -> Any:
        """Return the JSON of a good answer."""
        return self._user.json(f"/api/{where}")

    def missing(self, where: str) -> None:
        """Check that what a resource of Terraform's was is gone: it is told so by 404."""
        status, _, body = self._user.get(f"/api/{where}")
        assert status == 404, body

    def put(self, where: str, body: object, status: int) -> None:
        """Make or change an object."""
        found, text = self._user.ask("PUT", f"/api/{where}", body)
        assert (found, text) == (status, "")

    def refused(self, where: str, body: object) -> str:
        """Try to make an object that cannot be made; return what is wrong."""
        status, text = self._user.ask("PUT", f"/api/{where}", body)
        assert status == 400
        return text

    def delete(self, where: str) -> None:
        """Delete an object; it is gone then."""
        found, text = self._user.ask("DELETE", f"/api/{where}")
        assert (found, text) == (204, "")

    def bind(self, where: str, body: object) -> str:
        """Bind two ends; return the key of the binding, from the last part of the Location."""
        http = self._user.http
        http.request("POST", f"/api/{where}", json.dumps(body), self._user.headers)
        answer = http.getresponse()
        assert (answer.status, answer.read()) == (201, b"")
        return unquote(answer.headers["Location"].split("/")[-1])


# -- KEDA ------------------------------------------------------------------------------------------


def filled(channel: Channel, *queues: str) -> None:
    """Declare queues and put three messages into each, one of which is taken and not acked."""
    channel.confirm_select()
    for queue in queues:
        channel.queue_declare(queue)
        for _ in range(3):
            channel.publish(b"task", "", queue)
        assert channel.get(queue) is not None


def test_keda_reads_a_queue(tool: Tool, channel: Channel) -> None:
    filled(channel, "to do")
    # Go's `url.QueryEscape`, in a path.
    for name in (quote_plus("to do"), path("to do")):
        found = tool.get(f"queues/{path(VHOST)}/{name}")
        assert (found["name"], found["messages"]) == ("to do", 3)
        assert (found["messages_ready"], found["messages_unacknowledged"]) == (2, 1)
        for done in ("publish_details", "deliver_get_details"):
            assert isinstance(found["message_stats"][done]["rate"], int | float)
    tool.missing(f"queues/{path(VHOST)}/nothing")


def test_keda_reads_the_queues_that_a_pattern_fits(tool: Tool, channel: Channel) -> None:
    filled(channel, "orders-1", "orders-2", "others")
    query = "page=1&use_regex=true&pagination=false&name=%5Eorders-.%2A%24&page_size=100"
    found = tool.get(f"queues/{path(VHOST)}?{query}")
    # More than one page is an error in KEDA.
    assert found["page_count"] == 1
    assert [row["name"] for row in found["items"]] == ["orders-1", "orders-2"]
    assert sum(row["messages"] for row in found["items"]) == 6
    assert sum(row["messages_unacknowledged"] for row in found["items"]) == 2


def test_keda_counts_by_a_passive_declare(tool: Tool, channel: Channel) -> None:
    filled(channel, "to do")
    assert channel.queue_declare("to do", passive=True).message_count == 2


# -- Terraform's provider --------------------------------------------------------------------------


def test_terraform_keeps_vhosts_and_users(tool: Tool) -> None:
    found = tool.get("overview")
    assert {"rabbitmq_version", "management_version", "cluster_name"} <= set(found)
    assert VHOST in [row["name"] for row in tool.get("vhosts/")]
    tool.put(f"vhosts/{path(VHOST)}", {"description": "new", "tags": "", "tracing": False}, 204)
    assert tool.get(f"vhosts/{path(VHOST)}")["description"] == "new"
    for tags, status in (("administrator,monitoring", 201), (["management"], 204)):
        body = {"name": "terra", "tags": tags, "password": "secret"}
        tool.put("users/terra", body, status)
        wanted = tags.split(",") if isinstance(tags, str) else tags
        assert tool.get("users/terra")["tags"] == wanted
    assert "terra" in [row["name"] for row in tool.get("users/")]

    rights = {"configure": "^a", "write": "^b", "read": "^c"}
    where = f"permissions/{path(VHOST)}/terra"
    tool.missing(where)
    tool.put(where, rights, 201)
    assert tool.get(where) == {"user": "terra", "vhost": VHOST, **rights}
    tool.delete(where)
    tool.missing(where)

    where = f"topic-permissions/{path(VHOST)}/terra"
    topic = {"exchange": "amq.topic", "write": "^b", "read": "^c"}
    tool.put(where, topic, 201)
    assert tool.get(where) == [{"user": "terra", "vhost": VHOST, **topic}]
    tool.delete(where)
    tool.missing(where)
    tool.delete("users/terra")
    tool.missing("users/terra")


def test_terraform_keeps_exchanges_queues_and_bindings(tool: Tool) -> None:
    vhost = path(VHOST)
    exchange = {"type": "topic", "durable": True, "auto_delete": False, "arguments": {}}
    tool.put(f"exchanges/{vhost}/x.1", exchange, 201)
    tool.put(f"exchanges/{vhost}/y", exchange, 201)
    found = tool.get(f"exchanges/{vhost}/x.1")
    assert {name: found[name] for name in exchange} == exchange
    queue = {"durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}}
    tool.put(f"queues/{vhost}/q", {"type": "", **queue}, 201)
    found = tool.get(f"queues/{vhost}/q")
    assert found["arguments"]["x-max-length"] == 5
    assert (found["durable"], found["auto_delete"], found["vhost"]) == (True, False, VHOST)

    for kind, short, to in (("queue", "q", "q"), ("exchange", "e", "y")):
        for key, arguments in (("a/b c#", {}), ("", {}), ("k", {"x": 1})):
            sent = {
                "source": "x.1", "vhost": VHOST, "destination": to, "destination_type": kind,
                "routing_key": key, "arguments": arguments, "properties_key": "",
            }  # fmt: skip
            where = f"bindings/{vhost}/e/x.1/{short}/{to}"
            name = tool.bind(where, sent)
            (row,) = [one for one in tool.get(where) if one["properties_key"] == name]
            assert row == {**sent, "properties_key": name}
            assert row in tool.get(f"bindings/{vhost}")
            assert row in tool.get("bindings/")
            tool.delete(f"{where}/{path(name)}")
            assert name not in [one["properties_key"] for one in tool.get(where)]
    tool.delete(f"queues/{vhost}/q")
    tool.missing(f"queues/{vhost}/q")
    tool.delete(f"exchanges/{vhost}/x.1")
    tool.missing(f"exchanges/{vhost}/x.1")


def test_terraform_keeps_policies_limits_and_parameters(tool: Tool) -> None:
    vhost = path(VHOST)
    policy = {
        "vhost": VHOST, "pattern": "^q", "apply-to": "queues", "name": "p", "priority": 2,
        "definition": {"max-length": 10},
    }  # fmt: skip
    for kind in ("policies", "operator-policies"):
        tool.missing(f"{kind}/{vhost}/p")
        tool.put(f"{kind}/{vhost}/p", policy, 201)
        assert tool.get(f"{kind}/{vhost}/p") == policy
        assert policy in tool.get(f"{kind}/{vhost}")
        tool.delete(f"{kind}/{vhost}/p")
    tool.put(f"vhost-limits/{vhost}/max-queues", {"value": 10}, 204)
    assert tool.get(f"vhost-limits/{vhost}") == [{"vhost": VHOST, "value": {"max-queues": 10}}]
    tool.delete(f"vhost-limits/{vhost}/max-queues")
    values = {
        "shovel": {
            "src-uri": "amqp:///a", "src-queue": "q", "dest-uri": "amqp:///b", "dest-queue": "q",
            "ack-mode": "on-confirm",
        },
        "federation-upstream": {"uri": "amqp://elsewhere", "prefetch-count": 1000},
    }  # fmt: skip
    for component, value in values.items():
        where = f"parameters/{component}/{vhost}/n"
        sent = {"value": value, "component": component, "vhost": VHOST, "name": "n"}
        # As in RabbitMQ without the plugins.
        assert f"component {component} not found" in tool.refused(where, sent)
        tool.missing(where)
