"""Deadlines of messages that are gone are passed by within what a turn spends on deadlines.

A queue keeps a thousand of them, and a client may have many queues.
"""

from __future__ import annotations

from core import Node
from leveret.limits import STEPS_PER_SLICE, TIMED_STEPS_PER_TURN, TURN_SHARE_MIN
from raw_codec import method, publish

QUEUES = 40
MESSAGES = 1000


def test_those_of_many_queues_are_passed_by_in_many_turns() -> None:
    node = Node()
    peer = node.connect()
    for number in range(QUEUES):
        arguments = {"x-max-length": 1}
        peer.send(method(1, "queue.declare", queue=f"q{number}", arguments=arguments))
        # Each message but the last of a queue is dropped as the next one comes.
        peer.send(publish(1, "", f"q{number}", b"", expiration="60000") * MESSAGES)
    node.run()
    node.clock.advance(60_001)
    node.now()
    steps = []
    while node.turn.has_more() or node.turn.due():
        before = int(node.turn.steps)
        node.broker.settle()
        steps.append(int(node.turn.steps) - before)
        assert len(steps) < QUEUES * MESSAGES
    assert max(steps) <= TIMED_STEPS_PER_TURN + TURN_SHARE_MIN + STEPS_PER_SLICE
    # A step stands for a few of them.
    assert sum(steps) >= QUEUES * MESSAGES // 4
    assert all(node.classic(f"q{number}").ready_count() == 0 for number in range(QUEUES))
