"""Retention by time looks at many streams, and drops what many hold, in slices."""

from __future__ import annotations

import pytest

from leveret.broker.scheduler.costs import MESSAGES_FREED_PER_COST, ROUND, SLICE
from leveret.broker.stream.stream import Stream
from support.node.core import Node
from support.wire.raw_codec import method, publish

AGED = {
    "x-queue-type": "stream",
    "x-max-age": "1s",
    "x-stream-max-segment-size-bytes": 1000,
}

#: Another one that goes on in the same turn may have a slice too.
BESIDE_STEPS = SLICE


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


def tick(node: Node) -> list[int]:
    """Let the broker look at its streams; return the steps of each call."""
    steps = []
    calls = [node.broker.tick]
    while calls or node.core.scheduler.tasks:
        before = int(node.core.scheduler.spent)
        (calls.pop() if calls else node.broker.settle)()
        steps.append(int(node.core.scheduler.spent) - before)
        assert len(steps) < 10_000
    return steps


@pytest.mark.parametrize(("count", "messages"), [(3000, 0), (1000, 20), (40, 1000)])
def test_streams_are_looked_at_in_slices(count: int, messages: int) -> None:
    node = Node()
    found = streams(node, count, messages)
    steps = tick(node)
    assert max(steps) <= ROUND + BESIDE_STEPS
    assert sum(steps) >= count + count * messages // MESSAGES_FREED_PER_COST // 2
    assert {int(stream.first_offset) for stream in found} == {messages}


def test_no_look_begins_before_the_end_of_another() -> None:
    node = Node()
    streams(node, SLICE + 100, 0)
    node.broker.tick()
    assert len(node.core.scheduler.tasks) == 1
    node.broker.tick()
    assert len(node.core.scheduler.tasks) == 1
    node.run()
    assert not node.core.scheduler.tasks


def test_a_stream_that_is_deleted_meanwhile_is_passed_by() -> None:
    node = Node()
    streams(node, SLICE + 100, 0)
    node.broker.tick()
    peer = node.connect()
    # The streams that were declared first are looked at last.
    peer.call(1, "queue.delete", queue="s0")
    node.run()
    assert not node.core.scheduler.tasks
    assert "s0" not in node.vhost.queues.by_name
