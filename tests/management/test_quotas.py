"""`GET /api/quotas`, and the limits of users that a new data directory begins with."""

from __future__ import annotations

from typing import Any

from leveret.broker.parameters import DEFAULT_USER_LIMITS
from leveret.client import BasicProperties
from leveret.client.blocking import Channel
from leveret.limits import (
    BINDINGS_PER_USER,
    CONNECTIONS_PER_USER,
    MESSAGE_BYTES_PER_USER_PERCENT,
    MESSAGES_PER_USER,
    QUEUES_PER_USER,
)
from leveret.store.disk import RealDisk
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api


def quotas(api: Api, of: str, name: str) -> dict[str, dict[str, Any]]:
    """The rows of one user or vhost by their limits."""
    status, rows, _ = api.answer("/api/quotas")
    assert status == 200
    assert isinstance(rows, list)
    return {row["limit"]: row for row in rows if (row["of"], row["name"]) == (of, name)}


def test_a_new_broker_has_defaults_for_its_users(api: Api, broker: BrokerProcess) -> None:
    found = quotas(api, "user", "guest")
    assert {limit: row["max"] for limit, row in found.items() if limit != "max-message-bytes"} == {
        "max-connections": CONNECTIONS_PER_USER,
        "max-queues": QUEUES_PER_USER,
        "max-bindings": BINDINGS_PER_USER,
        "max-messages": MESSAGES_PER_USER,
    }
    capacity = RealDisk(str(broker.data_dir)).capacity()
    most = found["max-message-bytes"]["max"]
    assert most == capacity * MESSAGE_BYTES_PER_USER_PERCENT // 100
    status, parameter, _ = api.answer(f"/api/global-parameters/{DEFAULT_USER_LIMITS}")
    assert (status, parameter["value"]["max-queues"]) == (200, QUEUES_PER_USER)  # type: ignore[index]


def test_use_is_shown_beside_the_limits(api: Api, channel: Channel) -> None:
    before = quotas(api, "user", "guest")
    assert api.change("PUT", "/api/user-limits/guest/max-messages", {"value": 0}) == 204
    try:
        channel.queue_declare("q.quotas", durable=True)
        channel.queue_bind("q.quotas", "amq.fanout")
        channel.publish(b"x", "", "q.quotas", BasicProperties(delivery_mode=2))
        # The answer comes after the publish is judged.
        channel.queue_declare("q.quotas", passive=True)
        after = quotas(api, "user", "guest")
    finally:
        assert api.change("DELETE", "/api/user-limits/guest/max-messages") == 204
    assert after["max-queues"]["used"] == before["max-queues"]["used"] + 1
    assert after["max-bindings"]["used"] == before["max-bindings"]["used"] + 1
    assert after["max-connections"]["used"] >= 1
    # Other tests have left some, and one more was refused.
    assert after["max-messages"]["max"] == 0
    assert after["max-messages"]["used"] == before["max-messages"]["used"]
    assert after["max-messages"]["refused"] == before["max-messages"]["refused"] + 1
    assert api.change("DELETE", "/api/queues/%2F/q.quotas") == 204
