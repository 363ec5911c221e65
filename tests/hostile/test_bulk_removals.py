"""What leaves all at once, or is looked at all at once, costs a slice at a time.

Purges and deletions of deep queues, a new TTL for them, browsers of many messages that came back,
and many deadlines that are cancelled.
"""

from __future__ import annotations

import pytest

from leveret.broker.policies.policy import make_policy
from leveret.broker.scheduler.costs import (
    SHARE_OF_DELIVERIES,
    SLICE,
)
from leveret.broker.scheduler.timers import Timed, Timers
from leveret.clock import NO_DEADLINE
from leveret.limits import LARGE_MESSAGE_BYTES
from leveret.store.disks.recording import RecordingDisk
from support.costs.work_account import Account, stop
from support.node.core import Node, Peer
from support.wire.hare import HarePeer
from support.wire.raw import Method
from support.wire.raw_codec import method, publish


@pytest.fixture
def node() -> Node:
    return Node()


#: Arguments of a queue that drops the like of what is in it.
QUEUED = {"x-deduplication-header": "id", "x-deduplication-scope": "queued"}

#: Messages that are more than a few slices.
MANY = 4 * SLICE


def fill(node: Node, count: int = MANY, **values: object) -> Peer:
    """A peer on a broker whose queue `q` has messages."""
    peer = node.connect(1, 2)
    durable = bool(values.pop("durable", False))
    peer.declare("q", durable=durable, arguments=values.pop("arguments", {}))
    mode = 2 if durable else 1
    for first in range(0, count, 1000):
        peer.send(
            *[
                publish(2, "", "q", b"%d" % number, delivery_mode=mode)
                for number in range(first, min(first + 1000, count))
            ]
        )
    node.sync()
    return peer


def sync(node: Node) -> None:
    """Sync what was recorded, without a turn."""
    group = node.journal.seal()
    if group is not None:
        node.files.write(group)
        node.core.syncs.synced(group.number)


def test_a_purge_spares_what_is_out(node: Node) -> None:
    """Unacked messages lie among those that are purged, and come back."""
    peer = fill(node, durable=True)
    peer.call(1, "basic.qos", prefetch_count=10)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    assert len(peer.take()) == 10
    other = node.connect()
    other.receive(method(1, "queue.purge", queue="q"))
    node.run()
    peer.send(method(1, "basic.ack", delivery_tag=1))
    peer.lose()
    node.run()
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert again.classic("q").ready_count() == node.classic("q").ready_count() == 9


def test_a_key_may_come_again_when_the_purge_has_answered(node: Node) -> None:
    peer = node.connect()
    peer.declare("q", durable=False, arguments=QUEUED)
    many = [publish(1, "", "q", b"m", headers={"id": f"k{number}"}) for number in range(2 * SLICE)]
    peer.send(*many)
    peer.receive(method(1, "queue.purge", queue="q"))
    node.run()
    peer.flush()
    peer.expect(1, "queue.purge-ok")
    peer.send(*many)
    assert node.classic("q").ready_count() == 2 * SLICE


def govern(node: Node, ttl_ms: int) -> None:
    """Set the policy that gives the queue `q` a TTL."""
    node.vhost.policies.set(make_policy("ttl", "^q$", {"message-ttl": ttl_ms}))


def test_a_new_ttl_of_many_messages_takes_turns() -> None:
    node = Node()
    peer = fill(node)
    govern(node, 1000)
    assert not node.rests()
    node.run()
    node.tick(2000)
    node.run()
    assert node.classic("q").ready_count() == 0
    # Another TTL takes the place of one that is not applied to all yet.
    fill_more = [publish(1, "", "q", b"m")] * MANY
    node.vhost.policies.clear("ttl")
    node.run()
    peer.send(*fill_more)
    govern(node, 1000)
    govern(node, 3_600_000)
    node.run()
    node.tick(2000)
    node.run()
    assert node.classic("q").ready_count() == MANY


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}])
def test_a_browser_of_many_messages_that_came_back_takes_turns(
    node: Node, arguments: dict[str, object]
) -> None:
    peer = fill(node, arguments=arguments)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.take()
    peer.call(1, "basic.cancel", consumer_tag="c")
    peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
    assert node.classic("q").ready_count() == MANY
    browse = {"x-browse": {"position": MANY - 3}}
    request = method(1, "basic.consume", queue="q", arguments=browse, no_wait=True)
    peer.receive(request)
    turns = 0
    while not peer.pending():
        with Account(400_000):
            node.settle()
        stop()
        peer.flush()
        turns += 1
    assert turns >= MANY // SHARE_OF_DELIVERIES
    node.run()
    bodies = [got.body for got in peer.take() if got.name == "basic.deliver"]
    assert bodies == [b"%d" % number for number in range(MANY - 3, MANY)]


def test_the_end_of_a_haremq_connection_takes_turns(node: Node) -> None:
    """What it did not ack comes back in its order, and its exclusive queues end."""
    hare = HarePeer(node)
    assert hare.open()
    assert hare.queue("q")
    for number in range(2 * SLICE):
        assert hare.queue(f"x{number}", exclusive=True)
    peer = node.connect()
    peer.send(*[publish(1, "", "q", b"%d" % number) for number in range(2 * SLICE)])
    assert hare.consume("q")
    hare.pushes()
    assert node.classic("q").unacked_count == 2 * SLICE
    peer.send(publish(1, "", "q", b"new"))
    # What comes back, and then the queues.
    hare.vanish()
    assert not node.rests()
    node.run()
    assert list(node.vhost.queues.by_name) == ["q"]
    peer.call(1, "basic.consume", queue="q", no_ack=True)
    bodies = peer.bodies()
    assert bodies[:-1] == [b"%d" % number for number in range(2 * SLICE)]
    assert bodies[-1] == b"new"


class Noted(Timed):
    """Notes that it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.called = 0

    def due(self, now_ms: int) -> None:
        self.called += 1


def test_no_deadline_pays_for_all_that_were_cancelled() -> None:
    timers = Timers()
    many = [Noted() for _ in range(20_000)]
    for at, timed in enumerate(many):
        timers.set(timed, 1000 + at)
    while timers.next_ms() < 1000:
        pass
    most = 0
    for timed in many[:-10]:
        with Account(1 << 40) as account:
            timers.cancel(timed)
        most = max(most, account.lines)
    with Account(1 << 40) as account:
        timers.next_ms()
    stop()
    assert max(most, account.lines) < 400
    with Account(1 << 40) as account:
        timers.fire(5_000, 10)
    stop()
    assert account.lines < 1000
    while timers.next_ms() != NO_DEADLINE:
        timers.fire(100_000, 10)
    assert [timed.called for timed in many] == [0] * (len(many) - 10) + [1] * 10


def test_very_many_deadlines_enter_some_at_each_look_and_none_is_called_before_all_have() -> None:
    timers = Timers()
    many = [Noted() for _ in range(20_000)]
    for at, timed in enumerate(many):
        timers.set(timed, 1000 + at)
    # The last of them is the first that is due.
    timers.set(many[-1], 500)
    for _ in range(5):
        with Account(1 << 40) as account:
            assert timers.fire(2000, 100) > 0
            assert timers.next_ms() < 500
        assert account.lines < 40_000
    stop()
    assert not any(timed.called for timed in many)
    while timers.next_ms() < 500:
        pass
    timers.fire(2000, 1)
    assert [timed.called for timed in many] == [0] * (len(many) - 1) + [1]


def test_a_deadline_that_moves_with_each_message_is_one_entry() -> None:
    timers = Timers()
    moved = Noted()
    for at in range(10_000):
        timers.set(moved, 20_000 - at)
    with Account(1 << 40) as account:
        assert timers.next_ms() == 10_001
    stop()
    assert account.lines < 100
    timers.fire(20_000, 10)
    assert moved.called == 1
    assert timers.next_ms() == NO_DEADLINE


def test_deadlines_are_kept_while_others_are_sorted_out() -> None:
    """Whatever is set and cancelled, each is called once, at its last deadline, in order."""
    timers = Timers()
    steady = [Noted() for _ in range(50)]
    for at, timed in enumerate(steady):
        timers.set(timed, 10_000 + at)
    for number in range(3000):
        passing = Noted()
        timers.set(passing, 20_000 + number)
        timers.cancel(passing)
        moved = steady[number % 50]
        timers.set(moved, 10_000 + (number * 7) % 1000)
    last = sorted((int(timed.deadline_ms), at) for at, timed in enumerate(steady))
    for deadline, at in last:
        while timers.next_ms() < deadline:
            timers.fire(timers.next_ms(), 1)
        timers.fire(deadline, 50)
        assert steady[at].called == 1
    assert sum(timed.called for timed in steady) == 50


# -- what came back, and what is retained ----------------------------------------------------------


# -- very deep queues ------------------------------------------------------------------------------


def test_the_temporary_files_of_a_deleted_queue_are_removed() -> None:
    """They are unused only when the last of its chunks is forgotten."""
    node = Node(window_bytes=0)
    peer = fill(node, 3 * MANY)
    assert len(node.classic("q").stored.items) > SLICE
    peer.receive(method(1, "queue.delete", queue="q"))
    node.core.spill.take_unused()
    node.rest()
    assert node.core.spill.take_unused()


def taken_from_pages(node: Node) -> tuple[Peer, list[Method]]:
    """Deliveries of messages with a priority that lie in pages, between others that wait."""
    node.core.memory.page_bytes = 20_000
    peer = fill(node, 500, durable=True, arguments={"x-max-priority": 5})
    for first in range(0, 6000, 500):
        peer.send(
            *[
                publish(2, "", "q", b"%d" % (500 + at), delivery_mode=2, priority=at % 2)
                for at in range(first, first + 500)
            ]
        )
    node.sync()
    peer.take()
    return peer, [peer.call_get("q") for _ in range(3000)]


def test_what_comes_back_while_pages_of_priorities_are_purged_stays() -> None:
    """Each page is forgotten in its slice; what was handed out, and came back, lies in some."""
    node = Node(window_bytes=50_000)
    peer, taken = taken_from_pages(node)
    peer.receive(method(2, "queue.purge", queue="q"))
    assert not node.rests()
    other = node.connect()
    for got in taken[:2200]:
        peer.receive(method(1, "basic.ack", delivery_tag=got.delivery_tag))
    node.run()
    sync(node)
    queue = node.classic("q")
    assert queue.ready_count() == 0
    # What is unacked comes back after a crash, or now, and each once.
    again = Node(RecordingDisk(node.image()), window_bytes=50_000)
    assert again.classic("q").ready_count() == 800
    peer.receive(method(1, "basic.recover", requeue=True))
    node.sync()
    assert queue.ready_count() == 800
    found = sorted(int(other.call_get("q", no_ack=True).body) for _ in range(800))
    assert found == sorted(int(got.body) for got in taken[2200:])
    node.sync()
    assert Node(RecordingDisk(node.image()), window_bytes=50_000).classic("q").ready_count() == 0
    assert queue.stored.items == []


def test_a_requeue_between_two_slices_of_such_a_purge_survives_a_crash() -> None:
    node = Node(window_bytes=50_000)
    peer, taken = taken_from_pages(node)
    other = node.connect()
    other.receive(method(1, "queue.purge", queue="q"))
    assert not node.rests()
    peer.receive(method(1, "basic.recover", requeue=True))
    node.run()
    node.sync()
    assert node.classic("q").ready_count() == len(taken)
    again = Node(RecordingDisk(node.image()), window_bytes=50_000)
    assert again.classic("q").ready_count() == len(taken)
    left = again.connect()
    found = sorted(int(left.call_get("q", no_ack=True).body) for _ in taken)
    assert found == sorted(int(got.body) for got in taken)


#: Bytes of a message that is large, and how many of them there are.
LARGE, LARGE_MANY = 4 * LARGE_MESSAGE_BYTES, 40
