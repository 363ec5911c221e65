"""HEAD is answered by the head that GET has, and by nothing after it."""

from __future__ import annotations

import http.client

import pytest

from leveret.client.blocking import Channel
from support.brokers.broker_process import BrokerProcess
from support.http.http_streams import basic, http_port

EVENTS = {"Accept": "text/event-stream"}


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/api/whoami", {}),
        ("/api/queues", {}),
        ("/api/queues?sort=name", {}),
        ("/api/definitions", {}),
        ("/api/log/stream", {}),
        ("/api/log/stream", EVENTS),
        ("/api/streams/%2F", {}),
        ("/metrics", {}),
    ],
)
def test_a_head_has_no_body(
    broker: BrokerProcess, channel: Channel, path: str, headers: dict[str, str]
) -> None:
    channel.queue_declare("head.stream", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_select()
    channel.publish(b"x", routing_key="head.stream")
    client = http.client.HTTPConnection("127.0.0.1", http_port(broker), timeout=120)
    asked = {**basic("guest", "guest"), **headers}
    client.request("HEAD", path, headers=asked)
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    # What came after the head would be read as the next answer.
    client.request("GET", "/api/whoami", headers=asked)
    answer = client.getresponse()
    assert answer.status == 200
    assert b"guest" in answer.read()
    client.close()
