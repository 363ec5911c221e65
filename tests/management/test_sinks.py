"""Sinks over the HTTP API."""

from __future__ import annotations

import json

from http_api import Api
from leveret.client import BasicProperties
from leveret.client.blocking import Channel

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
    assert (found.body, found.properties) == (b"m", BasicProperties())
    row = None
    while row is None or row["releasing"]:
        status, rows = api.ask("GET", "/api/sinks/%2F")
        assert status == OK
        assert isinstance(rows, list)
        (row,) = rows
    assert row.pop("last") > 1_700_000_000_000
    assert row == {
        "sink": "job", "vhost": "/", "batch": 7, "releasing": 0, "messages": 0,
        "message_stats": {"released": 1, "unroutable": 1},
    }  # fmt: skip
    assert api.ask("GET", "/api/sinks") == api.ask("GET", "/api/sinks/%2F")
    assert api.change("DELETE", "/api/sinks/%2F/job") == NO_CONTENT
    assert api.ask("DELETE", "/api/sinks/%2F/job")[0] == NOT_FOUND
    assert api.ask("GET", "/api/sinks/%2F") == (OK, [])
    assert api.ask("GET", "/api/sinks/none")[0] == NOT_FOUND
    channel.queue_delete("target")
