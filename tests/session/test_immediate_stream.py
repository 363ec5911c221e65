"""The flag `immediate` on a publish to a stream that has a consumer with credit."""

from __future__ import annotations

from leveret.session.settings import SessionSettings
from support.node.core import Node
from support.wire.raw_codec import method, publish


def test_a_stream_with_a_ready_consumer_takes_an_immediate_message() -> None:
    node = Node(settings=SessionSettings("test", compatible=False))
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.call(1, "basic.qos", prefetch_count=5)
    peer.call(1, "basic.consume", queue="s", consumer_tag="c")
    start = method(1, "basic.publish", exchange="", routing_key="s")
    flagged = method(1, "basic.publish", exchange="", routing_key="s", immediate=True)
    peer.send(flagged + publish(1, "", "s", b"now")[len(start) :])
    node.sync()
    assert [got.name for got in peer.take()] == ["basic.deliver"]
    assert node.stream("s").ready_count() == 1
