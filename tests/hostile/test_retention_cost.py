"""Retention by time looks at many streams, and drops what many hold, in slices."""

from __future__ import annotations

import pytest

from leveret.broker.scheduler.costs import SLICE
from leveret.broker.stream.stream import Stream
from support.node.core import Node
from support.wire.raw_codec import method, publish

AGED = {
    "x-queue-type": "stream",
    "x-max-age": "1s",
    "x-stream-max-segment-size-bytes": 1000,
}


def streams(node: Node, count: int, messages: int) -> list[Stream]:
    """Streams whose messages are all too old."""
    peer = node.connect()
    for number in range(count):
        peer.send(
            method(1, "queue.declare", queue=f"s{number}", durable=True, arguments=AGED),
            publish(1, "", f"s{number}", b"x" * 100) * messages,
        )
    node.sync()
    queues = [node.vhost.queues.by_name[f"s{number}"] for number in range(count)]
    found = [stream for stream in queues if isinstance(stream, Stream)]
    if messages:
        for stream in found:
            # What is in the newest block stays.
            stream.settle()
            peer.send(publish(1, "", stream.name, b"newest"))
        node.sync()
    node.clock.advance(10_000)
    node.now()
    return found


@pytest.mark.parametrize(("count", "messages"), [(3000, 0), (1000, 20), (40, 1000)])
def test_streams_are_looked_at_in_turns(count: int, messages: int) -> None:
    node = Node()
    found = streams(node, count, messages)
    node.judged(node.broker.tick)
    node.rest()
    assert {int(stream.first_offset) for stream in found} == {messages}


def test_no_look_begins_before_the_end_of_another() -> None:
    """However often the clock ticks meanwhile, they take no more turns than one look does."""
    node = Node()
    streams(node, 3 * SLICE, 0)
    turns = []
    for ticks in (1, 20):
        for _ in range(ticks):
            node.broker.tick()
        turns.append(0)
        while not node.rests():
            node.settle()
            turns[-1] += 1
    assert 0 < turns[1] <= turns[0]


def test_a_stream_that_is_deleted_meanwhile_is_passed_by() -> None:
    node = Node()
    streams(node, SLICE + 100, 0)
    node.broker.tick()
    peer = node.connect()
    # The streams that were declared first are looked at last.
    peer.call(1, "queue.delete", queue="s0")
    node.run()
    assert node.rests()
    assert "s0" not in node.vhost.queues.by_name
