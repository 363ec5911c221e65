"""Deadlines of messages that are gone are few, and passed by within a turn's steps for deadlines.

A client may have many queues with a TTL, and let any number of messages pass through them.
"""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable

import pytest

from leveret.broker.policies.policy import make_policy
from leveret.broker.queue import deadlines
from leveret.broker.queue.classic import ClassicQueue
from leveret.store.disks.recording import RecordingDisk
from support.costs.cost_gauge import PLAIN
from support.node.core import Node, Peer
from support.node.variants import few_of
from support.wire.raw_codec import method, publish

#: Compiled code does not say which module allocates.
pytestmark = pytest.mark.both_builds
allocates = pytest.mark.skipif(not PLAIN, reason="measures allocations in plain Python")

#: Far more than a test lasts, in ms.
TTL = {"x-message-ttl": 1_000_000_000}


def grown_by(work: Callable[[], None]) -> int:
    """The bytes of deadlines that are there after some work, and were not before."""
    tracemalloc.start()
    try:
        work()
        traces = [tracemalloc.Filter(True, deadlines.__file__)]
        found = tracemalloc.take_snapshot().filter_traces(traces).statistics("filename")
        return sum(file.size for file in found)
    finally:
        tracemalloc.stop()


def declared(node: Node, count: int) -> Peer:
    peer = node.connect()
    for number in range(count):
        peer.declare(f"q{number}", arguments=TTL)
    return peer


def passed_through(node: Node, peer: Peer, queue: str, count: int) -> None:
    """Publish messages, and consume all but the last two of them."""
    peer.send(publish(1, "", queue, b"m") * count)
    node.run()
    peer.send(method(1, "basic.get", queue=queue, no_ack=True) * (count - 2))
    node.run()
    peer.take()
    assert node.classic(queue).ready_count() % count == 2


@allocates
@pytest.mark.parametrize(("queues", "count"), [(40, 64), (4, 2_000)])
def test_those_of_messages_that_were_consumed_are_sorted_out(queues: int, count: int) -> None:
    node = Node()
    peer = declared(node, queues)
    passed_through(node, peer, "q0", 2 * count)

    def work() -> None:
        for number in range(1, queues):
            passed_through(node, peer, f"q{number}", count)

    # Each of them takes more than a hundred bytes.
    assert grown_by(work) < 40 * (queues - 1) * count


@allocates
def test_a_message_that_comes_back_has_one() -> None:
    node = Node()
    peer = declared(node, 1)
    peer.send(publish(1, "", "q0", b"m") * 8)
    node.run()

    def work() -> None:
        for _ in range(2_000):
            peer.send(method(1, "basic.get", queue="q0", no_ack=False))
            peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
        peer.take()

    assert grown_by(work) < 10_000
    assert node.classic("q0").ready_count() == 8
    node.tick(1_000_000_001)
    assert node.classic("q0").ready_count() == 0


def test_a_message_that_comes_back_while_others_are_sorted_out_expires() -> None:
    node = Node()
    peer = declared(node, 1)
    peer.send(publish(1, "", "q0", b"m") * 2_000)
    node.run()
    peer.send(method(1, "basic.get", queue="q0", no_ack=False) * 1_200)
    for _ in range(20):
        peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
        peer.send(method(1, "basic.get", queue="q0", no_ack=False) * 1_200)
    peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
    node.run()
    assert node.classic("q0").ready_count() == 2_000
    node.tick(1_000_000_001)
    assert node.classic("q0").ready_count() == 0


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}])
def test_those_of_pages_are_sorted_out_too(arguments: dict[str, object]) -> None:
    """And then it rests: what pages have left is not looked at again and again."""
    node = Node(window_bytes=0)
    peer = node.connect()
    peer.declare("q0", arguments=TTL | arguments)
    count = 3_000
    for _ in range(count // 100):
        peer.send(publish(1, "", "q0", b"m" * 60, delivery_mode=2) * 100)
        node.sync()
    assert node.classic("q0").ready.page_count() > count // 4
    for _ in range(count // 10):
        peer.send(method(1, "basic.get", queue="q0", no_ack=True) * 10)
        node.run()
    assert node.classic("q0").ready_count() == 0
    assert node.rests()


@pytest.mark.parametrize("seed", few_of(range(20), 6))
def test_each_message_expires_when_it_is_due_whatever_came_before(seed: int) -> None:
    """Random publishes, gets, returns, evictions, and time, against a list."""
    draw = random.Random(seed)
    node = Node(window_bytes=0) if seed % 2 else Node()
    peer = node.connect()
    peer.declare("q0", arguments={"x-max-priority": 2} if seed % 3 == 0 else {})
    now = 0
    waiting: dict[bytes, int] = {}
    unacked: dict[bytes, int] = {}
    number = 0
    for _ in range(120):
        what = draw.randrange(7)
        if what < 2:
            for _ in range(draw.choice([1, 40, 150])):
                body = b"%06d" % number
                number += 1
                ttl = draw.choice([1_000, 5_000, 60_000, 10**8])
                waiting[body] = now + ttl
                mode = draw.choice([1, 2])
                level = draw.randrange(3)
                peer.send(
                    publish(
                        1, "", "q0", body, expiration=f"{ttl}", delivery_mode=mode, priority=level
                    )
                )
            node.sync()
        elif what < 4:
            peer.send(method(1, "basic.get", queue="q0") * draw.choice([1, 30, 200]))
            node.sync()
            for one in peer.take():
                if one.name == "basic.get-ok":
                    unacked[one.body] = waiting.pop(one.body)
        elif what == 6:
            while node.classic("q0").evict():
                pass
            node.sync()
        elif what == 4:
            how = draw.choice(["basic.ack", "basic.nack", "basic.nack"])
            back = {} if how == "basic.ack" else {"requeue": True}
            peer.send(method(1, how, delivery_tag=0, multiple=True, **back))
            node.sync()
            waiting |= unacked if back else {}
            unacked = {}
        else:
            by_ms = draw.choice([100, 900, 4_000, 50_000])
            now += by_ms
            node.tick(by_ms)
            node.sync()
        waiting = {body: due for body, due in waiting.items() if due > now}
        assert node.classic("q0").ready_count() == len(waiting)
    node.tick(10**8 + 1)
    node.sync()
    assert node.classic("q0").ready_count() == 0


def test_a_retained_message_of_an_earlier_start_expires_once_it_is_put_back() -> None:
    """Its deadline is the first of its queue, which has no TTL."""
    node = Node()
    peer = node.connect()
    peer.declare("q0", arguments={"x-retain-acked": "1D"})
    peer.send(publish(1, "", "q0", b"m", delivery_mode=2, expiration="60000"))
    node.sync()
    peer.send(method(1, "basic.get", queue="q0", no_ack=True))
    node.sync()
    again = Node(RecordingDisk(node.stop()), clock=node.clock)
    again.classic("q0").rewind(0)
    again.run()
    assert again.classic("q0").ready_count() == 1
    again.tick(60_001)
    assert again.classic("q0").ready_count() == 0


def test_a_queue_whose_ttl_was_changed_leaves_the_memory_with_its_last_message() -> None:
    """What computed its deadlines anew does not keep it: nobody waits for a collector."""
    node = Node()
    peer = node.connect()
    peer.declare("q0", arguments=TTL)
    peer.send(publish(1, "", "q0", b"m") * 100)
    policy = make_policy("p", ".*", {"message-ttl": 60_000})
    node.vhost.policies.set(policy)
    node.run()
    assert node.rests()
    gc.collect()
    gc.disable()
    try:
        queues = sum(isinstance(one, ClassicQueue) for one in gc.get_objects())
        peer.call(1, "queue.delete", queue="q0")
        node.sync()
        node.tick()
        assert sum(isinstance(one, ClassicQueue) for one in gc.get_objects()) == queues - 1
    finally:
        gc.enable()
