"""The fields that clients of RabbitMQ's API cannot do without, each of the type that they expect.

The strictest is the client of rabbitmqadmin v2 (rabbitmq_http_client): a field that is missing, or
of another type, makes a whole command fail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from leveret.client.blocking import Channel, Connection, connect
from leveret.session.settings import RABBITMQ_VERSION
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.http.metrics_text import scrape

NUMBER = (int, float)

OVERVIEW = {
    "cluster_name": str,
    "node": str,
    "erlang_full_version": str,
    "erlang_version": str,
    "rabbitmq_version": str,
    "product_name": str,
    "product_version": str,
    "build": str,
    "statistics_db_event_queue": int,
    "churn_rates": {
        "connection_created": int,
        "connection_closed": int,
        "queue_declared": int,
        "queue_created": int,
        "queue_deleted": int,
        "channel_created": int,
        "channel_closed": int,
    },
    "queue_totals": {"messages": int, "messages_details": {"rate": float}},
    "object_totals": {
        "connections": int,
        "channels": int,
        "queues": int,
        "exchanges": int,
        "consumers": int,
    },
    "message_stats": {"publish": int, "publish_details": {"rate": float}},
    "listeners": [{"node": str, "protocol": str, "port": int, "ip_address": str}],
}

NODE = {
    "name": str,
    "uptime": int,
    "run_queue": int,
    "processors": int,
    "os_pid": str,
    "fd_total": int,
    "proc_total": int,
    "mem_limit": int,
    "mem_alarm": bool,
    "disk_free_limit": int,
    "disk_free_alarm": bool,
    "rates_mode": str,
    "enabled_plugins": list,
    "being_drained": bool,
    "partitions": list,
    "running": bool,
}

QUEUE = {
    "name": str,
    "vhost": str,
    "type": str,
    "durable": bool,
    "auto_delete": bool,
    "exclusive": bool,
    "arguments": dict,
    "node": str,
    "state": str,
    "consumers": int,
    "memory": int,
    "message_stats": {
        "publish_details": {"rate": float},
        "deliver_get_details": {"rate": float},
    },
    "messages_details": {"rate": float},
    "messages_ready_details": {"rate": float},
    "messages_unacknowledged_details": {"rate": float},
}

CHANNEL = {
    "number": int,
    "name": str,
    "connection_details": {"name": str, "peer_host": str, "peer_port": int},
    "vhost": str,
    "state": str,
    "consumer_count": int,
    "confirm": bool,
    "prefetch_count": int,
    "messages_unacknowledged": int,
    "messages_unconfirmed": int,
}

CONNECTION = {
    "name": str,
    "node": str,
    "protocol": str,
    "user": str,
    "connected_at": int,
    "client_properties": dict,
    "recv_cnt": int,
    "send_cnt": int,
    "send_pend": int,
}

CONSUMER = {
    "consumer_tag": str,
    "active": bool,
    "ack_required": bool,
    "prefetch_count": int,
    "exclusive": bool,
    "arguments": dict,
    "queue": {"name": str, "vhost": str},
}


def check(wanted: Any, found: Any, where: str) -> None:
    """Check that `found` has the fields and types of `wanted`."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict), where
        for name, inner in wanted.items():
            assert name in found, f"{where}.{name} is missing"
            check(inner, found[name], f"{where}.{name}")
    elif isinstance(wanted, list):
        assert found, f"{where} is empty"
        for row in found:
            check(wanted[0], row, where)
    else:
        exact = type(found) is wanted or (wanted is float and type(found) in NUMBER)
        assert exact, f"{where} is a {type(found).__name__}"


def ok(api: Api, path: str) -> Any:
    """Return what a path holds."""
    status, body, headers = api.answer(path)
    assert status == 200, body
    assert headers["cache-control"] == "no-cache"
    return body


def test_the_overview_and_the_node(api: Api) -> None:
    overview = ok(api, "/api/overview")
    check(OVERVIEW, overview, "overview")
    node = ok(api, f"/api/nodes/{quote(overview['node'], safe='')}")
    check(NODE, node, "node")
    (row,) = ok(api, "/api/nodes")
    check(NODE, row, "node")
    memory = ok(api, f"/api/nodes/{quote(overview['node'], safe='')}/memory")["memory"]
    total = memory.pop("total")
    check({"rss": int, "allocated": int, "erlang": int}, total, "memory.total")
    assert memory.pop("strategy") == "rss"
    assert len(memory) >= 25
    assert sum(memory.values()) == total["erlang"]
    relative = ok(api, f"/api/nodes/{quote(overview['node'], safe='')}/memory/relative")
    assert relative["memory"].keys() == memory.keys() | {"total"}


def test_a_queue_with_its_consumer(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.fields", durable=True)
    channel.qos(7)
    tag = channel.consume("q.fields").consumer_tag
    one = ok(api, "/api/queues/%2F/q.fields")
    check(QUEUE, one, "queue")
    check(QUEUE, ok(api, "/api/queues/%2F")[0], "queue")
    check(QUEUE, ok(api, "/api/queues/detailed")[0], "queue")
    (details,) = one["consumer_details"]
    check(CONSUMER, details, "consumer")
    assert details["channel_details"]["user_provided_name"] == "tester"
    assert (details["consumer_tag"], details["prefetch_count"]) == (tag, 7)
    for path in ("/api/consumers", "/api/consumers/%2F"):
        (row,) = [row for row in ok(api, path) if row["consumer_tag"] == tag]
        check(CONSUMER, row, "consumer")
        assert row["queue"] == {"name": "q.fields", "vhost": "/"}
        assert row["messages_unacknowledged"] == 0
    channel.publish(b"x", "", "q.fields")
    (details,) = ok(api, "/api/queues/%2F/q.fields")["consumer_details"]
    assert details["messages_unacknowledged"] == 1
    channel.queue_delete("q.fields")


def test_connections_and_their_channels(api: Api, connection: Connection, channel: Channel) -> None:
    channel.confirm_select()
    (row,) = [r for r in ok(api, "/api/connections") if r.get("user_provided_name") == "tester"]
    check(CONNECTION, row, "connection")
    name = quote(row["name"], safe="")
    assert ok(api, f"/api/connections/{name}")["name"] == row["name"]
    for path in (f"/api/connections/{name}/channels", "/api/channels", "/api/vhosts/%2F/channels"):
        rows = [r for r in ok(api, path) if r["connection_details"]["name"] == row["name"]]
        (shown,) = rows
        check(CHANNEL, shown, "channel")
        assert shown["confirm"]
        assert shown["connection_details"]["user_provided_name"] == "tester"
    one = ok(api, f"/api/channels/{quote(shown['name'], safe='')}")
    assert (one["name"], one["consumer_details"]) == (shown["name"], [])
    assert row["name"] in [r["name"] for r in ok(api, "/api/connections/username/guest")]
    assert row["name"] in [r["name"] for r in ok(api, "/api/vhosts/%2F/connections")]
    assert ok(api, "/api/connections/username/nobody") == []


def test_what_is_gone_is_not_found(api: Api) -> None:
    for path in ("connections/a", "connections/a/channels", "channels/a", "nodes/a"):
        assert api.answer(f"/api/{path}")[0] == 404


def reported_versions(broker: BrokerProcess) -> list[object]:
    """Return the version of RabbitMQ from each place where a broker reports it."""
    with connect(broker.uri) as connection:
        found = [connection.server_properties["version"]]
    api = Api(broker.data_dir / "management.sock")
    overview = ok(api, "/api/overview")
    found += [overview["rabbitmq_version"], overview["management_version"], ok(api, "/api/version")]
    (node,) = ok(api, "/api/nodes")
    found += [node["rabbitmq_version"], *[each["version"] for each in node["applications"]]]
    for definitions in ("/api/definitions", "/api/definitions/%2F"):
        _, file, _ = api.answer(definitions)
        assert isinstance(file, dict)
        found += [file["rabbit_version"], file["rabbitmq_version"]]
    api.close()
    metrics = scrape(broker)
    (build,) = [dict(labels) for name, labels in metrics.samples if name == "rabbitmq_build_info"]
    return [*found, build["rabbitmq_version"], build["prometheus_plugin_version"]]


@pytest.mark.parametrize("compatibility", ["rabbitmq", "leveret"])
def test_every_place_reports_the_version_that_is_set(tmp_path: Path, compatibility: str) -> None:
    settings = {"rabbitmq_version": "4.3.6", "compatibility": compatibility}
    with BrokerProcess(tmp_path, settings=settings) as broker:
        in_connection, *others = reported_versions(broker)
    assert (in_connection == "4.3.6") is (compatibility == "rabbitmq")
    assert others == ["4.3.6"] * 11


def test_the_version_that_is_reported_by_default(broker: BrokerProcess) -> None:
    assert RABBITMQ_VERSION == "3.13.7"
    assert set(reported_versions(broker)) == {"3.13.7"}


def test_who_asks_and_what_the_broker_is(api: Api) -> None:
    assert ok(api, "/api/whoami")["tags"] == ["administrator"]
    assert ok(api, "/api/extensions") == []
    for row in (ok(api, "/api/overview"), ok(api, "/api/nodes")[0]):
        assert "x-delayed-message" in [one["name"] for one in row["exchange_types"]]
    assert ok(api, "/api/vhosts/%2F")["protected_from_deletion"] is False
    _, definitions, _ = api.answer("/api/definitions")
    assert isinstance(definitions, dict)
    assert definitions["rabbitmq_definition_format"] == "cluster"
    check([{"name": str, "state": str, "stability": str}], ok(api, "/api/feature-flags"), "flag")
    assert api.change("PUT", "/api/feature-flags/quorum_queue/enable", {}) == 204
    assert api.ask("PUT", "/api/feature-flags/none/enable", {})[0] == 400
    assert ok(api, "/api/deprecated-features") == ok(api, "/api/deprecated-features/used") == []
    before = ok(api, "/api/cluster-name")["name"]
    assert api.change("PUT", "/api/cluster-name", {"name": "rabbits"}) == 204
    assert ok(api, "/api/cluster-name") == {"name": "rabbits"}
    assert ok(api, "/api/overview")["cluster_name"] == "rabbits"
    assert api.change("PUT", "/api/cluster-name", {"name": before}) == 204


def test_the_churn_is_counted(api: Api, channel: Channel) -> None:
    before = ok(api, "/api/overview")["churn_rates"]
    for _ in range(2):
        channel.queue_declare("q.churn")
    channel.queue_delete("q.churn")
    after = ok(api, "/api/overview")["churn_rates"]
    names = ("queue_declared", "queue_created", "queue_deleted")
    assert [after[name] - before[name] for name in names] == [2, 1, 1]


def test_totals_do_not_fall_with_a_deleted_queue(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.gone")
    channel.confirm_select()
    channel.publish(b"x", "", "q.gone")
    before = ok(api, "/api/overview")["message_stats"]["publish"]
    channel.queue_delete("q.gone")
    assert ok(api, "/api/overview")["message_stats"]["publish"] == before
