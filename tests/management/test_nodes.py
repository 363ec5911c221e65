"""`GET /api/nodes`: what the journal writes and syncs is counted by RabbitMQ's names."""

from __future__ import annotations

from typing import Any

from leveret.client import BasicProperties
from leveret.client.blocking import Channel
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api


def node(api: Api) -> dict[str, Any]:
    """Return the one node."""
    status, rows, _ = api.answer("/api/nodes")
    assert status == 200
    assert isinstance(rows, list)
    (row,) = rows
    found: dict[str, Any] = row
    return found


def test_records_writes_and_syncs_are_counted(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.nodes", durable=True)
    channel.confirm_select()
    before = node(api)
    for _ in range(5):
        channel.publish(b"x" * 100, "", "q.nodes", BasicProperties(delivery_mode=2))
    after = node(api)
    # Each waits for its confirm, so each has a group and a sync of its own.
    for field in ("io_write_count", "io_sync_count"):
        assert after[field] == before[field] + 5
    # Each group also tells how far the publishes of the channel came.
    assert after["records_written"] == before["records_written"] + 10
    written = after["io_write_bytes"] - before["io_write_bytes"]
    assert 5 * 100 < written < 5 * 300
    assert after["io_sync_avg_time"] > 0
    assert after["io_write_avg_time"] > 0
    assert after["records_per_sync"] == round(after["records_written"] / after["io_sync_count"], 2)


def test_what_the_node_uses_and_did_has_rates(api: Api) -> None:
    """The fields that Datadog's integration asks for."""
    found = node(api)
    for name in (
        *("mem_used", "fd_used", "sockets_used", "proc_used", "disk_free", "context_switches"),
        *("io_read_count", "io_read_bytes", "io_write_count", "io_write_bytes", "io_sync_count"),
    ):
        assert isinstance(found[name], int)
        assert isinstance(found[f"{name}_details"]["rate"], float)


def test_a_node_has_a_history_without_an_earlier_request(api: Api) -> None:
    _, rows, _ = api.answer("/api/nodes?node_stats_age=60&node_stats_incr=5")
    assert isinstance(rows, list)
    for name in ("mem_used", "disk_free", "io_sync_count", "io_sync_us"):
        samples = rows[0][f"{name}_details"]["samples"]
        assert samples[-1]["sample"] >= 0
        assert samples[0]["timestamp"] >= samples[-1]["timestamp"]
    assert api.answer("/api/nodes?node_stats_age=60&node_stats_incr=0")[0] == 400


def test_a_node_is_found_by_its_name(api: Api, broker: BrokerProcess) -> None:
    found = node(api)
    assert found["name"].startswith("leveret@")
    assert (found["type"], found["running"]) == ("disc", True)
    assert found["os_pid"] == str(broker.pid)
    assert api.answer(f"/api/nodes/{found['name']}")[1].keys() == found.keys()  # type: ignore[attr-defined]
    assert api.answer("/api/nodes/leveret@elsewhere")[0] == 404
