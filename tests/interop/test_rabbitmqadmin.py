"""RabbitMQ's own `rabbitmqadmin` (Debian's, unpatched) against Leveret's HTTP API."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.client.blocking import connect
from leveret.errors import ConnectionForced
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import Pki, port_of
from support.http.http_streams import http_port

PLACES = ("/usr/bin", "/usr/lib/rabbitmq/bin", "/usr/local/bin")
SECONDS_MAX = 120


def script() -> Path | None:
    """Return Debian's rabbitmqadmin, if it is installed."""
    found = [Path(place, "rabbitmqadmin") for place in PLACES]
    return next((path for path in found if path.exists()), None)


pytestmark = pytest.mark.skipif(script() is None, reason="Debian's rabbitmq-server has it")


class Admin:
    """Runs rabbitmqadmin as one user of one broker."""

    def __init__(self, port: int, config: Path, *options: str, host: str = "127.0.0.1") -> None:
        config.write_text("")
        where = ["--host", host, "--port", str(port), "--config", str(config), *options]
        self._command = [sys.executable, str(script()), *where]

    def __call__(self, *arguments: str) -> str:
        """Run a command that must succeed; return what it printed."""
        run = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX
        )
        assert run.returncode == 0, run.stderr or run.stdout
        return run.stdout

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """Return what a command lists."""
        found: list[dict[str, Any]] = json.loads(self("--format", "raw_json", *arguments))
        return found

    def refused(self, *arguments: str) -> str:
        """Run a command that must fail; return why it did."""
        run = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX
        )
        assert run.returncode != 0
        return run.stdout + run.stderr


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of these tests' own."""
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


@pytest.fixture
def admin(broker: BrokerProcess, tmp_path: Path) -> Admin:
    """The command, as guest."""
    return Admin(http_port(broker), tmp_path / "rabbitmqadmin.conf")


def definitions(path: Path) -> dict[str, Any]:
    """Return what was exported, each list of it in an order of its own."""
    found: dict[str, Any] = json.loads(path.read_text())
    return {
        name: sorted(value, key=json.dumps) if isinstance(value, list) else value
        for name, value in found.items()
        # The name of the broker that the definitions come from.
        if name != "original_cluster_name"
    }


def test_queues_exchanges_and_bindings(admin: Admin) -> None:
    admin("declare", "queue", "name=q", "durable=true", 'arguments={"x-max-length":10}')
    admin("declare", "exchange", "name=x", "type=topic")
    admin("declare", "binding", "source=x", "destination=q", "routing_key=a.#")
    (queue,) = [row for row in admin.rows("list", "queues") if row["name"] == "q"]
    assert (queue["durable"], queue["arguments"]) == (True, {"x-max-length": 10})
    assert ("x", "topic") in [(row["name"], row["type"]) for row in admin.rows("list", "exchanges")]
    bindings = [(row["source"], row["routing_key"]) for row in admin.rows("list", "bindings")]
    assert ("x", "a.#") in bindings
    admin("publish", "exchange=x", "routing_key=a.b", "payload=hello")
    assert "hello" in admin("get", "queue=q", "ackmode=ack_requeue_true")
    admin("purge", "queue", "name=q")
    (queue,) = [row for row in admin.rows("list", "queues") if row["name"] == "q"]
    assert queue["messages"] == 0
    admin("delete", "binding", "source=x", "destination_type=queue", "destination=q",
          "properties_key=a.%23")  # fmt: skip
    admin("delete", "exchange", "name=x")
    admin("delete", "queue", "name=q")
    assert "q" not in [row["name"] for row in admin.rows("list", "queues")]


def test_users_vhosts_permissions_and_policies(admin: Admin) -> None:
    admin("declare", "vhost", "name=v")
    admin("declare", "user", "name=ann", "password=secret", "tags=monitoring")
    admin("declare", "permission", "vhost=v", "user=ann", "configure=.*", "write=.*", "read=.*")
    policy = ["name=p", "pattern=^a", 'definition={"max-length":1}', "apply-to=queues"]
    admin("--vhost", "v", "declare", "policy", *policy)
    assert "v" in [row["name"] for row in admin.rows("list", "vhosts")]
    assert "ann" in [row["name"] for row in admin.rows("list", "users")]
    assert ("v", "ann") in [(r["vhost"], r["user"]) for r in admin.rows("list", "permissions")]
    assert ("v", "p") in [(row["vhost"], row["name"]) for row in admin.rows("list", "policies")]
    assert "Access refused" in admin.refused(
        "--username", "ann", "--password", "x", "list", "queues"
    )
    admin("--vhost", "v", "delete", "policy", "name=p")
    admin("delete", "user", "name=ann")
    admin("delete", "vhost", "name=v")
    assert "v" not in [row["name"] for row in admin.rows("list", "vhosts")]


def test_definitions_go_out_and_come_back(admin: Admin, tmp_path: Path) -> None:
    admin("declare", "queue", "name=kept", "durable=true", 'arguments={"x-max-length":7}')
    admin("declare", "exchange", "name=kept", "type=headers")
    admin("declare", "binding", "source=kept", "destination=kept", 'arguments={"x-match":"any"}')
    admin("declare", "user", "name=kim", "password=secret", "tags=management")
    admin("declare", "permission", "vhost=/", "user=kim", "configure=^k", "write=^k", "read=^k")
    whole, one_vhost, back = tmp_path / "whole", tmp_path / "vhost", tmp_path / "back"
    admin("export", str(whole))
    admin("--vhost", "/", "export", str(one_vhost))
    assert "users" in definitions(whole)
    assert "users" not in definitions(one_vhost)

    with BrokerProcess(tmp_path / "other") as other:
        into = Admin(http_port(other), tmp_path / "other.conf")
        into("import", str(whole))
        into("export", str(back))
        assert definitions(back) == definitions(whole)
        assert "kept" in into("--username", "kim", "--password", "secret", "list", "exchanges")

        into("declare", "vhost", "name=copy")
        everything = ["configure=.*", "write=.*", "read=.*"]
        into("declare", "permission", "vhost=copy", "user=guest", *everything)
        into("--vhost", "copy", "import", str(one_vhost))
        into("--vhost", "copy", "export", str(back))
        for kind in ("queues", "exchanges", "bindings"):
            assert definitions(back)[kind] == definitions(one_vhost)[kind]


def test_what_cannot_be_imported_changes_nothing(admin: Admin, tmp_path: Path) -> None:
    before, bad, after = tmp_path / "before", tmp_path / "bad", tmp_path / "after"
    admin("export", str(before))
    bad.write_text('{"queues": [{"name": "half"')
    assert "JSON" in admin.refused("import", str(bad))
    queue = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    wrong = queue | {"name": "second", "arguments": {"x-max-length": "many"}}
    bad.write_text(json.dumps({"queues": [queue | {"name": "first"}, wrong]}))
    assert "x-max-length" in admin.refused("import", str(bad))
    admin("export", str(after))
    assert definitions(after) == definitions(before)


def test_connections_and_channels_are_listed_and_closed(
    broker: BrokerProcess, admin: Admin
) -> None:
    with connect(broker.uri, recover=False) as connection:
        connection.channel()
        second = connection.channel()
        second.queue_declare("read", exclusive=True)
        second.consume("read")
        (row,) = [row for row in admin.rows("list", "connections") if row["channels"] == 2]
        assert (row["user"], row["vhost"], row["protocol"]) == ("guest", "/", "AMQP 0-9-1")
        names = [f"{row['name']} ({number})" for number in (1, 2)]
        assert sorted(found["name"] for found in admin.rows("list", "channels")) == names
        (consumer,) = admin.rows("list", "consumers")
        assert (consumer["queue"]["name"], consumer["ack_required"]) == ("read", True)
        admin("close", "connection", f"name={row['name']}")
        with pytest.raises(ConnectionForced):
            second.queue_declare("more", exclusive=True)
    assert admin.rows("list", "channels") == []
    assert "Not found" in admin.refused("close", "connection", f"name={row['name']}")


def test_each_list_and_format(broker: BrokerProcess, admin: Admin) -> None:
    with connect(broker.uri) as connection:
        connection.channel().queue_declare("listed", exclusive=True)
        (shown,) = admin.rows("show", "overview")
        assert shown["object_totals"]["queues"] >= 1
        assert shown["rabbitmq_version"] in admin("show", "overview")
        kinds = {
            "connections": "guest", "channels": "guest", "consumers": "No items",
            "exchanges": "amq.topic", "queues": "listed", "bindings": "listed", "users": "guest",
            "vhosts": "/", "permissions": "guest", "nodes": "mem_used", "parameters": "No items",
            "policies": "No items", "operator_policies": "No items", "vhost_limits": "No items",
        }  # fmt: skip
        for kind, word in kinds.items():
            assert word in admin("list", kind), kind
        for form in ("tsv", "long", "table", "kvp", "bash", "pretty_json", "raw_json"):
            assert "listed" in admin("--format", form, "list", "queues", "name", "messages"), form
    deep = ["--depth", "2", "--sort", "name", "--sort-reverse"]
    rows = admin("--format", "tsv", *deep, "list", "exchanges", "name").split()[1:]
    assert rows == sorted(rows, reverse=True)
    assert "amq.topic" in rows


def test_parameters_limits_and_operator_policies(admin: Admin) -> None:
    admin("declare", "operator_policy", "name=o", "pattern=^a", 'definition={"max-length":1}')
    admin("declare", "vhost_limit", "vhost=/", "name=max-queues", "value=1000")
    limits = ["component=vhost-limits", "name=limits"]
    refused = ["component=federation-upstream", "name=up", 'value={"uri":"amqp://localhost"}']
    assert "component federation-upstream not found" in admin.refused(
        "declare", "parameter", *refused
    )
    assert [row["name"] for row in admin.rows("list", "operator_policies")] == ["o"]
    assert admin.rows("list", "vhost_limits") == [{"vhost": "/", "value": {"max-queues": 1000}}]
    assert "limits" in [row["name"] for row in admin.rows("list", "parameters")]
    admin("delete", "vhost_limit", "vhost=/", "name=max-queues")
    admin("declare", "parameter", *limits, 'value={"max-queues":1000}')
    admin("delete", "parameter", *limits)
    admin("delete", "operator_policy", "name=o")
    assert admin.rows("list", "operator_policies") == []


def test_over_tls(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    with pki.broker_process(tmp_path / "data") as broker:
        port = port_of(broker, "https")
        trust = ["--ssl", "--ssl-ca-cert-file", str(pki.authority.certificate)]
        admin = Admin(port, tmp_path / "good.conf", *trust, host="localhost")
        admin("declare", "queue", "name=q")
        assert [row["name"] for row in admin.rows("list", "queues")] == ["q"]
        distrusting = Admin(port, tmp_path / "bad.conf", "--ssl", host="localhost")
        assert "CERTIFICATE_VERIFY_FAILED" in distrusting.refused("list", "queues")
