"""The health checks: 200 with `ok`, or 503 with what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api


@pytest.mark.parametrize(
    "check",
    [
        "alarms",
        "local-alarms",
        "virtual-hosts",
        "is-in-service",
        "ready-to-serve-clients",
        "below-node-connection-limit",
        "node-is-quorum-critical",
        "node-is-mirror-sync-critical",
        "certificate-expiration/1/months",
        "protocol-listener/amqp091",
        "protocol-listener/amqp",
        "protocol-listener/mqtt,amqp",
        "metadata-store/initialized",
        "metadata-store/initialized/with-data",
        "reached-target-cluster-size",
        "quorum-queues-without-elected-leaders/all-vhosts",
        "quorum-queues-without-elected-leaders/vhost/%2F/pattern/a.*",
    ],
)
def test_all_is_well(api: Api, check: str) -> None:
    status, body, _ = api.answer(f"/api/health/checks/{check}")
    assert isinstance(body, dict)
    assert (status, body["status"]) == (200, "ok")


def test_a_port_is_listened_on_or_not(api: Api, broker: BrokerProcess) -> None:
    port = broker.port
    status, body, _ = api.answer(f"/api/health/checks/port-listener/{port}")
    assert (status, body) == (200, {"status": "ok", "port": port})
    status, body, _ = api.answer("/api/health/checks/port-listener/1")
    assert isinstance(body, dict)
    assert status == 503
    assert (body["status"], body["reason"], body["missing"]) == ("failed", "No active listener", 1)
    assert port in body["ports"]


def test_a_protocol_that_nobody_listens_for(api: Api) -> None:
    status, body, _ = api.answer("/api/health/checks/protocol-listener/mqtt")
    assert isinstance(body, dict)
    assert (status, body["missing"]) == (503, "mqtt")
    assert "amqp" in body["protocols"]


@pytest.mark.parametrize(
    "check",
    ["port-listener/many", "certificate-expiration/1/moons", "certificate-expiration/x/days"],
)
def test_what_cannot_be_asked(api: Api, check: str) -> None:
    status, body, _ = api.answer(f"/api/health/checks/{check}")
    assert isinstance(body, dict)
    assert (status, body["error"]) == (400, "bad_request")


def test_what_older_tools_ask_is_answered(api: Api) -> None:
    """AMQPStorm and plugins of Nagios ask healthchecks/node; 4.3 has these routes still."""
    status, rows, _ = api.answer("/api/nodes")
    assert isinstance(rows, list)
    node = rows[0]["name"]
    for path in ("healthchecks/node", f"healthchecks/node/{node}"):
        assert api.answer(f"/api/{path}")[:2] == (200, {"status": "ok"})
    status, attempts, _ = api.answer(f"/api/auth/attempts/{node}")
    assert status == 200
    assert isinstance(attempts, list)
    assert {row["protocol"] for row in attempts} == {"http", "amqp091"}
    assert api.answer(f"/api/auth/attempts/{node}/source")[:2] == (200, [])
    for path in ("healthchecks/node/none", "auth/attempts/none", "auth/attempts/none/source"):
        assert api.answer(f"/api/{path}")[0] == 404
    assert api.answer("/api/all-configuration")[1] == api.answer("/api/definitions")[1]
    assert api.ask("POST", "/api/all-configuration", {"vhosts": [{"name": "/"}]})[0] == 200
    assert api.change("POST", "/api/rebalance/queues") == 204
    assert api.change("POST", f"/api/vhosts/%2F/start/{node}") == 204


def test_a_vhost_is_alive(api: Api) -> None:
    assert api.answer("/api/aliveness-test/%2F")[:2] == (200, {"status": "ok"})
    assert api.answer("/api/aliveness-test/nowhere")[0] == 404


def test_definitions_come_as_a_file_of_a_form(api: Api) -> None:
    head = {"Content-Type": 'multipart/form-data; boundary="limit"'}

    def form(name: str) -> bytes:
        return (
            f'--limit\r\nContent-Disposition: form-data; name="{name}"; filename="d.json"\r\n'
            'Content-Type: application/json\r\n\r\n{"queues": [{"name": "q.form", "vhost": "/", '
            '"durable": true, "auto_delete": false, "arguments": {}}]}\r\n--limit--\r\n'
        ).encode()

    api.request("POST", "/api/definitions", form("file"), head)
    answer = api.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    assert api.answer("/api/queues/%2F/q.form")[0] == 200
    assert api.change("DELETE", "/api/queues/%2F/q.form") == 204
    api.request("POST", "/api/definitions", form("other"), head)
    answer = api.getresponse()
    assert answer.status == 400
    answer.read()


def test_an_alarm_fails_the_check(tmp_path: Path) -> None:
    settings = {"disk_free_bytes_min": str(1 << 60), "memory_bytes_max": str(1 << 26)}
    with BrokerProcess(tmp_path, settings=settings) as broker:
        api = Api(broker.data_dir / "management.sock")
        for check, where in (("alarms", "in the cluster"), ("local-alarms", "on the node")):
            status, body, _ = api.answer(f"/api/health/checks/{check}")
            assert isinstance(body, dict)
            assert (status, body["status"]) == (503, "failed")
            assert body["reason"] == f"There are alarms in effect {where}"
            assert [alarm["resource"] for alarm in body["alarms"]] == ["disk"]
        api.close()
