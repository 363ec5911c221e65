"""What leaves all at once, or is looked at all at once, costs a slice at a time.

Purges and deletions of deep queues, a new TTL for them, browsers of many messages that came back,
and many deadlines that are cancelled.
"""

from __future__ import annotations

import pytest

from leveret.broker.backlog.stored import StoredChunk
from leveret.broker.policy.policy import make_policy
from leveret.broker.scheduler.costs import (
    DEFINING_METHOD,
    FREED_BYTES_PER_COST,
    METHOD,
    PLACES_MOVED_PER_COST,
    SHARE_OF_DELIVERIES,
    SHARE_OF_TASKS,
    SLICE,
)
from leveret.broker.scheduler.timers import Timed, Timers
from leveret.clock import NO_DEADLINE
from leveret.limits import LARGE_MESSAGE_BYTES
from leveret.store.disks.recording import RecordingDisk
from leveret.store.segments.segments import ChunkRef
from support.costs.work_account import Account, stop
from support.node.core import Node, Peer
from support.wire.hare import HarePeer
from support.wire.raw import Method
from support.wire.raw_codec import method, publish


@pytest.fixture
def node() -> Node:
    return Node()


#: What a request may take beyond its slice: a portion, a page of the disk, the method itself.
SPARE = 1024 + DEFINING_METHOD + METHOD

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


def ask(node: Node, peer: Peer, data: bytes) -> int:
    """Let the broker receive a request; return the steps that it took at once."""
    before = int(node.core.scheduler.spent)
    peer.connection.receive(data, node.now())
    return int(node.core.scheduler.spent) - before


def turns_of(node: Node) -> list[int]:
    """Have the core do all of its works; return the steps of each turn."""
    found = []
    while node.core.scheduler.tasks:
        before = int(node.core.scheduler.spent)
        node.broker.settle()
        found.append(int(node.core.scheduler.spent) - before)
    return found


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
    ask(node, other, method(1, "queue.purge", queue="q"))
    turns_of(node)
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
    assert ask(node, peer, method(1, "queue.purge", queue="q")) <= SLICE + SPARE
    turns_of(node)
    peer.flush()
    peer.expect(1, "queue.purge-ok")
    peer.send(*many)
    assert node.classic("q").ready_count() == 2 * SLICE


def govern(node: Node, ttl_ms: int) -> None:
    """Set the policy that gives the queue `q` a TTL."""
    node.vhost.policies.set(make_policy("ttl", "^q$", {"message-ttl": ttl_ms}))


def test_a_new_ttl_of_many_messages_takes_slices() -> None:
    node = Node()
    peer = fill(node)
    govern(node, 1000)
    turns = turns_of(node)
    assert len(turns) > 1
    assert max(turns) <= SHARE_OF_TASKS + SLICE + SPARE
    node.tick(2000)
    node.run()
    assert node.classic("q").ready_count() == 0
    # Another TTL takes the place of one that is not applied to all yet.
    fill_more = [publish(1, "", "q", b"m")] * MANY
    node.vhost.policies.clear("ttl")
    turns_of(node)
    peer.send(*fill_more)
    govern(node, 1000)
    govern(node, 3_600_000)
    turns_of(node)
    node.tick(2000)
    node.run()
    assert node.classic("q").ready_count() == MANY


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}])
def test_a_browser_of_many_messages_that_came_back_takes_slices(
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
    assert ask(node, peer, request) <= 64
    turns = 0
    while not peer.pending():
        before = int(node.core.scheduler.spent)
        with Account(400_000):
            node.broker.settle()
        stop()
        assert node.core.scheduler.spent - before <= SHARE_OF_DELIVERIES + SPARE
        peer.flush()
        turns += 1
    assert turns >= MANY // SHARE_OF_DELIVERIES
    node.run()
    bodies = [got.body for got in peer.take() if got.name == "basic.deliver"]
    assert bodies == [b"%d" % number for number in range(MANY - 3, MANY)]


def test_the_end_of_a_haremq_connection_takes_slices(node: Node) -> None:
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
    before = int(node.core.scheduler.spent)
    del node.peers[hare.connection]
    hare.connection.lost()
    # What comes back, and then the queues.
    assert node.core.scheduler.spent - before <= SLICE + SPARE
    assert len(node.core.scheduler.tasks) == 1
    assert max(turns_of(node)) <= SHARE_OF_TASKS + SLICE + SPARE
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


def test_a_purge_counts_the_chunks_that_it_moves() -> None:
    """Where the first one stays, each that is forgotten has all behind it moved."""
    node = Node(window_bytes=0)
    peer = fill(node, MANY, durable=True)
    peer.send(method(1, "basic.get", queue="q"))
    stored = node.classic("q").stored
    chunks = len(stored.items)
    assert chunks > 1
    # Made as long as that of a queue with a hundred gigabytes on the disk.
    last = int(stored.items[-1].ref.last)
    for first in range(last + 1, last + 100_000):
        stored.items.append(StoredChunk(ChunkRef(1, 0, 1, first, first, 1, 0, 0), 1))
    before = int(node.core.scheduler.spent)
    ask(node, node.connect(), method(1, "queue.purge", queue="q", no_wait=True))
    turns_of(node)
    assert int(node.core.scheduler.spent) - before > chunks * 100_000 // PLACES_MOVED_PER_COST


def test_the_temporary_files_of_a_deleted_queue_are_removed() -> None:
    """They are unused only when the last of its chunks is forgotten."""
    node = Node(window_bytes=0)
    peer = fill(node, 3 * MANY)
    assert len(node.classic("q").stored.items) > SLICE
    ask(node, peer, method(1, "queue.delete", queue="q"))
    node.core.spill.take_unused()
    turns_of(node)
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
    ask(node, peer, method(2, "queue.purge", queue="q"))
    assert node.core.scheduler.tasks
    other = node.connect()
    for got in taken[:2200]:
        peer.connection.receive(method(1, "basic.ack", delivery_tag=got.delivery_tag), node.now())
    turns_of(node)
    sync(node)
    queue = node.classic("q")
    assert queue.ready_count() == 0
    # What is unacked comes back after a crash, or now, and each once.
    again = Node(RecordingDisk(node.image()), window_bytes=50_000)
    assert again.classic("q").ready_count() == 800
    ask(node, peer, method(1, "basic.recover", requeue=True))
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
    before = int(node.core.scheduler.spent)
    other.connection.receive(method(1, "queue.purge", queue="q"), node.now())
    assert int(node.core.scheduler.spent) - before <= SLICE + SPARE
    assert node.core.scheduler.tasks
    peer.connection.receive(method(1, "basic.recover", requeue=True), node.now())
    turns_of(node)
    node.sync()
    assert node.classic("q").ready_count() == len(taken)
    again = Node(RecordingDisk(node.image()), window_bytes=50_000)
    assert again.classic("q").ready_count() == len(taken)
    left = again.connect()
    found = sorted(int(left.call_get("q", no_ack=True).body) for _ in taken)
    assert found == sorted(int(got.body) for got in taken)


# -- large messages --------------------------------------------------------------------------------

#: Bytes of a message that is large, and how many of them there are.
LARGE, LARGE_MANY = 4 * LARGE_MESSAGE_BYTES, 40


@pytest.mark.parametrize("end", ["purge", "delete", "ack", "expire"])
def test_large_messages_are_let_go_in_slices(node: Node, end: str) -> None:
    """The system takes back each of their pages, which takes as long as very many messages do."""
    peer = node.connect()
    node.core.memory.window_bytes = 1 << 40
    peer.declare("q")
    for _ in range(LARGE_MANY):
        peer.send(publish(1, "", "q", bytes(LARGE), expiration="60000"))
    node.run()
    peer.send(publish(1, "", "q", b"small") * 100)
    held = int(node.core.memory.held_bytes)
    assert held > LARGE_MANY * LARGE
    if end == "ack":
        peer.send(method(1, "basic.get", queue="q") * LARGE_MANY)
        peer.take()
        data = method(1, "basic.ack", delivery_tag=0, multiple=True)
    elif end != "expire":
        data = method(1, f"queue.{end}", queue="q")
    if end == "expire":
        node.clock.advance(60_001)
        node.now()
        taken = []
        while node.classic("q").ready_count() > 100:
            before = int(node.core.scheduler.spent)
            node.broker.settle()
            taken.append(int(node.core.scheduler.spent) - before)
            assert len(taken) < 1_000
        peer.send(method(1, "queue.purge", queue="q"))
    else:
        taken = [ask(node, peer, data), *turns_of(node)]
    assert sum(taken) >= LARGE_MANY * LARGE // FREED_BYTES_PER_COST
    assert max(taken) <= SHARE_OF_TASKS + SLICE + LARGE // FREED_BYTES_PER_COST
    assert node.core.memory.held_bytes < held // 100
